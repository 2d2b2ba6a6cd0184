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
pub(super) struct IdlePeriod(InstanceId, Timestamp);

impl IdlePeriod {
    pub(super) fn of(ticket: &Ticket) -> IdlePeriod {
        IdlePeriod(ticket.instance_id.clone(), ticket.threshold)
    }
}

/// What one pickup manager knows of the tickets it has met.
#[derive(Debug, Default)]
pub(super) struct DuplicateTickets {
    /// Idle states of which a ticket waits for a worker or is with one, and the receipts of
    /// further tickets for them.
    open: BTreeMap<IdlePeriod, Vec<Receipt>>,
    handed_out: BTreeSet<IdlePeriod>,
    /// Idle states that are over, as a claim has shown.
    settled: BTreeSet<IdlePeriod>,
}

/// What a ticket is to us.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Encounter {
    /// The first of its idle state, to be handed to a worker.
    First(Receipt),
    /// Another one, kept until the first is decided.
    Duplicate,
    /// Of another idle state of a machine that is being decided about.
    OtherPeriod(Receipt),
    /// Of an idle state that is over.
    Stale(Receipt),
}

impl DuplicateTickets {
    pub(super) fn meet(&mut self, ticket: &Ticket, receipt: Receipt) -> Encounter {
        let announced = IdlePeriod::of(ticket);
        if self.settled.contains(&announced) {
            return Encounter::Stale(receipt);
        }
        if let Some(duplicates) = self.open.get_mut(&announced) {
            duplicates.push(receipt);
            return Encounter::Duplicate;
        }
        if self.open.keys().any(|open| open.0 == announced.0) {
            return Encounter::OtherPeriod(receipt);
        }
        self.open.insert(announced, Vec::new());
        Encounter::First(receipt)
    }

    pub(super) fn hand_out(&mut self, announced: &IdlePeriod) {
        self.handed_out.insert(announced.clone());
    }

    /// A claim has been decided; gives the receipts of the other tickets.
    pub(super) fn settle(&mut self, announced: &IdlePeriod) -> Vec<Receipt> {
        self.settled.insert(announced.clone());
        self.forget(announced)
    }

    /// No claim will be made; gives the receipts of the other tickets.
    pub(super) fn forget(&mut self, announced: &IdlePeriod) -> Vec<Receipt> {
        self.handed_out.remove(announced);
        self.open.remove(announced).unwrap_or_default()
    }

    /// How many tickets are with workers, or kept with those that are.
    pub(super) fn in_hand(&self) -> usize {
        let duplicates: usize = self.open.values().map(Vec::len).sum();
        self.handed_out.len() + duplicates
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
        let mut duplicates = DuplicateTickets::default();
        let (now, later) = (ticket(1), ticket(2));
        assert_eq!(duplicates.meet(&now, receipt("a")), Encounter::First(receipt("a")));
        assert_eq!(duplicates.meet(&now, receipt("b")), Encounter::Duplicate);
        let other = duplicates.meet(&later, receipt("c"));
        assert_eq!(other, Encounter::OtherPeriod(receipt("c")), "not while the first is undecided");
        duplicates.hand_out(&IdlePeriod::of(&now));
        assert_eq!(duplicates.in_hand(), 2);
        assert_eq!(duplicates.meet(&now, receipt("d")), Encounter::Duplicate);
        assert_eq!(duplicates.settle(&IdlePeriod::of(&now)), [receipt("b"), receipt("d")]);
        assert_eq!(duplicates.in_hand(), 0);
        assert_eq!(duplicates.meet(&now, receipt("e")), Encounter::Stale(receipt("e")));
        assert_eq!(duplicates.meet(&later, receipt("f")), Encounter::First(receipt("f")));
    }

    #[test]
    fn what_was_never_claimed_goes_back_with_its_twins_and_may_come_again() {
        let mut duplicates = DuplicateTickets::default();
        duplicates.meet(&ticket(1), receipt("a"));
        duplicates.meet(&ticket(1), receipt("b"));
        assert_eq!(duplicates.forget(&IdlePeriod::of(&ticket(1))), [receipt("b")]);
        assert_eq!(duplicates.meet(&ticket(1), receipt("c")), Encounter::First(receipt("c")));
        duplicates.meet(&ticket(1), receipt("d"));
        assert_eq!(duplicates.into_receipts().collect::<Vec<_>>(), [receipt("d")]);
    }
}
