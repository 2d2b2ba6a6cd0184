//! The inputs of `ondeck simulate`.

use std::time::Duration;

use ondeck_core::inputs::{Input, InputTable, Mode};
use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::settings::MinIdle;

const OF: &[Mode] = &[Mode::Simulate];

/// The most settings of one kind.
const MOST_VALUES: usize = 20;

pub(crate) const HISTORY: Input =
    Input::call("history", "FILE", "CSV file with the runs: start,machines,minutes[,class]", OF);
pub(crate) const GENERATE: Input = Input::call(
    "generate",
    "SEED",
    "In place of a file: a week of runs that follow from this number",
    OF,
)
.conflicting(&["history"])
.checked(|text| text.parse::<u64>().map(drop).map_err(|error| error.to_string()));
pub(crate) const FROM_GITHUB: Input = Input::switch(
    "from-github",
    "In place of a file: the runs of --repository since --since, as GitHub's API has them",
    OF,
)
.conflicting(&["history", "generate"]);
pub(crate) const PRINT_HISTORY: Input =
    Input::switch("print-history", "Print the runs as CSV, and simulate nothing", OF)
        .conflicting(&["json", "plot"]);
pub(crate) const IDLE_TIMES: Input =
    Input::call("idle-times-min", "MIN ...", "The idle times to try, in minutes", OF)
        .or("5 15 30 60")
        .checked(|text| idle_times(text).map(drop));
pub(crate) const MINIMUMS: Input = Input::call(
    "min-idle-counts",
    "COUNT ...",
    "The minimums to try: idle machines of each class of the history",
    OF,
)
.or("0 1 2")
.checked(|text| minimums(text).map(drop));
pub(crate) const WINDOW: Input = Input::call(
    "min-idle-window",
    "WINDOW",
    "When the minimum holds, as in min-idle: \"Mon-Fri 08:00-18:00 Europe/Berlin\"",
    OF,
)
.or_described("always")
.checked(window);
pub(crate) const USAGE_CLASSES: Input =
    Input::call("usage-classes", "CLASS ...", "The purchase options to try: on-demand, spot", OF)
        .or("on-demand spot")
        .checked(|text| usage_classes(text).map(drop));
pub(crate) const BOOT: Input = Input::call(
    "boot-sec",
    "SEC",
    "How long a new machine takes until its runner is registered; at most 150",
    OF,
)
.or("45")
.checked(|text| seconds(text, 150.0).map(drop));
pub(crate) const REGISTRATION: Input = Input::call(
    "registration-sec",
    "SEC",
    "How long an idle machine takes to register its runner; at most 15",
    OF,
)
.or("5")
.checked(|text| seconds(text, 15.0).map(drop));
pub(crate) const REFRESH_EVERY: Input =
    Input::call("refresh-every-min", "MIN", "Time between two refreshes", OF)
        .or("5")
        .checked(|text| refresh_every(text).map(drop));
pub(crate) const INTERRUPTIONS: Input = Input::call(
    "spot-interruptions",
    "COUNT",
    "How many spot machines are interrupted in a thousand hours of one; their runs begin again",
    OF,
)
.or("0")
.checked(|text| number(text, 10_000).map(drop));
pub(crate) const AIM: Input = Input::call(
    "aim-percent",
    "PERCENT",
    "How much of the waiting that the best settings spare the recommended ones must spare",
    OF,
)
.or("80")
.checked(|text| number(text, 100).map(drop));

pub(crate) const SIMULATE: InputTable = InputTable {
    heading: "",
    rows: &[
        HISTORY,
        GENERATE,
        FROM_GITHUB,
        PRINT_HISTORY,
        IDLE_TIMES,
        MINIMUMS,
        WINDOW,
        USAGE_CLASSES,
        BOOT,
        REGISTRATION,
        REFRESH_EVERY,
        INTERRUPTIONS,
        AIM,
    ],
};

