//! The SQS of the stand-in beside that of the emulator: the calls that ondeck makes have the same answers.

use std::time::{Duration, Instant};

use aws_sdk_sqs::types::QueueAttributeName;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ondeck_standin::{
    AwsFault, AwsFaultRule, Endpoint, Gateway, GatewayOptions, Occurrence, Service,
};
use serde_json::{Value, json};

use crate::harness::{SOON, options, queue, sqs, unique};

/// What stands for a text that differs by chance.
const ANY: &str = "any";
/// A name that no queue has.
const MISSING: &str = "http://sqs/000000000000/standin-missing";

/// An answer in the JSON protocol.
#[derive(Debug, Clone, PartialEq)]
struct Answered {
    status: u16,
    /// The code of the older protocol, in the header of an error.
    legacy: String,
    body: Value,
}

/// One of the two, with a queue of its own that has the same name.
struct Side {
    _gateway: Gateway,
    endpoint: Endpoint,
    url: String,
    /// Those of the messages that the last receive gave.
    receipts: Vec<String>,
}

impl Side {
    fn new(sqs_in_process: bool) -> Side {
        let gateway = Gateway::start(GatewayOptions { sqs_in_process, ..options() });
        let endpoint = gateway.endpoint("control");
        Side { _gateway: gateway, endpoint, url: MISSING.to_owned(), receipts: Vec::new() }
    }

    /// Sends a call, in which `URL` is that of the queue and `RECEIPT` the first receipt.
    async fn ask(&mut self, operation: &str, request: &Value) -> Answered {
        let receipt = self.receipts.first().map_or("none", String::as_str);
        let body = request.to_string().replace("URL", &self.url).replace("RECEIPT", receipt);
        let request = Request::post(self.endpoint.url())
            .header("content-type", "application/x-amz-json-1.0")
            .header("x-amz-target", format!("AmazonSQS.{operation}"))
            .header(
                "authorization",
                "AWS4-HMAC-SHA256 Credential=test/20261115/us-east-1/sqs/x, S=0",
            );
        // `QueueUrl` has been replaced too.
        let body = body.replace(&format!("\"Queue{}\"", self.url), "\"QueueUrl\"");
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http();
        let (head, body) = client.request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        if let Some(url) = body["QueueUrl"].as_str() {
            url.clone_into(&mut self.url);
        }
        if let Some(messages) = body["Messages"].as_array() {
            let receipt = |message: &Value| message["ReceiptHandle"].as_str().unwrap().to_owned();
            self.receipts = messages.iter().map(receipt).collect();
        }
        let legacy = head.headers.get("x-amzn-query-error");
        let legacy = legacy.map(|legacy| legacy.to_str().unwrap().to_owned()).unwrap_or_default();
        Answered { status: head.status.as_u16(), legacy, body: plain(body) }
    }
}

/// An answer without what differs by chance or is not specified: ids, times, texts of errors, the order of
/// queues, and whether an empty list is named.
fn plain(mut value: Value) -> Value {
    match &mut value {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                *member = match &**name {
                    "MessageId"
                    | "ReceiptHandle"
                    | "message"
                    | "Message"
                    | "NextToken"
                    | "SentTimestamp"
                    | "CreatedTimestamp"
                    | "LastModifiedTimestamp"
                    | "ApproximateFirstReceiveTimestamp" => ANY.into(),
                    "QueueUrl" => member.as_str().and_then(|url| url.rsplit('/').next()).into(),
                    "__type" => member.as_str().and_then(|kind| kind.rsplit('#').next()).into(),
                    "QueueUrls" => {
                        let urls = member.as_array().unwrap().iter();
                        let name =
                            |url: &Value| url.as_str()?.rsplit('/').next().map(str::to_owned);
                        let mut names: Vec<String> = urls.filter_map(name).collect();
                        names.sort();
                        names.into()
                    }
                    _ => plain(member.take()),
                };
            }
            members.retain(|_, member| !member.as_array().is_some_and(Vec::is_empty));
        }
        Value::Array(entries) => entries.iter_mut().for_each(|entry| *entry = plain(entry.take())),
        _ => {}
    }
    value
}

