//! Every deadline and period of the system: one row each, which also declares the input.

use std::time::Duration;

use super::{FileForm, Given, Input, InputTable, Mode};
use crate::model::excerpt;
use crate::model::failure::Failure;
use crate::model::heartbeat::LONGEST_PERIOD;

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

    /// The given times, and `times` for the rest, whether or not they contradict each other.
    pub fn over(&self, mut times: Times) -> Times {
        for (input, span) in &self.0 {
            times.set(input, *span);
        }
        times
    }

    /// The times in force for the call: those given for it, and the stored ones. Fails with the
    /// first contradiction that one of the given times is part of. One that is stored as a whole is
    /// logged: it was stored by an earlier version, and the call may still be useful.
    pub fn in_force(&self, stored: &Times) -> Result<Times, Failure> {
        let times = self.over(stored.clone());
        times.refuse_contradictions(|input| self.0.iter().any(|(given, _)| *given == input))?;
        for contradiction in times.contradictions() {
            tracing::warn!("{contradiction}");
        }
        Ok(times)
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
                .in_file("times", FileForm::Number)
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
        "How often an agent writes a heartbeat, half as often while its machine is idle; after three missed ones (at least 3 s) the machine counts as unhealthy";
    claim_registration_timeout, "claim-registration-timeout-sec", Seconds, "60", positive, provision,
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
        "How often an idle agent checks for a run if it cannot be woken";
    agent_poll_running, "agent-poll-running-sec", Seconds, "1", positive, refresh,
        "How often a working agent checks for its release if it cannot be woken";
    signal_poll, "signal-poll-sec", Seconds, "0.05", positive, refresh,
        "How often the control plane reads signals while it waits for them";
    ticket_hold, "ticket-hold-sec", Seconds, "30", positive, refresh,
        "How long a received ticket stays hidden from other runs";
    pickup_patience, "pickup-patience-sec", Seconds, "1", zero, refresh,
        "How long pickup retries an empty pool while other runs hold its tickets";
    ceiling_patience, "ceiling-patience-sec", Seconds, "0", zero, provision,
        "How long provision waits for room below max-machines before it fails";
    retention, "retention-min", Minutes, "1440", zero, refresh,
        "How long records of terminated machines are kept";
}

/// One time that must be longer than others together.
struct Order {
    longer: &'static str,
    shorter: &'static [&'static str],
    otherwise: &'static str,
}

const ORDERS: &[Order] = &[
    Order {
        longer: "created-timeout-sec",
        shorter: &["validation-timeout-sec"],
        otherwise: "new machines would expire while their run waits for them",
    },
    Order {
        longer: "claim-timeout-sec",
        shorter: &["claim-registration-timeout-sec", "validation-timeout-sec"],
        otherwise: "claimed machines would expire while their run waits for new ones",
    },
    Order {
        longer: "claim-registration-timeout-sec",
        shorter: &["agent-poll-waiting-sec"],
        otherwise: "a claim would be given up before the machine notices it",
    },
    Order {
        longer: "validation-timeout-sec",
        shorter: &["agent-poll-waiting-sec"],
        otherwise: "new machines would be given up before they notice their run",
    },
    Order {
        longer: "release-timeout-sec",
        shorter: &["agent-poll-running-sec"],
        otherwise: "machines would be expired before they notice their release",
    },
];

/// Times with which a machine would be lost, or a run could not be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The inputs that take part in it.
    pub inputs: Vec<&'static str>,
    /// Names the inputs and their values.
    problem: String,
    /// What to do about it, in terms of the flags.
    pub hint: String,
    /// An input, and a value with which it takes no part in this contradiction.
    pub remedy: (&'static str, u64),
}

impl std::fmt::Display for Contradiction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.problem)
    }
}

impl Times {
    /// Every contradiction among these times.
    pub fn contradictions(&self) -> Vec<Contradiction> {
        let orders = ORDERS.iter().filter_map(|order| self.contradiction(order));
        orders.chain(self.heartbeat_contradiction()).collect()
    }

    /// Fails with the first contradiction that one of the `given` inputs is part of.
    pub fn refuse_contradictions(&self, given: impl Fn(&str) -> bool) -> Result<(), Failure> {
        let mut found = self.contradictions().into_iter();
        match found.find(|one| one.inputs.iter().any(|input| given(input))) {
            Some(Contradiction { problem, hint, .. }) => Err(Failure::invalid(problem).hint(hint)),
            None => Ok(()),
        }
    }

