//! Labels of machines: what a runner is registered with if it is registered before its run is known.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::excerpt::quoted;
use crate::model::ids::RunId;
use crate::model::label::{Label, LabelSuffix};
use crate::ports::Random;

/// What a label of a machine begins with. No run's id does.
const FIRST: char = 'm';

/// How many hexadecimal digits follow.
const DIGITS: usize = 32;

/// Which label the runners of a pool are registered with: a setting of the pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RunnerLabel {
    /// The label of the run. A machine registers when a run has claimed it.
    #[default]
    Run,
    /// A label of the machine's own. A machine registers while it is idle.
    Machine,
}

impl std::str::FromStr for RunnerLabel {
    type Err = String;

    fn from_str(text: &str) -> Result<RunnerLabel, String> {
        match text.trim() {
            "run" => Ok(RunnerLabel::Run),
            "machine" => Ok(RunnerLabel::Machine),
            _ => Err(format!("is none of run, machine: {}", quoted(text))),
        }
    }
}

/// The label of one registration of one machine: the letter `m` and 32 hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MachineLabel(String);

/// Why a text is not a label of a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not {FIRST} and {DIGITS} hexadecimal digits: {}", quoted(.0))]
pub struct InvalidMachineLabel(String);

impl MachineLabel {
    /// A label that no other registration has.
    pub fn random(random: &dyn Random) -> MachineLabel {
        MachineLabel(format!("{FIRST}{:016x}{:016x}", random.number(), random.number()))
    }

    /// Checks the text. Fails if it has another form, or capital letters.
    pub fn new(text: impl Into<String>) -> Result<MachineLabel, InvalidMachineLabel> {
        let text = text.into();
        let is_digit = |c: char| c.is_ascii_digit() || matches!(c, 'a'..='f');
        let digits = text.strip_prefix(FIRST).unwrap_or_default();
        match digits.len() == DIGITS && digits.chars().all(is_digit) {
            true => Ok(MachineLabel(text)),
            false => Err(InvalidMachineLabel(text)),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MachineLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MachineLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for MachineLabel {
    type Error = InvalidMachineLabel;
    fn try_from(text: String) -> Result<MachineLabel, InvalidMachineLabel> {
        MachineLabel::new(text)
    }
}

impl From<MachineLabel> for String {
    fn from(label: MachineLabel) -> String {
        label.0
    }
}

/// What the owner of a machine wants its runner to be registered with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RequestedLabel {
    /// The owner's own label, or there is no owner.
    #[default]
    OfRun,
    /// A label of the machine's choice, which its agent reports.
    OfMachine,
    /// A label that jobs of the run already wait for.
    Named(MachineLabel),
}

/// What stands for [`RequestedLabel::OfMachine`] in a record. It is no label of a machine.
const ANY: &str = "machine";

impl RequestedLabel {
    /// The label that is named, if one is.
    pub fn named(&self) -> Option<&MachineLabel> {
        match self {
            RequestedLabel::Named(label) => Some(label),
            RequestedLabel::OfRun | RequestedLabel::OfMachine => None,
        }
    }

    /// What stores keep beside the run's id: as [`Label::stored`], and after it, if the machine is not
    /// registered with the label of the run, what it is registered with.
    pub fn stored(&self, run: Option<&RunId>, suffix: Option<&LabelSuffix>) -> String {
        let word = match self {
            RequestedLabel::OfRun => return Label::stored(run, suffix),
            RequestedLabel::OfMachine => ANY,
            RequestedLabel::Named(label) => label.as_str(),
        };
        let label = run.map(|run| Label::new(run.clone(), suffix.cloned()));
        label.map_or_else(String::new, |label| format!("{label} {word}"))
    }

    /// Reads what [`RequestedLabel::stored`] wrote. What is not about this run counts as none: a version
    /// that does not know it changes the run and leaves the text as it is.
    pub fn read(run: Option<&RunId>, stored: &str) -> (Option<LabelSuffix>, RequestedLabel) {
        let Some((label, word)) = stored.split_once(' ') else {
            return (Label::read_suffix(run, stored), RequestedLabel::OfRun);
        };
        let Some(label) = run.and_then(|run| Label::of_run(run, label)) else {
            return (None, RequestedLabel::OfRun);
        };
        let requested = match MachineLabel::new(word) {
            Ok(named) => RequestedLabel::Named(named),
            Err(_) if word == ANY => RequestedLabel::OfMachine,
            Err(_) => RequestedLabel::OfRun,
        };
        (label.suffix, requested)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::SeededRandom;

    fn label(digit: char) -> MachineLabel {
        MachineLabel::new(format!("m{}", digit.to_string().repeat(32))).unwrap()
    }

    #[test]
    fn labels_of_machines_are_checked_on_entry() {
        assert_eq!(label('0').as_str().len(), 33);
        let sixteen = "0123456789abcdef";
        assert!(MachineLabel::new(format!("m{sixteen}{sixteen}")).is_ok());
        for bad in [
            String::new(),
            "m".to_owned(),
            format!("m{}", "0".repeat(31)),
            format!("m{}", "0".repeat(33)),
            format!("x{}", "0".repeat(32)),
            format!("M{}", "0".repeat(32)),
            format!("m{}", "A".repeat(32)),
            format!("m{} ", "0".repeat(31)),
            format!("m{}", "é".repeat(16)),
        ] {
            let error = MachineLabel::new(bad.clone()).unwrap_err().to_string();
            assert!(error.contains("32 hexadecimal digits"), "{bad:?}: {error}");
        }
    }

    #[test]
    fn each_registration_has_a_label_of_its_own() {
        let random = SeededRandom::new(1);
        let [one, other] = [(), ()].map(|()| MachineLabel::random(&random));
        assert_ne!(one, other);
        for drawn in [one, other] {
            assert_eq!(MachineLabel::new(drawn.as_str()), Ok(drawn));
        }
    }

    #[test]
    fn what_an_owner_wants_is_read_as_it_was_stored() {
        let run: RunId = "7".parse().unwrap();
        for suffix in [None, Some("large".parse().unwrap())] {
            for requested in [
                RequestedLabel::OfRun,
                RequestedLabel::OfMachine,
                RequestedLabel::Named(label('a')),
            ] {
                let stored = requested.stored(Some(&run), suffix.as_ref());
                let read = RequestedLabel::read(Some(&run), &stored);
                assert_eq!(read, (suffix.clone(), requested.clone()), "{stored:?}");
                let of_another = RequestedLabel::read(Some(&"8".parse().unwrap()), &stored);
                assert_eq!(of_another, (None, RequestedLabel::OfRun), "{stored:?}");
                assert_eq!(RequestedLabel::read(None, &stored), (None, RequestedLabel::OfRun));
                // Of a version that knows no labels of machines.
                let known = requested == RequestedLabel::OfRun;
                let suffix = suffix.clone().filter(|_| known);
                assert_eq!(Label::read_suffix(Some(&run), &stored), suffix, "{stored:?}");
            }
        }
        let odd = RequestedLabel::read(Some(&run), "7-large later");
        assert_eq!(odd, (Some("large".parse().unwrap()), RequestedLabel::OfRun));
        assert_eq!(RequestedLabel::OfMachine.stored(None, None), "");
    }

    #[test]
    fn the_setting_is_one_of_two_words() {
        assert_eq!("run".parse(), Ok(RunnerLabel::Run));
        assert_eq!(" machine ".parse(), Ok(RunnerLabel::Machine));
        let error = "jit".parse::<RunnerLabel>().unwrap_err();
        assert_eq!(error, r#"is none of run, machine: "jit""#);
    }
}
