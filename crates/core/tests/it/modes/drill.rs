//! A drill over in-memory ports, with the real modes and agents: it passes where they work, and finds
//! each planted fault.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::record::{MachineSpec, State};
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::settings::Settings;
use ondeck_core::modes::doctor::ForgeAccess;
use ondeck_core::modes::drill::{
    Ask, Cancelled, Ended, Expectation, How, Look, Options, Outcome, Programs, Scenario, Verdict,
    carry_out, plan,
};
use ondeck_core::modes::provision::{self, Request, provision};
use ondeck_core::ports::{Compute, PortResult};
use ondeck_core::runtime::stop::{Stop, StopSignal, StopSwitch};
use ondeck_core::testkit::MachineDefect;

use super::harness::{Harness, id, run, spec};

/// What is wrong with a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// Provision reports the machine that was killed.
    HandsOutTheDead,
    CannotRefresh,
    /// A run of a user claims the machine as soon as it is released.
    ClaimedMeanwhile,
    /// Its rollback does nothing.
    CannotRollBack,
    /// A provision that follows the disturbance dies while it holds a machine.
    DiesWithAClaim,
    /// Releases fail, and release nothing.
    CannotRelease,
    /// The command that lets the provider interrupt a machine fails.
    CannotInterrupt,
    /// The drill is told to stop when it has killed its machine.
    Stopped,
}

/// The modes, in this process.
struct InProcess<'a> {
    harness: &'a Harness,
    fault: Fault,
    killed: Mutex<Option<InstanceId>>,
    switch: StopSwitch,
}

impl InProcess<'_> {
    fn request(ask: &Ask) -> Request {
        let mut request = Request::of_run(ask.run.clone());
        request.options.class = ask.class.clone();
        request.options.usage = ask.usage;
        request.options.machine_source = ask.source;
        request.options.types = ask.instance_type.as_ref().map(|it| it.parse().unwrap());
        request
    }

    fn ended(outcome: provision::Outcome) -> Ended {
        let failure = outcome.failure.as_ref();
        let had = outcome.instances.iter().map(|it| it.id.clone());
        Ended {
            code: failure.map_or(0, |it| i32::from(it.kind.exit_code())),
            machines: had.chain(outcome.terminated).chain(outcome.returned).collect(),
            clean_up_failures: outcome.clean_up_failures,
            error: failure.map(ToString::to_string).unwrap_or_default(),
            took: Duration::ZERO,
        }
    }

    fn failed(code: i32) -> Ended {
        Ended { code, error: "denied".to_owned(), ..Ended::default() }
    }
}

#[async_trait]
impl Programs for InProcess<'_> {
    async fn provision(&self, ask: &Ask) -> Ended {
        let killed = self.killed.lock().unwrap().clone();
        if let (Fault::HandsOutTheDead, Some(id)) = (self.fault, killed) {
            return Ended { machines: vec![id], ..Ended::default() };
        }
        if self.fault == Fault::DiesWithAClaim && self.killed.lock().unwrap().is_some() {
            return self.cancel(ask, How::Kill).await.ended;
        }
        Self::ended(self.harness.provision(&Self::request(ask)).await)
    }

    async fn cancel(&self, ask: &Ask, how: How) -> Cancelled {
        let (plane, request) = (&self.harness.plane, Self::request(ask));
        let (switch, stop) = StopSignal::new();
        let ours = || {
            let of_run = self.harness.memory.store.select(|it| it.run.as_ref() == Some(&ask.run));
            of_run.first().map(|record| record.id.clone())
        };
        let watch = async {
            loop {
                if let Some(id) = ours() {
                    return id;
                }
                tokio::task::yield_now().await;
            }
        };
        if how == How::Kill || self.fault == Fault::CannotRollBack {
            let machine = tokio::select! {
                id = watch => Some(id),
                _ = provision(plane, &request, &stop) => None,
            };
            let code = if how == How::Kill { -9 } else { 130 };
            let clean_up_failures = match how {
                How::Kill => Vec::new(),
                How::Interrupt => vec!["i-1 was not given back: denied".to_owned()],
            };
            return Cancelled {
                ended: Ended { code, clean_up_failures, ..Ended::default() },
                machine,
            };
        }
        let interrupt = async {
            let id = watch.await;
            switch.raise(Stop::Interrupted);
            id
        };
        let (outcome, machine) = join(provision(plane, &request, &stop), interrupt).await;
        Cancelled { ended: Self::ended(outcome), machine: Some(machine) }
    }

    async fn release(&self, run: &RunId) -> Ended {
        if self.fault == Fault::CannotRelease {
            return Self::failed(6);
        }
        let released = self.harness.release(run.as_str()).await;
        if self.fault == Fault::ClaimedMeanwhile {
            self.harness.provision(&Request::of_run("user".parse().unwrap())).await;
        }
        let code = released.failure().map_or(0, |it| i32::from(it.kind.exit_code()));
        Ended { code, ..Ended::default() }
    }

    async fn refresh(&self) -> Ended {
        if self.fault == Fault::CannotRefresh {
            return Self::failed(6);
        }
        self.harness.refresh().await;
        Ended::default()
    }

    async fn kill(&self, machine: &InstanceId) -> PortResult<()> {
        *self.killed.lock().unwrap() = Some(machine.clone());
        if self.fault == Fault::Stopped {
            self.switch.raise(Stop::Interrupted);
        }
        self.harness.memory.compute.terminate(std::slice::from_ref(machine)).await
    }

    async fn interrupt(&self, _machine: &InstanceId) -> Result<(), String> {
        Err("nothing is interrupted here".to_owned())
    }
}

