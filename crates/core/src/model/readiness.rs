//! What the agent of an idle machine says about its registration, in a pool whose machines register
//! while they are idle.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::excerpt::one_line;
use crate::model::machine_label::MachineLabel;
use crate::model::timestamp::Timestamp;

/// A machine that has just become idle is not ready for some seconds. One that is not after this is worth a
/// word.
pub const USUALLY_READY: Duration = Duration::from_secs(60);

/// Why a machine is not ready whose agent has said nothing about its idle state.
pub const NOTHING_SAID: &str = "its agent has not said that it is registered";

/// What an agent wrote last about the registration of its machine. A store keeps the latest one of each
/// machine, beside heartbeat and signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadinessNote {
    pub readiness: Readiness,
    /// When the agent sent it, by the agent's clock.
    pub at: Timestamp,
}

/// Whether an idle machine can serve a run without registering.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Readiness {
    /// It is registered, and its listener listens.
    Ready(IdleRegistration),
    /// It has to register first, or again.
    NotReady {
        /// When it was ready last, or began to register.
        since: Timestamp,
        /// The reason, in a few words.
        why: String,
    },
}

/// A registration that no run has had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleRegistration {
    /// Of the idle state that it is for. A renewal keeps it.
    pub generation: u32,
    pub label: MachineLabel,
    /// Which registration of this machine it is. A later one has a higher number.
    pub number: u32,
}

/// What a machine does when a run has claimed it, until it lets the run's jobs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimWay {
    /// It registers its runner.
    Registers,
    /// It is registered already.
    Ready,
}

impl Readiness {
    /// The JSON text that stores keep, which [`Readiness::read`] reads.
    pub fn stored(&self) -> String {
        // Neither variant holds anything that JSON has no form for.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads what [`Readiness::stored`] wrote. Logs what cannot be read, which counts as not written: the
    /// machine then registers when it is claimed.
    pub fn read(stored: &str) -> Option<Readiness> {
        match serde_json::from_str(stored) {
            Ok(readiness) => Some(readiness),
            Err(error) => {
                tracing::warn!("unreadable readiness: {}; skipped", one_line(&error));
                None
            }
        }
    }
}

impl ReadinessNote {
    /// The registration for this idle state; `None` if the machine is not ready in it.
    pub fn registration(&self, generation: u32) -> Option<&IdleRegistration> {
        match &self.readiness {
            Readiness::Ready(idle) if idle.generation == generation => Some(idle),
            Readiness::Ready(_) | Readiness::NotReady { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_read_again() {
        let label = MachineLabel::new(format!("m{}", "7".repeat(32))).unwrap();
        let at = Timestamp::from_millis(5_000);
        let ready = Readiness::Ready(IdleRegistration { generation: 3, label, number: 9 });
        let lost = Readiness::NotReady { since: at, why: "the listener \"died\"".to_owned() };
        for readiness in [ready, lost] {
            assert_eq!(Readiness::read(&readiness.stored()), Some(readiness));
        }
        assert_eq!(Readiness::read("soon"), None);
        assert_eq!(Readiness::read(r#"{"ready":{"generation":3,"label":"x","number":1}}"#), None);
    }

    #[test]
    fn a_registration_is_for_one_idle_state() {
        let label = MachineLabel::new(format!("m{}", "7".repeat(32))).unwrap();
        let idle = IdleRegistration { generation: 3, label, number: 9 };
        let at = Timestamp::from_millis(5_000);
        let note = ReadinessNote { readiness: Readiness::Ready(idle.clone()), at };
        assert_eq!(note.registration(3), Some(&idle));
        assert_eq!(note.registration(2), None);
        assert_eq!(note.registration(4), None, "the machine was given back meanwhile");
        let readiness = Readiness::NotReady { since: at, why: String::new() };
        assert_eq!(ReadinessNote { readiness, at }.registration(3), None);
    }
}
