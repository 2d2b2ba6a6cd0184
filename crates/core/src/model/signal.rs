//! The signals and heartbeats of agents, and how the control plane judges them.

use std::fmt;
use std::time::Duration;

use crate::model::heartbeat::Heartbeat;
use crate::model::ids::RunId;
use crate::model::label::{Label, LabelSuffix};
use crate::model::machine_label::{MachineLabel, RequestedLabel};
use crate::model::readiness::{NOTHING_SAID, Readiness, ReadinessNote};
use crate::model::record::Record;
use crate::model::timestamp::Timestamp;

/// The signals that an agent can send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signal {
    /// The pre-runner script has succeeded and the runner is installed.
    Prepared,
    /// The machine cannot be prepared, or must not be used any more.
    PrepareFailed,
    /// The runner is registered under the run's label.
    Registered,
    /// The runner could not be registered.
    RegisterFailed,
    /// The runner is deregistered and the machine clean.
    Deregistered,
    /// The runner could not be deregistered, or the machine not cleaned.
    DeregisterFailed,
}

impl Signal {
    pub const ALL: [Signal; 6] = [
        Signal::Prepared,
        Signal::PrepareFailed,
        Signal::Registered,
        Signal::RegisterFailed,
        Signal::Deregistered,
        Signal::DeregisterFailed,
    ];

    /// The text that the store keeps.
    pub fn as_str(self) -> &'static str {
        match self {
            Signal::Prepared => "UD_OK",
            Signal::PrepareFailed => "UD_FAILED",
            Signal::Registered => "UD_REG_OK",
            Signal::RegisterFailed => "UD_REG_FAILED",
            Signal::Deregistered => "UD_REMOVE_REG_OK",
            Signal::DeregisterFailed => "UD_REMOVE_REG_FAILED",
        }
    }

    /// Parses the text that the store keeps.
    pub fn parse(word: &str) -> Option<Signal> {
        Signal::ALL.into_iter().find(|signal| signal.as_str() == word)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The detail of a [`Signal::Registered`] that an agent sends when its machine was given back while
/// its runner had a job of the run.
pub const HELD: &str = "has a job";

/// What the detail of a [`Signal::DeregisterFailed`] begins with if the agent has left its run and the
/// machine serves no other, because the run asked for a machine of its own. A control plane that does
/// not know it expires the machine, as after any failure to leave.
const USED_UP: &str = "reuse is never";

/// The detail of a [`Signal::DeregisterFailed`] of an agent that has left its run, with this account of
/// it, and serves no other.
pub fn used_up(account: &str) -> String {
    const BETWEEN: &str = "; ";
    let account: Vec<char> = output_tail(account).chars().collect();
    let room = LONGEST_DETAIL - USED_UP.len() - BETWEEN.len();
    match &account[account.len().saturating_sub(room)..] {
        [] => USED_UP.to_owned(),
        end => format!("{USED_UP}{BETWEEN}{}", end.iter().collect::<String>()),
    }
}

/// Why an interrupted machine is not used any more.
pub const INTERRUPTED: &str = "its provider takes it away";

/// A signal with its context. The store keeps the latest one of each instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub signal: Signal,
    /// The run that the signal is about.
    pub run: Option<RunId>,
    /// Of the label that the signal is about; `None` if that is the run's id.
    pub suffix: Option<LabelSuffix>,
    /// The reason of a failure, or the account of a finished run.
    pub detail: String,
    /// When the agent sent it, by the agent's clock.
    pub at: Timestamp,
    /// Of [`Signal::Deregistered`], the generation of the idle state in which the machine is free;
    /// `None` if the agent does not know it.
    pub generation: Option<u32>,
    /// Of [`Signal::Registered`], the label of the machine that the runner is registered with; `None` if
    /// that is the label of the run.
    pub machine_label: Option<MachineLabel>,
}

impl Report {
    /// What stores keep of the labels.
    pub fn stored_label(&self) -> String {
        self.registered_with().stored(self.run.as_ref(), self.suffix.as_ref())
    }

    /// What the runner is registered with, as a record names it.
    pub fn registered_with(&self) -> RequestedLabel {
        self.machine_label.clone().map(RequestedLabel::Named).unwrap_or_default()
    }

