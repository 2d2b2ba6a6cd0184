//! The gateway's units are held against those that DynamoDB Local reports.
//!
//! DynamoDB Local follows the documented rules, with these exceptions, which [`Emulator`] marks in
//! the table of cases:
//! - It reports nothing for a refused conditional write and for statements of PartiQL.
//! - It charges nothing for a query without a result and for missing items of BatchGetItem, where the
//!   Developer Guide has the minimum charged.
//! - Of a transaction it reports one put, however many there are, and doubles its units twice.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ondeck_standin::{
    AwsFault, AwsFaultRule, Endpoint, Gateway, GatewayOptions, Occurrence, PartitionKey, Units,
};
use serde_json::{Value, json};

use crate::harness::{options, unique};

/// A table like ondeck's, with the index `lists` of keys only and the index `copies` of one more
/// attribute, and a client that sends requests as they are given.
struct UnitsHarness {
    gateway: Gateway,
    endpoint: Endpoint,
    http: Client<HttpConnector, Full<Bytes>>,
    table: String,
}

impl UnitsHarness {
    async fn new() -> UnitsHarness {
        let gateway = Gateway::start(GatewayOptions { measure_units: true, ..options() });
        let endpoint = gateway.endpoint("control");
        let http = Client::builder(TokioExecutor::new()).build_http();
        let harness = UnitsHarness { gateway, endpoint, http, table: unique("units") };
        let keys = |hash: &str, range: &str| {
            json!([
                {"AttributeName": hash, "KeyType": "HASH"},
                {"AttributeName": range, "KeyType": "RANGE"},
            ])
        };
        let names = ["PK", "SK", "listKey", "listSort", "copyKey", "copySort"];
        let attributes = names.map(|name| json!({"AttributeName": name, "AttributeType": "S"}));
        let (lists, copies) = (keys("listKey", "listSort"), keys("copyKey", "copySort"));
        let copied = json!({"ProjectionType": "INCLUDE", "NonKeyAttributes": ["value"]});
        let create = json!({
            "TableName": harness.table,
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": attributes,
            "KeySchema": keys("PK", "SK"),
            "GlobalSecondaryIndexes": [
                {
                    "IndexName": "lists",
                    "KeySchema": lists,
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                },
                {"IndexName": "copies", "KeySchema": copies, "Projection": copied},
            ],
        });
        harness.ask("CreateTable", &create).await;
        harness
    }

    async fn ask(&self, operation: &str, request: &Value) -> Value {
        let request = Request::post(self.endpoint.url())
            .header("x-amz-target", format!("DynamoDB_20120810.{operation}"))
            .header("content-type", "application/x-amz-json-1.0")
            .header(
                "authorization",
                "AWS4-HMAC-SHA256 Credential=test/20261116/us-east-1/dynamodb/aws4_request, \
                 SignedHeaders=host, Signature=0",
            )
            .body(Full::new(Bytes::from(request.to_string())))
            .unwrap();
        let body = self.http.request(request).await.unwrap().into_body();
        serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap()
    }

    /// Makes a request, and returns the units by the gateway and by the emulator, which reports no
    /// reads and writes but only units.
    async fn measure(&self, operation: &str, request: &Value) -> (Sums, Option<Sums>) {
        self.endpoint.reset();
        let mut request = request.clone();
        request["ReturnConsumedCapacity"] = "INDEXES".into();
        let answer = self.ask(operation, &request).await;
        let consumed = self.endpoint.consumed();
        let sum = |index: Option<&str>| {
            let of = consumed.iter().filter(|(key, _)| key.index.as_deref() == index);
            of.map(|(_, units)| units.reads + units.writes).sum()
        };
        let reported = match &answer["ConsumedCapacity"] {
            Value::Array(tables) => tables.first().cloned().unwrap_or_default(),
            one => one.clone(),
        };
        let units = |of: &Value| of["CapacityUnits"].as_f64().unwrap_or(0.0);
        let index = |name: &str| units(&reported["GlobalSecondaryIndexes"][name]);
        let reported = reported
            .is_object()
            .then(|| (units(&reported["Table"]), index("lists"), index("copies")));
        ((sum(None), sum(Some("lists")), sum(Some("copies"))), reported)
    }

    fn request(&self, more: &Value) -> Value {
        let mut request = more.clone();
        request["TableName"] = self.table.clone().into();
        request
    }

    fn batch(&self, entries: Value) -> Value {
        let mut request = json!({"RequestItems": {}});
        request["RequestItems"][&self.table] = entries;
        request
    }

    fn update(&self, id: &str, expression: &str, values: &Value) -> Value {
        self.request(&json!({
            "Key": key(id),
            "UpdateExpression": expression,
            "ExpressionAttributeNames": {"#v": "value"},
            "ExpressionAttributeValues": values,
        }))
    }

