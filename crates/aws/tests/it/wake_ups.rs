//! Wake-ups by queues of the emulator.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use aws_sdk_sqs::types::QueueAttributeName;
use ondeck_aws::{AwsClock, DynamoStore};
use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::{AgentStore, News, Store};
use ondeck_core::testkit::contract::wake_up_suite;
use ondeck_standin::emulators::Emulators;
use ondeck_standin::{AwsFault, AwsFaultRule, Gateway, GatewayOptions, Service};

use crate::store_harness::{HOUR, StoreHarness, idle, instance, make, noon, run};

/// What precedes the id of a machine in its ARN, in the account of the emulators.
const PREFIX: &str = "arn:aws:ec2:us-east-1:000000000000:instance/";
const MOMENT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(20);

/// A pool on EC2, with its settings, and a gateway without policies.
struct WakeHarness {
    store: StoreHarness,
    gateway: Gateway,
    clock: AwsClock,
}

impl WakeHarness {
    async fn new() -> WakeHarness {
        let emulators = Emulators::running();
        let options = GatewayOptions::at(&emulators.dynamodb, &emulators.ministack);
        let gateway = Gateway::start(options);
        let mut store = StoreHarness::new();
        store.dynamodb = gateway.endpoint("control").url().to_owned();
        let control = store.store().await;
        control.set_up().await.unwrap();
        let prefix = BTreeMap::from([("agent-key-prefix".to_owned(), PREFIX.to_owned())]);
        control.put_settings(&prefix).await.unwrap();
        let clock = store.cloud().await.clock();
        WakeHarness { store, gateway, clock }
    }

    async fn control(&self) -> DynamoStore {
        self.store.store().await
    }

    /// The store of the agent of this machine, which listens already.
    async fn agent(&self, id: &InstanceId) -> DynamoStore {
        let identity = Some(format!("{PREFIX}{id}"));
        let agent = DynamoStore::of_agent(&self.store.cloud().await, identity);
        agent.listen(id);
        self.until(&agent, |news| *news == News::Quiet).await;
        agent
    }

    async fn until(&self, agent: &DynamoStore, wanted: impl Fn(&News) -> bool) -> News {
        let begun = Instant::now();
        loop {
            let news = agent.news(&self.clock, MOMENT, MOMENT).await;
            if wanted(&news) {
                return news;
            }
            assert!(begun.elapsed() < LONG, "{news:?}");
        }
    }

    /// The names of the machines' queues.
    async fn queues(&self) -> Vec<String> {
        let prefix = format!("{}_", self.store.pool.resource_name());
        let list = sqs().await.list_queues().queue_name_prefix(prefix).send().await.unwrap();
        let mut urls = list.queue_urls.unwrap_or_default();
        urls.sort();
        urls
    }

    fn calls(&self, operation: &str) -> usize {
        self.gateway.endpoint("control").count(Service::Sqs, operation)
    }
}

/// Direct access to the emulator.
async fn sqs() -> aws_sdk_sqs::Client {
    let config = aws_config::defaults(aws_config::BehaviorVersion::latest())
        .region("us-east-1")
        .endpoint_url(Emulators::running().ministack)
        .load()
        .await;
    aws_sdk_sqs::Client::new(&config)
}

#[tokio::test]
async fn wake_ups_fulfil_their_contract() {
    let harness = WakeHarness::new().await;
    let (control, id) = (harness.control().await, instance("i-0123456789abcdef0"));
    let agent = harness.agent(&id).await;
    wake_up_suite(&control, &agent, &id, &harness.clock).await;
    harness.store.done().await;
}

#[tokio::test]
async fn a_machine_without_a_queue_is_no_error_and_keeps_no_mode_waiting() {
    let harness = WakeHarness::new().await;
    let control = harness.control().await;
    let begun = Instant::now();
    control.wake(&[instance("i-1"), instance("i-2")]);
    control.finish().await.unwrap();
    assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
    assert_eq!(harness.calls("SendMessage"), 2);
    let hang = AwsFaultRule::new(AwsFault::Hang).operation("SendMessage");
    harness.gateway.endpoint("control").inject(hang);
    control.wake(&[instance("i-1")]);
    let begun = Instant::now();
    control.finish().await.unwrap();
    assert!(begun.elapsed() < LONG / 2, "an SQS that does not answer: {:?}", begun.elapsed());
    harness.store.done().await;
}

