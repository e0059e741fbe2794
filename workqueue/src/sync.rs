//! The types of the lock-and-waker core, switchable to those of the model checker.
//!
//! The standard library's mutex, because it does not yield the processor while it spins: with more threads than
//! processors, yielding costs more than the queue. Poisoning is ignored: a panic under the lock leaves the queue in order.

#[cfg(shuttle)]
use shuttle::sync;
#[cfg(not(shuttle))]
use std::sync;
use std::sync::{PoisonError, TryLockError};

pub(crate) use sync::MutexGuard;
pub(crate) use sync::atomic::{AtomicBool, fence};

/// A mutex with cache lines of its own: what threads write under the lock invalidates nothing that others read without it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

// === impl Mutex ===

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
