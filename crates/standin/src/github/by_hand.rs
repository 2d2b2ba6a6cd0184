//! What a person does on GitHub's web site.

use std::sync::Arc;

use bytes::Bytes;

use crate::http::Answer;

use super::request::ApiRequest;
use super::{Conclusion, Shared, answers};

/// Queues the script in the body as a job of a run, for a runner with this label, and answers with the
/// job's log when it is completed. The status is 200 if it has succeeded, else 422.
pub(super) async fn queue(
    shared: &Arc<Shared>,
    ask: &ApiRequest,
    repository: &str,
    (run, label): (&str, &str),
) -> Answer {
    let script = String::from_utf8_lossy(&ask.body).into_owned();
    let mut news = shared.news.subscribe();
    let id = shared.change(|state| state.queue(repository, run, None, &[label], &script));
    loop {
        let job = shared.look(|state| state.jobs.get(&id).map(|work| work.job.clone()));
        if let Some(job) = job
            && let Some(conclusion) = job.conclusion
        {
            let log = answers::file(&Bytes::from(job.log));
            let status = if conclusion == Conclusion::Success { 200 } else { 422 };
            let status = status.try_into().expect("both are statuses");
            return Answer { status, ..log };
        }
        if news.changed().await.is_err() {
            // This GitHub is being dropped.
            return answers::not_found();
        }
    }
}
