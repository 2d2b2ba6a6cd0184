//! The store, as a simulated agent reaches it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::credentials::{Token, TokenPurpose};
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::readiness::ReadinessNote;
use ondeck_core::model::record::Record;
use ondeck_core::model::signal::{Report, Signal};
use ondeck_core::ports::{AgentStore, Clock, News, PortError, PortResult, Store};

use super::{ProcessPorts, lost, status_of};
use crate::faults::Fault;
use crate::kernel::Trigger;
use crate::world::{World, at_once};

/// The answer to an agent whose role does not permit the call.
fn denied() -> PortError {
    PortError::Unusable {
        service: "store",
        reason: "access denied".to_owned(),
        hint: "give the machine its role".to_owned(),
    }
}

#[async_trait]
impl AgentStore for ProcessPorts {
    async fn record(&self, id: &InstanceId) -> PortResult<Option<Record>> {
        let (id, agent) = (id.clone(), self.pid);
        let version = self.world.kernel.version(&id);
        self.read_version.store(version, Ordering::Relaxed);
        self.world.audit().asks(agent, self.world.kernel.now());
        let ask = move |w: &World| {
            if w.machines().is_denied(&id, w.kernel.now()) {
                w.audit().look_refused(agent, w.kernel.true_time());
                return Err(denied());
            }
            let record = at_once(w.store.record(&id))?;
            if let Some(arrives) = w.kernel.answer_at() {
                w.audit().answered(agent, record.as_ref(), (w.kernel.now(), arrives));
            }
            Ok(record)
        };
        self.ask("store", "record", String::new, ask).await
    }

    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        self.ask("store", "settings", String::new, |w| at_once(Store::settings(&w.store))).await
    }

    async fn token(&self, purpose: TokenPurpose) -> PortResult<Option<Token>> {
        self.ask("store", "token", String::new, move |w| at_once(w.store.token(purpose))).await
    }

    async fn news(&self, clock: &dyn Clock, poll: Duration, patience: Duration) -> News {
        let kernel = &self.world.kernel;
        let Some(id) = self.machine() else {
            clock.sleep(poll).await;
            return News::Unheard(None);
        };
        if self.policy.wake_ups_are_unheard(kernel.now()) {
            kernel.count(Fault::WakeUpsUnheard);
            clock.sleep(poll).await;
            return News::Unheard(Some(denied()));
        }
        if self.policy.wake_ups.is_some() {
            if !kernel.take_wake_up(&id) {
                kernel.sleep(self.pid, patience, Some(Trigger::Woken(id.clone()))).await;
                if !kernel.take_wake_up(&id) {
                    return News::Quiet;
                }
            }
            return News::Announced;
        }
        let is_news = kernel.version(&id) != self.read_version.load(Ordering::Relaxed);
        let trigger = self.policy.store_notifies().then_some(Trigger::Changed(id));
        if !is_news || trigger.is_none() {
            kernel.sleep(self.pid, poll, trigger).await;
        }
        News::Unheard(None)
    }

    async fn beat(&self, id: &InstanceId, heartbeat: &Heartbeat) -> PortResult<()> {
        let (id, heartbeat) = (id.clone(), *heartbeat);
        let agent = self.pid;
        self.world.audit().beats(agent, &id, &heartbeat, &self.world.machines(), self.now());
        let then = self.world.machines().listening(&id, self.world.kernel.now());
        let beat = move |w: &World| {
            let now = w.kernel.now();
            if w.machines().is_denied(&id, now) {
                return Err(denied());
            }
            if w.machines().has_stopped_heartbeats(&id, now) {
                return Err(lost("store"));
            }
            if let Some(machine) = w.machines().machine_mut(&id) {
                machine.condition.last_beat = Some(now);
            }
            if heartbeat.interrupted {
                w.audit().says_that_it_is_interrupted(&id, w.kernel.true_time());
            }
            at_once(w.store.beat(&id, &heartbeat))?;
            let (status, true_time) = (status_of(w, &id), w.kernel.true_time());
            w.audit().beats_ready(&id, &status, &then, true_time);
            let machines = w.machines();
            if let (Some(view), Some(condition)) = (machines.view(&id), machines.condition(&id)) {
                w.audit().beats_listening(&id, &status, &view, condition, true_time);
            }
            Ok(())
        };
        self.ask("store", "beat", String::new, beat).await
    }

    async fn report(&self, id: &InstanceId, report: &Report) -> PortResult<()> {
        let (id, report, shown) = (id.clone(), report.clone(), report.clone());
        let write = move |w: &World| {
            if w.machines().is_denied(&id, w.kernel.now()) {
                return Err(denied());
            }
            let broken = matches!(report.signal, Signal::PrepareFailed | Signal::DeregisterFailed);
            if let Some(machine) = w.machines().machine_mut(&id) {
                machine.condition.is_broken |= broken;
            }
            at_once(w.store.report(&id, &report))
        };
        let text = move || {
            let run = shown.run.as_ref().map_or("", RunId::as_str);
            format!("{} {run} {}", shown.signal, shown.detail)
        };
        self.ask("store", "report", text, write).await
    }

    async fn note_readiness(&self, id: &InstanceId, note: &ReadinessNote) -> PortResult<bool> {
        let (id, note, shown) = (id.clone(), note.clone(), note.clone());
        self.world.audit().tries_to_say(&id, self.world.kernel.true_time());
        let write = move |w: &World| {
            if w.machines().is_denied(&id, w.kernel.now()) {
                return Err(denied());
            }
            if !w.machines().has_stopped_notes(&id, w.kernel.now()) {
                return at_once(w.store.note_readiness(&id, &note));
            }
            // Half of them arrive.
            if note.at.millis().is_multiple_of(2) {
                at_once(w.store.note_readiness(&id, &note))?;
            }
            Err(lost("store"))
        };
        let of = self.machine();
        let noted = self.ask("store", "readiness", move || shown.readiness.stored(), write).await;
        // The answer may have taken long.
        if let Some(id) = of {
            self.world.audit().tries_to_say(&id, self.world.kernel.true_time());
        }
        noted
    }
}
