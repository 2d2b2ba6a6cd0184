//! The times of stored settings, read without core's parser.

use std::collections::BTreeMap;
use std::time::Duration;

/// The defaults that the reference of inputs states, of the times that the auditor asks for.
const DEFAULTS: [(&str, &str); 7] = [
    ("ceiling-patience-sec", "0"),
    ("claim-timeout-sec", "300"),
    ("created-timeout-sec", "600"),
    ("heartbeat-period-sec", "5"),
    ("idle-time-sec", "300"),
    ("max-runtime-min", "30"),
    ("release-timeout-sec", "120"),
];

/// A time of the settings by its input; `None` if it is not stored and has no default.
pub(crate) fn span(settings: &BTreeMap<String, String>, input: &str) -> Option<Duration> {
    let stored = settings.get(input).map(String::as_str).filter(|text| !text.is_empty());
    let default = DEFAULTS.iter().find(|(known, _)| *known == input).map(|(_, text)| *text);
    read(input, stored.or(default)?)
}

/// Reads a time in the unit that the name of its input ends with.
pub(crate) fn read(input: &str, text: &str) -> Option<Duration> {
    let number: f64 = text.parse().ok()?;
    let unit = if input.ends_with("-min") { 60.0 } else { 1.0 };
    Some(Duration::from_secs_f64(number * unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_in_the_name() {
        let stored = [("a-sec", "1.5"), ("b-min", "2"), ("c-sec", "")];
        let stored = stored.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        assert_eq!(span(&stored, "a-sec"), Some(Duration::from_millis(1_500)));
        assert_eq!(span(&stored, "b-min"), Some(Duration::from_secs(120)));
        assert_eq!(span(&stored, "c-sec"), None);
        assert_eq!(span(&stored, "d-sec"), None);
        assert_eq!(span(&stored, "idle-time-sec"), Some(Duration::from_secs(300)));
    }
}