async fn drill(harness: &Harness, scenario: Scenario, fault: Fault, minutes: u64) -> Outcome {
    let (switch, stop) = StopSignal::new();
    let programs = InProcess { harness, fault, killed: Mutex::default(), switch };
    let options = Options {
        name: "drill-1".to_owned(),
        scenarios: BTreeSet::from([scenario]),
        class: None,
        may_launch: true,
        no_interruption: (fault != Fault::CannotInterrupt).then(|| "there is no way to".to_owned()),
        patience: Duration::from_secs(60 * minutes),
    };
    let forge = ForgeAccess::OfProvider;
    carry_out(&harness.plane, &forge, &programs, &options, &stop).await.unwrap()
}

#[tokio::test]
async fn a_launch_is_of_the_smallest_class_unless_one_is_named() {
    let harness = Harness::new().await;
    let forge = ForgeAccess::OfProvider;
    let look = Look::take(&harness.plane, &forge).await.unwrap();
    let of = |class: Option<&str>| {
        let options = Options {
            name: "drill-1".to_owned(),
            scenarios: BTreeSet::from([Scenario::CancelLaunch]),
            class: class.map(|it| it.parse().unwrap()),
            may_launch: true,
            no_interruption: None,
            patience: Duration::ZERO,
        };
        let planned = plan(&look, &Settings::default(), &options).remove(0);
        planned.target.unwrap().class.to_string()
    };
    assert_eq!((of(None), of(Some("xlarge"))), ("large".to_owned(), "xlarge".to_owned()));
}

fn verdict(outcome: &Outcome) -> &Verdict {
    let [played] = &outcome.scenarios[..] else { panic!("one scenario: {outcome:?}") };
    &played.verdict
}

fn unmet(outcome: &Outcome) -> Vec<Expectation> {
    outcome.unmet().map(|(_, step)| step.expectation).collect()
}

/// Nothing of the drill is left: no run of it has a machine.
fn assert_clean(harness: &Harness, outcome: &Outcome) {
    let of_drill = |run: &RunId| run.as_str().starts_with("drill-");
    let left = harness
        .memory
        .store
        .select(|record| record.state.is_live() && record.run.as_ref().is_some_and(of_drill));
    assert_eq!((left, &outcome.left), (Vec::new(), &Vec::new()));
    harness.assert_never_shared();
}

#[tokio::test]
async fn each_scenario_passes_where_everything_works() {
    for scenario in Scenario::ALL {
        let harness = Harness::new().await;
        harness.idle("i-a", "c5.large").await;
        harness.idle("i-b", "c5.large").await;
        let outcome = drill(&harness, scenario, Fault::None, 10).await;
        match scenario {
            Scenario::InterruptSpot => {
                let reason = Verdict::Skipped("there is no way to".to_owned());
                assert_eq!(verdict(&outcome), &reason);
                assert_eq!(outcome.failure().unwrap().kind.exit_code(), 22);
            }
            _ => {
                assert_eq!(verdict(&outcome), &Verdict::Passed, "{scenario}: {outcome:?}");
                assert_eq!(outcome.failure(), None);
            }
        }
        let idle =
            if scenario.ends_idle_machine() && scenario != Scenario::InterruptSpot { 1 } else { 2 };
        assert_eq!(harness.idle_machines().len(), idle, "{scenario}");
        assert_eq!(harness.alive().len(), idle, "{scenario}");
        assert_clean(&harness, &outcome);
    }
}

#[tokio::test]
async fn each_fault_is_found() {
    use Expectation::{Claimed, CleanedUp, NotHandedOut, Refreshed, Released};
    for (scenario, fault, first) in [
        (Scenario::KillIdle, Fault::HandsOutTheDead, NotHandedOut),
        (Scenario::KillIdle, Fault::CannotRefresh, Refreshed),
        (Scenario::KillLaunch, Fault::CannotRefresh, Refreshed),
        (Scenario::CancelProvision, Fault::CannotRollBack, CleanedUp),
        (Scenario::CancelLaunch, Fault::CannotRollBack, CleanedUp),
        (Scenario::CancelProvision, Fault::CannotRelease, Released),
    ] {
        let harness = Harness::new().await;
        harness.idle("i-a", "c5.large").await;
        let outcome = drill(&harness, scenario, fault, 10).await;
        assert_eq!(verdict(&outcome), &Verdict::Failed, "{fault:?}: {outcome:?}");
        assert_eq!(unmet(&outcome)[0], first, "{fault:?}: {outcome:?}");
        assert_eq!(outcome.failure().unwrap().kind.exit_code(), 22);
    }
    for (defect, first) in
        [(MachineDefect::CannotBeCleaned, Released), (MachineDefect::CannotRegister, Claimed)]
    {
        let harness = Harness::new().await;
        harness.make_defective("i-a", defect);
        harness.idle("i-a", "c5.large").await;
        let outcome = drill(&harness, Scenario::KillIdle, Fault::None, 10).await;
        assert_eq!(unmet(&outcome), [first], "{defect:?}: {outcome:?}");
        assert_clean(&harness, &outcome);
    }
}