/// A fleet that is claimed at once is woken at once.
#[tokio::test]
async fn many_wake_ups_are_under_way_at_the_same_time_and_not_all() {
    let harness = WakeHarness::new().await;
    let control = harness.control().await;
    let endpoint = harness.gateway.endpoint("control");
    let slow = AwsFault::Delay(Duration::from_millis(300));
    endpoint.inject(AwsFaultRule::new(slow).operation("SendMessage"));
    for n in 0..60 {
        control.wake(&[instance(&format!("i-{n}"))]);
    }
    let sent = || {
        let log = endpoint.log().into_iter();
        log.filter(|entry| entry.operation == "SendMessage").collect::<Vec<_>>()
    };
    let begun = Instant::now();
    while sent().len() < 60 {
        assert!(begun.elapsed() < LONG, "{} of 60", sent().len());
        tokio::task::yield_now().await;
    }
    let sent = sent();
    let beside = |at| sent.iter().filter(|other| other.at <= at && at < other.ended()).count();
    let most = sent.iter().map(|entry| beside(entry.at)).max().unwrap();
    assert!((17..=48).contains(&most), "{most}");
    harness.store.done().await;
}

/// The emulator creates the queue at once; AWS does so a minute after its deletion.
#[tokio::test]
async fn a_queue_that_is_deleted_under_its_agent_is_created_again() {
    let harness = WakeHarness::new().await;
    let (control, id) = (harness.control().await, instance("i-1"));
    let agent = harness.agent(&id).await;
    let [url] = &harness.queues().await[..] else { panic!("one queue") };
    let deleted = AwsFaultRule::new(AwsFault::Refusal(400, "QueueDeletedRecently"));
    let deleted = harness.gateway.endpoint("control").inject(deleted.operation("CreateQueue"));
    sqs().await.delete_queue().queue_url(url).send().await.unwrap();
    let unheard = harness.until(&agent, |news| matches!(news, News::Unheard(Some(_)))).await;
    assert!(format!("{unheard:?}").contains("SQS"), "{unheard:?}");
    assert!(deleted.matched() < 10, "it backs off");
    harness.gateway.endpoint("control").clear_faults();
    harness.until(&agent, |news| *news == News::Quiet).await;
    control.wake(std::slice::from_ref(&id));
    assert_eq!(agent.news(&harness.clock, MOMENT, LONG).await, News::Announced);
    harness.store.done().await;
}

#[tokio::test]
async fn an_agent_that_starts_again_uses_the_queue_of_before() {
    let harness = WakeHarness::new().await;
    let (control, id) = (harness.control().await, instance("i-1"));
    drop(harness.agent(&id).await);
    let agent = harness.agent(&id).await;
    control.wake(std::slice::from_ref(&id));
    assert_eq!(agent.news(&harness.clock, MOMENT, LONG).await, News::Announced);
    assert_eq!(harness.queues().await.len(), 1);
    harness.store.done().await;
}

#[tokio::test]
async fn a_machine_that_aws_does_not_know_has_no_queue() {
    let harness = WakeHarness::new().await;
    let agent = DynamoStore::of_agent(&harness.store.cloud().await, None);
    agent.listen(&instance("i-1"));
    let news = agent.news(&harness.clock, MOMENT, LONG).await;
    assert_eq!(news, News::Unheard(None), "it polls");
    assert_eq!(harness.queues().await, Vec::<String>::new());
    harness.store.done().await;
}

