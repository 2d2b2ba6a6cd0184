//! The minimums of idle machines that histories have, and what each text means. The auditor reads
//! this table, and not core's grammar.

use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::timestamp::Timestamp;

use super::Ask;
use super::ask::DEFAULT_TYPES;
use crate::kernel::timestamp;

/// Machines of one kind that refresh keeps idle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) class: &'static str,
    usage: UsageClass,
    /// The allowed instance types; `None` allows what the provider recommends.
    types: Option<&'static str>,
    pub(crate) count: usize,
    /// From which second to which of the history it holds; `None` is always.
    seconds: Option<(u64, u64)>,
    /// For how many hours a week it holds.
    hours: f64,
}

impl Kept {
    const fn of(class: &'static str, count: usize) -> Kept {
        Kept { class, usage: UsageClass::OnDemand, types: None, count, seconds: None, hours: 168.0 }
    }

    const fn spot(self) -> Kept {
        Kept { usage: UsageClass::Spot, ..self }
    }

    const fn types(self, types: &'static str) -> Kept {
        Kept { types: Some(types), ..self }
    }

    /// Between these seconds of the history, and for so many hours in a week.
    const fn within(self, from: u64, to: u64, hours: f64) -> Kept {
        Kept { seconds: Some((from, to)), hours, ..self }
    }

    /// The request that its machines would serve.
    pub(crate) fn ask(&self) -> Ask {
        Ask { class: self.class, usage: self.usage, types: self.types, ..Ask::of(1) }
    }

    /// Whether machines that were ordered like this are kept for it.
    pub(crate) fn is_kind(&self, class: &str, usage: UsageClass, types: &str) -> bool {
        let own = self.types.unwrap_or(DEFAULT_TYPES);
        (self.class, self.usage, own) == (class, usage, types)
    }

    /// Whether it holds at any moment, or at every moment, of this time.
    fn holds(&self, (from, to): (Timestamp, Timestamp), throughout: bool) -> bool {
        self.seconds.is_none_or(|(first, last)| {
            let (first, last) = (timestamp(first * 1_000_000), timestamp(last * 1_000_000));
            match throughout {
                true => first <= from && to < last,
                false => from < last && first <= to,
            }
        })
    }

    pub(crate) fn holds_throughout(&self, from: Timestamp, to: Timestamp) -> bool {
        self.holds((from, to), true)
    }

    pub(crate) fn holds_sometimes(&self, from: Timestamp, to: Timestamp) -> bool {
        self.holds((from, to), false)
    }

    /// How many machine-hours it costs in a week.
    pub(crate) fn machine_hours(&self) -> f64 {
        self.hours * self.count as f64
    }
}

/// A text of `min-idle`, and the machines that it keeps. No machine suits two of them.
type Row = (&'static str, &'static [Kept]);

/// Histories begin on Sunday, 15 June 2025, at 15:06:40 UTC.
const ROWS: [Row; 12] = [
    ("large=1", &[Kept::of("large", 1)]),
    ("large=2", &[Kept::of("large", 2)]),
    ("large=2 xlarge=1", &[Kept::of("large", 2), Kept::of("xlarge", 1)]),
    ("large/spot=1", &[Kept::of("large", 1).spot()]),
    ("large/m*=1", &[Kept::of("large", 1).types("m*")]),
    (
        "large/spot/c*,r5.*=1,large=1",
        &[Kept::of("large", 1).spot().types("c* r5.*"), Kept::of("large", 1)],
    ),
    ("Sun 15:10-15:20 UTC large=2", &[Kept::of("large", 2).within(200, 800, 1.0 / 6.0)]),
    ("Sun 17:10-17:20 Europe/Berlin large=2", &[Kept::of("large", 2).within(200, 800, 1.0 / 6.0)]),
    (
        "15:16-15:40 UTC large=1; large/spot=1",
        &[Kept::of("large", 1).within(560, 2_000, 2.8), Kept::of("large", 1).spot()],
    ),
    // Not on a Sunday.
    ("Mon-Fri 08:00-18:00 Europe/Berlin large=3", &[Kept::of("large", 3).within(0, 0, 50.0)]),
    // In Tokyo, it is Monday already: the night that began on Sunday.
    ("Sat-Sun 22:00-01:00 Asia/Tokyo large=1", &[Kept::of("large", 1).within(0, 3_200, 6.0)]),
    ("Mon 22:00-01:00 Asia/Tokyo xlarge=1", &[Kept::of("xlarge", 1).within(0, 0, 3.0)]),
];

/// The texts, except that of no minimum.
pub(super) const TEXTS: [&str; ROWS.len()] = {
    let mut texts = [""; ROWS.len()];
    let mut at = 0;
    while at < texts.len() {
        texts[at] = ROWS[at].0;
        at += 1;
    }
    texts
};

/// What a text keeps; nothing if it is empty.
pub(crate) fn kept(text: &str) -> &'static [Kept] {
    let row = ROWS.iter().find(|(known, _)| *known == text);
    assert!(row.is_some() || text.is_empty(), "unknown minimum {text}");
    row.map_or(&[], |(_, kept)| kept)
}

#[cfg(test)]
mod tests {
    use ondeck_core::model::min_idle::MinIdle;

    use super::*;

    /// The table was written by hand. Core must read each text in the same way.
    #[test]
    fn the_table_says_what_the_texts_mean() {
        for (text, kept) in ROWS {
            let core: MinIdle = text.parse().unwrap();
            for second in (0..6_000).step_by(50) {
                let at = timestamp(second * 1_000_000);
                let held = kept.iter().filter(|kept| kept.holds_throughout(at, at));
                let mut held: Vec<_> = held.map(|it| (it.class, it.usage, it.count)).collect();
                let minimums = core.at(at);
                let minimums = minimums.iter();
                let mut read: Vec<_> =
                    minimums.map(|it| (it.class.as_str(), it.usage, it.count as usize)).collect();
                held.sort_unstable_by_key(|it| format!("{it:?}"));
                read.sort_unstable_by_key(|it| format!("{it:?}"));
                assert_eq!(held, read, "{text} at {at}");
            }
        }
    }

    #[test]
    fn a_window_holds_between_its_ends() {
        let kept = Kept::of("large", 1).within(10, 20, 1.0);
        let at = |second: u64| timestamp(second * 1_000_000);
        assert!(kept.holds_throughout(at(10), at(19)));
        assert!(!kept.holds_throughout(at(9), at(19)) && !kept.holds_throughout(at(10), at(20)));
        assert!(kept.holds_sometimes(at(0), at(10)) && kept.holds_sometimes(at(19), at(30)));
        assert!(!kept.holds_sometimes(at(0), at(9)) && !kept.holds_sometimes(at(20), at(30)));
    }
}
