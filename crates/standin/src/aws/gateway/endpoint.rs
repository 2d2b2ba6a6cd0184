//! An endpoint of the gateway, with its own counters, log and fault rules.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::watch;

use crate::aws::call::{Call, Service};
use crate::aws::faults::{AwsFault, AwsFaultRule, Plan, contains};
use crate::aws::units::{Consumption, PartitionKey, Units};
use crate::http::{Connection, Gate};
use crate::injection::ActiveFault;

use crate::sync::locked;

/// An address of the gateway. It counts the calls that it receives and injects the faults of its
/// own rules. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Endpoint(Arc<EndpointState>);

/// A request that has finished, with or without an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEntry {
    /// The name of the endpoint that received it.
    pub endpoint: String,
    pub service: Service,
    pub operation: String,
    /// When the request arrived.
    pub at: SystemTime,
    /// How long it took, delays included.
    pub took: Duration,
    /// The status of the answer; `None` if there was none.
    pub status: Option<u16>,
    /// The fault that was injected, other than a delay.
    pub fault: Option<AwsFault>,
    /// The body of the request. Empty without
    /// [`GatewayOptions::record_bodies`](super::GatewayOptions::record_bodies).
    pub body: Bytes,
}

impl LogEntry {
    /// When the answer was sent, or the request was given up.
    pub fn ended(&self) -> SystemTime {
        self.at + self.took
    }

    /// Whether the body of the request contains this text.
    pub fn mentions(&self, text: &str) -> bool {
        contains(&self.body, text)
    }
}

#[derive(Debug)]
pub(crate) struct EndpointState {
    name: String,
    url: String,
    calls: Mutex<BTreeMap<(Service, String), usize>>,
    connections: Mutex<BTreeSet<Connection>>,
    log: Mutex<Vec<LogEntry>>,
    consumed: Mutex<Consumption>,
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
            consumed: Mutex::default(),
            rules: Mutex::default(),
            gate: watch::Sender::new(Gate::Open),
        }))
    }

    /// The value for the caller's `AWS_ENDPOINT_URL`.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How many calls there were of each operation, including those with a fault.
    pub fn calls(&self) -> BTreeMap<(Service, String), usize> {
        locked(&self.0.calls).clone()
    }

    /// How many calls there were of all operations.
    pub fn total(&self) -> usize {
        locked(&self.0.calls).values().sum()
    }

    /// How many calls there were of one operation.
    pub fn count(&self, service: Service, operation: &str) -> usize {
        locked(&self.0.calls).get(&(service, operation.to_owned())).copied().unwrap_or(0)
    }

    /// How many connections the counted calls used.
    pub fn connections(&self) -> usize {
        locked(&self.0.connections).len()
    }

    /// Every finished request, in the order in which they finished.
    pub fn log(&self) -> Vec<LogEntry> {
        locked(&self.0.log).clone()
    }

    /// The units that DynamoDB bills for the calls since the last reset, by partition key. Empty
    /// without [`GatewayOptions::measure_units`](super::GatewayOptions::measure_units).
    pub fn consumed(&self) -> Consumption {
        locked(&self.0.consumed).clone()
    }

    /// Clears counters, log and units. Fault rules stay in force.
    pub fn reset(&self) {
        locked(&self.0.calls).clear();
        locked(&self.0.connections).clear();
        locked(&self.0.log).clear();
        locked(&self.0.consumed).clear();
    }

    /// Puts a fault rule in force, after the existing ones.
    pub fn inject(&self, rule: AwsFaultRule) -> ActiveFault<AwsFaultRule> {
        let active = ActiveFault::new(rule);
        locked(&self.0.rules).push(active.clone());
        active
    }

    /// Removes all fault rules of this endpoint.
    pub fn clear_faults(&self) {
        locked(&self.0.rules).clear();
    }

    /// Resets all connections and refuses new ones, as if the service were down. The
    /// endpoint keeps its address.
    pub fn shut(&self) {
        self.0.gate.send_replace(Gate::Shut);
    }

    /// Accepts connections again after [`shut`](Endpoint::shut).
    pub fn reopen(&self) {
        self.0.gate.send_replace(Gate::Open);
    }

    pub(super) fn state(&self) -> Arc<EndpointState> {
        self.0.clone()
    }
}

impl EndpointState {
    /// Counts a call and returns the delay and fault for it.
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

    pub(super) fn consume(&self, charges: Vec<(PartitionKey, Units)>) {
        let mut consumed = locked(&self.consumed);
        for (key, units) in charges {
            *consumed.entry(key).or_default() += units;
        }
    }

    pub(super) fn note(&self, entry: LogEntry) {
        locked(&self.log).push(entry);
    }
}
