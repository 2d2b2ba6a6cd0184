//! The times as flags, made from core's table so that names, defaults and words exist once.
#![cfg(feature = "control")]

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use ondeck_core::model::times::{TIMES, TimeSpec, Unit};
use ondeck_core::modes::provision::TimeOverrides;

/// The times that a mode takes.
#[derive(Debug)]
pub(crate) struct TimeInputs<M> {
    /// Without a span: back to its default.
    given: Vec<(&'static TimeSpec, Option<Duration>)>,
    _mode: PhantomData<M>,
}

/// Which rows of the table a mode takes, and what giving one there means.
pub(crate) trait TimesOf {
    const HEADING: &'static str;
    fn takes(input: &str) -> bool;
}

/// Refresh takes all, and keeps them.
#[derive(Debug)]
pub(crate) struct ForRefresh;
/// Provision takes those that it applies itself.
#[derive(Debug)]
pub(crate) struct ForProvision;
/// Release likewise.
#[derive(Debug)]
pub(crate) struct ForRelease;

impl TimesOf for ForRefresh {
    const HEADING: &'static str = "Times (kept for everybody until given again)";
    fn takes(_: &str) -> bool {
        true
    }
}

impl TimesOf for ForProvision {
    const HEADING: &'static str = "Times (for this call; otherwise as refresh set them)";
    fn takes(input: &str) -> bool {
        const INPUTS: [&str; 8] = [
            "claim-registration-timeout-sec",
            "claim-timeout-sec",
            "created-timeout-sec",
            "validation-timeout-sec",
            "max-runtime-min",
            "idle-time-sec",
            "release-timeout-sec",
            "registration-token-patience-sec",
        ];
        INPUTS.contains(&input)
    }
}

impl TimesOf for ForRelease {
    const HEADING: &'static str = ForProvision::HEADING;
    fn takes(input: &str) -> bool {
        matches!(input, "idle-time-sec" | "release-timeout-sec")
    }
}

impl<M> TimeInputs<M> {
    /// For one call.
    pub(crate) fn overrides(&self) -> TimeOverrides {
        let given = self.given.iter().filter_map(|(row, span)| Some((row.input, (*span)?)));
        TimeOverrides(given.collect())
    }

    /// As settings.
    pub(crate) fn settings(&self) -> BTreeMap<String, String> {
        let text = |row: &TimeSpec, span: &Option<Duration>| {
            (row.input.to_owned(), span.map(|span| row.format(span)).unwrap_or_default())
        };
        self.given.iter().map(|(row, span)| text(row, span)).collect()
    }
}

impl<M: TimesOf> Args for TimeInputs<M> {
    fn augment_args(command: Command) -> Command {
        let rows = TIMES.iter().filter(|row| M::takes(row.input));
        rows.fold(command, |command, row| command.arg(argument(row).help_heading(M::HEADING)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn argument(row: &'static TimeSpec) -> Arg {
    let unit = match row.unit {
        Unit::Seconds => "SEC",
        Unit::Minutes => "MIN",
    };
    let env = format!("ONDECK_{}", row.input.to_uppercase().replace('-', "_"));
    Arg::new(row.input)
        .long(row.input)
        .value_name(unit)
        .env(env)
        .help(format!("{} [default: {}]", row.help, row.default))
        .allow_negative_numbers(true)
        .value_parser(move |text: &str| match text {
            "" => Ok(None),
            text => row.parse(text).map(Some),
        })
}

impl<M: TimesOf> FromArgMatches for TimeInputs<M> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let rows = TIMES.iter().filter(|row| M::takes(row.input));
        let given = rows
            .filter_map(|row| Some((row, *matches.get_one::<Option<Duration>>(row.input)?)))
            .collect();
        Ok(TimeInputs { given, _mode: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
