//! Creates the table and checks it.

use std::time::{Duration, SystemTime};

use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, IndexStatus, KeySchemaElement, KeyType,
    Projection, ProjectionType, ScalarAttributeType, TableDescription, TableStatus, Tag,
    TimeToLiveSpecification, TimeToLiveStatus,
};
use aws_smithy_async::time::TimeSource;
use ondeck_core::ports::{PortError, PortResult};
use ondeck_core::runtime::poll::{PollInterval, Wait, wait_until};

use super::table::Table;
use crate::error::{DYNAMODB, unavailable};
use crate::names::{MANAGED_BY, POOL_TAG};

/// An index of the table. It holds keys only: what it finds is read from the table before anything
/// follows from it, and it is the smaller and cheaper for it.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) name: &'static str,
    pub(super) key: &'static str,
    pub(super) sort: &'static str,
}

/// The lists of items, see [`List`](super::keys::List).
pub(super) const LISTS: Index = Index { name: "lists", key: "listKey", sort: "listSort" };
/// Events by the run that they concern.
pub(super) const EVENTS_BY_RUN: Index =
    Index { name: "events-by-run", key: "eventRun", sort: "at" };

const INDEXES: [Index; 2] = [LISTS, EVENTS_BY_RUN];
/// The index that tables of the earlier layout have.
const EARLIER_INDEX: &str = "live-by-threshold";

const CREATED_WITHIN: Duration = Duration::from_secs(120);
const POLL: PollInterval = PollInterval::fixed(Duration::from_millis(500));
/// For this long after the table was created, refresh checks its time to live: the refresh that
/// created it may have been killed before it enabled that.
const YOUNG: Duration = Duration::from_secs(24 * 3_600);

/// Creates the table if it is missing, and waits until it is usable. An existing table costs one
/// call.
///
/// Returns the table's ARN, which names the account.
pub(super) async fn set_up(table: &Table, pool: &str) -> PortResult<String> {
    let patience = &table.patience;
    let found = match describe(table).await? {
        Some(found) => found,
        None => {
            patience.retried(|| create(table, pool)).await?;
            wait(table, pool).await?
        }
    };
    check(table, &found)?;
    let found = if is_ready(&found) { found } else { wait(table, pool).await? };
    let age = |made: &aws_smithy_types::DateTime| {
        let made = SystemTime::try_from(*made).ok()?;
        table.clock.now().duration_since(made).ok()
    };
    match found.creation_date_time().and_then(age) {
        Some(age) if age > YOUNG => {}
        _ => expire_items(table).await.or_else(tolerate)?,
    }
    Ok(found.table_arn.unwrap_or_default())
}

/// The table; `None` if there is none.
pub(super) async fn describe(table: &Table) -> PortResult<Option<TableDescription>> {
    let describe = table.client.describe_table().table_name(&table.name);
    match table.ask(describe.send()).await {
        Ok(answer) => Ok(answer.table),
        Err(error) => match error.as_service_error() {
            Some(DescribeTableError::ResourceNotFoundException(_)) => Ok(None),
            _ => Err(table.port_error("DescribeTable", &error)),
        },
    }
}

async fn create(table: &Table, pool: &str) -> PortResult<()> {
    let names = INDEXES.iter().flat_map(|index| [index.key, index.sort]);
    let attributes = ["PK", "SK"].into_iter().chain(names).map(|name| {
        let attribute = AttributeDefinition::builder().attribute_name(name);
        attribute.attribute_type(ScalarAttributeType::S).build().expect("a name and a type")
    });
    let indexes = INDEXES.iter().map(|index| {
        GlobalSecondaryIndex::builder()
            .index_name(index.name)
            .set_key_schema(Some(keys(index.key, index.sort)))
            .projection(Projection::builder().projection_type(ProjectionType::KeysOnly).build())
            .build()
            .expect("a name and keys")
    });
    let tags = [(POOL_TAG, pool), MANAGED_BY].map(|(key, value)| {
        Tag::builder().key(key).value(value).build().expect("a key and a value")
    });
    let create = table
        .client
        .create_table()
        .table_name(&table.name)
        .set_attribute_definitions(Some(attributes.collect()))
        .set_key_schema(Some(keys("PK", "SK")))
        .set_global_secondary_indexes(Some(indexes.collect()))
        .billing_mode(BillingMode::PayPerRequest)
        .set_tags(Some(tags.to_vec()));
    match table.ask(create.send()).await {
        Ok(_) => Ok(()),
        Err(error) => match error.as_service_error() {
            // Another refresh has created it.
            Some(CreateTableError::ResourceInUseException(_)) => Ok(()),
            _ => Err(table.port_error("CreateTable", &error)),
        },
    }
}

