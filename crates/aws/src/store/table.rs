//! Calls to the table: limited in number by the gate, queries read to their last page, batches to
//! their last item.

use std::collections::HashMap;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeValue, BatchStatementErrorCodeEnum, BatchStatementRequest, BatchStatementResponse,
    DeleteRequest, KeysAndAttributes, PutRequest, WriteRequest,
};
use aws_smithy_runtime_api::http::Response;
use futures_util::future::try_join_all;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{PortError, PortResult};
use ondeck_core::runtime::retry::RequestRetry;
use tokio::sync::Semaphore;

use super::keys::{Item, Key, Kind, LAST_TIME, names_in, number, text};
use crate::cloud::Cloud;
use crate::error::{DYNAMODB, port_error, unavailable};
use crate::skew::{AwsClock, ObserveSkew};

/// The most keys of one batched read.
const READ_AT_ONCE: usize = 100;
/// The most items of one batched write, and the most statements of one batch.
const WRITE_AT_ONCE: usize = 25;
/// After this many answers in a row without progress, a batch fails and core retries it.
const WITHOUT_PROGRESS: u32 = 5;

/// The table of one pool, and the gate that limits concurrent calls.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) client: Client,
    pub(super) name: String,
    pub(super) clock: AwsClock,
    pub(super) patience: RequestRetry,
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
            clock: cloud.clock(),
            patience: cloud.patience.clone(),
            gate: cloud.gate.clone(),
        }
    }

    /// Makes a call once the gate admits it, and returns the answer of the SDK.
    pub(super) async fn ask<T>(&self, call: impl Future<Output = T>) -> T {
        let _turn = self.gate.acquire().await.expect("the gate is never closed");
        call.await
    }

    /// Makes a call once the gate admits it, and translates its error.
    pub(super) async fn call<T, E>(
        &self,
        action: &str,
        call: impl Future<Output = Result<T, SdkError<E, Response>>>,
    ) -> PortResult<T>
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        self.ask(call).await.map_err(|error| self.port_error(action, &error))
    }

    /// Makes one of several calls for one answer. It is retried on its own, so that its failure does
    /// not discard the answers of the others.
    async fn part<T, E, F>(&self, action: &str, call: impl Fn() -> F) -> PortResult<T>
    where
        F: Future<Output = Result<T, SdkError<E, Response>>>,
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        self.patience.retried(|| self.call(action, call())).await
    }

    /// Translates an error. A missing table means that refresh has not created it yet.
    pub(super) fn port_error<E>(&self, action: &str, error: &SdkError<E, Response>) -> PortError
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        match error.as_service_error().and_then(ProvideErrorMetadata::code) {
            Some("ResourceNotFoundException") => self.missing(),
            _ => port_error(DYNAMODB, action, error),
        }
    }

    pub(super) fn missing(&self) -> PortError {
        PortError::NotSetUp { what: format!("there is no table {}", self.name) }
    }

    /// Reads one item, consistently or eventually consistently, which costs half.
    pub(super) async fn get(&self, key: &Key, consistent: bool) -> PortResult<Option<Item>> {
        let get = self.client.get_item().table_name(&self.name).set_key(Some(key.attributes()));
        Ok(self.call("GetItem", get.consistent_read(consistent).send()).await?.item)
    }

    pub(super) async fn put(&self, item: Item) -> PortResult<()> {
        let put = self.client.put_item().table_name(&self.name).set_item(Some(item));
        self.call("PutItem", put.send()).await.map(drop)
    }

    /// Puts an item with its time of writing, unless a later one is stored. A stored item without
    /// a valid time is replaced.
    pub(super) async fn put_unless_later(&self, item: Item, at: Timestamp) -> PortResult<()> {
        let put = self
            .client
            .put_item()
            .table_name(&self.name)
            .set_item(Some(item))
            .condition_expression(
                "NOT (updatedAt > :at AND updatedAt <= :last AND size(updatedAt) = :length)",
            )
            .expression_attribute_values(":at", text(at))
            .expression_attribute_values(":last", text(LAST_TIME))
            .expression_attribute_values(":length", number(LAST_TIME.len()));
        match self.ask(put.send()).await {
            Ok(_) => Ok(()),
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(_)) => Ok(()),
                _ => Err(self.port_error("PutItem", &error)),
            },
        }
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

    /// The items of a kind that satisfy a filter. DynamoDB charges for the filtered ones as well.
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

    /// Reads a query to its last page. A page that repeats itself is an error.
    pub(super) async fn all_pages(&self, query: QueryFluentBuilder) -> PortResult<Vec<Item>> {
        let mut page = self.call("Query", query.clone().send()).await?;
        let mut items = Vec::new();
        let mut from = None;
        loop {
            items.extend(page.items.unwrap_or_default());
            let next = page.last_evaluated_key.filter(|key| !key.is_empty());
            if next.is_none() {
                return Ok(items);
            }
            if next == from {
                return Err(unavailable(DYNAMODB, "Query", &"answered with the same page again"));
            }
            let rest = query.clone().set_exclusive_start_key(next.clone());
            page = self.part("Query", || rest.clone().send()).await?;
            from = next;
        }
    }

    /// Reads the existing items under these keys, strongly consistent and in no order. No key may
    /// occur twice.
    pub(super) async fn get_all(&self, keys: &[Key]) -> PortResult<Vec<Item>> {
        let whole = keys.len() <= READ_AT_ONCE;
        let chunks = keys.chunks(READ_AT_ONCE).map(|chunk| self.get_chunk(chunk, whole));
        Ok(try_join_all(chunks).await?.concat())
    }

    async fn get_chunk(&self, keys: &[Key], whole: bool) -> PortResult<Vec<Item>> {
        let mut rest = Rest::of(GET, keys.len(), whole);
        let keys = keys.iter().map(Key::attributes).collect();
        let wanted = KeysAndAttributes::builder().consistent_read(true).set_keys(Some(keys));
        let wanted = wanted.build().expect("keys were given");
        let mut found = Vec::new();
        let mut left = HashMap::from([(self.name.clone(), wanted)]);
        loop {
            let get = self.client.batch_get_item().set_request_items(Some(left));
            let answer = self.batch(&rest, || get.clone().send()).await?;
            found.extend(answer.responses.unwrap_or_default().into_values().flatten());
            left = answer.unprocessed_keys.unwrap_or_default();
            let count = left.values().map(|left| left.keys().len()).sum();
            if count == 0 {
                return Ok(found);
            }
            rest.is_down_to(count, &self.patience).await?;
        }
    }

    /// Writes or deletes items without a condition. No key may occur twice.
    pub(super) async fn write_all(&self, writes: &[WriteRequest]) -> PortResult<()> {
        let whole = writes.len() <= WRITE_AT_ONCE;
        let chunks = writes.chunks(WRITE_AT_ONCE).map(|chunk| self.write_chunk(chunk, whole));
        try_join_all(chunks).await.map(drop)
    }

    async fn write_chunk(&self, writes: &[WriteRequest], whole: bool) -> PortResult<()> {
        let mut rest = Rest::of(WRITE, writes.len(), whole);
        let mut left = HashMap::from([(self.name.clone(), writes.to_vec())]);
        loop {
            let write = self.client.batch_write_item().set_request_items(Some(left));
            let answer = self.batch(&rest, || write.clone().send()).await?;
            left = answer.unprocessed_items.unwrap_or_default();
            let count = left.values().map(Vec::len).sum();
            if count == 0 {
                return Ok(());
            }
            rest.is_down_to(count, &self.patience).await?;
        }
    }

    async fn batch<T, E, F>(&self, rest: &Rest, call: impl Fn() -> F) -> PortResult<T>
    where
        F: Future<Output = Result<T, SdkError<E, Response>>>,
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        match rest.whole {
            true => self.call(rest.action, call()).await,
            false => self.part(rest.action, call).await,
        }
    }

    /// Executes one conditional statement per set of parameters, each on another item. Returns, in
    /// their order, whether the condition was met.
    pub(super) async fn execute_all(
        &self,
        statement: &str,
        parameters: Vec<Vec<AttributeValue>>,
    ) -> PortResult<Vec<bool>> {
        let chunks = parameters.chunks(WRITE_AT_ONCE);
        let whole = chunks.len() <= 1;
        let chunks = chunks.map(|chunk| async move {
            let execute = || self.execute_chunk(statement, chunk);
            if whole { execute().await } else { self.patience.retried(execute).await }
        });
        Ok(try_join_all(chunks).await?.concat())
    }

    async fn execute_chunk(
        &self,
        statement: &str,
        chunk: &[Vec<AttributeValue>],
    ) -> PortResult<Vec<bool>> {
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
    }
}

