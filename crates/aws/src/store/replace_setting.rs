//! A setting that is changed only if it still is what was read.

use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use ondeck_core::ports::PortResult;

use super::keys::{Key, item, names_in, text};
use super::table::Table;

/// Stores `next` if the setting still is `current`. An empty text stands for no setting.
pub(super) async fn replace(
    table: &Table,
    name: &str,
    current: &str,
    next: &str,
) -> PortResult<bool> {
    let condition = match current {
        "" => "attribute_not_exists(#value)",
        _ => "#value = :current",
    };
    let (key, names) = (Key::setting(name).attributes(), Some(names_in(&[condition])));
    let current = Some(text(current)).filter(|_| !current.is_empty());
    let values = current.map(|value| [(":current".to_owned(), value)].into());
    if next.is_empty() {
        let delete = table.client.delete_item().table_name(&table.name).set_key(Some(key));
        let delete = delete
            .condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values);
        return match table.ask(delete.send()).await {
            Ok(_) => Ok(true),
            Err(error) => match error.as_service_error() {
                Some(DeleteItemError::ConditionalCheckFailedException(_)) => Ok(false),
                _ => Err(table.port_error("DeleteItem", &error)),
            },
        };
    }
    let mut setting = key;
    setting.extend(item([("value", text(next))]));
    let put = table.client.put_item().table_name(&table.name).set_item(Some(setting));
    let put = put
        .condition_expression(condition)
        .set_expression_attribute_names(names)
        .set_expression_attribute_values(values);
    match table.ask(put.send()).await {
        Ok(_) => Ok(true),
        Err(error) => match error.as_service_error() {
            Some(PutItemError::ConditionalCheckFailedException(_)) => Ok(false),
            _ => Err(table.port_error("PutItem", &error)),
        },
    }
}
