//! Tickets that announce the same idle state twice.
//!
//! A queue may deliver a ticket twice, and whoever sends one may have to send it again. Two claim
//! workers of one run must not both claim such an instance: where the answer to one of the claims
//! is lost, the record that the other has made looks just like its own. So the first ticket goes
//! to a worker, and the others stay with it until its claim is decided.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::InstanceId;
use crate::ports::Receipt;
use crate::ticket::Ticket;
use crate::time::Timestamp;

/// The very idle state that a ticket announces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Idleness(InstanceId, Timestamp);

impl Idleness {
    pub(super) fn of(ticket: &Ticket) -> Idleness {
        Idleness(ticket.instance_id.clone(), ticket.threshold)
    }
}

/// What one pickup manager knows of the tickets it has met.
#[derive(Debug, Default)]
pub(super) struct Twins {
    /// Idle states of which a ticket waits for a worker or is with one, and the receipts of
    /// further tickets for them.
    open: BTreeMap<Idleness, Vec<Receipt>>,
    handed_out: BTreeSet<Idleness>,
    /// Idle states that are over, as a claim has shown.
    settled: BTreeSet<Idleness>,
}

/// What a ticket is to us.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// The first of its idle state, to be handed to a worker.
    First(Receipt),
    /// Another one, kept until the first is decided.
    Twin,
    /// Of an idle state that is over.
    Late(Receipt),
}

impl Twins {
    pub(super) fn meet(&mut self, ticket: &Ticket, receipt: Receipt) -> Met {
        let announced = Idleness::of(ticket);
        if self.settled.contains(&announced) {
            return Met::Late(receipt);
        }
        match self.open.get_mut(&announced) {
            Some(twins) => {
                twins.push(receipt);
                Met::Twin
            }
            None => {
                self.open.insert(announced, Vec::new());
                Met::First(receipt)
            }
        }
    }

    pub(super) fn hand_out(&mut self, announced: &Idleness) {
        self.handed_out.insert(announced.clone());
    }

    /// A claim has been decided; gives the receipts of the other tickets.
    pub(super) fn settle(&mut self, announced: &Idleness) -> Vec<Receipt> {
        self.settled.insert(announced.clone());
        self.forget(announced)
    }

    /// No claim will be made; gives the receipts of the other tickets.
    pub(super) fn forget(&mut self, announced: &Idleness) -> Vec<Receipt> {
        self.handed_out.remove(announced);
        self.open.remove(announced).unwrap_or_default()
    }

    /// How many tickets are with workers, or kept with those that are.
    pub(super) fn in_hand(&self) -> usize {
        let twins: usize = self.open.values().map(Vec::len).sum();
        self.handed_out.len() + twins
    }

    /// The receipts of all that are kept.
    pub(super) fn into_receipts(self) -> impl Iterator<Item = Receipt> {
        self.open.into_values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ResourceClass;
    use crate::record::MachineSpec;
    use crate::requirements::UsageClass;

    fn ticket(threshold: u64) -> Ticket {
        Ticket {
            instance_id: InstanceId::new("i-1").unwrap(),
            spec: MachineSpec {
                resource_class: ResourceClass::new("large").unwrap(),
                instance_type: "c6i.large".to_owned(),
                usage_class: UsageClass::Spot,
                cpu: 2,
                mem: 4096,
            },
            threshold: Timestamp::from_millis(threshold),
        }
    }

    fn receipt(name: &str) -> Receipt {
        Receipt(name.to_owned())
    }

    #[test]
    fn only_the_first_of_an_idle_state_goes_to_a_worker() {
        let mut twins = Twins::default();
        let (now, later) = (ticket(1), ticket(2));
        assert_eq!(twins.meet(&now, receipt("a")), Met::First(receipt("a")));
        assert_eq!(twins.meet(&now, receipt("b")), Met::Twin);
        let other = twins.meet(&later, receipt("c"));
        assert_eq!(other, Met::First(receipt("c")), "another idle state of the same machine");
        twins.hand_out(&Idleness::of(&now));
        assert_eq!(twins.in_hand(), 2);
        assert_eq!(twins.meet(&now, receipt("d")), Met::Twin);
        assert_eq!(twins.settle(&Idleness::of(&now)), [receipt("b"), receipt("d")]);
        assert_eq!(twins.in_hand(), 0);
        assert_eq!(twins.meet(&now, receipt("e")), Met::Late(receipt("e")));
    }

    #[test]
    fn what_was_never_claimed_goes_back_with_its_twins_and_may_come_again() {
        let mut twins = Twins::default();
        twins.meet(&ticket(1), receipt("a"));
        twins.meet(&ticket(1), receipt("b"));
        assert_eq!(twins.forget(&Idleness::of(&ticket(1))), [receipt("b")]);
        assert_eq!(twins.meet(&ticket(1), receipt("c")), Met::First(receipt("c")));
        twins.meet(&ticket(1), receipt("d"));
        assert_eq!(twins.into_receipts().collect::<Vec<_>>(), [receipt("d")]);
    }
}
