//! Addresses that were written a moment ago.
//!
//! An address is remembered for no longer than its ban lasts: an alert after the end has to ban again.

use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::target::Target;

/// Remembers the last addresses, each for a while. When full, the one not seen for longest goes first.
#[derive(Debug)]
pub(super) struct Debounce {
    window: Duration,
    seen: Mutex<LruCache<Target, Seen>>,
}

/// What is remembered of an address.
#[derive(Debug)]
struct Seen {
    until: Instant,
    /// The longest ban that an alert has asked for since. A longer one is no repeat.
    ban: Duration,
}

// === impl Debounce ===

impl Debounce {
    pub(super) fn new(window: Duration, entries: usize) -> Self {
        let entries = NonZeroUsize::new(entries).unwrap_or(NonZeroUsize::MIN);
        Self {
            window,
            seen: Mutex::new(LruCache::new(entries)),
        }
    }

    /// Whether a ban of `target` for at least as long as `ban` was remembered less than a window ago.
    pub(super) fn is_recent(&self, target: &Target, ban: Duration) -> bool {
        let mut seen = self.seen.lock();
        match seen.get(target) {
            Some(entry) if Instant::now() < entry.until => ban <= entry.ban,
            Some(_) => {
                seen.pop(target);
                false
            }
            None => false,
        }
    }

    /// Remembers `target`, whose ban was requested for `ban`. Called only when its object is written.
    pub(super) fn remember(&self, target: Target, ban: Duration) {
        let until = Instant::now() + self.window.min(ban);
        self.seen.lock().put(target, Seen { until, ban });
    }

    /// An alert for `ban` has changed nothing: within the window of an earlier one it is not asked about again.
    pub(super) fn changed_nothing(&self, target: &Target, ban: Duration) {
        if let Some(entry) = self.seen.lock().get_mut(target) {
            entry.ban = entry.ban.max(ban);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn target(last: u8) -> Target {
        Target::host([192, 0, 2, last].into())
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_is_recent_for_the_window_and_not_longer() {
        let debounce = Debounce::new(Duration::from_secs(60), 10);
        assert!(!debounce.is_recent(&target(1), SECOND));
        debounce.remember(target(1), Duration::from_secs(3600));
        tokio::time::advance(Duration::from_millis(59_999)).await;
        assert!(
            debounce.is_recent(&target(1), SECOND),
            "a check does not prolong it"
        );
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!debounce.is_recent(&target(1), SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_is_not_recent_any_more_when_its_ban_is_over() {
        let debounce = Debounce::new(Duration::from_secs(60), 10);
        debounce.remember(target(1), Duration::from_secs(5));
        tokio::time::advance(Duration::from_millis(4_999)).await;
        assert!(debounce.is_recent(&target(1), SECOND));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!debounce.is_recent(&target(1), SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_goes_when_it_is_full() {
        let debounce = Debounce::new(Duration::from_secs(60), 2);
        for last in [1, 2, 3] {
            debounce.remember(target(last), Duration::from_secs(3600));
        }
        assert!(!debounce.is_recent(&target(1), SECOND));
        assert!(debounce.is_recent(&target(2), SECOND) && debounce.is_recent(&target(3), SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn a_longer_ban_is_no_repeat_until_it_was_asked_for_too() {
        let debounce = Debounce::new(60 * SECOND, 10);
        debounce.changed_nothing(&target(1), 3600 * SECOND);
        assert!(
            !debounce.is_recent(&target(1), SECOND),
            "nothing is written"
        );
        debounce.remember(target(1), 600 * SECOND);
        assert!(debounce.is_recent(&target(1), 600 * SECOND));
        assert!(!debounce.is_recent(&target(1), 601 * SECOND));
        tokio::time::advance(30 * SECOND).await;
        debounce.changed_nothing(&target(1), 3600 * SECOND);
        assert!(debounce.is_recent(&target(1), 3600 * SECOND));
        debounce.changed_nothing(&target(1), 60 * SECOND);
        assert!(debounce.is_recent(&target(1), 3600 * SECOND));
        tokio::time::advance(30 * SECOND).await;
        assert!(
            !debounce.is_recent(&target(1), SECOND),
            "the window is not prolonged"
        );
    }
}
