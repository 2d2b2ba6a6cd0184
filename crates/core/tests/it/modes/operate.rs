//! What operators do to machines while runs use them.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::{join, join_all};
use ondeck_core::lifecycle::{Idle, Instance};
use ondeck_core::model::departure::Departure;
use ondeck_core::model::failure::FailureKind;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::ticket::Ticket;
use ondeck_core::modes::operate::tickets::{self, Truth};
use ondeck_core::modes::operate::{Action, Command, Order, Outcome, Selection, carry_out, plan};
use ondeck_core::modes::provision::MachineSource;
use ondeck_core::modes::release::Disposition;
use ondeck_core::ports::Pool;
use ondeck_core::runtime::stop::StopSignal;

use super::harness::{Harness, id, large, names, request, run};

const MINUTE: Duration = Duration::from_secs(60);

fn order(command: Command) -> Order {
    let (actor, reason) = ("alice".to_owned(), "a new image".to_owned());
    let (selection, wait) = (Selection::default(), Duration::ZERO);
    Order { command, selection, force: false, wait, actor, reason }
}

fn named(command: Command, ids: &[&str]) -> Order {
    let ids = ids.iter().map(|name| id(name)).collect();
    Order { selection: Selection { ids, ..Selection::default() }, ..order(command) }
}

async fn carried_out(harness: &Harness, order: &Order) -> Outcome {
    carry_out(&harness.plane, order, &StopSignal::never()).await.unwrap()
}

fn actions(outcome: &Outcome) -> Vec<(&str, Action)> {
    outcome.machines.iter().map(|it| (it.id.as_str(), it.action.clone())).collect()
}

#[tokio::test]
async fn a_drain_terminates_idle_machines_and_lets_busy_ones_finish() {
    let harness = Harness::new().await;
    harness.provision(&request("1", 1)).await;
    harness.idle("i-spare", "c6i.large").await;
    let drained = carried_out(&harness, &order(Command::Drain)).await;
    let expected = vec![("i-0001", Action::LeaveAfterRun), ("i-spare", Action::Terminate)];
    assert_eq!((actions(&drained), drained.failure.clone()), (expected, None));
    assert_eq!(harness.alive(), ["i-0001"], "its run keeps it");
    assert_eq!(harness.state("i-0001"), State::Running);
    assert_eq!(harness.release("1").await.instances[0].disposition, Disposition::Terminated);
    assert_eq!((harness.alive(), harness.depth().await), (vec![], 1), "with a ticket of before");
    let next = harness.provision(&request("2", 1)).await;
    assert_eq!(next.count(MachineSource::Cold), 1, "no run gets a drained machine");
    let why: Vec<String> = harness
        .memory
        .store
        .events()
        .into_iter()
        .filter(|event| event.why.contains("alice"))
        .map(|event| format!("{} {}: {}", event.transition, event.id, event.why))
        .collect();
    let told = "drained by alice: a new image";
    let of = |transition: &str, id: &str| format!("{transition} {id}: {told}");
    let expected = [of("drain", "i-0001"), of("expire", "i-spare"), of("reap", "i-spare")];
    assert_eq!(why.into_iter().collect::<BTreeSet<_>>(), expected.into());
}

#[tokio::test]
async fn a_plan_changes_nothing_and_says_what_the_order_does() {
    for command in [Command::Drain, Command::Retire, Command::Terminate] {
        let harness = Harness::new().await;
        harness.provision(&request("1", 1)).await;
        harness.idle("i-spare", "c6i.large").await;
        let before = (harness.memory.store.select(|_| true), harness.memory.store.events().len());
        let planned = plan(&harness.plane, &order(command), &StopSignal::never()).await.unwrap();
        assert!(planned.is_plan);
        let after = (harness.memory.store.select(|_| true), harness.memory.store.events().len());
        assert_eq!(before, after, "{command:?}");
        assert_eq!(harness.alive().len(), 2);
        let done = carried_out(&harness, &order(command)).await;
        assert_eq!(actions(&planned), actions(&done), "{command:?}");
        assert_eq!(planned.failure, done.failure);
    }
}