    fn put(&self, item: &Value) -> Value {
        self.request(&json!({ "Item": item }))
    }

    fn query(&self, index: Option<&str>, attribute: &str, value: &str) -> Value {
        let mut request = self.request(&json!({
            "KeyConditionExpression": "#k = :k",
            "ExpressionAttributeNames": {"#k": attribute},
            "ExpressionAttributeValues": {":k": {"S": value}},
        }));
        match index {
            Some(index) => request["IndexName"] = index.into(),
            None => request["ConsistentRead"] = true.into(),
        }
        request
    }
}

/// The units of the table, of `lists` and of `copies`.
type Sums = (f64, f64, f64);

/// What DynamoDB Local reports.
#[derive(Debug, PartialEq)]
enum Emulator {
    Agrees,
    SaysNothing,
    Says(Sums),
}
use Emulator::{Agrees, Says, SaysNothing};

fn key(id: &str) -> Value {
    json!({"PK": {"S": id}, "SK": {"S": "s"}})
}

/// An item with a value of so many bytes.
fn item(id: &str, bytes: usize) -> Value {
    with(key(id), &[("value", &"x".repeat(bytes))])
}

fn with(mut item: Value, attributes: &[(&str, &str)]) -> Value {
    for (name, value) in attributes {
        item[name] = json!({ "S": value });
    }
    item
}

fn listed(item: Value, key: &str, sort: &str) -> Value {
    with(item, &[("listKey", key), ("listSort", sort)])
}

async fn check(harness: &UnitsHarness, cases: Vec<(&str, &str, Value, Sums, Emulator)>) {
    for (what, operation, request, expected, emulator) in cases {
        let (ours, reported) = harness.measure(operation, &request).await;
        assert_eq!(ours, expected, "{operation}: {what}");
        let reports = match reported {
            None => SaysNothing,
            Some(reported) if reported == ours => Agrees,
            Some(reported) => Says(reported),
        };
        assert_eq!(reports, emulator, "{operation}: {what}");
    }
    harness.gateway.assert_all_measured();
}

#[tokio::test]
async fn writes_are_billed_by_the_larger_item_and_by_what_changes_in_indexes() {
    let harness = UnitsHarness::new().await;
    let put = |item: Value| harness.put(&item);
    let set = |id, name: &str, value: &str| {
        harness.update(
            id,
            &format!("SET #v = :v, {name} = :s"),
            &json!({
                ":v": {"S": "v"},
                ":s": {"S": value},
            }),
        )
    };
    let mut refused = set("a", "listKey", "O");
    refused["ConditionExpression"] = "listSort = :v".into();
    let mut refused_large = harness.update("large", "SET #v = :v", &json!({":v": {"S": "v"}}));
    refused_large["ConditionExpression"] = "attribute_not_exists(PK)".into();
    let copied =
        |value: &str| with(key("c"), &[("copyKey", "C"), ("copySort", "1"), ("value", value)]);
    let mut removed = set("a", "extra", "v");
    removed["UpdateExpression"] = "REMOVE listKey SET #v = :v, extra = :s".into();
    let cases = vec![
        ("new, on a list", "PutItem", put(listed(item("a", 9), "L", "1")), (1.0, 1.0, 0.0), Agrees),
        ("same entry", "PutItem", put(listed(item("a", 8), "L", "1")), (1.0, 0.0, 0.0), Agrees),
        ("other attribute", "UpdateItem", set("a", "extra", "v"), (1.0, 0.0, 0.0), Agrees),
        ("sort changes", "UpdateItem", set("a", "listSort", "2"), (1.0, 2.0, 0.0), Agrees),
        ("list changes", "UpdateItem", set("a", "listKey", "M"), (1.0, 2.0, 0.0), Agrees),
        ("entry removed", "UpdateItem", removed, (1.0, 1.0, 0.0), Agrees),
        ("entry added", "UpdateItem", set("a", "listKey", "N"), (1.0, 1.0, 0.0), Agrees),
        ("refused", "UpdateItem", refused, (1.0, 0.0, 0.0), SaysNothing),
        ("half a key", "UpdateItem", set("b", "listKey", "N"), (1.0, 0.0, 0.0), Agrees),
        ("projected, new", "PutItem", put(copied("1")), (1.0, 0.0, 1.0), Agrees),
        ("projected, changed", "PutItem", put(copied("2")), (1.0, 0.0, 1.0), Agrees),
        ("projected, 2 KB", "PutItem", put(copied(&"x".repeat(1_500))), (2.0, 0.0, 2.0), Agrees),
        ("2 KB", "PutItem", put(item("large", 1_500)), (2.0, 0.0, 0.0), Agrees),
        ("2 KB, refused", "UpdateItem", refused_large, (2.0, 0.0, 0.0), SaysNothing),
        ("2 KB before", "PutItem", put(item("large", 1)), (2.0, 0.0, 0.0), Agrees),
        // PK, SK, value and 1,014 letters are 1,024 bytes.
        ("1,024 bytes", "PutItem", put(item("x", 1_024 - 11)), (1.0, 0.0, 0.0), Agrees),
        ("1,025 bytes", "PutItem", put(item("x", 1_025 - 11)), (2.0, 0.0, 0.0), Agrees),
        (
            "listed",
            "DeleteItem",
            harness.request(&json!({"Key": key("a")})),
            (1.0, 1.0, 0.0),
            Agrees,
        ),
        (
            "missing",
            "DeleteItem",
            harness.request(&json!({"Key": key("a")})),
            (1.0, 0.0, 0.0),
            Agrees,
        ),
    ];
    check(&harness, cases).await;
}