    fn contradiction(&self, order: &Order) -> Option<Contradiction> {
        let Order { longer, shorter, otherwise } = order;
        let least: Duration = shorter.iter().filter_map(|input| self.get(input)).sum();
        if self.get(longer)? > least {
            return None;
        }
        let told = |input: &&str| format!("{input} ({})", self.written(input));
        let others = shorter.iter().map(&told).collect::<Vec<_>>().join(" plus ");
        let problem = format!("{} must be more than {others}, or {otherwise}", told(longer));
        let hint = format!(
            "give --{longer} more than {} seconds, or a lower --{}",
            least.as_secs_f64(),
            shorter.join(" or --"),
        );
        let inputs = std::iter::once(*longer).chain(shorter.iter().copied()).collect();
        let unit = if longer.ends_with("-min") { 60 } else { 1 };
        let remedy = (*longer, least.as_secs() / unit + 1);
        Some(Contradiction { inputs, problem, hint, remedy })
    }

    fn heartbeat_contradiction(&self) -> Option<Contradiction> {
        const INPUT: &str = "heartbeat-period-sec";
        (self.heartbeat_period > LONGEST_PERIOD).then(|| Contradiction {
            inputs: vec![INPUT],
            problem: format!(
                "{INPUT} ({}) must be at most {}, or healthy machines would count as unhealthy",
                self.written(INPUT),
                LONGEST_PERIOD.as_secs(),
            ),
            hint: format!("give --{INPUT} from 1 to {}", LONGEST_PERIOD.as_secs()),
            remedy: (INPUT, LONGEST_PERIOD.as_secs()),
        })
    }

    /// The value of an input, as it would be given.
    fn written(&self, input: &str) -> String {
        let spec = TIMES.iter().find(|spec| spec.input == input);
        spec.zip(self.get(input)).map(|(spec, span)| spec.format(span)).unwrap_or_default()
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

    fn times(given: &[(&str, &str)]) -> Times {
        let mut times = Times::default();
        for (input, text) in given {
            let spec = TIMES.iter().find(|spec| spec.input == *input).unwrap();
            times.set(input, spec.parse(text).unwrap());
        }
        times
    }

    #[test]
    fn a_contradiction_names_its_inputs_and_their_values() {
        assert_eq!(Times::default().contradictions(), []);
        let two = times(&[("validation-timeout-sec", "600")]).contradictions();
        let told: Vec<String> = two.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "created-timeout-sec (600) must be more than validation-timeout-sec (600), or new \
                 machines would expire while their run waits for them",
                "claim-timeout-sec (300) must be more than claim-registration-timeout-sec (60) plus \
                 validation-timeout-sec (600), or claimed machines would expire while their run \
                 waits for new ones",
            ]
        );
        let hint = "give --claim-timeout-sec more than 660 seconds, or a lower \
                    --claim-registration-timeout-sec or --validation-timeout-sec";
        assert_eq!(two[1].hint, hint);
    }

    #[test]
    fn every_order_is_refused_at_equality_and_admitted_above_it() {
        for order in ORDERS {
            let mut times = Times::default();
            let least: Duration = order.shorter.iter().filter_map(|input| times.get(input)).sum();
            let about_it = |times: &Times| {
                let found = times.contradictions().into_iter();
                found.filter(|one| one.inputs[0] == order.longer).count()
            };
            times.set(order.longer, least);
            assert!(about_it(&times) > 0, "{} is no longer than the others", order.longer);
            times.set(order.longer, least + Duration::from_millis(1));
            assert_eq!(about_it(&times), 0, "{} is longer", order.longer);
        }
        for (period, refused) in [("60", false), ("60.001", true), ("0.1", false)] {
            let found = times(&[("heartbeat-period-sec", period)]).contradictions();
            assert_eq!(!found.is_empty(), refused, "{period}: {found:?}");
        }
    }

    #[test]
    fn a_call_is_refused_only_for_what_it_gives() {
        let sound = Times::default();
        let stored = times(&[("created-timeout-sec", "100")]);
        let minute = Duration::from_secs(60);
        for (given, over, refused) in [
            ("created-timeout-sec", &sound, true),
            ("validation-timeout-sec", &sound, false),
            ("idle-time-sec", &stored, false),
            ("claim-timeout-sec", &stored, true),
        ] {
            let result = TimeOverrides(vec![(given, minute)]).in_force(over);
            assert_eq!(result.is_err(), refused, "{given}: {result:?}");
        }
        let failure = TimeOverrides(vec![("created-timeout-sec", minute)]).in_force(&sound);
        assert_eq!(failure.unwrap_err().kind.exit_code(), 2);
        assert_eq!(TimeOverrides::default().in_force(&stored), Ok(stored));
    }

    #[test]
    fn the_documented_defaults_hold() {
        let times = Times::default();
        let secs = Duration::from_secs;
        assert_eq!(times.heartbeat_period, secs(5));
        assert_eq!(times.claim_registration_timeout, secs(60));
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
