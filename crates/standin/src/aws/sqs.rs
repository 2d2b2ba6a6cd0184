//! SQS in memory, in this process, for the calls that ondeck makes: standard queues in the JSON protocol.
//!
//! Operations, members, errors and their names are those of botocore's service model of SQS (2012-11-05).
//! Limits, defaults and what a call does are those of the Amazon SQS API Reference. What AWS does with a
//! receipt that was valid once is not in it, and is as LocalStack has seen it (localstack/localstack#6103).
//! The names of errors in the header `x-amzn-query-error` are those of the trait `awsQueryError` in
//! Smithy's model of SQS.
//!
//! Other than SQS, this one
//! - is consistent: a change is seen by the next call, and a short poll asks for all messages, in the order in
//!   which they were sent. Faults of the gateway give falsely empty receives and duplicate deliveries.
//! - lets a queue be created again as soon as it is deleted (no `QueueDeletedRecently`).
//! - has no limit of messages in flight, and encrypts nothing.
//! - refuses what it does not know: FIFO queues, dead-letter queues, policies, attributes of messages, and
//!   parameters of requests that it does not read.

mod attributes;
mod batch;
mod queue;
mod refusal;
mod requests;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Mutex;
use std::time::{Instant, SystemTime};

use hyper::header::HOST;
use serde_json::{Value, json};
use tokio::time::timeout_at;

use crate::aws::call::Call;
use crate::aws::faults::answers;
use crate::aws::iam::{ACCOUNT, Arns};
use crate::http::Answer;
use crate::sync::locked;
use batch::Batch;
use queue::{Queue, Received};
use refusal::Refusal;
pub(crate) use refusal::legacy_code;
use requests::{
    CreateQueue, Entry, GetQueueAttributes, GetQueueUrl, ListQueues, OfQueue, ReceiveMessage,
    SetQueueAttributes, TagQueue, read,
};

/// The most characters of a queue's name.
const LONGEST_NAME: usize = 80;

/// The queues of the account.
#[derive(Debug)]
pub(crate) struct Sqs {
    arns: Arns,
    /// The most queues on a page of a list.
    page: usize,
    queues: Mutex<BTreeMap<String, Queue>>,
}

impl Sqs {
    pub(crate) fn new(region: &str, page: usize) -> Sqs {
        Sqs { arns: Arns::new(region), page, queues: Mutex::default() }
    }

    /// Performs a call. A receive that waits is answered when there is a message, and when its time is over.
    pub(crate) async fn answer(&self, call: &Call) -> Answer {
        let performed = match &*call.operation {
            "ReceiveMessage" => match read(call) {
                Ok(request) => self.receive(&request).await,
                Err(refusal) => Err(refusal),
            },
            operation => self.perform(operation, call),
        };
        performed.map_or_else(Refusal::into_answer, |body| answers::done(body.to_string()))
    }

    fn perform(&self, operation: &str, call: &Call) -> Result<Value, Refusal> {
        match operation {
            "CreateQueue" => self.create(read(call)?, call),
            "GetQueueUrl" => self.url(&read(call)?, call),
            "ListQueues" => self.list(&read(call)?, call),
            "DeleteQueue" => self.delete(&read(call)?),
            "GetQueueAttributes" => self.attributes(&read(call)?),
            "SetQueueAttributes" => self.set_attributes(read(call)?),
            "ListQueueTags" => {
                let OfQueue { queue_url } = read(call)?;
                self.at(queue_url.as_deref(), |queue, _| Ok(json!({ "Tags": queue.tags })))
            }
            "TagQueue" => {
                let TagQueue { queue_url, tags } = read(call)?;
                self.at(queue_url.as_deref(), |queue, _| {
                    queue.tags.extend(tags);
                    Ok(json!({}))
                })
            }
            "SendMessage" => self.single(call, Queue::send),
            "SendMessageBatch" => self.batch(call, Queue::send),
            "DeleteMessage" => self.single(call, Queue::delete),
            "DeleteMessageBatch" => self.batch(call, Queue::delete),
            "ChangeMessageVisibility" => self.single(call, Queue::change_visibility),
            "ChangeMessageVisibilityBatch" => self.batch(call, Queue::change_visibility),
            other => {
                let message = format!("The stand-in does not know the operation {other}.");
                Err(Refusal::new("UnsupportedOperation", message))
            }
        }
    }

    fn create(&self, request: CreateQueue, call: &Call) -> Result<Value, Refusal> {
        let CreateQueue { queue_name, attributes, tags } = request;
        let name = queue_name.ok_or_else(|| Refusal::missing("QueueName"))?;
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(is_allowed) {
            let message = "Can only include alphanumeric characters, hyphens, or underscores. \
                           1 to 80 in length";
            return Err(Refusal::new("InvalidParameterValue", message));
        }
        attributes::check(&attributes)?;
        let url = url_of(&name, call);
        let mut queues = locked(&self.queues);
        match queues.get(&name) {
            Some(queue) => queue.check_same(&attributes)?,
            None => {
                let arn = self.arns.queue(&name);
                queues.insert(name, Queue::new(arn, attributes, tags, SystemTime::now()));
            }
        }
        Ok(json!({ "QueueUrl": url }))
    }

    fn url(&self, request: &GetQueueUrl, call: &Call) -> Result<Value, Refusal> {
        let name = request.queue_name.as_deref().ok_or_else(|| Refusal::missing("QueueName"))?;
        match locked(&self.queues).contains_key(name) {
            true => Ok(json!({ "QueueUrl": url_of(name, call) })),
            false => Err(Refusal::no_queue()),
        }
    }