#[tokio::test]
async fn batches_transactions_and_statements_are_billed_item_by_item() {
    let harness = UnitsHarness::new().await;
    let put = |item: Value| json!({"PutRequest": {"Item": item}});
    let batch = harness.batch(json!([
        put(listed(item("a", 9), "L", "1")),
        put(listed(item("b", 9), "L", "2")),
        put(item("c", 1_500)),
    ]));
    let deletes = harness.batch(json!([{"DeleteRequest": {"Key": key("c")}}]));
    let transact = |items: &[Value]| {
        let put = |item| json!({"Put": {"TableName": harness.table, "Item": item}});
        json!({"TransactItems": items.iter().map(put).collect::<Vec<_>>()})
    };
    let statement = |verb: &str, parameters: &[&str]| {
        let text = verb.replace("TABLE", &harness.table);
        let parameters: Vec<Value> = parameters.iter().map(|text| json!({"S": text})).collect();
        json!({"Statement": text, "Parameters": parameters})
    };
    let update = r#"UPDATE "TABLE" SET extra=? WHERE PK=? AND SK=? AND listSort=?"#;
    let delete = r#"DELETE FROM "TABLE" WHERE PK=? AND SK=? AND listSort=?"#;
    let updates = json!({"Statements": [
        statement(update, &["v", "a", "s", "1"]),
        statement(update, &["v", "b", "s", "refused"]),
        statement(update, &["v", "missing", "s", "1"]),
    ]});
    let removals = json!({"Statements": [
        statement(delete, &["a", "s", "1"]),
        statement(delete, &["b", "s", "refused"]),
    ]});
    let cases = vec![
        ("three", "BatchWriteItem", batch, (4.0, 2.0, 0.0), Agrees),
        ("2 KB", "BatchWriteItem", deletes, (2.0, 0.0, 0.0), Agrees),
        (
            "one",
            "TransactWriteItems",
            transact(&[item("t", 9)]),
            (2.0, 0.0, 0.0),
            Says((4.0, 0.0, 0.0)),
        ),
        (
            "three",
            "TransactWriteItems",
            transact(&[item("t", 9), item("u", 9), item("v", 9)]),
            (6.0, 0.0, 0.0),
            Says((4.0, 0.0, 0.0)),
        ),
        ("updates", "BatchExecuteStatement", updates, (3.0, 0.0, 0.0), SaysNothing),
        ("deletes", "BatchExecuteStatement", removals, (2.0, 1.0, 0.0), SaysNothing),
    ];
    check(&harness, cases).await;
}

