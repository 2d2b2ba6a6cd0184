//! What the stand-in's GitHub and its runner say to each other. The real ones have a protocol of
//! their own, which is not public; only the exchange of a token for another is as there.

use serde::{Deserialize, Serialize};

/// `POST /api/v3/actions/runner-registration`, with the token of `config.sh`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Exchange {
    /// Of the repository or organisation.
    pub(crate) url: String,
    /// `register` or `remove`.
    pub(crate) runner_event: String,
    /// Flags that the runner does not know: it goes on without them, and a test should not.
    #[serde(default)]
    pub(crate) unknown: Vec<String>,
}

/// What a token is exchanged for.
#[derive(Serialize, Deserialize)]
pub(crate) struct Exchanged {
    pub(crate) url: String,
    pub(crate) token_schema: String,
    pub(crate) token: String,
}

/// `POST /_standin/runners`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Registration {
    pub(crate) name: String,
    pub(crate) labels: Vec<String>,
    pub(crate) group: Option<String>,
    pub(crate) replace: bool,
    pub(crate) ephemeral: bool,
    pub(crate) version: String,
}

/// A runner that was registered.
#[derive(Serialize, Deserialize)]
pub(crate) struct Registered {
    pub(crate) id: u64,
    pub(crate) key: String,
    pub(crate) replaced: bool,
}

/// `POST /_standin/sessions`, with the runner's key.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Opening {
    pub(crate) runner: u64,
    pub(crate) version: String,
}

/// A session that was opened.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Opened {
    pub(crate) session: String,
}

/// What a listener is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// There is nothing to do, for now.
    Nothing,
    /// Take this.
    Job(Box<Order>),
    /// Stop what you are doing.
    Cancel { job: u64 },
    /// Fall over.
    Crash,
}

/// A job, as its runner gets it.
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
    /// How long it may take to stop once it is told to.
    pub(crate) cancel_grace: std::time::Duration,
}

/// `POST /_standin/jobs/{id}`: what was written since the last time, and how it has ended.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub(crate) log: String,
    pub(crate) conclusion: Option<String>,
}