/// The words of a list, which blanks or commas separate. Fails if there are none, too many, or one
/// twice.
fn words(text: &str) -> Result<Vec<&str>, String> {
    let words: Vec<&str> = text.split([' ', ',', '\t', '\n']).filter(|it| !it.is_empty()).collect();
    let twice = words.iter().enumerate().find(|(n, word)| words[..*n].contains(word));
    match twice {
        _ if words.is_empty() => Err("names nothing".to_owned()),
        _ if words.len() > MOST_VALUES => {
            Err(format!("names more than {MOST_VALUES}: {}", words.len()))
        }
        Some((_, word)) => Err(format!("names one twice: {}", quoted(word))),
        None => Ok(words),
    }
}

pub(crate) fn idle_times(text: &str) -> Result<Vec<Duration>, String> {
    const LONGEST: f64 = 7.0 * 24.0 * 60.0;
    let time = |word: &str| {
        let minutes = word.parse::<f64>().ok().filter(|it| (0.0..=LONGEST).contains(it));
        let wrong = || format!("is no number of minutes from 0 to {LONGEST}: {}", quoted(word));
        minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0)).ok_or_else(wrong)
    };
    words(text)?.into_iter().map(time).collect()
}

pub(crate) fn minimums(text: &str) -> Result<Vec<u32>, String> {
    words(text)?.into_iter().map(|word| number(word, 1_000)).collect()
}

pub(crate) fn usage_classes(text: &str) -> Result<Vec<UsageClass>, String> {
    let class = |word: &str| word.parse::<UsageClass>().map_err(|error| error.to_string());
    words(text)?.into_iter().map(class).collect()
}

fn window(text: &str) -> Result<(), String> {
    if text.contains(['=', ';', '\n']) {
        return Err(format!("is more than a window: {}", quoted(text)));
    }
    format!("{text} large=1").parse::<MinIdle>().map(drop)
}

pub(crate) fn number(text: &str, most: u32) -> Result<u32, String> {
    let found = text.parse::<u32>().ok().filter(|found| *found <= most);
    found.ok_or_else(|| format!("is no whole number from 0 to {most}: {}", quoted(text)))
}

pub(crate) fn refresh_every(text: &str) -> Result<Duration, String> {
    let minutes = number(text, 24 * 60)?;
    match minutes {
        0 => Err("is not above 0".to_owned()),
        minutes => Ok(Duration::from_secs(60 * u64::from(minutes))),
    }
}

/// A span up to so many seconds.
pub(crate) fn seconds(text: &str, most: f64) -> Result<Duration, String> {
    let found = text.parse::<f64>().ok().filter(|found| *found > 0.0 && *found <= most);
    let found = found.map(Duration::from_secs_f64);
    found.ok_or_else(|| format!("is no number above 0 and up to {most}: {}", quoted(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_what_is_wrong_is_told() {
        let minutes = |of: &[u64]| of.iter().map(|it| Duration::from_secs(60 * it)).collect();
        assert_eq!(idle_times("0, 5 60"), Ok(minutes(&[0, 5, 60])));
        assert_eq!(idle_times("0.5"), Ok(vec![Duration::from_secs(30)]));
        assert_eq!(minimums("0 3"), Ok(vec![0, 3]));
        assert_eq!(usage_classes("spot"), Ok(vec![UsageClass::Spot]));
        for (found, problem) in [
            (idle_times("").unwrap_err(), "names nothing"),
            (idle_times("5 -1").unwrap_err(), "is no number of minutes from 0 to 10080: \"-1\""),
            (idle_times("5 nan").unwrap_err(), "is no number of minutes"),
            (minimums("1 2 1").unwrap_err(), "names one twice: \"1\""),
            (minimums("1001").unwrap_err(), "is no whole number from 0 to 1000: \"1001\""),
            (minimums(&"1 ".repeat(21)).unwrap_err(), "names more than 20: 21"),
            (usage_classes("cheap").unwrap_err(), "neither spot nor on-demand"),
            (seconds("0", 15.0).unwrap_err(), "is no number above 0 and up to 15"),
            (refresh_every("0").unwrap_err(), "is not above 0"),
            (window("large=1").unwrap_err(), "is more than a window"),
            (window("someday").unwrap_err(), "begins neither with days"),
        ] {
            assert!(found.contains(problem), "{found}");
        }
        assert_eq!(window("Mon-Fri 08:00-18:00 Europe/Berlin"), Ok(()));
        assert_eq!(window(""), Ok(()));
    }
}
