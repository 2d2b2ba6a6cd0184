//! Status: reads the pool once. [`judgement`] says what that means.

pub mod judgement;

use std::time::Duration;

use futures_util::future::{join_all, join4};

use crate::model::ceiling::MachineCount;
use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, ResourceClass};
use crate::model::record::{EventRow, Record, Unreadable};
use crate::model::settings::Settings;
use crate::model::signal::AgentStatus;
use crate::model::timestamp::Timestamp;
use crate::modes::plane::Plane;
use crate::ports::{Listing, PortResult, RecordScope};

/// How far back hand-overs are looked for.
pub const WINDOW: Duration = Duration::from_secs(24 * 3_600);
/// How many hand-overs are looked at, the latest ones: one batched read.
pub const HAND_OVERS: usize = 100;

#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub scope: RecordScope,
    /// Whether to read the latest hand-overs. A caller that reads often may keep those of before.
    pub hand_overs: bool,
    /// Whether a call that fails is repeated. A caller that reads often need not.
    pub retries: bool,
}

/// What a pool was like at one moment.
#[derive(Debug, Clone)]
pub struct Reading {
    pub at: Timestamp,
    pub settings: Settings,
    /// The records of the scope, each with what its agent has written.
    pub machines: Vec<(Record, AgentStatus)>,
    pub unreadable: Vec<Unreadable>,
    /// How many tickets the queue of each class has.
    pub tickets: Vec<(ResourceClass, usize)>,
    /// The stored count of machines. `None` if there is neither a ceiling nor a cap, no count, or no
    /// permission.
    pub count: Option<MachineCount>,
    /// The latest hand-overs, newest first. `None` if they were not asked for, or cannot be read.
    pub hand_overs: Option<Vec<EventRow>>,
}

impl Reading {
    /// Reads settings, records, agent status and queues, and, where they apply, the count of machines
    /// and the latest hand-overs. Makes each call once, but for retries; all that does not need another
    /// answer is asked for at the same time.
    ///
    /// Fails if the store or a queue does not answer. The count and the hand-overs are only missing
    /// then: a role of an earlier version may not read the count.
    pub async fn take(plane: &Plane, asked: Asked) -> Result<Reading, Failure> {
        let settings = plane.settings_once(asked.retries).await?;
        let machines = async {
            let listing = call(plane, asked, || plane.store.list(asked.scope)).await?;
            let ids: Vec<InstanceId> = listing.records.iter().map(|it| it.id.clone()).collect();
            let status = match ids.as_slice() {
                [] => Vec::new(),
                ids => call(plane, asked, || plane.store.agent_status(ids)).await?,
            };
            PortResult::Ok((listing, status))
        };
        let depths = settings.classes.names().map(async |class| {
            let depth = call(plane, asked, || plane.pool.depth(class)).await?;
            PortResult::Ok((class.clone(), depth.total()))
        });
        let count = async {
            let is_asked = settings.max_machines.is_set() || settings.max_spend_per_day.is_some();
            let count = call(plane, asked, || plane.store.machine_count());
            if is_asked { or_unknown("the count of machines", count.await).flatten() } else { None }
        };
        let hand_overs = async {
            let now = plane.now();
            let latest = || plane.store.hand_overs(now.before(WINDOW), now, HAND_OVERS);
            let latest = call(plane, asked, latest);
            if asked.hand_overs { or_unknown("hand-overs", latest.await) } else { None }
        };
        let (machines, depths, count, hand_overs) =
            join4(machines, join_all(depths), count, hand_overs).await;
        let (Listing { records, unreadable }, status) = machines?;
        let tickets = depths.into_iter().collect::<PortResult<_>>()?;
        let machines = records.into_iter().zip(status).collect();
        let at = plane.now();
        Ok(Reading { at, settings, machines, unreadable, tickets, count, hand_overs })
    }
}

async fn call<T, F>(plane: &Plane, asked: Asked, mut call: impl FnMut() -> F) -> PortResult<T>
where
    F: Future<Output = PortResult<T>>,
{
    if asked.retries { plane.retried(call).await } else { call().await }
}

fn or_unknown<T>(what: &str, answer: PortResult<T>) -> Option<T> {
    answer.inspect_err(|error| tracing::debug!("{what} not read: {error}")).ok()
}
