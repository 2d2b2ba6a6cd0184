//! A time window that comes back every week, in the local time of a zone.

use std::fmt;
use std::sync::OnceLock;

use jiff::civil::Weekday;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::model::excerpt::quoted;
use crate::model::timestamp::Timestamp;

/// Days, and a span of the local time on each of them. A span that ends before it begins lasts until
/// the next day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) days: Days,
    pub(super) span: Span,
    pub(super) zone: TimeZone,
}

/// A set of weekdays, as one bit each from Monday on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Days(u8);

/// A span of a day, in minutes since midnight. The two are never equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    from: u16,
    /// At most 24:00.
    to: u16,
}

const NAMES: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MIDNIGHT: u16 = 24 * 60;

impl Window {
    /// Whether the moment lies in the window. The local time decides: an hour that a change to
    /// summer time skips is missing from the window, one that comes twice counts twice.
    pub(super) fn contains(&self, now: Timestamp) -> bool {
        let millis = i64::try_from(now.millis()).unwrap_or(i64::MAX);
        let Ok(moment) = jiff::Timestamp::from_millisecond(millis) else { return false };
        let local = self.zone.to_datetime(moment);
        let minute = i16::from(local.hour()) * 60 + i16::from(local.minute());
        let minute = u16::try_from(minute).unwrap_or_default();
        let today = local.weekday();
        let Span { from, to } = self.span;
        if from < to {
            return self.days.contain(today) && (from..to).contains(&minute);
        }
        (self.days.contain(today) && minute >= from)
            || (self.days.contain(today.previous()) && minute < to)
    }
}

impl Days {
    pub(super) const ALL: Days = Days(0b111_1111);

    fn contain(self, day: Weekday) -> bool {
        self.0 & (1 << day.to_monday_zero_offset()) != 0
    }

    /// Reads `Mon`, `Sat,Sun` or `Mon-Wed,Fri`. Returns `None` if a word is no day.
    pub(super) fn parse(text: &str) -> Option<Days> {
        let mut days = 0;
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (day(first)?, day(last)?);
            // A range may pass the end of the week: Fri-Mon.
            let length = (last + 7 - first) % 7;
            days |= (0..=length).fold(0, |days, step| days | 1 << ((first + step) % 7));
        }
        Some(Days(days))
    }
}

fn day(word: &str) -> Option<usize> {
    NAMES.iter().position(|name| name.eq_ignore_ascii_case(word))
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for day in (0..NAMES.len()).filter(|day| self.0 & (1 << day) != 0) {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == day => *last = day,
                _ => ranges.push((day, day)),
            }
        }
        let texts: Vec<String> = ranges
            .into_iter()
            .map(|(first, last)| match first == last {
                true => NAMES[first].to_owned(),
                false => format!("{}-{}", NAMES[first], NAMES[last]),
            })
            .collect();
        f.write_str(&texts.join(","))
    }
}

impl Span {
    pub(super) const WHOLE_DAY: Span = Span { from: 0, to: MIDNIGHT };

    /// The largest number of minutes at multiples of which it begins and ends.
    pub(super) fn step(self) -> u64 {
        super::greatest_common_divisor(u64::from(self.from), u64::from(self.to))
    }

    /// Reads `08:00-18:00`. Fails with what is wrong, worded to follow the input's name.
    pub(super) fn parse(text: &str) -> Result<Span, String> {
        let read = || {
            let (from, to) = text.split_once('-')?;
            Some(Span { from: minute(from)?, to: minute(to)? })
        };
        let malformed = || format!("has no time window of the form HH:MM-HH:MM: {}", quoted(text));
        let span = read().filter(|span| span.from < MIDNIGHT).ok_or_else(malformed)?;
        if span.from == span.to {
            return Err(format!("has an empty time window: {}", quoted(text)));
        }
        Ok(span)
    }
}

fn minute(text: &str) -> Option<u16> {
    let digits =
        |text: &str| (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    let (hour, minute) =
        text.split_once(':').filter(|(h, m)| digits(h) && digits(m) && m.len() == 2)?;
    let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
    let time = hour * 60 + minute;
    (minute < 60 && time <= MIDNIGHT).then_some(time)
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Span { from, to } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

/// The zone with this name, such as `Europe/Berlin`. Fails with what is wrong, worded to follow the
/// input's name.
pub(super) fn zone(name: &str) -> Result<TimeZone, String> {
    static ZONES: OnceLock<TimeZoneDatabase> = OnceLock::new();
    let zones = ZONES.get_or_init(TimeZoneDatabase::bundled);
    zones.get(name).map_err(|_| format!("names an unknown time zone: {}", quoted(name)))
}
