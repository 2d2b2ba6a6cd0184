//! The requests as far as they are read.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::aws::call::Call;

use super::refusal::Refusal;

/// Reads a request. Refuses one with a member that is not known here, rather than ignoring that.
pub(super) fn read<T: DeserializeOwned>(call: &Call) -> Result<T, Refusal> {
    serde_json::from_slice(&call.body).map_err(|error| {
        let message = format!("The stand-in does not read such a request: {error}");
        Refusal::new("UnsupportedOperation", message)
    })
}

/// A request about one message, or the entry of a batch of them.
pub(super) trait Entry: DeserializeOwned {
    fn queue_url(&self) -> Option<&str>;

    /// What names the entry within its batch.
    fn id(&self) -> Option<&str>;

    /// How many bytes it counts for in a batch.
    fn length(&self) -> usize {
        0
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct CreateQueue {
    pub(super) queue_name: Option<String>,
    #[serde(default)]
    pub(super) attributes: BTreeMap<String, String>,
    // The only member of SQS that begins with a small letter.
    #[serde(default, rename = "tags")]
    pub(super) tags: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct GetQueueUrl {
    pub(super) queue_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub(super) struct ListQueues {
    pub(super) queue_name_prefix: String,
    pub(super) next_token: String,
    pub(super) max_results: Option<u16>,
}

/// DeleteQueue and ListQueueTags.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct OfQueue {
    pub(super) queue_url: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct GetQueueAttributes {
    pub(super) queue_url: Option<String>,
    #[serde(default)]
    pub(super) attribute_names: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct SetQueueAttributes {
    pub(super) queue_url: Option<String>,
    #[serde(default)]
    pub(super) attributes: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct TagQueue {
    pub(super) queue_url: Option<String>,
    #[serde(default)]
    pub(super) tags: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct ReceiveMessage {
    pub(super) queue_url: Option<String>,
    pub(super) max_number_of_messages: Option<i64>,
    pub(super) visibility_timeout: Option<i64>,
    pub(super) wait_time_seconds: Option<i64>,
    /// The older name of the next one.
    #[serde(default)]
    pub(super) attribute_names: Vec<String>,
    #[serde(default)]
    pub(super) message_system_attribute_names: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct SendMessage {
    queue_url: Option<String>,
    id: Option<String>,
    #[serde(default)]
    pub(super) message_body: String,
    pub(super) delay_seconds: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct DeleteMessage {
    queue_url: Option<String>,
    id: Option<String>,
    #[serde(default)]
    pub(super) receipt_handle: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct ChangeMessageVisibility {
    queue_url: Option<String>,
    id: Option<String>,
    #[serde(default)]
    pub(super) receipt_handle: String,
    pub(super) visibility_timeout: Option<i64>,
}

impl Entry for SendMessage {
    fn queue_url(&self) -> Option<&str> {
        self.queue_url.as_deref()
    }

    fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    fn length(&self) -> usize {
        self.message_body.len()
    }
}

impl Entry for DeleteMessage {
    fn queue_url(&self) -> Option<&str> {
        self.queue_url.as_deref()
    }

    fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

impl Entry for ChangeMessageVisibility {
    fn queue_url(&self) -> Option<&str> {
        self.queue_url.as_deref()
    }

    fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}
