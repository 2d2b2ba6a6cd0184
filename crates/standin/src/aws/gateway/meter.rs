//! Measures the units that calls to DynamoDB consume, see [`crate::aws::units`].
//!
//! What a write costs depends on the item before and after it, which no answer shows in full. So the
//! meter reads the items of each write around it. Writes to one item wait for each other meanwhile;
//! otherwise the meter would take the change of one for that of another.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Mutex;

use serde_json::{Value, json};
use tokio::sync::Mutex as TurnMutex;

use crate::aws::call::Call;
use crate::aws::iam::dynamodb;
use crate::aws::units::{Item, TableSchema, TableSchemas, Unmeasurable, Write, reads, writes};
use crate::http::Answer;
use crate::sync::locked;

use super::endpoint::EndpointState;
use super::upstream::Upstreams;

/// Writes to different items rarely share one of so many turns.
const TURNS: usize = 256;

#[derive(Debug)]
pub(super) struct Meter {
    schemas: Mutex<HashMap<String, TableSchema>>,
    turns: Vec<TurnMutex<()>>,
    unmeasured: Mutex<BTreeSet<String>>,
    hasher: RandomState,
}

impl Default for Meter {
    fn default() -> Meter {
        let turns = (0..TURNS).map(|_| TurnMutex::new(())).collect();
        Meter {
            schemas: Mutex::default(),
            turns,
            unmeasured: Mutex::default(),
            hasher: RandomState::new(),
        }
    }
}

impl Meter {
    /// Forwards a call to DynamoDB, and adds the units that it consumes to those of the endpoint.
    pub(super) async fn forward(
        &self,
        upstreams: &Upstreams,
        call: &Call,
        endpoint: &EndpointState,
    ) -> Answer {
        let none = Value::Null;
        let request = call.json().unwrap_or(&none);
        let schemas = self.schemas_of(upstreams, call, request).await;
        match writes(&call.operation, request, &schemas) {
            Some(Ok(writes)) => {
                self.forward_writes(upstreams, call, endpoint, &schemas, &writes).await
            }
            Some(Err(Unmeasurable(reason))) => {
                self.note_unmeasured(call, reason);
                upstreams.dynamodb(call).await
            }
            None => {
                let answer = upstreams.dynamodb(call).await;
                if answer.status.is_success() {
                    match reads(&call.operation, request, &parsed(&answer), &schemas) {
                        Some(Ok(charges)) => endpoint.consume(charges),
                        Some(Err(Unmeasurable(reason))) => {
                            self.note_unmeasured(call, reason);
                        }
                        None => {}
                    }
                }
                answer
            }
        }
    }

    async fn forward_writes(
        &self,
        upstreams: &Upstreams,
        call: &Call,
        endpoint: &EndpointState,
        schemas: &TableSchemas,
        writes: &[Write],
    ) -> Answer {
        // Always taken in the same order, so that two batches cannot wait for each other.
        let mut places: Vec<usize> = writes.iter().map(|write| self.place(write)).collect();
        places.sort_unstable();
        places.dedup();
        let mut turns = Vec::new();
        for place in places {
            turns.push(self.turns[place].lock().await);
        }
        let before = read(upstreams, call, writes).await;
        let answer = upstreams.dynamodb(call).await;
        let after = read(upstreams, call, writes).await;
        drop(turns);
        let (Some(before), Some(after)) = (before, after) else {
            self.note_unmeasured(call, "the emulator did not show the items");
            return answer;
        };
        let body = parsed(&answer);
        for ((write, before), after) in writes.iter().zip(before).zip(after) {
            if write.is_billed(answer.status.is_success(), &body)
                && let Some(schema) = schemas.get(&write.table)
            {
                endpoint.consume(write.units(schema, before.as_ref(), after.as_ref()));
            }
        }
        answer
    }

    /// The operations whose units are unknown, each with the reason.
    pub(super) fn unmeasured(&self) -> BTreeSet<String> {
        locked(&self.unmeasured).clone()
    }

    fn note_unmeasured(&self, call: &Call, reason: &str) {
        locked(&self.unmeasured).insert(format!("{}: {reason}", call.operation));
    }

    fn place(&self, write: &Write) -> usize {
        let key = Value::Object(write.key.clone()).to_string();
        let hash = self.hasher.hash_one((&write.table, key));
        usize::try_from(hash % TURNS as u64).expect("the remainder is small")
    }

    /// The schemas of a call's tables, as far as they exist. Asks DynamoDB once for each table.
    async fn schemas_of(
        &self,
        upstreams: &Upstreams,
        call: &Call,
        request: &Value,
    ) -> TableSchemas {
        if matches!(&*call.operation, "CreateTable" | "UpdateTable" | "DeleteTable") {
            locked(&self.schemas).clear();
        }
        let mut schemas = TableSchemas::new();
        for table in dynamodb::tables(&call.operation, request) {
            let known = locked(&self.schemas).get(&table).cloned();
            let found = match known {
                Some(schema) => Some(schema),
                None => {
                    let describe = call.to_dynamodb("DescribeTable", json!({"TableName": table}));
                    TableSchema::of(&parsed(&upstreams.dynamodb(&describe).await))
                }
            };
            if let Some(schema) = found {
                locked(&self.schemas).insert(table.clone(), schema.clone());
                schemas.insert(table, schema);
            }
        }
        schemas
    }
}

/// The items of writes as they are now, in the order of the writes; `None` if they cannot be read.
async fn read(upstreams: &Upstreams, call: &Call, writes: &[Write]) -> Option<Vec<Option<Item>>> {
    let mut wanted = json!({});
    for write in writes {
        let table = &mut wanted[&write.table];
        table["ConsistentRead"] = true.into();
        let key = Value::Object(write.key.clone());
        match table["Keys"].as_array_mut() {
            Some(keys) => keys.push(key),
            None => table["Keys"] = json!([key]),
        }
    }
    let get = call.to_dynamodb("BatchGetItem", json!({ "RequestItems": wanted }));
    let answer = upstreams.dynamodb(&get).await;
    let body = parsed(&answer);
    let left = body["UnprocessedKeys"].as_object().is_some_and(|left| !left.is_empty());
    if !answer.status.is_success() || left {
        return None;
    }
    let item = |write: &Write| {
        let items = body["Responses"][&write.table].as_array().into_iter().flatten();
        let mut items = items.filter_map(Value::as_object);
        let is_its =
            |item: &&Item| write.key.iter().all(|(name, value)| item.get(name) == Some(value));
        items.find(is_its).cloned()
    };
    Some(writes.iter().map(item).collect())
}

fn parsed(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_default()
}
