//! One lock a key, for as long as it is held or awaited.
//!
//! Two webhooks, or two blocks on one address, may be handled at the same time; each takes the lock of
//! its addresses. The map holds only keys in use, so it does not grow with the number of addresses.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// Locks by key. Cloning is cheap; clones share the locks.
pub struct KeyedLocks<K> {
    slots: Arc<Mutex<Slots<K>>>,
}

type Slots<K> = HashMap<K, Slot>;

struct Slot {
    lock: Arc<tokio::sync::Mutex<()>>,
    /// Holders and waiters; the slot goes with the last of them.
    users: usize,
}

/// Holds the lock of one key until it is dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard<K: Hash + Eq> {
    /// Dropped before `_user`: the next in line may start, then the slot is counted down.
    _held: OwnedMutexGuard<()>,
    _user: User<K>,
}

/// Counts one holder or waiter, also of a wait that is cancelled.
struct User<K: Hash + Eq> {
    slots: Arc<Mutex<Slots<K>>>,
    key: K,
}

// === impl KeyedLocks ===

impl<K: Hash + Eq + Clone> KeyedLocks<K> {
    /// No lock yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            slots: Arc::new(Mutex::new(HashMap::new())),
        }
    }

    /// Waits for the lock of `key`; first come, first served. Cancel-safe.
    pub async fn lock(&self, key: K) -> Guard<K> {
        let lock = {
            let mut slots = self.slots.lock();
            let slot = slots.entry(key.clone()).or_insert_with(|| Slot {
                lock: Arc::default(),
                users: 0,
            });
            slot.users += 1;
            Arc::clone(&slot.lock)
        };
        let user = User {
            slots: Arc::clone(&self.slots),
            key,
        };
        let held = lock.lock_owned().await;
        Guard {
            _held: held,
            _user: user,
        }
    }

    /// How many keys are held or awaited now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.lock().len()
    }

    /// Whether no key is held or awaited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Hash + Eq + Clone> Default for KeyedLocks<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Clone for KeyedLocks<K> {
    fn clone(&self) -> Self {
        Self {
            slots: Arc::clone(&self.slots),
        }
    }
}

impl<K> fmt::Debug for KeyedLocks<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLocks")
            .field("keys", &self.slots.lock().len())
            .finish()
    }
}

impl<K: Hash + Eq> fmt::Debug for Guard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

// === impl User ===

impl<K: Hash + Eq> Drop for User<K> {
    fn drop(&mut self) {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.get_mut(&self.key) {
            slot.users -= 1;
            if slot.users == 0 {
                slots.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn one_key_is_held_by_one_at_a_time_and_others_pass() {
        let locks = KeyedLocks::new();
        let inside = Arc::new(AtomicUsize::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let (locks, inside) = (locks.clone(), Arc::clone(&inside));
            tasks.spawn(async move {
                let _guard = locks.lock("a").await;
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                tokio::time::sleep(Duration::from_millis(5)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
            });
        }
        tokio::task::yield_now().await;
        let other = tokio::time::timeout(Duration::from_millis(1), locks.lock("b")).await;
        assert!(other.is_ok(), "another key does not wait");
        drop(other);
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        assert!(locks.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_wait_leaves_nothing_behind() {
        let locks = KeyedLocks::new();
        let held = locks.lock(1).await;
        let waited = tokio::time::timeout(Duration::from_secs(1), locks.lock(1)).await;
        assert!(waited.is_err());
        assert_eq!(locks.len(), 1);
        drop(held);
        assert!(locks.is_empty());
        let again = tokio::time::timeout(Duration::from_millis(1), locks.lock(1)).await;
        assert!(again.is_ok());
    }
}
