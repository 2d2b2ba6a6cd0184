//! What a run asks provision for, as the plan draws it and the auditor judges the answer by.

use std::time::Duration;

use ondeck_core::inputs::times::{TIMES, TimeOverrides, Times};
use ondeck_core::model::ids::{ResourceClass, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::reuse::Reuse;
use ondeck_core::modes::provision::{ProvisionOptions, SourcePolicy};

/// What one call of provision asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub count: u32,
    pub class: &'static str,
    pub usage: UsageClass,
    /// The allowed instance types; `None` allows what the provider recommends.
    pub types: Option<&'static str>,
    pub fallback: bool,
    pub source: SourcePolicy,
    /// What follows the run's id in the label of the machines.
    pub suffix: Option<&'static str>,
    /// Whether the machines may serve another run afterwards, or have served one before.
    pub reuse: Reuse,
    /// Times that hold for this call only, by input and in the unit of the input.
    pub times: Vec<(&'static str, &'static str)>,
}

/// The patterns of a request that names none, as the in-memory provider recommends them.
pub(crate) const DEFAULT_TYPES: &str = "c* m* r*";

impl Ask {
    /// A request for machines with default options.
    pub fn of(count: u32) -> Ask {
        Ask {
            count,
            class: "large",
            usage: UsageClass::OnDemand,
            types: None,
            fallback: false,
            source: SourcePolicy::Any,
            suffix: None,
            reuse: Reuse::Always,
            times: Vec::new(),
        }
    }

    /// Draws a request. Most requests of a history are alike, so that runs find machines that
    /// other runs have left.
    pub(super) fn drawn(count: u32, random: &mut fastrand::Rng) -> Ask {
        let rarely = |random: &mut fastrand::Rng| random.u8(0..5) == 0;
        let mut ask = Ask::of(count);
        if rarely(random) {
            ask.class = "xlarge";
        }
        if random.u8(0..3) == 0 {
            ask.usage = UsageClass::Spot;
            ask.fallback = random.bool();
        } else if rarely(random) {
            ask.fallback = true;
        }
        if rarely(random) {
            ask.types = Some(["m*", "c*", "r5.* m6i.*", "c6i.large"][random.usize(0..4)]);
        }
        if rarely(random) {
            ask.source = [SourcePolicy::New, SourcePolicy::Pool][random.usize(0..2)];
        }
        if random.bool() {
            return ask;
        }
        for (input, values) in [
            ("max-runtime-min", &["2", "4", "7"][..]),
            ("idle-time-sec", &["30", "150"]),
            ("claim-registration-timeout-sec", &["20", "45"]),
            ("release-timeout-sec", &["30", "50"]),
        ] {
            if rarely(random) {
                ask.times.push((input, values[random.usize(0..values.len())]));
            }
        }
        if random.u8(0..12) == 0 {
            let contradictory = [
                ("validation-timeout-sec", "300"),
                ("claim-timeout-sec", "100"),
                ("created-timeout-sec", "90"),
                ("claim-registration-timeout-sec", "0.25"),
                ("release-timeout-sec", "0.5"),
            ];
            ask.times.push(contradictory[random.usize(0..contradictory.len())]);
        }
        ask
    }

    /// Whether the times of this call contradict each other or those of the settings: a machine
    /// would expire while its run waits for it.
    pub(crate) fn is_contradictory(&self, settings: &Times) -> bool {
        let is_given = |input: &str| self.times.iter().any(|(given, _)| *given == input);
        contradict(&self.times().over(settings.clone()), is_given)
    }

    pub(crate) fn options(&self) -> ProvisionOptions {
        ProvisionOptions {
            count: self.count,
            class: ResourceClass::new(self.class).expect("a sound name"),
            usage: self.usage,
            types: self.types.map(|types| types.parse().expect("sound patterns")),
            capacity_fallback: self.fallback,
            label_suffix: self.suffix.map(|suffix| suffix.parse().expect("a sound suffix")),
            machine_source: self.source,
            reuse: self.reuse,
        }
    }

    /// The label of the machines that a run asks for.
    pub(crate) fn label(&self, run: &RunId) -> Label {
        Label::new(run.clone(), self.options().label_suffix)
    }

