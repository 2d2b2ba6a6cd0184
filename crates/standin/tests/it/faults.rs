//! Each fault, as AWS's own SDK sees it.

use std::time::{Duration, Instant, SystemTime};

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::types::{DeleteRequest, KeysAndAttributes, WriteRequest};
use aws_sdk_sqs::types::{BatchResultErrorEntry, SendMessageBatchRequestEntry};
use ondeck_standin::{AwsFault, AwsFaultRule, Endpoint, Gateway, Occurrence, Service};

use crate::harness::{Ec2, dynamodb, gateway, queue, sqs, table, text};

/// A gateway whose endpoint injects a fault once, and a table created without the fault.
async fn with_fault(what: AwsFault) -> (Gateway, Endpoint, aws_sdk_dynamodb::Client, String) {
    let gateway = gateway();
    let table = table(&dynamodb(&gateway.endpoint("quiet"))).await;
    let endpoint = gateway.endpoint("control");
    endpoint.inject(AwsFaultRule::new(what).occurrence(Occurrence::First(1)));
    let client = dynamodb(&endpoint);
    (gateway, endpoint, client, table)
}

/// Writes an item. Returns the result and whether the item was written.
async fn put(
    gateway: &Gateway,
    client: &aws_sdk_dynamodb::Client,
    table: &str,
) -> (Option<SdkError<aws_sdk_dynamodb::operation::put_item::PutItemError>>, bool) {
    let put = client.put_item().table_name(table).item("PK", text("a")).send().await;
    let quiet = dynamodb(&gateway.endpoint("quiet"));
    let found = quiet.get_item().table_name(table).key("PK", text("a")).send().await.unwrap();
    (put.err(), found.item.is_some())
}

#[tokio::test]
async fn a_reset_comes_before_the_effect_and_a_lost_answer_after_it() {
    for (what, is_written) in [(AwsFault::Reset, false), (AwsFault::LostAnswer, true)] {
        let (gateway, endpoint, client, table) = with_fault(what).await;
        let (error, written) = put(&gateway, &client, &table).await;
        assert!(matches!(error, Some(SdkError::DispatchFailure(_))), "{what:?}: {error:?}");
        assert_eq!(written, is_written, "{what:?}");
        assert_eq!(endpoint.log()[0].status, None);
        assert_eq!(endpoint.log()[0].fault, Some(what));
        let (error, written) = put(&gateway, &client, &table).await;
        assert!(error.is_none() && written, "only the first was meant: {error:?}");
    }
}

#[tokio::test]
async fn half_an_answer_is_no_answer_though_it_has_happened() {
    let gateway = gateway();
    let endpoint = gateway.endpoint("control");
    let name = crate::harness::unique("template");
    let ec2 = Ec2::at(&endpoint);
    let cut =
        endpoint.inject(AwsFaultRule::new(AwsFault::CutBody).operation("CreateLaunchTemplate"));
    let query = format!(
        "Action=CreateLaunchTemplate&LaunchTemplateName={name}&LaunchTemplateData.ImageId=ami-1"
    );
    let error = ec2.try_ask(&query).await.unwrap_err();
    // The head of the answer has arrived, or the error would be another one.
    assert!(error.is::<hyper::Error>(), "{error:?}");
    assert_eq!(cut.fired(), 1);
    assert_eq!(gateway.ec2().launch_templates(), [name]);
}

