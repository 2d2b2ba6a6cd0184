//! Release: gives a run's machines back to the pool, by a handshake with each agent.

use std::time::Duration;

use futures_util::future::join_all;

use crate::inputs::times::TimeOverrides;
use crate::inputs::times::Times;
use crate::lifecycle::{Instance, Live, Running};
use crate::model::failure::{Failure, Kind};
use crate::model::ids::{InstanceId, RunId};
use crate::model::record::{MachineSpec, Record, State};
use crate::modes::handshake::{Handshake, Returned};
use crate::modes::plane::{NotCommitted, Plane, readable};
use crate::ports::PortResult;

/// What came of a release.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The run.
    pub run: RunId,
    /// Each machine that the run had.
    pub instances: Vec<Released>,
    /// How long it took.
    pub took: Duration,
}

/// One machine that the run had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    /// Which.
    pub id: InstanceId,
    /// What it is.
    pub spec: MachineSpec,
    /// What became of it.
    pub fate: Fate,
    /// How long it had been working for the run; nothing where it never came to that.
    pub held: Option<Duration>,
    /// What it did for the run, in its agent's words; empty where it says nothing.
    pub account: String,
}

/// What became of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It waits in the pool.
    Pooled,
    /// It was ended, because no idle time is allowed or left.
    Ended,
    /// It did not answer, failed, or had outlived its threshold.
    Expired(String),
    /// A provision that did not finish had left it; it is expired.
    Leftover(State),
    /// It was the run's no more when its turn came.
    MovedOn(String),
}

impl Outcome {
    /// The failure to report, if machines were lost.
    pub fn failure(&self) -> Option<Failure> {
        let lost = self.instances.iter().filter(|one| matches!(one.fate, Fate::Expired(_)));
        let ids: Vec<&str> = lost.map(|one| one.id.as_str()).collect();
        if ids.is_empty() {
            return None;
        }
        let message = format!("did not come back and were expired: {}", ids.join(" "));
        Some(
            Failure::new(Kind::PartlyReleased, message)
                .hint("nobody will be given them; those that live end themselves, refresh sooner"),
        )
    }
}

/// Releases whatever the run has.
pub async fn release(
    plane: &Plane,
    run: &RunId,
    times: &TimeOverrides,
) -> Result<Outcome, Failure> {
    let begun = plane.clock.steady();
    let times = times.over(plane.settings().await?.times);
    let started = plane.now();
    let listing = plane.retried(|| plane.store.of_run(run)).await?;
    let records = readable(listing);
    plane.progress.stage(&format!("waiting for machines to deregister: {}", records.len()));
    let leaving = Leaving { plane, run, times: &times, handshake: Handshake::new(plane, &times) };
    let releases = records.iter().map(|record| leaving.let_go(record));
    let left = join_all(releases).await.into_iter().collect::<PortResult<Vec<Left>>>()?;
    let released = |(record, (fate, account)): (Record, Left)| Released {
        held: (record.state == State::Running).then(|| started.since(record.updated_at)),
        id: record.id,
        spec: record.spec,
        fate,
        account,
    };
    let instances = records.into_iter().zip(left).map(released).collect();
    let took = plane.clock.steady().saturating_sub(begun);
    Ok(Outcome { run: run.clone(), instances, took })
}

/// What became of a machine, and its agent's account.
type Left = (Fate, String);

/// One release under way.
struct Leaving<'a> {
    plane: &'a Plane,
    run: &'a RunId,
    times: &'a Times,
    handshake: Handshake<'a>,
}

impl Leaving<'_> {
    async fn let_go(&self, record: &Record) -> PortResult<Left> {
        let Some(running) = Instance::<Running>::believe(record) else {
            return self.expire_leftover(record).await;
        };
        let change = running.release(self.plane.now(), self.times.idle_time);
        let idle = match self.plane.commit(change).await {
            Ok(idle) => idle,
            Err(NotCommitted::Refused(refused)) => {
                let why = refused.to_string();
                let still_ours = refused.found.as_ref().is_some_and(|found| self.owns(found));
                let fate = if still_ours { Fate::Expired(why) } else { Fate::MovedOn(why) };
                return Ok((fate, String::new()));
            }
            Err(NotCommitted::Unreachable(error)) => return Err(error),
        };
        Ok(match self.handshake.take_back(&idle, self.run).await? {
            Returned::Pooled { account } => (Fate::Pooled, account),
            Returned::Ended { account } => (Fate::Ended, account),
            Returned::Expired(why) => (Fate::Expired(why), String::new()),
            Returned::MovedOn(why) => (Fate::MovedOn(why), String::new()),
        })
    }

    /// A machine that is still `created` or `claimed` when its run is over belongs to a provision
    /// that did not live to finish; unless it finishes at this very moment, and then the machine
    /// is let go like any other.
    async fn expire_leftover(&self, record: &Record) -> PortResult<Left> {
        let silent = |fate| Ok((fate, String::new()));
        let Some(leftover) = Instance::<Live>::believe(record) else {
            return silent(Fate::MovedOn(format!("it is {}", record.state)));
        };
        let change = leftover.expire(self.plane.now()).because("its provision did not finish");
        match self.plane.commit(change).await {
            Ok(_) => silent(Fate::Leftover(record.state)),
            Err(NotCommitted::Refused(refused)) => match refused.found.as_ref() {
                Some(found) if found.state == State::Running && self.owns(found) => {
                    Box::pin(self.let_go(found)).await
                }
                _ => silent(Fate::MovedOn(refused.to_string())),
            },
            Err(NotCommitted::Unreachable(error)) => Err(error),
        }
    }

    fn owns(&self, record: &Record) -> bool {
        record.run.as_ref() == Some(self.run)
    }
}
