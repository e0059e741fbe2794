//! The slot of a kind's store: its users, and the store once it is made.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::Kind;
use super::options::Typed;
use super::store::{Model, Store, StoreForm};
use super::view::{Need, Shape};

/// Until its store is made, it collects the needs of its users, so that the store serves them all. It lives as long as
/// it is used, and the informer of the store for a while longer.
pub(crate) struct Slot {
    pub(crate) kind: Kind,
    needs: Mutex<Needs>,
    store: OnceLock<Arc<Store>>,
    /// The store has the indexes of its kind, so it may be read.
    indexed: AtomicBool,
    made: watch::Sender<bool>,
    /// The number of users that require the kind.
    required: AtomicUsize,
}

/// The greatest need so far.
#[derive(Clone, Copy)]
struct Needs {
    need: Need,
    model: Model,
    /// The options set the type.
    fixed: bool,
}

/// The use of a kind by a controller or another user. The kind is cached for as long as it is held.
pub(crate) struct Interest {
    slot: Arc<Slot>,
    required: bool,
}

// === impl Slot ===

impl Slot {
    /// For a view; or for the type of the store, if the options set one.
    pub(super) fn new(view: &Shape, typed: Option<&Typed>) -> Self {
        let needs = typed.map_or_else(
            || Needs::of(view),
            |typed| Needs {
                need: typed.need,
                model: typed.model,
                fixed: true,
            },
        );
        Self {
            kind: view.kind.clone(),
            needs: Mutex::new(needs),
            store: OnceLock::new(),
            indexed: AtomicBool::new(false),
            made: watch::Sender::new(false),
            required: AtomicUsize::new(0),
        }
    }

    /// The store, once it is made and has its indexes.
    pub(super) fn store(&self) -> Option<&Arc<Store>> {
        let indexed = self.indexed.load(Ordering::Acquire);
        self.store.get().filter(|_| indexed)
    }

    /// The store, once it is made. It may still lack an index.
    pub(crate) fn bare(&self) -> Option<&Arc<Store>> {
        self.store.get()
    }

    /// Marks that the store has its indexes.
    pub(super) fn mark_indexed(&self) {
        self.indexed.store(true, Ordering::Release);
        self.made.send_replace(true);
    }

    /// Waits until the store is made and has its indexes.
    pub(super) async fn made(&self) -> Arc<Store> {
        let mut made = self.made.subscribe();
        loop {
            if let Some(store) = self.store() {
                return Arc::clone(store);
            }
            // The sender lives as long as `self`.
            let _ = made.changed().await;
        }
    }

    /// Whether the needs so far give the view, too.
    pub(super) fn serves(&self, view: &Shape) -> bool {
        match self.bare() {
            Some(store) => {
                let whole = store.form() != StoreForm::Metadata;
                match view.need {
                    Need::Metadata => true,
                    Need::Dynamic => whole,
                    Need::Typed => whole && view.reads(store.model()),
                }
            }
            None => {
                let needs = *self.needs.lock();
                needs.serves(view)
            }
        }
    }

    /// Extends the needs so that the store will give the view; false if that is impossible.
    pub(super) fn absorb(&self, view: &Shape) -> bool {
        if self.bare().is_some() {
            return self.serves(view);
        }
        let mut needs = self.needs.lock();
        if needs.fixed {
            return needs.serves(view);
        }
        if needs.need == Need::Typed && view.need == Need::Typed && needs.model.id != view.model.id
        {
            return false;
        }
        if view.need > needs.need {
            *needs = Needs::of(view);
        }
        true
    }

    /// Makes the store, unless it is made: in the form of `configured`, else in the least that serves. It is readable
    /// after [`Slot::mark_indexed`].
    pub(super) fn make(
        &self,
        configured: Option<StoreForm>,
        make: impl FnOnce(Model, StoreForm) -> Arc<Store>,
    ) -> &Arc<Store> {
        let needs = *self.needs.lock();
        self.store.get_or_init(|| {
            let form = configured.unwrap_or(match needs.need {
                Need::Metadata => StoreForm::Metadata,
                Need::Dynamic | Need::Typed => StoreForm::Typed,
            });
            make(needs.model, form)
        })
    }

    /// Whether a user requires the kind.
    pub(super) fn is_required(&self) -> bool {
        self.required.load(Ordering::Relaxed) > 0
    }
}

impl Needs {
    fn of(view: &Shape) -> Self {
        Self {
            need: view.need,
            model: view.model,
            fixed: false,
        }
    }

    /// Whether a store made now gives the view.
    fn serves(&self, view: &Shape) -> bool {
        match view.need {
            // As with the made store: any type can be read from a dynamic object.
            Need::Typed => self.need >= Need::Dynamic && view.reads(self.model.id),
            need => self.need >= need,
        }
    }
}

// === impl Interest ===

impl Interest {
    pub(super) fn new(slot: Arc<Slot>, required: bool) -> Self {
        slot.required
            .fetch_add(usize::from(required), Ordering::Relaxed);
        Self { slot, required }
    }

    pub(super) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }
}

impl Clone for Interest {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.slot), self.required)
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.slot
            .required
            .fetch_sub(usize::from(self.required), Ordering::Relaxed);
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interest")
            .field("kind", &self.slot.kind)
            .field("required", &self.required)
            .finish()
    }
}