/// Both sides, which are asked the same.
struct Both([Side; 2]);

impl Both {
    fn new() -> Both {
        Both([Side::new(true), Side::new(false)])
    }

    /// Asks both, and returns their answer. Fails if they differ.
    async fn ask(&mut self, operation: &str, request: Value) -> Answered {
        let Both([ours, theirs]) = self;
        let ours = ours.ask(operation, &request).await;
        assert_eq!(ours, theirs.ask(operation, &request).await, "{operation} {request}");
        ours
    }

    /// Asks both, and expects this error of both.
    async fn refuse(&mut self, operation: &str, request: Value, code: &str, legacy: &str) {
        let refused = self.ask(operation, request.clone()).await;
        let expected = (400, format!("{legacy};Sender"), json!(code));
        let kind = refused.body["__type"].clone();
        assert_eq!((refused.status, refused.legacy, kind), expected, "{operation} {request}");
    }
}

fn attributes() -> Value {
    json!({
        "MessageRetentionPeriod": "1209600",
        "VisibilityTimeout": "30",
        "ReceiveMessageWaitTimeSeconds": "0",
        "DelaySeconds": "0",
        "SqsManagedSseEnabled": "true",
    })
}

#[tokio::test]
async fn queues_are_created_found_changed_and_deleted_as_by_the_emulator() {
    let (mut both, name) = (Both::new(), unique("beside"));
    let create = json!({ "QueueName": name, "Attributes": attributes(), "tags": { "a": "b" } });
    for _ in 0..2 {
        assert_eq!(both.ask("CreateQueue", create.clone()).await.body["QueueUrl"], *name);
    }
    both.ask("CreateQueue", json!({ "QueueName": name })).await;
    let other = json!({ "QueueName": name, "Attributes": { "VisibilityTimeout": "31" } });
    both.refuse("CreateQueue", other, "QueueNameExists", "QueueAlreadyExists").await;
    both.ask("GetQueueUrl", json!({ "QueueName": name })).await;
    both.ask("ListQueueTags", json!({ "QueueUrl": "URL" })).await;
    both.ask("TagQueue", json!({ "QueueUrl": "URL", "Tags": { "a": "c", "d": "e" } })).await;
    let tags = both.ask("ListQueueTags", json!({ "QueueUrl": "URL" })).await;
    assert_eq!(tags.body["Tags"], json!({ "a": "c", "d": "e" }));
    let change = json!({ "QueueUrl": "URL", "Attributes": { "MaximumMessageSize": "2048" } });
    both.ask("SetQueueAttributes", change).await;
    let all = json!({ "QueueUrl": "URL", "AttributeNames": ["All"] });
    let all = both.ask("GetQueueAttributes", all).await;
    assert_eq!(all.body["Attributes"]["MaximumMessageSize"], "2048");
    let bad = json!({ "QueueUrl": "URL", "Attributes": { "DelaySeconds": "901" } });
    let code = "InvalidAttributeValue";
    both.refuse("SetQueueAttributes", bad, code, code).await;

    for suffix in ["-x", "-y"] {
        both.ask("CreateQueue", json!({ "QueueName": format!("{name}{suffix}") })).await;
    }
    let page = json!({ "QueueNamePrefix": name, "MaxResults": 2 });
    let page = both.ask("ListQueues", page).await;
    assert_eq!(page.body, json!({ "QueueUrls": [&*name, format!("{name}-x")], "NextToken": ANY }));
    both.ask("ListQueues", json!({ "QueueNamePrefix": name, "MaxResults": 3 })).await;
    both.ask("ListQueues", json!({ "QueueNamePrefix": "standin-none-such" })).await;
    both.ask("DeleteQueue", json!({ "QueueUrl": "URL" })).await;

    let missing = ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue");
    both.refuse("GetQueueUrl", json!({ "QueueName": "standin-missing" }), missing.0, missing.1)
        .await;
    for (operation, more) in [
        ("DeleteQueue", json!({})),
        ("ListQueueTags", json!({})),
        ("TagQueue", json!({ "Tags": { "a": "b" } })),
        ("GetQueueAttributes", json!({ "AttributeNames": ["All"] })),
        ("SetQueueAttributes", json!({ "Attributes": attributes() })),
        ("ReceiveMessage", json!({ "WaitTimeSeconds": 1 })),
        ("SendMessage", json!({ "MessageBody": "look" })),
        ("SendMessageBatch", json!({ "Entries": [{ "Id": "0", "MessageBody": "look" }] })),
        ("DeleteMessageBatch", json!({ "Entries": [{ "Id": "0", "ReceiptHandle": "r" }] })),
    ] {
        let mut request = more;
        request["QueueUrl"] = MISSING.into();
        both.refuse(operation, request, missing.0, missing.1).await;
    }
}

