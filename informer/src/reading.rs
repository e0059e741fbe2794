//! What the entries of one store share when they are decoded as they are read.

use std::any::Any;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use lru::LruCache;
use parking_lot::Mutex;

use crate::entry::ViewError;
use crate::key::KeyRef;
use crate::metrics::{Measurement, Recorder};

/// The objects that were decoded last, and where it is told that one cannot be.
#[derive(Default)]
pub(crate) struct Reading {
    decoded: Option<Mutex<LruCache<usize, Decoded>>>,
    unreadable: AtomicU64,
    recorder: Option<Recorder>,
}

/// An entry, found by its address, as its type.
struct Decoded {
    /// Keeps the address from being another entry's; the entry itself may go.
    _entry: Weak<dyn Any + Send + Sync>,
    typed: Arc<dyn Any + Send + Sync>,
}

// === impl Reading ===

impl Reading {
    /// Keeps the `capacity` objects that were read last.
    pub(crate) fn new(capacity: Option<NonZeroUsize>, recorder: Recorder) -> Self {
        Self {
            decoded: capacity.map(|capacity| Mutex::new(LruCache::new(capacity))),
            unreadable: AtomicU64::new(0),
            recorder: Some(recorder),
        }
    }

    /// `entry` as its type: as it was decoded before, or else by `decode`.
    pub(crate) fn decoded<E: Send + Sync + 'static, T: Send + Sync + 'static>(
        &self,
        entry: &Arc<E>,
        decode: impl FnOnce() -> Result<T, ViewError>,
    ) -> Result<Arc<T>, ViewError> {
        let Some(cache) = &self.decoded else {
            return decode().map(Arc::new);
        };
        let address = Arc::as_ptr(entry).addr();
        let known = cache
            .lock()
            .get(&address)
            .map(|known| Arc::clone(&known.typed));
        if let Some(typed) = known.and_then(|typed| typed.downcast().ok()) {
            return Ok(typed);
        }
        let typed = Arc::new(decode()?);
        let decoded = Decoded {
            _entry: Arc::downgrade(entry) as Weak<dyn Any + Send + Sync>,
            typed: Arc::clone(&typed) as Arc<dyn Any + Send + Sync>,
        };
        // What is pushed out is freed after the lock.
        let pushed_out = cache.lock().push(address, decoded);
        drop(pushed_out);
        Ok(typed)
    }

    /// How often that was told.
    pub(crate) fn unreadable_count(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }

    /// Tells that an object which is in the store cannot be decoded.
    pub(crate) fn unreadable(&self, key: KeyRef<'_>, error: &ViewError) {
        tracing::warn!(%key, %error, "an object in the store cannot be decoded by who reads it");
        self.unreadable.fetch_add(1, Ordering::Relaxed);
        if let Some(recorder) = &self.recorder {
            recorder.record(Measurement::Unreadable);
        }
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.decoded.as_ref().map(|decoded| decoded.lock().len());
        f.debug_struct("Reading")
            .field("decoded", &kept)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(capacity: usize) -> Reading {
        let recorder = Recorder::default();
        Reading::new(NonZeroUsize::new(capacity), recorder)
    }

    fn decode(reading: &Reading, entry: &Arc<String>) -> (Arc<usize>, bool) {
        let mut anew = false;
        let length = reading.decoded(entry, || {
            anew = true;
            Ok(entry.len())
        });
        (length.unwrap(), anew)
    }

    #[test]
    fn what_was_read_last_is_not_decoded_again_and_the_rest_is() {
        let entries = ["a", "bb", "ccc"].map(|text| Arc::new(text.to_owned()));
        let reading = reading(2);
        let (first, anew) = decode(&reading, &entries[0]);
        assert!(anew && *first == 1);
        let (second, anew) = decode(&reading, &entries[0]);
        assert!(!anew && Arc::ptr_eq(&first, &second));
        decode(&reading, &entries[1]);
        decode(&reading, &entries[2]);
        assert!(decode(&reading, &entries[0]).1, "it was pushed out");
        assert!(!decode(&reading, &entries[2]).1);
        assert_eq!(reading.decoded.as_ref().unwrap().lock().len(), 2);
    }

    #[test]
    fn an_entry_is_not_held_and_is_never_taken_for_another() {
        let reading = reading(100);
        for number in 0..1000 {
            // The allocator would give out the same address again and again.
            let entry = Arc::new("x".repeat(number));
            assert_eq!(*decode(&reading, &entry).0, number);
            let weak = Arc::downgrade(&entry);
            drop(entry);
            assert!(weak.upgrade().is_none());
        }
    }

    #[test]
    fn without_a_cache_each_read_decodes() {
        let (reading, entry) = (reading(0), Arc::new("a".to_owned()));
        assert!(decode(&reading, &entry).1 && decode(&reading, &entry).1);
    }

    #[test]
    fn what_does_not_decode_is_not_kept() {
        let (reading, entry) = (reading(1), Arc::new("a".to_owned()));
        let refused = || {
            Err::<usize, _>(ViewError::Undecodable {
                view: "type",
                error: "no".to_owned(),
            })
        };
        assert!(reading.decoded(&entry, refused).is_err());
        assert!(decode(&reading, &entry).1);
    }
}
