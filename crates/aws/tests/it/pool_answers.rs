//! Answers that SQS gives and no emulator does.

use std::time::{Duration, SystemTime};

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use ondeck_aws::SqsPool;
use ondeck_core::ports::{Pool, PortError, PortResult, Receipt};
use serde_json::{Value, json};

use crate::queues::{Answer, Gateway, class, own_name, pool_at, tickets};

const HOLD: Duration = Duration::from_millis(29_500);

/// A pool whose queue exists without a call to the emulator, and whose other answers are
/// up to the test.
async fn scripted(
    mut script: impl FnMut(&str, &Value) -> Answer + Send + 'static,
) -> (SqsPool, Gateway) {
    let gateway = Gateway::start(move |action, body| {
        Some(match action {
            "GetQueueUrl" => Answer::ok(json!({ "QueueUrl": "https://sqs/1/queue" })),
            action => script(action, body),
        })
    });
    let gateway = gateway.await;
    (pool_at(&own_name(), &gateway.url).await, gateway)
}

fn message(n: usize) -> Value {
    json!({ "MessageId": n.to_string(), "ReceiptHandle": format!("r{n}"), "Body": "text" })
}

fn receipts(count: usize) -> Vec<Receipt> {
    (0..count).map(|n| Receipt(format!("r{n}"))).collect()
}

#[tokio::test]
async fn a_quick_receive_is_a_short_poll_and_a_thorough_one_a_long_poll() {
    let (pool, gateway) = scripted(|_, body| {
        let long = body["WaitTimeSeconds"].as_i64() > Some(0);
        Answer::ok(if long { json!({ "Messages": [message(1), message(2)] }) } else { json!({}) })
    })
    .await;
    let held = pool.receive(&class("large"), 50, HOLD).await.unwrap();
    assert_eq!(held, [], "falsely empty");
    let held = pool.receive_thoroughly(&class("large"), 50, HOLD).await.unwrap();
    assert_eq!(held.len(), 2);
    assert_eq!(pool.receive_thoroughly(&class("large"), 0, HOLD).await.unwrap(), []);
    let asked: Vec<Value> = gateway.take().into_iter().skip(1).map(|seen| seen.body).collect();
    let request = |wait: u32| {
        json!({
            "QueueUrl": "https://sqs/1/queue", "MaxNumberOfMessages": 10,
            "VisibilityTimeout": 30, "WaitTimeSeconds": wait,
        })
    };
    assert_eq!(asked, [request(0), request(1)]);
}

#[tokio::test]
async fn a_queue_is_located_once() {
    let (pool, gateway) = scripted(|_, _| {
        // The same message twice in one answer: rare, and none of the pool's business.
        Answer::ok(json!({ "Messages": [message(1), message(1)] }))
    })
    .await;
    pool.locate(&class("large")).await;
    assert_eq!(gateway.actions(), ["GetQueueUrl"]);
    let held = pool.receive(&class("large"), 10, HOLD).await.unwrap();
    assert_eq!(held.len(), 2);
    assert_eq!(gateway.actions(), ["ReceiveMessage"]);
}

/// Says no to the second entry of every batch that has one.
fn refusing_one(body: &Value, refusal: &Value) -> Answer {
    let ids = body["Entries"].as_array().unwrap().iter().map(|entry| entry["Id"].clone());
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for (n, id) in ids.enumerate() {
        let mut entry = json!({ "Id": id, "MessageId": "m", "MD5OfMessageBody": "d" });
        if n == 1 {
            entry.as_object_mut().unwrap().extend(refusal.as_object().unwrap().clone());
            failed.push(entry);
        } else {
            successful.push(entry);
        }
    }
    Answer::ok(json!({ "Successful": successful, "Failed": failed }))
}

