//! Every transition, against every state, owner, lease and generation that it may meet.

use futures_util::future::join_all;

use super::arrange::{DesiredRecord, arrange, instance, make, morning, ms, noon, run, spec};
use crate::lifecycle::{Change, Claimed, Created, Idle, Instance, Live, Running, Verdict};
use crate::model::departure::Departure;
use crate::model::ids::{InstanceId, RunId};
use crate::model::label::Label;
use crate::model::record::{Counts, Record, State};
use crate::model::reuse::Reuse;
use crate::ports::{AgentStore, Store};

/// Writes each change to a record in each of [`desired_records`], and compares with what
/// [`Change::applied_to`] says: the verdict, the record in it, and the record that the store has
/// afterwards. Panics at the first difference.
pub(super) async fn every_transition<S: Store + AgentStore>(store: &S) {
    let mut cases = Vec::new();
    for (desired, believed) in desired_records() {
        for kind in 0..changes(&instance("x"), believed).len() {
            cases.push((instance(&format!("i-t{}", cases.len())), desired.clone(), believed, kind));
        }
    }
    // Each has a record of its own, so several may be under way.
    for batch in cases.chunks(16) {
        join_all(batch.iter().map(async |(id, desired, believed, kind)| {
            let change = &changes(id, *believed)[*kind];
            one_transition(store, desired.as_ref(), *believed, change).await;
        }))
        .await;
    }
}

async fn one_transition<S: Store + AgentStore>(
    store: &S,
    desired: Option<&DesiredRecord>,
    believed: u32,
    change: &Change,
) {
    let id = change.id();
    let found = match desired {
        Some(desired) => Some(arrange(store, id, desired).await),
        None => None,
    };
    let about = format!("{} of {desired:?} believed {believed}", change.transition());
    let next = change.applied_to(found.as_ref());
    let expected = match &next {
        Some(next) => Verdict::Agreed(next.clone()),
        None => Verdict::Refused(found.clone()),
    };
    assert_eq!(store.write(change).await, Ok(expected), "{about}");
    let left = store.record(id).await;
    assert_eq!(left, Ok(next.or(found)), "what stands there after {about}");
}

/// What a change may find: nothing, or every state of this run and of another, with a threshold just
/// ahead, now, or just past. Each comes with the generation that the change believes in: the one
/// that [`arrange`] brings about, or another.
fn desired_records() -> Vec<(Option<DesiredRecord>, u32)> {
    let mut desired_records = vec![(None, 0)];
    for state in State::ALL {
        for owner in ["this", "other"] {
            // The last is beyond what a renewal gives.
            for threshold in [noon().before(ms(1)), noon(), noon() + ms(1), noon() + ms(60_001)] {
                let desired = DesiredRecord::new(state, &run(owner), threshold);
                let generation = desired.generation();
                for believed in [generation, generation + 1] {
                    desired_records.push((Some(desired.clone()), believed));
                }
                for departure in [Departure::Retired, Departure::Drained] {
                    let marked = desired.clone().departing(departure);
                    desired_records.push((Some(marked), generation));
                }
            }
        }
    }
    desired_records
}

/// One change of each kind, from the belief that it needs, for the run `this` and at noon.
fn changes(id: &InstanceId, generation: u32) -> Vec<Change> {
    let (now, last) = (noon(), ms(60_000));
    let this: RunId = run("this");
    let until = noon() + ms(60_000);
    let record = |state| {
        let record = DesiredRecord::new(state, &this, noon() + ms(1)).believed(id);
        Record { counts: Counts { generation, ..record.counts }, ..record }
    };
    let created = Instance::<Created>::believe(&record(State::Created)).expect("created");
    let idle = Instance::<Idle>::believe(&record(State::Idle)).expect("idle");
    let claimed = Instance::<Claimed>::believe(&record(State::Claimed)).expect("claimed");
    let running = Instance::<Running>::believe(&record(State::Running)).expect("running");
    let mut changes = vec![
        Instance::register(id, &spec(), &this, now, last).change().clone(),
        created.activate(now, last).change().clone(),
        idle.claim(&this, now, last).change().clone(),
        idle.claim(&this, now, last).reusing(Reuse::Never).change().clone(),
        idle.claim(&this, now, last).although_drained().change().clone(),
        claimed.commit(now, last).change().clone(),
        claimed.give_back(now, last).change().clone(),
        claimed.give_back_unregistered(now, last).change().clone(),
        idle.renew(now, until).change().clone(),
        running.renew(now, until).change().clone(),
        running.renew(now, until).never_reused().change().clone(),
        running.preserve(now, until).change().clone(),
        running.release_unused(now, last).change().clone(),
        running.release(now, last).because("the run has finished").change().clone(),
    ];
    for state in State::ALL.into_iter().filter(|state| state.is_live()) {
        let live = Instance::<Live>::believe(&record(state)).expect("live");
        changes.push(live.retire(now).because("an operator asks").change().clone());
        changes.push(live.drain(now).change().clone());
        changes.push(live.expire(now).change().clone());
        changes.push(live.reap(now).change().clone());
    }
    changes
}

