//! The one way to the table: every call takes its turn at the gate, every query is read to its
//! last page, and every batch to its last item.

use std::collections::HashMap;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeValue, BatchStatementErrorCodeEnum, BatchStatementRequest, BatchStatementResponse,
    DeleteRequest, KeysAndAttributes, PutRequest, WriteRequest,
};
use aws_smithy_runtime_api::http::Response;
use futures_util::future::try_join_all;
use ondeck_core::ports::{PortError, PortResult};
use tokio::sync::Semaphore;

use super::keys::{Item, Key, Kind, names_in, text};
use crate::cloud::Cloud;
use crate::fault::{DYNAMODB, fault, unavailable};
use crate::skew::{ObserveSkew, SigningClock};

/// The most keys of one batched read.
const READ_AT_ONCE: usize = 100;
/// The most items of one batched write, and the most statements of one batch.
const WRITE_AT_ONCE: usize = 25;
/// How often what was left unprocessed is asked for again, before it is for core to wait.
const ROUNDS: usize = 5;

/// The table, and the turn that every call to it takes.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) client: Client,
    pub(super) name: String,
    pub(super) clock: SigningClock,
    gate: Arc<Semaphore>,
}

impl Table {
    pub(super) fn new(cloud: &Cloud) -> Table {
        let config = aws_sdk_dynamodb::config::Builder::from(&cloud.config)
            .interceptor(ObserveSkew(cloud.skew.clone()))
            .http_client(cloud.wire.clone())
            .build();
        Table {
            client: Client::from_conf(config),
            name: cloud.names.table().to_owned(),
            clock: cloud.skew.clock(),
            gate: cloud.gate.clone(),
        }
    }

    /// Makes a call when its turn has come. For those who look into the error themselves.
    pub(super) async fn ask<T>(&self, call: impl Future<Output = T>) -> T {
        let _turn = self.gate.acquire().await.expect("nobody closes the gate");
        call.await
    }