    /// Reads what [`Report::stored_label`] wrote about this run.
    pub fn read_label(
        run: Option<&RunId>,
        stored: &str,
    ) -> (Option<LabelSuffix>, Option<MachineLabel>) {
        let (suffix, registered) = RequestedLabel::read(run, stored);
        (suffix, registered.named().cloned())
    }

    /// Whether this report says that the machine is free in this generation of its idle state. An
    /// agent that names no generation is believed if the report is about `run`, which the machine
    /// has just left; `None` stands for any run.
    pub fn is_free_in(&self, generation: u32, run: Option<&RunId>) -> bool {
        let about_run = run.is_none_or(|run| self.run.as_ref() == Some(run));
        let answers = self.generation.map_or(about_run, |answered| answered == generation);
        self.signal == Signal::Deregistered && answers
    }

    /// The account of `run` if this report says that the agent has left it and serves no other.
    pub fn used_up_by(&self, run: &RunId) -> Option<&str> {
        let about_run = self.run.as_ref() == Some(run);
        let left = self.signal == Signal::DeregisterFailed && about_run;
        let account = self.detail.strip_prefix(USED_UP).filter(|_| left)?;
        Some(account.trim_start_matches([';', ' ']))
    }

    /// What the signal is about; `None` if that is no run.
    pub fn label(&self) -> Option<Label> {
        Some(Label::new(self.run.clone()?, self.suffix.clone()))
    }

    /// The reason if this report means that the machine must not be used any more.
    pub fn why_unusable(&self) -> Option<String> {
        let failed = matches!(self.signal, Signal::PrepareFailed | Signal::DeregisterFailed);
        failed.then(|| self.words())
    }

    /// The reason if this report means that the machine cannot serve under `label`.
    pub fn failure_for(&self, label: &Label) -> Option<String> {
        let failed = self.says(Signal::RegisterFailed, label);
        self.why_unusable().or_else(|| failed.then(|| self.words()))
    }

    fn words(&self) -> String {
        match self.detail.as_str() {
            "" => format!("it signalled {}", self.signal),
            detail => format!("it signalled {}: {detail}", self.signal),
        }
    }

    /// Whether the agent keeps `run` although its record no longer names it, because its runner has
    /// a job of the run.
    pub fn is_held_for(&self, run: &RunId) -> bool {
        let about_run = self.run.as_ref() == Some(run);
        self.signal == Signal::Registered && about_run && self.detail == HELD
    }

    /// Whether this report is `signal` about `label`. One about another label of the same run is
    /// not.
    pub fn says(&self, signal: Signal, label: &Label) -> bool {
        let about_run = self.run.as_ref() == Some(&label.run);
        self.signal == signal && about_run && self.suffix == label.suffix
    }
}

/// How many characters the detail of a report may have.
const LONGEST_DETAIL: usize = 500;

/// The end of a program's output, as one line of at most 500 characters. Fits the detail of a
/// report.
pub fn output_tail(said: &str) -> String {
    // Progress displays return to the beginning of their line by a carriage return.
    let lines = said.split(['\r', '\n']).map(str::trim).filter(|line| !line.is_empty());
    let joined = lines.collect::<Vec<_>>().join(" | ");
    let seen: Vec<char> = joined.chars().filter(|c| !c.is_control()).collect();
    seen[seen.len().saturating_sub(LONGEST_DETAIL)..].iter().collect()
}

/// What one agent has written, read together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentStatus {
    pub heartbeat: Option<Heartbeat>,
    pub report: Option<Report>,
    /// What it said about its registration while it was idle.
    pub readiness: Option<ReadinessNote>,
}

impl AgentStatus {
    /// Whether the provider has announced that it will take the machine away. The agent takes no
    /// further job then.
    pub fn is_interrupted(&self) -> bool {
        self.heartbeat.is_some_and(|beat| beat.interrupted)
    }

    /// Whether the machine can serve a run in this generation of its idle state without registering.
    pub fn is_ready_in(&self, generation: u32, now: Timestamp) -> bool {
        let registration = self.readiness.as_ref().and_then(|it| it.registration(generation));
        registration.is_some() && self.pulse(now) == Pulse::Healthy
    }

