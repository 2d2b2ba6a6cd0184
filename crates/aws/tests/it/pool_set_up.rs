//! Queues that are made, found, mended, deleted and made again.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Region};
use aws_sdk_sqs::types::QueueAttributeName;
use ondeck_core::model::ids::ResourceClass;
use ondeck_core::ports::{Pool, PortError};
use ondeck_standin::emulators::Emulators;
use serde_json::json;

use crate::queues::{Answer, Gateway, class, own_name, pool, pool_at, tickets};

/// A way to look at queues, and to do to them what other people do.
struct Outsider {
    client: Client,
    url: String,
}

impl Outsider {
    /// At the only queue of a pool.
    async fn at(pool: &str) -> Outsider {
        let config = aws_sdk_sqs::config::Builder::new()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(aws_sdk_sqs::config::Credentials::new(
                "a", "b", None, None, "test",
            ))
            .endpoint_url(Emulators::running().ministack);
        let client = Client::from_conf(config.build());
        let prefix = format!("ondeck-{}-", pool.replace('/', "-"));
        let found = client.list_queues().queue_name_prefix(prefix).send().await.unwrap();
        let [url] = found.queue_urls() else { panic!("one queue, not {:?}", found.queue_urls()) };
        Outsider { url: url.clone(), client }
    }

    async fn attributes(&self) -> HashMap<QueueAttributeName, String> {
        let request = self.client.get_queue_attributes().queue_url(&self.url);
        let answer = request.attribute_names(QueueAttributeName::All).send().await.unwrap();
        answer.attributes.unwrap()
    }

    async fn set(&self, name: QueueAttributeName, value: &str) {
        let request = self.client.set_queue_attributes().queue_url(&self.url);
        request.attributes(name, value).send().await.unwrap();
    }

    async fn tags(&self) -> HashMap<String, String> {
        let answer = self.client.list_queue_tags().queue_url(&self.url).send().await.unwrap();
        answer.tags.unwrap_or_default()
    }

    async fn tag(&self, key: &str, value: &str) {
        self.client.tag_queue().queue_url(&self.url).tags(key, value).send().await.unwrap();
    }

    async fn delete(&self) {
        self.client.delete_queue().queue_url(&self.url).send().await.unwrap();
    }
}

