//! The units of writes, computed from an item before and after the write.

use serde_json::Value;

use super::schema::key_text;
use super::size::item_bytes;
use super::{Item, PartitionKey, TableSchema, TableSchemas, Units, Unmeasurable, write_units};
use crate::aws::iam::dynamodb::{StatementWrite, statement_writes};

/// One item that a call writes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Write {
    pub(crate) table: String,
    pub(crate) key: Item,
    /// 2 in a transaction.
    factor: f64,
    /// The position in a batch of statements, each of which is answered on its own.
    statement: Option<usize>,
}

/// The items that a call writes; `None` if the operation does not write items.
pub(crate) fn writes(
    operation: &str,
    request: &Value,
    schemas: &TableSchemas,
) -> Option<Result<Vec<Write>, Unmeasurable>> {
    let one = |table: &Value, item: &Value, factor| {
        write(schemas, table.as_str().unwrap_or_default(), item, factor)
    };
    Some(match operation {
        "PutItem" => one(&request["TableName"], &request["Item"], 1.0).map(|write| vec![write]),
        "UpdateItem" | "DeleteItem" => {
            one(&request["TableName"], &request["Key"], 1.0).map(|write| vec![write])
        }
        "BatchWriteItem" => {
            let tables = request["RequestItems"].as_object().into_iter().flatten();
            let entries = tables.flat_map(|(table, entries)| {
                entries.as_array().into_iter().flatten().map(move |entry| (table, entry))
            });
            entries.map(|(table, entry)| write(schemas, table, entry_item(entry), 1.0)).collect()
        }
        "TransactWriteItems" => {
            let parts = request["TransactItems"].as_array().into_iter().flatten();
            let part = |part: &Value| {
                let (put, key) = (&part["Put"], ["Update", "Delete"].map(|kind| &part[kind]));
                if put.is_object() {
                    return one(&put["TableName"], &put["Item"], 2.0);
                }
                match key.into_iter().find(|part| part.is_object()) {
                    Some(part) => one(&part["TableName"], &part["Key"], 2.0),
                    None => Err(Unmeasurable("a transaction with a condition check")),
                }
            };
            parts.map(part).collect()
        }
        "ExecuteStatement" | "BatchExecuteStatement" | "ExecuteTransaction" => {
            statements(operation, request, schemas)
        }
        _ => return None,
    })
}

fn write(
    schemas: &TableSchemas,
    table: &str,
    item: &Value,
    factor: f64,
) -> Result<Write, Unmeasurable> {
    let schema = schemas.get(table).ok_or(Unmeasurable("an unknown table"))?;
    let key = item.as_object().and_then(|item| schema.key_of(item));
    let key = key.ok_or(Unmeasurable("an item without a key"))?;
    Ok(Write { table: table.to_owned(), key, factor, statement: None })
}

fn statements(
    operation: &str,
    request: &Value,
    schemas: &TableSchemas,
) -> Result<Vec<Write>, Unmeasurable> {
    let factor = if operation == "ExecuteTransaction" { 2.0 } else { 1.0 };
    let batch = operation == "BatchExecuteStatement";
    let one = |(at, statement): (usize, Option<StatementWrite<'_>>)| {
        let statement = statement.ok_or(Unmeasurable("a statement that is no plain write"))?;
        let schema = schemas.get(statement.table()).ok_or(Unmeasurable("an unknown table"))?;
        let pinned = |name: &String| {
            let value = statement.pinned(name)?;
            Some((name.clone(), serde_json::json!({ "S": value })))
        };
        let key = schema.keys().iter().map(pinned).collect::<Option<Item>>();
        let key = key.ok_or(Unmeasurable("a statement without a key"))?;
        let table = statement.table().to_owned();
        Ok(Write { table, key, factor, statement: batch.then_some(at) })
    };
    statement_writes(operation, request).into_iter().enumerate().map(one).collect()
}

impl Write {
    /// Whether DynamoDB bills the write. It bills what it has done and what a condition refused.
    pub(crate) fn is_billed(&self, succeeded: bool, answer: &Value) -> bool {
        if !succeeded {
            let kind = answer["__type"].as_str().unwrap_or_default();
            return kind.ends_with("#ConditionalCheckFailedException")
                || kind.ends_with("#TransactionCanceledException");
        }
        if let Some(at) = self.statement {
            let error = &answer["Responses"][at]["Error"];
            return error.is_null()
                || matches!(
                    error["Code"].as_str(),
                    Some("ConditionalCheckFailed" | "DuplicateItem")
                );
        }
        let unprocessed = answer["UnprocessedItems"][&self.table].as_array();
        let is_this = |entry: &Value| {
            self.key.iter().all(|(name, value)| entry_item(entry).get(name) == Some(value))
        };
        !unprocessed.into_iter().flatten().any(is_this)
    }

    /// The units of a billed write, by partition key of the table and of its indexes. A write that a
    /// condition refused has the same item before and after.
    pub(crate) fn units(
        &self,
        schema: &TableSchema,
        before: Option<&Item>,
        after: Option<&Item>,
    ) -> Vec<(PartitionKey, Units)> {
        let bytes = |item: Option<&Item>| item.map_or(0, item_bytes);
        let charge = |index: Option<&str>, value: String, units: f64| {
            let index = index.map(str::to_owned);
            let key = PartitionKey { table: self.table.clone(), index, value };
            (key, Units { reads: 0.0, writes: units * self.factor })
        };
        let partition = key_text(self.key.get(&schema.keys()[0]));
        let larger = bytes(before).max(bytes(after));
        let mut charges = vec![charge(None, partition, write_units(larger))];
        for index in &schema.indexes {
            let old = before.and_then(|item| index.entry(item));
            let new = after.and_then(|item| index.entry(item));
            let name = Some(index.name.as_str());
            let whole =
                |entry: &Item| charge(name, index.partition(entry), write_units(item_bytes(entry)));
            match (&old, &new) {
                (Some(old), Some(new)) if old == new => {}
                (Some(old), Some(new)) if index.same_key(old, new) => {
                    let larger = item_bytes(old).max(item_bytes(new));
                    charges.push(charge(name, index.partition(new), write_units(larger)));
                }
                _ => charges.extend(old.iter().chain(&new).map(whole)),
            }
        }
        charges
    }
}

/// The item or the key in an entry of BatchWriteItem.
fn entry_item(entry: &Value) -> &Value {
    let put = &entry["PutRequest"]["Item"];
    if put.is_object() { put } else { &entry["DeleteRequest"]["Key"] }
}
