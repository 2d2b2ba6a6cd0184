//! What runners register with.

use serde::{Deserialize, Serialize};

use crate::model::secret::Secret;
use crate::model::timestamp::Timestamp;

/// What an agent needs from the forge in order to put its runner on the list and to take it off
/// again. Short-lived: refresh has it made and writes it down, agents read it when they need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Puts a runner on the list.
    pub registration: Secret,
    /// Takes it off.
    pub removal: Secret,
    /// When the first of the two becomes worthless.
    pub expires_at: Timestamp,
}

/// What everybody may know about the credentials that were written down last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Minted {
    /// Where runners register with them. They are worthless anywhere else.
    pub target: String,
    /// When refresh had them made.
    pub minted_at: Timestamp,
    /// When they become worthless.
    pub expires_at: Timestamp,
}
