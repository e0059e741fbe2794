//! The cache that the entries of one store share when they are decoded on reading.

use std::any::Any;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use lru::LruCache;
use parking_lot::Mutex;

use super::view_error::ViewError;
use crate::metrics::{Measurement, Recorder};
use reeve_client::KeyRef;

/// The objects that were decoded last, and the count of those that could not be.
#[derive(Default)]
pub(crate) struct DecodeCache {
    decoded: Option<Mutex<LruCache<usize, Decoded>>>,
    unreadable: AtomicU64,
    recorder: Option<Recorder>,
}

/// An entry as its type, found by the address of the entry.
struct Decoded {
    /// Reserves the address; the entry itself may be dropped.
    _entry: Weak<dyn Any + Send + Sync>,
    typed: Arc<dyn Any + Send + Sync>,
}

// === impl DecodeCache ===

impl DecodeCache {
    /// Keeps the `capacity` objects that were read last.
    pub(crate) fn new(capacity: Option<NonZeroUsize>, recorder: Recorder) -> Self {
        Self {
            decoded: capacity.map(|capacity| Mutex::new(LruCache::new(capacity))),
            unreadable: AtomicU64::new(0),
            recorder: Some(recorder),
        }
    }

    /// `entry` as its type: from the cache, or else by `decode`.
    pub(crate) fn decoded<E: Send + Sync + 'static, T: Send + Sync + 'static>(
        &self,
        entry: &Arc<E>,
        decode: impl FnOnce() -> Result<T, ViewError>,
    ) -> Result<Arc<T>, ViewError> {
        if self.decoded.is_none() {
            return decode().map(Arc::new);
        }
        let address = Arc::as_ptr(entry).addr();
        if let Some(typed) = self.known(address).and_then(|typed| typed.downcast().ok()) {
            return Ok(typed);
        }
        let typed = Arc::new(decode()?);
        let _entry = Arc::downgrade(entry) as Weak<dyn Any + Send + Sync>;
        let kept = Arc::clone(&typed) as Arc<dyn Any + Send + Sync>;
        self.keep(
            address,
            Decoded {
                _entry,
                typed: kept,
            },
        );
        Ok(typed)
    }

    /// The object of the entry at `address`.
    fn known(&self, address: usize) -> Option<Arc<dyn Any + Send + Sync>> {
        let mut cache = self.decoded.as_ref()?.lock();
        cache.get(&address).map(|known| Arc::clone(&known.typed))
    }

    fn keep(&self, address: usize, decoded: Decoded) {
        let Some(cache) = &self.decoded else { return };
        // An evicted object is freed after the lock.
        let pushed_out = cache.lock().push(address, decoded);
        drop(pushed_out);
    }

    /// The number of objects that could not be decoded.
    pub(crate) fn unreadable_count(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }

    /// Counts and logs an object of the store that cannot be decoded.
    pub(crate) fn unreadable(&self, key: KeyRef<'_>, error: &ViewError) {
        tracing::warn!(%key, %error, "cannot decode an object of the store as its type");
        self.unreadable.fetch_add(1, Ordering::Relaxed);
        if let Some(recorder) = &self.recorder {
            recorder.record(Measurement::Unreadable);
        }
    }
}

impl fmt::Debug for DecodeCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.decoded.as_ref().map(|decoded| decoded.lock().len());
        f.debug_struct("DecodeCache")
            .field("decoded", &kept)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(capacity: usize) -> DecodeCache {
        let recorder = Recorder::default();
        DecodeCache::new(NonZeroUsize::new(capacity), recorder)
    }

    fn decode(cache: &DecodeCache, entry: &Arc<String>) -> (Arc<usize>, bool) {
        let mut decoded = false;
        let length = cache.decoded(entry, || {
            decoded = true;
            Ok(entry.len())
        });
        (length.unwrap(), decoded)
    }

    #[test]
    fn objects_that_were_read_last_are_not_decoded_again_and_the_rest_is() {
        let entries = ["a", "bb", "ccc"].map(|text| Arc::new(text.to_owned()));
        let cache = cache(2);
        let (first, decoded) = decode(&cache, &entries[0]);
        assert!(decoded && *first == 1);
        let (second, decoded) = decode(&cache, &entries[0]);
        assert!(!decoded && Arc::ptr_eq(&first, &second));
        decode(&cache, &entries[1]);
        decode(&cache, &entries[2]);
        assert!(decode(&cache, &entries[0]).1, "it was pushed out");
        assert!(!decode(&cache, &entries[2]).1);
        assert_eq!(cache.decoded.as_ref().unwrap().lock().len(), 2);
    }

    #[test]
    fn an_entry_is_not_held_and_is_never_taken_for_another() {
        let cache = cache(100);
        for number in 0..1000 {
            // The allocator may return the same address again and again.
            let entry = Arc::new("x".repeat(number));
            assert_eq!(*decode(&cache, &entry).0, number);
            let weak = Arc::downgrade(&entry);
            drop(entry);
            assert!(weak.upgrade().is_none());
        }
    }

    #[test]
    fn without_a_cache_each_read_decodes() {
        let (cache, entry) = (cache(0), Arc::new("a".to_owned()));
        assert!(decode(&cache, &entry).1 && decode(&cache, &entry).1);
    }

    #[test]
    fn an_object_that_does_not_decode_is_not_kept() {
        let (cache, entry) = (cache(1), Arc::new("a".to_owned()));
        let refused = || {
            Err::<usize, _>(ViewError::Undecodable {
                view: "type",
                error: "no".to_owned(),
            })
        };
        assert!(cache.decoded(&entry, refused).is_err());
        assert!(decode(&cache, &entry).1);
    }
}
