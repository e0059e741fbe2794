//! A place for the store of a kind: who asked for it, and the store once it is made.

use std::any::TypeId;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::options::Typed;
use super::store::{Make, Store, StoreForm};
use super::view::Need;
use super::{Kind, View};

/// Until its store is made, it gathers what those who ask need; the store is made to serve them all. It lives as long
/// as somebody uses it, and the informer of the store for a while longer.
pub(super) struct Slot {
    pub(super) kind: Kind,
    asked: Mutex<Asked>,
    store: OnceLock<Arc<dyn Store>>,
    /// The store has the indexes of its kind, so it may be read.
    indexed: AtomicBool,
    made: watch::Sender<bool>,
    /// How many cannot do without.
    required: AtomicUsize,
}

/// The most that was asked for.
#[derive(Clone, Copy)]
struct Asked {
    need: Need,
    model: TypeId,
    make: Make,
    /// The options say the type.
    fixed: bool,
}

/// The use of a kind by one controller or other. The kind is cached for as long as it is held.
pub(crate) struct Interest {
    slot: Arc<Slot>,
    required: bool,
}

// === impl Slot ===

impl Slot {
    /// For a view; or, if the options say of which type the store has to be, for that.
    pub(super) fn new<V>(view: &View<V>, typed: Option<&Typed>) -> Self {
        let asked = typed.map_or_else(
            || Asked::of(view),
            |typed| Asked {
                need: typed.need,
                model: typed.model,
                make: typed.make,
                fixed: true,
            },
        );
        Self {
            kind: view.kind.clone(),
            asked: Mutex::new(asked),
            store: OnceLock::new(),
            indexed: AtomicBool::new(false),
            made: watch::Sender::new(false),
            required: AtomicUsize::new(0),
        }
    }

    /// The store, once it is made and has its indexes.
    pub(super) fn store(&self) -> Option<&Arc<dyn Store>> {
        let indexed = self.indexed.load(Ordering::Acquire);
        self.store.get().filter(|_| indexed)
    }

    /// The store, once it is made. An index may be missing still.
    pub(super) fn bare(&self) -> Option<&Arc<dyn Store>> {
        self.store.get()
    }

    /// The store has its indexes.
    pub(super) fn mark_indexed(&self) {
        self.indexed.store(true, Ordering::Release);
        self.made.send_replace(true);
    }

    /// Waits for the store to be made, and to have its indexes.
    pub(super) async fn made(&self) -> Arc<dyn Store> {
        let mut made = self.made.subscribe();
        loop {
            if let Some(store) = self.store() {
                return Arc::clone(store);
            }
            // The sender lives as long as `self`.
            let _ = made.changed().await;
        }
    }

    /// Whether what was asked for so far gives the view, too.
    pub(super) fn serves<V>(&self, view: &View<V>) -> bool {
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
                let asked = *self.asked.lock();
                asked.serves(view)
            }
        }
    }

    /// Sees to it that the store that is made will give the view; false if that cannot be.
    pub(super) fn absorb<V>(&self, view: &View<V>) -> bool {
        if self.bare().is_some() {
            return self.serves(view);
        }
        let mut asked = self.asked.lock();
        if asked.fixed {
            return asked.serves(view);
        }
        if asked.need == Need::Typed && view.need == Need::Typed && asked.model != view.model {
            return false;
        }
        if view.need > asked.need {
            *asked = Asked::of(view);
        }
        true
    }

    /// Makes the store, unless it is made: in the form that `configured` names, else in the least that serves. It is
    /// shown when [`Slot::mark_indexed`] is said.
    pub(super) fn make(
        &self,
        configured: Option<StoreForm>,
        make: impl FnOnce(Make, StoreForm) -> Arc<dyn Store>,
    ) -> &Arc<dyn Store> {
        let asked = *self.asked.lock();
        self.store.get_or_init(|| {
            let form = configured.unwrap_or(match asked.need {
                Need::Metadata => StoreForm::Metadata,
                Need::Dynamic | Need::Typed => StoreForm::Typed,
            });
            make(asked.make, form)
        })
    }

    /// Whether somebody cannot do without the kind.
    pub(super) fn is_required(&self) -> bool {
        self.required.load(Ordering::Relaxed) > 0
    }
}

impl Asked {
    fn of<V>(view: &View<V>) -> Self {
        Self {
            need: view.need,
            model: view.model,
            make: view.make,
            fixed: false,
        }
    }

    /// Whether a store that is made now gives the view.
    fn serves<V>(&self, view: &View<V>) -> bool {
        match view.need {
            // As of the store that is made: of a dynamic object any type can be read.
            Need::Typed => self.need >= Need::Dynamic && view.reads(self.model),
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
