//! `ondeck run`: a job for a run on the local forge, its output as it comes, its exit code.

use std::io::Write;
use std::time::{Duration, Instant};

use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::ids::RunId;
use ondeck_core::ports::{Progress, Store};
use ondeck_core::runtime::stop::Stop;
use ondeck_local::{JobId, JobState, Stream};

use crate::control::backend::LocalFiles;
use crate::control::inputs::run_id;
use crate::control::progress::ProgressDisplay;
use crate::control::report::deliver;
use crate::inputs::{Backend, Common, rows};
use crate::logging;
use crate::surroundings::stop_on_signals;

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
        Err(failure) => deliver("run", Err(failure), common),
    }
}

async fn follow_to_end(
    common: &Common,
    job: &[String],
    watcher: &ProgressDisplay,
) -> Result<u8, Failure> {
    let run = run_id(&common.given)?;
    // Before the job is queued, because from then on it must be withdrawn.
    let stop = stop_on_signals();
    let local = LocalFiles::open(common)?;
    if common.records == Backend::Local {
        // Also tells whether refresh has ever run here. Elsewhere the file holds jobs alone, and
        // is made by refresh.
        Store::settings(&local.store).await?;
    }
    let job = local.forge.queue(&run, job).await?;
    let seconds = common.given.text_or_default(&rows::QUEUE_TIMEOUT);
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or_default();
    let patience = Duration::from_secs(seconds);
    let follow = Follow { local: &local, watcher, run: &run, job, patience };
    match stop.unless_raised(follow.to_end()).await {
        Ok(Ok(code)) => Ok(code),
        Ok(Err(failure)) => {
            // Its output would no longer be shown.
            if let Err(error) = local.forge.cancel(job).await {
                tracing::warn!("the job may still be queued: {error}");
            }
            Err(failure)
        }
        Err(stop) => {
            local.forge.cancel(job).await?;
            Err(stop.into())
        }
    }
}

struct Follow<'a> {
    local: &'a LocalFiles,
    watcher: &'a ProgressDisplay,
    run: &'a RunId,
    job: JobId,
    patience: Duration,
}

impl Follow<'_> {
    async fn to_end(&self) -> Result<u8, Failure> {
        let queued = Instant::now();
        self.watcher.stage(&format!("waiting for a machine of run {}", self.run));
        let mut seen = 0;
        loop {
            // The state first: output that came before the end is then sure to be seen.
            let job = self.local.forge.job(self.job).await?.ok_or_else(|| {
                Failure::new(FailureKind::Unexpected, format!("the job has vanished: {}", self.job))
            })?;
            for chunk in self.local.forge.output(self.job, seen).await? {
                seen = chunk.seq;
                self.watcher.finish();
                // The reader has closed the pipe, so this command stops as if it were terminated.
                show(chunk.stream, &chunk.bytes).map_err(|_| Stop::Terminated)?;
            }
            match job.state {
                JobState::Done => return Ok(exit_code(job.exit_code)),
                JobState::Cancelled => {
                    return Err(Failure::new(FailureKind::Unexpected, "the job was cancelled"));
                }
                JobState::Queued if queued.elapsed() > self.patience => {
                    return self.withdraw();
                }
                JobState::Running => self.watcher.stage("the job runs"),
                JobState::Queued => {}
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    fn withdraw(&self) -> Result<u8, Failure> {
        let message = format!("no machine took the job in time, label: {}", self.run);
        Err(Failure::new(FailureKind::NoCapacity, message)
            .hint(format!("ondeck provision --run-id {} gives the run machines", self.run)))
    }
}

fn show(stream: Stream, bytes: &[u8]) -> std::io::Result<()> {
    match stream {
        Stream::Stdout => {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(bytes)?;
            stdout.flush()
        }
        Stream::Stderr => std::io::stderr().lock().write_all(bytes),
    }
}

fn exit_code(code: Option<i32>) -> u8 {
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
