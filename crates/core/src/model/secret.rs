//! What must not be seen.

use std::fmt;

/// A text that shows itself to nobody who does not ask for it by name: not in a log, not in an
/// error, not in a panic.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    /// From here on it is one.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// For the one place that has to hand it on.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Secret, Self::Err> {
        Ok(Secret::new(text))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_does_not_show_itself() {
        let secret = Secret::new("ghp_abc");
        assert_eq!(
            format!("{secret:?} {secret:#?} {:?}", [&secret]),
            "(secret) (secret) [(secret)]"
        );
        assert_eq!(secret.expose(), "ghp_abc");
    }
}
