//! The cap on what machines may cost in a day: no launch exceeds it, and what ends gives money back.

use std::time::Duration;

use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::finding::FindingKind;
use ondeck_core::model::money::Money;
use ondeck_core::model::record::State;
use ondeck_core::model::spend::Spend;
use ondeck_core::modes::provision::{MachineSource, Request};
use ondeck_core::modes::refresh::refresh;
use ondeck_core::runtime::stop::StopSignal;
use ondeck_core::testkit::MachineDefect;

use super::harness::{Harness, request};

const MINUTE: Duration = Duration::from_secs(60);

/// What an hour of each machine of these tests costs.
const PRICE: f64 = 0.085;

/// How long a machine may last with an age of an hour: it may be idle, be claimed and run once more.
const LONGEST_MIN: u64 = 60 + 5 + 5 + 30 + 1;

/// When the virtual clock begins, in minutes before midnight in UTC.
const TO_MIDNIGHT: Duration = Duration::from_secs(32_000);

fn usd(dollars: f64) -> Money {
    Money::from_dollars(dollars).unwrap()
}

/// What a new machine reserves.
fn reserve() -> Money {
    usd(PRICE).for_span(Duration::from_secs(LONGEST_MIN * 60))
}

/// A pool with money for so many new machines.
async fn for_machines(count: f64, given: &[(&str, &str)]) -> Harness {
    let cap = (reserve().dollars() * count).to_string();
    let capped = [("max-spend-per-day", cap.as_str()), ("max-machine-age-min", "60")];
    Harness::with(&[&capped[..], given].concat()).await
}

fn wanted(run_id: &str, count: u32) -> Request {
    let mut request = request(run_id, count);
    request.options.types = Some("c6i.large".parse().unwrap());
    request
}

async fn served(harness: &Harness, run_id: &str, count: u32) {
    let outcome = harness.provision(&wanted(run_id, count)).await;
    assert_eq!(outcome.failure, None, "run {run_id}");
}

async fn refused(harness: &Harness, run_id: &str, count: u32) -> Failure {
    let outcome = harness.provision(&wanted(run_id, count)).await;
    let failure = outcome.failure.expect("there is no money");
    assert_eq!((failure.kind, failure.kind.exit_code()), (FailureKind::AtSpendCap, 4), "{failure}");
    failure
}

async fn spend(harness: &Harness) -> Spend {
    let count = harness.plane.store.machine_count().await.unwrap();
    count.expect("refresh has counted").spend.expect("there is a cap")
}

#[tokio::test]
async fn a_launch_over_the_cap_is_refused_with_the_numbers() {
    let harness = for_machines(2.5, &[]).await;
    served(&harness, "1", 2).await;
    let failure = refused(&harness, "2", 1).await;
    let cap = usd(reserve().dollars() * 2.5);
    let expected = format!(
        "of {cap} for machines of this day in UTC, $0 is spent and {} is reserved, {} more is needed",
        reserve().times(2),
        reserve()
    );
    assert_eq!(failure.message, expected);
    assert!(failure.hint.contains("midnight") && failure.hint.contains("--max-spend-per-day"));
    assert_eq!(harness.memory.compute.ordered().len(), 1, "a refused launch is not ordered");
    assert_eq!(harness.alive().len(), 2);
}

#[tokio::test]
async fn what_was_claimed_returns_if_there_is_no_money_for_the_rest() {
    let harness = for_machines(2.1, &[]).await;
    harness.idle("i-idle", "c6i.large").await;
    harness.refresh().await;
    refused(&harness, "1", 3).await;
    assert_eq!(harness.state("i-idle"), State::Idle);
    assert_eq!(harness.alive(), ["i-idle"]);
}

#[tokio::test]
async fn the_dearest_type_is_reserved_and_the_launched_one_is_paid_for() {
    let harness = for_machines(3.0, &[]).await;
    let mut dear = wanted("1", 1);
    // The machines of the harness take turns: the second one is of the second type.
    dear.options.types = Some("c6i.large r6i.large".parse().unwrap());
    assert_eq!(harness.provision(&dear).await.failure, None);
    let of = |price: f64| usd(price).for_span(LONGEST_MIN as u32 * MINUTE);
    let launched = harness.memory.store.select(|record| record.state == State::Running);
    let first = match launched[0].spec.instance_type.as_str() {
        "c6i.large" => of(PRICE),
        _ => of(0.126),
    };
    assert_eq!(spend(&harness).await.committed, first);
    let mut too_dear = wanted("2", 2);
    too_dear.options.types = Some("c6i.large r8idn.large".parse().unwrap());
    let failure = harness.provision(&too_dear).await.failure.expect("no money for two dear ones");
    let needed = of(0.23447).times(2);
    assert!(failure.message.ends_with(&format!("{needed} more is needed")), "{failure}");
}

