//! Ids of instances, runs, intents and resource classes.
//!
//! Each is checked when it enters the program, so nothing downstream has to wonder whether an
//! id is empty, contains a blank, or would break a label, a file name or a log line.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::excerpt::quoted;

/// Why a text is not a valid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {problem}: {}", quoted(value))]
pub struct InvalidId {
    what: &'static str,
    problem: &'static str,
    value: String,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks the text. Fails if it is empty, too long, or has characters that an id must
            /// not have.
            pub fn new(value: impl Into<String>) -> Result<Self, InvalidId> {
                let value = value.into();
                match problem(&value, $max) {
                    None => Ok(Self(value)),
                    Some(problem) => Err(InvalidId { what: $what, problem, value }),
                }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(value: String) -> Result<Self, InvalidId> {
                Self::new(value)
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidId;
            fn from_str(value: &str) -> Result<Self, InvalidId> {
                Self::new(value)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

id!(
    /// A machine, as records, tickets and runners name it. The compute adapter derives it from the
    /// [`ProviderName`].
    InstanceId, "instance id", 64
);
id!(
    /// A machine, as its provider's interface names it (`i-0123456789abcdef0`).
    ProviderName, "machine name", 64
);
id!(
    /// A workflow run. It is also the only label of the runners that work for it.
    RunId, "run id", 128
);
id!(
    /// One decision to launch machines; doubles as the launch's idempotency token.
    IntentId, "intent id", 64
);
id!(
    /// The name of a size of machine (`large`); each has a queue of its own in the pool.
    ResourceClass, "resource class", 64
);

fn problem(value: &str, max: usize) -> Option<&'static str> {
    if value.is_empty() {
        return Some("is empty");
    }
    if value.len() > max {
        return Some("is too long");
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !value.chars().all(allowed) {
        return Some("may hold letters, digits, '-', '_' and '.' only");
    }
    if value.starts_with(['-', '.']) {
        return Some("must not start with '-' or '.'");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_checked_on_entry() {
        for good in ["1", "17283940", "run-9999", "a.b_c-d", "keep-warm-1"] {
            assert_eq!(RunId::new(good).unwrap().as_str(), good);
        }
        for (bad, problem) in [
            ("", "is empty"),
            ("a b", "may hold"),
            ("a/b", "may hold"),
            ("a\nb", "may hold"),
            ("-rf", "must not start"),
            ("..", "must not start"),
        ] {
            let error = RunId::new(bad).unwrap_err().to_string();
            assert!(error.contains(problem), "{bad:?}: {error}");
        }
        assert!(RunId::new("x".repeat(129)).is_err());
    }
}
