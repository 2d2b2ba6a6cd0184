//! The partition keys of tables and indexes.

use std::collections::BTreeMap;

use serde_json::Value;

/// The partition key of a table that does not exist. AWS does not document what IAM is asked about
/// such a table; this is ondeck's own, so that a role is told that the table is missing.
const ASSUMED: &str = "PK";

/// The names of the partition keys of a table and of its indexes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schema {
    hash: String,
    indexes: BTreeMap<String, String>,
}

impl Schema {
    /// Reads the answer to DescribeTable; `None` if it describes no table.
    pub(crate) fn of(answer: &Value) -> Option<Schema> {
        let table = &answer["Table"];
        let lists = ["GlobalSecondaryIndexes", "LocalSecondaryIndexes"];
        let indexes = lists.iter().filter_map(|list| table[list].as_array()).flatten();
        let named =
            |index: &Value| Some((index["IndexName"].as_str()?.to_owned(), hash_of(index)?));
        Some(Schema { hash: hash_of(table)?, indexes: indexes.filter_map(named).collect() })
    }
}

fn hash_of(described: &Value) -> Option<String> {
    let keys = described["KeySchema"].as_array()?;
    let hash = keys.iter().find(|key| key["KeyType"] == "HASH")?;
    hash["AttributeName"].as_str().map(str::to_owned)
}

/// The schemas of the tables of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Schemas(BTreeMap<String, Schema>);

impl Schemas {
    pub(crate) fn add(&mut self, table: &str, schema: Schema) {
        self.0.insert(table.to_owned(), schema);
    }

    /// The name of the partition key of a table, or of one of its indexes.
    pub(super) fn hash(&self, table: &str, index: Option<&str>) -> &str {
        let Some(schema) = self.0.get(table) else { return ASSUMED };
        match index {
            Some(index) => schema.indexes.get(index).map_or(ASSUMED, String::as_str),
            None => &schema.hash,
        }
    }
}
