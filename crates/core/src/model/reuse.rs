//! Whether a machine may serve more than one run.

use serde::{Deserialize, Serialize};

use crate::model::excerpt::quoted;

/// What happens to a machine after its run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reuse {
    /// It returns to the pool.
    #[default]
    Always,
    /// It is terminated. The run also gets no machine that has served another run before.
    Never,
}

impl Reuse {
    /// The stricter of the two.
    #[must_use]
    pub fn stricter(self, other: Reuse) -> Reuse {
        self.max(other)
    }

    pub fn is_never(self) -> bool {
        self == Reuse::Never
    }

    /// The text in a record. The default is the empty text, which versions without this setting
    /// leave.
    pub fn stored(self) -> &'static str {
        match self {
            Reuse::Always => "",
            Reuse::Never => "never",
        }
    }

    /// Reads the text in a record. A text of a later version counts as the strictest value.
    pub fn read(stored: &str) -> Reuse {
        if stored.is_empty() { Reuse::Always } else { Reuse::Never }
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
        for reuse in [Reuse::Always, Reuse::Never] {
            assert_eq!(Reuse::read(reuse.stored()), reuse);
        }
        assert_eq!(Reuse::read("same-branch"), Reuse::Never);
    }
}
