//! Reviews that are cached, by digest.

use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// Entries of one cache.
const ENTRIES: usize = 4096;

/// The digest of a token, or of a question.
pub(super) type Key = [u8; 32];

/// Results of reviews, and until when each is used.
pub(super) struct Cache<V>(Mutex<LruCache<Key, (Instant, V)>>);

// === impl Cache ===

impl<V: Clone> Cache<V> {
    pub(super) fn new() -> Self {
        let most = NonZeroUsize::new(ENTRIES).unwrap_or(NonZeroUsize::MIN);
        Self(Mutex::new(LruCache::new(most)))
    }

    pub(super) fn get(&self, key: &Key) -> Option<V> {
        let mut cache = self.0.lock();
        let (until, value) = cache.get(key)?;
        if *until <= Instant::now() {
            cache.pop(key);
            return None;
        }
        Some(value.clone())
    }

    pub(super) fn put(&self, key: Key, value: V, ttl: Duration) {
        self.0.lock().put(key, (Instant::now() + ttl, value));
    }
}

/// A digest that differs for any two lists of parts.
pub(super) fn digest<'a>(parts: impl IntoIterator<Item = &'a str>) -> Key {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}
