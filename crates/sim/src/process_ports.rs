//! The ports of one simulated process. Every port call passes through here to the kernel, which
//! decides when it takes effect; the policy decides which fault is injected.

mod agent_store;
mod compute;
mod forge;
mod pool;
mod store;

pub(crate) use self::forge::{TOO_MANY_REQUESTS, has_a_job};
pub(crate) use self::store::{demand_of, registered, status_of};
use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::ticket::Ticket;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Clock, PortError, PortResult};

use crate::agent_machine::TROUBLE;
use crate::faults::{CallBehaviour, CrashPoint, Fault};
use crate::kernel::{CallEnd, Micros, Pid, timestamp};
use crate::policy::{CallRequest, Policy};
use crate::world::World;

pub(crate) struct ProcessPorts {
    pub(crate) world: Arc<World>,
    pub(crate) pid: Pid,
    pub(crate) name: String,
    policy: Arc<Policy>,
    skew: Duration,
    random: Mutex<fastrand::Rng>,
    calls: AtomicU32,
    /// How many requests about runs and runners it has sent to a forge that limits them.
    requests: AtomicU32,
    /// The call that failed last, and when.
    failed: Mutex<Option<(&'static str, Micros)>>,
    crash_at: Option<(u32, CrashPoint)>,
    /// The version of the agent's record when it was last read.
    read_version: AtomicU64,
}

/// The faults of one process that are decided when it starts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessFaults {
    pub(crate) skew: Duration,
    /// The number of the call at which it dies.
    pub(crate) crash_at: Option<(u32, CrashPoint)>,
}

impl ProcessPorts {
    pub(crate) fn new(
        world: &Arc<World>,
        policy: &Arc<Policy>,
        name: &str,
        faults: ProcessFaults,
    ) -> ProcessPorts {
        ProcessPorts {
            world: world.clone(),
            pid: world.kernel.add_process(name),
            name: name.to_owned(),
            policy: policy.clone(),
            skew: faults.skew,
            random: Mutex::new(policy.random_for(name)),
            calls: AtomicU32::new(0),
            requests: AtomicU32::new(0),
            failed: Mutex::default(),
            crash_at: faults.crash_at,
            read_version: AtomicU64::new(0),
        }
    }

    pub(crate) fn random(&self) -> MutexGuard<'_, fastrand::Rng> {
        self.random.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether everything takes the same time instead of a random one.
    pub(crate) fn has_fixed_durations(&self) -> bool {
        self.policy.fixed_durations
    }

    /// The machine of an agent; `None` for any other process.
    fn machine(&self) -> Option<InstanceId> {
        let id = self.name.strip_prefix("agent ")?.split('#').next()?;
        InstanceId::new(id).ok()
    }

    /// Draws whether a fault that does not concern a single call is injected now, and counts it.
    pub(crate) fn injects(&self, fault: Fault) -> bool {
        let injected = self.policy.injects(fault, self.world.kernel.now(), &mut self.random());
        if injected {
            self.world.kernel.count(fault);
        }
        injected
    }

    /// The service that refuses to be set up by this process, however often it asks, and whether it was
    /// given a forge that is not that of the pool.
    fn refusing_service(&self) -> Option<(SetUpService, bool)> {
        let mut random = self.policy.random_for(&format!("set-up {}", self.name));
        let now = self.world.kernel.now();
        let injected = self.policy.injects(Fault::SetUpRefused, now, &mut random);
        let of = [SetUpService::Compute, SetUpService::Forge][random.usize(0..2)];
        let is_another = of == SetUpService::Forge && random.bool();
        injected.then_some((of, is_another))
    }

    /// Whether the process was given a forge that is not that of the pool.
    fn has_another_forge(&self) -> bool {
        self.refusing_service().is_some_and(|(_, is_another)| is_another)
    }

    /// Decides whether this service refuses to be set up by this process, however often it asks.
    fn refuses_set_up(&self, service: SetUpService) -> bool {
        let refuses = self.refusing_service().is_some_and(|(of, _)| of == service);
        if refuses {
            self.world.kernel.count(Fault::SetUpRefused);
            self.world.audit().set_up_refused(self.pid);
        }
        refuses
    }