#[tokio::test]
async fn a_provision_that_dies_with_a_claim_leaves_none() {
    let harness = Harness::new().await;
    harness.idle("i-a", "c5.large").await;
    harness.idle("i-b", "c5.large").await;
    let outcome = drill(&harness, Scenario::KillIdle, Fault::DiesWithAClaim, 10).await;
    assert_eq!(unmet(&outcome)[0], Expectation::NotHandedOut, "{outcome:?}");
    assert_clean(&harness, &outcome);
}

#[tokio::test]
async fn a_machine_that_a_run_of_a_user_claims_is_left_alone() {
    let harness = Harness::new().await;
    harness.idle("i-a", "c5.large").await;
    let outcome = drill(&harness, Scenario::KillIdle, Fault::ClaimedMeanwhile, 10).await;
    let Verdict::Skipped(reason) = verdict(&outcome) else { panic!("{outcome:?}") };
    assert_eq!(reason, "another run has claimed it right after its release: i-a");
    let record = harness.record("i-a").unwrap();
    assert_eq!((record.state, record.run), (State::Running, Some(run("user"))));
    assert_eq!(harness.alive(), ["i-a"]);
}

/// The machine of the drill is not the next one in the pool, so its record waits for its threshold.
#[tokio::test]
async fn what_lasts_longer_than_the_patience_is_not_called_passed() {
    let harness = Harness::with(&[("idle-time-sec", "3600")]).await;
    let hour = Duration::from_secs(3600);
    harness.put_idle("i-a", spec("c5.large"), hour).await;
    harness.put_idle("i-b", spec("c5.large"), hour).await;
    let outcome = drill(&harness, Scenario::KillIdle, Fault::None, 10).await;
    let Verdict::Incomplete(reason) = verdict(&outcome) else { panic!("{outcome:?}") };
    assert!(reason.contains("longer than --recovery-min; the drill has ended it"), "{reason}");
    assert_eq!(outcome.failure(), None);
    let patient = Harness::with(&[("idle-time-sec", "300")]).await;
    patient.put_idle("i-a", spec("c5.large"), hour).await;
    patient.put_idle("i-b", spec("c5.large"), hour).await;
    let waited = drill(&patient, Scenario::KillIdle, Fault::None, 10).await;
    assert_eq!(verdict(&waited), &Verdict::Passed, "refresh ends it at its threshold: {waited:?}");
    assert_eq!(harness.alive().len(), 1);
    assert_clean(&harness, &outcome);
}

#[tokio::test]
async fn a_drill_that_is_stopped_leaves_no_record_of_the_machine_that_it_killed() {
    let harness = Harness::new().await;
    harness.idle("i-a", "c5.large").await;
    let outcome = drill(&harness, Scenario::KillIdle, Fault::Stopped, 10).await;
    assert_eq!(outcome.failure().unwrap().kind.exit_code(), 130);
    assert_eq!(harness.record("i-a").unwrap().state, State::Terminated);
    assert!(matches!(verdict(&outcome), Verdict::Incomplete(_)), "{outcome:?}");
    assert_clean(&harness, &outcome);
}

#[tokio::test]
async fn a_machine_that_was_not_interrupted_stays_in_the_pool() {
    let harness = Harness::new().await;
    let spot = MachineSpec { usage_class: UsageClass::Spot, ..spec("c5.large") };
    harness.put_idle("i-a", spot, Duration::from_secs(3600)).await;
    let outcome = drill(&harness, Scenario::InterruptSpot, Fault::CannotInterrupt, 10).await;
    let failure = outcome.failure().unwrap();
    assert!(failure.message.contains("i-a was not interrupted"), "{failure}");
    assert_eq!(
        (harness.alive(), harness.record("i-a").unwrap().state),
        (vec!["i-a".to_owned()], State::Idle)
    );
    assert_clean(&harness, &outcome);
}

#[tokio::test]
async fn what_was_wrong_before_does_not_count() {
    let harness = Harness::new().await;
    harness.idle("i-a", "c5.large").await;
    harness.idle("i-gone", "m5.large").await;
    harness.memory.compute.kill(&id("i-gone"));
    harness.sleep(Duration::from_secs(30)).await;
    let outcome = drill(&harness, Scenario::CancelProvision, Fault::None, 10).await;
    let before: Vec<&str> = outcome.before.iter().map(|it| it.about.as_str()).collect();
    assert_eq!(before, ["i-gone"]);
    assert_eq!(verdict(&outcome), &Verdict::Passed, "{outcome:?}");
}
