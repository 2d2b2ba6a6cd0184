//! Tickets that announce the same machine twice.
//!
//! A queue may deliver a ticket twice, whoever sends one may have to send it again, and one of an
//! earlier idle state may still be about. Two claim workers of one run must not both claim such an
//! instance: where the answer to one of the claims is lost, the record that the other has made
//! looks just like its own. So the first ticket goes to a worker. Others of the same idle state
//! stay with it until its claim is decided, and those of another one wait for the next pass.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::ids::InstanceId;
use crate::model::ticket::Ticket;
use crate::model::timestamp::Timestamp;
use crate::ports::Receipt;

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
    /// Of another idle state of a machine that is being decided about.
    Other(Receipt),
    /// Of an idle state that is over.
    Late(Receipt),
}

impl Twins {
    pub(super) fn meet(&mut self, ticket: &Ticket, receipt: Receipt) -> Met {
        let announced = Idleness::of(ticket);
        if self.settled.contains(&announced) {
            return Met::Late(receipt);
        }
        if let Some(twins) = self.open.get_mut(&announced) {
            twins.push(receipt);
            return Met::Twin;
        }
        if self.open.keys().any(|open| open.0 == announced.0) {
            return Met::Other(receipt);
        }
        self.open.insert(announced, Vec::new());
        Met::First(receipt)
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
    use crate::model::ids::ResourceClass;
    use crate::model::record::MachineSpec;
    use crate::model::requirements::UsageClass;

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
        assert_eq!(other, Met::Other(receipt("c")), "not while the first is undecided");
        twins.hand_out(&Idleness::of(&now));
        assert_eq!(twins.in_hand(), 2);
        assert_eq!(twins.meet(&now, receipt("d")), Met::Twin);
        assert_eq!(twins.settle(&Idleness::of(&now)), [receipt("b"), receipt("d")]);
        assert_eq!(twins.in_hand(), 0);
        assert_eq!(twins.meet(&now, receipt("e")), Met::Late(receipt("e")));
        assert_eq!(twins.meet(&later, receipt("f")), Met::First(receipt("f")));
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
