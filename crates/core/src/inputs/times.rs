//! Every deadline and period of the system: one row each, which also declares the input.

use std::time::Duration;

use super::{Given, Input, InputTable, Mode};
use crate::model::excerpt;

/// How the value of a time is read and written.
#[derive(Debug, Clone, Copy)]
pub struct TimeSpec {
    /// The name of the input.
    pub input: &'static str,
    /// What the number counts.
    pub unit: Unit,
    /// Whether 0 makes sense: for a wait it does, for a period it does not.
    pub may_be_zero: bool,
}

/// What a number of time counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    Minutes,
}

/// Times that hold for one call, by the name of the input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimeOverrides(pub Vec<(&'static str, Duration)>);

impl TimeSpec {
    /// Reads a number in this row's unit; decimals go down to the millisecond.
    pub fn parse(&self, text: &str) -> Result<Duration, String> {
        let number = text.trim();
        let given = excerpt::one_line(&number);
        let number: f64 =
            number.parse().map_err(|_| format!("is not a number: {}", excerpt::quoted(text)))?;
        let span =
            self.duration(number).ok_or_else(|| format!("must be from 0 to 30 days: {given}"))?;
        if span.is_zero() && !self.may_be_zero {
            return Err(format!("must be more than 0: {given}"));
        }
        Ok(span)
    }

    /// Writes a span in this row's unit, in a form that [`TimeSpec::parse`] reads.
    pub fn format(&self, span: Duration) -> String {
        let number = span.as_secs_f64() / self.unit.seconds();
        // Nine decimals hold a millisecond exactly, also as a fraction of a minute.
        let text = format!("{number:.9}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }

    fn duration(&self, number: f64) -> Option<Duration> {
        const LONGEST: f64 = 30.0 * 24.0 * 3600.0;
        let seconds = number * self.unit.seconds();
        let millis = (seconds * 1000.0).round();
        ((0.0..=LONGEST).contains(&seconds)).then(|| Duration::from_millis(millis as u64))
    }
}

impl Unit {
    fn seconds(self) -> f64 {
        match self {
            Unit::Seconds => 1.0,
            Unit::Minutes => 60.0,
        }
    }

    const fn placeholder(self) -> &'static str {
        match self {
            Unit::Seconds => "SEC",
            Unit::Minutes => "MIN",
        }
    }
}

impl TimeOverrides {
    /// The times among the given inputs. An empty text counts as not given. Fails with the name of
    /// the input and what is wrong with it.
    pub fn from_inputs(given: &Given) -> Result<TimeOverrides, String> {
        let mut overrides = Vec::new();
        for spec in TIMES {
            let row = INPUTS.iter().find(|row| row.name == spec.input);
            let text = row.and_then(|row| given.text(row)).filter(|text| !text.is_empty());
            if let Some(text) = text {
                let invalid = |problem| format!("{} {problem}", spec.input);
                overrides.push((spec.input, spec.parse(text).map_err(invalid)?));
            }
        }
        Ok(TimeOverrides(overrides))
    }

