//! The agent's side: creates the machine's queue and listens at it.

use std::collections::HashMap;
use std::pin::pin;
use std::time::{Duration, Instant};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use futures_util::future::{Either, select};
use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::{Clock, News, PortError, PortResult};
use ondeck_core::runtime::retry::{RequestRetry, Retry};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cloud::Cloud;
use crate::error::{SQS, port_error, unavailable};
use crate::names::{MACHINE_TAG, MANAGED_BY, POOL_TAG};
use crate::pool::{MOST_MESSAGES, is_missing};

/// The longest that SQS keeps a receive waiting.
const LONGEST_POLL_SECS: i32 = 20;

/// The time limit of a call, which is above that of a long poll.
const CALL: Duration = Duration::from_secs(30);

/// An empty answer that arrives sooner is not that of a long poll. The next receive waits for as long,
/// so that a service which does not keep receives waiting is not asked without end.
const TOO_SOON: Duration = Duration::from_secs(1);

/// The pauses after calls that fail.
const BACK_OFF: Retry = Retry {
    first_pause: Duration::from_millis(500),
    longest_pause: Duration::from_secs(30),
    ..Retry::PATIENT
};

/// What the queue is like. SQS keeps no message for less than a minute. One that was received stays hidden
/// for that long, so it needs no deletion.
const ATTRIBUTES: [(QueueAttributeName, &str); 4] = [
    (QueueAttributeName::MessageRetentionPeriod, "60"),
    (QueueAttributeName::VisibilityTimeout, "60"),
    (QueueAttributeName::ReceiveMessageWaitTimeSeconds, "20"),
    (QueueAttributeName::SqsManagedSseEnabled, "true"),
];

/// Listens for wake-ups of one machine until it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    state: watch::Sender<State>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    /// Whether a wake-up has arrived that the agent has not been told of.
    is_announced: bool,
    hearing: Hearing,
}

#[derive(Debug)]
enum Hearing {
    /// It has not begun yet.
    NotYet,
    Works,
    Fails(PortError),
}

impl Listener {
    /// Begins to listen at the queue of this machine, which AWS knows by `identity`.
    pub(crate) fn begin(cloud: &Cloud, id: &InstanceId, identity: &str) -> Listener {
        let queue = WakeQueue {
            client: cloud.sqs_with_time_limit(CALL),
            name: cloud.names.wake_queue(id),
            tags: [
                (MACHINE_TAG, identity.to_owned()),
                (POOL_TAG, cloud.names.pool.to_string()),
                (MANAGED_BY.0, MANAGED_BY.1.to_owned()),
            ],
            patience: cloud.patience.clone(),
        };
        let state = watch::Sender::new(State { is_announced: false, hearing: Hearing::NotYet });
        let task = tokio::spawn(listen(queue, state.clone()));
        Listener { state, task }
    }

    /// As [`AgentStore::news`](ondeck_core::ports::AgentStore::news).
    pub(crate) async fn news(&self, clock: &dyn Clock, poll: Duration, patience: Duration) -> News {
        let (mut changes, begun) = (self.state.subscribe(), clock.steady());
        loop {
            if self.take_announcement() {
                return News::Announced;
            }
            let (at_most, otherwise) = match &changes.borrow_and_update().hearing {
                Hearing::NotYet => (poll, News::Unheard(None)),
                Hearing::Fails(error) => (poll, News::Unheard(Some(error.clone()))),
                Hearing::Works => (patience, News::Quiet),
            };
            let left = at_most.saturating_sub(clock.steady().saturating_sub(begun));
            if left.is_zero() {
                return otherwise;
            }
            if let Either::Right(_) = select(pin!(changes.changed()), clock.sleep(left)).await {
                return otherwise;
            }
        }
    }

    fn take_announcement(&self) -> bool {
        self.state.send_if_modified(|state| std::mem::take(&mut state.is_announced))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Listens for ever. A wake-up that the agent was not told of keeps it from receiving more: so the agent
/// decides how fast it takes them.
async fn listen(queue: WakeQueue, state: watch::Sender<State>) {
    let (mut url, mut failures, mut works) = (None, 0, false);
    loop {
        let heard = match &url {
            None => queue.create().await.map(|created| {
                url = Some(created);
                Heard::Nothing
            }),
            // A short poll tells at once whether the queue can be listened at.
            Some(url) => queue.receive(url, if works { LONGEST_POLL_SECS } else { 0 }).await,
        };
        match heard {
            Ok(Heard::Nothing) => {}
            Ok(Heard::Empty(took)) => {
                let was_long = std::mem::replace(&mut works, true);
                failures = 0;
                state.send_modify(|state| state.hearing = Hearing::Works);
                if was_long && took < TOO_SOON {
                    tokio::time::sleep(TOO_SOON).await;
                }
            }
            Ok(Heard::WakeUp) => {
                (works, failures) = (true, 0);
                state.send_modify(|state| {
                    *state = State { is_announced: true, hearing: Hearing::Works };
                });
                let mut told = state.subscribe();
                drop(told.wait_for(|state| !state.is_announced).await);
            }
            Err(NotHeard { error, is_missing }) => {
                works = false;
                if is_missing {
                    url = None;
                }
                state.send_modify(|state| state.hearing = Hearing::Fails(error));
                queue.patience.back_off(&BACK_OFF, failures).await;
                failures = failures.saturating_add(1);
            }
        }
    }
}

enum Heard {
    /// The queue was created, and nothing was received.
    Nothing,
    /// There was no message, after this time.
    Empty(Duration),
    WakeUp,
}

struct NotHeard {
    error: PortError,
    /// Whether the queue does not exist.
    is_missing: bool,
}

impl From<PortError> for NotHeard {
    fn from(error: PortError) -> NotHeard {
        NotHeard { error, is_missing: false }
    }
}

struct WakeQueue {
    client: Client,
    name: String,
    tags: [(&'static str, String); 3],
    patience: RequestRetry,
}

impl WakeQueue {
    /// Returns the address of the queue, also if it is there already: an earlier process of the agent has
    /// created it then.
    async fn create(&self) -> Result<String, NotHeard> {
        const ACTION: &str = "CreateQueue";
        let attributes = ATTRIBUTES.into_iter().map(|(name, value)| (name, value.to_owned()));
        let tags = self.tags.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        let create = self
            .client
            .create_queue()
            .queue_name(&self.name)
            .set_attributes(Some(attributes.collect::<HashMap<_, _>>()))
            .set_tags(Some(tags.collect::<HashMap<_, _>>()));
        let created: PortResult<String> = match create.send().await {
            Ok(answer) => answer
                .queue_url
                .ok_or_else(|| unavailable(SQS, ACTION, &"answered without QueueUrl")),
            Err(error) => Err(port_error(SQS, ACTION, &error)),
        };
        Ok(created?)
    }

    async fn receive(&self, url: &str, wait_secs: i32) -> Result<Heard, NotHeard> {
        let begun = Instant::now();
        let receive = self
            .client
            .receive_message()
            .queue_url(url)
            .max_number_of_messages(MOST_MESSAGES)
            .wait_time_seconds(wait_secs);
        match receive.send().await {
            Ok(answer) if answer.messages().is_empty() => Ok(Heard::Empty(begun.elapsed())),
            Ok(_) => Ok(Heard::WakeUp),
            Err(error) => Err(NotHeard {
                is_missing: is_missing(&error),
                error: port_error(SQS, "ReceiveMessage", &error),
            }),
        }
    }
}