    pub(crate) fn times(&self) -> TimeOverrides {
        let span = |(input, text): &(&'static str, &'static str)| {
            let row = TIMES.iter().find(|row| row.input == *input).expect("a known input");
            (row.input, row.parse(text).expect("a sound time"))
        };
        TimeOverrides(self.times.iter().map(span).collect())
    }

    /// The time of this call, or else that of the settings.
    pub(crate) fn time(&self, input: &str, settings: &Times) -> Duration {
        self.times().over(settings.clone()).get(input).expect("a known input")
    }

    /// Whether an instance type is allowed.
    pub(crate) fn allows(&self, instance_type: &str) -> bool {
        let patterns = self.types.unwrap_or(DEFAULT_TYPES);
        patterns.split(' ').any(|pattern| matches(pattern, instance_type))
    }
}

/// Whether machines would expire while their run waits, be given up before they notice what is asked
/// of them, or look dead between two heartbeats, because of an input that is given. Settings that were
/// stored before do not count: the explored scenes begin with agents that hardly ever poll.
pub(crate) fn contradict(times: &Times, is_given: impl Fn(&str) -> bool) -> bool {
    const CREATED: &str = "created-timeout-sec";
    const VALIDATION: &str = "validation-timeout-sec";
    const CLAIM: &str = "claim-timeout-sec";
    const REGISTRATION: &str = "claim-registration-timeout-sec";
    const RELEASE: &str = "release-timeout-sec";
    const WAITING: &str = "agent-poll-waiting-sec";
    const RUNNING: &str = "agent-poll-running-sec";
    let needed = times.claim_registration_timeout + times.validation_timeout;
    let contradictions: [(bool, &[&str]); 6] = [
        (times.created_timeout <= times.validation_timeout, &[CREATED, VALIDATION]),
        (times.claim_timeout <= needed, &[CLAIM, REGISTRATION, VALIDATION]),
        (times.claim_registration_timeout <= times.agent_poll_waiting, &[REGISTRATION, WAITING]),
        (times.validation_timeout <= times.agent_poll_waiting, &[VALIDATION, WAITING]),
        (times.release_timeout <= times.agent_poll_running, &[RELEASE, RUNNING]),
        (times.heartbeat_period > Duration::from_secs(60), &["heartbeat-period-sec"]),
    ];
    contradictions.iter().any(|(found, inputs)| *found && inputs.iter().any(|it| is_given(it)))
}

/// Whether a pattern, in which `*` stands for any text, matches the whole text.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((literal, rest)) => text.strip_prefix(literal).is_some_and(|behind| {
            (0..=behind.len()).any(|at| behind.is_char_boundary(at) && matches(rest, &behind[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (types, instance_type, allowed) in [
            (None, "c6i.large", true),
            (None, "t3.large", false),
            (Some("m*"), "c6i.large", false),
            (Some("r5.* m6i.*"), "m6i.large", true),
            (Some("r5.* m6i.*"), "m6id.large", false),
            (Some("c6i.large"), "c6i.large", true),
            (Some("c6i.large"), "c6i.large2", false),
            (Some("*.large"), "c6i.large", true),
        ] {
            let ask = Ask { types, ..Ask::of(1) };
            assert_eq!(ask.allows(instance_type), allowed, "{types:?} of {instance_type}");
        }
    }

    #[test]
    fn a_time_of_the_call_replaces_that_of_the_settings() {
        let ask = Ask { times: vec![("max-runtime-min", "2")], ..Ask::of(1) };
        let settings = Times::default();
        assert_eq!(ask.time("max-runtime-min", &settings), Duration::from_secs(120));
        assert_eq!(ask.time("idle-time-sec", &settings), settings.idle_time);
    }

    #[test]
    fn only_what_is_given_contradicts() {
        let waiting = Duration::from_secs(500);
        let settings = Times { agent_poll_waiting: waiting, ..Times::default() };
        let given = |times| Ask { times, ..Ask::of(1) }.is_contradictory(&settings);
        assert!(!given(vec![]), "the settings were stored before");
        assert!(!given(vec![("max-runtime-min", "2")]));
        assert!(given(vec![("claim-registration-timeout-sec", "20")]));
    }
}