#[tokio::test]
async fn errors_and_throttling_have_the_services_own_codes() {
    let cases = [
        (AwsFault::Status(500), 500, "InternalServerError", "InternalError", "InternalError"),
        (AwsFault::Status(503), 503, "ServiceUnavailable", "ServiceUnavailable", "Unavailable"),
        (
            AwsFault::Throttle,
            400,
            "ProvisionedThroughputExceededException",
            "RequestThrottled",
            "RequestLimitExceeded",
        ),
        (
            AwsFault::ExpiredToken,
            400,
            "ExpiredTokenException",
            "ExpiredTokenException",
            "RequestExpired",
        ),
    ];
    for (what, status, of_dynamodb, of_sqs, of_ec2) in cases {
        let (gateway, endpoint, client, table) = with_fault(what).await;
        let (error, written) = put(&gateway, &client, &table).await;
        let Some(SdkError::ServiceError(error)) = error else { panic!("{what:?}: {error:?}") };
        assert_eq!(error.err().meta().code(), Some(of_dynamodb));
        assert_eq!(error.raw().status().as_u16(), status);
        assert!(!written, "{what:?} comes before the effect");
        endpoint.inject(AwsFaultRule::new(what));
        let error = sqs(&endpoint).list_queues().send().await.unwrap_err().into_service_error();
        assert_eq!(error.meta().code(), Some(of_sqs));
        let answer = Ec2::at(&endpoint).ask("Action=DescribeInstances").await;
        assert_eq!(answer.code(), Some(of_ec2));
    }
}

#[tokio::test]
async fn a_delay_delays_and_a_hang_lasts() {
    const DELAY: Duration = Duration::from_millis(300);
    let (gateway, endpoint, client, table) = with_fault(AwsFault::Delay(DELAY)).await;
    let begun = Instant::now();
    let (error, written) = put(&gateway, &client, &table).await;
    assert!(error.is_none() && written && begun.elapsed() >= DELAY);
    assert!(endpoint.log()[0].took >= DELAY);

    let quiet = dynamodb(&gateway.endpoint("quiet"));
    for (what, name, happens) in [(AwsFault::Hang, "b", false), (AwsFault::Silence, "c", true)] {
        let hang = endpoint.inject(AwsFaultRule::new(what));
        let call = client.put_item().table_name(&table).item("PK", text(name)).send();
        let written = async {
            loop {
                let get = quiet.get_item().table_name(&table).key("PK", text(name));
                if get.send().await.unwrap().item.is_some() {
                    return;
                }
            }
        };
        tokio::select! {
            answer = call => panic!("{what:?}: {answer:?}"),
            () = written => assert!(happens, "{what:?}"),
            () = tokio::time::sleep(DELAY), if !happens => {}
        }
        assert_eq!(hang.fired(), 1);
        endpoint.clear_faults();
    }
}

#[tokio::test]
async fn a_skewed_clock_refuses_until_requests_are_signed_by_it() {
    const AHEAD: Duration = Duration::from_secs(7_200);
    let (_gateway, endpoint, client, table) = with_fault(AwsFault::Status(500)).await;
    endpoint.clear_faults();
    endpoint.inject(AwsFaultRule::new(AwsFault::Skew(7_200)));
    let put = client.put_item().table_name(&table).item("PK", text("a")).send().await;
    let Err(SdkError::ServiceError(error)) = put else { panic!("{put:?}") };
    assert_eq!(error.err().meta().code(), Some("InvalidSignatureException"));
    assert!(error.err().meta().message().unwrap().starts_with("Signature expired"));
    let date = error.raw().headers().get("date").unwrap();
    let date =
        aws_smithy_types::DateTime::from_str(date, aws_smithy_types::date_time::Format::HttpDate);
    let now = aws_smithy_types::DateTime::from(SystemTime::now()).secs();
    let ahead = date.unwrap().secs() - now;
    assert!((7_190..=7_210).contains(&ahead), "{ahead}");

    let ec2 = Ec2::at(&endpoint);
    let query = "Action=DescribeInstances";
    let (wrong, _) = ec2.signed_at(query, SystemTime::now()).await.unwrap();
    assert_eq!(wrong.code(), Some("RequestExpired"));
    let (right, date) = ec2.signed_at(query, SystemTime::now() + AHEAD).await.unwrap();
    assert_eq!(right.status, 200, "signed by the service's clock");
    assert!(date.ends_with(" GMT") && date.len() == 29, "{date}");
}

