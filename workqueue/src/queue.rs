//! The handle of a queue: what producers call.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use crate::builder::Builder;
use crate::mailbox::Letter;
use crate::options::AddOptions;
use crate::shared::Shared;

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

    /// How a queue is to be.
    pub fn builder() -> Builder<T> {
        Builder::new()
    }

    /// Wants `item` processed now.
    ///
    /// client-go: `Add`. An item that waits in the queue already is not queued twice; one that is
    /// being worked on runs again after; one that waits for a time is ready now, and its timer is
    /// gone (controller-runtime).
    pub fn add(&self, item: T) {
        self.add_with(item, AddOptions::default());
    }

    /// Wants `item` processed `delay` from now. Any length: what is beyond 584 years never comes.
    ///
    /// client-go: `AddAfter`. The earlier of several times wins. If the item is ready already, or
    /// runs and was added again, it is processed once, now (controller-runtime).
    pub fn add_after(&self, item: T, delay: Duration) {
        self.add_with(
            item,
            AddOptions {
                after: Some(delay),
                ..AddOptions::default()
            },
        );
    }

    /// Counts a failure of `item` and wants it processed after the limiter's delay.
    ///
    /// client-go: `AddRateLimited`. Workers rather call [`Item::retry`](crate::Item::retry).
    pub fn add_rate_limited(&self, item: T) {
        self.add_with(
            item,
            AddOptions {
                rate_limited: true,
                ..AddOptions::default()
            },
        );
    }

    /// Wants `item` processed as `options` say.
    ///
    /// controller-runtime: `AddWithOpts`. An add of an item that is wanted already merges with it:
    /// the higher priority, the earlier time. One whose priority rises goes to the end of its new
    /// priority.
    pub fn add_with(&self, item: T, options: AddOptions) {
        let hash = self.0.hash(&item);
        if self.0.leaves_letters
            && !options.needs_time()
            && let Some(reasons) = options.plain_reason()
        {
            self.0.leave_or_apply(Letter::Add {
                key: item,
                hash,
                priority: options.priority.unwrap_or(0),
                reasons,
            });
            return;
        }
        self.0.update(options.needs_time(), |core, now, effects| {
            let wish = options.wish(&mut core.state.custom_reasons);
            core.state.add(hash, item, &wish, now, effects);
        });
    }

    /// As [`Queue::add`] for each of many, under few locks: for bursts, as from an informer that lists.
    pub fn add_all(&self, items: impl IntoIterator<Item = T>) {
        self.add_all_with(items, AddOptions::default());
    }

    /// As [`Queue::add_with`] for each of many, in their order, under few locks.
    ///
    /// Others get the lock in between, so workers may begin before the last one is added.
    pub fn add_all_with(&self, items: impl IntoIterator<Item = T>, options: AddOptions) {
        const SLICE: usize = 256;
        let mut items = items.into_iter();
        let mut expected = items.size_hint().0;
        let mut slice: Vec<(u32, T)> = Vec::with_capacity(SLICE.min(expected.max(1)));
        loop {
            // The caller's iterator and the hashing are not worth holding the lock for.
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
                // Most are new in a burst: the table grows once, not again and again.
                if expected > SLICE {
                    core.state.slots.reserve(expected);
                }
                let wish = options.wish(&mut core.state.custom_reasons);
                for (hash, item) in slice.drain(..) {
                    core.state.add(hash, item, &wish, now, effects);
                }
            });
            expected = 0;
        }
    }

    /// Takes back every add of `item` that was not handed out yet: it is not ready, waits for
    /// nothing, and does not run again after the run it may be in. Returns whether there was one.
    /// Its failure record stays; see [`Queue::forget`].
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

    /// How often in a row `item` has failed; counts up to 65,535. client-go: `NumRequeues`.
    #[must_use]
    pub fn num_requeues(&self, item: &T) -> u32 {
        let hash = self.0.hash(item);
        self.0
            .update(true, |core, now, _| core.state.failures(hash, item, now))
    }

    /// How many items are ready to be handed out. Items that wait or are being worked on are not
    /// counted. client-go: `Len`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.catch_up();
        self.0.update(false, |core, _, _| core.state.ready.len())
    }

    /// Nothing is ready to be handed out.
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