const GET: &str = "BatchGetItem";
const WRITE: &str = "BatchWriteItem";
const EXECUTE: &str = "BatchExecuteStatement";

/// The unprocessed part of a batch. A busy DynamoDB may process only part of each attempt; the batch
/// goes on while every few attempts make progress.
struct Rest {
    action: &'static str,
    left: usize,
    without_progress: u32,
    /// Whether the batch has no earlier answers that a failure would discard.
    whole: bool,
}

impl Rest {
    fn of(action: &'static str, left: usize, whole: bool) -> Rest {
        Rest { action, left, without_progress: 0, whole }
    }

    async fn is_down_to(&mut self, left: usize, patience: &RequestRetry) -> PortResult<()> {
        self.without_progress = if left < self.left { 0 } else { self.without_progress + 1 };
        if self.without_progress >= WITHOUT_PROGRESS {
            let problem = "part of it was left unprocessed time and again";
            return Err(unavailable(DYNAMODB, self.action, &problem));
        }
        (self.left, self.whole) = (left, false);
        patience.pause(self.without_progress).await;
        Ok(())
    }
}

pub(super) fn delete(key: &Key) -> WriteRequest {
    let delete = DeleteRequest::builder().set_key(Some(key.attributes()));
    let delete = delete.build().expect("a key was given");
    WriteRequest::builder().delete_request(delete).build()
}

pub(super) fn put(item: Item) -> WriteRequest {
    let put = PutRequest::builder().set_item(Some(item)).build().expect("an item was given");
    WriteRequest::builder().put_request(put).build()
}

/// Whether the condition of one statement was met.
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