fn keys(hash: &str, range: &str) -> Vec<KeySchemaElement> {
    let key = |name: &str, kind| {
        let key = KeySchemaElement::builder().attribute_name(name).key_type(kind);
        key.build().expect("a name and a type")
    };
    vec![key(hash, KeyType::Hash), key(range, KeyType::Range)]
}

async fn wait(table: &Table, pool: &str) -> PortResult<TableDescription> {
    let ready = || async {
        match table.patience.retried(|| describe(table)).await? {
            Some(found) => Ok(Some(found).filter(is_ready)),
            // An earlier deletion of the table is now complete; or the table is new and not visible
            // yet, and then DynamoDB refuses this without effect.
            None => table.patience.retried(|| create(table, pool)).await.map(|()| None),
        }
    };
    let wait = Wait::begin(&table.clock, CREATED_WITHIN, POLL);
    wait_until(&table.clock, wait, ready).await?.ok_or_else(|| {
        let still = format!("the table is not ready after {} s", CREATED_WITHIN.as_secs());
        unavailable(DYNAMODB, "CreateTable", &still)
    })
}

fn is_ready(found: &TableDescription) -> bool {
    let usable = matches!(found.table_status(), Some(TableStatus::Active | TableStatus::Updating));
    let indexed = found
        .global_secondary_indexes()
        .iter()
        .all(|index| !matches!(index.index_status(), Some(IndexStatus::Creating)));
    usable && indexed
}

/// Fails for a table with other keys or indexes: another program or an earlier version of this one
/// uses it, so it is left alone.
fn check(table: &Table, found: &TableDescription) -> PortResult<()> {
    let indexes = found.global_secondary_indexes();
    let has = |wanted: &Index| {
        let index = indexes.iter().find(|index| index.index_name() == Some(wanted.name));
        index.is_some_and(|index| index.key_schema() == keys(wanted.key, wanted.sort))
    };
    let missing: Vec<&str> =
        INDEXES.iter().filter(|index| !has(index)).map(|index| index.name).collect();
    let unusable = |problem: &str, hint: &str| {
        let reason = format!("{problem}: {}", table.name);
        Err(PortError::Unusable { service: DYNAMODB, reason, hint: hint.to_owned() })
    };
    if found.key_schema() != keys("PK", "SK") {
        return unusable(
            "the table was not made by ondeck",
            "delete or rename it, and run ondeck refresh again",
        );
    }
    if indexes.iter().any(|index| index.index_name() == Some(EARLIER_INDEX)) {
        return unusable(
            "the table has the layout of an earlier version of ondeck",
            "terminate the machines of the pool, delete the table, and run ondeck refresh again",
        );
    }
    if !missing.is_empty() {
        return unusable(
            &format!("the table lacks the index {}", missing.join(" and ")),
            "terminate the machines of the pool, delete the table, and run ondeck refresh again",
        );
    }
    Ok(())
}

/// Has DynamoDB delete items some time after their `ttl`. That may take days, which is early enough.
async fn expire_items(table: &Table) -> PortResult<()> {
    let patience = &table.patience;
    if patience.retried(|| expires_items(table)).await? {
        return Ok(());
    }
    let rule = TimeToLiveSpecification::builder().attribute_name("ttl").enabled(true);
    let update = table
        .client
        .update_time_to_live()
        .table_name(&table.name)
        .time_to_live_specification(rule.build().expect("a name and a switch"));
    let updated = patience.retried(|| table.call("UpdateTimeToLive", update.clone().send())).await;
    let Err(error) = updated else { return Ok(()) };
    // DynamoDB reports an error if another refresh has just enabled it.
    if patience.retried(|| expires_items(table)).await? { Ok(()) } else { Err(error) }
}

/// An operator who created the table may have denied this check. Items that stay cost a little and
/// do no harm.
fn tolerate(error: PortError) -> PortResult<()> {
    match error {
        PortError::Unusable { reason, .. } => {
            tracing::warn!("old events, intents and agent status may stay for ever: {reason}");
            Ok(())
        }
        other => Err(other),
    }
}

async fn expires_items(table: &Table) -> PortResult<bool> {
    let describe = table.client.describe_time_to_live().table_name(&table.name);
    let answer = table.call("DescribeTimeToLive", describe.send()).await?;
    let status = answer.time_to_live_description.and_then(|rule| rule.time_to_live_status);
    Ok(matches!(status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)))
}
