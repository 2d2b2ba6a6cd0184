//! Batches that are processed in part: which entries are left out, and how the answer lists them.

use serde_json::{Map, Value, json};

use crate::aws::call::{Call, Service};

/// A batch of which only the first half reaches the service.
#[derive(Debug)]
pub(crate) struct PartialBatch {
    /// The request with the first half of the entries; `None` if no entry is left.
    pub(crate) forwarded: Option<Value>,
    held: Unprocessed,
}

#[derive(Debug)]
enum Unprocessed {
    Keys(Value),
    Items(Value),
    Entries(Vec<Value>),
}

/// Whether a call is a batch of DynamoDB or SQS.
pub(crate) fn is_batch(call: &Call) -> bool {
    match call.service {
        Service::DynamoDb => matches!(&*call.operation, "BatchGetItem" | "BatchWriteItem"),
        Service::Sqs => call.operation.ends_with("Batch"),
        _ => false,
    }
}

impl PartialBatch {
    /// Leaves out the second half, rounded up, so that a batch of one is left out entirely. Returns
    /// `None` if the call is not a batch.
    pub(crate) fn of(call: &Call) -> Option<PartialBatch> {
        let request = call.json()?;
        if call.service == Service::Sqs {
            let entries = request["Entries"].as_array()?;
            let (done, held) = entries.split_at(entries.len() / 2);
            let mut forwarded = request.clone();
            forwarded["Entries"] = Value::from(done);
            let forwarded = (!done.is_empty()).then_some(forwarded);
            return Some(PartialBatch { forwarded, held: Unprocessed::Entries(held.to_vec()) });
        }
        let reads = call.operation == "BatchGetItem";
        let (done, held) = cut_tables(request["RequestItems"].as_object()?, reads);
        let mut forwarded = request.clone();
        let any = !done.is_empty();
        forwarded["RequestItems"] = done.into();
        let held =
            if reads { Unprocessed::Keys(held.into()) } else { Unprocessed::Items(held.into()) };
        Some(PartialBatch { forwarded: any.then_some(forwarded), held })
    }

    /// Adds the entries that were left out to the service's answer. Without one, makes the answer
    /// to a batch of which nothing was processed.
    pub(crate) fn tell(self, answer: Option<Value>) -> Value {
        match self.held {
            Unprocessed::Keys(held) => {
                let mut answer = answer.unwrap_or_else(|| json!({ "Responses": {} }));
                answer["UnprocessedKeys"] = held;
                answer
            }
            Unprocessed::Items(held) => {
                let mut answer = answer.unwrap_or_else(|| json!({}));
                answer["UnprocessedItems"] = held;
                answer
            }
            Unprocessed::Entries(held) => {
                let mut answer = answer.unwrap_or_else(|| json!({ "Successful": [] }));
                let mut failed = answer["Failed"].as_array().cloned().unwrap_or_default();
                failed.extend(held.iter().map(|entry| {
                    json!({
                        "Id": entry["Id"],
                        "SenderFault": false,
                        "Code": "InternalError",
                        "Message": "the entry was not processed",
                    })
                }));
                answer["Failed"] = failed.into();
                answer
            }
        }
    }
}

/// Splits the entries of all tables, counted together, into the first half and the rest.
fn cut_tables(
    tables: &Map<String, Value>,
    reads: bool,
) -> (Map<String, Value>, Map<String, Value>) {
    let entries = |of: &Value| {
        let list = if reads { &of["Keys"] } else { of };
        list.as_array().cloned().unwrap_or_default()
    };
    let total: usize = tables.values().map(|of| entries(of).len()).sum();
    let mut room = total / 2;
    let (mut done, mut held) = (Map::new(), Map::new());
    for (table, of) in tables {
        let entries = entries(of);
        let (now, later) = entries.split_at(room.min(entries.len()));
        room -= now.len();
        for (part, into) in [(now, &mut done), (later, &mut held)] {
            if part.is_empty() {
                continue;
            }
            let mut kept = of.clone();
            if reads {
                kept["Keys"] = part.into();
            } else {
                kept = part.into();
            }
            into.insert(table.clone(), kept);
        }
    }
    (done, held)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hyper::{HeaderMap, Method, Uri};

    use super::*;

    fn call(target: &str, body: &Value) -> Call {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-target", target.parse().unwrap());
        Call::of(Method::POST, Uri::from_static("/"), headers, Bytes::from(body.to_string()))
    }

    #[test]
    fn keys_are_held_back_with_their_options() {
        let request = json!({"RequestItems": {"T": {"Keys": [1, 2, 3], "ConsistentRead": true}}});
        let cut = PartialBatch::of(&call("DynamoDB_20120810.BatchGetItem", &request)).unwrap();
        let done = &cut.forwarded.as_ref().unwrap()["RequestItems"]["T"];
        assert_eq!(*done, json!({"Keys": [1], "ConsistentRead": true}));
        let answer = cut.tell(Some(json!({"Responses": {"T": ["one"]}})));
        assert_eq!(answer["UnprocessedKeys"]["T"], json!({"Keys": [2, 3], "ConsistentRead": true}));
        assert_eq!(answer["Responses"]["T"], json!(["one"]));
    }

    #[test]
    fn a_batch_of_one_is_not_done_at_all() {
        let request = json!({"RequestItems": {"T": [{"DeleteRequest": {}}]}});
        let cut = PartialBatch::of(&call("DynamoDB_20120810.BatchWriteItem", &request)).unwrap();
        assert!(cut.forwarded.is_none());
        assert_eq!(cut.tell(None), json!({"UnprocessedItems": request["RequestItems"]}));
        let request = json!({"QueueUrl": "q", "Entries": [{"Id": "a"}]});
        let cut = PartialBatch::of(&call("AmazonSQS.SendMessageBatch", &request)).unwrap();
        assert!(cut.forwarded.is_none());
        assert_eq!(cut.tell(None)["Failed"][0]["Id"], "a");
    }
}
