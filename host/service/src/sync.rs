//! The one place that decides what a poisoned lock means: nothing, because no holder leaves its value half-changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; a holder that panicked is no reason to fail everybody else.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
