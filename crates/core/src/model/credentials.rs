//! The credentials that agents register runners with.

use serde::{Deserialize, Serialize};

use crate::model::secret::Secret;
use crate::model::timestamp::Timestamp;

/// The tokens with which an agent registers and removes its runner. They are short-lived: refresh
/// mints and stores them, and agents read them when they need them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    pub registration: Secret,
    pub removal: Secret,
    /// When the first of the two expires.
    pub expires_at: Timestamp,
}

/// What an agent needs a token for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenPurpose {
    /// Adding a runner to the forge's list.
    Registration,
    /// Taking it off the list.
    Removal,
}

impl TokenPurpose {
    pub fn as_str(self) -> &'static str {
        match self {
            TokenPurpose::Registration => "registration",
            TokenPurpose::Removal => "removal",
        }
    }
}

/// One of the tokens of [`Credentials`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub secret: Secret,
    pub expires_at: Timestamp,
}

impl Credentials {
    pub fn token(&self, purpose: TokenPurpose) -> Token {
        let secret = match purpose {
            TokenPurpose::Registration => &self.registration,
            TokenPurpose::Removal => &self.removal,
        };
        Token { secret: secret.clone(), expires_at: self.expires_at }
    }
}

/// The public facts about the credentials that were stored last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Minted {
    /// The organization or repository that they are valid for.
    pub target: String,
    pub minted_at: Timestamp,
    pub expires_at: Timestamp,
}
