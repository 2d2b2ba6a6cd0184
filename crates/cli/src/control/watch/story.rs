//! The story of a machine beside the machines: read when it is opened, and again when its record has
//! changed since. One is read at a time.

use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::timestamp::Timestamp;

use crate::control::report::explain::ExplainReport;

/// The story that is on the screen.
#[derive(Debug)]
pub(super) struct StoryPane {
    pub(super) of: InstanceId,
    /// `None` until it was read.
    pub(super) told: Option<Result<ExplainReport, Failure>>,
    /// The state of the record for which it was read, or is being read; `None` if for none.
    read_for: Option<Version>,
}

/// When the record changed last, and whether its events have had time to arrive; `None` if the machine is
/// not listed.
pub(super) type Version = Option<(Timestamp, bool)>;

/// Which story to read, and for which state of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) of: InstanceId,
    version: Version,
}

/// The stories of a view.
#[derive(Debug, Default)]
pub(super) struct Stories {
    pub(super) pane: Option<StoryPane>,
    is_reading: bool,
}

impl Stories {
    /// Shows the story of this machine from now on.
    pub(super) fn open(&mut self, of: InstanceId) {
        if self.pane.as_ref().is_none_or(|pane| pane.of != of) {
            self.pane = Some(StoryPane { of, told: None, read_for: None });
        }
    }

    /// The story to read now, if there is one and no other is being read. `version`: of the record of
    /// the machine.
    pub(super) fn wanted(&mut self, version: impl Fn(&InstanceId) -> Version) -> Option<Wanted> {
        let pane = self.pane.as_mut().filter(|_| !self.is_reading)?;
        let version = version(&pane.of);
        if pane.read_for.replace(version) == Some(version) {
            return None;
        }
        self.is_reading = true;
        Some(Wanted { of: pane.of.clone(), version })
    }

    /// Takes in what was read, unless another story is shown by now.
    pub(super) fn tell(&mut self, wanted: &Wanted, told: Result<ExplainReport, Failure>) {
        self.is_reading = false;
        if let Some(pane) = self.pane.as_mut().filter(|pane| pane.of == wanted.of) {
            pane.told = Some(told);
        }
    }

    /// Notes that the pool was read again: a story that could not be read is read once more.
    pub(super) fn pool_was_read(&mut self) {
        if let Some(pane) = self.pane.as_mut().filter(|pane| matches!(pane.told, Some(Err(_)))) {
            pane.read_for = None;
        }
    }
}