#[tokio::test]
async fn a_short_poll_may_be_falsely_empty_and_a_long_one_not() {
    let gateway = gateway();
    let endpoint = gateway.endpoint("control");
    let client = sqs(&endpoint);
    let queue = queue(&client).await;
    client.send_message().queue_url(&queue).message_body("hello").send().await.unwrap();
    endpoint.inject(AwsFaultRule::new(AwsFault::EmptyReceive));
    let short = client.receive_message().queue_url(&queue).send().await.unwrap();
    assert!(short.messages().is_empty());
    let long = client.receive_message().queue_url(&queue).wait_time_seconds(1).send().await;
    assert_eq!(long.unwrap().messages().len(), 1);
}

#[tokio::test]
async fn a_duplicate_has_the_same_id_and_a_receipt_of_its_own() {
    let gateway = gateway();
    let endpoint = gateway.endpoint("control");
    let client = sqs(&endpoint);
    let queue = queue(&client).await;
    client.send_message().queue_url(&queue).message_body("hello").send().await.unwrap();
    endpoint
        .inject(AwsFaultRule::new(AwsFault::DuplicateDelivery).occurrence(Occurrence::First(1)));
    let receive = || async {
        let receive = client.receive_message().queue_url(&queue).wait_time_seconds(1);
        receive.send().await.unwrap().messages().first().cloned()
    };
    let (first, second) = (receive().await.unwrap(), receive().await.unwrap());
    assert_eq!((first.body(), first.message_id()), (second.body(), second.message_id()));
    assert_ne!(first.receipt_handle(), second.receipt_handle());
    let delete = client.delete_message().queue_url(&queue);
    delete.receipt_handle(first.receipt_handle().unwrap()).send().await.unwrap();
    let delete = client.delete_message().queue_url(&queue);
    delete.receipt_handle(second.receipt_handle().unwrap()).send().await.unwrap();
    assert_eq!(receive().await, None, "there was one duplicate, and it is gone");
    assert_eq!(endpoint.count(Service::Sqs, "SendMessage"), 1, "the copy is not the caller's call");
}

#[tokio::test]
async fn a_batch_may_be_processed_in_part() {
    let (gateway, endpoint, client, table) = with_fault(AwsFault::PartialBatch).await;
    for key in ["a", "b", "c"] {
        client.put_item().table_name(&table).item("PK", text(key)).send().await.unwrap();
    }
    let keys = ["a", "b", "c"].map(|key| [("PK".to_owned(), text(key))].into());
    let keys = KeysAndAttributes::builder().set_keys(Some(keys.into())).consistent_read(true);
    let get = client.batch_get_item().request_items(&table, keys.build().unwrap());
    let got = get.send().await.unwrap();
    assert_eq!(got.responses.unwrap()[&table].len(), 1);
    let left = &got.unprocessed_keys.unwrap()[&table];
    assert_eq!((left.keys().len(), left.consistent_read()), (2, Some(true)));

    endpoint.inject(AwsFaultRule::new(AwsFault::PartialBatch).operation("BatchWriteItem"));
    let deletion = DeleteRequest::builder().key("PK", text("a")).build().unwrap();
    let write = WriteRequest::builder().delete_request(deletion).build();
    let written =
        client.batch_write_item().request_items(&table, vec![write]).send().await.unwrap();
    assert_eq!(written.unprocessed_items.unwrap()[&table].len(), 1);

    let client = sqs(&endpoint);
    let queue = queue(&client).await;
    let sending =
        endpoint.inject(AwsFaultRule::new(AwsFault::PartialBatch).operation("SendMessageBatch"));
    let entries = ["0", "1", "2"]
        .map(|id| SendMessageBatchRequestEntry::builder().id(id).message_body(id).build().unwrap());
    let send = client.send_message_batch().queue_url(&queue).set_entries(Some(entries.into()));
    let sent = send.send().await.unwrap();
    assert_eq!(sent.successful().len(), 1);
    let failed: Vec<&str> = sent.failed().iter().map(BatchResultErrorEntry::id).collect();
    assert_eq!((failed, sending.fired()), (vec!["1", "2"], 1));
    gateway.assert_requests_valid();
}
