//! Rewrites the requests of the tables so that they can have no effect, even if they are allowed.
//!
//! IAM looks at the action, the resource and the keys of a request; all of them stay as they are.
//! What is not listed here is not sent.

use serde_json::{Map, Value, json};

use super::Decision;

/// A condition that no item fulfils.
const NEVER: &str = "attribute_exists(PK) AND attribute_not_exists(PK)";
/// A sort key under which the pool has no item.
const NO_ITEM: &str = "permissions-check";
/// The end of the name of a queue that does not exist: names of classes and machines cannot lead to it.
const NO_QUEUE: &str = "permissions_check";
/// What a machine may do with a queue that carries its tag only.
const OWN_QUEUE: (&str, Decision) = ("ReceiveMessage", Decision::Allowed);

/// The request in a form without effect. Addresses of queues begin with `sqs`. Fails with the reason
/// to skip the request.
pub(super) fn harmless(
    call: &str,
    mut request: Value,
    sqs: &str,
    expected: Decision,
) -> Result<Value, &'static str> {
    let Some((service, operation)) = call.split_once(':') else { return Err("not a call") };
    let Some(fields) = request.as_object_mut() else { return Err("not a request") };
    match service {
        "ec2" => {
            fields.insert("DryRun".to_owned(), json!("true"));
        }
        "sqs" => queue(operation, fields, sqs, expected)?,
        "dynamodb" => dynamodb(operation, fields)?,
        "servicequotas" | "iam" if operation.starts_with("Get") => {}
        _ => return Err("no form without effect is known"),
    }
    Ok(request)
}

/// Names a queue that does not exist.
fn queue(
    operation: &str,
    fields: &mut Map<String, Value>,
    sqs: &str,
    expected: Decision,
) -> Result<(), &'static str> {
    match operation {
        "CreateQueue" => return Err("CreateQueue has no form without effect"),
        "ListQueues" => return Ok(()),
        _ => {}
    }
    let url = fields.get("QueueUrl").and_then(Value::as_str).unwrap_or_default();
    let mut parts = url.rsplit('/');
    let (Some(name), Some(account)) = (parts.next(), parts.next()) else {
        return Err("it names no queue");
    };
    let (stem, separator) = match (name.split_once('_'), name.rsplit_once('-')) {
        // What decides about the queue of a machine is its tag, which a queue that does not exist lacks.
        (Some(_), _) if operation == "TagQueue" || (operation, expected) == OWN_QUEUE => {
            return Err("the queue of a machine decides by its tag");
        }
        (Some((stem, _machine)), _) => (stem, '_'),
        (None, Some((stem, _class))) => (stem, '-'),
        (None, None) => return Err("it names no queue"),
    };
    let url = format!("{sqs}{account}/{stem}{separator}{NO_QUEUE}");
    fields.insert("QueueUrl".to_owned(), url.into());
    Ok(())
}

fn dynamodb(operation: &str, fields: &mut Map<String, Value>) -> Result<(), &'static str> {
    match operation {
        "DescribeTable" => {}
        "GetItem" => move_item(fields),
        "PutItem" | "UpdateItem" | "DeleteItem" => prevent(fields),
        "Query" => find_nothing(fields),
        "Scan" => {
            fields.insert("FilterExpression".to_owned(), NEVER.into());
            fields.insert("Limit".to_owned(), 1.into());
        }
        "BatchGetItem" => {
            for table in objects(fields.get_mut("RequestItems")) {
                let keys = table.get_mut("Keys").and_then(Value::as_array_mut);
                for key in keys.into_iter().flatten().filter_map(Value::as_object_mut) {
                    set_sort_key(key);
                }
            }
        }
        "BatchWriteItem" => delete_nothing(fields),
        "TransactGetItems" => for_each_part(fields, move_item),
        "TransactWriteItems" => for_each_part(fields, prevent),
        "ExecuteStatement" => {
            statement(fields)?;
            if is_select(fields) {
                fields.insert("Limit".to_owned(), 1.into());
            }
        }
        "BatchExecuteStatement" => {
            let parts = fields.get_mut("Statements").and_then(Value::as_array_mut);
            for part in parts.into_iter().flatten().filter_map(Value::as_object_mut) {
                statement(part)?;
            }
        }
        "CreateTable" => return Err("CreateTable has no form without effect"),
        "DeleteTable" => return Err("DeleteTable has no form without effect"),
        "UpdateTimeToLive" => return Err("UpdateTimeToLive has no form without effect"),
        _ => return Err("no form without effect is known"),
    }
    Ok(())
}

