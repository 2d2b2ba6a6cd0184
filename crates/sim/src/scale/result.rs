//! What a fleet consumed in an hour, as tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::meter::{Counted, KEY_LIMITS, Units};
use super::world::{BOOT, DESCRIBE, DYNAMODB, LAUNCH, Latency, SQS};
use super::{ScaleOptions, Tally};

/// The share of a key's limit that none may exceed.
const MOST: f64 = 0.8;

/// List prices on demand in us-east-1, in dollars for each million.
const WRITE_UNITS: f64 = 0.625;
const READ_UNITS: f64 = 0.125;
const SQS_REQUESTS: f64 = 0.40;
const HOURS_A_MONTH: f64 = 730.0;

/// What an agent does in a minute while nothing happens to it. It is counted and not played.
/// `cargo xtask bench aws -- idle-agent` measures it.
const WAITING: [(&str, f64, Units); 3] = [
    ("UpdateItem", 6.0, Units { reads: 0.0, writes: 1.0 }),
    ("GetItem", 4.0, Units { reads: 0.5, writes: 0.0 }),
    ("ReceiveMessage", 3.0, Units { reads: 0.0, writes: 0.0 }),
];

/// The operations of SQS, which are paid by request.
const OF_SQS: [&str; 9] = [
    "ChangeMessageVisibilityBatch",
    "DeleteMessage",
    "DeleteMessageBatch",
    "GetQueueAttributes",
    "GetQueueUrl",
    "ListQueues",
    "ReceiveMessage",
    "SendMessage",
    "SendMessageBatch",
];

/// What a fleet consumed.
#[derive(Debug)]
pub struct ScaleResult {
    options: ScaleOptions,
    counted: Counted,
    tally: Tally,
}

impl ScaleResult {
    pub(super) fn of(options: ScaleOptions, counted: Counted, tally: Tally) -> ScaleResult {
        ScaleResult { options, counted, tally }
    }

    /// How many runs asked for machines.
    pub fn runs(&self) -> usize {
        self.tally.runs
    }

    /// The failures of processes, each with its number.
    pub fn failures(&self) -> &BTreeMap<String, usize> {
        &self.tally.failures
    }

    /// The kinds of keys of which one was above the allowed share of its limit in some second.
    pub fn keys_above_limit(&self) -> Vec<String> {
        let over = self.counted.kinds().into_iter().filter_map(|(kind, (_, _, peak))| {
            let share = peak.share_of(KEY_LIMITS);
            (share > MOST).then(|| format!("{kind}: {:.0} % of its limit", 100.0 * share))
        });
        over.collect()
    }

    /// The tables of `docs/performance.md`.
    pub fn shown(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("a text can be written to");
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let ScaleOptions { machines, runs_an_hour, warm_up, counted, .. } = self.options;
        writeln!(
            text,
            "{machines} machines at the beginning, {runs_an_hour} runs an hour, refresh every minute; \
             {} minutes counted, after {} that are not\n",
            minutes(counted),
            minutes(warm_up),
        )?;
        self.write_work(text)?;
        self.write_keys(text)?;
        self.write_calls(text)?;
        self.write_cost(text)?;
        writeln!(text, "\nmodelled, not measured:")?;
        let latencies = [
            ("a call to DynamoDB", DYNAMODB),
            ("a call to SQS", SQS),
            ("a launch", LAUNCH),
            ("other calls to EC2", DESCRIBE),
            ("the boot of a machine", BOOT),
        ];
        for (what, Latency { median, p99 }) in latencies {
            writeln!(text, "- {what}: log-normal, median {median} ms, 99th percentile {p99} ms")?;
        }
        writeln!(text, "- runners register at once, and GitHub is not asked")?;
        for key in self.keys_above_limit() {
            writeln!(text, "a key is above {:.0} % of its limit: {key}", 100.0 * MOST)?;
        }
        for (failure, count) in &self.tally.failures {
            writeln!(text, "failed {count} times: {failure}")?;
        }
        Ok(())
    }

    fn write_work(&self, text: &mut String) -> std::fmt::Result {
        let Tally { warm, runs, machines_warm, machines_cold, refreshes, .. } = &self.tally;
        let (machines, owned) = self.fleet();
        let handed = (machines_warm + machines_cold).max(1);
        let row =
            |text: &mut String, what: &str, value: String| writeln!(text, "| {what} | {value} |");
        writeln!(text, "| | |\n| --- | --: |")?;
        row(text, "machines, in the mean", format!("{machines:.0}"))?;
        row(text, "of which a run has", format!("{owned:.0}"))?;
        row(text, "runs", runs.to_string())?;
        row(text, "machines handed over", handed.to_string())?;
        row(text, "warm share", format!("{:.1} %", 100.0 * *machines_warm as f64 / handed as f64))?;
        row(text, "warm start, median", millis(percentile(warm, 50)))?;
        row(text, "warm start, 99th percentile", millis(percentile(warm, 99)))?;
        row(text, "refresh, median", millis(percentile(refreshes, 50)))?;
        row(text, "refresh, slowest", millis(percentile(refreshes, 100)))
    }

