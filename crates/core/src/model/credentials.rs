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

/// The public facts about the credentials that were stored last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Minted {
    /// The organization or repository that they are valid for.
    pub target: String,
    pub minted_at: Timestamp,
    pub expires_at: Timestamp,
}
