//! What is chosen for a runner, by its operator and by whoever tests it.

use std::path::PathBuf;
use std::time::Duration;

use ondeck_core::model::ids::InstanceId;

/// What the agent says about its machine and what is on it.
#[derive(Debug, Clone)]
pub struct RunnerOptions {
    /// The machine.
    pub id: InstanceId,
    /// Whose pool it belongs to, in the names of runners.
    pub mark: String,
    /// The agent's own folder: the runner is unpacked into it, and what must be remembered is
    /// kept there.
    pub folder: PathBuf,
    /// Where a runner may already be.
    pub image: Vec<PathBuf>,
    /// Whom to run it as, which takes root; as the agent's own user otherwise, against whom
    /// nothing on the machine is safe.
    pub user: Option<String>,
}

/// How long each thing may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// One attempt at downloading the package.
    pub download: Duration,
    /// Unpacking it.
    pub unpack: Duration,
    /// Registering.
    pub configure: Duration,
    /// Being ready for jobs, once registered.
    pub listen: Duration,
    /// Being refused, once it says that it is ready: the first time only.
    pub refuse: Duration,
    /// Ending by itself when a job runs.
    pub stop_busy: Duration,
    /// Ending by itself when none does.
    pub stop_idle: Duration,
    /// Deregistering.
    pub remove: Duration,
    /// Being idle in GitHub's eyes, so that it can be deregistered.
    pub idle: Duration,
    /// One question to docker.
    pub docker: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            download: Duration::from_secs(300),
            unpack: Duration::from_secs(300),
            configure: Duration::from_secs(90),
            listen: Duration::from_secs(60),
            refuse: Duration::from_secs(2),
            // The runner itself gives a step ten seconds before it kills it, and tells GitHub then.
            stop_busy: Duration::from_secs(20),
            stop_idle: Duration::from_secs(5),
            remove: Duration::from_secs(60),
            idle: Duration::from_secs(30),
            docker: Duration::from_secs(60),
        }
    }
}
