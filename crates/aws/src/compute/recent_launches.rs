//! Machines that this process has launched recently.
//!
//! For some seconds after a launch, other parts of EC2 may answer that there is no such machine. A
//! caller that terminates it must not take that for terminated.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ondeck_core::ports::Machine;

/// How long EC2 may not know a launched machine. Seconds are usual. A terminated one is listed for an
/// hour, so the two are not confused.
pub(super) const YOUNG: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
pub(super) struct RecentLaunches(Mutex<HashMap<String, Instant>>);

impl RecentLaunches {
    pub(super) fn note(&self, machines: &[Machine], now: Instant) {
        let mut launched = self.launched();
        launched.retain(|_, at| now.duration_since(*at) < YOUNG);
        launched.extend(machines.iter().map(|machine| (machine.id.to_string(), now)));
    }

    /// Whether a machine is so new that EC2 may not know it yet.
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
            image: None,
        };
        let (fresh, start) = (RecentLaunches::default(), Instant::now());
        fresh.note(&[machine("i-1")], start);
        assert!(fresh.has("i-1", start) && !fresh.has("i-2", start));
        assert!(!fresh.has("i-1", start + YOUNG));
        fresh.note(&[machine("i-2")], start + YOUNG);
        assert_eq!(fresh.launched().len(), 1, "machines that are no longer new are removed");
    }
}
