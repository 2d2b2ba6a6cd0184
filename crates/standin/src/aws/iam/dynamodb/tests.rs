use serde_json::{Value, json};

use super::*;

const TABLE: &str = "arn:aws:dynamodb:us-east-1:000000000000:table/T";

fn schemas() -> Schemas {
    let key = |name: &str, kind: &str| json!({ "AttributeName": name, "KeyType": kind });
    let described = json!({ "Table": {
        "KeySchema": [key("PK", "HASH"), key("SK", "RANGE")],
        "GlobalSecondaryIndexes": [
            { "IndexName": "lists", "KeySchema": [key("listKey", "HASH"), key("listSort", "RANGE")] },
        ],
    } });
    let mut schemas = Schemas::default();
    schemas.add("T", Schema::of(&described).unwrap());
    schemas
}

fn asked_by(operation: &str, request: &Value) -> Vec<Authorization> {
    assert!(
        tables(operation, request).iter().all(|table| table == "T"),
        "{:?}",
        tables(operation, request)
    );
    authorizations(operation, request, &Arns::new("us-east-1"), &schemas())
}

/// Each authorization as `action resource keys`, without what they have in common.
#[expect(clippy::needless_pass_by_value, reason = "tests write the value in place")]
fn told(operation: &str, request: Value) -> Vec<String> {
    let one = |it: Authorization| {
        let keys = it.context.values("dynamodb:LeadingKeys").unwrap_or_default().join("+");
        let action = it.action.trim_start_matches("dynamodb:").to_owned();
        format!("{action} {} {keys}", it.resource.replace(TABLE, "T"))
    };
    asked_by(operation, &request).into_iter().map(one).collect()
}

fn key(pk: &str) -> Value {
    json!({ "PK": { "S": pk }, "SK": { "S": "x" } })
}

#[test]
fn single_items_are_named_by_their_partition_key() {
    for operation in ["GetItem", "DeleteItem", "UpdateItem"] {
        let request = json!({ "TableName": "T", "Key": key("A") });
        assert_eq!(told(operation, request), [format!("{operation} T A")]);
    }
    assert_eq!(told("PutItem", json!({ "TableName": "T", "Item": key("A") })), ["PutItem T A"]);
}

#[test]
fn queries_are_named_by_the_key_of_the_table_or_the_index() {
    let values = json!({ ":pk": { "S": "A" }, ":now": { "S": "2026" } });
    let query = |condition: &str, names: Value, index: Option<&str>| {
        let mut request = json!({
            "TableName": "T", "KeyConditionExpression": condition,
            "ExpressionAttributeValues": values, "ExpressionAttributeNames": names,
        });
        if let Some(index) = index {
            request["IndexName"] = index.into();
        }
        told("Query", request)
    };
    let none = json!({});
    assert_eq!(query("PK = :pk", none.clone(), None), ["Query T A"]);
    assert_eq!(
        query("#k=:pk AND begins_with(SK, :now)", json!({ "#k": "PK" }), None),
        ["Query T A"]
    );
    let listed = query("(listKey = :pk) AND (listSort <= :now)", none.clone(), Some("lists"));
    assert_eq!(listed, ["Query T/index/lists A"]);
    assert_eq!(query("SK = :pk", none, None), ["Query T "]);
    let old = json!({ "TableName": "T", "KeyConditions": {
        "PK": { "ComparisonOperator": "EQ", "AttributeValueList": [{ "S": "A" }] },
    } });
    assert_eq!(told("Query", old), ["Query T A"]);
    assert_eq!(told("Scan", json!({ "TableName": "T" })), ["Scan T "]);
    let scan = json!({ "TableName": "T", "IndexName": "lists" });
    assert_eq!(told("Scan", scan), ["Scan T/index/lists "]);
}

#[test]
fn batches_name_all_their_keys() {
    let get = json!({ "RequestItems": { "T": { "Keys": [key("A"), key("B"), key("A")] } } });
    assert_eq!(told("BatchGetItem", get), ["BatchGetItem T A+B"]);
    let write = json!({ "RequestItems": { "T": [
        { "PutRequest": { "Item": key("A") } }, { "DeleteRequest": { "Key": key("C") } },
    ] } });
    assert_eq!(told("BatchWriteItem", write), ["BatchWriteItem T A+C"]);
}

#[test]
fn transactions_need_the_permissions_of_their_parts() {
    let part =
        |kind: &str, field: &str, pk: &str| json!({ kind: { "TableName": "T", field: key(pk) } });
    let write = json!({ "TransactItems": [
        part("Put", "Item", "A"), part("Update", "Key", "B"),
        part("Delete", "Key", "C"), part("ConditionCheck", "Key", "D"),
    ] });
    let expected = ["PutItem T A", "UpdateItem T B", "DeleteItem T C", "ConditionCheckItem T D"];
    assert_eq!(told("TransactWriteItems", write.clone()), expected);
    let first = &asked_by("TransactWriteItems", &write)[0];
    let enclosing = first.context.values("dynamodb:EnclosingOperation").unwrap();
    assert_eq!(enclosing, ["TransactWriteItems"]);
    let get = json!({ "TransactItems": [part("Get", "Key", "A")] });
    assert_eq!(told("TransactGetItems", get), ["GetItem T A"]);
}

