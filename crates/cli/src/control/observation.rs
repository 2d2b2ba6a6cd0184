//! What one call of a mode tells to those who observe it: a file of metrics, lines for CloudWatch, and a
//! trace. Each only if it was asked for, and none changes what the call comes to.

use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use ondeck_core::model::failure::Failure;
use ondeck_core::modes::status::judgement::Judgement;
use ondeck_core::ports::Progress;

use crate::control::backend;
use crate::control::metrics::emf::{self, Declared};
use crate::control::metrics::{self, Call, CallResult, Snapshot};
use crate::control::traces::Trace;
use crate::inputs::{Common, rows};

/// The observation of one call.
pub(crate) struct Observation {
    began: Instant,
    trace: Option<Trace>,
}

impl Observation {
    /// Begins with the call.
    pub(crate) fn begin(mode: &'static str) -> Observation {
        Observation { began: Instant::now(), trace: Trace::begin(mode) }
    }

    /// The progress to hand to the mode.
    pub(crate) fn watch(&self, progress: Arc<dyn Progress>) -> Arc<dyn Progress> {
        match &self.trace {
            None => progress,
            Some(trace) => trace.watch(progress),
        }
    }

    /// Whether the pool as it is belongs to what is told.
    pub(crate) fn shows_pool(common: &Common) -> bool {
        common.given.text(&rows::METRICS_FILE).is_some_and(|file| !file.is_empty())
    }

    /// Tells what the call came to. `ended` is when it had; `status` is the pool after it, if that was
    /// looked at.
    pub(crate) async fn end(
        self,
        common: &Common,
        ended: Instant,
        result: CallResult<'_>,
        failure: Option<&Failure>,
        status: Option<&Judgement>,
    ) {
        let file = |row| common.given.text(row).filter(|file| !file.is_empty()).map(Path::new);
        let (text, lines) = (file(&rows::METRICS_FILE), file(&rows::EMF_FILE));
        if text.is_none() && lines.is_none() && self.trace.is_none() {
            return;
        }
        let pool = backend::pool_name(common).unwrap_or_default();
        let took = ended.saturating_duration_since(self.began);
        let now = SystemTime::now();
        if let (Some(file), CallResult::Refresh(outcome)) = (lines, &result) {
            let line = emf::line(&pool, *outcome, took, now, Declared::All);
            warn("a line of metrics", emf::append(file, &line));
        }
        let call = Call { ended: now, took, result };
        if let Some(file) = text {
            let snapshot = Snapshot { pool: &pool, status, call: Some(call) };
            warn("the file of metrics", metrics::write(file, &metrics::prometheus(&snapshot)));
        }
        if let Some(trace) = self.trace {
            trace.end(&pool, ended, &result, failure).await;
        }
    }
}

fn warn(what: &str, written: Result<(), String>) {
    if let Err(problem) = written {
        tracing::warn!("{what} is not written: {problem}");
    }
}
