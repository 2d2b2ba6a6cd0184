//! Making the table.

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

use super::table::Table;
use crate::fault::{DYNAMODB, unavailable};
use crate::names::{MANAGED_BY, POOL_TAG};

/// The index of live records by the end of their time.
pub(super) const LIVE: &str = "live-by-threshold";

/// How long a new table may take, and how often to ask for it.
const MADE_WITHIN: Duration = Duration::from_secs(120);
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How long after the table was made its expiry of events is looked at again: whoever made it
/// may have been killed before switching that on.
const YOUNG: Duration = Duration::from_secs(24 * 3_600);

/// Makes the table if it is not there, and waits until it can be used. Costs one call where it
/// is.
pub(super) async fn set_up(table: &Table, pool: &str) -> PortResult<()> {
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
        Some(age) if age > YOUNG => Ok(()),
        _ => expire_events(table).await.or_else(tolerate),
    }
}

async fn describe(table: &Table) -> PortResult<Option<TableDescription>> {
    let describe = table.client.describe_table().table_name(&table.name);
    match table.ask(describe.send()).await {
        Ok(answer) => Ok(answer.table),
        Err(error) => match error.as_service_error() {
            Some(DescribeTableError::ResourceNotFoundException(_)) => Ok(None),
            _ => Err(table.fault("DescribeTable", &error)),
        },
    }
}

async fn create(table: &Table, pool: &str) -> PortResult<()> {
    let attributes = ["PK", "SK", "expiresAt"].map(|name| {
        let attribute = AttributeDefinition::builder().attribute_name(name);
        attribute.attribute_type(ScalarAttributeType::S).build().expect("a name and a type")
    });
    let index = GlobalSecondaryIndex::builder()
        .index_name(LIVE)
        .set_key_schema(Some(keys("PK", "expiresAt")))
        .projection(Projection::builder().projection_type(ProjectionType::All).build())
        .build()
        .expect("a name and keys");
    let tags = [(POOL_TAG, pool), MANAGED_BY].map(|(key, value)| {
        Tag::builder().key(key).value(value).build().expect("a key and a value")
    });
    let create = table
        .client
        .create_table()
        .table_name(&table.name)
        .set_attribute_definitions(Some(attributes.to_vec()))
        .set_key_schema(Some(keys("PK", "SK")))
        .global_secondary_indexes(index)
        .billing_mode(BillingMode::PayPerRequest)
        .set_tags(Some(tags.to_vec()));
    match table.ask(create.send()).await {
        Ok(_) => Ok(()),
        Err(error) => match error.as_service_error() {
            // Another refresh was faster.
            Some(CreateTableError::ResourceInUseException(_)) => Ok(()),
            _ => Err(table.fault("CreateTable", &error)),
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
    let made = async {
        loop {
            match table.patience.retried(|| describe(table)).await? {
                Some(found) if is_ready(&found) => return Ok(found),
                Some(_) => {}
                // Somebody's deletion of it has come to its end. Or it was made a moment ago and
                // still seems to be missing, and then this is refused and does nothing.
                None => table.patience.retried(|| create(table, pool)).await?,
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    };
    tokio::time::timeout(MADE_WITHIN, made).await.unwrap_or_else(|_| {
        let still = format!("the table is not ready after {} s", MADE_WITHIN.as_secs());
        Err(unavailable(DYNAMODB, "CreateTable", &still))
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

/// A table of this name whose keys are others is somebody else's, and is left alone.
fn check(table: &Table, found: &TableDescription) -> PortResult<()> {
    let ours = found.key_schema() == keys("PK", "SK");
    let index = found.global_secondary_indexes().iter().find(|i| i.index_name() == Some(LIVE));
    let indexed = index.is_some_and(|index| index.key_schema() == keys("PK", "expiresAt"));
    let unusable = |problem: &str, hint: String| {
        let reason = format!("{problem}: {}", table.name);
        Err(PortError::Unusable { service: DYNAMODB, reason, hint })
    };
    match (ours, indexed) {
        (true, true) => Ok(()),
        (false, _) => unusable(
            "the table was not made by ondeck",
            "delete or rename it, and run ondeck refresh again".to_owned(),
        ),
        (true, false) => unusable(
            "the table lacks its index",
            format!(
                "add a global secondary index {LIVE} on PK and expiresAt with all attributes, or \
                 delete the table while no machine is running, and run ondeck refresh again"
            ),
        ),
    }
}

/// Lets DynamoDB remove events by itself. That it may take days does not matter to people.
async fn expire_events(table: &Table) -> PortResult<()> {
    let patience = &table.patience;
    if patience.retried(|| expires_events(table)).await? {
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
    // Another refresh may have been faster, which is reported as an error.
    if patience.retried(|| expires_events(table)).await? { Ok(()) } else { Err(error) }
}

/// Whoever has made the table for us need not have left us the right to look. Events that stay
/// cost a little, and keep nothing from working.
fn tolerate(error: PortError) -> PortResult<()> {
    match error {
        PortError::Unusable { reason, .. } => {
            tracing::warn!("old events may stay for ever: {reason}");
            Ok(())
        }
        other => Err(other),
    }
}

async fn expires_events(table: &Table) -> PortResult<bool> {
    let describe = table.client.describe_time_to_live().table_name(&table.name);
    let answer = table.call("DescribeTimeToLive", describe.send()).await?;
    let status = answer.time_to_live_description.and_then(|rule| rule.time_to_live_status);
    Ok(matches!(status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)))
}