/// Gives a write a condition that no item fulfils, and a key without an item.
fn prevent(fields: &mut Map<String, Value>) {
    move_item(fields);
    fields.insert("ConditionExpression".to_owned(), NEVER.into());
}

/// Names a key without an item, with the same partition key.
fn move_item(fields: &mut Map<String, Value>) {
    for name in ["Key", "Item"] {
        if let Some(key) = fields.get_mut(name).and_then(Value::as_object_mut) {
            set_sort_key(key);
        }
    }
}

fn set_sort_key(key: &mut Map<String, Value>) {
    key.insert("SK".to_owned(), json!({ "S": NO_ITEM }));
}

/// Limits a query to a sort key without an item.
fn find_nothing(fields: &mut Map<String, Value>) {
    let sort = match fields.get("IndexName").and_then(Value::as_str) {
        None => "SK",
        Some("lists") => "listSort",
        Some(_) => "at",
    };
    let keys = fields.get("KeyConditionExpression").and_then(Value::as_str).unwrap_or_default();
    let keys = format!("{keys} AND #sort = :none");
    fields.insert("KeyConditionExpression".to_owned(), keys.into());
    fields.insert("ExpressionAttributeNames".to_owned(), json!({ "#sort": sort }));
    if let Some(values) = fields.get_mut("ExpressionAttributeValues") {
        values[":none"] = json!({ "S": NO_ITEM });
    }
    fields.insert("Limit".to_owned(), 1.into());
}

/// Turns every write of a batch, which can have no condition, into the deletion of a key without an
/// item. IAM asks for the same permission on the same partition keys.
fn delete_nothing(fields: &mut Map<String, Value>) {
    let tables = fields.get_mut("RequestItems").and_then(Value::as_object_mut);
    for (_, writes) in tables.into_iter().flatten() {
        for write in writes.as_array_mut().into_iter().flatten() {
            let item = [&write["PutRequest"]["Item"]["PK"], &write["DeleteRequest"]["Key"]["PK"]];
            let partition = item.into_iter().find(|key| !key.is_null()).cloned();
            let key = json!({ "PK": partition, "SK": { "S": NO_ITEM } });
            *write = json!({ "DeleteRequest": { "Key": key } });
        }
    }
}

fn for_each_part(fields: &mut Map<String, Value>, change: fn(&mut Map<String, Value>)) {
    let parts = fields.get_mut("TransactItems").and_then(Value::as_array_mut);
    for part in parts.into_iter().flatten() {
        objects(Some(part)).for_each(change);
    }
}

/// The objects in an object.
fn objects(value: Option<&mut Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    let fields = value.and_then(Value::as_object_mut).into_iter().flatten();
    fields.filter_map(|(_, value)| value.as_object_mut())
}

fn is_select(fields: &Map<String, Value>) -> bool {
    fields.get("Statement").and_then(Value::as_str).is_some_and(|text| text.starts_with("SELECT"))
}