async fn each_batched(pool: &SqsPool) -> [(&'static str, PortResult<()>); 4] {
    let (class, receipts) = (class("large"), receipts(21));
    [
        ("ChangeMessageVisibilityBatch", pool.extend(&class, &receipts, HOLD).await),
        ("ChangeMessageVisibilityBatch", pool.put_back(&class, &receipts).await),
        ("DeleteMessageBatch", pool.delete(&class, &receipts).await),
        ("SendMessageBatch", pool.send(&tickets(&class, 21), HOLD).await),
    ]
}

/// The contract's third batch has one entry only, so two of three batches have a failure.
#[tokio::test]
async fn entries_that_failed_are_counted_and_told_apart() {
    let failing = json!({ "SenderFault": false, "Code": "InternalError", "Message": "try later" });
    let (pool, _gateway) = scripted(move |_, body| refusing_one(body, &failing)).await;
    for (action, outcome) in each_batched(&pool).await {
        let reason = format!("{action}: InternalError: try later (2 of 21 entries)");
        assert_eq!(outcome, Err(PortError::Unavailable { service: "SQS", reason }));
    }
    let refused = json!({ "SenderFault": true, "Code": "InvalidMessageContents" });
    let (pool, _gateway) = scripted(move |_, body| refusing_one(body, &refused)).await;
    for (action, outcome) in each_batched(&pool).await {
        let Err(PortError::Unusable { reason, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(reason, format!("{action}: InvalidMessageContents: 2 of 21 entries"));
    }
    let throttled = json!({ "SenderFault": true, "Code": "RequestThrottled" });
    let (pool, _gateway) = scripted(move |_, body| refusing_one(body, &throttled)).await;
    for (_, outcome) in each_batched(&pool).await {
        assert!(matches!(outcome, Err(PortError::Unavailable { .. })), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_stale_receipt_among_others_does_nothing() {
    let stale = json!({
        "SenderFault": true, "Code": "InvalidParameterValue",
        "Message": "Value AQEB for parameter ReceiptHandle is invalid. \
                    Reason: The receipt handle has expired.",
    });
    let (pool, _gateway) = scripted(move |_, body| refusing_one(body, &stale)).await;
    for (_, outcome) in each_batched(&pool).await {
        assert_eq!(outcome, Ok(()));
    }
}

#[tokio::test]
async fn a_batch_that_fails_stops_no_other() {
    let (pool, gateway) = scripted(|_, body| {
        if body["Entries"][0]["Id"] == "0" {
            return Answer::error(503, "ServiceUnavailable", "ServiceUnavailable", "busy");
        }
        refusing_one(body, &json!({ "SenderFault": true, "Code": "ReceiptHandleIsInvalid" }))
    })
    .await;
    let outcome = pool.delete(&class("large"), &receipts(23)).await;
    assert!(matches!(outcome, Err(PortError::Unavailable { .. })), "{outcome:?}");
    let deletes = gateway.take().into_iter().filter(|seen| seen.action == "DeleteMessageBatch");
    let mut sizes: Vec<usize> =
        deletes.map(|seen| seen.body["Entries"].as_array().unwrap().len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [3, 10, 10, 10, 10, 10], "and is repeated alone");
}

#[tokio::test]
async fn delays_are_rounded_up_and_bounded() {
    let (pool, gateway) = scripted(|_, body| refusing_one(body, &json!({}))).await;
    for (millis, seconds) in [(0, 0), (1_001, 2), (3_600_000, 900)] {
        let one = tickets(&class("large"), 1);
        pool.send(&one, Duration::from_millis(millis)).await.unwrap();
        let sent = gateway.take().pop().unwrap();
        assert_eq!(sent.body["Entries"][0]["DelaySeconds"], json!(seconds), "{millis} ms");
        assert_eq!(sent.body["Entries"][0]["MessageBody"], json!(one[0].to_json()));
    }
}

/// The first call is refused by its date, and the next one signed by the clock of the answer.
#[tokio::test]
async fn a_wrong_clock_is_wrong_once() {
    let ahead = SystemTime::now() + Duration::from_secs(7_200);
    let date = DateTime::from(ahead).fmt(Format::HttpDate).unwrap();
    let mut early = true;
    let (pool, gateway) = scripted(move |_, _| {
        let answer = if std::mem::take(&mut early) {
            let why = "Signature expired: 20300101T000000Z is now earlier than 20300101T020000Z";
            Answer::error(403, "SignatureDoesNotMatch", "SignatureDoesNotMatch", why)
        } else {
            Answer::ok(json!({ "Messages": [message(1)] }))
        };
        answer.with("date", date.clone())
    })
    .await;
    let large = class("large");
    let first = pool.receive(&large, 1, HOLD).await;
    assert!(matches!(first, Err(PortError::Unavailable { .. })), "{first:?}");
    gateway.take();
    for _ in 0..2 {
        assert_eq!(pool.receive(&large, 1, HOLD).await.unwrap().len(), 1);
    }
    let hour = |moment: SystemTime| {
        let text = DateTime::from(moment).fmt(Format::DateTime).unwrap();
        text[..13].replace('-', "")
    };
    // An hour may have begun since.
    let hours = [hour(ahead), hour(ahead + Duration::from_secs(60))];
    for seen in gateway.take() {
        assert!(hours.contains(&seen.signed_at[..11].to_owned()), "{seen:?}, not {hours:?}");
    }
}

#[tokio::test]
async fn what_sqs_says_of_a_call_is_passed_on() {
    let answers = [
        (400, "RequestThrottled", true),
        (500, "InternalFailure", true),
        (403, "AccessDenied", false),
        (400, "InvalidAddress", false),
    ];
    for (status, code, passes) in answers {
        let (pool, gateway) = scripted(move |_, _| Answer::error(status, code, code, "so")).await;
        let outcome = pool.receive(&class("large"), 1, HOLD).await;
        match outcome.unwrap_err() {
            PortError::Unavailable { reason, .. } if passes => assert!(reason.contains(code)),
            PortError::Unusable { reason, .. } if !passes => assert!(reason.contains(code)),
            other => panic!("{code}: {other:?}"),
        }
        assert_eq!(gateway.actions().len(), 2, "the address, and one call that is not repeated");
    }
}

#[tokio::test]
async fn an_endpoint_that_does_not_listen_is_out_of_reach() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let pool = pool_at(&own_name(), &url).await;
    let outcome = pool.receive(&class("large"), 1, HOLD).await;
    assert!(matches!(outcome, Err(PortError::Unavailable { .. })), "{outcome:?}");
}
