//! The table of machines: which columns there is room for, and what is in them.

use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::status::judgement::{Judged, Mark};

use super::{Tone, cut, width};
use crate::control::report::span::span;

/// The columns from left to right.
const COLUMNS: [Column; 12] = [
    Column::Instance,
    Column::State,
    Column::Mark,
    Column::Run,
    Column::Threshold,
    Column::Heartbeat,
    Column::Class,
    Column::Type,
    Column::Usage,
    Column::Signal,
    Column::Age,
    Column::Reason,
];

/// The same by importance: a narrow terminal shows the first.
const BY_IMPORTANCE: [Column; 12] = [
    Column::Instance,
    Column::State,
    Column::Mark,
    Column::Threshold,
    Column::Run,
    Column::Heartbeat,
    Column::Class,
    Column::Type,
    Column::Signal,
    Column::Usage,
    Column::Age,
    Column::Reason,
];

/// The columns where the reader is no terminal: all but the last two. Reasons may be long, and are in
/// the JSON.
const WIDE: usize = COLUMNS.len() - 2;

/// What is between two columns.
const GAP: &str = "  ";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Instance,
    State,
    Mark,
    Run,
    Threshold,
    Heartbeat,
    Class,
    Type,
    Usage,
    Signal,
    Age,
    Reason,
}

impl Column {
    fn header(self) -> &'static str {
        match self {
            Column::Instance => "instance",
            Column::State => "state",
            Column::Mark => "mark",
            Column::Run => "run",
            Column::Threshold => "threshold",
            Column::Heartbeat => "heartbeat",
            Column::Class => "class",
            Column::Type => "type",
            Column::Usage => "usage",
            Column::Signal => "signal",
            Column::Age => "age",
            Column::Reason => "reason",
        }
    }

    /// The fewest columns in which its texts can be told apart; `None` if they must not be cut.
    fn least(self) -> Option<usize> {
        match self {
            Column::Run => Some(12),
            Column::Reason => Some(20),
            _ => None,
        }
    }

    fn cell(self, machine: &Judged, now: Timestamp) -> (String, Tone) {
        let (record, status) = (&machine.record, &machine.status);
        let text = match self {
            Column::Instance => record.id.to_string(),
            Column::State => machine.group.as_str().to_owned(),
            Column::Mark => return marks(machine),
            Column::Run => record.run.as_ref().map_or("-", |run| run.as_str()).to_owned(),
            Column::Threshold => record.threshold.map_or("-".to_owned(), |at| left(at, now)),
            Column::Heartbeat => status
                .heartbeat
                .map_or("never".to_owned(), |beat| format!("{} ago", span(now.since(beat.at)))),
            Column::Class => record.spec.resource_class.to_string(),
            Column::Type => record.spec.instance_type.clone(),
            Column::Usage => record.spec.usage_class.to_string(),
            Column::Signal => {
                status.report.as_ref().map_or("-", |report| report.signal.as_str()).to_owned()
            }
            Column::Age => span(now.since(record.created_at)),
            Column::Reason => {
                machine.marks.iter().filter_map(Mark::reason).collect::<Vec<_>>().join("; ")
            }
        };
        (text, Tone::Plain)
    }
}

/// The group says already that a machine is preserved.
fn marks(machine: &Judged) -> (String, Tone) {
    let words: Vec<&str> = machine.marks.iter().map(Mark::as_str).collect();
    (words.join(", "), machine.marks.first().map_or(Tone::Plain, Tone::of))
}

fn left(threshold: Timestamp, now: Timestamp) -> String {
    if threshold > now {
        format!("in {}", span(threshold.since(now)))
    } else {
        format!("{} over", span(now.since(threshold)))
    }
}

/// Machines in rows that are no wider than the terminal.
pub(crate) struct MachineTable {
    columns: Vec<(Column, usize)>,
    /// The cells of each row, padded to their columns.
    rows: Vec<Vec<(String, Tone)>>,
}

impl MachineTable {
    /// Lays out the machines in at most so many columns of text; `None` for a fixed set,
    /// where the output is no terminal.
    pub(crate) fn new(machines: &[&Judged], now: Timestamp, room: Option<usize>) -> MachineTable {
        let natural = |column: Column| {
            let cells = machines.iter().map(|machine| width(&column.cell(machine, now).0));
            cells.max().unwrap_or(0).max(width(column.header()))
        };
        let columns = match room {
            None => COLUMNS[..WIDE].iter().map(|column| (*column, natural(*column))).collect(),
            Some(room) => fitted(room, natural),
        };
        let row = |machine: &&Judged| {
            let cells = columns.iter().map(|(column, width)| {
                let (text, tone) = column.cell(machine, now);
                (padded(&text, *width), tone)
            });
            cells.collect()
        };
        MachineTable { rows: machines.iter().map(row).collect(), columns }
    }

    /// The names of the columns.
    pub(crate) fn header(&self) -> String {
        let names = self.columns.iter().map(|(column, width)| padded(column.header(), *width));
        names.collect::<Vec<_>>().join(GAP)
    }

    /// The cells of a row with what is between them, each with its tone.
    #[cfg_attr(not(feature = "watch"), expect(dead_code, reason = "only watch draws cells"))]
    pub(crate) fn cells(&self, row: usize) -> impl Iterator<Item = (String, Tone)> {
        let last = self.columns.len().saturating_sub(1);
        self.rows[row].iter().enumerate().map(move |(n, (text, tone))| {
            let gap = if n == last { "" } else { GAP };
            (format!("{text}{gap}"), *tone)
        })
    }

    /// A row with its colours, without spaces at its end.
    pub(super) fn painted(&self, row: usize) -> String {
        let cells = &self.rows[row];
        let end = cells.iter().rposition(|(text, _)| !text.trim().is_empty()).unwrap_or(0);
        let painted = cells[..=end].iter().enumerate().map(|(n, (text, tone))| {
            let (text, pad) = text.split_at(text.trim_end().len());
            let pad = if n == end { "" } else { pad };
            format!("{}{pad}", tone.paint(text))
        });
        painted.collect::<Vec<_>>().join(GAP)
    }
}

/// The most important columns that fit, in their order, each with its width. The last one that fits
/// may be narrower than its texts, if they can be cut.
fn fitted(room: usize, natural: impl Fn(Column) -> usize) -> Vec<(Column, usize)> {
    let mut chosen: Vec<(Column, usize)> = Vec::new();
    let mut left = room;
    for column in BY_IMPORTANCE {
        let gap = if chosen.is_empty() { 0 } else { GAP.len() };
        let Some(available) = left.checked_sub(gap).filter(|available| *available > 0) else {
            break;
        };
        let wanted = natural(column);
        let least = column.least().unwrap_or(wanted).min(wanted);
        if least > available && !chosen.is_empty() {
            continue;
        }
        // A text that can be cut takes a share only, so that other columns have room.
        let wanted = if column == Column::Run { wanted.min(room / 5).max(least) } else { wanted };
        let taken = wanted.min(available);
        left = available - taken;
        chosen.push((column, taken));
    }
    let place = |column: Column| COLUMNS.iter().position(|other| *other == column);
    chosen.sort_by_key(|(column, _)| place(*column));
    chosen
}

fn padded(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let pad = columns.saturating_sub(width(&text));
    text + &" ".repeat(pad)
}
