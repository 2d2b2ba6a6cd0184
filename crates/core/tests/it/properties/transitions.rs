//! The transitions, against a table of them that was written without looking at the guards.

use ondeck_core::lifecycle::{Change, Claimed, Created, Idle, Instance, Live, Running, Transition};
use ondeck_core::model::departure::Departure;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::timestamp::Timestamp;
use proptest::prelude::*;

use super::strategies::{config, ms, record, run_id};

/// What a transition needs to find, by the table.
struct Needs {
    /// `None` admits any state but terminated.
    from: Option<State>,
    /// `None` admits any owner.
    owner: Option<Owner>,
    lease: Lease,
}

enum Owner {
    Unowned,
    /// The run that is believed in.
    Same,
}

/// What the threshold has to be. Every transition but a reap also needs the generation that is
/// believed in.
enum Lease {
    Unexpired,
    Expired,
    /// Unexpired, and neither earlier than believed nor later than the change would make it.
    Extended,
    /// As it is believed to be.
    Same,
    Any,
}

fn needs(transition: Transition, believed: &Record) -> Option<Needs> {
    let mine = |from| Needs { from: Some(from), owner: Some(Owner::Same), lease: Lease::Unexpired };
    Some(match transition {
        Transition::Register => return None,
        Transition::Activate => mine(State::Created),
        Transition::Commit | Transition::GiveBack => mine(State::Claimed),
        Transition::Release | Transition::Preserve => mine(State::Running),
        Transition::Claim => {
            Needs { from: Some(State::Idle), owner: Some(Owner::Unowned), lease: Lease::Unexpired }
        }
        Transition::Renew if believed.state == State::Idle => {
            Needs { lease: Lease::Extended, ..mine(believed.state) }
        }
        Transition::Renew => mine(believed.state),
        Transition::Expire => {
            Needs { from: Some(believed.state), owner: Some(Owner::Same), lease: Lease::Any }
        }
        Transition::Retire | Transition::Drain => {
            Needs { from: Some(believed.state), owner: Some(Owner::Same), lease: Lease::Same }
        }
        Transition::Reap => Needs { from: None, owner: None, lease: Lease::Expired },
    })
}

fn admitted(
    transition: Transition,
    believed: &Record,
    found: Option<&Record>,
    now: Timestamp,
) -> bool {
    let (Some(needs), Some(found)) = (needs(transition, believed), found) else {
        return transition == Transition::Register && found.is_none();
    };
    if found.state == State::Terminated {
        return false;
    }
    let threshold = found.threshold.unwrap();
    let same_generation = found.counts.generation == believed.counts.generation;
    needs.from.is_none_or(|from| found.state == from)
        && match needs.owner {
            None => true,
            Some(Owner::Unowned) => found.run.is_none(),
            Some(Owner::Same) => found.run == believed.run,
        }
        && match needs.lease {
            // Only an expiry makes it earlier than it was believed to be.
            Lease::Unexpired => threshold > now && Some(threshold) >= believed.threshold,
            Lease::Expired => threshold <= now,
            Lease::Extended => {
                threshold > now
                    && Some(threshold) >= believed.threshold
                    && threshold <= now + ms(LAST)
            }
            Lease::Same => Some(threshold) == believed.threshold,
            Lease::Any => true,
        }
        && match transition {
            Transition::Claim => found.departure != Departure::Drained,
            Transition::Retire => found.departure == Departure::None,
            _ => true,
        }
        && (transition == Transition::Reap || same_generation)
}

/// What must stand there afterwards: state, owner, and how long from now it may last.
fn after(change: &Change, believed: &Record) -> (State, bool, Option<u64>) {
    match change.transition() {
        Transition::Register => (State::Created, true, Some(LAST)),
        Transition::Claim => (State::Claimed, true, Some(LAST)),
        Transition::Activate | Transition::Commit | Transition::Preserve => {
            (State::Running, true, Some(LAST))
        }
        Transition::Release | Transition::GiveBack => (State::Idle, false, Some(LAST)),
        Transition::Renew => (believed.state, believed.run.is_some(), Some(LAST)),
        Transition::Expire => (believed.state, believed.run.is_some(), Some(0)),
        Transition::Retire | Transition::Drain => {
            (believed.state, believed.run.is_some(), believed.threshold.map(Timestamp::millis))
        }
        Transition::Reap => (State::Terminated, false, None),
    }
}

