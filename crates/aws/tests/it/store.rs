use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, GlobalSecondaryIndex, KeySchemaElement,
    KeyType, Projection, ProjectionType, ScalarAttributeType,
};
use futures_util::future::join_all;
use ondeck_aws::{DynamoStore, EventsOf};
use ondeck_core::lifecycle::{Instance, Verdict};
use ondeck_core::model::credentials::Credentials;
use ondeck_core::model::record::State;
use ondeck_core::model::secret::Secret;
use ondeck_core::model::signal::{Report, Signal};
use ondeck_core::ports::{AgentStore, PortError, RecordScope, Store};
use ondeck_core::testkit::contract::{StatusOfRemoved, claim_race, history_suite, store_suite};

use crate::store_harness::{
    HOUR, Item, StoreHarness, agreed, beat, claim, created, idle, instance, make, noon, run,
    running, text,
};

#[tokio::test]
async fn the_store_fulfils_its_contract() {
    let harness = StoreHarness::new();
    store_suite(&harness.store().await, StatusOfRemoved::Expires).await;
    harness.done().await;
}

#[tokio::test]
async fn what_has_happened_fulfils_its_contract() {
    let harness = StoreHarness::new();
    history_suite(&harness.store().await).await;
    harness.done().await;
}

#[tokio::test]
async fn a_claim_has_one_winner_through_many_clients() {
    let harness = StoreHarness::new();
    let stores = join_all((0..8).map(|_| harness.store())).await;
    claim_race(&stores.iter().collect::<Vec<_>>()).await;
    harness.done().await;
}

#[tokio::test]
async fn no_claim_is_ever_won_twice_through_eight_clients() {
    a_hundred_races(8).await;
}

#[tokio::test]
async fn no_claim_is_ever_won_twice_through_a_client_each() {
    a_hundred_races(64).await;
}

/// Sixty-four claims on one instance, a hundred times over.
async fn a_hundred_races(clients: usize) {
    let harness = StoreHarness::set_up().await;
    let stores = join_all((0..clients).map(|_| harness.store())).await;
    let mut idle = idle(&stores[0], "i-race").await;
    for round in 0..100 {
        let now = noon() + Duration::from_millis(round);
        let claims: Vec<_> =
            (0..64).map(|n| idle.claim(&run(&format!("run-{n}")), now, HOUR)).collect();
        let writes = claims.iter().enumerate().map(|(n, c)| stores[n % clients].write(c.change()));
        let verdicts = join_all(writes).await;
        let mut winners = Vec::new();
        for (n, (claim, verdict)) in claims.into_iter().zip(verdicts).enumerate() {
            match claim.settle(verdict.unwrap()) {
                Ok(claimed) => winners.push((n, claimed)),
                Err(refused) => {
                    let found = refused.found.expect("a refusal says what stands there");
                    assert_eq!(found.state, State::Claimed, "round {round}");
                }
            }
        }
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        let (n, claimed) = winners.remove(0);
        idle = make(&stores[n % clients], claimed.give_back(now, HOUR)).await;
    }
    harness.done().await;
}

#[tokio::test]
async fn a_table_is_made_once_however_many_want_it() {
    let harness = StoreHarness::new();
    let stores = join_all((0..4).map(|_| harness.store())).await;
    let unset = Store::settings(&stores[0]).await.unwrap_err();
    assert!(matches!(&unset, PortError::NotSetUp { what } if what.contains(stores[0].table())));
    for made in join_all(stores.iter().map(Store::set_up)).await {
        made.unwrap();
    }
    let table_client = harness.table_client().await;
    let table =
        table_client.client.describe_table().table_name(&table_client.table).send().await.unwrap();
    let table = table.table.unwrap();
    let billing = table.billing_mode_summary().and_then(|mode| mode.billing_mode());
    assert_eq!(billing, Some(&BillingMode::PayPerRequest));
    let expiry = table_client.expiry_attribute().await;
    assert_eq!(expiry.as_deref(), Some("ttl"), "events go by themselves");
    harness.done().await;
}