/// Writes that are made all or not at all. A store that cannot do this makes none.
pub(super) async fn all_or_none<S: Store + AgentStore>(store: &S) {
    let ids = ["i-a1", "i-a2", "i-a3"].map(instance);
    let mut commits = Vec::new();
    for id in &ids {
        let desired = DesiredRecord::new(State::Claimed, &run("this"), noon() + ms(60_000));
        let record = arrange(store, id, &desired).await;
        let claimed = Instance::<Claimed>::believe(&record).expect("claimed");
        commits.push((claimed.commit(noon(), ms(9)).change().clone(), claimed));
    }
    make(store, commits[2].1.expire(noon())).await;
    let changes: Vec<Change> = commits.into_iter().map(|(change, _)| change).collect();
    let found = async || {
        let mut records = store.records(&ids).await.expect("the store answers").records;
        records.sort_by(|one, other| one.id.cmp(&other.id));
        records
    };
    let before = found().await;
    let made = store.write_all_or_none(&changes).await.expect("the store answers");
    assert_eq!((made, found().await), (false, before.clone()), "the last guard refuses");
    let made = store.write_all_or_none(&changes[..2]).await.expect("the store answers");
    let after = found().await;
    for (change, (before, after)) in changes.iter().zip(before.iter().zip(&after)).take(2) {
        let expected = if made { change.applied_to(Some(before)) } else { Some(before.clone()) };
        assert_eq!(Some(after), expected.as_ref());
    }
    assert_eq!(after[2], before[2]);
}

/// The label stays as long as the run has the machine, and the next run gets another.
pub(super) async fn the_label<S: Store + AgentStore>(store: &S) {
    let id = instance("i-label");
    let label = |suffix: &str| Label::new(run("this"), suffix.parse().ok());
    let until = noon() + ms(1);
    let shown = async || {
        let record = store.record(&id).await.expect("the store answers").expect("registered");
        (record.state, record.label().map(|label| label.to_string()))
    };
    let created = Instance::<Created>::register(&id, &spec(), label("large"), noon(), ms(1));
    let created = make(store, created).await;
    assert_eq!(shown().await, (State::Created, Some("this-large".to_owned())));
    let running = make(store, created.activate(morning(), until.since(morning()))).await;
    assert_eq!(shown().await, (State::Running, Some("this-large".to_owned())));
    let running = make(store, running.renew(morning(), until)).await;
    assert_eq!(shown().await, (State::Running, Some("this-large".to_owned())));
    let idle = make(store, running.release(morning(), until.since(morning()))).await;
    assert_eq!(shown().await, (State::Idle, None));
    let claimed = make(store, idle.claim(label("8xlarge"), morning(), ms(9))).await;
    assert_eq!(shown().await, (State::Claimed, Some("this-8xlarge".to_owned())));
    make(store, claimed.give_back(morning(), ms(9))).await;
    let record = store.record(&id).await.expect("the store answers").expect("registered");
    let idle = Instance::<Idle>::believe(&record).expect("idle");
    let claimed = make(store, idle.claim(&run("this"), morning(), ms(9))).await;
    assert_eq!(shown().await, (State::Claimed, Some("this".to_owned())));
    make(store, claimed.expire(morning())).await;
    assert_eq!(shown().await, (State::Claimed, Some("this".to_owned())));
}