    /// Queues in the order of their names. The token of a page is the last name of the page before it.
    fn list(&self, request: &ListQueues, call: &Call) -> Result<Value, Refusal> {
        let ListQueues { queue_name_prefix, next_token, max_results } = request;
        let most = match max_results {
            None => self.page,
            Some(most @ 1..=1_000) => self.page.min(usize::from(*most)),
            Some(most) => {
                return Err(Refusal::out_of_range("MaxResults", (*most).into(), 1, 1_000));
            }
        };
        let (prefix, after) = (&**queue_name_prefix, &**next_token);
        let queues = locked(&self.queues);
        let names = queues.keys().filter(|name| name.starts_with(prefix) && ***name > *after);
        let names: Vec<&String> = names.take(most + 1).collect();
        let page = &names[..most.min(names.len())];
        let urls: Vec<String> = page.iter().map(|name| url_of(name, call)).collect();
        let mut answer = json!({ "QueueUrls": urls });
        // Without the parameter there is one page.
        if names.len() > most && max_results.is_some() {
            answer["NextToken"] = json!(page.last());
        }
        Ok(answer)
    }

    fn delete(&self, request: &OfQueue) -> Result<Value, Refusal> {
        let url = request.queue_url.as_deref().ok_or_else(|| Refusal::missing("QueueUrl"))?;
        let removed = locked(&self.queues).remove(name_in(url));
        // Those who wait for its messages must learn that there will be none.
        removed.ok_or_else(Refusal::no_queue)?.announce();
        Ok(json!({}))
    }

    fn attributes(&self, request: &GetQueueAttributes) -> Result<Value, Refusal> {
        let GetQueueAttributes { queue_url, attribute_names } = request;
        self.at(queue_url.as_deref(), |queue, now| {
            // Documented: without names, the answer is empty.
            let mut found = json!({});
            let values = queue.attributes(now);
            for name in attribute_names {
                match (&**name, values.get(&**name)) {
                    ("All", _) => found = json!(values),
                    (name, Some(value)) => found[name] = json!(value),
                    // One that the queue has no value for, such as a key of KMS.
                    (name, None) if attributes::is_settable(name) => {}
                    (name, None) => return Err(Refusal::unknown_attribute(name)),
                }
            }
            Ok(json!({ "Attributes": found }))
        })
    }

    fn set_attributes(&self, request: SetQueueAttributes) -> Result<Value, Refusal> {
        let SetQueueAttributes { queue_url, attributes } = request;
        attributes::check(&attributes)?;
        self.at(queue_url.as_deref(), |queue, _| {
            queue.set(attributes, SystemTime::now());
            Ok(json!({}))
        })
    }

    async fn receive(&self, request: &ReceiveMessage) -> Result<Value, Refusal> {
        let url = request.queue_url.as_deref();
        let asked = self.at(url, |queue, _| queue.understand(request))?;
        let until = Instant::now() + asked.wait;
        loop {
            let changes = self.at(url, |queue, _| Ok(queue.changes()))?;
            // Before the look, so that a change during it is not missed.
            let mut change = pin!(changes.notified());
            change.as_mut().enable();
            let look = self.at(url, |queue, now| Ok(queue.receive(&asked, now)))?;
            let next = match look {
                Received::Messages(messages) => return Ok(json!({ "Messages": messages })),
                Received::Nothing { next } => next.map_or(until, |next| next.min(until)),
            };
            if asked.wait.is_zero() || Instant::now() >= until {
                return Ok(json!({}));
            }
            // Whichever comes first, the queue is looked at.
            drop(timeout_at(next.into(), change).await);
        }
    }

    /// Performs a call that is about one message.
    fn single<E: Entry>(&self, call: &Call, perform: Perform<E>) -> Result<Value, Refusal> {
        let entry: E = read(call)?;
        let url = entry.queue_url().map(str::to_owned);
        self.at(url.as_deref(), |queue, now| perform(queue, entry, now))
    }

    /// Performs a call that is about several messages, each by itself.
    fn batch<E: Entry>(&self, call: &Call, perform: Perform<E>) -> Result<Value, Refusal> {
        let Batch { queue_url, entries } = read(call)?;
        self.at(queue_url.as_deref(), |queue, now| {
            batch::perform(entries, |entry| perform(queue, entry, now))
        })
    }

    /// Performs something at the queue of a URL, without the messages that are too old. Refuses if there is
    /// no such queue.
    fn at<T>(
        &self,
        url: Option<&str>,
        perform: impl FnOnce(&mut Queue, Instant) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let url = url.ok_or_else(|| Refusal::missing("QueueUrl"))?;
        let mut queues = locked(&self.queues);
        let queue = queues.get_mut(name_in(url)).ok_or_else(Refusal::no_queue)?;
        let now = Instant::now();
        queue.expire(now);
        perform(queue, now)
    }
}

/// What a call does with one message.
type Perform<E> = fn(&mut Queue, E, Instant) -> Result<Value, Refusal>;

/// The name of the queue in its URL, which ends with the account and the name.
fn name_in(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or_default()
}

/// The address of a queue at the endpoint that was asked, so that clients that use it as an endpoint find it.
fn url_of(name: &str, call: &Call) -> String {
    let host = call.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("sqs");
    format!("http://{host}/{ACCOUNT}/{name}")
}