#[test]
fn statements_are_named_by_their_conditions() {
    let text = |text: &str| json!({ "S": text });
    for (statement, parameters, expected) in [
        (
            r#"UPDATE "T" SET a=? WHERE PK=? AND SK=? AND "state"=?"#,
            vec!["v", "A"],
            "PartiQLUpdate T A",
        ),
        (r#"DELETE FROM "T" WHERE PK=? AND SK=?"#, vec!["A", "B"], "PartiQLDelete T A"),
        (r#"select * from "T" where "PK" = 'A''s'"#, vec![], "PartiQLSelect T A's"),
        (
            r#"SELECT a FROM "T"."lists" WHERE listKey=? AND listSort<?"#,
            vec!["L"],
            "PartiQLSelect T/index/lists L",
        ),
        (r#"SELECT * FROM T WHERE PK IN [?, ?]"#, vec!["A", "B"], "PartiQLSelect T A+B"),
        (r#"SELECT * FROM T"#, vec![], "PartiQLSelect T "),
        (r#"SELECT * FROM T WHERE PK='A' OR SK='x'"#, vec![], "PartiQLSelect T "),
        (r#"SELECT * FROM T WHERE SK=?"#, vec!["A"], "PartiQLSelect T "),
        (r#"INSERT INTO "T" VALUE {'PK': ?, 'SK': 'x'}"#, vec!["A"], "PartiQLInsert T A"),
        (r#"INSERT INTO "T" VALUE {'PK':'A','SK':?}"#, vec!["x"], "PartiQLInsert T A"),
    ] {
        let parameters: Vec<Value> = parameters.into_iter().map(text).collect();
        let one = json!({ "Statement": statement, "Parameters": parameters });
        assert_eq!(told("ExecuteStatement", one.clone()), [expected], "{statement}");
        let batch = json!({ "Statements": [one] });
        assert_eq!(told("BatchExecuteStatement", batch), [expected], "{statement}");
    }
    let unreadable = json!({ "Statement": "DROP TABLE 'T" });
    assert_eq!(told("ExecuteStatement", unreadable), ["PartiQL * "]);
}

#[test]
fn statements_tell_what_they_return_and_whether_they_read_everything() {
    let of = |statement: &str, key: &str| {
        let request = json!({ "Statement": statement });
        let asked = asked_by("ExecuteStatement", &request);
        asked[0].context.values(key).map(<[String]>::to_vec)
    };
    let returning = r#"UPDATE "T" SET a='b' WHERE PK='A' RETURNING ALL OLD *"#;
    assert_eq!(of(returning, "dynamodb:ReturnValues"), Some(vec!["ALL_OLD".to_owned()]));
    assert_eq!(of(returning, "dynamodb:FullTableScan"), None);
    let scan = Some(vec!["true".to_owned()]);
    assert_eq!(of("SELECT * FROM T", "dynamodb:FullTableScan"), scan);
    let attributes = of(returning, "dynamodb:Attributes").unwrap();
    assert_eq!(attributes, ["PK", "a"]);
}

#[test]
fn requests_tell_their_attributes_and_parameters() {
    let request = json!({
        "TableName": "T", "Key": key("A"), "ReturnValues": "ALL_OLD",
        "UpdateExpression": "SET #s = :s, nested.inner = :n REMOVE old",
        "ConditionExpression": "attribute_exists(PK) AND size(b) > :n",
        "ExpressionAttributeNames": { "#s": "state" },
    });
    let [asked] = &asked_by("UpdateItem", &request)[..] else { panic!("one") };
    assert_eq!(asked.context.values("dynamodb:ReturnValues").unwrap(), ["ALL_OLD"]);
    let attributes = asked.context.values("dynamodb:Attributes").unwrap();
    assert_eq!(attributes, ["PK", "SK", "b", "nested", "old", "state"]);
}

#[test]
fn a_table_with_tags_also_needs_the_permission_to_tag() {
    let tags = json!([{ "Key": "ondeck:pool", "Value": "acme/web" }]);
    let request = json!({ "TableName": "T", "Tags": tags });
    assert_eq!(told("CreateTable", request.clone()), ["CreateTable T ", "TagResource T "]);
    let asked = asked_by("CreateTable", &request);
    assert_eq!(asked[1].context.values("aws:RequestTag/ondeck:pool").unwrap(), ["acme/web"]);
    assert_eq!(told("DescribeTable", json!({ "TableName": "T" })), ["DescribeTable T "]);
    assert_eq!(told("ListTables", json!({})), ["ListTables * "]);
}