    /// The label of its own that the machine serves its run under, or is about to, as far as it is known.
    pub fn machine_label(&self, record: &Record) -> Option<MachineLabel> {
        match &record.requested {
            RequestedLabel::OfRun => None,
            RequestedLabel::Named(label) => Some(label.clone()),
            RequestedLabel::OfMachine => {
                let report = self.report.as_ref().filter(|report| report.run == record.run);
                report.and_then(|report| report.machine_label.clone())
            }
        }
    }

    /// Since when and why the idle machine cannot serve a run without registering, if its record is in this
    /// generation since `updated`; `None` if it can, or if it is not known to be alive.
    pub fn why_not_ready(
        &self,
        (generation, updated): (u32, Timestamp),
        now: Timestamp,
    ) -> Option<(Timestamp, &str)> {
        if self.pulse(now) != Pulse::Healthy || self.is_ready_in(generation, now) {
            return None;
        }
        match self.readiness.as_ref().map(|note| &note.readiness) {
            Some(Readiness::NotReady { since, why }) => Some((*since, why)),
            Some(Readiness::Ready(_)) | None => Some((updated, NOTHING_SAID)),
        }
    }

    /// Judges the heartbeat by the period that it announces.
    pub fn pulse(&self, now: Timestamp) -> Pulse {
        match &self.heartbeat {
            None => Pulse::Never,
            Some(beat) if beat.is_healthy(now) => Pulse::Healthy,
            Some(beat) => Pulse::Stale(now.distance(beat.at)),
        }
    }

    /// Says what is wrong with a heartbeat that is not healthy. One of the past may be that of a dead
    /// agent or of an agent whose clock is behind; the two cannot be told apart.
    pub fn why_unhealthy(&self, now: Timestamp) -> String {
        match &self.heartbeat {
            None => "it has never sent a heartbeat".to_owned(),
            Some(beat) => {
                let span = now.distance(beat.at).as_secs_f64();
                let (why, age) = match beat.at > now {
                    true => ("the clocks differ", "ahead of this computer's clock"),
                    false => ("its heartbeat stopped, or the clocks differ", "old"),
                };
                format!("{why}: its last heartbeat is {span:.1} s {age}")
            }
        }
    }
}

impl fmt::Display for AgentStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.report {
            None => f.write_str("no signal")?,
            Some(report) => write!(f, "last signal {}", report.signal)?,
        }
        match (self.report.as_ref().and_then(Report::label), &self.heartbeat) {
            (Some(label), _) => write!(f, " for run {label}"),
            (None, None) => f.write_str(", no heartbeat"),
            (None, Some(_)) => Ok(()),
        }
    }
}

