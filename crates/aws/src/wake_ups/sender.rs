//! The control plane's side: sends wake-ups without keeping a mode waiting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_sqs::Client;
use futures_util::future::join_all;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::{PortError, PortResult};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::cloud::{Account, Cloud};
use crate::error::{SQS, port_error};
use crate::pool::is_missing;

/// The number of wake-ups under way at the same time. They have a gate of their own, so that calls which
/// a mode waits for are not behind them.
const AT_ONCE: usize = 48;

/// How long a mode that is done waits for its last wake-ups.
const FINISH_WITHIN: Duration = Duration::from_secs(1);

/// The body of a wake-up, which SQS does not allow to be empty.
const BODY: &str = "look";

/// Sends wake-ups in the background.
#[derive(Debug)]
pub(crate) struct Sender {
    client: Client,
    cloud: Cloud,
    gate: Semaphore,
    /// Held by the wake-up that begins.
    turn: tokio::sync::Mutex<()>,
    under_way: Mutex<Vec<JoinHandle<()>>>,
    has_warned: AtomicBool,
}

impl Sender {
    pub(crate) fn new(cloud: &Cloud) -> Sender {
        Sender {
            client: cloud.sqs(),
            cloud: cloud.clone(),
            gate: Semaphore::new(AT_ONCE),
            turn: tokio::sync::Mutex::default(),
            under_way: Mutex::default(),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Wakes machines, and returns without waiting for that. `identity_prefix` gives what precedes the id
    /// of a machine in its ARN; if that is empty, no machine has a queue.
    pub(crate) fn wake<F>(self: &Arc<Self>, ids: &[InstanceId], identity_prefix: F)
    where
        F: Future<Output = PortResult<String>> + Send + 'static,
    {
        let (sender, ids) = (self.clone(), ids.to_vec());
        let sending = tokio::spawn(async move {
            match identity_prefix.await {
                Ok(prefix) => sender.send_all(&ids, &prefix).await,
                Err(error) => sender.warn(&error),
            }
        });
        let mut under_way = self.under_way();
        under_way.retain(|sending| !sending.is_finished());
        under_way.push(sending);
    }

    /// Waits for the wake-ups under way, for [`FINISH_WITHIN`] at most.
    pub(crate) async fn finish(&self) {
        let under_way = std::mem::take(&mut *self.under_way());
        if tokio::time::timeout(FINISH_WITHIN, join_all(under_way)).await.is_err() {
            tracing::warn!("some wake-ups are not sent: SQS is slow");
        }
    }

    async fn send_all(&self, ids: &[InstanceId], identity_prefix: &str) {
        let Some(account) = Account::of_arn(identity_prefix) else { return };
        join_all(ids.iter().map(|id| self.send(id, &account))).await;
    }

    async fn send(&self, id: &InstanceId, account: &Account) {
        let name = self.cloud.names.wake_queue(id);
        let url = account.queue_url(self.cloud.region(), &name);
        let send = || async {
            let _place = self.gate.acquire().await.expect("the gate is never closed");
            self.begin().await;
            let sent = self.client.send_message().queue_url(&url).message_body(BODY).send().await;
            match sent {
                Ok(_) => Ok(()),
                // Its agent is older than wake-ups, has not started yet, or may not listen.
                Err(error) if is_missing(&error) => {
                    tracing::debug!(instance = %id, "not woken: it has no queue");
                    Ok(())
                }
                Err(error) => Err(port_error(SQS, "SendMessage", &error)),
            }
        };
        if let Err(error) = self.cloud.patience.retried(send).await {
            self.warn(&error);
        }
    }

    /// Lets all that is ready go on before each wake-up. To make fifty requests takes as much processor time
    /// as a round trip, for which a call that a mode waits for would be behind them.
    async fn begin(&self) {
        let _turn = self.turn.lock().await;
        tokio::task::yield_now().await;
    }

    fn warn(&self, error: &PortError) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!("machines are not woken, and notice changes later: {error}");
        }
    }

    fn under_way(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
