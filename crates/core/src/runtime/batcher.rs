//! Joins concurrent calls into one.
//!
//! Ten claim workers that wait for ten signals need one batched read, not ten reads. The first
//! caller lets the others join for a moment and calls for all of them. Those that arrive after that
//! make another batch, which does not wait for the first.

use std::future::Future;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use futures_util::future::{Either, select};
use tokio::sync::oneshot;

use crate::ports::PortResult;

/// How many windows a batch stays open at most. The answers to fifty writes that were made together
/// arrive within this.
const MOST_WINDOWS: u32 = 16;

/// How many turns a batch stays open at most, which take no time.
const MOST_TURNS: u32 = 256;

/// A question that no batch has taken yet.
#[derive(Debug)]
struct Question<K, V> {
    number: u64,
    asked: K,
    sender: oneshot::Sender<PortResult<V>>,
}

#[derive(Debug)]
struct Waiting<K, V> {
    questions: Vec<Question<K, V>>,
    /// The number of the next question.
    next: u64,
}

impl<K, V> Waiting<K, V> {
    fn add(&mut self, asked: K) -> (u64, oneshot::Receiver<PortResult<V>>) {
        let (sender, answer) = oneshot::channel();
        let number = self.next;
        self.next += 1;
        self.questions.push(Question { number, asked, sender });
        (number, answer)
    }

    fn has(&self, number: u64) -> bool {
        self.questions.iter().any(|question| question.number == number)
    }

    /// Takes the questions whose callers still wait.
    fn take(&mut self) -> Vec<Question<K, V>> {
        let mut taken = std::mem::take(&mut self.questions);
        taken.retain(|question| !question.sender.is_closed());
        taken
    }
}

/// Gathers questions `K` and hands out answers `V`.
#[derive(Debug)]
pub struct Batcher<K, V> {
    waiting: Mutex<Waiting<K, V>>,
    /// Held by the caller that gathers the next batch.
    turn: tokio::sync::Mutex<()>,
}

impl<K, V> Default for Batcher<K, V> {
    fn default() -> Self {
        let waiting = Waiting { questions: Vec::new(), next: 0 };
        Batcher { waiting: Mutex::new(waiting), turn: tokio::sync::Mutex::default() }
    }
}

