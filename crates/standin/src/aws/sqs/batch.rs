//! Batches: what is refused as a whole, and the answer that lists each entry.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::requests::Entry;

/// The most entries of a batch.
const MOST_ENTRIES: usize = 10;
/// The most characters of an entry's id.
const LONGEST_ID: usize = 80;
/// The most bytes of all messages of a batch.
const MOST_BYTES: usize = 1_048_576;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct Batch<E> {
    pub(super) queue_url: Option<String>,
    #[serde(default = "Vec::new")]
    pub(super) entries: Vec<E>,
}

/// Performs each entry, and lists those that were refused. Refuses a batch that is not sound as a whole.
pub(super) fn perform<E: Entry>(
    entries: Vec<E>,
    mut one: impl FnMut(E) -> Result<Value, Refusal>,
) -> Result<Value, Refusal> {
    check(&entries)?;
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for entry in entries {
        let id = entry.id().unwrap_or_default().to_owned();
        match one(entry) {
            Ok(mut done) => {
                done["Id"] = id.into();
                successful.push(done);
            }
            Err(Refusal { code, message }) => failed.push(json!({
                "Id": id, "SenderFault": true, "Code": code, "Message": message,
            })),
        }
    }
    Ok(json!({ "Successful": successful, "Failed": failed }))
}

fn check<E: Entry>(entries: &[E]) -> Result<(), Refusal> {
    if entries.is_empty() {
        let message = "There should be at least one entry in the request.";
        return Err(Refusal::new("EmptyBatchRequest", message));
    }
    if entries.len() > MOST_ENTRIES {
        let message = format!(
            "Maximum number of entries per request are {MOST_ENTRIES}. You have sent {}.",
            entries.len()
        );
        return Err(Refusal::new("TooManyEntriesInBatchRequest", message));
    }
    let mut ids = BTreeSet::new();
    for id in entries.iter().map(|entry| entry.id().unwrap_or_default()) {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if id.is_empty() || id.len() > LONGEST_ID || !id.chars().all(is_allowed) {
            let message = "A batch entry id can only contain alphanumeric characters, hyphens and \
                           underscores. It can be at most 80 letters long.";
            return Err(Refusal::new("InvalidBatchEntryId", message));
        }
        if !ids.insert(id) {
            return Err(Refusal::new("BatchEntryIdsNotDistinct", format!("Id {id} repeated.")));
        }
    }
    let bytes: usize = entries.iter().map(Entry::length).sum();
    if bytes > MOST_BYTES {
        let message = format!(
            "Batch requests cannot be longer than {MOST_BYTES} bytes. You have sent {bytes} bytes."
        );
        return Err(Refusal::new("BatchRequestTooLong", message));
    }
    Ok(())
}
