//! The pool on SQS: one queue of tickets per resource class.
//!
//! A received ticket stays in its queue, hidden by the visibility timeout. See
//! `docs/adr/0008-tickets-in-sqs.md` for why, and for what each of these calls costs.

mod batch;
mod set_up;
mod urls;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, Message,
    QueueAttributeName, SendMessageBatchRequestEntry,
};
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_runtime_api::http::Response;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use futures_util::future::join_all;
use ondeck_core::model::ids::ResourceClass;
use ondeck_core::model::ticket::Ticket;
use ondeck_core::ports::{Depth, Pool, PortError, PortResult, Receipt, ReceivedMessage};
use ondeck_core::runtime::retry::RequestRetry;
use tokio::sync::Semaphore;

use crate::cloud::{Account, Cloud};
use crate::error::{SQS, port_error, unavailable};
use crate::names::Names;

/// The most messages that one receive gives.
pub(crate) const MOST_MESSAGES: i32 = 10;
/// The longest that SQS hides a message.
const LONGEST_HOLD: u32 = 12 * 60 * 60;
/// The longest that SQS delays a message.
const LONGEST_DELAY: u32 = 15 * 60;
/// The shortest long poll there is. Any makes SQS ask all of its servers.
const CONFIRMING_SECS: i32 = 1;

/// The pool: a standard queue per resource class.
#[derive(Clone)]
pub struct SqsPool {
    client: Client,
    gate: Arc<Semaphore>,
    names: Names,
    urls: Arc<urls::Urls>,
    region: String,
    /// Known once settings have been read.
    account: Arc<OnceLock<Account>>,
    patience: RequestRetry,
}

impl SqsPool {
    /// The queues of the pool that `cloud` leads to.
    pub fn new(cloud: &Cloud) -> SqsPool {
        SqsPool {
            client: cloud.sqs(),
            gate: cloud.gate.clone(),
            names: cloud.names.clone(),
            urls: Arc::default(),
            region: cloud.region().to_owned(),
            account: cloud.account.clone(),
            patience: cloud.patience.clone(),
        }
    }

    /// One call, as soon as there are not too many under way.
    async fn call<T, E>(
        &self,
        call: impl Future<Output = Result<T, SdkError<E, Response>>>,
    ) -> Result<T, SdkError<E, Response>> {
        let _permit = self.gate.acquire().await.expect("the gate is never closed");
        call.await
    }

