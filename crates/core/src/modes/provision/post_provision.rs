//! Post-provision: the three endings. Success commits everything; an expected failure gives back
//! what was claimed and ends what was created; anything else dumps all that was touched.

mod dump;
mod rollback;
mod success;

pub(super) use self::dump::dump;
pub(super) use self::rollback::roll_back;
pub(super) use self::success::succeed;

use crate::model::ids::InstanceId;

/// What an ending other than success came to.
#[derive(Debug, Default)]
pub(super) struct CleanUp {
    pub(super) terminated: Vec<InstanceId>,
    pub(super) returned: Vec<InstanceId>,
    /// What could not be undone, in words.
    pub(super) failures: Vec<String>,
}
