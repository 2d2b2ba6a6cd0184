//! DynamoDB's own record of every write, independent of what the writer reports about it:
//! the table's stream, read behind the gateway's back.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use ondeck_core::audit::{InstanceWrite, RecordedState};
use ondeck_core::model::ids::InstanceId;
use ondeck_standin::emulators::Emulators;
use serde_json::{Value, json};

use crate::chaos::audit::recorded_state;

/// A table, and the stream of its changes.
pub(super) struct Stream {
    address: String,
    table: String,
}

impl Stream {
    /// Begins the stream of the table whose name begins so.
    pub(super) fn of(name: &str) -> Stream {
        let url = Emulators::running().dynamodb;
        let address = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let mut stream = Stream { address, table: String::new() };
        let tables = stream.ask("ListTables", &json!({ "ExclusiveStartTableName": name }));
        let table = tables["TableNames"][0].as_str().unwrap();
        assert!(table.starts_with(name), "{tables}");
        table.clone_into(&mut stream.table);
        let images = json!({ "StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES" });
        let begin = json!({ "TableName": table, "StreamSpecification": images });
        stream.ask("UpdateTable", &begin);
        stream
    }

    /// Every write to an instance's row, in the order in which they were made.
    pub(super) fn writes(&self) -> Vec<InstanceWrite> {
        let streams = self.ask("ListStreams", &json!({ "TableName": self.table }));
        let arn = &streams["Streams"][0]["StreamArn"];
        let described = self.ask("DescribeStream", &json!({ "StreamArn": arn }));
        let mut changes = Vec::new();
        for shard in described["StreamDescription"]["Shards"].as_array().unwrap() {
            let begin = json!({
                "StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON",
            });
            let mut next = self.ask("GetShardIterator", &begin)["ShardIterator"].clone();
            while next.is_string() {
                let page = self.ask("GetRecords", &json!({ "ShardIterator": next }));
                let records = page["Records"].as_array().unwrap();
                changes.extend(records.iter().map(|record| record["dynamodb"].clone()));
                // A shard that is still written to has always one more page.
                next = page["NextShardIterator"].clone();
                if records.is_empty() {
                    break;
                }
            }
        }
        changes.sort_by_key(|change| change["SequenceNumber"].as_str().unwrap().to_owned());
        changes.iter().filter_map(write).collect()
    }

    /// The launch intents without a recorded outcome.
    pub(super) fn open_intents(&self) -> Vec<String> {
        let scan = json!({
            "TableName": self.table,
            "ConsistentRead": true,
            "FilterExpression": "SK = :intent AND outcome = :none",
            "ExpressionAttributeValues": { ":intent": { "S": "INTENT" }, ":none": { "S": "" } },
        });
        let found = self.ask("Scan", &scan);
        found["Items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| format!("intent left: {item}"))
            .collect()
    }

    /// One request. The emulator looks at no signature, only at whose it claims to be.
    fn ask(&self, operation: &str, content: &Value) -> Value {
        let kind = match operation {
            "ListStreams" | "DescribeStream" | "GetShardIterator" | "GetRecords" => {
                "DynamoDBStreams"
            }
            _ => "DynamoDB",
        };
        let body = content.to_string();
        let request = format!(
            "POST / HTTP/1.0\r\nHost: {}\r\nX-Amz-Target: {kind}_20120810.{operation}\r\n\
             Content-Type: application/x-amz-json-1.0\r\nContent-Length: {}\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential=test/20250531/us-east-1/dynamodb/\
             aws4_request, SignedHeaders=host, Signature=0\r\n\r\n{body}",
            self.address,
            body.len(),
        );
        let mut connection = TcpStream::connect(&self.address).unwrap();
        connection.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "{operation}: {answer}");
        serde_json::from_str(body).unwrap()
    }
}

fn write(change: &Value) -> Option<InstanceWrite> {
    let key = |name: &str| change["Keys"][name]["S"].as_str().unwrap();
    let id = key("PK").strip_prefix("INSTANCE#")?;
    Some(InstanceWrite {
        id: InstanceId::new(id).unwrap(),
        before: row(&change["OldImage"]),
        after: row(&change["NewImage"]),
    })
}

fn row(image: &Value) -> Option<RecordedState> {
    let text = |name: &str| image[name]["S"].as_str().unwrap_or_default().to_owned();
    image.is_object().then(|| {
        recorded_state(&text("state"), &text("runId"), &text("threshold"), &text("updatedAt"))
    })
}