/// Gives a PartiQL statement a condition that no item fulfils. An update or a deletion of an item
/// that does not exist changes nothing.
fn statement(fields: &mut Map<String, Value>) -> Result<(), &'static str> {
    const KEY: &str = "SK='x'";
    let text = fields.get("Statement").and_then(Value::as_str).unwrap_or_default();
    let no_item = format!("SK='{NO_ITEM}'");
    let changed = match text.split(' ').next() {
        Some("SELECT") if text.contains(" WHERE ") => format!("{text} AND {no_item}"),
        Some("SELECT") => format!("{text} WHERE neverSet='x'"),
        Some("UPDATE" | "DELETE") if text.contains(KEY) => {
            text.replace(KEY, &format!("{no_item} AND neverSet='x'"))
        }
        Some("INSERT") => return Err("an INSERT by PartiQL has no form without effect"),
        _ => return Err("no form without effect is known"),
    };
    fields.insert("Statement".to_owned(), changed.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::rows;
    use super::*;

    const SQS: &str = "https://sqs.example/";

    fn rewritten(call: &str, request: Value) -> Value {
        harmless(call, request, SQS, Decision::Denied).unwrap()
    }

    #[test]
    fn no_row_of_the_tables_can_have_an_effect() {
        let mut skipped = std::collections::BTreeSet::new();
        for (expected, row) in rows() {
            let request = match harmless(&row.call, row.request.clone(), SQS, expected) {
                Ok(request) => request,
                Err(reason) => {
                    skipped.insert(reason);
                    continue;
                }
            };
            let text = request.to_string();
            let (service, operation) = row.call.split_once(':').unwrap();
            let mark = match (service, operation) {
                ("ec2", _) => r#""DryRun":"true""#,
                ("servicequotas", "GetServiceQuota") => "QuotaCode",
                ("iam", "GetInstanceProfile") => "InstanceProfileName",
                ("sqs", "ListQueues") => "QueueNamePrefix",
                ("sqs", _) => NO_QUEUE,
                ("dynamodb", "DescribeTable") => r#"{"TableName":"#,
                ("dynamodb", "PutItem" | "UpdateItem" | "DeleteItem" | "TransactWriteItems") => {
                    r#""ConditionExpression":"attribute_exists(PK) AND attribute_not_exists(PK)""#
                }
                ("dynamodb", "Scan") => r#""Limit":1"#,
                ("dynamodb", "ExecuteStatement") if text.contains("WHERE neverSet") => "SELECT",
                _ => NO_ITEM,
            };
            assert!(text.contains(mark), "{text}");
            for single in ["PutRequest", r#"{"S":"x"}"#, "SK='x'", "-large"] {
                assert!(!text.contains(single), "{single} in {text}");
            }
        }
        let skipped: Vec<&str> = skipped.into_iter().collect();
        assert_eq!(
            skipped,
            [
                "CreateQueue has no form without effect",
                "CreateTable has no form without effect",
                "DeleteTable has no form without effect",
                "UpdateTimeToLive has no form without effect",
                "an INSERT by PartiQL has no form without effect",
                "the queue of a machine decides by its tag",
            ]
        );
    }

    #[test]
    fn every_part_of_a_transaction_has_the_condition() {
        let part = |sort: &str| json!({ "TableName": "t", "Key": { "SK": { "S": sort } } });
        let request =
            json!({ "TransactItems": [{ "Update": part("a") }, { "Delete": part("b") }] });
        let prevented = json!({
            "TableName": "t", "Key": { "SK": { "S": NO_ITEM } }, "ConditionExpression": NEVER,
        });
        let expected =
            json!({ "TransactItems": [{ "Update": prevented }, { "Delete": prevented }] });
        assert_eq!(rewritten("dynamodb:TransactWriteItems", request), expected);
    }

    #[test]
    fn a_batch_of_writes_becomes_deletions_of_nothing_with_the_same_partition_keys() {
        let request = json!({ "RequestItems": { "t": [
            { "PutRequest": { "Item": { "PK": { "S": "a" }, "SK": { "S": "1" } } } },
            { "DeleteRequest": { "Key": { "PK": { "S": "b" }, "SK": { "S": "2" } } } },
        ] } });
        let deletion = |partition: &str| {
            json!({ "DeleteRequest": {
                "Key": { "PK": { "S": partition }, "SK": { "S": NO_ITEM } },
            } })
        };
        let expected = json!({ "RequestItems": { "t": [deletion("a"), deletion("b")] } });
        assert_eq!(rewritten("dynamodb:BatchWriteItem", request), expected);
    }

    #[test]
    fn statements_find_nothing() {
        for (text, expected) in [
            (
                r#"UPDATE "t" SET a='b' WHERE PK=? AND SK='x' RETURNING ALL OLD *"#,
                r#"UPDATE "t" SET a='b' WHERE PK=? AND SK='permissions-check' AND neverSet='x' RETURNING ALL OLD *"#,
            ),
            (
                r#"SELECT * FROM "t" WHERE PK=?"#,
                r#"SELECT * FROM "t" WHERE PK=? AND SK='permissions-check'"#,
            ),
            (r#"SELECT * FROM "t""#, r#"SELECT * FROM "t" WHERE neverSet='x'"#),
        ] {
            let request = rewritten("dynamodb:ExecuteStatement", json!({ "Statement": text }));
            assert_eq!(request["Statement"], expected);
        }
        for text in [r#"DELETE FROM "t" WHERE PK=?"#, "DROP", ""] {
            let request = json!({ "Statement": text });
            assert!(
                harmless("dynamodb:ExecuteStatement", request, SQS, Decision::Denied).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_not_listed_is_not_sent() {
        for call in [
            "dynamodb:UpdateTable",
            "iam:PassRole",
            "s3:PutObject",
            "sqs:CreateQueue",
            "iam:CreateRole",
        ] {
            assert!(harmless(call, json!({}), SQS, Decision::Denied).is_err(), "{call}");
        }
    }
}
