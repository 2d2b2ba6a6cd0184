//! Post-provision: the three endings. Success commits everything. An expected failure returns the
//! claimed machines and terminates the created ones. Any other failure dumps all that was touched.

mod dump;
mod rollback;
mod success;

pub(super) use self::dump::dump;
pub(super) use self::rollback::roll_back;
pub(super) use self::success::succeed;

use crate::model::ids::InstanceId;

/// What a rollback or a dump did.
#[derive(Debug, Default)]
pub(super) struct CleanUp {
    pub(super) terminated: Vec<InstanceId>,
    pub(super) returned: Vec<InstanceId>,
    /// Messages about what could not be undone.
    pub(super) failures: Vec<String>,
}