#[tokio::test]
async fn a_table_that_is_not_ours_is_left_alone() {
    for (keys, problem, hint) in [
        (&["id"][..], "not made by ondeck", "rename it"),
        (&["PK", "SK"][..], "lacks the index lists and events-by-run", "delete the table"),
    ] {
        let harness = StoreHarness::new();
        let table_client = harness.table_client().await;
        let mut create = table_client.client.create_table().table_name(&table_client.table);
        for (name, kind) in keys.iter().zip([KeyType::Hash, KeyType::Range]) {
            let key = KeySchemaElement::builder().attribute_name(*name).key_type(kind);
            let attribute = AttributeDefinition::builder().attribute_name(*name);
            let attribute = attribute.attribute_type(ScalarAttributeType::S).build().unwrap();
            create = create.key_schema(key.build().unwrap()).attribute_definitions(attribute);
        }
        create.billing_mode(BillingMode::PayPerRequest).send().await.unwrap();
        match harness.store().await.set_up().await {
            Err(PortError::Unusable { reason, hint: said, .. }) => {
                assert!(reason.contains(problem) && said.contains(hint), "{reason}; {said}");
            }
            other => panic!("it was taken for ours: {other:?}"),
        }
        harness.done().await;
    }
}

#[tokio::test]
async fn a_table_of_the_earlier_layout_is_refused() {
    let harness = StoreHarness::new();
    let table_client = harness.table_client().await;
    let keys = |range: &str| {
        [("PK", KeyType::Hash), (range, KeyType::Range)].map(|(name, kind)| {
            KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap()
        })
    };
    let attributes = ["PK", "SK", "expiresAt"].map(|name| {
        let attribute = AttributeDefinition::builder().attribute_name(name);
        attribute.attribute_type(ScalarAttributeType::S).build().unwrap()
    });
    let all = Projection::builder().projection_type(ProjectionType::All).build();
    let index = GlobalSecondaryIndex::builder()
        .index_name("live-by-threshold")
        .set_key_schema(Some(keys("expiresAt").to_vec()))
        .projection(all);
    let create = table_client.client.create_table().table_name(&table_client.table);
    create
        .set_key_schema(Some(keys("SK").to_vec()))
        .set_attribute_definitions(Some(attributes.to_vec()))
        .global_secondary_indexes(index.build().unwrap())
        .billing_mode(BillingMode::PayPerRequest)
        .send()
        .await
        .unwrap();
    match harness.store().await.set_up().await {
        Err(PortError::Unusable { reason, hint, .. }) => {
            assert!(reason.contains("earlier version") && reason.contains(&table_client.table));
            assert!(hint.contains("delete the table"), "{hint}");
        }
        other => panic!("it was taken for the new layout: {other:?}"),
    }
    harness.done().await;
}

fn map<const N: usize>(attributes: [(&str, AttributeValue); N]) -> Item {
    attributes.map(|(name, value)| (name.to_owned(), value)).into()
}

#[tokio::test]
async fn records_are_written_with_the_attributes_of_the_specification() {
    let harness = StoreHarness::set_up().await;
    let (store, table_client) = (harness.store().await, harness.table_client().await);
    let created = created(&store, "i-123456", "run-7890").await;
    let mut expected = map([
        ("PK", text("INSTANCE#i-123456")),
        ("SK", text("RECORD")),
        ("listKey", text("LIVE#0")),
        ("listSort", text("2095-05-31T13:00:00.000Z")),
        ("instanceId", text("i-123456")),
        ("state", text("created")),
        ("runId", text("run-7890")),
        ("threshold", text("2095-05-31T13:00:00.000Z")),
        ("resourceClass", text("large")),
        ("instanceType", text("c6i.large")),
        ("usageClass", text("spot")),
        ("cpu", AttributeValue::N("2".into())),
        ("mem", AttributeValue::N("4096".into())),
        ("createdAt", text("2095-05-31T12:00:00.000Z")),
        ("updatedAt", text("2095-05-31T12:00:00.000Z")),
        ("ticketedAt", text("")),
        ("settingsVersion", text("")),
        ("label", text("")),
        ("reuse", text("")),
        ("generation", AttributeValue::N("0".into())),
        ("runs", AttributeValue::N("0".into())),
        ("missedRegistrations", AttributeValue::N("0".into())),
    ]);
    let record = || table_client.get("INSTANCE#i-123456", "RECORD");
    assert_eq!(record().await.unwrap(), expected);

    let running = make(&store, created.activate(noon(), HOUR)).await;
    let idle = make(&store, running.release(noon(), HOUR)).await;
    store.mark_ticketed(&[idle.ticket()], noon()).await.unwrap();
    expected.extend(map([
        ("state", text("idle")),
        ("runId", text("")),
        ("ticketedAt", text("2095-05-31T12:00:00.000Z")),
        ("generation", AttributeValue::N("1".into())),
        ("runs", AttributeValue::N("1".into())),
    ]));
    assert_eq!(record().await.unwrap(), expected);

    let expired = make(&store, idle.expire(noon())).await;
    make(&store, expired.reap(noon())).await;
    expected.extend(map([
        ("state", text("terminated")),
        ("threshold", text("")),
        ("ticketedAt", text("")),
        ("listKey", text("TERMINATED#0")),
        ("listSort", text("2095-05-31T12:00:00.000Z")),
    ]));
    assert_eq!(record().await.unwrap(), expected);

    let set = map([
        ("PK", text("RUN#run-7890")),
        ("SK", text("INSTANCES")),
        ("instances", AttributeValue::Ss(vec!["i-123456".into()])),
        ("updatedAt", text("2095-05-31T12:00:00.000Z")),
        // Sixty days after noon.
        ("ttl", AttributeValue::N("3962865600".into())),
    ]);
    assert_eq!(table_client.get("RUN#run-7890", "INSTANCES").await.unwrap(), set);
    harness.done().await;
}

