//! A history: which runs began when, with how many machines, and for how long. Its text is CSV.

use std::fmt::Write;
use std::time::Duration;

use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::ids::ResourceClass;
use ondeck_core::model::settings::Settings;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::provision::MAX_COUNT;

/// The most runs of a history.
pub const MOST_RUNS: usize = 100_000;
/// The longest time between the first and the last run.
pub const LONGEST_SPAN: Duration = Duration::from_secs(92 * 24 * 3_600);
/// The longest run: GitHub ends a job on a self-hosted runner after five days.
const LONGEST_RUN: f64 = 5.0 * 24.0 * 60.0;

const HEADER: &str = "start,machines,minutes";
const HEADER_WITH_CLASS: &str = "start,machines,minutes,class";
/// The class of a run that names none.
const DEFAULT_CLASS: &str = "large";

/// One run of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryRun {
    /// When it asks for its machines.
    pub start: Timestamp,
    pub machines: u32,
    /// How long it keeps them, from when all of them are ready until it releases them.
    pub length: Duration,
    pub class: ResourceClass,
}

/// Runs in the order of their starts, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    runs: Vec<HistoryRun>,
}

/// Why a text is no history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidHistory {
    /// The number of the line, from 1; 0 if it is no single line.
    pub line: usize,
    pub problem: String,
    pub hint: String,
}

impl std::fmt::Display for InvalidHistory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => f.write_str(&self.problem),
            line => write!(f, "line {line}: {}", self.problem),
        }
    }
}

impl History {
    /// From runs in any order. Fails if there are none, too many, or if they are too far apart.
    pub fn new(mut runs: Vec<HistoryRun>) -> Result<History, InvalidHistory> {
        let invalid = |problem: String, hint: &str| {
            Err(InvalidHistory { line: 0, problem, hint: hint.to_owned() })
        };
        runs.sort_by_key(|run| run.start);
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
            return invalid("the history has no run".to_owned(), EXAMPLE);
        };
        if runs.len() > MOST_RUNS {
            let problem = format!("the history has more than {MOST_RUNS} runs: {}", runs.len());
            return invalid(problem, "leave out the oldest runs");
        }
        if last.start.since(first.start) > LONGEST_SPAN {
            let days = LONGEST_SPAN.as_secs() / (24 * 3_600);
            let problem = format!(
                "the runs of the history are more than {days} days apart: {} and {}",
                first.start, last.start
            );
            return invalid(problem, "leave out the oldest runs");
        }
        Ok(History { runs })
    }

    /// Reads CSV: a header, `start,machines,minutes` with or without `,class`, then a line for each
    /// run. Empty lines and those that begin with `#` are skipped. Fails on the first line that is
    /// wrong.
    pub fn from_csv(text: &str) -> Result<History, InvalidHistory> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        let mut lines = numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let Some((number, header)) = lines.next() else {
            return History::new(Vec::new());
        };
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        let has_class = names.len() == 4;
        let expected = if has_class { HEADER_WITH_CLASS } else { HEADER };
        if !names.join(",").eq_ignore_ascii_case(expected) {
            let problem = format!("this is not the header {HEADER}[,class]: {}", quoted(header));
            return Err(InvalidHistory { line: number, problem, hint: EXAMPLE.to_owned() });
        }
        let settings = Settings::default();
        let run = |(line, text)| {
            read_run(text, has_class, &settings).map_err(|(problem, hint)| InvalidHistory {
                line,
                problem,
                hint,
            })
        };
        History::new(lines.map(run).collect::<Result<_, _>>()?)
    }

    /// The CSV that [`from_csv`](History::from_csv) reads as this history, if all times are whole
    /// seconds and lengths hundredths of a minute.
    pub fn to_csv(&self) -> String {
        let mut csv = format!("{HEADER_WITH_CLASS}\n");
        for HistoryRun { start, machines, length, class } in &self.runs {
            let hundredths = (length.as_millis() + 300) / 600;
            let (whole, part) = (hundredths / 100, hundredths % 100);
            let decimals = if part == 0 { String::new() } else { format!(".{part:02}") };
            let start = start.to_string().replace(".000Z", "Z");
            // Writing to a text cannot fail.
            let written = writeln!(csv, "{start},{machines},{whole}{decimals},{class}");
            debug_assert!(written.is_ok());
        }
        csv
    }

    pub fn runs(&self) -> &[HistoryRun] {
        &self.runs
    }

    /// When the first run begins.
    pub fn since(&self) -> Timestamp {
        self.runs[0].start
    }

    /// When the last run would end if no run had to wait.
    pub fn until(&self) -> Timestamp {
        let ends = self.runs.iter().map(|run| run.start + run.length);
        ends.max().unwrap_or(self.runs[0].start)
    }

    /// The classes of the runs, each once, in alphabetical order.
    pub fn classes(&self) -> Vec<ResourceClass> {
        let mut classes: Vec<ResourceClass> =
            self.runs.iter().map(|run| run.class.clone()).collect();
        classes.sort_unstable();
        classes.dedup();
        classes
    }
}

const EXAMPLE: &str =
    "begin with the line start,machines,minutes and go on like 2026-11-02T08:30:00Z,4,12.5";

