//! Forms of an object that can be made again: they live while they are used, and a while longer.
//!
//! The forms that were made last stay in memory up to a limit of this process, so that a writer that reads what it
//! has just written, and watchers of one event, do not make them again. All others are dropped with their last user.
//! They are kept in several parts, each with the forms of a few threads: memory is returned where it was taken.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Trees of values, up to 512 KiB, about the size of a core's cache. To read or to free a tree that has left the cache takes as long
/// as to parse it again: with 16 MiB of them, a write of a Pod of 4 KB took a tenth more processor time. An object of more than 5 KB
/// of JSON is parsed by each reader; a write holds the tree that it needs.
pub(super) static TREES: Keeper = Keeper::new(512 * 1024);
/// Bytes, such as frames, messages and rows, up to 16 MiB.
pub(super) static BYTES: Keeper = Keeper::new(16 * 1024 * 1024);

const PARTS: usize = 4;

/// Keeps forms without a user, for all servers of this process.
pub(super) struct Keeper {
    parts: [Mutex<Kept>; PARTS],
    /// Approximate size of a part.
    part_bytes: usize,
}

/// A form that is made on demand.
pub(super) struct Recent<T>(Mutex<Weak<T>>);

/// Forms that others make of an object, each under a key of a type of its own.
#[derive(Default)]
pub(super) struct Forms(Recent<Mutex<Vec<Arc<dyn Any + Send + Sync>>>>);

/// Maximum number of forms of one object.
const MAX_FORMS: usize = 32;

/// Forms in the order in which they were made.
struct Kept {
    forms: VecDeque<(Arc<dyn Any + Send + Sync>, usize)>,
    bytes: usize,
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The part of this thread.
    static PART: usize = THREADS.fetch_add(1, Ordering::Relaxed) % PARTS;
}

// === impl Recent ===

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Send + Sync + 'static> Recent<T> {
    /// The form, if it is in memory.
    pub(super) fn get(&self) -> Option<Arc<T>> {
        self.0.lock().upgrade()
    }

    /// The form, or an empty one, which lives as long as it is used.
    fn get_or_default(&self) -> Arc<T>
    where
        T: Default,
    {
        let mut form = self.0.lock();
        form.upgrade().unwrap_or_else(|| {
            let new = Arc::default();
            *form = Arc::downgrade(&new);
            new
        })
    }

    /// Sets the form, of about `weight` bytes, which `keeper` may keep.
    pub(super) fn set(&self, form: Arc<T>, weight: usize, keeper: &Keeper) {
        *self.0.lock() = Arc::downgrade(&form);
        keeper.keep(form, weight);
    }
}

// === impl Forms ===

impl Forms {
    /// The form under `key`. One thread makes it; others that need it meanwhile wait, so `make` must be short, and must not
    /// get the same form. `weight`: its approximate size in bytes.
    ///
    /// # Errors
    /// Of `make`; the next thread tries again.
    pub(super) fn get_or_make<K, V, E>(
        &self,
        key: K,
        make: impl FnOnce() -> Result<V, E>,
        weight: impl FnOnce(&V) -> usize,
    ) -> Result<V, E>
    where
        K: PartialEq + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
    {
        self.get_or_renew(key, |_| true, make, weight)
    }

    /// Like [`Forms::get_or_make`], but a form that is no longer `current` is made again.
    pub(super) fn get_or_renew<K, V, E>(
        &self,
        key: K,
        current: impl FnOnce(&V) -> bool,
        make: impl FnOnce() -> Result<V, E>,
        weight: impl FnOnce(&V) -> usize,
    ) -> Result<V, E>
    where
        K: PartialEq + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
    {
        let forms = self.0.get_or_default();
        let slot = slot::<K, V>(&mut forms.lock(), key);
        let mut form = slot.1.lock();
        if let Some(form) = form.as_ref().filter(|form| current(form)) {
            return Ok(form.clone());
        }
        let made = make()?;
        let renewed = form.replace(made.clone()).is_some();
        // The keeper may have these forms since the one before. It would count them twice.
        if !renewed || Arc::strong_count(&forms) == 1 {
            BYTES.keep(forms, weight(&made));
        }
        Ok(made)
    }

