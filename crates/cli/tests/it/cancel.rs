//! Runs that are cancelled the way GitHub does it: an interrupt, after 7.5 seconds a terminate,
//! and after 2.5 more a kill; at moments that chance decides. After the next refresh nothing of
//! the run is left, and every machine that was idle before is idle again.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::aws::harness::AwsHarness;
use crate::harness::{Background, Driven, Home, say, within};

const SEED: &str = "ONDECK_CANCEL_SEED";
const MOMENTS: u32 = 30;
const TO_TERMINATE: Duration = Duration::from_millis(7_500);
const TO_KILL: Duration = Duration::from_millis(2_500);
/// For machines to last until the test looks, and not to be in the way of the next moment.
const SETTINGS: [&str; 3] =
    ["--self-termination-grace-sec=60", "--boot-deadline-sec=60", "--idle-time-sec=600"];

/// How a cancelled process ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Before anything was sent.
    Finished,
    /// By itself, after the interrupt.
    ClearedUp,
    /// It needed the terminate or the kill.
    Late,
}

/// Sends what GitHub sends until the process has ended.
fn cancel(provision: &mut Background) -> End {
    if provision.has_ended() {
        return End::Finished;
    }
    provision.signal(Signal::INT);
    if within(TO_TERMINATE, || provision.has_ended()) {
        return End::ClearedUp;
    }
    provision.signal(Signal::TERM);
    if !within(TO_KILL, || provision.has_ended()) {
        provision.signal(Signal::KILL);
        assert!(within(TO_TERMINATE, || provision.has_ended()), "a kill kills");
    }
    End::Late
}

fn cancelled_at_random(pool: &impl Driven, machines: impl Fn() -> BTreeSet<String>) {
    let given = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or_else(|| fastrand::u64(..));
    say(&format!("{SEED}={seed}"));
    let mut random = fastrand::Rng::with_seed(seed);
    let since = Instant::now();
    pool.provision("first", 2).succeeded();
    let takes = since.elapsed();
    pool.release("first").succeeded();

    let mut ends = Vec::new();
    for moment in 0..MOMENTS {
        let run = format!("cancelled-{moment}");
        let before = pool.records();
        // More than are idle, so that there is something to claim and something to launch.
        let count = (before.len() + 1 + random.usize(..2)).min(5).to_string();
        let ask = ["provision", "--json", "--run-id", &run, "--instance-count", &count];
        let mut provision = pool.start(&ask);
        within(takes.mul_f64(random.f64() * 0.9), || provision.has_ended());
        let end = cancel(&mut provision);
        let done = provision.finish();
        if done.code == 0 {
            // It was faster than the cancellation: then the run has all, and its release job runs.
            assert_eq!(done.ids().len().to_string(), count);
            pool.release(&run).succeeded();
        }
        pool.refresh(&[]);
        let records = pool.records();
        let busy: Vec<_> = records.values().filter(|standing| *standing != "idle").collect();
        assert!(busy.is_empty(), "after {end:?} with {}: {records:?}", done.code);
        assert_eq!(machines(), records.keys().cloned().collect(), "after {end:?}");
        let lost: Vec<_> = before.keys().filter(|id| !records.contains_key(*id)).collect();
        assert!(lost.is_empty() || end == End::Late, "{lost:?} after {end:?}: {done:?}");
        ends.push(end);
        // So that there is something idle for the next ones.
        if moment % 3 == 0 && records.len() < 2 {
            pool.provision("again", 2).succeeded();
            pool.release("again").succeeded();
        }
        // So that the next ones have something to launch.
        if records.len() > 3 {
            pool.provision("surplus", 2).succeeded();
            pool.ondeck(&["release", "--run-id=surplus", "--idle-time-sec=0"]).succeeded();
        }
    }
    let late = ends.iter().filter(|end| **end == End::Late).count();
    let cleared = ends.iter().filter(|end| **end == End::ClearedUp).count();
    say(&format!("{cleared} of {MOMENTS} cleared up in time, {late} did not"));
    assert!(cleared >= 5, "hardly any was interrupted: {ends:?}");
    assert!(late <= 1, "they have 7.5 seconds and need one: {ends:?}");
}

#[test]
fn on_the_local_backend() {
    let home = Home::with(&[&SETTINGS[..], &["--local-boot-ms=300"]].concat());
    cancelled_at_random(&home, || home.agents().into_keys().collect());
}

#[test]
fn on_aws() {
    let harness = AwsHarness::with(&SETTINGS);
    cancelled_at_random(&harness, || harness.machines());
    harness.gateway.assert_requests_valid();
}
