//! Several tickets for the same machine.
//!
//! A queue may deliver a ticket twice, a sender may have to repeat one, a renewal sends another, and
//! a ticket of an earlier idle period may still be queued. Two claim workers of one run must not claim the same instance:
//! if the answer to one claim is lost, the record that the other claim made looks like its own. So
//! the first ticket goes to a worker. Further tickets of the same idle period are kept until its
//! claim is decided, and tickets of another period wait for the next pass.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::ids::InstanceId;
use crate::model::ticket::Ticket;
use crate::ports::Receipt;

/// One idle period of one instance, identified by its generation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct IdlePeriod(InstanceId, u32);

impl IdlePeriod {
    pub(super) fn of(ticket: &Ticket) -> IdlePeriod {
        IdlePeriod(ticket.instance_id.clone(), ticket.generation)
    }
}

/// What a pickup manager knows about the tickets it has received.
#[derive(Debug, Default)]
pub(super) struct DuplicateTickets {
    /// Idle periods whose ticket waits for a worker or is with one, with the receipts of further
    /// tickets for them.
    open: BTreeMap<IdlePeriod, Vec<Receipt>>,
    handed_out: BTreeSet<IdlePeriod>,
    /// Idle periods that a claim has shown to be over.
    settled: BTreeSet<IdlePeriod>,
}

/// How a received ticket relates to the earlier ones.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Encounter {
    /// The first of its idle period, to be handed to a worker.
    First(Receipt),
    /// A further ticket of the same period, kept until the claim is decided.
    Duplicate,
    /// A ticket of another idle period of a machine whose claim is undecided.
    OtherPeriod(Receipt),
    /// A ticket of an idle period that is over.
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

    /// Notes that a claim has been decided. Returns the receipts of the duplicates.
    pub(super) fn settle(&mut self, announced: &IdlePeriod) -> Vec<Receipt> {
        self.settled.insert(announced.clone());
        self.forget(announced)
    }

    /// Notes that no claim will be made. Returns the receipts of the duplicates.
    pub(super) fn forget(&mut self, announced: &IdlePeriod) -> Vec<Receipt> {
        self.handed_out.remove(announced);
        self.open.remove(announced).unwrap_or_default()
    }

    /// How many tickets are with workers or kept as duplicates.
    pub(super) fn in_hand(&self) -> usize {
        let duplicates: usize = self.open.values().map(Vec::len).sum();
        self.handed_out.len() + duplicates
    }

    /// The receipts of all duplicates.
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
    use crate::model::timestamp::Timestamp;

    fn ticket(generation: u32) -> Ticket {
        Ticket {
            instance_id: InstanceId::new("i-1").unwrap(),
            spec: MachineSpec {
                resource_class: ResourceClass::new("large").unwrap(),
                instance_type: "c6i.large".to_owned(),
                usage_class: UsageClass::Spot,
                cpu: 2,
                mem: 4096,
            },
            threshold: Timestamp::from_millis(1),
            generation,
            runs: Some(1),
        }
    }

    fn receipt(name: &str) -> Receipt {
        Receipt(name.to_owned())
    }

    #[test]
    fn only_the_first_ticket_of_an_idle_period_goes_to_a_worker() {
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
    fn an_unclaimed_ticket_is_put_back_with_its_duplicates_and_may_be_received_again() {
        let mut duplicates = DuplicateTickets::default();
        duplicates.meet(&ticket(1), receipt("a"));
        duplicates.meet(&ticket(1), receipt("b"));
        assert_eq!(duplicates.forget(&IdlePeriod::of(&ticket(1))), [receipt("b")]);
        assert_eq!(duplicates.meet(&ticket(1), receipt("c")), Encounter::First(receipt("c")));
        duplicates.meet(&ticket(1), receipt("d"));
        assert_eq!(duplicates.into_receipts().collect::<Vec<_>>(), [receipt("d")]);
    }
}
