//! What runs asked for. One item holds the demands of all labels of a run.

use std::collections::HashSet;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use ondeck_core::model::demand::{Demand, RETENTION};
use ondeck_core::model::ids::RunId;
use ondeck_core::ports::PortResult;

use super::keys::{Key, List, names_in, text, ttl};
use super::rows;
use super::table::Table;

/// Sets the demand of one label and leaves those of the run's other labels as they are.
pub(super) async fn put(table: &Table, demand: &Demand, shards: u32) -> PortResult<()> {
    table.call("UpdateItem", setting(table, demand, shards).send()).await.map(drop)
}

/// Sets the demand of one label if there is none. Returns whether it was set.
pub(super) async fn insert(table: &Table, demand: &Demand, shards: u32) -> PortResult<bool> {
    const CONDITION: &str = "attribute_not_exists(#demand)";
    let update = setting(table, demand, shards).condition_expression(CONDITION);
    is_admitted(table, table.ask(update.send()).await)
}

/// The update that sets a demand, and from when on its item is kept.
fn setting(table: &Table, demand: &Demand, shards: u32) -> UpdateItemFluentBuilder {
    const EFFECT: &str =
        "SET #demand = :demand, #listKey = :listKey, #listSort = :listSort, #ttl = :ttl";
    let mut update = update(table, demand, EFFECT);
    let entry = List::Demands.entry(demand.run.as_str(), demand.at, shards);
    for (name, value) in entry.into_iter().chain([ttl(demand.at + RETENTION)]) {
        update = update.expression_attribute_values(format!(":{name}"), value);
    }
    update
}

/// The update with this effect, in which `:demand` is the demand.
fn update(table: &Table, demand: &Demand, effect: &str) -> UpdateItemFluentBuilder {
    let mut names = names_in(&[effect]);
    names.insert("#demand".to_owned(), rows::demand_attribute(&demand.label()));
    table
        .client
        .update_item()
        .table_name(&table.name)
        .set_key(Some(Key::demand(&demand.run).attributes()))
        .set_expression_attribute_names(Some(names))
        .update_expression(effect)
        .expression_attribute_values(":demand", text(serde_json::json!(demand)))
}

/// Sets the demand of one label if it still is `current`. What this version writes for `current` is
/// expected first. If the text is another one, it is read, because another version may have written the
/// same demand as another text.
pub(super) async fn replace(
    table: &Table,
    current: &Demand,
    next: &Demand,
    shards: u32,
) -> PortResult<bool> {
    let written = serde_json::json!(current).to_string();
    if replace_text(table, &written, (current, next), shards).await? {
        return Ok(true);
    }
    let (key, attribute) = (Key::demand(&current.run), rows::demand_attribute(&current.label()));
    let items = table.get_all(std::slice::from_ref(&key)).await?;
    let stored = items.first().and_then(|item| item.get(&attribute)?.as_s().ok());
    let is_current =
        |stored: &str| Demand::read(&current.run, stored).is_some_and(|found| found == *current);
    match stored.filter(|stored| **stored != written && is_current(stored)) {
        Some(stored) => replace_text(table, stored, (current, next), shards).await,
        None => Ok(false),
    }
}

/// Sets the demand if its text is this one. An item holds the demands of all labels of a run, so it is
/// kept for longer only if this demand is renewed, and never for less long.
async fn replace_text(
    table: &Table,
    stored: &str,
    (current, next): (&Demand, &Demand),
    shards: u32,
) -> PortResult<bool> {
    let update = match next.at > current.at {
        true => setting(table, next, shards),
        false => update(table, next, "SET #demand = :demand"),
    };
    let update = update
        .condition_expression("#demand = :current")
        .expression_attribute_values(":current", text(stored));
    is_admitted(table, table.ask(update.send()).await)
}

/// Whether the condition of an update held.
fn is_admitted<T>(table: &Table, answer: Result<T, SdkError<UpdateItemError>>) -> PortResult<bool> {
    match answer {
        Ok(_) => Ok(true),
        Err(error) => match error.as_service_error() {
            Some(UpdateItemError::ConditionalCheckFailedException(_)) => Ok(false),
            _ => Err(table.port_error("UpdateItem", &error)),
        },
    }
}

pub(super) async fn of_runs(table: &Table, runs: &[RunId]) -> PortResult<Vec<Demand>> {
    let unique: HashSet<&RunId> = runs.iter().collect();
    let keys: Vec<Key> = unique.into_iter().map(Key::demand).collect();
    let mut demands: Vec<Demand> =
        table.get_all(&keys).await?.iter().flat_map(rows::demands).collect();
    demands.sort_by_key(Demand::label);
    Ok(demands)
}
