//! The time limit of a refresh.
//!
//! A refresh with a limit waits for no machine: what it launches stays `created`, and a later refresh
//! with a limit hands it over. When the time is nearly up it stops as after a signal, and the next
//! refresh continues.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::inputs::times::{TimeSpec, Unit};
use crate::inputs::{Given, Input, Mode};
use crate::model::failure::{Failure, FailureKind};
use crate::modes::plane::Plane;
use crate::runtime::stop::{Stop, StopSignal};

/// The shortest limit: slow repairs, a launch and a clean-up fit into it.
pub const SHORTEST: Duration = Duration::from_secs(30);

/// How long before its limit a refresh is told to stop. A clean-up takes 5 s at most.
const CLEAN_UP: Duration = Duration::from_secs(6);

/// What must be left so that a launch is begun: the order, its records, and the time above.
const LAUNCH: Duration = Duration::from_secs(12);

/// How long a refresh with a limit waits for agents that leave a run. One that takes longer is
/// announced by the next refresh.
const HANDSHAKES: Duration = Duration::from_secs(10);

const SPEC: TimeSpec =
    TimeSpec { input: "time-limit-sec", unit: Unit::Seconds, may_be_zero: false };

pub const TIME_LIMIT: Input = Input::call(
    SPEC.input,
    "SEC",
    "How long this refresh may take, at least 30; it waits for no new machine, and the next refresh \
     with a limit continues",
    &[Mode::Refresh],
)
.or_described("no limit")
.checked(|text| parse(text).map(drop));

fn parse(text: &str) -> Result<Duration, String> {
    let limit = SPEC.parse(text)?;
    match limit < SHORTEST {
        true => Err(format!("must be at least {}: {text}", SHORTEST.as_secs())),
        false => Ok(limit),
    }
}

/// The limit among the given inputs.
pub fn time_limit(given: &Given) -> Result<Option<Duration>, Failure> {
    let text = given.text(&TIME_LIMIT).filter(|text| !text.is_empty());
    let invalid = |problem| Failure::invalid(format!("{} {problem}", TIME_LIMIT.name));
    text.map(|text| parse(text).map_err(invalid)).transpose()
}

/// When a refresh must have ended, in steady time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    ends: Duration,
}

impl Limit {
    /// How much time is left.
    pub(super) fn left(self, plane: &Plane) -> Duration {
        self.ends.saturating_sub(plane.clock.steady())
    }

    /// Whether there is time to launch machines.
    pub(super) fn allows_launch(self, plane: &Plane) -> bool {
        self.left(plane) >= LAUNCH
    }
}

/// Runs `work` with a stop signal that is raised with `stop`, or shortly before the limit.
pub(super) async fn within<T>(
    plane: &Plane,
    limit: Duration,
    stop: &StopSignal,
    work: impl AsyncFnOnce(Limit, &StopSignal) -> T,
) -> T {
    let limit = Limit { ends: plane.clock.steady() + limit };
    let (switch, signal) = StopSignal::new();
    let raise = async {
        let time_up = plane.clock.sleep(limit.left(plane).saturating_sub(CLEAN_UP));
        switch.raise(match select(pin!(stop.raised()), time_up).await {
            Either::Left((stop, _)) => stop,
            Either::Right(_) => Stop::TimeUp,
        });
        std::future::pending::<Infallible>().await
    };
    match select(pin!(work(limit, &signal)), pin!(raise)).await {
        Either::Left((done, _)) => done,
        Either::Right((never, _)) => match never {},
    }
}

/// Runs `work` to its end; with a limit, until the handshakes with agents have taken too long. Then it
/// is dropped half-way, and the result is `None`.
pub(super) async fn handshakes<T>(
    plane: &Plane,
    limit: Option<Limit>,
    work: impl Future<Output = T>,
) -> Option<T> {
    if limit.is_none() {
        return Some(work.await);
    }
    match select(pin!(work), plane.clock.sleep(HANDSHAKES)).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}

/// The warning of a refresh that has no time left to launch machines.
pub(super) const NO_TIME: &str = "no time is left to launch machines, the next refresh does";

/// The failure of a refresh that has not come as far as its repairs must.
pub(super) fn too_short() -> Failure {
    Failure::new(
        FailureKind::Unavailable,
        "the time limit was reached before the repairs were done",
    )
    .hint("raise --time-limit-sec, or run ondeck refresh without it once")
}
