//! Texts that must not appear in logs, errors or panics.

use std::fmt;

/// A text whose `Debug` form hides it, and that has no `Display` form.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// Returns the text. Only for the call that has to send it.
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
    fn debug_output_hides_the_text() {
        let secret = Secret::new("ghp_abc");
        assert_eq!(
            format!("{secret:?} {secret:#?} {:?}", [&secret]),
            "(secret) (secret) [(secret)]"
        );
        assert_eq!(secret.expose(), "ghp_abc");
    }
}