#[tokio::test]
async fn the_queues_of_machines_that_are_gone_are_deleted() {
    let harness = WakeHarness::new().await;
    let control = harness.control().await;
    let [here, gone] = ["i-here", "i-gone"].map(instance);
    drop((harness.agent(&here).await, harness.agent(&gone).await));
    let both = [here.clone(), gone.clone()];

    let before = harness.gateway.endpoint("control").total();
    assert_eq!(control.prune_wake_ups(&both, Duration::ZERO).await, Ok(0));
    // Beside one read of the settings by a process that has not read them yet.
    assert_eq!(harness.gateway.endpoint("control").total() - before, 2);
    assert_eq!(harness.calls("ListQueues"), 1);

    assert_eq!(
        control.prune_wake_ups(std::slice::from_ref(&here), HOUR).await,
        Ok(0),
        "it may be new"
    );
    assert_eq!(harness.queues().await.len(), 2);
    assert_eq!(control.prune_wake_ups(&[here], Duration::ZERO).await, Ok(1));
    let [left] = &harness.queues().await[..] else { panic!("one queue") };
    assert!(left.ends_with("_i-here"), "{left}");
    harness.store.done().await;
}

#[tokio::test]
async fn the_queue_is_tagged_encrypted_and_keeps_messages_for_a_minute() {
    let harness = WakeHarness::new().await;
    let _agent = harness.agent(&instance("i-1")).await;
    let [url] = &harness.queues().await[..] else { panic!("one queue") };
    let client = sqs().await;
    let tags = client.list_queue_tags().queue_url(url).send().await.unwrap().tags.unwrap();
    let tag = |name: &str| tags.get(name).map(String::as_str);
    assert_eq!(tag("ondeck:machine"), Some(&*format!("{PREFIX}i-1")));
    assert_eq!(tag("ondeck:pool"), Some(&*harness.store.pool.to_string()));
    let ask = client.get_queue_attributes().queue_url(url);
    let attributes = ask.attribute_names(QueueAttributeName::All).send().await.unwrap();
    let attributes = attributes.attributes.unwrap();
    for (name, value) in [
        (QueueAttributeName::MessageRetentionPeriod, "60"),
        (QueueAttributeName::VisibilityTimeout, "60"),
        (QueueAttributeName::SqsManagedSseEnabled, "true"),
    ] {
        assert_eq!(attributes.get(&name).map(String::as_str), Some(value), "{name}");
    }
    harness.store.done().await;
}

/// From the answer to the claim until the agent has read it, with 8 ms on each call: the wake-up and one
/// consistent read. `--no-capture` prints the times.
#[tokio::test]
async fn a_claim_is_noticed_after_two_round_trips() {
    let harness = WakeHarness::new().await;
    let (control, id) = (harness.control().await, instance("i-1"));
    let agent = harness.agent(&id).await;
    // They name the account, and a mode reads them first.
    Store::settings(&control).await.unwrap();
    let delay = AwsFaultRule::new(AwsFault::Delay(Duration::from_millis(8)));
    harness.gateway.endpoint("control").inject(delay);
    let mut machine = idle(&control, id.as_str()).await;
    let mut took = Vec::new();
    for n in 0..15 {
        agent.record(&id).await.unwrap();
        let run = run(&n.to_string());
        let reads = harness.gateway.endpoint("control").count(Service::DynamoDb, "GetItem");
        let noticed = async {
            assert_eq!(agent.news(&harness.clock, MOMENT, LONG).await, News::Announced);
            let record = agent.record(&id).await.unwrap().unwrap();
            assert_eq!(record.run.as_ref(), Some(&run));
            Instant::now()
        };
        let claimed = async {
            let claim = machine.claim(&run, noon(), HOUR);
            let claimed = make(&control, claim).await;
            let at = Instant::now();
            control.wake(std::slice::from_ref(&id));
            (claimed, at)
        };
        let (noticed, (claimed, at)) = tokio::join!(noticed, claimed);
        took.push(noticed.saturating_duration_since(at));
        let after = harness.gateway.endpoint("control").count(Service::DynamoDb, "GetItem");
        assert_eq!(after - reads, 1, "one read, which is consistent");
        let back = claimed.give_back(noon(), HOUR);
        machine = make(&control, back).await;
    }
    took.sort();
    println!("noticed after {:?} in the median, {:?} at worst", took[7], took[14]);
    assert!(took[7] < Duration::from_millis(250), "{took:?}");
    harness.store.done().await;
}
