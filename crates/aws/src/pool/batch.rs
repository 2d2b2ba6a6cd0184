//! Batches: ten entries a call, and an answer that may say no to some of them.

use std::future::Future;

use aws_sdk_sqs::operation::change_message_visibility_batch::ChangeMessageVisibilityBatchOutput;
use aws_sdk_sqs::operation::delete_message_batch::DeleteMessageBatchOutput;
use aws_sdk_sqs::operation::send_message_batch::SendMessageBatchOutput;
use aws_sdk_sqs::types::BatchResultErrorEntry;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_runtime_api::http::Response;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use futures_util::future::join_all;
use ondeck_core::model::ids::ResourceClass;
use ondeck_core::ports::{PortError, PortResult};

use super::SqsPool;
use crate::error::{ErrorResponse, SQS, error_of_response};

/// The most entries that one call takes.
const MOST_ENTRIES: usize = 10;

/// The answer to a batch.
pub(super) trait BatchAnswer {
    /// The entries that came to nothing.
    fn failed(self) -> Vec<BatchResultErrorEntry>;
}

impl SqsPool {
    /// Sends all entries, ten per call, all calls at once. A failed call does not stop the others;
    /// where there are several, each is retried on its own.
    pub(super) async fn in_batches<I, T, E, F>(
        &self,
        class: &ResourceClass,
        action: &str,
        entries: &[I],
        call: impl Fn(String, Vec<I>) -> F,
    ) -> PortResult<()>
    where
        I: Clone,
        T: BatchAnswer,
        E: std::error::Error + ProvideErrorMetadata + 'static,
        F: Future<Output = Result<T, SdkError<E, Response>>>,
    {
        let (batches, call) = (entries.chunks(MOST_ENTRIES), &call);
        let several = batches.len() > 1;
        let calls = batches.map(|batch| async move {
            let send = || self.on_queue(class, action, |url| call(url, batch.to_vec()));
            if several { self.patience.retried(send).await } else { send().await }
        });
        let answers = join_all(calls.collect::<Vec<_>>()).await;
        let mut outcomes = Vec::new();
        let mut failed = Vec::new();
        for answer in answers {
            match answer {
                Ok(answer) => failed.extend(answer.failed()),
                Err(error) => outcomes.push(Err(error)),
            }
        }
        failed.retain(|entry| !is_stale(entry));
        outcomes.extend(failed.iter().map(|entry| {
            let count = format!("{} of {} entries", failed.len(), entries.len());
            Err(refusal(action, entry, &count))
        }));
        gravest(outcomes)
    }
}

/// Of several errors the one to report: repeating the call is in vain if one will not pass.
pub(super) fn gravest(outcomes: Vec<PortResult<()>>) -> PortResult<()> {
    let passes = |error: &PortError| matches!(error, PortError::Unavailable { .. });
    let errors = outcomes.into_iter().filter_map(Result::err);
    // Of equals, the first.
    errors.min_by_key(passes).map_or(Ok(()), Err)
}

/// A receipt that has been overtaken: the message is gone, visible again, or in another caller's
/// hands. That a stale receipt does nothing is what is wanted of it.
fn is_stale(entry: &BatchResultErrorEntry) -> bool {
    let message = entry.message().unwrap_or_default();
    let code = entry.code().trim_start_matches("AWS.SimpleQueueService.");
    match code {
        "ReceiptHandleIsInvalid" | "MessageNotInflight" | "InvalidIdFormat" => true,
        // Other parameters can be wrong as well; which it was, only the text says.
        "InvalidParameterValue" => {
            message.contains("for parameter ReceiptHandle") || message.contains("receipt handle")
        }
        _ => false,
    }
}

fn refusal(action: &str, entry: &BatchResultErrorEntry, count: &str) -> PortError {
    let message = match entry.message().unwrap_or_default() {
        "" => count.to_owned(),
        message => format!("{message} ({count})"),
    };
    let status = if entry.sender_fault() { 400 } else { 500 };
    error_of_response(SQS, action, ErrorResponse { status, code: entry.code(), message: &message })
}

impl BatchAnswer for ChangeMessageVisibilityBatchOutput {
    fn failed(self) -> Vec<BatchResultErrorEntry> {
        self.failed
    }
}

impl BatchAnswer for DeleteMessageBatchOutput {
    fn failed(self) -> Vec<BatchResultErrorEntry> {
        self.failed
    }
}

impl BatchAnswer for SendMessageBatchOutput {
    fn failed(self) -> Vec<BatchResultErrorEntry> {
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(code: &str, message: &str) -> BatchResultErrorEntry {
        let entry = BatchResultErrorEntry::builder().id("0").sender_fault(true);
        entry.code(code).message(message).build().unwrap()
    }

    #[test]
    fn stale_receipts_are_told_from_other_refusals() {
        let of_receipt = "Value AQEB for parameter ReceiptHandle is invalid. Reason:";
        for (code, message) in [
            ("ReceiptHandleIsInvalid", "The input receipt handle is invalid."),
            ("MessageNotInflight", ""),
            ("AWS.SimpleQueueService.MessageNotInflight", ""),
            ("InvalidIdFormat", ""),
            ("InvalidParameterValue", &format!("{of_receipt} The receipt handle has expired.")),
            ("InvalidParameterValue", &format!("{of_receipt} Message does not exist.")),
        ] {
            assert!(is_stale(&entry(code, message)), "{code}: {message}");
        }
        for (code, message) in [
            ("InvalidParameterValue", "Value 99999 for parameter VisibilityTimeout is invalid."),
            ("InvalidParameterValue", ""),
            ("InternalError", "the receipt handle could not be read"),
            ("AccessDenied", ""),
        ] {
            assert!(!is_stale(&entry(code, message)), "{code}: {message}");
        }
    }

    #[test]
    fn what_will_not_pass_is_reported_before_what_may() {
        let passing = |reason: &str| PortError::Unavailable { service: SQS, reason: reason.into() };
        let lasting = PortError::NotSetUp { what: "queue".into() };
        let outcomes = vec![Ok(()), Err(passing("a")), Err(lasting.clone()), Err(passing("b"))];
        assert_eq!(gravest(outcomes), Err(lasting));
        assert_eq!(gravest(vec![Err(passing("a")), Err(passing("b"))]), Err(passing("a")));
        assert_eq!(gravest(vec![Ok(()), Ok(())]), Ok(()));
    }
}
