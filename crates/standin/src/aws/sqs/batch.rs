//! Batches: up to ten entries with ids of their own, each of which succeeds or fails by itself.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Refusal, refusal};

/// The most entries of one batch.
const MOST: usize = 10;

/// Performs each entry. A batch that is malformed as a whole is refused as a whole.
pub(super) fn each(
    request: &Value,
    mut one: impl FnMut(&Value) -> Result<Value, Refusal>,
) -> Result<Value, Refusal> {
    let entries = request["Entries"].as_array().map_or(&[][..], Vec::as_slice);
    if entries.is_empty() {
        let message = "There should be at least one entry in the request.";
        return Err(refusal("EmptyBatchRequest", message));
    }
    if entries.len() > MOST {
        let message = format!("Maximum number of entries per request are {MOST}.");
        return Err(refusal("TooManyEntriesInBatchRequest", message));
    }
    let ids: BTreeSet<Option<&str>> = entries.iter().map(|entry| entry["Id"].as_str()).collect();
    if ids.len() < entries.len() {
        return Err(refusal(
            "BatchEntryIdsNotDistinct",
            "Two or more batch entries have the same Id.",
        ));
    }
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for entry in entries {
        match one(entry) {
            Ok(mut answer) => {
                answer["Id"] = entry["Id"].clone();
                successful.push(answer);
            }
            Err(Refusal { code, message }) => failed.push(json!({
                "Id": entry["Id"], "Code": code, "Message": message, "SenderFault": true,
            })),
        }
    }
    Ok(json!({ "Successful": successful, "Failed": failed }))
}