#[tokio::test]
async fn reads_are_billed_by_item_or_by_the_sum_of_a_query() {
    let harness = UnitsHarness::new().await;
    let small = listed(item("a", 900), "L", "1");
    harness.ask("PutItem", &harness.put(&small)).await;
    harness.ask("PutItem", &harness.put(&item("large", 5_000))).await;
    for n in 0..5 {
        let mut one = listed(item("many", 900), "L", &format!("{n}"));
        one["SK"] = json!({"S": format!("{n}")});
        harness.ask("PutItem", &harness.put(&one)).await;
    }
    let get = |id: &str, consistent: bool| {
        harness.request(&json!({"Key": key(id), "ConsistentRead": consistent}))
    };
    let all = |ids: &[&str]| {
        let keys: Vec<Value> = ids.iter().map(|id| key(id)).collect();
        harness.batch(json!({"Keys": keys, "ConsistentRead": true}))
    };
    let (nothing, lists) = ((0.0, 0.0, 0.0), Some("lists"));
    let cases = vec![
        ("consistent", "GetItem", get("a", true), (1.0, 0.0, 0.0), Agrees),
        ("eventually", "GetItem", get("a", false), (0.5, 0.0, 0.0), Agrees),
        ("5 KB", "GetItem", get("large", true), (2.0, 0.0, 0.0), Agrees),
        ("5 KB, eventually", "GetItem", get("large", false), (1.0, 0.0, 0.0), Agrees),
        ("missing", "GetItem", get("missing", true), (1.0, 0.0, 0.0), Agrees),
        ("each", "BatchGetItem", all(&["a", "large"]), (3.0, 0.0, 0.0), Agrees),
        ("missing", "BatchGetItem", all(&["no", "none"]), (2.0, 0.0, 0.0), Says(nothing)),
        ("five of 1 KB", "Query", harness.query(None, "PK", "many"), (2.0, 0.0, 0.0), Agrees),
        ("none", "Query", harness.query(None, "PK", "none"), (1.0, 0.0, 0.0), Says(nothing)),
        ("keys", "Query", harness.query(lists, "listKey", "L"), (0.0, 0.5, 0.0), Agrees),
        ("none", "Query", harness.query(lists, "listKey", "none"), (0.0, 0.5, 0.0), Says(nothing)),
    ];
    check(&harness, cases).await;
    // What the answer does not show in full cannot be measured, and is not passed over in silence.
    let mut projected = get("a", true);
    projected["ProjectionExpression"] = "PK".into();
    harness.measure("GetItem", &projected).await;
    assert_eq!(harness.gateway.unmeasured().len(), 1);
}

#[tokio::test]
async fn units_belong_to_the_partition_keys_that_a_request_names() {
    let harness = UnitsHarness::new().await;
    harness.ask("PutItem", &harness.put(&listed(item("a", 9), "L", "1"))).await;
    harness.ask("PutItem", &harness.put(&listed(item("a", 9), "M", "1"))).await;
    let keys = json!([key("a"), key("b")]);
    harness.ask("BatchGetItem", &harness.batch(json!({ "Keys": keys }))).await;
    harness.ask("Query", &harness.query(Some("lists"), "listKey", "M")).await;
    let of = |index: Option<&str>, value: &str, reads: f64, writes: f64| {
        let index = index.map(str::to_owned);
        let key = PartitionKey { table: harness.table.clone(), index, value: value.to_owned() };
        (key, Units { reads, writes })
    };
    let expected = [
        of(None, "a", 0.5, 2.0),
        of(None, "b", 0.5, 0.0),
        of(Some("lists"), "L", 0.0, 2.0),
        of(Some("lists"), "M", 0.5, 1.0),
    ];
    assert_eq!(harness.endpoint.consumed(), expected.into());
    harness.endpoint.reset();
    assert!(harness.endpoint.consumed().is_empty());
}

#[tokio::test]
async fn concurrent_writes_to_one_item_are_told_apart() {
    let harness = UnitsHarness::new().await;
    harness.ask("PutItem", &harness.put(&listed(item("a", 9), "L", "0"))).await;
    harness.endpoint.reset();
    let updates: Vec<Value> = (1..=20)
        .map(|n| {
            let values = json!({":v": {"S": "v"}, ":s": {"S": format!("{n}")}});
            harness.update("a", "SET #v = :v, listSort = :s", &values)
        })
        .collect();
    let harness = Arc::new(harness);
    let mut asking = tokio::task::JoinSet::new();
    for update in updates {
        let harness = harness.clone();
        asking.spawn(async move { harness.ask("UpdateItem", &update).await });
    }
    for answer in asking.join_all().await {
        assert_eq!(answer, json!({}));
    }
    let writes: Vec<f64> = harness.endpoint.consumed().values().map(|it| it.writes).collect();
    assert_eq!(writes, [20.0, 40.0], "each moves its entry in the index");
}

#[tokio::test]
async fn what_a_batch_leaves_undone_is_not_billed() {
    let harness = UnitsHarness::new().await;
    let half = AwsFaultRule::new(AwsFault::PartialBatch).occurrence(Occurrence::First(2));
    harness.endpoint.inject(half);
    let put = |id| json!({"PutRequest": {"Item": item(id, 9)}});
    let (ours, _) =
        harness.measure("BatchWriteItem", &harness.batch(json!([put("a"), put("b")]))).await;
    assert_eq!(ours, (1.0, 0.0, 0.0));
    let keys = json!({"Keys": [key("a"), key("b"), key("c"), key("d")], "ConsistentRead": true});
    let (ours, _) = harness.measure("BatchGetItem", &harness.batch(keys)).await;
    assert_eq!(ours, (2.0, 0.0, 0.0));
}