    fn write_keys(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "\n| key | keys | reads | writes | busiest second of a key: reads | writes | of its limit |\n\
             | --- | --: | --: | --: | --: | --: | --: |"
        )?;
        for (kind, (keys, total, peak)) in self.counted.kinds() {
            writeln!(
                text,
                "| `{kind}` | {keys} | {:.0} | {:.0} | {:.1} | {:.1} | {:.1} % |",
                total.reads,
                total.writes,
                peak.reads,
                peak.writes,
                100.0 * peak.share_of(KEY_LIMITS),
            )?;
        }
        let Units { reads, writes } = self.counted.busiest_second;
        writeln!(
            text,
            "\nThe whole table consumed at most {reads:.0} read units and {writes:.0} write units in one \
             second, without what waiting agents consume."
        )
    }

    fn write_calls(&self, text: &mut String) -> std::fmt::Result {
        let seconds = self.options.counted.as_secs_f64();
        let waiting = self.waiting_calls();
        writeln!(
            text,
            "\n| calls a second | by modes and answering agents | by waiting agents |\n| --- | --: | --: |"
        )?;
        let mut operations: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for (operation, count) in &self.counted.calls {
            operations.entry(operation).or_default().0 = *count as f64 / seconds;
        }
        for (operation, count) in &waiting {
            operations.entry(operation).or_default().1 = *count;
        }
        for (operation, (played, waited)) in operations {
            writeln!(text, "| {operation} | {played:.2} | {waited:.0} |")?;
        }
        Ok(())
    }

    /// The calls of all waiting agents in a second.
    fn waiting_calls(&self) -> BTreeMap<&'static str, f64> {
        let machines = self.fleet().0;
        WAITING.iter().map(|(name, a_minute, _)| (*name, a_minute / 60.0 * machines)).collect()
    }

    fn write_cost(&self, text: &mut String) -> std::fmt::Result {
        let hours = self.options.counted.as_secs_f64() / 3_600.0;
        let dollars = |units: Units, requests: f64| {
            let sum =
                units.writes * WRITE_UNITS + units.reads * READ_UNITS + requests * SQS_REQUESTS;
            sum / 1e6 / hours * HOURS_A_MONTH
        };
        let requests = OF_SQS.iter().filter_map(|name| self.counted.calls.get(name)).sum::<u64>();
        let played = dollars(self.counted.total(), requests as f64);
        let minutes = self.fleet().0 * hours * 60.0;
        let mut waiting = Units::default();
        let mut polls = 0.0;
        for (name, a_minute, units) in WAITING {
            waiting.reads += units.reads * a_minute * minutes;
            waiting.writes += units.writes * a_minute * minutes;
            polls += if OF_SQS.contains(&name) { a_minute * minutes } else { 0.0 };
        }
        let waited = dollars(waiting, polls);
        writeln!(text, "\n| dollars a month, DynamoDB and SQS at list prices | |\n| --- | --: |")?;
        writeln!(text, "| hand-overs and refresh | {played:.0} |")?;
        writeln!(text, "| waiting agents | {waited:.0} |")?;
        writeln!(text, "| all | {:.0} |", played + waited)
    }

    /// Machines in the mean, and those of them that a run has.
    fn fleet(&self) -> (f64, f64) {
        let count = self.tally.fleet.len().max(1) as f64;
        let sum = |of: fn(&(usize, usize)) -> usize| self.tally.fleet.iter().map(of).sum::<usize>();
        (sum(|it| it.0) as f64 / count, sum(|it| it.1) as f64 / count)
    }
}

fn percentile(spans: &[Duration], percent: usize) -> Option<Duration> {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

fn millis(span: Option<Duration>) -> String {
    span.map_or_else(|| "–".to_owned(), |span| format!("{} ms", span.as_millis()))
}

fn minutes(span: Duration) -> u64 {
    span.as_secs() / 60
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let spans: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        let at = |percent| percentile(&spans, percent).map(|span| span.as_millis());
        assert_eq!((at(50), at(99), at(100)), (Some(100), Some(198), Some(200)));
        assert_eq!(percentile(&[], 50), None);
    }
}