#[tokio::test]
async fn messages_are_sent_received_hidden_and_deleted_as_by_the_emulator() {
    let (mut both, name) = (Both::new(), unique("beside"));
    both.ask("CreateQueue", json!({ "QueueName": name, "Attributes": attributes() })).await;
    let receive = |most: u32, hidden: u32| {
        json!({
            "QueueUrl": "URL", "MaxNumberOfMessages": most, "VisibilityTimeout": hidden,
            "WaitTimeSeconds": 0, "MessageSystemAttributeNames": ["All"],
        })
    };
    let depth = json!({
        "QueueUrl": "URL",
        "AttributeNames": [
            "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible",
            "ApproximateNumberOfMessagesDelayed",
        ],
    });
    assert_eq!(both.ask("ReceiveMessage", receive(10, 30)).await.body, json!({}));
    let entry =
        |n: u32| json!({ "Id": n.to_string(), "MessageBody": format!("é {n}"), "DelaySeconds": 0 });
    let entries: Vec<Value> = (0..4).map(entry).collect();
    both.ask("SendMessageBatch", json!({ "QueueUrl": "URL", "Entries": entries })).await;
    both.ask(
        "SendMessage",
        json!({ "QueueUrl": "URL", "MessageBody": "late", "DelaySeconds": 60 }),
    )
    .await;
    both.ask("GetQueueAttributes", depth.clone()).await;
    // The default is one message.
    let first = both.ask("ReceiveMessage", json!({ "QueueUrl": "URL" })).await;
    assert_eq!(first.body["Messages"].as_array().map(Vec::len), Some(1));
    let three = both.ask("ReceiveMessage", receive(10, 30)).await;
    let counts = &three.body["Messages"][0]["Attributes"]["ApproximateReceiveCount"];
    assert_eq!((three.body["Messages"].as_array().map(Vec::len), counts), (Some(3), &json!("1")));
    both.ask("GetQueueAttributes", depth.clone()).await;

    let change = |id: &str, receipt: &str, hidden: u32| json!({ "Id": id, "ReceiptHandle": receipt, "VisibilityTimeout": hidden });
    let changes = [change("a", "RECEIPT", 0), change("b", "no receipt", 0)];
    let changed = json!({ "QueueUrl": "URL", "Entries": changes });
    let changed = both.ask("ChangeMessageVisibilityBatch", changed).await;
    assert_eq!(changed.body["Failed"][0]["Code"], "ReceiptHandleIsInvalid");
    both.ask("GetQueueAttributes", depth.clone()).await;
    let again = both.ask("ReceiveMessage", receive(1, 30)).await;
    let counts = &again.body["Messages"][0]["Attributes"]["ApproximateReceiveCount"];
    assert_eq!(counts, "2");
    let single = json!({ "QueueUrl": "URL", "ReceiptHandle": "RECEIPT", "VisibilityTimeout": 60 });
    both.ask("ChangeMessageVisibility", single).await;
    let deletes = json!([
        { "Id": "a", "ReceiptHandle": "RECEIPT" }, { "Id": "b", "ReceiptHandle": "no receipt" },
    ]);
    let deleted = json!({ "QueueUrl": "URL", "Entries": deletes });
    both.ask("DeleteMessageBatch", deleted).await;
    both.ask("GetQueueAttributes", depth).await;

    let code = "ReceiptHandleIsInvalid";
    let no_receipt = json!({ "QueueUrl": "URL", "ReceiptHandle": "no receipt" });
    both.refuse("DeleteMessage", no_receipt.clone(), code, code).await;
    let mut no_receipt = no_receipt;
    no_receipt["VisibilityTimeout"] = 0.into();
    both.refuse("ChangeMessageVisibility", no_receipt, code, code).await;
    let code = "InvalidMessageContents";
    let body = json!({ "QueueUrl": "URL", "MessageBody": "\u{1}" });
    both.refuse("SendMessage", body, code, code).await;
    let code = "InvalidParameterValue";
    both.refuse("ReceiveMessage", receive(11, 30), code, code).await;
    let code = "MissingParameter";
    both.refuse("SendMessage", json!({ "QueueUrl": "URL" }), code, code).await;

    for (code, entries) in [
        ("EmptyBatchRequest", json!([])),
        ("TooManyEntriesInBatchRequest", (0..11).map(entry).collect()),
        ("BatchEntryIdsNotDistinct", json!([entry(1), entry(1)])),
        ("InvalidBatchEntryId", json!([{ "Id": "a b", "MessageBody": "c" }])),
    ] {
        let batch = json!({ "QueueUrl": "URL", "Entries": entries });
        let legacy = format!("AWS.SimpleQueueService.{code}");
        both.refuse("SendMessageBatch", batch, code, &legacy).await;
    }
}

