//! The protocol between the stand-in's GitHub and its runner double. Only the token exchange and the
//! removal of a runner are the same as GitHub's.

use serde::{Deserialize, Serialize};

/// The header in which a runner that removes itself names flags that it does not know.
pub(crate) const UNKNOWN_FLAGS: &str = "x-standin-unknown-flags";

/// The body of `POST /api/v3/actions/runner-registration`, sent with the token of `config.sh`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Exchange {
    /// The URL of the repository or organisation.
    pub(crate) url: String,
    /// Either `register` or `remove`.
    pub(crate) runner_event: String,
    /// Flags that the runner does not know. The runner ignores them, but a test should fail.
    #[serde(default)]
    pub(crate) unknown: Vec<String>,
}

/// The answer to an [`Exchange`].
#[derive(Serialize, Deserialize)]
pub(crate) struct Exchanged {
    pub(crate) url: String,
    pub(crate) token_schema: String,
    pub(crate) token: String,
}

/// The body of `POST /_standin/runners`, which registers a runner.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Registration {
    pub(crate) name: String,
    pub(crate) labels: Vec<String>,
    pub(crate) group: Option<String>,
    pub(crate) replace: bool,
    pub(crate) ephemeral: bool,
    pub(crate) version: String,
}

/// The answer to a [`Registration`].
#[derive(Serialize, Deserialize)]
pub(crate) struct Registered {
    pub(crate) id: u64,
    pub(crate) key: String,
    pub(crate) replaced: bool,
}

/// The body of `POST /_standin/sessions`, sent with the runner's key.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Opening {
    pub(crate) runner: u64,
    pub(crate) version: String,
}

/// The answer to an [`Opening`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Opened {
    pub(crate) session: String,
}

/// A message to a listener.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// There is nothing to do now.
    Nothing,
    Job(Box<Order>),
    /// Cancel the job that is running.
    Cancel {
        job: u64,
    },
    /// Update to this version.
    Refresh {
        version: String,
    },
    /// Exit at once, as if the listener had crashed.
    Crash,
}

/// A job for a runner.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) job: u64,
    pub(crate) name: String,
    pub(crate) repository: String,
    pub(crate) run_id: String,
    pub(crate) run_attempt: u32,
    pub(crate) run_number: u64,
    pub(crate) script: String,
    pub(crate) server_url: String,
    pub(crate) api_url: String,
    /// Whether it begins. A job may also end before its worker starts, for which the real listener
    /// prints no line.
    pub(crate) begins: bool,
    /// How long the job may take to stop after it is cancelled.
    pub(crate) cancel_grace: std::time::Duration,
}

/// The body of `POST /_standin/jobs/{id}`: the output since the last one, and the conclusion.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub(crate) log: String,
    pub(crate) conclusion: Option<String>,
    /// What a worker that did not end in good order had written to its stdout and stderr. Its log is
    /// lost then.
    #[serde(default)]
    pub(crate) annotation: Option<String>,
}
