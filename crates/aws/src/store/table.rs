//! Calls to the table: limited in number by the gate, queries read to their last page, batches to
//! their last item.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeValue, BatchStatementErrorCodeEnum, BatchStatementRequest, BatchStatementResponse,
    KeysAndAttributes, PutRequest, WriteRequest,
};
use aws_smithy_runtime_api::http::Response;
use futures_util::future::{join_all, try_join_all};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{PortError, PortResult};
use ondeck_core::runtime::retry::RequestRetry;
use tokio::sync::Semaphore;

use super::keys::{Item, Key, LAST_TIME, List, names_in, number, text};
use super::set_up::{Index, LISTS};
use crate::cloud::Cloud;
use crate::error::{DYNAMODB, port_error, unavailable};
use crate::skew::{AwsClock, ObserveSkew};

/// The most keys of one batched read.
const READ_AT_ONCE: usize = 100;
/// The most items of one batched write, and the most statements of one batch.
const WRITE_AT_ONCE: usize = 25;
/// After this many answers in a row without progress, a batch fails and core retries it.
const WITHOUT_PROGRESS: u32 = 5;

/// A PartiQL statement, and the values of its question marks.
pub(super) type Statement = (String, Vec<AttributeValue>);

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

    /// Sets attributes of one item, which is created if it is missing. Returns whether the condition
    /// was met, if there is one. It may use the values of `attributes` by their names, and must use
    /// `:last` and `:length`: the text and the length of [`LAST_TIME`].
    pub(super) async fn set(
        &self,
        key: &Key,
        attributes: &[(&str, AttributeValue)],
        condition: Option<&str>,
    ) -> PortResult<bool> {
        let assignments: Vec<String> =
            attributes.iter().map(|(name, _)| format!("#{name} = :{name}")).collect();
        let effect = format!("SET {}", assignments.join(", "));
        let mut update = self
            .client
            .update_item()
            .table_name(&self.name)
            .set_key(Some(key.attributes()))
            .set_expression_attribute_names(Some(names_in(&[&effect, condition.unwrap_or("")])))
            .set_condition_expression(condition.map(str::to_owned))
            .update_expression(effect);
        for (name, value) in attributes {
            update = update.expression_attribute_values(format!(":{name}"), value.clone());
        }
        if condition.is_some() {
            update = update
                .expression_attribute_values(":last", text(LAST_TIME))
                .expression_attribute_values(":length", number(LAST_TIME.len()));
        }
        match self.ask(update.send()).await {
            Ok(_) => Ok(true),
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(_)) => Ok(false),
                _ => Err(self.port_error("UpdateItem", &error)),
            },
        }
    }

    /// A strongly consistent query of all items with a partition key, to be narrowed and then read
    /// by [`Table::all_pages`].
    pub(super) fn query(&self, pk: &str) -> QueryFluentBuilder {
        self.client
            .query()
            .table_name(&self.name)
            .consistent_read(true)
            .key_condition_expression("PK = :pk")
            .expression_attribute_values(":pk", text(pk))
    }

    /// The keys of the items that an index has under a key and, if given, before a bound. The index
    /// may lag: it may miss an item, and an item may have changed since.
    pub(super) async fn indexed(
        &self,
        index: &Index,
        key: &str,
        bound: Option<&str>,
    ) -> PortResult<Vec<Key>> {
        let mut query = self
            .client
            .query()
            .table_name(&self.name)
            .index_name(index.name)
            .expression_attribute_names("#key", index.key)
            .expression_attribute_values(":key", text(key));
        let condition = match bound {
            None => "#key = :key",
            Some(bound) => {
                query = query
                    .expression_attribute_names("#sort", index.sort)
                    .expression_attribute_values(":bound", text(bound));
                "#key = :key AND #sort < :bound"
            }
        };
        query = query.key_condition_expression(condition);
        Ok(self.all_pages(query).await?.iter().filter_map(Key::of).collect())
    }

    /// The keys of the items on a list and, if given, before a bound; all shards are asked at the
    /// same time.
    pub(super) async fn listed(
        &self,
        list: List,
        shards: u32,
        bound: Option<&str>,
    ) -> PortResult<Vec<Key>> {
        let ask = |shard| async move {
            let key = list.key(shard);
            let query = || self.indexed(&LISTS, &key, bound);
            // With several shards, the failure of one must not discard the answers of the others.
            if shards > 1 { self.patience.retried(query).await } else { query().await }
        };
        let found = try_join_all((0..shards.max(1)).map(ask)).await?.concat();
        // An item that changes its shard between two of the queries is found twice.
        Ok(found.into_iter().collect::<HashSet<_>>().into_iter().collect())
    }

    /// The last `limit` items of a query, the last first.
    pub(super) async fn latest(
        &self,
        query: QueryFluentBuilder,
        limit: usize,
    ) -> PortResult<Vec<Item>> {
        let at_once = i32::try_from(limit).unwrap_or(i32::MAX).max(1);
        let query = query.scan_index_forward(false).limit(at_once);
        let mut items: Vec<Item> = Vec::new();
        let mut from = None;
        loop {
            let rest = query.clone().set_exclusive_start_key(from.clone());
            let page = self.part("Query", || rest.clone().send()).await?;
            items.extend(page.items.unwrap_or_default());
            let next = page.last_evaluated_key.filter(|key| !key.is_empty());
            if next.is_none() || next == from || items.len() >= limit {
                items.truncate(limit);
                return Ok(items);
            }
            from = next;
        }
    }

    /// The keys of the last `limit` items that an index has under a key, the last first.
    pub(super) async fn latest_indexed(
        &self,
        index: &Index,
        key: &str,
        limit: usize,
    ) -> PortResult<Vec<Key>> {
        let query = self
            .client
            .query()
            .table_name(&self.name)
            .index_name(index.name)
            .key_condition_expression("#key = :key")
            .expression_attribute_names("#key", index.key)
            .expression_attribute_values(":key", text(key));
        Ok(self.latest(query, limit).await?.iter().filter_map(Key::of).collect())
    }

    /// The keys of the latest items on a list, sorted by time, in a span: of each shard, those among the
    /// last `looked_at`. One call for each shard, all at the same time.
    pub(super) async fn latest_listed(
        &self,
        list: List,
        shards: u32,
        (since, until): (Timestamp, Timestamp),
        looked_at: i32,
    ) -> PortResult<Vec<Key>> {
        let ask = |shard| async move {
            let query = self
                .in_span(list, shard, (since, until))
                .scan_index_forward(false)
                .limit(looked_at);
            let page = self.part("Query", || query.clone().send()).await?;
            PortResult::Ok(page.items.unwrap_or_default().iter().filter_map(Key::of).collect())
        };
        let found: Vec<Vec<Key>> = try_join_all((0..shards.max(1)).map(ask)).await?;
        let unique: HashSet<Key> = found.into_iter().flatten().collect();
        Ok(unique.into_iter().collect())
    }

    /// The keys of the items on a list in a span, both ends included, to the last page. They are in no
    /// order.
    pub(super) async fn listed_between(
        &self,
        list: List,
        shards: u32,
        span: (Timestamp, Timestamp),
    ) -> PortResult<Vec<Key>> {
        let ask = |shard| async move {
            let query = self.in_span(list, shard, span);
            self.patience.retried(|| self.all_pages(query.clone())).await
        };
        let found = try_join_all((0..shards.max(1)).map(ask)).await?;
        let unique: HashSet<Key> = found.iter().flatten().filter_map(Key::of).collect();
        Ok(unique.into_iter().collect())
    }

    /// A query of one shard of a list, in a span with both ends included.
    fn in_span(
        &self,
        list: List,
        shard: u32,
        (since, until): (Timestamp, Timestamp),
    ) -> QueryFluentBuilder {
        // What follows the time in a sort key is after it, and before the next millisecond.
        let end = until + Duration::from_millis(1);
        self.client
            .query()
            .table_name(&self.name)
            .index_name(LISTS.name)
            .key_condition_expression("#key = :key AND #sort BETWEEN :since AND :end")
            .expression_attribute_names("#key", LISTS.key)
            .expression_attribute_names("#sort", LISTS.sort)
            .expression_attribute_values(":key", text(list.key(shard)))
            .expression_attribute_values(":since", text(since))
            .expression_attribute_values(":end", text(end))
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

    /// Writes items without a condition. No key may occur twice.
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
        let statements: Vec<Statement> =
            parameters.into_iter().map(|it| (statement.to_owned(), it)).collect();
        let chunks = statements.chunks(WRITE_AT_ONCE);
        let whole = chunks.len() <= 1;
        let chunks = chunks.map(|chunk| async move {
            let execute = || async { self.execute_chunk(chunk).await?.into_iter().collect() };
            if whole { execute().await } else { self.patience.retried(execute).await }
        });
        Ok(try_join_all::<_>(chunks).await?.into_iter().flat_map(|met: Vec<bool>| met).collect())
    }

    /// Executes conditional statements, each on another item and none of them twice. Returns for
    /// each, in their order, whether its condition was met.
    pub(super) async fn execute_once(&self, statements: &[Statement]) -> Vec<PortResult<bool>> {
        let chunks = statements.chunks(WRITE_AT_ONCE).map(|chunk| async move {
            match self.execute_chunk(chunk).await {
                Ok(answers) => answers,
                Err(error) => chunk.iter().map(|_| Err(error.clone())).collect(),
            }
        });
        join_all(chunks).await.into_iter().flatten().collect()
    }

    async fn execute_chunk(&self, chunk: &[Statement]) -> PortResult<Vec<PortResult<bool>>> {
        let mut batch = self.client.batch_execute_statement();
        for (statement, parameters) in chunk {
            let request = BatchStatementRequest::builder()
                .statement(statement)
                .set_parameters(Some(parameters.clone()))
                .build()
                .expect("a statement was given");
            batch = batch.statements(request);
        }
        let answer = self.call(EXECUTE, batch.send()).await?;
        let answers: Vec<_> = answer.responses.unwrap_or_default().iter().map(was_met).collect();
        if answers.len() != chunk.len() {
            return Err(unavailable(DYNAMODB, EXECUTE, &"answered another number of statements"));
        }
        Ok(answers)
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