fn in_process() -> Gateway {
    Gateway::start(GatewayOptions { sqs_in_process: true, ..options() })
}

/// Here the stand-in follows AWS, and the emulator does not.
#[tokio::test]
async fn a_receipt_of_an_earlier_delivery_does_nothing() {
    let gateway = in_process();
    let client = sqs(&gateway.endpoint("control"));
    let url = queue(&client).await;
    client.send_message().queue_url(&url).message_body("a").send().await.unwrap();
    let receive = || async {
        let received = client.receive_message().queue_url(&url).visibility_timeout(0).send().await;
        received.unwrap().messages()[0].receipt_handle().unwrap().to_owned()
    };
    let (first, last) = (receive().await, receive().await);
    let delete =
        |receipt: &str| client.delete_message().queue_url(&url).receipt_handle(receipt).send();
    let change = |receipt: &str| {
        let change = client.change_message_visibility().queue_url(&url).visibility_timeout(9);
        change.receipt_handle(receipt).send()
    };
    delete(&first).await.unwrap();
    let text = format!("{:?}", change(&first).await.unwrap_err());
    assert!(text.contains("InvalidParameterValue") && text.contains("not available for"), "{text}");
    let text = format!("{:?}", change(&last).await.unwrap_err());
    assert!(text.contains("MessageNotInflight"), "it is visible: {text}");
    delete(&last).await.unwrap();
    delete(&last).await.expect("deleting twice is deleting once");
    let again = client.receive_message().queue_url(&url).send().await.unwrap();
    assert_eq!(again.messages(), []);
    let other = queue(&client).await;
    let text = client.delete_message().queue_url(&other).receipt_handle(&last).send().await;
    let text = format!("{:?}", text.unwrap_err());
    assert!(text.contains("InvalidParameterValue"), "of another queue: {text}");
}

