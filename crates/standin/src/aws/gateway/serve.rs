//! Handles the requests of one endpoint: checks, counts, performs and logs them.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use hyper::http::request::Parts;

use crate::aws::call::Call;
use crate::aws::faults::{AwsFault, answers};
use crate::aws::models::Violation;
use crate::http::{Answer, Connection, Handler, Outcome};

use super::endpoint::{EndpointState, LogEntry};
use super::{Shared, route};
use crate::sync::locked;

/// The request handler of one endpoint.
#[derive(Debug)]
pub(super) struct EndpointHandler {
    pub(super) endpoint: Arc<EndpointState>,
    pub(super) shared: Arc<Shared>,
}

impl Handler for EndpointHandler {
    async fn handle(&self, connection: Connection, head: Parts, body: Bytes) -> Outcome {
        let EndpointHandler { endpoint, shared } = self;
        let call = Call::of(head.method, head.uri, head.headers, body);
        if let Some(models) = &shared.models {
            let violations = models.check(&call);
            let first = violations.first().filter(|_| shared.refuse_unknown).map(refusal);
            locked(&shared.violations).extend(violations);
            if let Some(refusal) = first {
                return Outcome::Answered(refusal);
            }
        }
        let plan = endpoint.admit(connection, &call);
        let mut noting = Noting::new(endpoint, shared, &call, plan.fault);
        let outcome = route::perform(self, &call, plan).await;
        noting.entry.status = outcome.status();
        outcome
    }
}

fn refusal(violation: &Violation) -> Answer {
    let message = format!("not as the API's models have it: {violation}");
    answers::refusal(violation.service, 400, "ValidationException", &message)
}

/// Logs a request when it is dropped, so that a request whose caller gave up is logged too.
struct Noting<'a> {
    endpoint: &'a EndpointState,
    shared: &'a Shared,
    begun: Instant,
    entry: LogEntry,
}

impl<'a> Noting<'a> {
    fn new(
        endpoint: &'a EndpointState,
        shared: &'a Shared,
        call: &Call,
        fault: Option<AwsFault>,
    ) -> Noting<'a> {
        let entry = LogEntry {
            endpoint: endpoint.name().to_owned(),
            service: call.service,
            operation: call.operation.clone(),
            at: SystemTime::now(),
            took: Duration::ZERO,
            status: None,
            fault,
            body: if shared.record_bodies { call.body.clone() } else { Bytes::new() },
        };
        Noting { endpoint, shared, begun: Instant::now(), entry }
    }
}

impl Drop for Noting<'_> {
    fn drop(&mut self) {
        self.entry.took = self.begun.elapsed();
        if let Some(watch) = &self.shared.watch {
            // The receiver may be gone, and then the entry is not needed.
            watch.send(self.entry.clone()).ok();
        }
        self.endpoint.note(self.entry.clone());
    }
}
