//! A pool and its table in the emulator of DynamoDB, and records in chosen states.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use ondeck_aws::{Cloud, DynamoStore, Options, PoolName};
use ondeck_core::lifecycle::{
    Change, Created, Idle, Instance, Pending, Running, TypedState, Verdict,
};
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::record::{MachineSpec, Record};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::Store;
use ondeck_core::testkit::FixedRandom;
use ondeck_standin::emulators::Emulators;

use serde_json::json;

use crate::checked;

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) type Item = std::collections::HashMap<String, AttributeValue>;

/// A pool that no other test has, and its table.
pub(crate) struct StoreHarness {
    pub(crate) pool: PoolName,
    pub(crate) dynamodb: String,
}

impl StoreHarness {
    /// A pool without a table.
    pub(crate) fn new() -> StoreHarness {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let (pid, n) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let pool = format!("test/{pid}-{n}").parse().unwrap();
        StoreHarness { pool, dynamodb: checked::emulators() }
    }

    /// A pool with its table.
    pub(crate) async fn set_up() -> StoreHarness {
        let harness = StoreHarness::new();
        harness.store().await.set_up().await.unwrap();
        harness
    }

    /// A store with a client of its own, as another process would have.
    pub(crate) async fn store(&self) -> DynamoStore {
        self.store_through(&self.dynamodb).await
    }

    pub(crate) async fn store_through(&self, endpoint: &str) -> DynamoStore {
        DynamoStore::new(&self.cloud_through(endpoint).await)
    }

    /// A connection of its own.
    pub(crate) async fn cloud(&self) -> Cloud {
        self.cloud_through(&self.dynamodb).await
    }

    async fn cloud_through(&self, endpoint: &str) -> Cloud {
        let options = Options {
            pool: self.pool.clone(),
            region: Some("us-east-1".to_owned()),
            endpoint_url: Some(endpoint.to_owned()),
        };
        Cloud::connect(options, Arc::new(FixedRandom(0))).await.unwrap()
    }

    /// Reads and writes the table directly, not through the library.
    pub(crate) async fn table_client(&self) -> TableClient {
        let config = aws_config::defaults(aws_config::BehaviorVersion::latest())
            .region("us-east-1")
            // Not by the gateway: tests write what no role may.
            .endpoint_url(Emulators::running().dynamodb)
            .load()
            .await;
        let table = self.store().await.table().to_owned();
        TableClient { client: Client::new(&config), table }
    }

    /// Deletes the table, because the emulator keeps everything in memory.
    pub(crate) async fn done(self) {
        let table_client = self.table_client().await;
        table_client.client.delete_table().table_name(&table_client.table).send().await.unwrap();
    }
}

/// The answer to DescribeTable about a table of a pool that was created long ago.
pub(crate) fn described(status: &str) -> String {
    let keys = |hash: &str, range: &str| {
        json!([
            { "AttributeName": hash, "KeyType": "HASH" },
            { "AttributeName": range, "KeyType": "RANGE" },
        ])
    };
    let index = |name: &str, hash: &str, range: &str| json!({ "IndexName": name, "IndexStatus": "ACTIVE", "KeySchema": keys(hash, range) });
    json!({ "Table": {
        "TableStatus": status,
        "CreationDateTime": 1_700_000_000,
        "KeySchema": keys("PK", "SK"),
        "GlobalSecondaryIndexes": [
            index("lists", "listKey", "listSort"),
            index("events-by-run", "eventRun", "at"),
        ],
    } })
    .to_string()
}

pub(crate) struct TableClient {
    pub(crate) client: Client,
    pub(crate) table: String,
}

impl TableClient {
    pub(crate) async fn get(&self, pk: &str, sk: &str) -> Option<Item> {
        let get = self.client.get_item().table_name(&self.table).consistent_read(true);
        get.key("PK", text(pk)).key("SK", text(sk)).send().await.unwrap().item
    }

    /// The attribute by which the table lets items expire, if it does.
    pub(crate) async fn expiry_attribute(&self) -> Option<String> {
        let describe = self.client.describe_time_to_live().table_name(&self.table);
        describe.send().await.unwrap().time_to_live_description?.attribute_name
    }

    /// The keys of the lists of records that are in use, sorted.
    pub(crate) async fn keys_of_lists(&self) -> Vec<String> {
        let scan = self.client.scan().table_name(&self.table).filter_expression("SK = :record");
        let scan = scan.expression_attribute_values(":record", text("RECORD"));
        let items = scan.send().await.unwrap().items.unwrap();
        let keys = items.iter().map(|item| item["listKey"].as_s().unwrap().clone());
        keys.collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(crate) async fn put(&self, item: Item) {
        let put = self.client.put_item().table_name(&self.table).set_item(Some(item));
        put.send().await.unwrap();
    }
}

#[expect(clippy::needless_pass_by_value, reason = "callers have a value as often as a reference")]
pub(crate) fn text(text: impl ToString) -> AttributeValue {
    AttributeValue::S(text.to_string())
}

pub(crate) fn instance(name: &str) -> InstanceId {
    InstanceId::new(name).unwrap()
}

pub(crate) fn run(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

/// Far ahead: DynamoDB Local deletes items whose `ttl` has passed within seconds.
pub(crate) fn noon() -> Timestamp {
    Timestamp::parse("2095-05-31T12:00:00.000Z").unwrap()
}

pub(crate) fn beat(at: Timestamp) -> Heartbeat {
    Heartbeat::new(at, Duration::from_secs(5))
}

pub(crate) fn spec() -> MachineSpec {
    MachineSpec {
        resource_class: "large".parse().unwrap(),
        instance_type: "c6i.large".to_owned(),
        usage_class: "spot".parse().unwrap(),
        cpu: 2,
        mem: 4_096,
    }
}

/// Makes a change that nothing stands against.
pub(crate) async fn make<S: TypedState>(store: &DynamoStore, pending: Pending<S>) -> Instance<S> {
    let verdict = store.write(pending.change()).await.unwrap();
    pending.settle(verdict).unwrap_or_else(|refused| panic!("a legal change was lost: {refused}"))
}

/// An instance that was registered at noon, for an hour.
pub(crate) async fn created(store: &DynamoStore, id: &str, run_id: &str) -> Instance<Created> {
    make(store, Instance::register(&instance(id), &spec(), &run(run_id), noon(), HOUR)).await
}

pub(crate) async fn running(store: &DynamoStore, id: &str, run_id: &str) -> Instance<Running> {
    let created = created(store, id, run_id).await;
    make(store, created.activate(noon(), HOUR)).await
}

pub(crate) async fn idle(store: &DynamoStore, id: &str) -> Instance<Idle> {
    let running = running(store, id, "first").await;
    make(store, running.release(noon(), HOUR)).await
}

/// A claim for a run at noon.
pub(crate) fn claim(idle: &Instance<Idle>, run_id: &str) -> Change {
    idle.claim(&run(run_id), noon(), HOUR).change().clone()
}

pub(crate) fn agreed(verdict: Verdict) -> Record {
    match verdict {
        Verdict::Agreed(record) => record,
        other => panic!("a legal change was lost: {other:?}"),
    }
}
