//! `ondeck status`: shows the machines of the pool, once or every second.

use std::time::Duration;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::record::{Record, Unreadable};
use ondeck_core::model::signal::AgentStatus;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::plane::Plane;
use ondeck_core::ports::RecordScope;

use crate::control::backend;
use crate::control::github_actions::Step;
use crate::control::progress::NoProgress;
use crate::control::report::{Report, clear_screen, deliver, print};
use crate::inputs::{Common, rows};
use crate::logging;
use crate::output::unwritten;
use crate::surroundings::stop_on_signals;

/// The machines and the pool, as they were at `now`.
pub(crate) struct Snapshot {
    pub(crate) now: Timestamp,
    pub(crate) instances: Vec<(Record, AgentStatus)>,
    pub(crate) pool: Vec<(String, usize)>,
    pub(crate) unreadable: Vec<Unreadable>,
}

/// Runs the command and returns its exit code. With `--watch` it ends on a signal, or when its reader
/// closes the pipe.
pub(crate) async fn status(common: &Common) -> u8 {
    logging::start(common, std::io::stderr);
    let scope = if common.given.is_set(&rows::ALL) { RecordScope::All } else { RecordScope::Live };
    let plane = match backend::plane(common, std::sync::Arc::new(NoProgress)).await {
        Ok(plane) => plane,
        Err(failure) => return deliver("status", Err(failure), common),
    };
    if !common.given.is_set(&rows::WATCH) {
        let snapshot = Snapshot::take(&plane, scope).await;
        let report = snapshot.as_ref().map(|s| s as &dyn Report).map_err(Clone::clone);
        return deliver("status", report, common);
    }
    let stop = stop_on_signals();
    let step = Step::current();
    let watching = async {
        loop {
            let text = Snapshot::take(&plane, scope).await?.text();
            let text = step.as_ref().map_or(text.clone(), |step| step.text(&text));
            if let Err(error) = clear_screen().and_then(|()| print(&text)) {
                return unwritten("stdout", &error).map_or(Ok(()), Err);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    match stop.unless_raised(watching).await {
        Ok(Err(failure)) => deliver("status", Err(failure), common),
        Ok(Ok(())) | Err(_) => 0,
    }
}

impl Snapshot {
    /// Reads records, agents and queues. Fails if the store or a queue does not answer.
    pub(crate) async fn take(plane: &Plane, scope: RecordScope) -> Result<Snapshot, Failure> {
        let settings = plane.settings().await?;
        let listing = plane.store.list(scope).await?;
        let ids: Vec<InstanceId> = listing.records.iter().map(|record| record.id.clone()).collect();
        let status = plane.store.agent_status(&ids).await?;
        let mut pool = Vec::new();
        for class in settings.classes.names() {
            pool.push((class.to_string(), plane.pool.depth(class).await?.total()));
        }
        Ok(Snapshot {
            now: plane.now(),
            instances: listing.records.into_iter().zip(status).collect(),
            pool,
            unreadable: listing.unreadable,
        })
    }
}
