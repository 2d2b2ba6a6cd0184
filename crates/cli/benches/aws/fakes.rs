//! Agents that are not there. Their signals are written past the gateway by the adapter of the agent:
//! in advance, or a fixed time after the write that an agent would answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::{join, join_all};
use ondeck_aws::DynamoStore;
use ondeck_core::model::heartbeat::{Heartbeat, LONGEST_PERIOD};
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::settings::AGENT_KEY_PREFIX;
use ondeck_core::model::signal::{Report, Signal};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{AgentStore, Store};
use ondeck_standin::{LogEntry, Service};

use crate::adapters::Adapters;
use crate::harness::BenchHarness;

/// What precedes the id of a machine in the key of its record.
const RECORD_KEY: &str = "INSTANCE#";

/// The agents of machines without processes. A clone stands for the same agents.
#[derive(Clone)]
pub(crate) struct FakeAgents(Arc<Inner>);

struct Inner {
    adapters: Adapters,
    /// What precedes the id of a machine in what AWS knows it by.
    prefix: String,
    stores: Mutex<BTreeMap<InstanceId, Arc<DynamoStore>>>,
    /// After which time agents answer a write; `None` if they do not.
    delay: Mutex<Option<Duration>>,
    /// The last answer of each agent.
    answered: Mutex<BTreeMap<InstanceId, Answer>>,
}

/// A signal of an agent, with what it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    signal: Signal,
    run: Option<RunId>,
    generation: Option<u32>,
}

impl FakeAgents {
    /// Agents of a pool that is set up. `requests` are those that its gateway has finished.
    pub(crate) fn start(harness: &BenchHarness, requests: Receiver<LogEntry>) -> FakeAgents {
        let adapters = harness.behind_gateway();
        let settings = adapters.runtime.block_on(Store::settings(&*adapters.store)).unwrap();
        let prefix = settings.get(AGENT_KEY_PREFIX).cloned().unwrap_or_default();
        let agents = FakeAgents(Arc::new(Inner {
            adapters,
            prefix,
            stores: Mutex::default(),
            delay: Mutex::default(),
            answered: Mutex::default(),
        }));
        let listening = agents.clone();
        // Ends with the gateway.
        std::thread::spawn(move || requests.iter().for_each(|request| listening.hear(&request)));
        agents
    }

    /// Sends a fresh heartbeat from each machine.
    pub(crate) fn beat(&self, ids: &[InstanceId]) {
        let beats = ids.iter().map(|id| self.send_heartbeat(id));
        self.0.adapters.runtime.block_on(join_all(beats));
    }

    /// Writes that the runner of each machine has registered for a run.
    pub(crate) fn register(&self, ids: &[InstanceId], run: &str) {
        self.say(ids, Signal::Registered, run);
    }

    /// Writes that each machine has left a run.
    pub(crate) fn deregister(&self, ids: &[InstanceId], run: &str) {
        self.say(ids, Signal::Deregistered, run);
    }

    fn say(&self, ids: &[InstanceId], signal: Signal, run: &str) {
        let run = Some(RunId::new(run).unwrap());
        let answer = Answer { signal, run, generation: None };
        let reports = ids.iter().map(|id| self.send(id, &answer));
        self.0.adapters.runtime.block_on(join_all(reports));
    }

    /// Answers each write of a record this long after the gateway has answered it, while `during`
    /// lasts.
    pub(crate) fn answering<T>(&self, delay: Duration, during: impl FnOnce() -> T) -> T {
        let set = |delay| *self.0.delay.lock().unwrap_or_else(PoisonError::into_inner) = delay;
        set(Some(delay));
        let result = during();
        set(None);
        result
    }

    fn hear(&self, request: &LogEntry) {
        let due = Instant::now();
        let delay = *self.0.delay.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(delay) = delay else { return };
        let reads = ["GetItem", "BatchGetItem", "Query"];
        let is_write = request.service == Service::DynamoDb
            && request.endpoint == "control"
            && request.status == Some(200)
            && !reads.contains(&request.operation.as_str());
        if !is_write {
            return;
        }
        let ids: Vec<InstanceId> = mentioned(&request.body).into_iter().collect();
        if !ids.is_empty() {
            let agents = self.clone();
            let answer = async move { agents.answer(&ids, due + delay).await };
            drop(self.0.adapters.runtime.spawn(answer));
        }
    }

    /// Answers a write of these machines' records. What these calls use of the computer's processors delays
    /// what is measured, so there is one read for all of them, and a heartbeat only of a machine that has
    /// not sent one in advance.
    async fn answer(&self, ids: &[InstanceId], due: Instant) {
        let listing = self.0.adapters.store.records(ids).await.unwrap();
        let answers = listing.records.iter().filter_map(|record| {
            let answer = Answer::to(record)?;
            self.is_news(&record.id, &answer).then_some((record, answer))
        });
        let answers: Vec<_> = answers.collect();
        tokio::time::sleep_until(due.into()).await;
        let sent = answers.iter().map(|(record, answer)| async {
            let beat = async {
                if record.state == State::Created {
                    self.send_heartbeat(&record.id).await;
                }
            };
            join(beat, self.send(&record.id, answer)).await;
        });
        join_all(sent).await;
    }

    /// Whether a machine has said something else before, if anything. It says this now.
    fn is_news(&self, id: &InstanceId, answer: &Answer) -> bool {
        let mut answered = self.0.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.insert(id.clone(), answer.clone()).as_ref() != Some(answer)
    }

    async fn send_heartbeat(&self, id: &InstanceId) {
        let beat = Heartbeat::new(now(), LONGEST_PERIOD);
        self.store(id).beat(id, &beat).await.unwrap();
    }

    async fn send(&self, id: &InstanceId, answer: &Answer) {
        let Answer { signal, run, generation } = answer.clone();
        let (suffix, detail) = (None, String::new());
        let report =
            Report { machine_label: None, signal, run, suffix, detail, at: now(), generation };
        self.store(id).report(id, &report).await.unwrap();
    }

    fn store(&self, id: &InstanceId) -> Arc<DynamoStore> {
        let mut stores = self.0.stores.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let identity = format!("{}{id}", self.0.prefix);
            Arc::new(DynamoStore::of_agent(&self.0.adapters.cloud, Some(identity)))
        };
        stores.entry(id.clone()).or_insert_with(make).clone()
    }
}

impl Answer {
    /// What an agent says to a record; `None` if it says nothing.
    fn to(record: &Record) -> Option<Answer> {
        let generation = Some(record.counts.generation);
        match record.state {
            State::Created | State::Claimed | State::Running => {
                let run = record.run.clone();
                Some(Answer { signal: Signal::Registered, run, generation: None })
            }
            State::Idle => Some(Answer { signal: Signal::Deregistered, run: None, generation }),
            State::Terminated => None,
        }
    }
}

/// The machines whose records a request names, each once.
fn mentioned(body: &[u8]) -> BTreeSet<InstanceId> {
    let text = String::from_utf8_lossy(body);
    let id = |rest: &str| {
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        InstanceId::new(&rest[..end.unwrap_or(rest.len())]).ok()
    };
    text.split(RECORD_KEY).skip(1).filter_map(id).collect()
}

fn now() -> Timestamp {
    Timestamp::try_from(SystemTime::now()).unwrap()
}
