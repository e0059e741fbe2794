//! The types of the lock-and-waker core, switchable to those of the model checker.
//!
//! The standard library's mutex, because it does not yield the processor while it spins: with more threads than
//! processors, yielding costs more than the queue. Poisoning is ignored: a panic under the lock leaves the queue in order.

#[cfg(shuttle)]
use shuttle::sync;
use std::ops::Deref;
#[cfg(not(shuttle))]
use std::sync;
use std::sync::{PoisonError, TryLockError};

pub(crate) use sync::MutexGuard;
pub(crate) use sync::atomic::{AtomicBool, fence};

/// A value with cache lines of its own: a write to it invalidates nothing that others read beside it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

impl<T> Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[derive(Debug, Default)]
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
