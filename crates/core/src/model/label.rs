//! Labels: what jobs name in `runs-on`, and what the runners that take them register with.
//!
//! A run may ask for machines several times, each time under a suffix of its own, so that jobs of
//! one run can choose between them. The machines belong to the run in any case.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::excerpt::quoted;
use crate::model::ids::RunId;

const LONGEST: usize = 32;

/// What tells the labels of one run apart (`large`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LabelSuffix(String);

/// Why a text is not a label suffix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not 1 to {LONGEST} characters of a-z, 0-9 and '-': {}", quoted(.0))]
pub struct InvalidSuffix(String);

impl LabelSuffix {
    /// Checks the text. Fails if it is empty, too long, or has other characters than lowercase
    /// letters, digits and hyphens.
    pub fn new(text: impl Into<String>) -> Result<LabelSuffix, InvalidSuffix> {
        let text = text.into();
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        match (1..=LONGEST).contains(&text.len()) && text.chars().all(allowed) {
            true => Ok(LabelSuffix(text)),
            false => Err(InvalidSuffix(text)),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LabelSuffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LabelSuffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for LabelSuffix {
    type Error = InvalidSuffix;
    fn try_from(text: String) -> Result<LabelSuffix, InvalidSuffix> {
        LabelSuffix::new(text)
    }
}

impl std::str::FromStr for LabelSuffix {
    type Err = InvalidSuffix;
    fn from_str(text: &str) -> Result<LabelSuffix, InvalidSuffix> {
        LabelSuffix::new(text)
    }
}

impl From<LabelSuffix> for String {
    fn from(suffix: LabelSuffix) -> String {
        suffix.0
    }
}

/// The label of a run's machines: the run's id, or the id with a suffix.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    pub run: RunId,
    pub suffix: Option<LabelSuffix>,
}

impl Label {
    pub fn new(run: RunId, suffix: Option<LabelSuffix>) -> Label {
        Label { run, suffix }
    }

    /// The label of `run` that `text` is; `None` if it is not one.
    pub fn of_run(run: &RunId, text: &str) -> Option<Label> {
        let suffix = match text.strip_prefix(run.as_str())? {
            "" => None,
            rest => Some(LabelSuffix::new(rest.strip_prefix('-')?).ok()?),
        };
        Some(Label { run: run.clone(), suffix })
    }

    /// What stores keep beside the run's id: the label if it has a suffix, otherwise nothing.
    pub fn stored(run: Option<&RunId>, suffix: Option<&LabelSuffix>) -> String {
        match (run, suffix) {
            (Some(run), Some(suffix)) => format!("{run}-{suffix}"),
            _ => String::new(),
        }
    }

    /// Reads the suffix from what [`Label::stored`] wrote. A text that is not a label of this run
    /// counts as none: a version without labels changes the run and leaves the text as it is.
    pub fn read_suffix(run: Option<&RunId>, stored: &str) -> Option<LabelSuffix> {
        Label::of_run(run?, stored)?.suffix
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.suffix {
            None => self.run.fmt(f),
            Some(suffix) => write!(f, "{}-{suffix}", self.run),
        }
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<&RunId> for Label {
    fn from(run: &RunId) -> Label {
        Label { run: run.clone(), suffix: None }
    }
}

impl From<&Label> for Label {
    fn from(label: &Label) -> Label {
        label.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(run: &str, suffix: &str) -> Label {
        Label::new(RunId::new(run).unwrap(), Some(suffix.parse().unwrap()))
    }

    #[test]
    fn suffixes_are_checked_on_entry() {
        for good in ["large", "8xlarge", "a", "-", "x-1", &"x".repeat(32)] {
            assert_eq!(LabelSuffix::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "Large", "a b", "a_b", "a.b", "ä", "a\nb", &"x".repeat(33)] {
            let error = LabelSuffix::new(bad).unwrap_err().to_string();
            assert!(error.contains("a-z, 0-9"), "{bad:?}: {error}");
        }
    }

    #[test]
    fn a_label_is_read_as_it_is_shown() {
        let plain = Label::from(&RunId::new("7").unwrap());
        for (label, text) in
            [(plain, "7"), (label("7", "large"), "7-large"), (label("7", "-"), "7--")]
        {
            assert_eq!(label.to_string(), text);
            assert_eq!(Label::of_run(&label.run, text), Some(label.clone()));
            let stored = Label::stored(Some(&label.run), label.suffix.as_ref());
            assert_eq!(Label::read_suffix(Some(&label.run), &stored), label.suffix);
        }
    }

    #[test]
    fn what_is_not_a_label_of_the_run_is_none() {
        let run = RunId::new("7").unwrap();
        for text in ["", "8", "77", "7large", "7-", "7-Large", "8-large", "77-large"] {
            assert_eq!(Label::of_run(&run, text), None, "{text}");
            assert_eq!(Label::read_suffix(Some(&run), text), None, "{text}");
        }
        assert_eq!(Label::read_suffix(None, "7-large"), None);
    }
}
