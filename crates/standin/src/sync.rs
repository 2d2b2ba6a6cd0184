//! Locks of state that threads and tasks share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a thread that panicked has left is still what happened.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
