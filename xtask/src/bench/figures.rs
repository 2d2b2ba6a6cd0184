//! Series of measurements and their table.

use std::time::Duration;

use super::pool::Spent;

/// One thing, measured several times.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) name: String,
    rounds: Vec<Spent>,
}

impl Series {
    pub(super) fn new(name: &str) -> Series {
        Series { name: name.to_owned(), rounds: Vec::new() }
    }

    pub(super) fn push(&mut self, spent: impl Into<Spent>) {
        self.rounds.push(spent.into());
    }

    /// The middle value. Of an even number of values, the slower of the two in the middle.
    pub(super) fn median(&self, of: fn(&Spent) -> Duration) -> Duration {
        let sorted = self.sorted(of);
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    pub(super) fn worst(&self, of: fn(&Spent) -> Duration) -> Duration {
        self.sorted(of).last().copied().unwrap_or_default()
    }

    fn sorted(&self, of: fn(&Spent) -> Duration) -> Vec<Duration> {
        let mut all: Vec<Duration> = self.rounds.iter().map(of).collect();
        all.sort_unstable();
        all
    }
}

/// The table with the notes below it.
pub(super) fn report(series: &[Series], notes: &[String]) -> String {
    let width = series.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
    let mut lines = vec![
        format!("{:width$}  {:>16}  {:>16}", "", "process, ms", "inside, ms"),
        format!(
            "{:width$}  {:>8}{:>8}  {:>8}{:>8}  rounds",
            "", "median", "worst", "median", "worst"
        ),
    ];
    for series in series {
        let [process, inside] = [|spent: &Spent| spent.process, |spent: &Spent| spent.inside];
        lines.push(format!(
            "{:width$}  {:>8.1}{:>8.1}  {:>8}{:>8}  {:>6}",
            series.name,
            series.median(process).as_secs_f64() * 1000.0,
            series.worst(process).as_secs_f64() * 1000.0,
            series.median(inside).as_millis(),
            series.worst(inside).as_millis(),
            series.rounds.len(),
        ));
    }
    lines.push(String::new());
    lines.extend(notes.iter().cloned());
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, process: &[u64]) -> Series {
        let spent = |millis: &u64| Spent {
            process: Duration::from_millis(*millis),
            inside: Duration::from_millis(millis - 1),
        };
        Series { name: name.into(), rounds: process.iter().map(spent).collect() }
    }

    #[test]
    fn the_median_of_an_even_number_is_the_slower_one() {
        let median =
            |process: &[u64]| series("", process).median(|spent| spent.process).as_millis();
        assert_eq!(median(&[]), 0);
        assert_eq!(median(&[7]), 7);
        assert_eq!(median(&[9, 1, 5]), 5);
        assert_eq!(median(&[4, 1, 3, 2]), 3);
    }

    #[test]
    fn columns_line_up() {
        let series = [series("cold", &[1000]), series("warm, 10", &[90, 80, 123])];
        assert_eq!(
            report(&series, &["that is all".to_owned()]),
            "               process, ms        inside, ms
            median   worst    median   worst  rounds
cold        1000.0  1000.0       999     999       1
warm, 10      90.0   123.0        89     122       3

that is all
"
        );
    }
}