    /// One call to the queue of a class.
    async fn on_queue<T, E, F>(
        &self,
        class: &ResourceClass,
        action: &str,
        call: impl FnOnce(String) -> F,
    ) -> PortResult<T>
    where
        F: Future<Output = Result<T, SdkError<E, Response>>>,
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        let url = self.url(class).await?;
        self.call(call(url)).await.map_err(|error| {
            if is_missing(&error) {
                self.urls.forget(class);
                return not_set_up(class);
            }
            port_error(SQS, action, &error)
        })
    }

    /// Where the queue of a class is: computed if the account is known, else asked once, and again if it
    /// was not there.
    async fn url(&self, class: &ResourceClass) -> PortResult<String> {
        const ACTION: &str = "GetQueueUrl";
        let resolve = || async {
            if let Some(account) = self.account.get() {
                return Ok(account.queue_url(&self.region, &self.names.queue(class)));
            }
            let request = self.client.get_queue_url().queue_name(self.names.queue(class));
            match self.call(request.send()).await {
                Ok(answer) => answer.queue_url.ok_or_else(|| incomplete(ACTION, "QueueUrl")),
                Err(error) if is_missing(&error) => Err(not_set_up(class)),
                Err(error) => Err(port_error(SQS, ACTION, &error)),
            }
        };
        self.urls.of(class).get_or_try_init(resolve).await.cloned()
    }

    async fn poll(
        &self,
        class: &ResourceClass,
        max: usize,
        hold: Duration,
        wait_secs: i32,
    ) -> PortResult<Vec<ReceivedMessage>> {
        let max = i32::try_from(max).unwrap_or(MOST_MESSAGES).min(MOST_MESSAGES);
        let ask = |url| {
            let request = self.client.receive_message().queue_url(url).max_number_of_messages(max);
            request
                .visibility_timeout(whole_seconds(hold, LONGEST_HOLD))
                .wait_time_seconds(wait_secs)
                .send()
        };
        let answer = self.on_queue(class, "ReceiveMessage", ask).await?;
        // Without its receipt nothing can be done about a message; it comes again by itself.
        let held = |message: Message| {
            let receipt = Receipt(message.receipt_handle?);
            Some(ReceivedMessage { receipt, body: message.body.unwrap_or_default() })
        };
        Ok(answer.messages.into_iter().flatten().filter_map(held).collect())
    }

    async fn show_after(
        &self,
        class: &ResourceClass,
        receipts: &[Receipt],
        span: Duration,
    ) -> PortResult<()> {
        let entry = |(n, Receipt(receipt)): (usize, &Receipt)| {
            ChangeMessageVisibilityBatchRequestEntry::builder()
                .id(n.to_string())
                .receipt_handle(receipt)
                .visibility_timeout(whole_seconds(span, LONGEST_HOLD))
                .build()
                .expect("everything that is required is given")
        };
        let entries: Vec<_> = receipts.iter().enumerate().map(entry).collect();
        let change = |url, batch| {
            let request = self.client.change_message_visibility_batch().queue_url(url);
            request.set_entries(Some(batch)).send()
        };
        self.in_batches(class, "ChangeMessageVisibilityBatch", &entries, change).await
    }

    async fn send_to(
        &self,
        class: &ResourceClass,
        tickets: &[&Ticket],
        delay: Duration,
    ) -> PortResult<()> {
        let entry = |(n, ticket): (usize, &&Ticket)| {
            SendMessageBatchRequestEntry::builder()
                .id(n.to_string())
                .message_body(ticket.to_json())
                .delay_seconds(whole_seconds(delay, LONGEST_DELAY))
                .build()
                .expect("everything that is required is given")
        };
        let entries: Vec<_> = tickets.iter().enumerate().map(entry).collect();
        let send = |url, batch| {
            self.client.send_message_batch().queue_url(url).set_entries(Some(batch)).send()
        };
        self.in_batches(class, "SendMessageBatch", &entries, send).await
    }
}

#[async_trait]
impl Pool for SqsPool {
    async fn set_up(&self, classes: &[ResourceClass]) -> PortResult<()> {
        let queues = classes.iter().map(|class| self.set_up_queue(class));
        batch::gravest(join_all(queues).await)
    }

    async fn locate(&self, class: &ResourceClass) {
        if let Err(error) = self.url(class).await {
            tracing::debug!(%class, "queue not found beforehand: {error}");
        }
    }

    /// A short poll, which answers at once but asks only some of SQS's servers.
    async fn receive(
        &self,
        class: &ResourceClass,
        max: usize,
        hold: Duration,
    ) -> PortResult<Vec<ReceivedMessage>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        self.poll(class, max, hold, 0).await
    }

    /// A long poll, which asks all of SQS's servers and answers as soon as one has a message.
    async fn receive_thoroughly(
        &self,
        class: &ResourceClass,
        max: usize,
        hold: Duration,
    ) -> PortResult<Vec<ReceivedMessage>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        self.poll(class, max, hold, CONFIRMING_SECS).await
    }

    async fn extend(
        &self,
        class: &ResourceClass,
        receipts: &[Receipt],
        hold: Duration,
    ) -> PortResult<()> {
        self.show_after(class, receipts, hold).await
    }

    async fn put_back(&self, class: &ResourceClass, receipts: &[Receipt]) -> PortResult<()> {
        self.show_after(class, receipts, Duration::ZERO).await
    }

    async fn delete(&self, class: &ResourceClass, receipts: &[Receipt]) -> PortResult<()> {
        let entry = |(n, Receipt(receipt)): (usize, &Receipt)| {
            DeleteMessageBatchRequestEntry::builder()
                .id(n.to_string())
                .receipt_handle(receipt)
                .build()
                .expect("everything that is required is given")
        };
        let entries: Vec<_> = receipts.iter().enumerate().map(entry).collect();
        let delete = |url, batch| {
            self.client.delete_message_batch().queue_url(url).set_entries(Some(batch)).send()
        };
        self.in_batches(class, "DeleteMessageBatch", &entries, delete).await
    }

    async fn send(&self, tickets: &[Ticket], delay: Duration) -> PortResult<()> {
        let mut classes: BTreeMap<&ResourceClass, Vec<&Ticket>> = BTreeMap::new();
        for ticket in tickets {
            classes.entry(&ticket.spec.resource_class).or_default().push(ticket);
        }
        let sends = classes.iter().map(|(class, tickets)| self.send_to(class, tickets, delay));
        batch::gravest(join_all(sends).await)
    }

    async fn depth(&self, class: &ResourceClass) -> PortResult<Depth> {
        const ACTION: &str = "GetQueueAttributes";
        use QueueAttributeName::{
            ApproximateNumberOfMessages as Visible, ApproximateNumberOfMessagesDelayed as Delayed,
            ApproximateNumberOfMessagesNotVisible as Held,
        };
        let ask = |url| {
            let request = self.client.get_queue_attributes().queue_url(url);
            request.set_attribute_names(Some(vec![Visible, Held, Delayed])).send()
        };
        let numbers = self.on_queue(class, ACTION, ask).await?.attributes.unwrap_or_default();
        let number = |name| number(&numbers, &name).ok_or_else(|| incomplete(ACTION, &name));
        Ok(Depth { visible: number(Visible)?, held: number(Held)?, delayed: number(Delayed)? })
    }
}