#[tokio::test]
async fn a_repeated_order_does_no_harm() {
    let harness = Harness::new().await;
    harness.provision(&request("1", 1)).await;
    harness.idle("i-spare", "c6i.large").await;
    carried_out(&harness, &order(Command::Drain)).await;
    let events = harness.memory.store.events().len();
    let again = carried_out(&harness, &order(Command::Drain)).await;
    let left = Action::None("it is drained already".to_owned());
    assert_eq!(actions(&again), [("i-0001", left)]);
    let ended = carried_out(&harness, &named(Command::Terminate, &["i-spare"])).await;
    let gone = Action::None("it is terminated already".to_owned());
    assert_eq!((actions(&ended), &ended.failure), (vec![("i-spare", gone)], &None));
    assert_eq!(harness.memory.store.events().len(), events);
}

#[tokio::test]
async fn a_machine_that_a_run_has_is_terminated_only_by_force() {
    let harness = Harness::new().await;
    harness.provision(&request("1", 1)).await;
    let refused = carried_out(&harness, &named(Command::Terminate, &["i-0001"])).await;
    let failure = refused.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::InUse);
    assert!(failure.message.contains("i-0001 (running of run 1)"), "{failure}");
    assert_eq!(harness.alive(), ["i-0001"]);
    let forced = Order { force: true, ..named(Command::Terminate, &["i-0001"]) };
    let done = carried_out(&harness, &forced).await;
    assert_eq!(actions(&done), [("i-0001", Action::TakeFromRun)]);
    assert_eq!(done.machines[0].run, Some(run("1")), "it loses it");
    assert!(harness.alive().is_empty());
    assert_eq!(harness.state("i-0001"), State::Terminated);
    let unknown = carried_out(&harness, &named(Command::Terminate, &["i-other"])).await;
    assert_eq!(unknown.failure.unwrap().kind, FailureKind::InvalidInput);
}

/// The release of a claimed machine decides by what it read before the drain.
#[tokio::test]
async fn a_claimed_machine_that_is_drained_does_not_return_to_the_pool() {
    let harness = Harness::new().await;
    let record = harness.idle("i-1", "c6i.large").await;
    let idle = Instance::<Idle>::believe(&record).unwrap();
    let now = harness.plane.now();
    let claim = idle.claim(super::harness::label("7"), now, 5 * MINUTE);
    harness.plane.apply(claim).await.unwrap();
    let drained = carried_out(&harness, &order(Command::Drain)).await;
    assert_eq!(actions(&drained), [("i-1", Action::LeaveAfterRun)]);
    let released = harness.release("7").await;
    assert_eq!(released.instances[0].disposition, Disposition::Terminated);
    assert!(harness.alive().is_empty());
}

/// Two refreshes find it at once.
#[tokio::test]
async fn a_drained_machine_is_reported_by_the_refresh_that_terminates_it() {
    let harness = Harness::new().await;
    let drained = harness.idle("i-drained", "c6i.large").await;
    harness.memory.store.insert(Record { departure: Departure::Drained, ..drained });
    let (one, other) = join(harness.refresh(), harness.refresh()).await;
    assert_eq!([one.rotated, other.rotated].concat(), [id("i-drained")]);
    assert_eq!((harness.state("i-drained"), harness.alive()), (State::Terminated, vec![]));
}

