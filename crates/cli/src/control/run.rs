//! `ondeck run`: a job for a run on the local forge, its output as it comes, its exit code.

use std::fmt;
use std::future::Future;
use std::io::Write;
use std::time::{Duration, Instant};

use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::ids::RunId;
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::MachineLabel;
use ondeck_core::ports::{PortResult, Progress, Store};
use ondeck_core::runtime::retry::{Retry, retry};
use ondeck_local::{JobId, JobState, Stream};

use crate::control::backend::LocalFiles;
use crate::control::inputs::run_id;
use crate::control::progress::ProgressDisplay;
use crate::control::report::deliver;
use crate::inputs::{Backend, Common, rows};
use crate::logging;
use crate::output::unwritten;
use crate::surroundings::{Entropy, WallClock, stop_on_signals};

/// How often output is looked for.
const EVERY: Duration = Duration::from_millis(50);

/// Queues the job and follows it.
pub(crate) async fn run(common: &Common, job: &[String]) -> u8 {
    let watcher = ProgressDisplay::start("run", common);
    logging::start(common, watcher.clone());
    let result = follow_to_end(common, job, &watcher).await;
    watcher.finish();
    match result {
        Ok(code) => code,
        Err(NotFollowed::Unread) => FailureKind::Stopped.exit_code(),
        Err(NotFollowed::Failed(failure)) => deliver("run", Err(failure), common),
    }
}

/// Why a job was not followed to its end.
enum NotFollowed {
    /// The reader of its output has closed the pipe.
    Unread,
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for NotFollowed {
    fn from(error: E) -> NotFollowed {
        NotFollowed::Failed(error.into())
    }
}

async fn follow_to_end(
    common: &Common,
    job: &[String],
    watcher: &ProgressDisplay,
) -> Result<u8, NotFollowed> {
    let run = run_id(&common.given)?;
    let wanted = Wanted::of(&run, common.given.text(&rows::LABEL))?;
    // Before the job is queued, because from then on it must be withdrawn.
    let stop = stop_on_signals();
    let local = LocalFiles::open(common)?;
    if common.records == Backend::Local {
        // Also tells whether refresh has ever run here. Elsewhere the file holds jobs alone, and
        // is made by refresh.
        Store::settings(&local.store).await?;
    }
    let job = match &wanted {
        Wanted::OfRun(label) => local.forge.queue(label, job).await?,
        Wanted::OfMachine(label) => local.forge.queue_for_machine(&run, label, job).await?,
    };
    let seconds = common.given.text_or_default(&rows::QUEUE_TIMEOUT);
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or_default();
    let patience = Duration::from_secs(seconds);
    let follow = Follow { local: &local, watcher, run: &run, wanted, job, patience };
    match stop.unless_raised(follow.to_end()).await {
        Ok(Ok(code)) => {
            if let Err(error) = local.forge.erase_if_released(job).await {
                tracing::warn!(
                    "the output of the job may stay in the store until refresh: {error}"
                );
            }
            Ok(code)
        }
        Ok(Err(not_followed)) => {
            // Its output would no longer be shown.
            if let Err(error) = local.forge.cancel(job).await {
                tracing::warn!("the job may still be queued: {error}");
            }
            Err(not_followed)
        }
        Err(stop) => {
            local.forge.cancel(job).await?;
            Err(NotFollowed::Failed(stop.into()))
        }
    }
}

/// What the job names as `runs-on`.
#[derive(Debug)]
enum Wanted {
    /// The label of the run, as an id: any machine with it takes the job.
    OfRun(RunId),
    OfMachine(MachineLabel),
}

impl Wanted {
    /// Fails if the label can be none of the run's.
    fn of(run: &RunId, label: Option<&str>) -> Result<Wanted, Failure> {
        let Some(text) = label.filter(|text| !text.is_empty()) else {
            return Ok(Wanted::OfRun(run.clone()));
        };
        if let Ok(own) = MachineLabel::new(text) {
            return Ok(Wanted::OfMachine(own));
        }
        let of_run = Label::of_run(run, text).and_then(|label| RunId::new(label.to_string()).ok());
        of_run.map(Wanted::OfRun).ok_or_else(|| {
            let message =
                format!("label is neither of a machine nor of run {run}: {}", quoted(text));
            Failure::invalid(message).hint("use a label that ondeck provision has printed")
        })
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::OfRun(label) => label.fmt(f),
            Wanted::OfMachine(label) => label.fmt(f),
        }
    }
}

struct Follow<'a> {
    local: &'a LocalFiles,
    watcher: &'a ProgressDisplay,
    run: &'a RunId,
    wanted: Wanted,
    job: JobId,
    patience: Duration,
}

impl Follow<'_> {
    async fn to_end(&self) -> Result<u8, NotFollowed> {
        let queued = Instant::now();
        self.watcher.stage(&format!("waiting for a machine of run {}", self.run));
        let mut seen = 0;
        loop {
            // The state first: output that came before the end is then sure to be seen.
            let job = retried(|| self.local.forge.job(self.job)).await?.ok_or_else(|| {
                Failure::new(FailureKind::Unexpected, format!("the job has vanished: {}", self.job))
            })?;
            for chunk in retried(|| self.local.forge.output(self.job, seen)).await? {
                seen = chunk.seq;
                self.watcher.finish();
                show(chunk.stream, &chunk.bytes)?;
            }
            match job.state {
                JobState::Done => return Ok(exit_code(job.exit_code)),
                JobState::Cancelled => {
                    return Err(
                        Failure::new(FailureKind::Unexpected, "the job was cancelled").into()
                    );
                }
                JobState::Queued if queued.elapsed() > self.patience => {
                    return Err(self.not_taken().into());
                }
                JobState::Running => self.watcher.stage("the job runs"),
                JobState::Queued => {}
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    fn not_taken(&self) -> Failure {
        let message = format!("no machine took the job in time, label: {}", self.wanted);
        Failure::new(FailureKind::NoCapacity, message)
            .hint(format!("ondeck provision --run-id {} gives the run machines", self.run))
    }
}

/// Repeats a read: a full disk or a busy file for a moment is no reason to cancel the job.
async fn retried<T, F: Future<Output = PortResult<T>>>(read: impl Fn() -> F) -> PortResult<T> {
    retry(&WallClock, &Entropy, Retry::SHORT, |_| read()).await
}

/// Passes on a part of the job's output. Fails if it cannot be written.
fn show(stream: Stream, bytes: &[u8]) -> Result<(), NotFollowed> {
    let (name, written) = match stream {
        Stream::Stdout => {
            let mut stdout = std::io::stdout().lock();
            ("stdout", stdout.write_all(bytes).and_then(|()| stdout.flush()))
        }
        Stream::Stderr => ("stderr", std::io::stderr().lock().write_all(bytes)),
    };
    written.map_err(|error| match unwritten(name, &error) {
        None => NotFollowed::Unread,
        Some(failure) => {
            let message = format!("the job was cancelled: {failure}");
            let failure = Failure { message, ..failure };
            NotFollowed::Failed(
                failure.hint("redirect the output elsewhere, and run the job again"),
            )
        }
    })
}

fn exit_code(code: Option<i32>) -> u8 {
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
