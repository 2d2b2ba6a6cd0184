//! What a process awaits: answers and alarms.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Ended, Kernel};

/// A call under way.
pub(crate) struct Calling {
    pub(super) kernel: Arc<Kernel>,
    pub(super) id: u64,
}

impl Future for Calling {
    type Output = Ended;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ended> {
        let mut state = self.kernel.state();
        let Some(call) = state.calls.get_mut(&self.id) else { return Poll::Ready(Ended::Lost) };
        match call.ended.filter(|_| call.back) {
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

impl Drop for Calling {
    fn drop(&mut self) {
        let mut state = self.kernel.state();
        let arrives = state.ties.bool();
        let by_choice = state.by_choice;
        let Some(call) = state.calls.get_mut(&self.id) else { return };
        call.waker = None;
        // A request that is on its way may arrive after its caller has stopped waiting.
        if call.ended.is_none() && arrives && !by_choice {
            call.orphaned = true;
        } else {
            let call = state.calls.remove(&self.id);
            drop(state);
            drop(call);
        }
    }
}

/// A process asleep until its alarm rings.
pub(crate) struct Sleeping {
    pub(super) kernel: Arc<Kernel>,
    pub(super) id: u64,
}

impl Future for Sleeping {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.kernel.state();
        let Some(alarm) = state.alarms.get_mut(&self.id) else { return Poll::Ready(()) };
        if alarm.rung {
            return Poll::Ready(());
        }
        alarm.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        let mut state = self.kernel.state();
        let of = state.alarms.remove(&self.id).and_then(|alarm| alarm.of);
        if let Some(ears) = of.and_then(|of| state.ears.get_mut(&of)) {
            ears.retain(|id| *id != self.id);
        }
    }
}
