//! Every deadline and period of the system, in one table.
//!
//! The table is the only place that knows a default. Flags, settings and documents are made
//! from it, or tested against it.

use std::time::Duration;

use crate::model::excerpt;

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct TimeSpec {
    /// The name as a flag, a setting and an input of the action.
    pub input: &'static str,
    /// What the number counts.
    pub unit: Unit,
    /// The default, in that unit.
    pub default: f64,
    /// Whether 0 makes sense: for a wait it does, for a period it does not.
    pub may_be_zero: bool,
    /// One sentence for the help.
    pub help: &'static str,
}

/// What a number of time counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
}

impl TimeSpec {
    /// Reads a number in this row's unit; decimals go down to the millisecond.
    pub fn parse(&self, text: &str) -> Result<Duration, String> {
        let number = text.trim();
        let given = excerpt::one_line(&number);
        let number: f64 =
            number.parse().map_err(|_| format!("not a number: {}", excerpt::quoted(text)))?;
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
}

macro_rules! times {
    (@zero) => { true };
    (@positive) => { false };
    ($($field:ident, $input:literal, $unit:ident, $default:literal, $zero:ident, $help:literal;)*) => {
        /// The spans in force.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Times {
            $(#[doc = $help] pub $field: Duration,)*
        }

        /// The table.
        pub const TIMES: &[TimeSpec] = &[
            $(TimeSpec {
                input: $input,
                unit: Unit::$unit,
                default: $default,
                may_be_zero: times!(@$zero),
                help: $help,
            },)*
        ];

        impl Times {
            /// The span of the row with this input name.
            pub fn get(&self, input: &str) -> Option<Duration> {
                match input {
                    $($input => Some(self.$field),)*
                    _ => None,
                }
            }

            /// Sets the span of the row with this input name; `false` if there is none.
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
                let mut times = Times { $($field: Duration::ZERO,)* };
                for row in TIMES {
                    times.set(row.input, row.duration(row.default).unwrap_or_default());
                }
                times
            }
        }
    };
}

times! {
    heartbeat_period, "heartbeat-period-sec", Seconds, 5.0, positive,
        "How often an agent says that it is alive; three periods without make it unhealthy";
    claim_registration_timeout, "claim-registration-timeout-sec", Seconds, 10.0, positive,
        "How long a claimed machine may take to register for the run";
    claim_timeout, "claim-timeout-sec", Seconds, 300.0, positive,
        "How long a machine may stay claimed";
    created_timeout, "created-timeout-sec", Seconds, 600.0, positive,
        "How long a machine may stay created";
    validation_timeout, "validation-timeout-sec", Seconds, 180.0, positive,
        "How long new machines may take to become ready";
    idle_time, "idle-time-sec", Seconds, 300.0, zero,
        "How long an idle machine waits in the pool; 0 keeps none";
    max_runtime, "max-runtime-min", Minutes, 30.0, positive,
        "How long a run may keep its machines";
    release_timeout, "release-timeout-sec", Seconds, 120.0, positive,
        "How long release waits for a machine to deregister and clean up";
    self_termination_grace, "self-termination-grace-sec", Seconds, 60.0, positive,
        "How far past its threshold a machine ends itself, and past which one without a record is swept";
    boot_deadline, "boot-deadline-sec", Seconds, 180.0, positive,
        "How long a machine without a record waits before it ends itself";
    registration_token_refresh, "registration-token-refresh-min", Minutes, 30.0, positive,
        "How old a registration token may get before refresh renews it; the local forge has none";
    registration_token_patience, "registration-token-patience-sec", Seconds, 60.0, zero,
        "How long provision waits for refresh to renew a registration token that has expired";
    agent_poll_waiting, "agent-poll-waiting-sec", Seconds, 0.25, positive,
        "How often an idle agent looks for a run";
    agent_poll_running, "agent-poll-running-sec", Seconds, 1.0, positive,
        "How often a working agent looks for its release";
    signal_poll, "signal-poll-sec", Seconds, 0.05, positive,
        "How often the control plane looks for signals that it waits for";
    ticket_hold, "ticket-hold-sec", Seconds, 30.0, positive,
        "How long a ticket stays hidden from others while one run looks at it";
    pickup_patience, "pickup-patience-sec", Seconds, 1.0, zero,
        "How long an empty pool is asked again while others hold tickets of it";
    retention, "retention-min", Minutes, 1440.0, zero,
        "How long records of terminated machines are kept";
}

impl Times {
    /// Times that contradict each other, in words.
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

    /// Past this age of its last heartbeat a machine counts as unhealthy.
    pub fn healthy_within(&self) -> Duration {
        self.heartbeat_period * 3
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
        assert_eq!(times.healthy_within(), secs(15));
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
