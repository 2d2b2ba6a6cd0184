//! Whether a machine may serve more than one run.

use serde::{Deserialize, Serialize};

use crate::model::excerpt::quoted;

/// The text of [`Reuse::Preserved`] in a record. Versions that do not know it read it as `never`.
const PRESERVED: &str = "preserved";

/// What happens to a machine after its run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reuse {
    /// It returns to the pool.
    #[default]
    Always,
    /// It is terminated. The run also gets no machine that has served another run before.
    Never,
    /// The run has failed, and the machine stays as it is until its threshold, for people to examine.
    /// It takes no further job, not even of its run. No input says so; release writes it.
    Preserved,
}

impl Reuse {
    /// The stricter of the two.
    #[must_use]
    pub fn stricter(self, other: Reuse) -> Reuse {
        self.max(other)
    }

    /// Whether the machine serves no run after the present one.
    pub fn is_never(self) -> bool {
        self >= Reuse::Never
    }

    /// The text in a record. The default is the empty text, which versions without this setting
    /// leave.
    pub fn stored(self) -> &'static str {
        match self {
            Reuse::Always => "",
            Reuse::Never => "never",
            Reuse::Preserved => PRESERVED,
        }
    }

    /// Reads the text in a record. A text of a later version counts as `never`.
    pub fn read(stored: &str) -> Reuse {
        match stored {
            "" => Reuse::Always,
            PRESERVED => Reuse::Preserved,
            _ => Reuse::Never,
        }
    }
}

impl std::str::FromStr for Reuse {
    type Err = String;

    fn from_str(word: &str) -> Result<Reuse, String> {
        match word {
            "always" => Ok(Reuse::Always),
            "never" => Ok(Reuse::Never),
            _ => Err(format!("is none of always, never: {}", quoted(word))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_can_make_it_stricter_and_never_laxer() {
        let (always, never) = (Reuse::Always, Reuse::Never);
        for (one, other, expected) in [
            (always, always, always),
            (always, never, never),
            (never, always, never),
            (never, never, never),
        ] {
            assert_eq!(one.stricter(other), expected, "{one:?} {other:?}");
        }
    }

    #[test]
    fn a_text_of_another_version_is_read_strictly() {
        for reuse in [Reuse::Always, Reuse::Never, Reuse::Preserved] {
            assert_eq!(Reuse::read(reuse.stored()), reuse);
        }
        assert_eq!(Reuse::read("same-branch"), Reuse::Never);
    }

    #[test]
    fn no_input_preserves_a_machine() {
        assert!("preserved".parse::<Reuse>().is_err());
        assert!(Reuse::Preserved.is_never());
    }
}
