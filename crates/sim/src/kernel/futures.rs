//! The futures that a process awaits: the answer to a call, and the end of a sleep.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ondeck_core::model::ids::InstanceId;

use super::{CallEnd, Kernel, Trigger};

impl Kernel {
    /// Wakes the process that waits for the end of an instance's listener.
    pub(crate) fn lapses(&self, id: &InstanceId) {
        self.state().fire(&Trigger::Lapsed(id.clone()));
    }
}

/// Waits for the answer to a call. If it is dropped, the request may still arrive.
pub(crate) struct CallFuture {
    pub(super) kernel: Arc<Kernel>,
    pub(super) id: u64,
}

impl Future for CallFuture {
    type Output = CallEnd;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<CallEnd> {
        let mut state = self.kernel.state();
        let Some(call) = state.calls.get_mut(&self.id) else { return Poll::Ready(CallEnd::Lost) };
        match call.ended.filter(|_| call.answer_arrived) {
            Some(ended) => {
                state.calls.remove(&self.id);
                Poll::Ready(ended)
            }
            None => {
                call.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for CallFuture {
    fn drop(&mut self) {
        let mut state = self.kernel.state();
        let arrives = state.tie_breaker.bool();
        let by_choice = state.by_choice;
        let Some(call) = state.calls.get_mut(&self.id) else { return };
        call.waker = None;
        // The request may arrive after the caller has stopped waiting.
        if call.ended.is_none() && arrives && !by_choice {
            call.abandoned = true;
        } else {
            let call = state.calls.remove(&self.id);
            drop(state);
            drop(call);
        }
    }
}

/// Waits for an alarm.
pub(crate) struct SleepFuture {
    pub(super) kernel: Arc<Kernel>,
    pub(super) id: u64,
}

impl Future for SleepFuture {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.kernel.state();
        let Some(alarm) = state.alarms.get_mut(&self.id) else { return Poll::Ready(()) };
        if alarm.fired {
            return Poll::Ready(());
        }
        alarm.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for SleepFuture {
    fn drop(&mut self) {
        let mut state = self.kernel.state();
        let trigger = state.alarms.remove(&self.id).and_then(|alarm| alarm.trigger);
        if let Some(listeners) = trigger.and_then(|trigger| state.listeners.get_mut(&trigger)) {
            listeners.retain(|id| *id != self.id);
        }
    }
}