    #[cfg(test)]
    pub(super) fn hold(&self) -> Arc<dyn Any + Send + Sync> {
        self.0.get_or_default()
    }
}

/// A form, once it was made, and its key.
type Slot<K, V> = (K, Mutex<Option<V>>);

/// The slot of `key`, which is added if there is none.
fn slot<K, V>(forms: &mut Vec<Arc<dyn Any + Send + Sync>>, key: K) -> Arc<Slot<K, V>>
where
    K: PartialEq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let mut typed = forms
        .iter()
        .filter_map(|form| Arc::clone(form).downcast::<Slot<K, V>>().ok());
    if let Some(slot) = typed.find(|slot| slot.0 == key) {
        return slot;
    }
    if forms.len() >= MAX_FORMS {
        forms.remove(0);
    }
    let slot = Arc::new((key, Mutex::new(None)));
    forms.push(slot.clone());
    slot
}

// === impl Keeper ===

impl Keeper {
    const fn new(bytes: usize) -> Self {
        Self {
            parts: [const {
                Mutex::new(Kept {
                    forms: VecDeque::new(),
                    bytes: 0,
                })
            }; PARTS],
            part_bytes: bytes / PARTS,
        }
    }

    /// Keeps a form for a while.
    fn keep(&self, form: Arc<dyn Any + Send + Sync>, weight: usize) {
        let weight = weight + size_of::<(Arc<dyn Any>, usize)>();
        // One such form would take the place of all others.
        if weight > self.part_bytes / 4 {
            return;
        }
        let mut dropped = Vec::new();
        {
            let part = PART.try_with(|part| *part).unwrap_or(0);
            let mut kept = self.parts[part].lock();
            kept.bytes += weight;
            kept.forms.push_back((form, weight));
            while kept.bytes > self.part_bytes
                && let Some((form, weight)) = kept.forms.pop_front()
            {
                kept.bytes -= weight;
                dropped.push(form);
            }
        }
        // Large trees are dropped without the lock.
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn a_form_is_made_once_by_all_threads_and_again_after_an_error() {
        let forms = Forms::default();
        let made = AtomicUsize::new(0);
        let failed = forms.get_or_make(7_u8, || Err::<usize, _>("no"), |_| 1);
        assert_eq!(failed, Err("no"));
        let barrier = std::sync::Barrier::new(8);
        // Other tests keep forms, too.
        let _kept = forms.0.get_or_default();
        let make = || {
            // Others come meanwhile.
            (0..1_000).for_each(|_| std::thread::yield_now());
            Ok::<_, Infallible>(made.fetch_add(1, Ordering::Relaxed))
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    assert_eq!(forms.get_or_make(7_u8, make, |_| 1), Ok(0));
                });
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
        assert_eq!(
            forms.get_or_make(8_u8, make, |_| 1),
            Ok(1),
            "of another key"
        );
    }

    #[test]
    fn forms_stay_up_to_a_number_of_bytes_and_one_in_use_stays_longer() {
        static KEEPER: Keeper = Keeper::new(1 << 20);
        let recent: Vec<Recent<usize>> = (0..100).map(|_| Recent::default()).collect();
        let used = Arc::new(7);
        recent[0].set(used.clone(), 10, &KEEPER);
        for (number, one) in recent.iter().enumerate().skip(1) {
            one.set(Arc::new(number), KEEPER.part_bytes / 8, &KEEPER);
            assert_eq!(one.get().as_deref(), Some(&number));
        }
        let alive = recent.iter().filter(|one| one.get().is_some()).count();
        assert!((1..=9).contains(&alive), "{alive}");
        assert_eq!(recent[0].get().as_deref(), Some(&7));
        drop(used);
        assert!(recent[0].get().is_none());
    }
}