#[tokio::test]
async fn spot_is_reserved_at_the_list_price() {
    let harness = for_machines(1.5, &[]).await;
    let mut spot = wanted("1", 1);
    spot.options.usage = ondeck_core::model::requirements::UsageClass::Spot;
    assert_eq!(harness.provision(&spot).await.failure, None);
    assert_eq!(spend(&harness).await.committed, reserve());
}

#[tokio::test]
async fn idle_machines_are_claimed_without_money() {
    let harness = for_machines(2.1, &[]).await;
    served(&harness, "1", 2).await;
    harness.release("1").await;
    let before = harness.memory.store.calls().get("reserve").copied();
    let outcome = harness.provision(&wanted("2", 2)).await;
    assert_eq!((outcome.failure.clone(), outcome.count(MachineSource::Warm)), (None, 2));
    assert_eq!(harness.memory.store.calls().get("reserve").copied(), before);
    refused(&harness, "3", 1).await;
}

#[tokio::test]
async fn of_many_concurrent_provisions_no_more_are_served_than_there_is_money_for() {
    let harness = for_machines(5.2, &[]).await;
    let requests: Vec<Request> = (0..8).map(|n| wanted(&format!("{n}"), 1)).collect();
    let outcomes =
        futures_util::future::join_all(requests.iter().map(|one| harness.provision(one))).await;
    let failed: Vec<_> = outcomes.iter().filter_map(|it| it.failure.as_ref()).collect();
    assert_eq!((outcomes.len() - failed.len(), harness.alive().len()), (5, 5));
    assert!(failed.iter().all(|failure| failure.kind == FailureKind::AtSpendCap), "{failed:?}");
}

#[tokio::test]
async fn a_refused_launch_gives_all_of_its_money_back_at_once() {
    let harness = for_machines(2.1, &[]).await;
    harness.memory.compute.set_capacity(0);
    let outcome = harness.provision(&wanted("1", 2)).await;
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::NoCapacity);
    assert_eq!(spend(&harness).await.committed, Money::ZERO);
}

#[tokio::test]
async fn a_rollback_costs_what_its_machines_have_cost_until_a_refresh() {
    let harness = for_machines(2.1, &[]).await;
    harness.make_defective("i-0002", MachineDefect::NeverBoots);
    let began = harness.plane.now();
    let outcome = harness.provision(&wanted("1", 2)).await;
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::NotReady);
    assert!(harness.alive().is_empty());
    refused(&harness, "2", 2).await;
    harness.refresh().await;
    let lasted = harness.plane.now().since(began);
    let after = spend(&harness).await;
    assert_eq!(after.committed, after.spent, "nothing is reserved any more");
    let paid = usd(PRICE).for_span(lasted).times(2);
    assert!(after.spent > Money::ZERO && after.spent <= paid, "{after:?} {paid}");
    served(&harness, "2", 1).await;
}

#[tokio::test]
async fn a_machine_that_ends_is_paid_for_until_the_next_refresh_and_only_once() {
    let harness = for_machines(1.05, &[]).await;
    served(&harness, "1", 1).await;
    harness.refresh().await;
    let machine = harness.alive()[0].parse().unwrap();
    harness.sleep(10 * MINUTE).await;
    harness.memory.compute.kill(&machine);
    harness.sleep(MINUTE).await;
    harness.refresh().await;
    let once = spend(&harness).await;
    harness.sleep(10 * MINUTE).await;
    harness.refresh().await;
    let again = spend(&harness).await;
    let ten = usd(PRICE).for_span(12 * MINUTE);
    assert!(once.spent >= usd(PRICE).for_span(10 * MINUTE) && once.spent <= ten, "{once:?}");
    assert_eq!((again.spent, again.committed), (once.spent, once.spent), "and nothing since");
    refused(&harness, "2", 1).await;
}

#[tokio::test]
async fn the_first_launch_of_a_day_carries_over_what_exists() {
    let harness = for_machines(3.1, &[("max-runtime-min", "30")]).await;
    harness.sleep(TO_MIDNIGHT - 20 * MINUTE).await;
    harness.refresh().await;
    served(&harness, "1", 2).await;
    harness.refresh().await;
    let before = spend(&harness).await;
    let until_midnight = usd(PRICE).for_span(21 * MINUTE).times(2);
    assert!(before.committed <= until_midnight, "the day ends at midnight: {before:?}");
    harness.sleep(21 * MINUTE).await;
    let failure = refused(&harness, "2", 2).await;
    assert!(failure.message.contains("$0 is spent"), "{failure}");
    let carried = spend(&harness).await;
    assert_eq!(carried.day, harness.plane.now().start_of_day());
    let both = usd(PRICE * 2.0).for_span(Duration::from_secs(LONGEST_MIN * 60));
    assert_eq!(carried.committed, both, "both may stay for long");
    served(&harness, "2", 1).await;
}

