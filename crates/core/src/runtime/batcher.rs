//! Joins concurrent calls into one.
//!
//! Ten claim workers that wait for ten signals need one batched read, not ten reads. The first
//! caller lets the others join for one turn of the scheduler and calls for all of them. Those that
//! arrive during the call share the next one. A single caller is not delayed.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use tokio::sync::oneshot;

use crate::ports::PortResult;

type Waiting<K, V> = Vec<(K, oneshot::Sender<PortResult<V>>)>;

/// Gathers questions `K` and hands out answers `V`.
#[derive(Debug)]
pub struct Batcher<K, V> {
    waiting: Mutex<Waiting<K, V>>,
    turn: tokio::sync::Mutex<()>,
}

impl<K, V> Default for Batcher<K, V> {
    fn default() -> Self {
        Batcher { waiting: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }
}

impl<K: Clone, V> Batcher<K, V> {
    /// Asks `question` together with all questions that are waiting. `call` must return one answer
    /// for each question, in the same order. If it fails, every caller of the batch gets the error.
    pub async fn ask<F>(&self, question: K, call: impl Fn(Vec<K>) -> F) -> PortResult<V>
    where
        F: Future<Output = PortResult<Vec<V>>>,
    {
        self.ask_after(one_turn, question, call).await
    }

    /// Like [`Batcher::ask`], but lets other callers join until `window` is over.
    pub async fn ask_after<F, L>(
        &self,
        window: impl Fn() -> L,
        question: K,
        call: impl Fn(Vec<K>) -> F,
    ) -> PortResult<V>
    where
        F: Future<Output = PortResult<Vec<V>>>,
        L: Future<Output = ()>,
    {
        loop {
            let (sender, mut answer) = oneshot::channel();
            self.waiting().push((question.clone(), sender));
            let _turn = self.turn.lock().await;
            match answer.try_recv() {
                Ok(answer) => return answer,
                // The caller that made the batch was dropped before it had the answer.
                Err(oneshot::error::TryRecvError::Closed) => continue,
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
            // Callers that were woken by the same timer get the chance to join.
            window().await;
            let batch = std::mem::take(&mut *self.waiting());
            let (questions, senders): (Vec<K>, Vec<_>) = batch.into_iter().unzip();
            match call(questions).await {
                Ok(answers) => {
                    for (sender, answer) in senders.into_iter().zip(answers) {
                        // A caller that was dropped needs no answer.
                        drop(sender.send(Ok(answer)));
                    }
                }
                Err(error) => {
                    for sender in senders {
                        drop(sender.send(Err(error.clone())));
                    }
                }
            }
            if let Ok(answer) = answer.try_recv() {
                return answer;
            }
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting<K, V>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Yields once to every other task that is ready.
async fn one_turn() {
    let mut given = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut given, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::PortError;
    use futures_util::future::join_all;
    use std::cell::RefCell;

    #[tokio::test]
    async fn concurrent_questions_share_one_call() {
        let batcher = Batcher::default();
        let batches = RefCell::new(Vec::new());
        let call = |questions: Vec<u32>| {
            batches.borrow_mut().push(questions.len());
            async {
                tokio::task::yield_now().await;
                Ok(questions.into_iter().map(|n| n * 2).collect())
            }
        };
        let answers = join_all((0..10).map(|n| batcher.ask(n, call))).await;
        let answers: Vec<u32> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, (0..10).map(|n| n * 2).collect::<Vec<_>>());
        assert_eq!(*batches.borrow(), [10], "all of them were there in time");
        let late = join_all([5, 6].map(|n| batcher.ask(n, call))).await;
        assert_eq!(late, [Ok(10), Ok(12)]);
    }

    #[tokio::test]
    async fn a_failed_call_fails_every_caller_of_the_batch() {
        let batcher: Batcher<u32, u32> = Batcher::default();
        let error = || PortError::Unavailable { service: "store", reason: "reset".into() };
        let asked = (0..3).map(|n| batcher.ask(n, |_| async { Err(error()) }));
        assert_eq!(join_all(asked).await, vec![Err(error()); 3]);
    }

    #[tokio::test]
    async fn a_dropped_caller_does_not_block_the_others() {
        let batcher: Batcher<u32, u32> = Batcher::default();
        let mut first = Box::pin(batcher.ask(1, |_| std::future::pending()));
        let mut second = Box::pin(batcher.ask(2, |q| async move { Ok(q) }));
        assert!(futures_util::poll!(&mut first).is_pending());
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        assert_eq!(second.await, Ok(2));
    }
}