    /// The times in force for the call.
    pub fn over(&self, mut times: Times) -> Times {
        for (input, span) in &self.0 {
            times.set(input, *span);
        }
        times
    }
}

macro_rules! times {
    (@zero) => { true };
    (@positive) => { false };
    (@refresh) => { &[Mode::Refresh] };
    (@provision) => { &[Mode::Refresh, Mode::Provision] };
    (@release) => { &[Mode::Refresh, Mode::Provision, Mode::Release] };
    (@spec $input:literal, $unit:ident, $zero:ident) => {
        TimeSpec { input: $input, unit: Unit::$unit, may_be_zero: times!(@$zero) }
    };
    ($($field:ident, $input:literal, $unit:ident, $default:literal, $zero:ident, $modes:ident, $help:literal;)*) => {
        /// The spans in force.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Times {
            $(#[doc = $help] pub $field: Duration,)*
        }

        /// How each time is read and written.
        pub const TIMES: &[TimeSpec] = &[$(times!(@spec $input, $unit, $zero),)*];

        /// The rows of the times.
        pub const INPUTS: &[Input] = &[
            $(Input::stored($input, Unit::$unit.placeholder(), $help)
                .or($default)
                .of_modes(times!(@$modes))
                .checked(|text| times!(@spec $input, $unit, $zero).parse(text).map(drop)),)*
        ];

        impl Times {
            /// The span of the input with this name.
            pub fn get(&self, input: &str) -> Option<Duration> {
                match input {
                    $($input => Some(self.$field),)*
                    _ => None,
                }
            }

            /// Sets the span of the input with this name. Returns whether there is one.
            pub fn set(&mut self, input: &str, span: Duration) -> bool {
                match input {
                    $($input => self.$field = span,)*
                    _ => return false,
                }
                true
            }
        }

        impl Default for Times {
            fn default() -> Times {
                let parse = |spec: TimeSpec, text| {
                    spec.parse(text).expect("a row's parser accepts the row's default")
                };
                Times { $($field: parse(times!(@spec $input, $unit, $zero), $default),)* }
            }
        }
    };
}

/// The table of the times.
pub const TABLE: InputTable = InputTable { heading: "Times", rows: INPUTS };

times! {
    heartbeat_period, "heartbeat-period-sec", Seconds, "5", positive, refresh,
        "How often an agent writes a heartbeat; after three missed ones, and 3 s, its machine counts as unhealthy";
    claim_registration_timeout, "claim-registration-timeout-sec", Seconds, "10", positive, provision,
        "How long a claimed machine may take to register its runner";
    claim_timeout, "claim-timeout-sec", Seconds, "300", positive, provision,
        "How long a machine may stay claimed";
    created_timeout, "created-timeout-sec", Seconds, "600", positive, provision,
        "How long a machine may stay created";
    validation_timeout, "validation-timeout-sec", Seconds, "180", positive, provision,
        "How long new machines may take to become ready";
    idle_time, "idle-time-sec", Seconds, "300", zero, release,
        "How long an idle machine stays in the pool; 0 keeps none";
    max_runtime, "max-runtime-min", Minutes, "30", positive, provision,
        "How long a run may keep its machines";
    release_timeout, "release-timeout-sec", Seconds, "120", positive, release,
        "How long release waits for a machine to deregister and clean up";
    self_termination_grace, "self-termination-grace-sec", Seconds, "60", positive, refresh,
        "How long past its threshold a machine terminates itself, and refresh terminates an orphan";
    boot_deadline, "boot-deadline-sec", Seconds, "180", positive, refresh,
        "How long a machine waits for its record before it terminates itself";
    registration_token_refresh, "registration-token-refresh-min", Minutes, "30", positive, refresh,
        "Age at which refresh renews the registration token; unused by the local forge";
    registration_token_patience, "registration-token-patience-sec", Seconds, "60", zero, provision,
        "How long provision waits for refresh to renew an expired registration token";
    agent_poll_waiting, "agent-poll-waiting-sec", Seconds, "0.25", positive, refresh,
        "How often an idle agent checks for a run";
    agent_poll_running, "agent-poll-running-sec", Seconds, "1", positive, refresh,
        "How often a working agent checks for its release";
    signal_poll, "signal-poll-sec", Seconds, "0.05", positive, refresh,
        "How often the control plane reads signals while it waits for them";
    ticket_hold, "ticket-hold-sec", Seconds, "30", positive, refresh,
        "How long a received ticket stays hidden from other runs";
    pickup_patience, "pickup-patience-sec", Seconds, "1", zero, refresh,
        "How long pickup retries an empty pool while other runs hold its tickets";
    retention, "retention-min", Minutes, "1440", zero, refresh,
        "How long records of terminated machines are kept";
}

impl Times {
    /// One sentence for each pair of times that contradict each other.
    pub fn contradictions(&self) -> Vec<String> {
        let longer = [
            (
                self.created_timeout,
                "created-timeout-sec",
                self.validation_timeout,
                "validation-timeout-sec",
            ),
            (
                self.claim_timeout,
                "claim-timeout-sec",
                self.claim_registration_timeout + self.validation_timeout,
                "claim-registration-timeout-sec and validation-timeout-sec together",
            ),
        ];
        longer
            .into_iter()
            .filter(|(state, _, wait, _)| state <= wait)
            .map(|(_, state, _, wait)| {
                format!("{state} should be more than {wait}, or machines expire while a run waits")
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_reads_back_what_it_writes() {
        let mut times = Times::default();
        for row in TIMES {
            assert_eq!(row.parse("0").is_ok(), row.may_be_zero, "{}", row.input);
            for text in ["0.001", "0.25", "1", "17", "90.5"] {
                let span = row.parse(text).unwrap();
                assert!(times.set(row.input, span));
                assert_eq!(times.get(row.input), Some(span));
                assert_eq!(row.parse(&row.format(span)).unwrap(), span, "{} {text}", row.input);
            }
            for bad in ["", "-1", "soon", "NaN", "inf", "1e300"] {
                assert!(row.parse(bad).is_err(), "{} {bad}", row.input);
            }
        }
        assert!(!times.set("no-such-time", Duration::ZERO));
    }

    #[test]
    fn contradictions_are_named() {
        assert_eq!(Times::default().contradictions(), Vec::<String>::new());
        let times = Times { validation_timeout: Duration::from_secs(600), ..Times::default() };
        let found = times.contradictions();
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("created-timeout-sec should be more than validation"));
    }

    #[test]
    fn the_documented_defaults_hold() {
        let times = Times::default();
        let secs = Duration::from_secs;
        assert_eq!(times.heartbeat_period, secs(5));
        assert_eq!(times.claim_registration_timeout, secs(10));
        assert_eq!(times.claim_timeout, secs(300));
        assert_eq!(times.created_timeout, secs(600));
        assert_eq!(times.validation_timeout, secs(180));
        assert_eq!(times.idle_time, secs(300));
        assert_eq!(times.max_runtime, secs(1800));
        assert_eq!(times.release_timeout, secs(120));
        assert_eq!(times.self_termination_grace, secs(60));
        assert_eq!(times.registration_token_refresh, secs(1800));
        assert_eq!(times.agent_poll_waiting, Duration::from_millis(250));
        assert_eq!(times.agent_poll_running, secs(1));
    }
}