#[tokio::test]
async fn what_an_agent_writes_is_one_item_that_expires_after_it() {
    let harness = StoreHarness::set_up().await;
    let (store, table_client) = (harness.store().await, harness.table_client().await);
    let id = instance("i-123");
    store.beat(&id, &beat(noon())).await.unwrap();
    let mut status = map([
        ("PK", text("AGENT#i-123")),
        ("SK", text("STATUS")),
        ("heartbeatAt", text("2095-05-31T12:00:00.000Z")),
        ("heartbeatPeriodMs", AttributeValue::N("5000".into())),
        ("protocol", AttributeValue::N("1".into())),
        ("busy", AttributeValue::Bool(false)),
        // Seven days after noon.
        ("ttl", AttributeValue::N("3958286400".into())),
    ]);
    let item = || table_client.get("AGENT#i-123", "STATUS");
    assert_eq!(item().await.unwrap(), status);

    for (owner, wire) in [(Some(run("run-9999")), "run-9999"), (None, "")] {
        let (signal, generation) = (Signal::Deregistered, owner.as_ref().map(|_| 4));
        let report = Report {
            machine_label: None,
            signal,
            run: owner,
            suffix: None,
            detail: "why".into(),
            at: noon(),
            generation,
        };
        store.report(&id, &report).await.unwrap();
        status.extend(map([
            ("signal", text("UD_REMOVE_REG_OK")),
            (
                "signalGeneration",
                generation.map_or(AttributeValue::Null(true), |_| AttributeValue::N("4".into())),
            ),
            ("signalRun", text(wire)),
            ("signalLabel", text("")),
            ("signalDetail", text("why")),
            ("signalAt", text("2095-05-31T12:00:00.000Z")),
        ]));
        assert_eq!(item().await.unwrap(), status);
    }
    store.beat(&id, &beat(noon() + HOUR)).await.unwrap();
    status.extend(map([
        ("heartbeatAt", text("2095-05-31T13:00:00.000Z")),
        ("ttl", AttributeValue::N("3958290000".into())),
    ]));
    assert_eq!(item().await.unwrap(), status, "a heartbeat keeps the signal alive");
    harness.done().await;
}

#[tokio::test]
async fn settings_and_tokens_have_keys_of_their_own() {
    let harness = StoreHarness::set_up().await;
    let (store, table_client) = (harness.store().await, harness.table_client().await);
    let settings = BTreeMap::from([("idle-time-sec".to_owned(), "300".to_owned())]);
    store.put_settings(&settings).await.unwrap();
    let setting =
        map([("PK", text("SETTING")), ("SK", text("idle-time-sec")), ("value", text("300"))]);
    assert_eq!(table_client.get("SETTING", "idle-time-sec").await.unwrap(), setting);

    let credentials = Credentials {
        registration: Secret::new("one"),
        removal: Secret::new("two"),
        expires_at: noon(),
    };
    store.put_credentials(&credentials, &BTreeMap::new()).await.unwrap();
    for (kind, token) in [("REGISTRATION", "one"), ("REMOVAL", "two")] {
        let pk = format!("CREDENTIALS#{kind}");
        let expected = map([
            ("PK", text(&pk)),
            ("SK", text("TOKEN")),
            ("token", text(token)),
            ("validUntil", text("2095-05-31T12:00:00.000Z")),
            ("ttl", AttributeValue::N("3957681600".into())),
        ]);
        assert_eq!(table_client.get(&pk, "TOKEN").await.unwrap(), expected, "and on no list");
    }
    harness.done().await;
}

