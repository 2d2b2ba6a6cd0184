//! Endpoints forward calls to their service and count them.

use aws_sdk_sqs::types::SendMessageBatchRequestEntry;
use ondeck_standin::Service;

use crate::harness::{Ec2, SOON, dynamodb, dynamodb_as, gateway, queue, sqs, table, text};

#[tokio::test]
async fn each_service_answers_and_each_endpoint_counts_its_calls() {
    let gateway = gateway();
    let (control, agents) = (gateway.endpoint("control"), gateway.endpoint("agents"));
    let client = dynamodb(&control);
    let table = table(&client).await;
    client.put_item().table_name(&table).item("PK", text("a")).send().await.unwrap();
    // Machines have their own access keys, but must see the same tables.
    let agent = dynamodb_as(&agents, "ASIAOTHER");
    let found = agent.get_item().table_name(&table).key("PK", text("a")).send().await.unwrap();
    assert_eq!(found.item.unwrap()["PK"], text("a"));

    let client = sqs(&control);
    let queue = queue(&client).await;
    let entry = SendMessageBatchRequestEntry::builder().id("0").message_body("hello");
    let send = client.send_message_batch().queue_url(&queue);
    send.entries(entry.build().unwrap()).send().await.unwrap();
    let received = client.receive_message().queue_url(&queue).send().await.unwrap();
    assert_eq!(received.messages()[0].body(), Some("hello"));

    let answer = Ec2::at(&control).ask("Action=DescribeInstances").await;
    assert_eq!(answer.status, 200);

    let counted: Vec<(Service, String, usize)> =
        control.calls().into_iter().map(|((service, of), count)| (service, of, count)).collect();
    let expected = [
        (Service::DynamoDb, "CreateTable"),
        (Service::DynamoDb, "PutItem"),
        (Service::Sqs, "CreateQueue"),
        (Service::Sqs, "ReceiveMessage"),
        (Service::Sqs, "SendMessageBatch"),
        (Service::Ec2, "DescribeInstances"),
    ];
    assert_eq!(counted, expected.map(|(service, of)| (service, of.to_owned(), 1)));
    assert_eq!(control.total(), 6);
    assert_eq!(agents.total(), 1, "endpoints count on their own");
    assert_eq!(agents.count(Service::DynamoDb, "GetItem"), 1);
    let log = control.log();
    assert_eq!(log.len(), 6);
    assert!(log.iter().all(|entry| entry.status == Some(200) && entry.fault.is_none()), "{log:?}");
    control.reset();
    assert_eq!((control.total(), control.log().len(), agents.total()), (0, 0, 1));
    gateway.assert_requests_valid();
}

#[tokio::test]
async fn connections_are_counted_by_the_calls_that_come_over_them() {
    let gateway = gateway();
    let endpoint = gateway.endpoint("control");
    let (one, other) = (dynamodb(&endpoint), dynamodb(&endpoint));
    assert_eq!(endpoint.connections(), 0);
    for (client, connections) in [(&one, 1), (&one, 1), (&other, 2), (&one, 2), (&other, 2)] {
        client.list_tables().send().await.unwrap();
        assert_eq!(endpoint.connections(), connections);
    }
    endpoint.reset();
    assert_eq!(endpoint.connections(), 0);
    one.list_tables().send().await.unwrap();
    assert_eq!(endpoint.connections(), 1, "one that was opened before");
}

#[tokio::test]
async fn an_error_of_the_service_arrives_as_it_is() {
    let gateway = gateway();
    let client = dynamodb(&gateway.endpoint("control"));
    let error = client.get_item().table_name("no-such-table").key("PK", text("a")).send().await;
    assert!(error.unwrap_err().into_service_error().is_resource_not_found_exception());
}

#[tokio::test]
async fn a_service_without_a_stand_in_is_refused_and_reported() {
    let gateway = gateway();
    let answer = Ec2::at(&gateway.endpoint("control")).ask("Action=RunInstances").await;
    assert_eq!((answer.status, answer.code()), (400, Some("InvalidAction")));
    // The action exists; only required parameters are missing.
    assert!(gateway.violations().iter().all(|violation| violation.problem == "missing"));
}

#[tokio::test]
async fn a_service_that_is_down_is_told_apart_from_a_fault() {
    let gateway = ondeck_standin::Gateway::start(ondeck_standin::GatewayOptions {
        // No process listens on port 9, which is reserved for the discard protocol.
        dynamodb: "http://127.0.0.1:9".to_owned(),
        ..crate::harness::options()
    });
    let endpoint = gateway.endpoint("control");
    dynamodb(&endpoint).list_tables().send().await.unwrap_err();
    assert_eq!(endpoint.log()[0].status, Some(502));
}

#[tokio::test]
async fn a_shut_endpoint_refuses_connections_and_keeps_its_address() {
    let gateway = gateway();
    let (endpoint, other) = (gateway.endpoint("control"), gateway.endpoint("agents"));
    let client = dynamodb(&endpoint);
    client.list_tables().send().await.unwrap();
    for _ in 0..3 {
        endpoint.shut();
        // The pooled connection is reset first, then a new one is refused.
        let refused = async || {
            let error = client.list_tables().send().await.err()?;
            let source = std::error::Error::source(&error)?.to_string();
            format!("{error:?} {source}").contains("ConnectionRefused").then_some(())
        };
        tokio::time::timeout(SOON, async { while refused().await.is_none() {} }).await.unwrap();
        dynamodb(&other).list_tables().send().await.unwrap();
        endpoint.reopen();
        let back = async { while client.list_tables().send().await.is_err() {} };
        tokio::time::timeout(SOON, back).await.unwrap();
    }
}
