//! Drill: disturbs machines of a pool on purpose, and says whether the pool recovers as it should.
//!
//! ```text
//! look → plan → for each scenario: take a machine → disturb it → see how the pool recovers → audit
//! ```
//!
//! A drill takes only machines that its own runs have claimed or launched. It calls the modes as
//! programs, see [`Programs`], so that each has the permissions that it has otherwise; itself it reads
//! the records, and ends machines at their provider. What is left of it in the end, it releases and
//! terminates, also after a failure or a signal.

mod audit;
mod expectation;
mod plan;
mod play;
mod programs;
mod scene;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

pub use self::audit::Look;
pub use self::expectation::Expectation;
pub use self::plan::{Planned, Target, plan};
pub use self::programs::{Ask, Cancelled, Ended, How, Programs};
use crate::model::excerpt::quoted;
use crate::model::failure::{Failure, FailureKind};
use crate::model::ids::{InstanceId, ResourceClass};
use crate::modes::doctor::ForgeAccess;
use crate::modes::plane::Plane;
use crate::runtime::stop::StopSignal;

/// One disturbance, and what should follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scenario {
    /// An idle machine dies.
    KillIdle,
    /// A provision is interrupted while it holds a machine of the pool.
    CancelProvision,
    /// A provision is interrupted while its new machine boots.
    CancelLaunch,
    /// A provision is killed while its new machine boots.
    KillLaunch,
    /// The provider announces that it takes an idle spot machine away.
    InterruptSpot,
}

impl Scenario {
    /// In the order in which they are played.
    pub const ALL: [Scenario; 5] = [
        Scenario::CancelProvision,
        Scenario::CancelLaunch,
        Scenario::KillLaunch,
        Scenario::InterruptSpot,
        Scenario::KillIdle,
    ];

    /// The word on the command line and in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Scenario::KillIdle => "kill-idle",
            Scenario::CancelProvision => "cancel-provision",
            Scenario::CancelLaunch => "cancel-launch",
            Scenario::KillLaunch => "kill-launch",
            Scenario::InterruptSpot => "interrupt-spot",
        }
    }

    /// What is done, for a plan.
    pub fn what(self) -> &'static str {
        match self {
            Scenario::KillIdle => {
                "claims an idle machine, releases it, and ends it at its provider without touching \
                 its record"
            }
            Scenario::CancelProvision => {
                "sends SIGINT to a provision that has just claimed an idle machine"
            }
            Scenario::CancelLaunch => {
                "sends SIGINT to a provision that has just launched a machine"
            }
            Scenario::KillLaunch => "sends SIGKILL to a provision that has just launched a machine",
            Scenario::InterruptSpot => {
                "claims an idle spot machine, releases it, and lets its provider announce an \
                 interruption"
            }
        }
    }

    /// Whether it launches a machine, one for a short time.
    pub fn launches(self) -> bool {
        matches!(self, Scenario::CancelLaunch | Scenario::KillLaunch)
    }

    /// Whether the machine that it takes is gone afterwards.
    pub fn ends_idle_machine(self) -> bool {
        matches!(self, Scenario::KillIdle | Scenario::InterruptSpot)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Scenario {
    type Err = String;

    fn from_str(word: &str) -> Result<Scenario, String> {
        let known = Scenario::ALL.map(Scenario::as_str).join(", ");
        let found = Scenario::ALL.into_iter().find(|scenario| scenario.as_str() == word);
        found.ok_or_else(|| format!("is none of {known}: {}", quoted(word)))
    }
}

/// What an operator asks a drill for.
#[derive(Debug, Clone)]
pub struct Options {
    /// Begins the ids of the drill's runs, which no other run may have.
    pub name: String,
    pub scenarios: BTreeSet<Scenario>,
    /// Only machines of this class. `None` for any.
    pub class: Option<ResourceClass>,
    /// Whether scenarios that launch a machine are played.
    pub may_launch: bool,
    /// Why no machine can be interrupted; `None` if one can.
    pub no_interruption: Option<String>,
    /// How long to wait at the most until nothing is left of a machine.
    pub patience: Duration,
}

/// What a drill came to.
#[derive(Debug, Default)]
pub struct Outcome {
    pub scenarios: Vec<Played>,
    /// What an audit has found before the drill began. It is not counted against the drill.
    pub before: Vec<Violation>,
    /// What the audits could not look at, each with what it needs.
    pub unchecked: Vec<String>,
    /// What the drill has left, because it could not clean it up.
    pub left: Vec<String>,
    /// Why not every scenario was played.
    pub failure: Option<Failure>,
}

/// Something that an audit has found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    pub expectation: Expectation,
    /// The machine, runner or record that it is about.
    pub about: String,
    /// Lowercase, no full stop.
    pub what: String,
}

/// One scenario, as it was played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Played {
    pub scenario: Scenario,
    pub verdict: Verdict,
    /// The machine that was disturbed.
    pub machine: Option<InstanceId>,
    pub steps: Vec<Step>,
}

/// What a scenario has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every expectation was met.
    Passed,
    /// An expectation was not met.
    Failed,
    /// No expectation was missed, but one could not be seen to the end. Carries the reason.
    Incomplete(String),
    /// It was not played. Carries the reason.
    Skipped(String),
}

/// One expectation, and what was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub expectation: Expectation,
    pub is_met: bool,
    /// Lowercase, no full stop.
    pub seen: String,
    pub took: Duration,
    /// The longest time that meets the expectation. `None` if it has none of its own.
    pub limit: Option<Duration>,
}

impl Outcome {
    /// The expectations that were not met.
    pub fn unmet(&self) -> impl Iterator<Item = (&Played, &Step)> {
        self.scenarios.iter().flat_map(|played| {
            let unmet = played.steps.iter().filter(|step| !step.is_met);
            unmet.map(move |step| (played, step))
        })
    }

    /// The failure to report: what stopped the drill, an expectation that was not met, or that nothing
    /// was tested.
    pub fn failure(&self) -> Option<Failure> {
        if self.failure.is_some() {
            return self.failure.clone();
        }
        let failed = |message: String| Failure::new(FailureKind::NotRecovered, message);
        if let Some((played, step)) = self.unmet().next() {
            let (count, scenario) = (self.unmet().count(), played.scenario);
            let message =
                format!("expectations not met: {count}; the first: {scenario}: {}", step.seen);
            return Some(failed(message).hint(step.expectation.fix()));
        }
        if let Some(left) = self.left.first() {
            return Some(failed(format!("the drill has left something: {left}")).hint(
                "run ondeck refresh; what belongs to a run that begins with drill- ends by itself",
            ));
        }
        let is_played = |played: &Played| !matches!(played.verdict, Verdict::Skipped(_));
        let shows_nothing = !self.scenarios.iter().any(is_played);
        shows_nothing.then(|| {
            failed("no scenario could be played".to_owned())
                .hint("the report says why; keep an idle machine with --min-idle, or give --launch")
        })
    }
}

/// Plays the scenarios one after the other. Ends early after a signal or a failure of the drill's own
/// calls. In any case it cleans up: it releases its runs, and terminates machines that it has ended and
/// whose records are still live.
pub async fn carry_out(
    plane: &Plane,
    forge: &ForgeAccess<'_>,
    programs: &dyn Programs,
    options: &Options,
    stop: &StopSignal,
) -> Result<Outcome, Failure> {
    play::play(plane, forge, programs, options, stop).await
}
