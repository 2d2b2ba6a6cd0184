//! The one way to the table: every call takes its turn at the gate, every query is read to its
//! last page, and every batch to its last item.

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
use crate::fault::{DYNAMODB, fault, unavailable};
use crate::skew::{AwsClock, ObserveSkew};

/// The most keys of one batched read.
const READ_AT_ONCE: usize = 100;
/// The most items of one batched write, and the most statements of one batch.
const WRITE_AT_ONCE: usize = 25;
/// How often in a row nothing may come of a batch, before it is for core to wait.
const IN_VAIN: u32 = 5;

/// The table, and the turn that every call to it takes.
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

    /// Makes a call that is one of several for one answer: it is repeated by itself, so that what
    /// the others have brought is not thrown away with it.
    async fn part<T, E, F>(&self, action: &str, call: impl Fn() -> F) -> PortResult<T>
    where
        F: Future<Output = Result<T, SdkError<E, Response>>>,
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        self.patience.retried(|| self.call(action, call())).await
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

    /// Puts an item that says when it was written, unless one that was written later stands there.
    /// What is no time at all is as good as nothing.
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
                _ => Err(self.fault("PutItem", &error)),
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

    /// The items under these keys, as far as there are any, in no order. Strongly consistent. No
    /// key may occur twice.
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

    /// Carries out statements that each concern one item and carry a condition. Gives, in their
    /// order, whether the condition was met. No item may be concerned twice.
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

/// What DynamoDB has left undone of a batch. It may do half of one when it is busy, and half of the
/// rest when it is asked again at once: for as long as it becomes less, nothing is given up.
struct Rest {
    action: &'static str,
    left: usize,
    in_vain: u32,
    /// Nothing has been brought yet that a failure would throw away.
    whole: bool,
}

impl Rest {
    fn of(action: &'static str, left: usize, whole: bool) -> Rest {
        Rest { action, left, in_vain: 0, whole }
    }

    async fn is_down_to(&mut self, left: usize, patience: &RequestRetry) -> PortResult<()> {
        self.in_vain = if left < self.left { 0 } else { self.in_vain + 1 };
        if self.in_vain >= IN_VAIN {
            let problem = "part of it was left unprocessed time and again";
            return Err(unavailable(DYNAMODB, self.action, &problem));
        }
        (self.left, self.whole) = (left, false);
        patience.pause(self.in_vain).await;
        Ok(())
    }
}

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
