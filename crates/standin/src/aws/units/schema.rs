//! What a table and its indexes are keyed by, and what an index copies of an item.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Item;

/// The keys of a table, and its global indexes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableSchema {
    /// The names of the key attributes, the partition key first.
    keys: Vec<String>,
    pub(super) indexes: Vec<IndexSchema>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IndexSchema {
    pub(super) name: String,
    /// The names of the key attributes, the partition key first.
    keys: Vec<String>,
    /// The names of the projected attributes; `None` for all of them.
    projected: Option<BTreeSet<String>>,
}

impl TableSchema {
    /// Reads the answer to DescribeTable; `None` if it describes no table.
    pub(crate) fn of(answer: &Value) -> Option<TableSchema> {
        let table = &answer["Table"];
        let keys = keys_of(table)?;
        let indexes = table["GlobalSecondaryIndexes"].as_array().into_iter().flatten();
        let indexes = indexes.filter_map(|index| IndexSchema::of(index, &keys)).collect();
        Some(TableSchema { keys, indexes })
    }

    /// The name of the partition key of the table or of an index; `None` if there is no such index.
    pub(super) fn hash(&self, index: Option<&str>) -> Option<&str> {
        match index {
            None => Some(&self.keys[0]),
            Some(name) => {
                let index = self.indexes.iter().find(|index| index.name == name)?;
                Some(&index.keys[0])
            }
        }
    }

    /// The names of the table's key attributes, the partition key first.
    pub(super) fn keys(&self) -> &[String] {
        &self.keys
    }

    /// The key of an item; `None` if it lacks one.
    pub(super) fn key_of(&self, item: &Item) -> Option<Item> {
        let one = |name: &String| Some((name.clone(), item.get(name)?.clone()));
        self.keys.iter().map(one).collect()
    }
}

impl IndexSchema {
    fn of(index: &Value, table_keys: &[String]) -> Option<IndexSchema> {
        let keys = keys_of(index)?;
        let projection = &index["Projection"];
        let projected = (projection["ProjectionType"] != "ALL").then(|| {
            let more = projection["NonKeyAttributes"].as_array().into_iter().flatten();
            let more = more.filter_map(|name| name.as_str().map(str::to_owned));
            more.chain(keys.iter().cloned()).chain(table_keys.iter().cloned()).collect()
        });
        Some(IndexSchema { name: index["IndexName"].as_str()?.to_owned(), keys, projected })
    }

    /// What the index copies of an item; `None` if the item lacks a key of the index and is
    /// therefore not in it.
    pub(super) fn entry(&self, item: &Item) -> Option<Item> {
        if !self.keys.iter().all(|key| item.contains_key(key)) {
            return None;
        }
        let is_projected = |name: &String| {
            self.projected.as_ref().is_none_or(|projected| projected.contains(name))
        };
        let copied = item.iter().filter(|(name, _)| is_projected(name));
        Some(copied.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    /// Whether two entries have the same place in the index.
    pub(super) fn same_key(&self, one: &Item, other: &Item) -> bool {
        self.keys.iter().all(|key| one.get(key) == other.get(key))
    }

    /// The value of an entry's partition key.
    pub(super) fn partition(&self, entry: &Item) -> String {
        key_text(entry.get(&self.keys[0]))
    }
}

/// The text of a key's value, whose type is text, number or binary.
pub(super) fn key_text(value: Option<&Value>) -> String {
    let content = value.and_then(Value::as_object).and_then(|value| value.values().next());
    content.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The names of the key attributes, the partition key first.
fn keys_of(described: &Value) -> Option<Vec<String>> {
    let keys = described["KeySchema"].as_array()?;
    let named = |kind: &str| {
        let key = keys.iter().find(|key| key["KeyType"] == kind)?;
        key["AttributeName"].as_str().map(str::to_owned)
    };
    Some(std::iter::once(named("HASH")?).chain(named("RANGE")).collect())
}