    /// Makes a call when its turn has come.
    pub(super) async fn call<T, E>(
        &self,
        action: &str,
        call: impl Future<Output = Result<T, SdkError<E, Response>>>,
    ) -> PortResult<T>
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        self.ask(call).await.map_err(|error| self.fault(action, &error))
    }

    /// What an error means. A table that is not there is one that refresh has not made yet.
    pub(super) fn fault<E>(&self, action: &str, error: &SdkError<E, Response>) -> PortError
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        match error.as_service_error().and_then(ProvideErrorMetadata::code) {
            Some("ResourceNotFoundException") => self.missing(),
            _ => fault(DYNAMODB, action, error),
        }
    }

    pub(super) fn missing(&self) -> PortError {
        PortError::NotSetUp { what: format!("there is no table {}", self.name) }
    }

    /// One item, as it surely is now or as it may have been a moment ago, which costs half.
    pub(super) async fn get(&self, key: &Key, surely: bool) -> PortResult<Option<Item>> {
        let get = self.client.get_item().table_name(&self.name).set_key(Some(key.attributes()));
        Ok(self.call("GetItem", get.consistent_read(surely).send()).await?.item)
    }

    pub(super) async fn put(&self, item: Item) -> PortResult<()> {
        let put = self.client.put_item().table_name(&self.name).set_item(Some(item));
        self.call("PutItem", put.send()).await.map(drop)
    }

    /// A strongly consistent query of all items of a kind, to be narrowed and then read by
    /// [`Table::all_pages`].
    pub(super) fn query(&self, kind: Kind) -> QueryFluentBuilder {
        self.client
            .query()
            .table_name(&self.name)
            .consistent_read(true)
            .key_condition_expression("PK = :kind")
            .expression_attribute_values(":kind", text(kind.pk()))
    }

    /// The items of a kind that satisfy a filter. The filter saves sending the others, not
    /// reading them.
    pub(super) async fn select(
        &self,
        kind: Kind,
        filter: &str,
        values: &[(&str, &str)],
    ) -> PortResult<Vec<Item>> {
        let mut query = self
            .query(kind)
            .filter_expression(filter)
            .set_expression_attribute_names(Some(names_in(&[filter])));
        for (name, value) in values {
            query = query.expression_attribute_values(*name, text(value));
        }
        self.all_pages(query).await
    }

    /// Everything that a query finds, to the last page.
    pub(super) async fn all_pages(&self, query: QueryFluentBuilder) -> PortResult<Vec<Item>> {
        let mut items = Vec::new();
        let mut from = None;
        loop {
            let page = query.clone().set_exclusive_start_key(from.clone());
            let page = self.call("Query", page.send()).await?;
            items.extend(page.items.unwrap_or_default());
            let next = page.last_evaluated_key.filter(|key| !key.is_empty());
            if next.is_none() {
                return Ok(items);
            }
            if next == from {
                return Err(unavailable(DYNAMODB, "Query", &"answered with the same page again"));
            }
            from = next;
        }
    }

    /// The items under these keys, as far as there are any, in no order. Strongly consistent. No
    /// key may occur twice.
    pub(super) async fn get_all(&self, keys: &[Key]) -> PortResult<Vec<Item>> {
        let chunks = keys.chunks(READ_AT_ONCE).map(|chunk| self.get_chunk(chunk));
        Ok(try_join_all(chunks).await?.concat())
    }

    async fn get_chunk(&self, keys: &[Key]) -> PortResult<Vec<Item>> {
        let keys = keys.iter().map(Key::attributes).collect();
        let wanted = KeysAndAttributes::builder().consistent_read(true).set_keys(Some(keys));
        let wanted = wanted.build().expect("keys were given");
        let mut found = Vec::new();
        let mut left = HashMap::from([(self.name.clone(), wanted)]);
        for _ in 0..ROUNDS {
            let get = self.client.batch_get_item().set_request_items(Some(left));
            let answer = self.call(GET, get.send()).await?;
            found.extend(answer.responses.unwrap_or_default().into_values().flatten());
            left = answer.unprocessed_keys.unwrap_or_default();
            if left.is_empty() {
                return Ok(found);
            }
        }
        Err(unprocessed(GET))
    }

    /// Writes or deletes items without a condition. No key may occur twice.
    pub(super) async fn write_all(&self, writes: &[WriteRequest]) -> PortResult<()> {
        let chunks = writes.chunks(WRITE_AT_ONCE).map(|chunk| self.write_chunk(chunk));
        try_join_all(chunks).await.map(drop)
    }

    async fn write_chunk(&self, writes: &[WriteRequest]) -> PortResult<()> {
        let mut left = HashMap::from([(self.name.clone(), writes.to_vec())]);
        for _ in 0..ROUNDS {
            let write = self.client.batch_write_item().set_request_items(Some(left));
            let answer = self.call(WRITE, write.send()).await?;
            left = answer.unprocessed_items.unwrap_or_default();
            if left.is_empty() {
                return Ok(());
            }
        }
        Err(unprocessed(WRITE))
    }

    /// Carries out statements that each concern one item and carry a condition. Gives, in their
    /// order, whether the condition was met. No item may be concerned twice.
    pub(super) async fn execute_all(
        &self,
        statement: &str,
        parameters: Vec<Vec<AttributeValue>>,
    ) -> PortResult<Vec<bool>> {
        let chunks = parameters.chunks(WRITE_AT_ONCE).map(|chunk| async move {
            let mut batch = self.client.batch_execute_statement();
            for parameters in chunk {
                let request = BatchStatementRequest::builder()
                    .statement(statement)
                    .set_parameters(Some(parameters.clone()))
                    .build()
                    .expect("a statement was given");
                batch = batch.statements(request);
            }
            let answer = self.call(EXECUTE, batch.send()).await?;
            answer.responses.unwrap_or_default().iter().map(was_met).collect()
        });
        let answers: Vec<Vec<bool>> = try_join_all(chunks).await?;
        Ok(answers.concat())
    }
}

const GET: &str = "BatchGetItem";
const WRITE: &str = "BatchWriteItem";
const EXECUTE: &str = "BatchExecuteStatement";

/// The order to delete an item.
pub(super) fn delete(key: &Key) -> WriteRequest {
    let delete = DeleteRequest::builder().set_key(Some(key.attributes()));
    let delete = delete.build().expect("a key was given");
    WriteRequest::builder().delete_request(delete).build()
}

/// The order to write an item.
pub(super) fn put(item: Item) -> WriteRequest {
    let put = PutRequest::builder().set_item(Some(item)).build().expect("an item was given");
    WriteRequest::builder().put_request(put).build()
}

fn unprocessed(action: &str) -> PortError {
    unavailable(DYNAMODB, action, &"part of it was left unprocessed time and again")
}

/// Each statement of a batch has an answer of its own.
fn was_met(answer: &BatchStatementResponse) -> PortResult<bool> {
    use BatchStatementErrorCodeEnum as Code;
    let Some(error) = answer.error() else { return Ok(true) };
    let message = error.message().unwrap_or_default();
    match error.code() {
        Some(Code::ConditionalCheckFailed) => Ok(false),
        Some(
            code @ (Code::InternalServerError
            | Code::ProvisionedThroughputExceeded
            | Code::RequestLimitExceeded
            | Code::ThrottlingError
            | Code::TransactionConflict),
        ) => Err(unavailable(DYNAMODB, EXECUTE, &format!("{code}: {message}"))),
        code => Err(PortError::Unusable {
            service: DYNAMODB,
            reason: format!("{EXECUTE}: {}: {message}", code.map_or("?", |code| code.as_str())),
            hint: "check that the AWS credentials allow dynamodb:PartiQLUpdate and \
                   dynamodb:PartiQLDelete"
                .to_owned(),
        }),
    }
}
