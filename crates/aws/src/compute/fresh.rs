//! Machines that EC2 may not know yet.
//!
//! For some seconds after a launch, other parts of EC2 than the one that has launched may say
//! that there is no such machine. To whoever wants to end it that must not mean that it is gone.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ondeck_core::ports::Machine;

/// How long a machine may be unknown that was launched. Seconds are usual; one that has ended is
/// still known for an hour, so that nothing else is taken for this.
const YOUNG: Duration = Duration::from_secs(300);

/// What this process has launched of late.
#[derive(Debug, Default)]
pub(super) struct Fresh(Mutex<HashMap<String, Instant>>);

impl Fresh {
    pub(super) fn note(&self, machines: &[Machine], now: Instant) {
        let mut launched = self.launched();
        launched.retain(|_, at| now.duration_since(*at) < YOUNG);
        launched.extend(machines.iter().map(|machine| (machine.id.to_string(), now)));
    }

    /// Whether a machine is so new that to be unknown says nothing about it.
    pub(super) fn has(&self, id: &str, now: Instant) -> bool {
        self.launched().get(id).is_some_and(|at| now.duration_since(*at) < YOUNG)
    }

    fn launched(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use ondeck_core::model::record::MachineSpec;
    use ondeck_core::model::requirements::UsageClass;
    use ondeck_core::model::timestamp::Timestamp;

    use super::*;

    #[test]
    fn a_machine_is_new_for_a_while() {
        let machine = |id: &str| Machine {
            id: id.parse().unwrap(),
            spec: MachineSpec {
                resource_class: "large".parse().unwrap(),
                instance_type: "c6i.large".to_owned(),
                usage_class: UsageClass::Spot,
                cpu: 2,
                mem: 4096,
            },
            intent: "a".parse().unwrap(),
            launched_at: Timestamp::from_millis(0),
        };
        let (fresh, start) = (Fresh::default(), Instant::now());
        fresh.note(&[machine("i-1")], start);
        assert!(fresh.has("i-1", start) && !fresh.has("i-2", start));
        assert!(!fresh.has("i-1", start + YOUNG));
        fresh.note(&[machine("i-2")], start + YOUNG);
        assert_eq!(fresh.launched().len(), 1, "what is no longer new is forgotten");
    }
}
