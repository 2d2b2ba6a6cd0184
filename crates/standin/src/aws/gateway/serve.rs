//! What happens at a door.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use hyper::http::request::Parts;

use crate::aws::call::Call;
use crate::aws::faults::{What, answers};
use crate::aws::models::Violation;
use crate::http::{Answer, Connection, Handler, Outcome};

use super::door::{DoorState, LogEntry};
use super::{Shared, route};
use crate::sync::locked;

/// A door, and what is behind it.
#[derive(Debug)]
pub(super) struct AtDoor {
    pub(super) door: Arc<DoorState>,
    pub(super) shared: Arc<Shared>,
}

impl Handler for AtDoor {
    async fn handle(&self, connection: Connection, head: Parts, body: Bytes) -> Outcome {
        let AtDoor { door, shared } = self;
        let call = Call::of(head.method, head.uri, head.headers, body);
        if let Some(models) = &shared.models {
            let violations = models.check(&call);
            let first = violations.first().filter(|_| shared.refuse_unknown).map(refusal);
            locked(&shared.violations).extend(violations);
            if let Some(refusal) = first {
                return Outcome::Answered(refusal);
            }
        }
        let plan = door.admit(connection, &call);
        let mut noting = Noting::new(door, shared, &call, plan.what);
        let outcome = route::perform(shared, &call, plan).await;
        noting.entry.status = outcome.status();
        outcome
    }
}

fn refusal(violation: &Violation) -> Answer {
    let message = format!("not as the API's models have it: {violation}");
    answers::refusal(violation.service, 400, "ValidationException", &message)
}

/// Logs a request when it is over, however it ends: a caller that gives up ends it too.
struct Noting<'a> {
    door: &'a DoorState,
    shared: &'a Shared,
    begun: Instant,
    entry: LogEntry,
}

impl<'a> Noting<'a> {
    fn new(
        door: &'a DoorState,
        shared: &'a Shared,
        call: &Call,
        fault: Option<What>,
    ) -> Noting<'a> {
        let entry = LogEntry {
            door: door.name().to_owned(),
            service: call.service,
            operation: call.operation.clone(),
            at: SystemTime::now(),
            took: Duration::ZERO,
            status: None,
            fault,
        };
        Noting { door, shared, begun: Instant::now(), entry }
    }
}

impl Drop for Noting<'_> {
    fn drop(&mut self) {
        self.entry.took = self.begun.elapsed();
        if let Some(watch) = &self.shared.watch {
            // Whoever has stopped listening does not want to know.
            watch.send(self.entry.clone()).ok();
        }
        self.door.note(self.entry.clone());
    }
}