#[tokio::test]
async fn a_drain_waits_until_the_runs_are_over() {
    let harness = Harness::new().await;
    harness.provision(&request("1", 2)).await;
    let short = Order { wait: MINUTE, ..order(Command::Drain) };
    let failure = carried_out(&harness, &short).await.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::InUse);
    let long = Order { wait: 10 * MINUTE, ..order(Command::Drain) };
    let released = async {
        harness.sleep(2 * MINUTE).await;
        harness.release("1").await
    };
    let (drained, _) = join(carried_out(&harness, &long), released).await;
    assert_eq!(drained.failure, None);
    assert!(drained.machines.iter().all(|it| it.is_gone), "{drained:?}");
    assert!(harness.alive().is_empty());
}

/// The release of the run was killed before its handshake.
#[tokio::test]
async fn refresh_and_a_waiting_drain_end_what_a_killed_release_leaves() {
    for waits in [false, true] {
        let harness = Harness::new().await;
        harness.provision(&request("1", 1)).await;
        carried_out(&harness, &order(Command::Drain)).await;
        let running = super::harness::believe_running(&harness.record("i-0001").unwrap());
        let change = running.release(harness.plane.now(), 5 * MINUTE);
        harness.plane.apply(change).await.unwrap();
        if waits {
            let order = Order { wait: MINUTE, ..order(Command::Drain) };
            assert_eq!(carried_out(&harness, &order).await.failure, None);
        } else {
            harness.sleep(Duration::from_secs(20)).await;
            assert_eq!(harness.refresh().await.rotated, [id("i-0001")]);
        }
        assert_eq!((harness.alive(), harness.depth().await), (vec![], 0));
    }
}

#[tokio::test]
async fn machines_are_chosen_by_class_usage_age_image_and_id() {
    let harness = Harness::new().await;
    harness.memory.compute.use_image("ami-old");
    harness.provision(&request("1", 1)).await;
    harness.sleep(10 * MINUTE).await;
    harness.memory.compute.use_image("ami-new");
    harness.provision(&request("2", 1)).await;
    let chosen = async |selection: Selection| {
        let order = Order { selection, ..order(Command::Drain) };
        let planned = plan(&harness.plane, &order, &StopSignal::never()).await.unwrap();
        planned.machines.iter().map(|it| it.id.to_string()).collect::<Vec<_>>()
    };
    let any = Selection::default();
    assert_eq!(chosen(any.clone()).await, ["i-0001", "i-0002"]);
    let of = |class: &str| Selection { class: class.parse().ok(), ..any.clone() };
    assert_eq!(chosen(of("large")).await.len(), 2);
    assert_eq!(chosen(of("xlarge")).await.len(), 0);
    let of = |usage: &str| Selection { usage: usage.parse().ok(), ..any.clone() };
    assert_eq!((chosen(of("on-demand")).await.len(), chosen(of("spot")).await.len()), (2, 0));
    let old = Selection { older_than: Some(5 * MINUTE), ..any.clone() };
    assert_eq!(chosen(old).await, ["i-0001"]);
    assert_eq!(chosen(Selection { old_image: true, ..any.clone() }).await, ["i-0001"]);
    assert!(chosen(Selection { old_agent: true, ..any.clone() }).await.is_empty());
    let other = Selection { ids: vec![id("i-0002")], ..any };
    assert_eq!(chosen(other).await, ["i-0002"]);
}

#[tokio::test]
async fn retired_machines_are_replaced_one_by_one_and_never_below_the_minimum() {
    let harness = Harness::patient(&[("min-idle", "large=4")]).await;
    let first = harness.idle_machines();
    harness.provision(&request("1", 1)).await;
    let retired = carried_out(&harness, &order(Command::Retire)).await;
    assert!(retired.machines.iter().all(|it| it.action == Action::Replace), "{retired:?}");
    assert_eq!(harness.idle_machines().len(), 3, "they stay in the pool");
    let claimed = harness.provision(&request("2", 1)).await;
    assert!(names(&claimed.instances).is_subset(&first), "and may be claimed");
    for of in ["1", "2"] {
        assert_eq!(harness.release(of).await.instances[0].disposition, Disposition::Terminated);
    }
    let mut least = usize::MAX;
    for _ in 0..6 {
        harness.sleep(5 * MINUTE).await;
        assert!(harness.refresh().await.rotated.len() <= 1);
        least = least.min(harness.idle_machines().len());
    }
    assert_eq!(least, 4);
    assert!(harness.idle_machines().is_disjoint(&first), "all of them were replaced");
}