/// Where AWS knows machines by more than their id, agents write under that name, and the control
/// plane finds it by what compute has recorded.
#[tokio::test]
async fn what_agents_write_is_found_under_the_identity_that_the_provider_vouches_for() {
    let harness = StoreHarness::set_up().await;
    let control = harness.store().await;
    let prefix = "arn:aws:ec2:us-east-1:111122223333:instance/";
    let agent = DynamoStore::of_agent(&harness.cloud().await, Some(format!("{prefix}i-1")));
    agent.beat(&instance("i-1"), &beat(noon())).await.unwrap();
    let last_beat = async |store: &DynamoStore| {
        store.agent_status(&[instance("i-1")]).await.unwrap()[0].heartbeat
    };
    assert_eq!(last_beat(&control).await, None, "it is not under the id alone");
    let recorded = BTreeMap::from([("agent-key-prefix".to_owned(), prefix.to_owned())]);
    control.put_settings(&recorded).await.unwrap();
    let unread = harness.store().await;
    assert_eq!(
        last_beat(&unread).await,
        Some(beat(noon())),
        "also by a process that has read no settings"
    );
    Store::settings(&control).await.unwrap();
    assert_eq!(last_beat(&control).await, Some(beat(noon())));
    harness.done().await;
}

/// Old and new shards are asked, and a record moves to its new shard when it is written.
#[tokio::test]
async fn lists_that_are_spread_over_more_keys_lose_nothing() {
    let harness = StoreHarness::set_up().await;
    let store = harness.store().await;
    let mut before = Vec::new();
    for n in 0..20 {
        before.push(idle(&store, &format!("i-{n}")).await);
    }
    let recorded = BTreeMap::from([("index-shards".to_owned(), "4".to_owned())]);
    store.put_settings(&recorded).await.unwrap();
    Store::settings(&store).await.unwrap();
    for n in 20..40 {
        idle(&store, &format!("i-{n}")).await;
    }
    for idle in &before[..10] {
        make(&store, idle.expire(noon())).await;
    }
    assert_eq!(store.list(RecordScope::Live).await.unwrap().records.len(), 40);
    assert_eq!(store.expired(noon()).await.unwrap().records.len(), 10);
    let expired = store.expired(noon() + HOUR).await.unwrap().records;
    assert_eq!(expired.len(), 40, "{expired:?}");
    let used = harness.table_client().await.keys_of_lists().await;
    assert_eq!(used, ["LIVE#0", "LIVE#1", "LIVE#2", "LIVE#3"]);
    harness.done().await;
}

/// Each of these would be admitted by its guard, were it not for what else is wrong with it.
#[tokio::test]
async fn nothing_is_built_on_a_record_that_makes_no_sense() {
    let harness = StoreHarness::set_up().await;
    let (store, table_client) = (harness.store().await, harness.table_client().await);
    let corruptions: HashMap<&str, AttributeValue> = HashMap::from([
        ("cpu", text("two")),
        ("mem", AttributeValue::Null(true)),
        ("createdAt", text("yesterday")),
        ("updatedAt", AttributeValue::N("7".into())),
        ("ticketedAt", text("soon")),
        ("usageClass", AttributeValue::N("1".into())),
    ]);
    for (n, (attribute, value)) in corruptions.into_iter().enumerate() {
        let name = format!("i-{n}");
        let idle = idle(&store, &name).await;
        let mut corrupt = table_client.get(&format!("INSTANCE#{name}"), "RECORD").await.unwrap();
        corrupt.insert(attribute.to_owned(), value);
        table_client.put(corrupt.clone()).await;
        let verdict = store.write(&claim(&idle, "7")).await.unwrap();
        assert!(matches!(&verdict, Verdict::Unreadable(row) if row.id == name), "{verdict:?}");
        let left = table_client.get(&format!("INSTANCE#{name}"), "RECORD").await.unwrap();
        assert_eq!(left, corrupt, "it was not touched for the sake of {attribute}");
        let error = store.record(&instance(&name)).await.unwrap_err();
        assert!(matches!(&error, PortError::Unusable { hint, .. } if hint.contains(&name)));
    }
    let sound = running(&store, "i-sound", "7").await;
    let listing = store.list(RecordScope::Live).await.unwrap();
    assert_eq!(listing.unreadable.len(), 6, "{listing:?}");
    assert_eq!(listing.records.len(), 1, "a corrupt row affects no other");
    let expired = store.expired(noon() + HOUR).await.unwrap();
    assert_eq!((expired.records.len(), expired.unreadable.len()), (1, 6));
    let of_run = store.of_run(&run("7")).await.unwrap();
    assert_eq!(of_run.records[0].id, *sound.id());
    assert!(of_run.unreadable.is_empty(), "those have no owner");
    harness.done().await;
}