const LAST: u64 = 60_000;

/// Every change that a process that believes in the record could ask for.
fn changes(believed: &Record, run: &ondeck_core::model::ids::RunId, now: Timestamp) -> Vec<Change> {
    let last = ms(LAST);
    let mut changes =
        vec![Instance::register(&believed.id, &believed.spec, run, now, last).change().clone()];
    if let Some(created) = Instance::<Created>::believe(believed) {
        changes.push(created.activate(now, last).change().clone());
    }
    if let Some(idle) = Instance::<Idle>::believe(believed) {
        changes.push(idle.claim(run, now, last).change().clone());
        changes.push(idle.renew(now, now + last).change().clone());
    }
    if let Some(claimed) = Instance::<Claimed>::believe(believed) {
        changes.push(claimed.commit(now, last).change().clone());
        changes.push(claimed.give_back(now, last).change().clone());
        changes.push(claimed.give_back_unregistered(now, last).change().clone());
    }
    if let Some(running) = Instance::<Running>::believe(believed) {
        changes.push(running.release(now, last).change().clone());
        changes.push(running.renew(now, now + last).change().clone());
        changes.push(running.preserve(now, now + last).change().clone());
    }
    if let Some(live) = Instance::<Live>::believe(believed) {
        changes.push(live.retire(now).change().clone());
        changes.push(live.drain(now).change().clone());
        changes.push(live.expire(now).change().clone());
        changes.push(live.reap(now).change().clone());
    }
    changes
}

/// Records of the same machine, so few that they are often alike in one thing or all.
fn standing() -> impl Strategy<Value = Record> {
    let few = (0_usize..5, 0_usize..6, prop_oneof![Just("a"), Just("b")], 0_u32..6);
    (few, record()).prop_map(|((state, threshold, run, generation), mut record)| {
        record.counts.generation = generation % 2;
        let departures = [Departure::None, Departure::Retired, Departure::Drained];
        record.departure = departures[generation as usize / 2];
        record.id = ondeck_core::model::ids::InstanceId::new("i-1").unwrap();
        record.state = State::ALL[state];
        record.run = record.state.is_owned().then(|| run.parse().unwrap());
        // The last two are around what a renewal gives.
        let threshold = Timestamp::from_millis([0, 1, 2, 3, LAST + 2, LAST + 3][threshold]);
        record.threshold = record.state.is_live().then_some(threshold);
        record
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..config() })]

    #[test]
    fn a_change_is_made_where_the_table_allows_it_and_nowhere_else(
        believed in standing(), other in proptest::option::of(standing()),
        stale in any::<bool>(), run in run_id(), now in 0_u64..4,
    ) {
        let now = Timestamp::from_millis(now);
        let found = if stale { other } else { Some(believed.clone()) };
        for change in changes(&believed, &run, now) {
            let expected = admitted(change.transition(), &believed, found.as_ref(), now);
            let applied = change.applied_to(found.as_ref());
            prop_assert_eq!(
                applied.is_some(), expected,
                "{} of {:?} at {}", change.transition(), found, now
            );
            let Some(record) = applied else { continue };
            let (state, owned, left) = after(&change, &believed);
            prop_assert_eq!((record.state, record.run.is_some()), (state, owned));
            let departs = match change.transition() {
                Transition::Retire => Some(Departure::Retired),
                Transition::Drain => Some(Departure::Drained),
                _ => None,
            };
            let from = departs.map_or(now, |_| Timestamp::from_millis(0));
            prop_assert_eq!(record.threshold, left.map(|left| from + ms(left)));
            let before = found.as_ref().map(|found| found.departure).unwrap_or_default();
            prop_assert_eq!(record.departure, departs.unwrap_or(before));
            prop_assert_eq!(record.updated_at, now);
            let taken = matches!(change.transition(), Transition::Register | Transition::Claim);
            let owner = if taken { Some(&run) } else { found.as_ref().and_then(|f| f.run.as_ref()) };
            prop_assert_eq!(record.run.as_ref(), owner.filter(|_| owned));
            // What it leaves is a record that the next one can build on.
            prop_assert!(change.is_done_in(&record));
            let row = ondeck_core::model::record::RecordRow::from(&record);
            prop_assert_eq!(Record::try_from(row), Ok(record));
        }
    }
}