/// The judgement of a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulse {
    /// No heartbeat has been received.
    Never,
    /// The last heartbeat is recent.
    Healthy,
    /// The last heartbeat is this far from now.
    Stale(Duration),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_far_from_now_is_put_down_to_a_clock() {
        let at = |millis: u64| Timestamp::from_millis(millis);
        let why = |beat: u64| {
            let beat = Heartbeat::new(at(beat), Duration::from_secs(5));
            AgentStatus { readiness: None, heartbeat: Some(beat), report: None }
                .why_unhealthy(at(100_000))
        };
        assert_eq!(
            why(70_000),
            "its heartbeat stopped, or the clocks differ: its last heartbeat is 30.0 s old"
        );
        assert_eq!(
            why(130_000),
            "the clocks differ: its last heartbeat is 30.0 s ahead of this computer's clock"
        );
        let never = AgentStatus::default().why_unhealthy(at(0));
        assert_eq!(never, "it has never sent a heartbeat");
    }

    #[test]
    fn the_account_of_a_machine_that_is_used_up_survives_the_limit_of_a_detail() {
        let run = RunId::new("7").unwrap();
        let long = "2 jobs, 8.0 s busy; ".repeat(60);
        for (account, read) in [("", ""), ("2 jobs", "2 jobs"), (&long, &long[long.len() - 485..])]
        {
            let report = Report {
                machine_label: None,
                signal: Signal::DeregisterFailed,
                run: Some(run.clone()),
                suffix: None,
                detail: output_tail(&used_up(account)),
                at: Timestamp::from_millis(0),
                generation: None,
            };
            assert_eq!(report.used_up_by(&run), Some(read.trim()), "{account}");
            assert_eq!(report.used_up_by(&RunId::new("8").unwrap()), None);
            let other = Report { signal: Signal::Deregistered, ..report.clone() };
            assert_eq!(other.used_up_by(&run), None);
            let failed = Report { detail: "the machine is not clean".to_owned(), ..report };
            assert_eq!(failed.used_up_by(&run), None);
        }
    }

    #[test]
    fn pulse_counts_from_both_sides_of_now() {
        let now = Timestamp::from_millis(100_000);
        let pulse = |beat: u64| {
            let beat = Heartbeat::new(Timestamp::from_millis(beat), Duration::from_secs(5));
            AgentStatus { readiness: None, heartbeat: Some(beat), report: None }.pulse(now)
        };
        assert_eq!(AgentStatus::default().pulse(now), Pulse::Never);
        assert_eq!(pulse(100_000), Pulse::Healthy, "an age of exactly zero");
        assert_eq!(pulse(85_000), Pulse::Healthy);
        assert_eq!(pulse(84_999), Pulse::Stale(Duration::from_millis(15_001)));
        assert_eq!(pulse(115_000), Pulse::Healthy);
        assert_eq!(pulse(900_000), Pulse::Stale(Duration::from_secs(800)), "far in the future");
    }

    #[test]
    fn last_words_are_one_bounded_line_and_end_with_the_last() {
        assert_eq!(output_tail("\n  one\r\n\n two \n"), "one | two");
        assert_eq!(
            output_tail("50%\r::error::99%\r\n\u{1b}[31mred\0"),
            "50% | ::error::99% | [31mred"
        );
        let long = output_tail(&format!("{}end", "é".repeat(600)));
        assert_eq!(long.chars().count(), 500);
        assert!(long.ends_with("éend"));
    }

    #[test]
    fn only_what_concerns_the_run_fails_it() {
        let run = RunId::new("7").unwrap();
        let other = RunId::new("8").unwrap();
        let at = Timestamp::from_millis(0);
        let says = |signal, run: Option<&RunId>| Report {
            machine_label: None,
            signal,
            run: run.cloned(),
            suffix: None,
            detail: "token expired".into(),
            at,
            generation: None,
        };
        let (label, large) = (Label::from(&run), Label::new(run.clone(), "large".parse().ok()));
        let failure = says(Signal::RegisterFailed, Some(&run)).failure_for(&label).unwrap();
        assert_eq!(failure, "it signalled UD_REG_FAILED: token expired");
        assert_eq!(says(Signal::RegisterFailed, Some(&other)).failure_for(&label), None);
        assert_eq!(says(Signal::RegisterFailed, Some(&run)).failure_for(&large), None);
        assert!(says(Signal::PrepareFailed, None).failure_for(&label).is_some());
        assert!(!says(Signal::Registered, Some(&other)).says(Signal::Registered, &label));
        let registered = says(Signal::Registered, Some(&run));
        assert!(!registered.says(Signal::Registered, &large), "an agent without labels");
        let under_suffix = Report { suffix: large.suffix.clone(), ..registered };
        assert!(under_suffix.says(Signal::Registered, &large));
        assert!(!under_suffix.says(Signal::Registered, &label));
    }

    #[test]
    fn a_machine_is_free_in_the_generation_that_its_agent_names() {
        let (run, other) = (RunId::new("7").unwrap(), RunId::new("8").unwrap());
        let says = |signal, run: Option<&RunId>, generation| Report {
            machine_label: None,
            signal,
            run: run.cloned(),
            suffix: None,
            detail: String::new(),
            at: Timestamp::from_millis(0),
            generation,
        };
        for (of, named, free_for_run, free) in [
            (Some(&run), Some(3), true, true),
            (None, Some(3), true, true),
            (Some(&other), Some(3), true, true),
            (Some(&run), Some(2), false, false),
            (Some(&run), Some(4), false, false),
            (Some(&run), None, true, true),
            (Some(&other), None, false, true),
            (None, None, false, true),
        ] {
            let report = says(Signal::Deregistered, of, named);
            assert_eq!(report.is_free_in(3, Some(&run)), free_for_run, "{report:?}");
            assert_eq!(report.is_free_in(3, None), free, "{report:?}");
        }
        for signal in Signal::ALL.into_iter().filter(|signal| *signal != Signal::Deregistered) {
            assert!(!says(signal, Some(&run), Some(3)).is_free_in(3, None), "{signal}");
        }
    }
}