/// What refuses only once it is read as a whole was written already; the claimant is told not
/// to count on it, and its run can still find it.
#[tokio::test]
async fn a_record_that_only_reading_finds_wrong_is_used_by_no_caller() {
    let harness = StoreHarness::set_up().await;
    let (store, table_client) = (harness.store().await, harness.table_client().await);
    let idle = idle(&store, "i-1").await;
    let mut corrupt = table_client.get("INSTANCE#i-1", "RECORD").await.unwrap();
    corrupt.insert("usageClass".to_owned(), text("free"));
    table_client.put(corrupt).await;
    let verdict = store.write(&claim(&idle, "7")).await.unwrap();
    assert!(matches!(verdict, Verdict::Unreadable(_)), "{verdict:?}");
    let of_run = store.of_run(&run("7")).await.unwrap();
    assert_eq!((of_run.records.len(), of_run.unreadable.len()), (0, 1));
    store.finish().await.unwrap();
    let events = store.events(&EventsOf::Day(noon())).await.unwrap();
    assert!(events.iter().all(|event| event.transition != "claim"), "{events:?}");
    harness.done().await;
}

#[tokio::test]
async fn events_tell_the_whole_story() {
    let harness = StoreHarness::set_up().await;
    let store = harness.store().await;
    for n in 0..15 {
        idle(&store, &format!("i-{n}")).await;
    }
    let one = Instance::believe(&store.record(&instance("i-7")).await.unwrap().unwrap()).unwrap();
    make(&store, one.claim(&run("8"), noon(), HOUR).because("wanted")).await;
    store.finish().await.unwrap();
    let events = harness.store().await.events(&EventsOf::Day(noon())).await.unwrap();
    assert_eq!(events.len(), 15 * 3 + 1);
    let of_one: Vec<_> = events.iter().filter(|e| e.instance == *one.id()).collect();
    let steps: Vec<&str> = of_one.iter().map(|event| event.transition.as_str()).collect();
    assert_eq!(steps, ["register", "activate", "release", "claim"]);
    for pair in of_one.windows(2) {
        assert_eq!(Some(pair[0].to), pair[1].from, "each begins where the last one ended");
    }
    assert_eq!(of_one[0].from, None);
    let claim = of_one[3];
    assert_eq!((claim.run.clone(), claim.why.as_str()), (Some(run("8")), "wanted"));
    for which in [EventsOf::Machine(instance("i-7")), EventsOf::Run(run("8"))] {
        let events = store.events(&which).await.unwrap();
        let steps: Vec<&str> = events.iter().map(|event| event.transition.as_str()).collect();
        match which {
            EventsOf::Run(_) => assert_eq!(steps, ["claim"]),
            _ => assert_eq!(steps, ["register", "activate", "release", "claim"]),
        }
    }
    let first = store.events(&EventsOf::Run(run("first"))).await.unwrap();
    let releases = first.iter().filter(|event| event.transition == "release").count();
    assert_eq!(releases, 15, "a release concerns the run that it takes the machine from");
    let other = store.events(&EventsOf::Day(noon() + 24 * HOUR)).await.unwrap();
    assert!(other.is_empty(), "{other:?}");
    let key = "2095-05-31T12:00:00.000Z#claim";
    let item = harness.table_client().await.get("EVENT#i-7", key).await.unwrap();
    // Thirty days after noon.
    assert_eq!(item["ttl"], AttributeValue::N("3960273600".into()));
    harness.done().await;
}

/// They are written without a call of `finish`, given time.
#[tokio::test]
async fn events_do_not_wait_for_company_for_long() {
    let harness = StoreHarness::set_up().await;
    let store = harness.store().await;
    created(&store, "i-1", "7").await;
    let since = Instant::now();
    while store.events(&EventsOf::Day(noon())).await.unwrap().is_empty() {
        assert!(since.elapsed() < Duration::from_secs(20), "the event never came");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    harness.done().await;
}

#[tokio::test]
async fn what_is_over_is_forgotten_and_what_may_be_needed_is_not() {
    let harness = StoreHarness::set_up().await;
    let (store, table_client) = (harness.store().await, harness.table_client().await);
    let held = idle(&store, "i-held").await;
    agreed(store.write(&claim(&held, "holder")).await.unwrap());
    let gone = created(&store, "i-gone", "over").await;
    let gone = make(&store, gone.expire(noon())).await;
    make(&store, gone.reap(noon())).await;
    assert_eq!(store.forget(noon()).await, Ok(0), "not before the moment");
    assert_eq!(store.forget(noon() + Duration::from_millis(1)).await, Ok(1));
    assert!(table_client.get("INSTANCE#i-gone", "RECORD").await.is_none());
    assert_eq!(store.of_run(&run("holder")).await.unwrap().records.len(), 1);
    assert!(table_client.get("RUN#over", "INSTANCES").await.is_some(), "a claim may be under way");
    harness.done().await;
}
