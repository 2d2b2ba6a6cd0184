//! Options and timeouts of the runner.

use std::path::PathBuf;
use std::time::Duration;

use ondeck_core::model::ids::InstanceId;

/// What the runner needs to know about its machine.
#[derive(Debug, Clone)]
pub struct RunnerOptions {
    pub id: InstanceId,
    /// The tag of the machine's pool; see [`crate::pool_tag`].
    pub pool_tag: String,
    /// The agent's own folder, for the unpacked runner and for state that survives a restart.
    pub folder: PathBuf,
    /// Folders above `folder` that belong to the pool, and whose files are private. They are made
    /// listable for all users if jobs run as another user than the agent, because actions/runner must
    /// be able to list every folder above it.
    pub pool_folders: Vec<PathBuf>,
    /// Folders where the image may have a runner.
    pub image: Vec<PathBuf>,
    /// The user to run it as, which needs root. Without one it runs as the agent's own user, and then
    /// jobs can change everything that the agent can.
    pub user: Option<String>,
}

/// How long each step may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// One attempt at downloading the package.
    pub download: Duration,
    pub unpack: Duration,
    /// The script of the package that installs missing libraries.
    pub dependencies: Duration,
    /// The command that registers the runner.
    pub configure: Duration,
    /// From the start of the listener until it can take jobs, at the first attempt. Each further
    /// attempt may take twice as long as the one before.
    pub listen: Duration,
    /// How long to wait for GitHub to refuse a version that has not been served before.
    pub refuse: Duration,
    /// From the listener's announcement of a job to the start of its worker. The listener retries
    /// some requests in between.
    pub job_start: Duration,
    /// From `SIGINT` to the listener's exit while a job runs.
    pub stop_busy: Duration,
    /// From `SIGINT` to the listener's exit without a job.
    pub stop_idle: Duration,
    /// The command that deregisters the runner.
    pub remove: Duration,
    /// How long GitHub may still call a runner busy after its last job.
    pub idle: Duration,
    /// One call of docker.
    pub docker: Duration,
    /// How long docker may refuse to be restored after a run while nothing changes.
    pub docker_patience: Duration,
}

impl Timeouts {
    /// How long a listener may take to listen after `late` earlier ones took too long.
    pub(crate) fn patience(&self, late: u32) -> Duration {
        self.listen * 2_u32.pow(late)
    }
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            download: Duration::from_secs(300),
            unpack: Duration::from_secs(300),
            // A new machine has 180 s to become ready, by default.
            dependencies: Duration::from_secs(120),
            configure: Duration::from_secs(90),
            // A listener that fails to get a session pauses for 11 to 30 s.
            listen: Duration::from_secs(5),
            refuse: Duration::from_secs(2),
            job_start: Duration::from_secs(90),
            // The runner gives a step 15 s to end, then reports to GitHub. Its own service allows 30 s.
            stop_busy: Duration::from_secs(30),
            stop_idle: Duration::from_secs(5),
            remove: Duration::from_secs(60),
            idle: Duration::from_secs(30),
            docker: Duration::from_secs(60),
            docker_patience: Duration::from_secs(20),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stopping a step takes the runner 15.6 s with a server that answers at once, and it reports the
    /// result after that.
    #[test]
    fn a_busy_runner_gets_the_time_that_its_own_service_gives_it() {
        assert!(Timeouts::default().stop_busy >= Duration::from_secs(30));
    }
}
