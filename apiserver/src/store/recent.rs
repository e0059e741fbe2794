//! Forms of an object that can be made again from its JSON: they live while they are used, and a while longer.
//!
//! The forms that were made last stay in memory up to [`KEPT_BYTES`] in this process, so that a writer that reads what it
//! has just written, and watchers of one event, do not make them again. All others are dropped with their last user.
//! They are kept in several parts, each with the forms of a few threads: memory is returned where it was taken.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Approximate size of the forms that are kept without a user, for all servers of this process.
const KEPT_BYTES: usize = 16 * 1024 * 1024;
/// Number of parts, and the size of each.
const PARTS: usize = 4;
const PART_BYTES: usize = KEPT_BYTES / PARTS;

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

static KEPT: [Mutex<Kept>; PARTS] = [const {
    Mutex::new(Kept {
        forms: VecDeque::new(),
        bytes: 0,
    })
}; PARTS];

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

    /// Sets the form, of about `weight` bytes.
    pub(super) fn set(&self, form: Arc<T>, weight: usize) {
        *self.0.lock() = Arc::downgrade(&form);
        keep(form, weight);
    }
}

// === impl Forms ===

impl Forms {
    /// The form under `key`, if it is in memory.
    pub(super) fn get<K, V>(&self, key: &K) -> Option<V>
    where
        K: PartialEq + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
    {
        let forms = self.0.get()?;
        let forms = forms.lock();
        let mut typed = forms
            .iter()
            .filter_map(|form| form.downcast_ref::<(K, V)>());
        typed
            .find(|(of, _)| of == key)
            .map(|(_, form)| form.clone())
    }

    /// Adds a form of about `weight` bytes.
    pub(super) fn add<K, V>(&self, key: K, form: V, weight: usize)
    where
        K: PartialEq + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
    {
        let forms = self.0.get().unwrap_or_default();
        {
            let mut forms = forms.lock();
            if forms.len() >= MAX_FORMS {
                forms.remove(0);
            }
            forms.push(Arc::new((key, form)));
        }
        self.0.set(forms, weight);
    }
}

/// Keeps a form for a while.
fn keep(form: Arc<dyn Any + Send + Sync>, weight: usize) {
    let weight = weight + size_of::<(Arc<dyn Any>, usize)>();
    // One such form would take the place of all others.
    if weight > PART_BYTES / 4 {
        return;
    }
    let mut dropped = Vec::new();
    {
        let part = PART.try_with(|part| *part).unwrap_or(0);
        let mut kept = KEPT[part].lock();
        kept.bytes += weight;
        kept.forms.push_back((form, weight));
        while kept.bytes > PART_BYTES
            && let Some((form, weight)) = kept.forms.pop_front()
        {
            kept.bytes -= weight;
            dropped.push(form);
        }
    }
    // Large trees are dropped without the lock.
    drop(dropped);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_stay_up_to_a_number_of_bytes_and_one_in_use_stays_longer() {
        let recent: Vec<Recent<usize>> = (0..100).map(|_| Recent::default()).collect();
        let used = Arc::new(7);
        recent[0].set(used.clone(), 10);
        for (number, one) in recent.iter().enumerate().skip(1) {
            one.set(Arc::new(number), PART_BYTES / 8);
            assert_eq!(one.get().as_deref(), Some(&number));
        }
        // Other tests keep forms, too.
        let alive = recent.iter().filter(|one| one.get().is_some()).count();
        assert!((1..=9).contains(&alive), "{alive}");
        assert_eq!(recent[0].get().as_deref(), Some(&7));
        drop(used);
        assert!(recent[0].get().is_none());
    }
}
