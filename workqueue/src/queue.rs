//! The handle of a queue, for producers.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use crate::builder::Builder;
use crate::options::AddOptions;
use crate::shared::{DeferredOp, Shared};

/// A work queue. Cheap to clone; clones are handles of the same queue.
///
/// The rules, and where they come from, are in the [crate's docs](crate).
pub struct Queue<T>(pub(crate) Arc<Shared<T>>);

// === impl Queue ===

impl<T: Hash + Eq + Clone + Send + Sync + 'static> Queue<T> {
    /// A queue with defaults: see [`Builder`].
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Configures a queue.
    pub fn builder() -> Builder<T> {
        Builder::new()
    }

    /// Adds `item`, to be processed now.
    ///
    /// client-go: `Add`. A queued item is not queued twice; an item in flight runs again afterwards; a delayed
    /// item is ready now, and its timer is removed (controller-runtime).
    pub fn add(&self, item: T) {
        self.add_with(item, AddOptions::new());
    }

    /// Adds `item`, to be processed after `delay`. A delay beyond 584 years never ends.
    ///
    /// client-go: `AddAfter`. The earlier of several times counts. If the item is ready already, or
    /// was added again while in flight, it is processed once, now (controller-runtime).
    pub fn add_after(&self, item: T, delay: Duration) {
        self.add_with(item, AddOptions::new().after(delay));
    }

    /// Counts a failure of `item` and adds it with the limiter's delay.
    ///
    /// client-go: `AddRateLimited`. Workers should use [`Item::retry`](crate::Item::retry).
    pub fn add_rate_limited(&self, item: T) {
        self.add_with(item, AddOptions::new().rate_limited());
    }

    /// Adds `item` with `options`.
    ///
    /// controller-runtime: `AddWithOpts`. An add of a pending item merges with it: the higher priority and the
    /// earlier time count. An item whose priority rises goes to the end of its new priority.
    pub fn add_with(&self, item: T, options: AddOptions) {
        let hash = self.0.hash(&item);
        if self.0.can_defer
            && !options.needs_time()
            && let Some(reasons) = options.plain_reason()
        {
            self.0.submit(DeferredOp::Add {
                key: item,
                hash,
                priority: options.priority,
                reasons,
            });
            return;
        }
        self.0.update(options.needs_time(), |core, now, effects| {
            let request = options.request(&mut core.state.custom_reasons);
            core.state.add(hash, item, &request, now, effects);
        });
    }

    /// As [`Queue::add`] for each item, with few lock operations: for bursts, as from an initial list.
    pub fn add_all(&self, items: impl IntoIterator<Item = T>) {
        self.add_all_with(items, AddOptions::new());
    }

    /// As [`Queue::add_with`] for each item, in order, with few lock operations.
    ///
    /// The lock is released in between, so workers may begin before the last item is added.
    pub fn add_all_with(&self, items: impl IntoIterator<Item = T>, options: AddOptions) {
        const SLICE: usize = 256;
        let mut items = items.into_iter();
        let mut expected = items.size_hint().0;
        let mut slice: Vec<(u32, T)> = Vec::with_capacity(SLICE.min(expected.max(1)));
        loop {
            // The caller's iterator and the hashing run without the lock.
            slice.extend(
                items
                    .by_ref()
                    .take(SLICE)
                    .map(|item| (self.0.hash(&item), item)),
            );
            if slice.is_empty() {
                return;
            }
            self.0.update(options.needs_time(), |core, now, effects| {
                // Most keys of a burst are new: the table grows once.
                if expected > SLICE {
                    core.state.slots.reserve(expected);
                }
                let request = options.request(&mut core.state.custom_reasons);
                for (hash, item) in slice.drain(..) {
                    core.state.add(hash, item, &request, now, effects);
                }
            });
            expected = 0;
        }
    }

    /// Shortens the wait of `item`: it is ready after `delay` at the latest, or after its
    /// [minimum interval](crate::Builder::min_interval), and without a token of the limiter. It keeps its priority, its
    /// reasons and its failures. Returns whether it waited: an item that is unknown, ready or in flight
    /// is left as it is, which distinguishes this from [`Queue::add_after`].
    pub fn hasten(&self, item: &T, delay: Duration) -> bool {
        let hash = self.0.hash(item);
        self.0.update(true, |core, now, effects| {
            core.state.hasten(hash, item, delay, now, effects)
        })
    }

    /// Revokes every add of `item` that was not handed out yet: it is neither ready nor delayed, and does not
    /// run again after a current run. Returns whether there was such an add. The failure record is kept; see
    /// [`Queue::forget`].
    pub fn cancel(&self, item: &T) -> bool {
        let hash = self.0.hash(item);
        self.0.update(false, |core, now, effects| {
            core.state.cancel(hash, item, now, effects)
        })
    }

    /// Clears the failure record of `item`. client-go: `Forget`.
    pub fn forget(&self, item: &T) {
        let hash = self.0.hash(item);
        self.0.update(false, |core, now, effects| {
            core.state.forget(hash, item, now, effects);
        });
    }

    /// Failures of `item` in a row; counts up to 65,535. client-go: `NumRequeues`.
    #[must_use]
    pub fn num_requeues(&self, item: &T) -> u32 {
        let hash = self.0.hash(item);
        self.0
            .update(true, |core, now, _| core.state.failures(hash, item, now))
    }

    /// Number of ready items. Delayed items and items in flight are not counted. client-go: `Len`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.catch_up();
        self.0.update(false, |core, _, _| core.state.ready.len())
    }

    /// Whether no item is ready.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Hash + Eq + Clone + Send + Sync + 'static> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("name", &self.0.name)
            .finish_non_exhaustive()
    }
}