fn ours() -> [(QueueAttributeName, &'static str); 5] {
    use QueueAttributeName as Q;
    [
        (Q::MessageRetentionPeriod, "1209600"),
        (Q::VisibilityTimeout, "30"),
        (Q::ReceiveMessageWaitTimeSeconds, "0"),
        (Q::DelaySeconds, "0"),
        (Q::SqsManagedSseEnabled, "true"),
    ]
}

fn large() -> [ResourceClass; 1] {
    [class("large")]
}

fn not_set_up() -> PortError {
    PortError::NotSetUp { what: "queue of class large".to_owned() }
}

#[tokio::test]
async fn a_queue_says_whose_it_is_and_is_cheap_to_check() {
    let name = own_name();
    let gateway = Gateway::open().await;
    let pool = pool_at(&name, &gateway.url).await;
    pool.set_up(&large()).await.unwrap();
    let outsider = Outsider::at(&name).await;
    let attributes = outsider.attributes().await;
    for (key, value) in ours() {
        assert_eq!(attributes[&key], value, "{key}");
    }
    let tags = outsider.tags().await;
    let expected =
        [("ondeck:pool", &*name), ("ondeck:resource-class", "large"), ("managed-by", "ondeck")];
    assert_eq!(tags, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());

    gateway.take();
    pool_at(&name, &gateway.url).await.set_up(&large()).await.unwrap();
    assert_eq!(gateway.actions(), ["CreateQueue", "ListQueueTags"], "nothing was amiss");
}

#[tokio::test]
async fn set_up_tells_the_addresses() {
    let gateway = Gateway::open().await;
    let pool = pool_at(&own_name(), &gateway.url).await;
    pool.set_up(&large()).await.unwrap();
    gateway.take();
    pool.depth(&large()[0]).await.unwrap();
    assert_eq!(gateway.actions(), ["GetQueueAttributes"]);
}

#[tokio::test]
async fn what_others_have_changed_is_put_right() {
    let name = own_name();
    let pool = pool(&name).await;
    pool.set_up(&large()).await.unwrap();
    let outsider = Outsider::at(&name).await;
    let drifted = [
        (QueueAttributeName::MessageRetentionPeriod, "60"),
        (QueueAttributeName::DelaySeconds, "900"),
        (QueueAttributeName::VisibilityTimeout, "0"),
        (QueueAttributeName::SqsManagedSseEnabled, "false"),
    ];
    for (key, value) in drifted {
        outsider.set(key, value).await;
    }
    outsider.set(QueueAttributeName::MaximumMessageSize, "2048").await;
    outsider.tag("ondeck:pool", "another/pool").await;
    outsider.tag("cost-centre", "42").await;

    pool.set_up(&large()).await.expect("a difference is no error");
    let attributes = outsider.attributes().await;
    for (key, value) in ours() {
        assert_eq!(attributes[&key], value, "{key}");
    }
    assert_eq!(attributes[&QueueAttributeName::MaximumMessageSize], "2048", "not ours to set");
    let tags = outsider.tags().await;
    assert_eq!((&*tags["ondeck:pool"], &*tags["cost-centre"]), (&*name, "42"));
}

/// Both kinds of encryption at once are refused by SQS, and an operator who chose a key has a reason.
#[tokio::test]
async fn a_key_of_the_operators_is_left_alone() {
    let name = own_name();
    let gateway = Gateway::open().await;
    let pool = pool_at(&name, &gateway.url).await;
    pool.set_up(&large()).await.unwrap();
    let outsider = Outsider::at(&name).await;
    outsider.set(QueueAttributeName::SqsManagedSseEnabled, "false").await;
    outsider.set(QueueAttributeName::KmsMasterKeyId, "alias/ours").await;
    gateway.take();
    pool.set_up(&large()).await.unwrap();
    assert_eq!(gateway.actions(), ["CreateQueue", "GetQueueAttributes", "ListQueueTags"]);
    assert_eq!(outsider.attributes().await[&QueueAttributeName::KmsMasterKeyId], "alias/ours");
}

#[tokio::test]
async fn refreshes_at_the_same_time_agree() {
    let name = own_name();
    let (a, b, c) = (pool(&name).await, pool(&name).await, pool(&name).await);
    let classes = ["one", "two", "three", "four"].map(class);
    let (a, b, c) = tokio::join!(a.set_up(&classes), b.set_up(&classes), c.set_up(&classes));
    assert_eq!((a, b, c), (Ok(()), Ok(()), Ok(())));
}

#[tokio::test]
async fn a_queue_that_was_never_made_is_not_set_up() {
    let pool = pool(&own_name()).await;
    let [large] = large();
    let hold = Duration::from_secs(1);
    assert_eq!(pool.receive(&large, 1, hold).await, Err(not_set_up()));
    assert_eq!(pool.depth(&large).await, Err(not_set_up()));
    let sent = pool.send(&tickets(&large, 25), Duration::ZERO).await;
    assert_eq!(sent, Err(not_set_up()));
}

#[tokio::test]
async fn a_deleted_queue_is_not_set_up_until_it_is_again() {
    let name = own_name();
    let gateway = Gateway::open().await;
    let (ours, theirs) = (pool(&name).await, pool_at(&name, &gateway.url).await);
    ours.set_up(&large()).await.unwrap();
    let [class] = large();
    theirs.depth(&class).await.unwrap();
    Outsider::at(&name).await.delete().await;
    gateway.take();
    for actions in [["GetQueueAttributes"], ["GetQueueUrl"]] {
        assert_eq!(ours.depth(&class).await, Err(not_set_up()));
        assert_eq!(theirs.depth(&class).await, Err(not_set_up()));
        assert_eq!(gateway.actions(), actions, "an address that led nowhere is forgotten");
    }
    ours.set_up(&large()).await.unwrap();
    for pool in [&ours, &theirs] {
        pool.send(&tickets(&class, 1), Duration::ZERO).await.unwrap();
    }
    assert_eq!(ours.depth(&class).await.unwrap().visible, 2);
}

#[tokio::test]
async fn a_name_that_is_not_free_yet_may_be_tried_again() {
    let gateway = Gateway::start(|action, _| {
        let wait = "You must wait 60 seconds after deleting a queue before you can create another.";
        let old_code = "AWS.SimpleQueueService.QueueDeletedRecently";
        assert_eq!(action, "CreateQueue");
        Some(Answer::error(400, "QueueDeletedRecently", old_code, wait))
    });
    let pool = pool_at(&own_name(), &gateway.await.url).await;
    let Err(PortError::Unavailable { reason, .. }) = pool.set_up(&large()).await else {
        panic!("it passes after a minute");
    };
    assert!(reason.contains("less than a minute ago") && reason.ends_with("large"), "{reason}");
}

/// SQS asks for a second of patience with a new queue.
#[tokio::test]
async fn a_queue_that_does_not_answer_yet_is_no_queue_that_is_missing() {
    let mut early = true;
    let gateway = Gateway::start(move |action, _| {
        let missing = "AWS.SimpleQueueService.NonExistentQueue";
        let answer = Answer::error(400, "QueueDoesNotExist", missing, "not here");
        (action == "ListQueueTags" && std::mem::take(&mut early)).then_some(answer)
    });
    let pool = pool_at(&own_name(), &gateway.await.url).await;
    let first = pool.set_up(&large()).await;
    assert!(matches!(first, Err(PortError::Unavailable { .. })), "{first:?}");
    assert_eq!(pool.set_up(&large()).await, Ok(()), "so core tries again");
}

/// The one that fails is named, and the others are made nevertheless.
#[tokio::test]
async fn a_class_that_fails_holds_up_no_other() {
    let gateway = Gateway::start(|action, body| {
        let small = body["QueueName"].as_str().is_some_and(|name| name.ends_with("-small"));
        let denied = Answer::error(403, "AccessDenied", "AccessDenied", "no");
        (action == "CreateQueue" && small).then_some(denied)
    });
    let pool = pool_at(&own_name(), &gateway.await.url).await;
    let answer = pool.set_up(&["small", "large"].map(class)).await;
    let Err(PortError::Unusable { hint, .. }) = answer else { panic!("{answer:?}") };
    assert!(hint.ends_with("sqs:CreateQueue"), "{hint}");
    assert_eq!(pool.depth(&class("large")).await.unwrap().total(), 0);
}

#[tokio::test]
async fn an_answer_without_what_was_asked_for_is_none() {
    let gateway = Gateway::start(|action, _| {
        (action == "GetQueueAttributes").then(|| Answer::ok(json!({ "Attributes": {} })))
    });
    let pool = pool_at(&own_name(), &gateway.await.url).await;
    pool.set_up(&large()).await.unwrap();
    let answer = pool.depth(&large()[0]).await;
    let Err(PortError::Unavailable { reason, .. }) = answer else { panic!("{answer:?}") };
    assert!(reason.ends_with("without ApproximateNumberOfMessages"), "{reason}");
}