/// Without a minimum there is nothing to wait for.
#[tokio::test]
async fn a_retired_machine_leaves_also_where_nothing_is_kept_warm() {
    let harness = Harness::new().await;
    harness.idle("i-1", "c6i.large").await;
    carried_out(&harness, &order(Command::Retire)).await;
    assert_eq!(harness.record("i-1").unwrap().departure, Departure::Retired);
    assert_eq!(harness.refresh().await.rotated, [id("i-1")]);
    assert!(harness.alive().is_empty());
}

#[tokio::test]
async fn runs_that_claim_while_a_drain_works_lose_no_machine() {
    for pause in 0..24 {
        let harness = Harness::new().await;
        for number in 0..6 {
            harness.idle(&format!("i-{number}"), "c6i.large").await;
        }
        let runs =
            (0..4).map(async |number| harness.provision(&request(&format!("{number}"), 1)).await);
        let drain = async {
            for _ in 0..pause * 3 {
                tokio::task::yield_now().await;
            }
            carried_out(&harness, &order(Command::Drain)).await
        };
        let (provisioned, drained) = join(join_all(runs), drain).await;
        assert_eq!(drained.failure, None);
        harness.assert_never_shared();
        let alive = harness.alive();
        for outcome in &provisioned {
            assert_eq!(outcome.failure, None, "after {pause}");
            for machine in names(&outcome.instances) {
                assert!(alive.contains(&machine), "{machine} of a run is gone, after {pause}");
                assert_eq!(harness.state(&machine), State::Running);
            }
        }
        for number in 0..4 {
            for released in harness.release(&number.to_string()).await.instances {
                let name = released.id.as_str();
                let is_old = !name.starts_with("i-000");
                let expected =
                    if is_old { Disposition::Terminated } else { released.disposition.clone() };
                assert_eq!(released.disposition, expected, "{name} after {pause}");
            }
        }
        assert!(harness.idle_machines().iter().all(|name| name.starts_with("i-000")));
    }
}

/// Every port call of a drain is the last of a process that is killed.
#[tokio::test]
async fn a_drain_that_is_killed_anywhere_leaves_nothing_that_refresh_does_not_close() {
    for polls in 0..120 {
        let harness = Harness::new().await;
        harness.provision(&request("1", 1)).await;
        harness.idle("i-spare", "c6i.large").await;
        let order = order(Command::Drain);
        let mut drain = Box::pin(carried_out(&harness, &order));
        for _ in 0..polls {
            if futures_util::poll!(&mut drain).is_ready() {
                return;
            }
            tokio::task::yield_now().await;
        }
        drop(drain);
        harness.sleep(2 * MINUTE).await;
        harness.refresh().await;
        let spare = harness.record("i-spare").unwrap();
        let is_up = harness.alive().contains(&"i-spare".to_owned());
        assert_eq!(spare.state == State::Terminated, !is_up, "after {polls} polls: {spare:?}");
        assert_eq!(harness.state("i-0001"), State::Running, "the run keeps its machine");
        let rest = Order { wait: MINUTE, ..named(Command::Drain, &["i-spare"]) };
        assert_eq!(carried_out(&harness, &rest).await.failure, None);
        assert_eq!(harness.alive(), ["i-0001"]);
    }
    panic!("the drain did not end");
}

fn truths(outcome: &tickets::Outcome) -> Vec<(&str, &str)> {
    let seen = outcome.classes.iter().flat_map(|class| &class.tickets);
    let mut truths: Vec<(&str, &str)> = seen
        .map(|seen| {
            let id = seen.ticket.as_ref().map_or("?", |ticket| ticket.instance_id.as_str());
            (id, seen.truth.as_str())
        })
        .collect();
    truths.sort_unstable();
    truths
}

