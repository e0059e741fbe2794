//! The caches of a manager: one store for each kind, shared by all its controllers.

mod budget;
mod indexes;
mod making;
mod readiness;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use kube_core::{DynamicObject, GroupVersionKind, PartialObjectMeta};
use parking_lot::Mutex;
use reeve_clock::Clock;
use reeve_informer::{
    Event, HandlerOptions, InformerFactory, MetricsProvider, NamespaceSet, Scope, SharedInformer,
    Stored,
};

use super::options::Namespaces;
use super::registration::Registration;
use super::resolve::place;
use super::slot::{Interest, Slot};
use super::store::StoreForm;
use super::{CacheOptions, Kind, Kinds, Lister, OptionsError, Resolved, View, resolve};
use crate::client::Object;
pub(crate) use budget::{Budget, LONGEST_PAUSE, Rank};
use indexes::Index;
pub use indexes::IndexError;

/// The pause between two checks whether caches are filled.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// No cache holds this kind.
#[derive(Debug, thiserror::Error)]
#[error("{kind} is not cached: watch it in a controller, or keep it with Caches::keep")]
pub struct NotCached {
    /// The kind.
    pub kind: String,
}

/// A kind cannot be cached in this form.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The options store less of the kind than is requested.
    #[error(
        "the options store only metadata of {kind}, but all of it is requested: store it as StoreForm::Typed or \
         StoreForm::Compact in CacheOptions, or watch its metadata"
    )]
    Form {
        /// The kind.
        kind: String,
    },
    /// The caches are those of a cluster that was removed.
    #[error("the cluster was removed from the manager; add it again and use the new one")]
    Removed,
    /// The options do not fit the kind.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The options have a transform of another type.
    #[error(
        "the transform of {kind} in CacheOptions is of another Rust type than requested: use one type for the \
         kind, or transform_metadata"
    )]
    Transform {
        /// The kind.
        kind: String,
    },
    /// The options store the kind in another form than requested.
    #[error(
        "{kind} is stored as {form:?}: its informer is of another type; read it with Caches::lister"
    )]
    OtherForm {
        /// The kind.
        kind: String,
        /// The stored form.
        form: StoreForm,
    },
}

/// The caches of one manager. Cheap to clone; clones are the same caches.
#[derive(Clone)]
pub struct Caches {
    shared: Arc<Shared>,
}

struct Shared {
    factory: InformerFactory,
    clock: Clock,
    options: CacheOptions,
    /// The namespaces of kinds without their own.
    namespaces: NamespaceSet,
    kinds: Kinds,
    state: Mutex<State>,
    /// The line of the live reads for own writes.
    questions: Budget,
}

#[derive(Default)]
struct State {
    /// In the order of their first use. A kind has several only if no form serves all views.
    slots: Vec<Weak<Slot>>,
    kept: Vec<Interest>,
    /// The indexes that every store of a kind gets.
    indexes: Vec<Index>,
    /// The names of indexes that were removed: an informer that is not in use may still have them.
    former_indexes: Vec<indexes::Name>,
    /// The namespaces of kinds that have their own.
    sets: Vec<(Kind, NamespaceSet)>,
    started: bool,
    /// The cluster was removed.
    removed: bool,
}

// === impl Caches ===

impl Caches {
    pub(crate) fn new(
        client: kube_client::Client,
        clock: Clock,
        options: CacheOptions,
        metrics: Arc<dyn MetricsProvider>,
    ) -> Self {
        let mut factory = InformerFactory::builder(client)
            .clock(clock.clone())
            .metrics(metrics);
        if let Some(linger) = options.linger {
            factory = factory.linger(linger);
        }
        let factory = factory.build();
        Self {
            shared: Arc::new(Shared {
                factory,
                clock,
                namespaces: set_of(options.namespaces.as_ref()),
                options,
                kinds: Kinds::default(),
                state: Mutex::default(),
                questions: Budget::default(),
            }),
        }
    }

    /// The kinds known only at run time.
    #[must_use]
    pub fn kinds(&self) -> &Kinds {
        &self.shared.kinds
    }

