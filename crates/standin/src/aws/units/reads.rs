//! The units of reads, computed from a request and its answer.

use serde_json::Value;

use super::schema::key_text;
use super::size::item_bytes;
use super::{Item, PartitionKey, TableSchemas, Units, Unmeasurable, read_units};
use crate::aws::iam::dynamodb::query_key;

/// Parameters with which the answer does not show all that was read.
const HIDING: [&str; 5] = [
    "ProjectionExpression",
    "AttributesToGet",
    "FilterExpression",
    "QueryFilter",
    "ConditionalOperator",
];

/// The units that a successful read has consumed, by partition key; `None` if the operation does not
/// read items.
pub(crate) fn reads(
    operation: &str,
    request: &Value,
    answer: &Value,
    schemas: &TableSchemas,
) -> Option<Result<Vec<(PartitionKey, Units)>, Unmeasurable>> {
    Some(match operation {
        "GetItem" => get(request, answer, schemas),
        "BatchGetItem" => batch(request, answer, schemas),
        "Query" => query(request, answer, schemas),
        "Scan" | "TransactGetItems" => Err(Unmeasurable("no rule for this operation")),
        _ => return None,
    })
}

fn get(
    request: &Value,
    answer: &Value,
    schemas: &TableSchemas,
) -> Result<Vec<(PartitionKey, Units)>, Unmeasurable> {
    shows_all(request)?;
    let table = request["TableName"].as_str().unwrap_or_default();
    let hash = hash(schemas, table, None)?;
    let key = PartitionKey {
        table: table.to_owned(),
        index: None,
        value: key_text(request["Key"].get(hash)),
    };
    let bytes = answer["Item"].as_object().map_or(0, item_bytes);
    Ok(vec![(key, read_units(bytes, is_consistent(request)))])
}

/// Each key of a batch is billed like a GetItem, whether or not there is an item.
fn batch(
    request: &Value,
    answer: &Value,
    schemas: &TableSchemas,
) -> Result<Vec<(PartitionKey, Units)>, Unmeasurable> {
    let mut read = Vec::new();
    for (table, wanted) in request["RequestItems"].as_object().into_iter().flatten() {
        shows_all(wanted)?;
        let hash = hash(schemas, table, None)?;
        let unprocessed = items(&answer["UnprocessedKeys"][table]["Keys"]);
        let found = items(&answer["Responses"][table]);
        for key in items(&wanted["Keys"]) {
            if unprocessed.contains(&key) {
                continue;
            }
            let is_under =
                |item: &&&Item| key.iter().all(|(name, value)| item.get(name) == Some(value));
            let bytes = found.iter().find(is_under).map_or(0, |item| item_bytes(item));
            let value = key_text(key.get(hash));
            let key = PartitionKey { table: table.clone(), index: None, value };
            read.push((key, read_units(bytes, is_consistent(wanted))));
        }
    }
    Ok(read)
}

/// A query is billed for the sum of what it reads under its one partition key.
fn query(
    request: &Value,
    answer: &Value,
    schemas: &TableSchemas,
) -> Result<Vec<(PartitionKey, Units)>, Unmeasurable> {
    shows_all(request)?;
    if matches!(request["Select"].as_str(), Some("COUNT" | "SPECIFIC_ATTRIBUTES")) {
        return Err(Unmeasurable("the answer does not show all that was read"));
    }
    let table = request["TableName"].as_str().unwrap_or_default();
    let index = request["IndexName"].as_str();
    let hash = hash(schemas, table, index)?;
    let value = query_key(request, hash).ok_or(Unmeasurable("a query without a partition key"))?;
    let key = PartitionKey { table: table.to_owned(), index: index.map(str::to_owned), value };
    let bytes = items(&answer["Items"]).into_iter().map(item_bytes).sum();
    Ok(vec![(key, read_units(bytes, is_consistent(request)))])
}

fn shows_all(request: &Value) -> Result<(), Unmeasurable> {
    match HIDING.iter().any(|parameter| request.get(parameter).is_some()) {
        true => Err(Unmeasurable("the answer does not show all that was read")),
        false => Ok(()),
    }
}

fn hash<'a>(
    schemas: &'a TableSchemas,
    table: &str,
    index: Option<&str>,
) -> Result<&'a str, Unmeasurable> {
    let found = schemas.get(table).and_then(|schema| schema.hash(index));
    found.ok_or(Unmeasurable("an unknown table or index"))
}

fn is_consistent(request: &Value) -> bool {
    request["ConsistentRead"] == true
}

fn items(list: &Value) -> Vec<&Item> {
    list.as_array().into_iter().flatten().filter_map(Value::as_object).collect()
}
