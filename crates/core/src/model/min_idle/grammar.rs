//! The text of `min-idle`.
//!
//! ```text
//! entries  = entry (";" or line break) entry …
//! entry    = [[DAYS] [HH:MM-HH:MM] [ZONE]] minimum …
//! minimum  = CLASS["/" USAGE]["/" PATTERN "," …] "=" COUNT
//! ```

use std::fmt;
use std::str::FromStr;

use super::window::{self, Days, Span, Window};
use super::{Entry, MinIdle, Minimum};
use crate::model::excerpt::quoted;
use crate::model::ids::ResourceClass;
use crate::model::requirements::{TypePatterns, UsageClass};

/// The most machines that one minimum may ask for.
const MAX_COUNT: u32 = 1000;
/// The most minimums of one setting.
const MAX_MINIMUMS: usize = 100;

impl FromStr for MinIdle {
    type Err = String;

    /// Reads `large=2 xlarge=1` or `Mon-Fri 08:00-18:00 Europe/Berlin large/spot=4; large=1`. Fails
    /// with what is wrong, worded to follow the input's name.
    fn from_str(text: &str) -> Result<MinIdle, String> {
        let parts = text.split([';', '\n']).map(str::trim);
        let parts = parts.filter(|part| !part.trim_matches([',', ' ']).is_empty());
        let entries = parts.map(str::parse).collect::<Result<Vec<Entry>, String>>()?;
        let count: usize = entries.iter().map(|entry| entry.minimums.len()).sum();
        if count > MAX_MINIMUMS {
            return Err(format!("has more than {MAX_MINIMUMS} minimums: {count}"));
        }
        Ok(MinIdle { entries })
    }
}

impl FromStr for Entry {
    type Err = String;

    fn from_str(text: &str) -> Result<Entry, String> {
        let words = text.split_whitespace().filter(|word| !word.trim_matches(',').is_empty());
        let words: Vec<&str> = words.collect();
        let first = words.iter().position(|word| word.contains('='));
        let first = first.ok_or_else(|| not_a_minimum(text))?;
        let (window, minimums) = words.split_at(first);
        let window = read_window(window)?;
        let minimums = minimums.iter().flat_map(|word| single_minimums(word));
        let minimums = minimums.map(|word| word.parse()).collect::<Result<_, _>>()?;
        Ok(Entry { window, minimums })
    }
}

/// Separates what commas join. A part without a count belongs to the patterns of the next one.
fn single_minimums(word: &str) -> Vec<String> {
    let mut minimums = Vec::new();
    let mut begun = String::new();
    for part in word.split(',').filter(|part| !part.is_empty()) {
        if !begun.is_empty() {
            begun.push(',');
        }
        begun.push_str(part);
        if part.contains('=') {
            minimums.push(std::mem::take(&mut begun));
        }
    }
    minimums.extend(Some(begun).filter(|rest| !rest.is_empty()));
    minimums
}

fn read_window(words: &[&str]) -> Result<Option<Window>, String> {
    let mut words = words.iter().copied().peekable();
    if words.peek().is_none() {
        return Ok(None);
    }
    let days = words.peek().and_then(|word| Days::parse(word));
    if days.is_some() {
        words.next();
    }
    let span = words.next_if(|word| word.contains(':')).map(Span::parse).transpose()?;
    if days.is_none() && span.is_none() {
        let word = words.next().unwrap_or_default();
        let problem =
            "begins neither with days (Mon-Fri), a time window (08:00-18:00) nor CLASS=COUNT";
        return Err(format!("{problem}: {}", quoted(word)));
    }
    let zone = words.next().unwrap_or("UTC");
    if let Some(word) = words.next() {
        return Err(format!("is not of the form CLASS=COUNT: {}", quoted(word)));
    }
    Ok(Some(Window {
        days: days.unwrap_or(Days::ALL),
        span: span.unwrap_or(Span::WHOLE_DAY),
        zone: window::zone(zone)?,
    }))
}

impl FromStr for Minimum {
    type Err = String;

    fn from_str(word: &str) -> Result<Minimum, String> {
        let (kind, count) = word.split_once('=').ok_or_else(|| not_a_minimum(word))?;
        let count: u32 = count.parse().map_err(|_| format!("has no count: {}", quoted(word)))?;
        if count > MAX_COUNT {
            return Err(format!("asks for more than {MAX_COUNT} machines: {}", quoted(word)));
        }
        let mut parts = kind.split('/').peekable();
        let class = parts.next().unwrap_or_default();
        let class = ResourceClass::new(class).map_err(|error| error.to_string())?;
        let usage = parts.peek().and_then(|part| part.parse::<UsageClass>().ok());
        if usage.is_some() {
            parts.next();
        }
        let types = parts.next().map(|text| patterns(text, word)).transpose()?;
        if parts.next().is_some() {
            return Err(not_a_minimum(word));
        }
        Ok(Minimum { class, usage: usage.unwrap_or(UsageClass::OnDemand), types, count })
    }
}

/// Reads patterns. A word without `.` and `*` names no instance type; it is a misspelt usage class.
fn patterns(text: &str, word: &str) -> Result<TypePatterns, String> {
    if text.split(',').any(|pattern| !pattern.contains(['.', '*'])) {
        let problem = "names neither spot, on-demand nor patterns of instance types";
        return Err(format!("{problem}: {}", quoted(word)));
    }
    text.parse().map_err(|error| format!("has a {error}"))
}

fn not_a_minimum(text: &str) -> String {
    format!("is not of the form CLASS=COUNT: {}", quoted(text))
}

impl fmt::Display for MinIdle {
    /// Writes a text that is read back as the same setting.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries: Vec<String> = self.entries.iter().map(ToString::to_string).collect();
        f.write_str(&entries.join("; "))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Window { days, span, zone }) = &self.window {
            write!(f, "{days} {span} {} ", zone.iana_name().unwrap_or("UTC"))?;
        }
        let minimums: Vec<String> = self.minimums.iter().map(ToString::to_string).collect();
        f.write_str(&minimums.join(" "))
    }
}

impl fmt::Display for Minimum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.class)?;
        if self.usage != UsageClass::OnDemand {
            write!(f, "/{}", self.usage)?;
        }
        if let Some(types) = &self.types {
            write!(f, "/{}", types.iter().collect::<Vec<_>>().join(","))?;
        }
        write!(f, "={}", self.count)
    }
}