    /// Caches a kind until [`Caches::release`], independent of other watches: from the start, or if the manager runs,
    /// from now. Use it for kinds that are read and not watched; a second call changes nothing.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Node;
    /// # use reeve_controller::{Manager, cache::View};
    /// # fn example(manager: &Manager) -> Result<(), Box<dyn std::error::Error>> {
    /// let nodes = manager.caches().keep(&View::<Node>::typed())?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`CacheError::Form`] if the options store less of the kind, [`CacheError::Removed`] if the cluster was removed.
    pub fn keep<V: 'static>(&self, view: &View<V>) -> Result<Lister<V>, CacheError> {
        let interest = self.watch(view, true)?;
        let lister = Lister::new(Arc::clone(interest.slot()), view.clone());
        self.hold(interest);
        Ok(lister)
    }

    /// Keeps the kind, unless it is kept already.
    fn hold(&self, interest: Interest) {
        let mut state = self.shared.state.lock();
        let same = |kept: &Interest| Arc::ptr_eq(kept.slot(), interest.slot());
        if !state.kept.iter().any(same) {
            state.kept.push(interest);
        }
    }

    /// Drops the holds of [`Caches::keep`] and [`Caches::informer`] on a kind. When no controller, handler or lister
    /// uses the kind any more, its informer stops after the linger and frees its memory; later users get a new informer
    /// (controller-runtime: `RemoveInformer`, which stops it for all).
    pub fn release(&self, kind: &Kind) {
        let released: Vec<Interest> = {
            let mut state = self.shared.state.lock();
            let (released, kept) = std::mem::take(&mut state.kept)
                .into_iter()
                .partition(|kept| kept.slot().kind.is(kind));
            state.kept = kept;
            released
        };
        drop(released);
    }

    /// The informer of kind `K`, kept as by [`Caches::keep`], for features that handlers and listers do not offer. Its
    /// store is made now, so set all options before. Each object is a `K`: `cast` returns it.
    ///
    /// # Errors
    /// [`CacheError::OtherForm`] if the kind is not stored as `K`; it is not kept then.
    pub fn informer<K: Object>(&self) -> Result<SharedInformer<dyn Stored>, CacheError> {
        let view = View::<K>::typed();
        let interest = self.watch(&view, true)?;
        let store = self.make(interest.slot());
        if !store.holds::<K>() {
            return Err(CacheError::OtherForm {
                kind: view.kind().to_string(),
                form: store.form(),
            });
        }
        let informer = store.informer().clone();
        self.hold(interest);
        Ok(informer)
    }

    /// The namespaces of all kinds that are in namespaces and have none of their own in the options. They can change
    /// while the manager runs, and all these kinds follow, with their handlers: a new namespace is listed (until then
    /// reads of it, and of all, return [`ReadError::NotSynced`](super::ReadError)); when one is removed, handlers get
    /// the deletion of its objects. The options for a namespace hold whenever it is added.
    #[must_use]
    pub fn namespaces(&self) -> &NamespaceSet {
        &self.shared.namespaces
    }

    /// The namespaces of a kind, to change them as by [`Caches::namespaces`]: its own if the options name any, else
    /// those of all; `None` for a kind without namespaces.
    #[must_use]
    pub fn namespaces_of(&self, kind: &Kind) -> Option<NamespaceSet> {
        let mut state = self.shared.state.lock();
        self.set_of(&mut state, kind)
    }

    fn set_of(&self, state: &mut State, kind: &Kind) -> Option<NamespaceSet> {
        if !kind.is_namespaced() {
            return None;
        }
        if let Some((_, set)) = state.sets.iter().find(|(known, _)| known.is(kind)) {
            return Some(set.clone());
        }
        let options = &self.shared.options;
        let own = options.of(kind).and_then(|own| own.namespaces.as_ref());
        // A field selector may name a namespace.
        let whole = resolve(options, kind, &Scope::Cluster, &BTreeSet::new());
        let named = match whole.ok()?.selection.scope {
            Scope::Namespace(name) => Some(name),
            Scope::Cluster => None,
        };
        let default = options.namespaces.as_ref();
        let every = own.or(default).is_none_or(Namespaces::is_every);
        let set = match (named.filter(|_| every), own) {
            (Some(name), _) => NamespaceSet::new([name]),
            (None, Some(own)) => set_of(Some(own)),
            (None, None) => return Some(self.shared.namespaces.clone()),
        };
        state.sets.push((kind.clone(), set.clone()));
        Some(set)
    }

    /// The cached selection of a kind in each place that is watched now, as the options resolve: the parameters of its
    /// lists and watches.
    ///
    /// # Errors
    /// [`OptionsError`] for options that do not fit the kind.
    pub fn resolved(&self, kind: &Kind) -> Result<Vec<Resolved>, OptionsError> {
        let options = &self.shared.options;
        let none = BTreeSet::new();
        let Some(set) = self.namespaces_of(kind) else {
            return Ok(vec![resolve(options, kind, &Scope::Cluster, &none)?]);
        };
        let named: BTreeSet<Arc<str>> = set.names().unwrap_or_default().into_iter().collect();
        let mut places = Vec::with_capacity(named.len() + 1);
        for name in &named {
            let scope = Scope::Namespace(Arc::clone(name));
            places.push(resolve(options, kind, &scope, &none)?);
        }
        if set.has_others() {
            places.push(place(options, kind, &Scope::Cluster, &named)?);
        }
        Ok(places)
    }

    /// Whether the objects of a kind are stored as the server sends them, according to the options: nothing is skipped,
    /// and nothing transformed, in any place.
    pub(crate) fn keeps_whole(&self, kind: &Kind) -> bool {
        let places = self.resolved(kind).unwrap_or_default();
        let whole = |place: &Resolved| place.skip.is_empty() && place.transform.is_none();
        places.iter().all(whole)
    }

    /// Reads of kind `K`.
    ///
    /// # Errors
    /// When the kind is neither watched nor kept: a read never begins to watch by itself.
    pub fn lister<K: Object>(&self) -> Result<Lister<K>, NotCached> {
        self.view(&View::typed())
    }

    /// Reads of the metadata of kind `K`.
    ///
    /// # Errors
    /// As [`Caches::lister`].
    pub fn metadata<K: Object>(&self) -> Result<Lister<PartialObjectMeta<K>>, NotCached> {
        self.view(&View::<PartialObjectMeta<K>>::metadata())
    }

    /// Reads of a kind known only at run time, from the [registry](Caches::kinds) or by its Rust type.
    ///
    /// # Errors
    /// As [`Caches::lister`].
    pub fn dynamic(&self, gvk: &GroupVersionKind) -> Result<Lister<DynamicObject>, NotCached> {
        let known = self.shared.kinds.get(gvk).or_else(|| {
            let slots = self.slots();
            let slot = slots.iter().find(|slot| slot.kind.gvk() == *gvk)?;
            Some(slot.kind.clone())
        });
        let kind = known.ok_or_else(|| NotCached {
            kind: format!("{} ({})", gvk.kind, gvk.api_version()),
        })?;
        self.view(&View::dynamic(&kind))
    }

    /// Reads through a view.
    ///
    /// # Errors
    /// As [`Caches::lister`].
    pub fn view<V: 'static>(&self, view: &View<V>) -> Result<Lister<V>, NotCached> {
        let slots = self.slots();
        let slot = slots
            .into_iter()
            .find(|slot| slot.kind.is(view.kind()) && slot.serves(&view.shape));
        match slot {
            Some(slot) => Ok(Lister::new(slot, view.clone())),
            None => Err(NotCached {
                kind: view.kind().to_string(),
            }),
        }
    }

    /// Calls `handler` with every change of a kind from now on, and first with every existing object. Dropping the
    /// returned value removes the handler.
    ///
    /// # Errors
    /// As [`Caches::keep`].
    pub fn add_handler<V: 'static>(
        &self,
        view: &View<V>,
        name: &str,
        handler: impl Fn(Event<V>) + Send + Sync + 'static,
    ) -> Result<Registration, CacheError> {
        let interest = self.watch(view, true)?;
        Ok(self.register(interest, view, HandlerOptions::new().name(name), handler))
    }

    /// Refuses further kinds: the cluster is being removed.
    pub(crate) fn mark_removed(&self) {
        self.shared.state.lock().removed = true;
    }

    /// # Errors
    /// [`CacheError::Removed`] after [`Caches::mark_removed`].
    pub(crate) fn check_removed(&self) -> Result<(), CacheError> {
        if self.shared.state.lock().removed {
            return Err(CacheError::Removed);
        }
        Ok(())
    }

    /// The line of the live reads from the server.
    pub(crate) fn questions(&self) -> &Budget {
        &self.shared.questions
    }

    /// The slots in use.
    pub(crate) fn slots(&self) -> Vec<Arc<Slot>> {
        self.shared.state.lock().in_use()
    }

    /// Counts those of its stores that still exist, even when these caches are gone.
    #[cfg(test)]
    pub(crate) fn stores_left(&self) -> impl Fn() -> usize + 'static {
        let slots = self.slots();
        let stores = slots.iter().filter_map(|slot| slot.bare());
        let stores: Vec<_> = stores.map(Arc::downgrade).collect();
        move || {
            stores
                .iter()
                .filter(|store| store.strong_count() > 0)
                .count()
        }
    }

    /// Whether both are the same caches.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

/// The set of the namespaces that options name.
fn set_of(namespaces: Option<&Namespaces>) -> NamespaceSet {
    match namespaces {
        None => NamespaceSet::all(),
        Some(namespaces) if namespaces.is_every() => NamespaceSet::all(),
        Some(Namespaces { named, others }) => {
            let names = named.keys().cloned();
            match others {
                Some(_) => NamespaceSet::with_others(names),
                None => NamespaceSet::new(names),
            }
        }
    }
}

// === impl State ===

impl State {
    fn in_use(&self) -> Vec<Arc<Slot>> {
        self.slots.iter().filter_map(Weak::upgrade).collect()
    }
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caches")
            .field("factory", &self.shared.factory)
            .finish_non_exhaustive()
    }
}
