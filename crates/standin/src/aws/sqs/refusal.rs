//! The errors of SQS. All of those that it gives here are the caller's, with status 400.

use std::fmt;

use crate::aws::call::Service;
use crate::aws::faults::answers;
use crate::http::Answer;

/// An error with SQS's own code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }

    pub(super) fn missing(parameter: &str) -> Refusal {
        let message = format!("The request must contain the parameter {parameter}.");
        Refusal::new("MissingParameter", message)
    }

    pub(super) fn no_queue() -> Refusal {
        Refusal::new("QueueDoesNotExist", "The specified queue does not exist.")
    }

    pub(super) fn unknown_attribute(name: &str) -> Refusal {
        Refusal::new("InvalidAttributeName", format!("Unknown Attribute {name}."))
    }

    pub(super) fn invalid(parameter: &str, value: impl fmt::Display, reason: &str) -> Refusal {
        let message =
            format!("Value {value} for parameter {parameter} is invalid. Reason: {reason}");
        Refusal::new("InvalidParameterValue", message)
    }

    pub(super) fn out_of_range(parameter: &str, value: i64, least: i64, most: i64) -> Refusal {
        let reason = format!("Must be >= {least} and <= {most}, if provided.");
        Refusal::invalid(parameter, value, &reason)
    }

    pub(super) fn into_answer(self) -> Answer {
        answers::refusal(Service::Sqs, 400, self.code, &self.message)
    }
}

/// The code of an error in SQS's older protocol, which its answers still name in a header.
pub(crate) fn legacy_code(code: &str) -> String {
    match code {
        "QueueDoesNotExist" => "AWS.SimpleQueueService.NonExistentQueue".to_owned(),
        "QueueNameExists" => "QueueAlreadyExists".to_owned(),
        "BatchEntryIdsNotDistinct"
        | "BatchRequestTooLong"
        | "EmptyBatchRequest"
        | "InvalidBatchEntryId"
        | "MessageNotInflight"
        | "PurgeQueueInProgress"
        | "QueueDeletedRecently"
        | "TooManyEntriesInBatchRequest"
        | "UnsupportedOperation" => format!("AWS.SimpleQueueService.{code}"),
        same => same.to_owned(),
    }
}