/// What differs from the emulator beside that: the documentation of GetQueueAttributes.
#[tokio::test]
async fn attributes_are_named_or_not_given() {
    let gateway = in_process();
    let client = sqs(&gateway.endpoint("control"));
    let url = queue(&client).await;
    let ask = || client.get_queue_attributes().queue_url(&url);
    assert_eq!(ask().send().await.unwrap().attributes.unwrap_or_default().len(), 0);
    let arn = ask().attribute_names(QueueAttributeName::QueueArn).send().await.unwrap();
    let arn = arn.attributes.unwrap()[&QueueAttributeName::QueueArn].clone();
    assert!(arn.starts_with("arn:aws:sqs:us-east-1:000000000000:standin-queue-"), "{arn}");
    let unknown = QueueAttributeName::from("Nothing");
    let text = format!("{:?}", ask().attribute_names(unknown).send().await.unwrap_err());
    assert!(text.contains("InvalidAttributeName"), "{text}");
}

#[tokio::test]
async fn a_receive_that_waits_is_woken() {
    let gateway = in_process();
    let client = sqs(&gateway.endpoint("control"));
    let url = queue(&client).await;
    let wait = || client.receive_message().queue_url(&url).wait_time_seconds(20).send();
    let send = |body: &str| client.send_message().queue_url(&url).message_body(body).send();

    let begun = Instant::now();
    let (received, sent) = tokio::join!(wait(), async {
        gateway_is_asked(&gateway, "ReceiveMessage", 1).await;
        send("sent").await
    });
    sent.unwrap();
    let message = received.unwrap().messages()[0].clone();
    assert_eq!(message.body(), Some("sent"));
    // Hidden for a second, and then visible by itself.
    let hide = client.change_message_visibility().queue_url(&url).visibility_timeout(1);
    hide.receipt_handle(message.receipt_handle().unwrap()).send().await.unwrap();
    let again = wait().await.unwrap().messages()[0].clone();
    assert_eq!(again.body(), Some("sent"));
    // Shown by a call.
    let (received, shown) = tokio::join!(wait(), async {
        gateway_is_asked(&gateway, "ReceiveMessage", 3).await;
        let show = client.change_message_visibility().queue_url(&url).visibility_timeout(0);
        show.receipt_handle(again.receipt_handle().unwrap()).send().await
    });
    shown.unwrap();
    assert_eq!(received.unwrap().messages().len(), 1);
    let (received, deleted) = tokio::join!(wait(), async {
        gateway_is_asked(&gateway, "ReceiveMessage", 4).await;
        client.delete_queue().queue_url(&url).send().await
    });
    deleted.unwrap();
    assert!(received.unwrap_err().into_service_error().is_queue_does_not_exist());
    assert!(begun.elapsed() < SOON, "none of them has waited to its end");
}

/// Waits until this many calls of an operation have arrived.
async fn gateway_is_asked(gateway: &Gateway, operation: &str, count: usize) {
    while gateway.endpoint("control").count(Service::Sqs, operation) < count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The layers of the gateway are in front of it.
#[tokio::test]
async fn faults_apply_to_it() {
    let gateway = in_process();
    let control = gateway.endpoint("control");
    let client = sqs(&control);
    let url = queue(&client).await;
    client.send_message().queue_url(&url).message_body("a").send().await.unwrap();
    let once = Occurrence::First(1);
    control.inject(AwsFaultRule::new(AwsFault::EmptyReceive).occurrence(once));
    let receive = || client.receive_message().queue_url(&url).send();
    assert_eq!(receive().await.unwrap().messages(), []);
    control.inject(AwsFaultRule::new(AwsFault::DuplicateDelivery).occurrence(once));
    let first = receive().await.unwrap().messages()[0].clone();
    let second = receive().await.unwrap().messages()[0].clone();
    assert_eq!((first.body(), first.message_id()), (second.body(), second.message_id()));
    assert_ne!(first.receipt_handle(), second.receipt_handle());
    gateway.assert_requests_valid();
}