    /// Makes one call to `service`. `what` names the request and `text` describes it; `effect` is
    /// what the service does. Fails if the answer is lost.
    pub(crate) async fn call<T: Debug + Send + 'static>(
        &self,
        service: &'static str,
        what: &'static str,
        text: impl FnOnce() -> String,
        mut effect: impl FnMut() -> PortResult<T> + Send + 'static,
    ) -> PortResult<T> {
        let kernel = &self.world.kernel;
        // The note of an idle machine is repeated at the pace of the heartbeat that waits for it.
        let is_judged = what != "readiness";
        if let Some((_, at)) = self.failed().take_if(|(failed, _)| is_judged && *failed == what) {
            self.world.audit().pauses(Duration::from_micros(kernel.now() - at));
        }
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let needs_words = self.policy.needs_words(&self.name);
        let text = if kernel.records_requests() || needs_words { text() } else { String::new() };
        let words = if needs_words { format!("{what} {text}") } else { String::new() };
        let behaviour = self.behaviour(service, number, &words);
        let answer = Arc::new(Mutex::new(None));
        let slot = answer.clone();
        let recorder = kernel.clone();
        let effect = move || {
            let answered = effect();
            let shown = if recorder.records_answers() { shown(&answered) } else { String::new() };
            // If the request arrives twice, the caller gets the answer to the first.
            slot.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(answered);
            shown
        };
        match kernel.begin(self.pid, (what, text), behaviour, effect).await {
            CallEnd::Answered => {
                let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
                answer.unwrap_or_else(|| Err(lost(service)))
            }
            CallEnd::Lost => {
                self.failed().get_or_insert((what, kernel.now()));
                Err(lost(service))
            }
        }
    }

    fn failed(&self) -> MutexGuard<'_, Option<(&'static str, Micros)>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn behaviour(&self, service: &'static str, number: u32, words: &str) -> CallBehaviour {
        let now = self.world.kernel.now();
        let request = CallRequest { process: &self.name, number, service, words };
        let behaviour = self.policy.behaviour(request, now, &mut self.random());
        if behaviour.fault.is_some()
            && let Some(id) = self.machine()
        {
            self.world.machines().trouble(&id, now + TROUBLE);
        }
        match self.crash_at {
            Some((at, crash)) if at == number => behaviour.with_crash(crash),
            _ => behaviour,
        }
    }

    fn ask<T: Debug + Send + 'static>(
        &self,
        service: &'static str,
        what: &'static str,
        text: impl FnOnce() -> String,
        mut ask: impl FnMut(&World) -> PortResult<T> + Send + 'static,
    ) -> impl Future<Output = PortResult<T>> {
        let world = self.world.clone();
        self.call(service, what, text, move || ask(&world))
    }
}

/// A service that may refuse to be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SetUpService {
    Compute,
    Forge,
}

fn lost(service: &'static str) -> PortError {
    PortError::Unavailable { service, reason: "no answer".to_owned() }
}

/// The answer for the journal.
fn shown<T: Debug>(answer: &PortResult<T>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => error.to_string(),
    }
}

fn listed<T: ToString>(things: &[T]) -> String {
    things.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn named(tickets: &[Ticket]) -> String {
    let ticket = |t: &Ticket| format!("{} until {}", t.instance_id, t.threshold);
    tickets.iter().map(ticket).collect::<Vec<_>>().join(", ")
}

#[async_trait]
impl Clock for ProcessPorts {
    fn now(&self) -> Timestamp {
        timestamp(self.world.kernel.now()) + self.skew
    }

    /// The skew of a process never changes, so the shifted time is steady, too.
    fn steady(&self) -> Duration {
        Duration::from_millis(self.now().millis())
    }

    async fn sleep(&self, span: Duration) {
        self.world.kernel.sleep(self.pid, span, None).await;
    }
}
