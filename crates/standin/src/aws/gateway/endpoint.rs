//! A way into the gateway, with counters and rules of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use crate::aws::call::{Call, Service};
use crate::aws::faults::{AwsFault, AwsFaultRule, Plan};
use crate::http::{Connection, Gate};
use crate::injection::ActiveFault;

use crate::sync::locked;

/// A listener of the gateway. What passes here is counted here, and disturbed by the rules that
/// were given here. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Endpoint(Arc<EndpointState>);

/// A request, and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEntry {
    /// At which door.
    pub endpoint: String,
    /// Of which service.
    pub service: Service,
    /// Which operation.
    pub operation: String,
    /// When it came.
    pub at: SystemTime,
    /// How long it took, delays included.
    pub took: Duration,
    /// What was answered; nothing where there was no answer.
    pub status: Option<u16>,
    /// What was done to it, other than delays.
    pub fault: Option<AwsFault>,
}

#[derive(Debug)]
pub(crate) struct EndpointState {
    name: String,
    url: String,
    calls: Mutex<BTreeMap<(Service, String), usize>>,
    connections: Mutex<BTreeSet<Connection>>,
    log: Mutex<Vec<LogEntry>>,
    rules: Mutex<Vec<ActiveFault<AwsFaultRule>>>,
    gate: watch::Sender<Gate>,
}

impl Endpoint {
    pub(super) fn new(name: &str, listener: &TcpListener) -> Endpoint {
        let address = listener.local_addr().expect("a listener has an address");
        Endpoint(Arc::new(EndpointState {
            name: name.to_owned(),
            url: format!("http://{address}"),
            calls: Mutex::default(),
            connections: Mutex::default(),
            log: Mutex::default(),
            rules: Mutex::default(),
            gate: watch::Sender::new(Gate::Open),
        }))
    }

    /// What to point `AWS_ENDPOINT_URL` to.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How many calls there were of each operation, disturbed ones included.
    pub fn calls(&self) -> BTreeMap<(Service, String), usize> {
        locked(&self.0.calls).clone()
    }

    /// How many calls there were.
    pub fn total(&self) -> usize {
        locked(&self.0.calls).values().sum()
    }

    /// How many calls there were of one operation.
    pub fn count(&self, service: Service, operation: &str) -> usize {
        locked(&self.0.calls).get(&(service, operation.to_owned())).copied().unwrap_or(0)
    }

    /// How many connections the calls came over that were counted.
    pub fn connections(&self) -> usize {
        locked(&self.0.connections).len()
    }

    /// Every request that is over, in the order in which they were.
    pub fn log(&self) -> Vec<LogEntry> {
        locked(&self.0.log).clone()
    }

    /// Forgets what was counted and logged. Rules stay.
    pub fn reset(&self) {
        locked(&self.0.calls).clear();
        locked(&self.0.connections).clear();
        locked(&self.0.log).clear();
    }

    /// Adds a rule, behind those that are there.
    pub fn inject(&self, rule: AwsFaultRule) -> ActiveFault<AwsFaultRule> {
        let active = ActiveFault::new(rule);
        locked(&self.0.rules).push(active.clone());
        active
    }

    /// Ends all rules.
    pub fn clear_faults(&self) {
        locked(&self.0.rules).clear();
    }

    /// Refuses connections from now on, and resets those that there are, as where the service is
    /// gone. The address stays this door's.
    pub fn shut(&self) {
        self.0.gate.send_replace(Gate::Shut);
    }

    /// Takes connections again.
    pub fn reopen(&self) {
        self.0.gate.send_replace(Gate::Open);
    }

    pub(super) fn state(&self) -> Arc<EndpointState> {
        self.0.clone()
    }
}

impl EndpointState {
    /// Counts a call, and says what is to happen to it.
    pub(super) fn admit(&self, connection: Connection, call: &Call) -> Plan {
        locked(&self.connections).insert(connection);
        *locked(&self.calls).entry((call.service, call.operation.clone())).or_default() += 1;
        Plan::of(call, &locked(&self.rules))
    }

    pub(super) fn gate(&self) -> watch::Receiver<Gate> {
        self.gate.subscribe()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn note(&self, entry: LogEntry) {
        locked(&self.log).push(entry);
    }
}