#[tokio::test]
async fn a_refresh_after_midnight_drains_what_does_not_fit() {
    let harness = for_machines(1.1, &[]).await;
    harness.sleep(TO_MIDNIGHT - 15 * MINUTE).await;
    harness.refresh().await;
    served(&harness, "1", 1).await;
    served(&harness, "2", 3).await;
    harness.release("2").await;
    let outcome = harness.refresh().await;
    assert!(outcome.drained.is_empty(), "all fit until midnight: {outcome:?}");
    harness.sleep(12 * MINUTE).await;
    let kept = harness.refresh_with(&[("min-idle", "large/c6i.large=3")]).await;
    assert!(kept.drained.is_empty(), "{kept:?}");
    harness.sleep(5 * MINUTE).await;
    let outcome = harness.refresh_with(&[("min-idle", "")]).await;
    assert!(!outcome.drained.is_empty(), "{outcome:?}");
    let running = harness.memory.store.select(|record| record.state == State::Running);
    assert_eq!(running.len(), 1, "a machine that a run has keeps it");
    let used = outcome.spend.expect("there is a cap");
    assert!(used.spent + used.reserved <= used.cap, "{used:?}");
    let events = harness.memory.store.events();
    let drains = events.iter().filter(|event| event.why.contains("more than max-spend-per-day"));
    assert_eq!(drains.count(), outcome.drained.len());
}

#[tokio::test]
async fn a_cap_needs_an_age() {
    let harness = Harness::new().await;
    for given in [
        &[("max-spend-per-day", "5")][..],
        &[("max-spend-per-day", "5"), ("max-machine-age-min", "")],
    ] {
        let given = given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let outcome = refresh(&harness.plane, &given, &StopSignal::never()).await.unwrap();
        let failure = outcome.failure.expect("it is refused");
        assert_eq!(failure.kind.exit_code(), 2, "{failure}");
        assert!(failure.message.starts_with("max-spend-per-day needs max-machine-age-min"));
    }
    harness.refresh_with(&[("max-spend-per-day", "5"), ("max-machine-age-min", "60")]).await;
    let reset = [("max-machine-age-min".to_owned(), String::new())].into();
    let outcome = refresh(&harness.plane, &reset, &StopSignal::never()).await.unwrap();
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::InvalidInput, "of a reset as well");
    harness.refresh_with(&[("max-spend-per-day", ""), ("max-machine-age-min", "")]).await;
    served(&harness, "1", 1).await;
}

#[tokio::test]
async fn a_type_without_a_price_is_refused() {
    let harness = for_machines(5.0, &[]).await;
    let mut request = wanted("1", 1);
    request.options.types = Some("z99.*".parse().unwrap());
    let failure = harness.provision(&request).await.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::InvalidInput, "{failure}");
    assert!(failure.message.ends_with("no allowed instance type has a price: z99.*"), "{failure}");
    assert!(harness.memory.compute.ordered().is_empty());
    let given = [("min-idle".to_owned(), "large/z99.*=1".to_owned())].into();
    let outcome = refresh(&harness.plane, &given, &StopSignal::never()).await.unwrap();
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.kind.exit_code(), 2, "{failure}");
}

#[tokio::test]
async fn a_minimum_is_kept_as_far_as_there_is_money() {
    let harness = for_machines(3.1, &[("min-idle", "large/c6i.large=1")]).await;
    assert_eq!(harness.idle_machines().len(), 1);
    let outcome = harness.refresh_with(&[("min-idle", "large/c6i.large=9")]).await;
    let warned = outcome.warnings.iter().any(|it| it.contains("below its minimum: of $"));
    assert!(warned, "{:?}", outcome.warnings);
    assert!(harness.idle_machines().len() > 1, "as many as there is money for");
}

#[tokio::test]
async fn a_cap_that_is_set_later_counts_what_machines_have_cost_today() {
    let harness = Harness::new().await;
    served(&harness, "1", 1).await;
    harness.sleep(20 * MINUTE).await;
    let outcome =
        harness.refresh_with(&[("max-spend-per-day", "1"), ("max-machine-age-min", "60")]).await;
    let used = outcome.spend.expect("it was counted");
    let paid = usd(PRICE).for_span(20 * MINUTE);
    assert!(used.spent >= paid && used.spent < paid + usd(0.01), "{used:?}");
    let near = outcome.findings.iter().find(|it| it.kind == FindingKind::SpendNearCap);
    assert!(near.is_none(), "{near:?}");
    let outcome = harness.refresh_with(&[("max-spend-per-day", "0.15")]).await;
    let near = outcome.findings.iter().find(|it| it.kind == FindingKind::SpendNearCap).unwrap();
    assert!(near.text.contains("of $0.1500 a day"), "{}", near.text);
}
