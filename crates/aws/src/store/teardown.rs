use std::time::Duration;

use aws_sdk_dynamodb::operation::delete_table::DeleteTableError;
use aws_sdk_dynamodb::types::TableStatus;
use ondeck_core::ports::{PortError, PortResult};
use ondeck_core::runtime::poll::{PollInterval, Wait, wait_until};

use super::set_up::describe;
use super::table::Table;
use crate::cloud::Cloud;
use crate::error::{DYNAMODB, unavailable};

const DELETED_WITHIN: Duration = Duration::from_secs(180);
const POLL: PollInterval = PollInterval::fixed(Duration::from_millis(500));

/// Whether the pool has a table. One that is being deleted does not count.
pub(crate) async fn has_table(cloud: &Cloud) -> PortResult<bool> {
    let found = describe(&Table::new(cloud)).await?;
    Ok(found.is_some_and(|found| found.table_status() != Some(&TableStatus::Deleting)))
}

/// Deletes the table, and waits until it is gone: until then, a refresh could not create it again.
pub(crate) async fn delete_table(cloud: &Cloud) -> PortResult<()> {
    let table = Table::new(cloud);
    let delete = table.client.delete_table().table_name(&table.name);
    if let Err(error) = table.ask(delete.send()).await {
        match error.as_service_error() {
            Some(DeleteTableError::ResourceNotFoundException(_)) => return Ok(()),
            _ => return Err(table.port_error("DeleteTable", &error)),
        }
    }
    let gone = || async {
        let found = table.patience.retried(|| describe(&table)).await?;
        Ok::<_, PortError>(found.is_none().then_some(()))
    };
    let wait = Wait::begin(&table.clock, DELETED_WITHIN, POLL);
    wait_until(&table.clock, wait, gone).await?.ok_or_else(|| {
        let still = format!("the table is not gone after {} s", DELETED_WITHIN.as_secs());
        unavailable(DYNAMODB, "DeleteTable", &still)
    })
}
