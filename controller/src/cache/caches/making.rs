//! The users of each kind, and how its store is made, started and stopped.

use std::collections::BTreeSet;
use std::sync::Arc;

use reeve_clock::scaled;
use reeve_informer::{Event, HandlerOptions, NamespaceSet, Scope, Selection, Within};

use super::super::registration::Registration;
use super::super::resolve::place;
use super::super::slot::{Interest, Slot};
use super::super::store::{Making, Store, StoreForm};
use super::super::view::{Need, Shape};
use super::super::{CacheOptions, Kind, View, resolve};
use super::{CacheError, Caches};

// === impl Caches ===

impl Caches {
    /// Begins to use a kind: it is cached for as long as the returned value is held. If it is not `required`, readiness
    /// ignores that the server does not have the kind (yet, or any more).
    ///
    /// A controller calls this when it is added, and [`Caches::register`] when its workers start. In between the cache
    /// is filled. Before the start the needs of all users are collected, then the form of the store is decided.
    pub(crate) fn watch<V>(&self, view: &View<V>, required: bool) -> Result<Interest, CacheError> {
        self.watch_shape(&view.shape, required)
    }

    fn watch_shape(&self, view: &Shape, required: bool) -> Result<Interest, CacheError> {
        let options = &self.shared.options;
        options.validate_for(&view.kind)?;
        if options.form_of(&view.kind) == Some(StoreForm::Metadata) && view.need > Need::Metadata {
            return Err(CacheError::Form {
                kind: view.kind.to_string(),
            });
        }
        let typed = options.typed(&view.kind);
        if typed.is_some_and(|typed| view.need == Need::Typed && !view.reads(typed.model.id)) {
            return Err(CacheError::Transform {
                kind: view.kind.to_string(),
            });
        }
        let mut state = self.shared.state.lock();
        if state.removed {
            return Err(CacheError::Removed);
        }
        let slots = state.in_use();
        let of_kind = || slots.iter().filter(|slot| slot.kind.is(&view.kind));
        if let Some(slot) = of_kind().find(|slot| slot.absorb(view)) {
            return Ok(Interest::new(Arc::clone(slot), required));
        }
        if let Some(slot) = of_kind().next() {
            let store = slot.bare();
            if store.is_some_and(|store| store.form() == StoreForm::Metadata) {
                tracing::info!(
                    kind = %view.kind,
                    "kind is watched and stored twice: its store was made for metadata and cannot serve the new view; \
                     set the form of the kind to StoreForm::Compact or StoreForm::Typed in CacheOptions"
                );
            } else {
                tracing::info!(
                    kind = %view.kind,
                    "kind is watched and stored twice: its store is of another Rust type than the new view; use one \
                     Rust type for the kind, or dynamic views"
                );
            }
        }
        let slot = Arc::new(Slot::new(view, typed));
        state.slots.retain(|slot| slot.strong_count() > 0);
        state.slots.push(Arc::downgrade(&slot));
        let started = state.started;
        drop(state);
        if started {
            self.make(&slot);
        }
        Ok(Interest::new(slot, required))
    }

    /// Registers a handler with the store of `interest`, which is kept until the registration is dropped.
    pub(crate) fn register<V: 'static>(
        &self,
        interest: Interest,
        view: &View<V>,
        options: HandlerOptions,
        handler: impl Fn(Event<V>) + Send + Sync + 'static,
    ) -> Registration {
        let store = Arc::clone(self.make(interest.slot()));
        let handle = store.add_handler(view.handler_of(&store, handler), options);
        Registration::new(interest, store, handle)
    }

    /// The store of a slot. The call that makes it adds the indexes, and until then the store is not readable. Other
    /// calls do not wait for that, because they may come from the function of an index.
    pub(super) fn make<'a>(&self, slot: &'a Arc<Slot>) -> &'a Arc<Store> {
        if let Some(store) = slot.bare() {
            return store;
        }
        let mut state = self.shared.state.lock();
        // Another call may have been faster.
        if let Some(store) = slot.bare() {
            return store;
        }
        let namespaces = self.set_of(&mut state, &slot.kind);
        let options = &self.shared.options;
        let store = slot.make(options.form_of(&slot.kind), |model, form| {
            Store::make(
                model,
                &slot.kind,
                &self.making(&slot.kind, form, namespaces),
            )
        });
        // An index added or removed after this finds the store.
        let indexes = state.indexes.iter();
        let indexes = indexes.filter(|index| index.kind.is(&slot.kind));
        let indexes: Vec<_> = indexes.cloned().collect();
        let former = state.former_indexes.iter();
        let former = former.filter(|name| name.is_of_kind(&slot.kind));
        let former: Vec<_> = former.cloned().collect();
        drop(state);
        // Not under the lock: the functions are the user's, and a lingering informer is filled.
        self.add_indexes(store, indexes, &former);
        slot.mark_indexed();
        store
    }

    fn making(&self, kind: &Kind, form: StoreForm, namespaces: Option<NamespaceSet>) -> Making<'_> {
        let options = &self.shared.options;
        // The options were checked against the kind before the slot was made.
        let resolved = |options: &CacheOptions, kind: &Kind, scope: &Scope| {
            resolve(options, kind, scope, &BTreeSet::new()).unwrap_or_default()
        };
        let (all, of) = (options.clone(), kind.clone());
        let within = move |scope: &Scope| {
            // The scope was decided, and the informer reports the excluded namespaces.
            let place = place(&all, &of, scope, &BTreeSet::new()).unwrap_or_default();
            Within {
                labels: place.selection.labels,
                fields: place.selection.fields,
                skip: place.skip,
            }
        };
        let whole = resolved(options, kind, &Scope::Cluster);
        let jitter = 0.9 + 0.2 * self.shared.clock.random().unit();
        Making {
            factory: &self.shared.factory,
            form,
            selection: Selection {
                scope: Scope::Cluster,
                ..whole.selection
            },
            within: Arc::new(within),
            transforms: options.transforms_of(kind, namespaces.clone()),
            namespaces,
            resync: options.resync_of(kind).map(|period| scaled(period, jitter)),
            decoded: options.of(kind).and_then(|own| own.decoded),
            packed: options.of(kind).is_some_and(|own| own.packed),
        }
    }

    /// Starts the informers that have not started.
    pub(crate) fn start(&self) {
        self.shared.state.lock().started = true;
        for slot in self.slots() {
            self.make(&slot);
        }
        self.shared.factory.start();
    }

    /// Stops every informer, and waits for all of them.
    pub(crate) async fn stop(&self) {
        self.shared.factory.shutdown().await;
    }

    /// Stops every informer without waiting for it.
    pub(crate) fn abort(&self) {
        self.shared.factory.abort();
    }
}