/// Reads one line. Fails with the problem and a hint.
fn read_run(
    text: &str,
    has_class: bool,
    settings: &Settings,
) -> Result<HistoryRun, (String, String)> {
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    let expected = if has_class { 4 } else { 3 };
    let [start, machines, minutes, rest @ ..] = &fields[..] else {
        let problem = format!("has {} fields in place of {expected}", fields.len());
        return Err((problem, EXAMPLE.to_owned()));
    };
    if fields.len() != expected {
        let problem = format!("has {} fields in place of {expected}", fields.len());
        return Err((problem, EXAMPLE.to_owned()));
    }
    let start = Timestamp::parse(start).map_err(|error| {
        (format!("start is {error}"), "write it like 2026-11-02T08:30:00Z".to_owned())
    })?;
    let count = machines.parse::<u32>().ok().filter(|count| (1..=MAX_COUNT).contains(count));
    let machines = count.ok_or_else(|| {
        let hint = format!("write a whole number from 1 to {MAX_COUNT}");
        (format!("machines is no number of machines: {}", quoted(machines)), hint)
    })?;
    let length = minutes.parse::<f64>().ok().filter(|it| *it > 0.0 && *it <= LONGEST_RUN);
    let length = length.ok_or_else(|| {
        let hint = format!("write a number above 0 and up to {LONGEST_RUN}, such as 12.5");
        (format!("minutes is no length of a run: {}", quoted(minutes)), hint)
    })?;
    let name = rest.first().copied().filter(|name| !name.is_empty()).unwrap_or(DEFAULT_CLASS);
    let class = ResourceClass::new(name).ok().filter(|class| settings.classes.get(class).is_some());
    let class = class.ok_or_else(|| {
        let names: Vec<&str> = settings.classes.names().map(ResourceClass::as_str).collect();
        let hint = format!("use one of the classes of a new pool: {}", names.join(" "));
        (format!("class is no class: {}", quoted(name)), hint)
    })?;
    let length = Duration::from_millis((length * 60_000.0).round().max(1.0) as u64);
    Ok(HistoryRun { start, machines, length, class })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "start,machines,minutes\n2026-11-02T08:30:00Z,4,12.5\n";

    #[test]
    fn a_history_is_read_and_written_in_the_order_of_its_starts() {
        let text = "\u{feff}# a comment\r\nstart, machines, minutes, class\r\n\r\n\
                    2026-11-02T09:00:00Z, 1, 0.25, xlarge\r\n2026-11-02T08:30:00Z,4,12,\r\n";
        let history = History::from_csv(text).unwrap();
        let written = "start,machines,minutes,class\n2026-11-02T08:30:00Z,4,12,large\n\
                       2026-11-02T09:00:00Z,1,0.25,xlarge\n";
        assert_eq!(history.to_csv(), written);
        assert_eq!(History::from_csv(written).unwrap(), history);
        assert_eq!(history.since().to_string(), "2026-11-02T08:30:00.000Z");
        assert_eq!(history.until().to_string(), "2026-11-02T09:00:15.000Z");
        let classes: Vec<String> = history.classes().iter().map(ToString::to_string).collect();
        assert_eq!(classes, ["large", "xlarge"]);
    }

    #[test]
    fn a_wrong_line_is_named_with_its_number_and_what_to_write() {
        for (from, to, line, problem, hint) in [
            ("2026-11-02T08:30:00Z", "Monday", 2, "start is not a time", "2026-11-02T08:30:00Z"),
            (",4,", ",0,", 2, "machines is no number of machines: \"0\"", "1 to 1000"),
            (",4,", ",1001,", 2, "machines is no number of machines", "1 to 1000"),
            (",4,", ",x,", 2, "machines is no number of machines: \"x\"", "1 to 1000"),
            (",12.5", ",0", 2, "minutes is no length of a run: \"0\"", "12.5"),
            (",12.5", ",nan", 2, "minutes is no length of a run: \"nan\"", "12.5"),
            (",12.5", ",7201", 2, "minutes is no length of a run", "7200"),
            (",12.5", ",1,large", 2, "has 4 fields in place of 3", "start,machines,minutes"),
            (",12.5", "", 2, "has 2 fields in place of 3", "start,machines,minutes"),
            ("start", "begin", 1, "this is not the header", "start,machines,minutes"),
            ("minutes", "minutes,size", 1, "this is not the header", "start,machines,minutes"),
        ] {
            let error = History::from_csv(&TWO.replacen(from, to, 1)).unwrap_err();
            assert_eq!(error.line, line, "{to}");
            assert!(error.problem.contains(problem), "{to}: {error}");
            assert!(error.hint.contains(hint), "{to}: {}", error.hint);
            assert!(error.to_string().starts_with(&format!("line {line}: ")), "{error}");
        }
        let text = "start,machines,minutes,class\n# one\n\n2026-11-02T08:30:00Z,1,1,huge\n";
        let error = History::from_csv(text).unwrap_err();
        assert_eq!((error.line, error.problem.as_str()), (4, "class is no class: \"huge\""));
        assert!(error.hint.contains("large"), "{}", error.hint);
    }

    #[test]
    fn a_history_has_runs_within_bounds() {
        for text in ["", "# nothing\n", "start,machines,minutes\n"] {
            let error = History::from_csv(text).unwrap_err();
            assert_eq!(error.to_string(), "the history has no run");
        }
        let far = format!("{TWO}2027-11-02T08:30:00Z,4,12.5\n");
        let error = History::from_csv(&far).unwrap_err();
        assert!(error.to_string().contains("more than 92 days apart"), "{error}");
        let many = format!("{TWO}{}", "2026-11-02T08:30:00Z,4,12.5\n".repeat(MOST_RUNS));
        let error = History::from_csv(&many).unwrap_err();
        assert!(error.to_string().contains("more than 100000 runs: 100001"), "{error}");
    }
}