/// A machine that has served a run of its own cannot be claimed, and such a run can claim none that has
/// served another. One that its run did not use is as good as new.
pub(super) async fn the_reuse<S: Store + AgentStore>(store: &S) {
    let (id, at, last) = (instance("i-reuse"), morning(), ms(60_000));
    let (always, never) = (Reuse::Always, Reuse::Never);
    let idle = async || {
        let record = store.record(&id).await.expect("the store answers").expect("registered");
        (Instance::<Idle>::believe(&record).expect("idle"), record)
    };
    let claims = async |expected: [bool; 2]| {
        for (reuse, admitted) in [always, never].into_iter().zip(expected) {
            let (idle, record) = idle().await;
            let claim = idle.claim(&run("other"), at, last).reusing(reuse);
            let about = format!("a claim for {reuse:?} of {record:?}");
            assert_eq!(claim.change().guard().admits(Some(&record)), admitted, "{about}");
            let verdict = store.write(claim.change()).await.expect("the store answers");
            match claim.settle(verdict) {
                Ok(claimed) if admitted => drop(make(store, claimed.give_back(at, last)).await),
                Err(_) if !admitted => {}
                settled => panic!("{about}: {settled:?}"),
            }
        }
    };
    let created = Instance::<Created>::register(&id, &spec(), &run("this"), at, last);
    let created = make(store, created.reusing(never)).await;
    let running = make(store, created.activate(at, last)).await;
    assert_eq!(running.reuse(), never);
    make(store, running.release_unused(at, last)).await;
    claims([true, true]).await;
    let claim = idle().await.0.claim(&run("this"), at, last).reusing(never);
    let claimed = make(store, claim).await;
    assert_eq!((claimed.reuse(), claimed.counts().runs), (never, 0));
    make(store, claimed.give_back_unregistered(at, last)).await;
    let claimed = make(store, idle().await.0.claim(&run("this"), at, last)).await;
    let running = make(store, claimed.commit(at, last)).await;
    make(store, running.release(at, last)).await;
    claims([true, false]).await;
    let claimed = make(store, idle().await.0.claim(&run("this"), at, last)).await;
    let running = make(store, claimed.commit(at, last)).await;
    let renewed = make(store, running.renew(at, at + last).never_reused()).await;
    assert_eq!(renewed.reuse(), never, "a later call of its run may be stricter");
    make(store, renewed.release(at, last)).await;
    claims([false, false]).await;
}

/// A drained machine cannot be claimed until its last run asks for it because of a job, also if other
/// transitions come between. What an operator has decided stays in the record.
pub(super) async fn the_departure<S: Store + AgentStore>(store: &S) {
    let (id, at, last) = (instance("i-departure"), morning(), ms(60_000));
    let created = Instance::<Created>::register(&id, &spec(), &run("this"), at, last);
    let created = make(store, created).await;
    assert_eq!(created.departure(), Departure::None);
    make(store, created.retire(at)).await;
    let running = make(store, created.activate(at, last)).await;
    assert_eq!(running.departure(), Departure::Retired, "an activation leaves it");
    let idle = make(store, running.release(at, last)).await;
    let claimed = make(store, idle.claim(&run("other"), at, last)).await;
    assert_eq!(claimed.departure(), Departure::Retired, "it may serve until it is replaced");
    make(store, claimed.drain(at)).await;
    let idle = make(store, claimed.give_back(at, last)).await;
    assert_eq!(idle.departure(), Departure::Drained, "the change was decided before the drain");
    store.mark_ticketed(&[idle.ticket()], at).await.expect("the store answers");
    let announced = Instance::announced(&idle.ticket());
    for claim in [idle.claim(&run("this"), at, last), announced.claim(&run("this"), at, last)] {
        let refused = store.write(claim.change()).await.expect("the store answers");
        assert!(claim.settle(refused).is_err(), "a drained machine was claimed");
    }
    make(store, idle.drain(at)).await;
    let record = store.record(&id).await.expect("the store answers").expect("registered");
    assert!(record.ticketed_at.is_some(), "a drain leaves the note of the ticket");
    assert_eq!(record.threshold, Some(at + last), "and the threshold");
    let retire = idle.retire(at);
    let refused = store.write(retire.change()).await.expect("the store answers");
    assert!(retire.settle(refused).is_err(), "a drain is not taken back");
    let kept = make(store, idle.claim(&run("other"), at, last).although_drained()).await;
    let running = make(store, kept.commit(at, last)).await;
    assert_eq!(running.departure(), Departure::Drained);
}

/// A record stays marked as ticketed when it is expired, and loses the mark with every other change.
pub(super) async fn the_note_of_the_ticket<S: Store + AgentStore>(store: &S) {
    for n in 0..3 {
        let id = instance(&format!("i-n{n}"));
        let desired = DesiredRecord::new(State::Idle, &run("this"), noon() + ms(1));
        let record = arrange(store, &id, &desired).await;
        let idle = Instance::<Idle>::believe(&record).expect("idle");
        store.mark_ticketed(&[idle.ticket()], morning()).await.expect("the store answers");
        let (change, kept) = match n {
            0 => (idle.expire(noon()).change().clone(), true),
            1 => (idle.claim(&run("this"), noon(), ms(1)).change().clone(), false),
            _ => (idle.renew(noon(), noon() + ms(9)).change().clone(), false),
        };
        let Ok(Verdict::Agreed(after)) = store.write(&change).await else {
            panic!("{} was lost", change.transition());
        };
        assert_eq!(after.ticketed_at.is_some(), kept, "after {}", change.transition());
    }
}
