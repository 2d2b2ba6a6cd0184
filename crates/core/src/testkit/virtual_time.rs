//! Runs futures on virtual time. Time moves to the next alarm when no task can go on, so an hour takes
//! as long as its events do. For worlds of many tasks, where each sleeper of a
//! [`VirtualClock`](super::VirtualClock) would cost a turn of every other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use async_trait::async_trait;

use crate::model::timestamp::Timestamp;
use crate::ports::Clock;

/// The time of day at which virtual time begins, unless it is given.
const EPOCH_MILLIS: u64 = 1_750_000_000_000;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
/// The waker of a sleeper; `None` once it is dropped.
type Sleeper = Arc<Mutex<Option<Waker>>>;

/// Virtual time, in microseconds, and the tasks that have not started yet.
pub struct VirtualTime {
    began: Timestamp,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: u64,
    alarms: BinaryHeap<Reverse<Alarm>>,
    sequence: u64,
    spawned: Vec<Task>,
}

impl State {
    /// Wakes the sleeper after this time. Returns when that is.
    fn set_alarm(&mut self, micros: u64, sleeper: &Sleeper) -> u64 {
        let due = self.now.saturating_add(micros);
        self.sequence += 1;
        self.alarms.push(Reverse(Alarm(due, self.sequence, sleeper.clone())));
        due
    }
}

/// An alarm, ordered by time and then by the order in which alarms were set.
struct Alarm(u64, u64, Sleeper);

impl PartialEq for Alarm {
    fn eq(&self, other: &Alarm) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for Alarm {}

impl PartialOrd for Alarm {
    fn partial_cmp(&self, other: &Alarm) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Alarm {
    fn cmp(&self, other: &Alarm) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

impl Default for VirtualTime {
    fn default() -> VirtualTime {
        VirtualTime::starting_at(Timestamp::from_millis(EPOCH_MILLIS))
    }
}

impl VirtualTime {
    /// Time that begins at this moment, with no tasks.
    pub fn starting_at(began: Timestamp) -> VirtualTime {
        VirtualTime { began, state: Mutex::default() }
    }

    /// The time since the beginning.
    pub fn elapsed(&self) -> Duration {
        Duration::from_micros(self.state().now)
    }

    /// Adds a task. It begins when [`play`](VirtualTime::play) has come to it.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.state().spawned.push(Box::pin(task));
    }

    /// Plays all tasks until `limit`, or until none of them can go on. Tasks that are not done are dropped.
    pub fn play(&self, limit: Duration) {
        let limit = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        let ready: Arc<Mutex<VecDeque<u64>>> = Arc::default();
        let mut tasks: BTreeMap<u64, (Task, Waker)> = BTreeMap::new();
        let mut numbers = 0;
        loop {
            for task in std::mem::take(&mut self.state().spawned) {
                numbers += 1;
                let waker =
                    Waker::from(Arc::new(TaskWaker { task: numbers, ready: ready.clone() }));
                waker.wake_by_ref();
                tasks.insert(numbers, (task, waker));
            }
            let next = locked(&ready).pop_front();
            match next {
                Some(number) => {
                    let Some((task, waker)) = tasks.get_mut(&number) else { continue };
                    let mut context = Context::from_waker(waker);
                    if task.as_mut().poll(&mut context).is_ready() {
                        tasks.remove(&number);
                    }
                }
                None if !self.state().spawned.is_empty() => {}
                None => {
                    if !self.advance(limit) {
                        return;
                    }
                }
            }
        }
    }

    /// Moves time to the next alarm and wakes its sleeper. Returns `false` if there is none up to
    /// `limit`.
    fn advance(&self, limit: u64) -> bool {
        let mut state = self.state();
        match state.alarms.peek() {
            Some(Reverse(Alarm(at, ..))) if *at <= limit => {}
            _ => return false,
        }
        if let Some(Reverse(Alarm(at, _, sleeper))) = state.alarms.pop() {
            state.now = state.now.max(at);
            drop(state);
            if let Some(waker) = locked(&sleeper).take() {
                waker.wake();
            }
        }
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

impl std::fmt::Debug for VirtualTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VirtualTime({:?})", self.elapsed())
    }
}

#[async_trait]
impl Clock for VirtualTime {
    fn now(&self) -> Timestamp {
        self.began + Duration::from_micros(self.state().now)
    }

    fn steady(&self) -> Duration {
        self.elapsed()
    }

    async fn sleep(&self, span: Duration) {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX / 2);
        let sleeper = Sleeper::default();
        let due = self.state().set_alarm(micros, &sleeper);
        Sleep { time: self, due, sleeper }.await;
    }
}

struct Sleep<'a> {
    time: &'a VirtualTime,
    due: u64,
    sleeper: Sleeper,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.time.state().now >= self.due {
            return Poll::Ready(());
        }
        *locked(&self.sleeper) = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        locked(&self.sleeper).take();
    }
}

struct TaskWaker {
    task: u64,
    ready: Arc<Mutex<VecDeque<u64>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        locked(&self.ready).push_back(self.task);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_moves_from_alarm_to_alarm_and_stops_at_the_limit() {
        let time = Arc::new(VirtualTime::default());
        let seen: Arc<Mutex<Vec<(u32, u128)>>> = Arc::default();
        for (name, millis) in [(1, 50), (2, 20), (3, 9_000)] {
            let (clock, seen) = (time.clone(), seen.clone());
            time.spawn(async move {
                clock.sleep(Duration::from_millis(millis)).await;
                locked(&seen).push((name, clock.elapsed().as_millis()));
                let inner = clock.clone();
                clock.spawn(async move {
                    inner.sleep(Duration::from_millis(5)).await;
                    locked(&seen).push((name * 10, inner.elapsed().as_millis()));
                });
            });
        }
        time.play(Duration::from_secs(1));
        assert_eq!(*locked(&seen), [(2, 20), (20, 25), (1, 50), (10, 55)]);
    }
}
