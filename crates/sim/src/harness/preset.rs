//! Adds machines and tickets that exist before a scene begins.

use std::time::Duration;

use ondeck_core::lifecycle::{Idle, Instance};
use ondeck_core::model::ids::{InstanceId, IntentId, ResourceClass};
use ondeck_core::model::record::Counts;
use ondeck_core::model::record::{MachineSpec, Record, State};
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::ticket::Ticket;
use ondeck_core::ports::{Machine, Pool};

use super::Harness;
use crate::world::at_once;

/// How long an added machine may stay idle: longer than heartbeats may be missing.
pub(crate) const IDLE_TIME: Duration = Duration::from_secs(900);

impl Harness {
    /// Adds an idle machine with this number of tickets, and starts its agent.
    pub(crate) fn add_idle(&mut self, id: &str, tickets: usize) {
        let now = self.kernel.true_time();
        let record = Record {
            requested: ondeck_core::model::machine_label::RequestedLabel::OfRun,
            id: InstanceId::new(id).expect("a sound id"),
            state: State::Idle,
            run: None,
            threshold: Some(now + IDLE_TIME),
            spec: MachineSpec {
                resource_class: ResourceClass::new("large").expect("a sound name"),
                instance_type: "c6i.large".to_owned(),
                usage_class: UsageClass::OnDemand,
                cpu: 2,
                mem: 4096,
            },
            created_at: now,
            updated_at: now,
            ticketed_at: Some(now),
            settings_version: None,
            reuse: ondeck_core::model::reuse::Reuse::Always,
            departure: ondeck_core::model::departure::Departure::None,
            suffix: None,
            counts: Counts::default(),
        };
        let machine = Machine {
            id: record.id.clone(),
            spec: record.spec.clone(),
            intent: IntentId::new("preset").expect("a sound id"),
            launched_at: now,
            image: None,
        };
        self.world.audit().existing(&record);
        self.world.store.insert(record.clone());
        self.world.compute.insert(machine.clone());
        self.world.machines().launched(&[machine]);
        self.world.machines().take_launched();
        let idle: Instance<Idle> = Instance::believe(&record).expect("it is idle");
        for _ in 0..tickets {
            self.send(&idle.ticket());
        }
        self.boot(&record.id);
    }

    /// Sends a ticket of an earlier idle state of this machine, which ended before its threshold.
    pub(crate) fn send_stale(&mut self, id: &str) {
        let record = self.world.store.select(|record| record.id.as_str() == id).pop();
        let idle: Option<Instance<Idle>> = record.as_ref().and_then(Instance::believe);
        if let Some(mut ticket) = idle.map(|idle| idle.ticket()) {
            ticket.threshold = ticket.threshold.before(Duration::from_secs(50));
            self.send(&ticket);
        }
    }

    pub(super) fn send(&self, ticket: &Ticket) {
        let sent = at_once(self.world.pool.send(std::slice::from_ref(ticket), Duration::ZERO));
        sent.expect("an in-memory pool");
    }
}