impl fmt::Debug for SqsPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqsPool({})", self.names.pool)
    }
}

/// SQS counts in seconds. Rounded up, so that nothing is shown before its time.
fn whole_seconds(span: Duration, most: u32) -> i32 {
    let seconds = span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0));
    i32::try_from(seconds.min(u64::from(most))).expect("half a day at the most")
}

fn number(
    numbers: &HashMap<QueueAttributeName, String>,
    name: &QueueAttributeName,
) -> Option<usize> {
    numbers.get(name)?.parse().ok()
}

/// By the name of the older protocol, which SQS still gives along, or else by that of today's.
pub(crate) fn is_missing(error: &impl ProvideErrorMetadata) -> bool {
    matches!(error.code(), Some("AWS.SimpleQueueService.NonExistentQueue" | "QueueDoesNotExist"))
}

fn not_set_up(class: &ResourceClass) -> PortError {
    PortError::NotSetUp { what: format!("queue of class {class}") }
}

fn incomplete(action: &str, field: impl fmt::Display) -> PortError {
    unavailable(SQS, action, &format_args!("answered without {field}"))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::future::{Either, select};
    use ondeck_core::testkit::FixedRandom;
    use tokio::net::TcpListener;

    use super::*;
    use crate::cloud::Options;

    #[tokio::test]
    async fn a_call_counts_at_the_gate_while_it_lasts() {
        let nobody_answers = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = Options {
            pool: "acme/site".parse().unwrap(),
            region: Some("us-east-1".to_owned()),
            endpoint_url: Some(format!("http://{}", nobody_answers.local_addr().unwrap())),
        };
        let cloud = Cloud::connect(options, Arc::new(FixedRandom(0))).await.unwrap();
        let pool = SqsPool::new(&cloud);
        let large = ResourceClass::new("large").unwrap();
        let free = || cloud.gate.available_permits();
        let before = free();
        {
            let call = pin!(pool.depth(&large));
            let arrival = pin!(nobody_answers.accept());
            match select(call, arrival).await {
                Either::Left((answer, _)) => panic!("{answer:?}, without a call"),
                Either::Right(_) => assert_eq!(free(), before - 1),
            }
        }
        assert_eq!(free(), before, "a call that was given up counts no longer");
    }

    #[test]
    fn spans_are_rounded_up_and_bounded() {
        for (millis, seconds) in [(0, 0), (1, 1), (1_000, 1), (1_001, 2), (29_999, 30)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis), LONGEST_HOLD), seconds);
        }
        assert_eq!(whole_seconds(Duration::MAX, LONGEST_HOLD), 43_200);
        assert_eq!(whole_seconds(Duration::from_secs(901), LONGEST_DELAY), 900);
    }
}