impl<K: Clone, V> Batcher<K, V> {
    /// Asks `question` together with all that are waiting, and with those that come as long as every turn
    /// of the other tasks brings one: of workers that wait for each other, each asks in a turn of its own.
    /// `call` must return one answer for each question, in the same order. If it fails, every caller of
    /// the batch gets the error.
    pub async fn ask<F>(&self, question: K, call: impl Fn(Vec<K>) -> F) -> PortResult<V>
    where
        F: Future<Output = PortResult<Vec<V>>>,
    {
        let turns = || self.while_joining(one_turn, usize::MAX, MOST_TURNS);
        self.ask_after(turns, question, call).await
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
            let (number, mut answer) = self.waiting().add(question.clone());
            let turn = match select(&mut answer, pin!(self.turn.lock())).await {
                Either::Left((Ok(answer), _)) => return answer,
                // The caller that made the batch was dropped before it had the answer.
                Either::Left((Err(_), _)) => continue,
                Either::Right((turn, _)) => turn,
            };
            if self.waiting().has(number) {
                window().await;
                let batch = self.waiting().take();
                drop(turn);
                answer_all(batch, &call).await;
            } else {
                drop(turn);
            }
            if let Ok(answer) = answer.await {
                return answer;
            }
        }
    }

    /// Like [`Batcher::ask`], and if fewer than `full` questions are there then, lets other callers join for
    /// one window after the other, as long as each brings another question and `full` are not there yet, for
    /// 16 windows at most. So callers that go on at the same moment wait for no window.
    pub async fn ask_while_joining<F, L>(
        &self,
        window: impl Fn() -> L,
        full: usize,
        question: K,
        call: impl Fn(Vec<K>) -> F,
    ) -> PortResult<V>
    where
        F: Future<Output = PortResult<Vec<V>>>,
        L: Future<Output = ()>,
    {
        let join = || async {
            self.while_joining(one_turn, full, MOST_TURNS).await;
            self.while_joining(&window, full, MOST_WINDOWS).await;
        };
        self.ask_after(join, question, call).await
    }

    /// Waits for one window after the other, `most` at the most, until one brings no question or `full`
    /// questions are there.
    async fn while_joining<L>(&self, window: impl Fn() -> L, full: usize, most: u32)
    where
        L: Future<Output = ()>,
    {
        let mut there = self.waiting().questions.len();
        for _ in 0..most {
            if there >= full {
                return;
            }
            window().await;
            let before = std::mem::replace(&mut there, self.waiting().questions.len());
            if there <= before {
                return;
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<K, V>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes one call for all questions of a batch. A caller that was dropped needs no answer.
async fn answer_all<K, V, F>(batch: Vec<Question<K, V>>, call: impl Fn(Vec<K>) -> F)
where
    F: Future<Output = PortResult<Vec<V>>>,
{
    let (questions, senders): (Vec<K>, Vec<_>) =
        batch.into_iter().map(|question| (question.asked, question.sender)).unzip();
    match call(questions).await {
        Ok(answers) => {
            for (sender, answer) in senders.into_iter().zip(answers) {
                drop(sender.send(Ok(answer)));
            }
        }
        Err(error) => {
            for sender in senders {
                drop(sender.send(Err(error.clone())));
            }
        }
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
    use std::time::Duration;

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
    async fn workers_that_take_turns_share_one_call() {
        let (batcher, lock) = (Batcher::default(), futures_util::lock::Mutex::new(()));
        let batches = RefCell::new(Vec::new());
        let call = |questions: Vec<u32>| {
            batches.borrow_mut().push(questions.len());
            async { Ok(questions) }
        };
        let work = async |n: u32| {
            // Each worker is let in by the one before it.
            drop(lock.lock().await);
            batcher.ask(n, call).await
        };
        join_all((0..50).map(work)).await;
        assert_eq!(*batches.borrow(), [50]);
    }

    #[tokio::test]
    async fn a_batch_stays_open_while_others_join_and_it_is_not_full() {
        let batches = RefCell::new(Vec::new());
        let call = |questions: Vec<u64>| {
            batches.borrow_mut().push(questions.len());
            async { Ok(questions) }
        };
        let clock = crate::testkit::plane().0.clock;
        let window = || clock.sleep(Duration::from_millis(3));
        let asked = async |count: u64, apart: u64, full: usize| {
            let batcher = Batcher::default();
            let late = |n: u64| {
                let (batcher, call, clock) = (&batcher, &call, &clock);
                async move {
                    clock.sleep(Duration::from_millis(n * apart)).await;
                    batcher.ask_while_joining(window, full, n, call).await
                }
            };
            join_all((0..count).map(late)).await;
            batches.take()
        };
        assert_eq!(asked(8, 2, 100).await, [8]);
        assert_eq!(asked(3, 7, 100).await, [1, 1, 1], "no other joins in time");
        let full = asked(8, 2, 5).await;
        assert!((5..8).contains(&full[0]), "{full:?}");
        let long = asked(100, 1, 1_000).await;
        assert!((40..60).contains(&long[0]), "it is open for 16 windows of 3 ms: {long:?}");
        let begun = clock.steady();
        assert_eq!((asked(1, 0, 1).await, clock.steady()), (vec![1], begun), "it is full");
        let together = (asked(50, 0, 50).await, clock.steady());
        assert_eq!(together, (vec![50], begun), "those of the same moment wait for no window");
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

    #[tokio::test]
    async fn a_question_does_not_wait_for_the_call_of_an_earlier_batch() {
        let batcher: Batcher<u32, u32> = Batcher::default();
        let mut slow = Box::pin(batcher.ask(1, |_| std::future::pending()));
        for _ in 0..3 {
            assert!(futures_util::poll!(&mut slow).is_pending());
        }
        assert_eq!(batcher.ask(2, |q| async move { Ok(q) }).await, Ok(2));
        assert!(futures_util::poll!(&mut slow).is_pending());
    }
}