#[tokio::test]
async fn a_look_at_the_pool_tells_true_tickets_from_others_and_hides_none() {
    let harness = Harness::new().await;
    let record = harness.idle("i-true", "c6i.large").await;
    harness.ticket(&record).await;
    let ticket = Instance::<Idle>::believe(&record).unwrap().ticket();
    let other = |name: &str| Ticket { instance_id: id(name), ..ticket.clone() };
    let stale = Ticket { generation: 7, ..ticket.clone() };
    harness.idle("i-busy", "m6i.large").await;
    harness.provision(&request("9", 2)).await;
    harness.idle("i-true", "c6i.large").await;
    harness.memory.pool.send(&[other("i-unknown"), stale], Duration::ZERO).await.unwrap();
    let record = harness.record("i-true").unwrap();
    let ticket = Instance::<Idle>::believe(&record).unwrap().ticket();
    harness.memory.pool.send(&[ticket], Duration::ZERO).await.unwrap();
    let silent = harness.idle("i-quiet", "c6i.large").await;
    let mut received = harness.memory.pool.receive(&large(), 10, MINUTE).await.unwrap();
    let quiet = received.iter().position(|it| it.body.contains("i-quiet")).unwrap();
    let quiet = received.remove(quiet).receipt;
    harness.memory.pool.delete(&large(), &[quiet]).await.unwrap();
    let rest: Vec<_> = received.into_iter().map(|it| it.receipt).collect();
    harness.memory.pool.put_back(&large(), &rest).await.unwrap();

    let (depth, visible) = (harness.depth().await, harness.visible().await);
    let stop = StopSignal::never();
    let listed = tickets::look(&harness.plane, Some(&large()), false, &stop).await.unwrap();
    let untrue = listed.classes[0].tickets.iter().filter(|it| it.truth.is_surplus()).count();
    assert_eq!((harness.depth().await, harness.visible().await), (depth, visible));
    let told = truths(&listed);
    assert!(told.contains(&("i-true", "true")), "{told:?}");
    assert!(told.contains(&("i-true", "duplicate")), "{told:?}");
    assert!(told.contains(&("i-true", "stale-generation")), "{told:?}");
    assert!(told.contains(&("i-unknown", "unknown-machine")), "{told:?}");
    assert_eq!(listed.classes[0].unannounced, std::slice::from_ref(&silent.id));

    let repaired = tickets::look(&harness.plane, None, true, &stop).await.unwrap();
    let class = repaired.classes.iter().find(|it| it.class == large()).unwrap();
    assert_eq!((class.deleted, class.announced.clone()), (untrue, vec![silent.id]));
    let again = tickets::look(&harness.plane, None, true, &stop).await.unwrap();
    assert_eq!(truths(&again), [("i-quiet", "true"), ("i-true", "true")]);
    assert!(again.classes.iter().all(|it| it.deleted == 0 && it.announced.is_empty()));
    assert_eq!(harness.visible().await, 2);
}

#[tokio::test]
async fn a_ticket_of_a_drained_machine_is_not_true() {
    let harness = Harness::new().await;
    let record = harness.idle("i-1", "c6i.large").await;
    let idle = Instance::<Idle>::believe(&record).unwrap();
    harness.plane.apply(idle.drain(harness.plane.now())).await.unwrap();
    let stop = StopSignal::never();
    let listed = tickets::look(&harness.plane, None, false, &stop).await.unwrap();
    let seen: Vec<&Truth> =
        listed.classes.iter().flat_map(|it| &it.tickets).map(|it| &it.truth).collect();
    assert_eq!(seen, [&Truth::Drained]);
    assert_eq!(harness.provision(&request("1", 1)).await.count(MachineSource::Cold), 1);
}
