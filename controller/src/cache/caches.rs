//! The caches of a manager: one store for each kind, shared by all its controllers.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use kube_core::{DynamicObject, GroupVersionKind, ObjectMeta, PartialObjectMeta};
use parking_lot::Mutex;
use reeve_clock::Clock;
use reeve_informer::{
    Activity, CacheHealth, Event, HandlerOptions, InformerFactory, MetricsProvider, NamespaceSet,
    Scope, Selection, SharedInformer, WatchHealth, Within, indexer,
};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::options::Namespaces;
use super::registration::Registration;
use super::resolve::place;
use super::slot::{Interest, Slot};
use super::store::{Making, RowIndex, Store, StoreForm, scope_of};
use super::view::Need;
use super::{CacheOptions, Kind, Kinds, Lister, OptionsError, Resolved, View, resolve};
use crate::client::writes::{self, Effect, Standing, Write};
use crate::client::{self, Client, GroupKind, Object};

/// How often somebody who waits looks whether caches are filled.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// Of how many writes the server is asked at once what became of them.
const ASKS: usize = 8;
/// How long a cache that was filled may fail before readiness says so.
const TOLERATED: SignedDuration = SignedDuration::from_secs(30);

/// No cache holds this kind.
#[derive(Debug, thiserror::Error)]
#[error(
    "{kind} is not cached: watch it in a controller, or keep it with Caches::keep before the start"
)]
pub struct NotCached {
    /// The kind.
    pub kind: String,
}

/// A kind cannot be cached so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The options store less of the kind than is asked for.
    #[error(
        "the options store only metadata of {kind}, and all of it is asked for: store it as StoreForm::Typed or \
         StoreForm::Compact in CacheOptions, or watch its metadata"
    )]
    Form {
        /// The kind.
        kind: String,
    },
    /// The options do not fit the kind.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The options have a transform of another type.
    #[error(
        "the transform of {kind} in CacheOptions is of another Rust type than is asked for: use one type for the \
         kind, or transform_metadata"
    )]
    Transform {
        /// The kind.
        kind: String,
    },
    /// The options store the kind in another form than is asked for.
    #[error(
        "{kind} is stored as {form:?}: its informer is of another type; read it with Caches::lister"
    )]
    OtherForm {
        /// The kind.
        kind: String,
        /// How it is stored.
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
    /// Those of kinds that have none of their own.
    namespaces: NamespaceSet,
    kinds: Kinds,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// In the order they were asked for. Of a kind there are several only if no form serves all.
    slots: Vec<Weak<Slot>>,
    kept: Vec<Interest>,
    /// Of each kind, those that every store of it gets.
    indexes: Vec<Index>,
    /// The namespaces of kinds that have their own.
    sets: Vec<(Kind, NamespaceSet)>,
    started: bool,
}

#[derive(Clone)]
struct Index {
    kind: Kind,
    name: Arc<str>,
    /// `None` for the index of a label.
    function: Option<RowIndex>,
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
            }),
        }
    }

    /// The kinds that are known only at run time.
    #[must_use]
    pub fn kinds(&self) -> &Kinds {
        &self.shared.kinds
    }

    /// Caches a kind until [`Caches::release`], whoever else watches it: from the start, or if the manager runs, from
    /// now. Say it for what is read and not watched; saying it again is as saying it once.
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
    /// [`CacheError::Form`] if the options store less of the kind.
    pub fn keep<V: 'static>(&self, view: &View<V>) -> Result<Lister<V>, CacheError> {
        let interest = self.watch(view, true)?;
        let lister = Lister::new(Arc::clone(interest.slot()), view.clone());
        self.hold(interest);
        Ok(lister)
    }

    /// Keeps what is not kept.
    fn hold(&self, interest: Interest) {
        let mut state = self.shared.state.lock();
        let same = |kept: &Interest| Arc::ptr_eq(kept.slot(), interest.slot());
        if !state.kept.iter().any(same) {
            state.kept.push(interest);
        }
    }

    /// Lets go of what [`Caches::keep`] and [`Caches::informer`] hold of a kind. When no controller, handler or lister
    /// uses the kind any more, its informer stops after the linger, and its memory is free; who asks later has a new
    /// one (controller-runtime: `RemoveInformer`, which stops it for all).
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

    /// The informer itself of kind `K`, kept as by [`Caches::keep`], for what handlers and listers here do not offer.
    /// Its store is made now, so say it after all options.
    ///
    /// # Errors
    /// [`CacheError::OtherForm`] if the kind is not stored as `K`; it is not kept then.
    pub fn informer<K: Object>(&self) -> Result<SharedInformer<K>, CacheError> {
        let view = View::<K>::typed();
        let interest = self.watch(&view, true)?;
        let store = self.make(interest.slot());
        let informer = store.informer().downcast_ref::<SharedInformer<K>>();
        let informer = informer.cloned().ok_or_else(|| CacheError::OtherForm {
            kind: view.kind.to_string(),
            form: store.form(),
        })?;
        self.hold(interest);
        Ok(informer)
    }

    /// The namespaces of all kinds that are in namespaces and have none of their own in the options. Change them while
    /// the manager runs, and all these kinds follow, with their handlers: a namespace that comes is listed (until then
    /// reads of it, and of all, say [`ReadError::NotSynced`](super::ReadError)), of one that goes handlers are told
    /// that its objects are deleted. What the options say of a namespace holds for it whenever it comes.
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
        // A field selector may name one.
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

    /// What is cached of a kind in each place that is watched now, as the options come to it: what its lists and
    /// watches ask for.
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

    /// Whether the objects of a kind are stored as the server sends them, as far as the options tell: nothing is
    /// skipped, and nothing transformed, in any place.
    pub(crate) fn keeps_whole(&self, kind: &Kind) -> bool {
        let places = self.resolved(kind).unwrap_or_default();
        let whole = |place: &Resolved| place.skip.is_empty() && place.transform.is_none();
        places.iter().all(whole)
    }

    /// Reads of kind `K`.
    ///
    /// # Errors
    /// When nobody watches or keeps the kind: a read never begins to watch by itself.
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

    /// Reads of a kind that is known only at run time, from the [registry](Caches::kinds) or by its Rust type.
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
            .find(|slot| slot.kind.is(&view.kind) && slot.serves(view));
        match slot {
            Some(slot) => Ok(Lister::new(slot, view.clone())),
            None => Err(NotCached {
                kind: view.kind.to_string(),
            }),
        }
    }

    /// Adds an index, before or after the start: `function` names the values of each object, and
    /// [`Lister::by_index`] finds them. An index that is called as a field serves field selectors. It stays when the
    /// kind's informer is replaced (controller-runtime: `IndexField`).
    ///
    /// # Errors
    /// If the kind has an index of this name.
    pub fn add_index<V: 'static>(
        &self,
        view: &View<V>,
        name: impl Into<Arc<str>>,
        function: impl Fn(&V) -> Vec<Arc<str>> + Send + Sync + 'static,
    ) -> Result<(), indexer::Error> {
        let shown = view.clone();
        let function: RowIndex = Arc::new(move |row| {
            let mut values = Vec::new();
            shown
                .show(row, &mut |object| values = function(object))
                .map_err(|error| error.to_string())?;
            Ok(values)
        });
        self.index(Index {
            kind: view.kind.clone(),
            name: name.into(),
            function: Some(function),
        })
    }

    /// Adds an index of the values of a label, which label selectors use, before or after the start.
    ///
    /// # Errors
    /// If the kind has one already.
    pub fn add_label_index(
        &self,
        kind: &Kind,
        label: impl Into<Arc<str>>,
    ) -> Result<(), indexer::Error> {
        self.index(Index {
            kind: kind.clone(),
            name: label.into(),
            function: None,
        })
    }

    fn index(&self, index: Index) -> Result<(), indexer::Error> {
        let stores: Vec<_> = {
            let mut state = self.shared.state.lock();
            if state.indexes.iter().any(|known| known.is(&index)) {
                return Err(indexer::Error::Exists {
                    name: Arc::clone(&index.name),
                });
            }
            // A store that is made from now on gets it.
            state.indexes.push(index.clone());
            let slots = state.in_use().into_iter();
            let of_kind = slots.filter(|slot| slot.kind.is(&index.kind));
            of_kind.filter_map(|slot| slot.store().cloned()).collect()
        };
        // Not under the lock: the function is the user's, and is run for every object there is.
        for store in stores {
            if let Err(error) = index.add_to(&*store) {
                let mut state = self.shared.state.lock();
                state.indexes.retain(|known| !known.is(&index));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Tells `handler` of every change of a kind from now on, and first of every object there is. Dropping what is
    /// returned takes the handler away.
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

    /// How each cache is doing, in the order they were asked for.
    #[must_use]
    pub fn health(&self) -> Vec<CacheHealth> {
        let slots = self.slots();
        slots
            .iter()
            .filter_map(|slot| Some(slot.store()?.health()))
            .collect()
    }

    /// Whether every cache is filled and kept up to date. A failure shorter than 30 s is let pass, and so is a namespace
    /// that came to a filled cache less than 30 s ago, and a kind that the server does not have, if all who watch it can
    /// do without.
    ///
    /// # Errors
    /// A line for each that is not, with the cause.
    pub fn check(&self) -> Result<(), String> {
        let now = self.shared.clock.now();
        let mut problems = Vec::new();
        for slot in self.slots() {
            let Some(store) = slot.store() else {
                problems.push(format!("{}: not started", slot.kind));
                continue;
            };
            let health = store.health();
            if health.activity == Activity::Missing && !slot.is_required() {
                continue;
            }
            if health.activity == Activity::Stopped {
                // Whatever ended it: the store says the last it knew, for ever.
                problems.push(format!("{}: stopped", health.name));
                continue;
            }
            let failure = health.failure.as_ref();
            if is_late(&health, now)
                || failure.is_some_and(|failure| now.duration_since(failure.since) > TOLERATED)
            {
                problems.extend(health.trouble());
            }
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems.join("; "))
        }
    }

    /// Begins to use a kind: it is cached for as long as what is returned is held. If it is not `required`, readiness
    /// does not mind that the server does not have the kind (yet, or any more).
    ///
    /// This is what a controller calls when it is added; [`Caches::register`] when its workers start. In between the
    /// cache is filled, and before the start all who ask are heard before the form of the store is decided.
    pub(crate) fn watch<V>(&self, view: &View<V>, required: bool) -> Result<Interest, CacheError> {
        let options = &self.shared.options;
        options.validate_for(&view.kind)?;
        if options.form_of(&view.kind) == Some(StoreForm::Metadata) && view.need > Need::Metadata {
            return Err(CacheError::Form {
                kind: view.kind.to_string(),
            });
        }
        let typed = options.typed(&view.kind);
        if typed.is_some_and(|typed| view.need == Need::Typed && !view.reads(typed.model)) {
            return Err(CacheError::Transform {
                kind: view.kind.to_string(),
            });
        }
        let mut state = self.shared.state.lock();
        let slots = state.in_use();
        let of_kind = || slots.iter().filter(|slot| slot.kind.is(&view.kind));
        if let Some(slot) = of_kind().find(|slot| slot.absorb(view)) {
            return Ok(Interest::new(Arc::clone(slot), required));
        }
        if of_kind().next().is_some() {
            tracing::info!(
                kind = %view.kind,
                "watched and stored twice: what is stored already cannot give all that is asked for now. Name the \
                 form of the kind in CacheOptions, or use one Rust type for it, to have one store"
            );
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
        let view = view.clone();
        // The store holds the handler.
        let of = Arc::downgrade(&store);
        let shown = move |event: Event<dyn super::view::Row>| {
            let Some(store) = of.upgrade() else { return };
            // What does not decode is counted and logged by the store.
            if let Some(event) = event.filter_map(|row| view.of_store(&*store, row).ok()) {
                handler(event);
            }
        };
        let handle = store.add_handler(Box::new(shown), options);
        Registration::new(interest, store, handle)
    }

    /// The store of a slot.
    fn make<'a>(&self, slot: &'a Arc<Slot>) -> &'a Arc<dyn Store> {
        if let Some(store) = slot.store() {
            return store;
        }
        let mut state = self.shared.state.lock();
        let namespaces = self.set_of(&mut state, &slot.kind);
        let options = &self.shared.options;
        let store = slot.make(options.form_of(&slot.kind), |make, form| {
            make(&slot.kind, &self.making(&slot.kind, form, namespaces))
        });
        // An index that comes after these finds the store.
        let indexes = state.indexes.iter();
        let of_kind = indexes.filter(|index| index.kind.is(&slot.kind));
        let indexes: Vec<Index> = of_kind.cloned().collect();
        drop(state);
        // Not under the lock: the functions are the user's, and an informer that lingers is filled.
        for index in indexes {
            match index.add_to(&**store) {
                // It lingered with the index, or another who asks has added it.
                Ok(()) | Err(indexer::Error::Exists { .. }) => {}
                Err(error) => tracing::error!(kind = %slot.kind, %error, "an index is missing"),
            }
        }
        store
    }

    fn making(&self, kind: &Kind, form: StoreForm, namespaces: Option<NamespaceSet>) -> Making<'_> {
        let options = &self.shared.options;
        // That the options fit the kind was seen before the slot was made.
        let resolved = |options: &CacheOptions, kind: &Kind, scope: &Scope| {
            resolve(options, kind, scope, &BTreeSet::new()).unwrap_or_default()
        };
        let (all, of) = (options.clone(), kind.clone());
        let within = move |scope: &Scope| {
            // Where it watches was decided, and the informer says which namespaces are left out.
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
            resync: options.resync_of(kind).map(|period| period.mul_f64(jitter)),
            decoded: options.of(kind).and_then(|own| own.decoded),
        }
    }

    /// Those in use.
    pub(super) fn slots(&self) -> Vec<Arc<Slot>> {
        self.shared.state.lock().in_use()
    }

    /// Starts what has not started.
    pub(crate) fn start(&self) {
        self.shared.state.lock().started = true;
        for slot in self.slots() {
            self.make(&slot);
        }
        self.shared.factory.start();
    }

    /// Returns when every cache is filled, or is known to be failing, or `limit` is over. A kind that cannot be
    /// listed costs the controllers that read it, not the others.
    pub(crate) async fn settled(&self, limit: Duration) {
        let settled = async {
            loop {
                let slots = self.slots();
                let mut filling = slots
                    .iter()
                    .filter_map(|slot| slot.store())
                    .filter(|store| {
                        let health = store.health();
                        !health.synced && health.failure.is_none()
                    });
                let Some(store) = filling.next() else { return };
                // One after the other; looked at now and then, for it may begin to fail.
                if timeout(LOOK, store.synced()).await == Ok(false) {
                    sleep(LOOK).await;
                }
            }
        };
        let in_time = timeout(limit, settled).await.is_ok();
        if let Err(problems) = self.check() {
            tracing::warn!(in_time, problems, "going on without some caches");
        }
    }

    /// Stops every informer, and returns when they have.
    pub(crate) async fn stop(&self) {
        self.shared.factory.shutdown().await;
    }

    /// Stops every informer without waiting for it.
    pub(crate) fn abort(&self) {
        self.shared.factory.abort();
    }

    /// Whether anybody watches or keeps the kind.
    pub(crate) fn holds(&self, kind: &GroupKind) -> bool {
        let slots = self.slots();
        slots.iter().any(|slot| slot.kind.is_of_objects(kind))
    }

    /// Whether both are the same caches.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Whether an object is cached, as far as its kind and key tell.
    pub(crate) fn covers(&self, write: &Write) -> bool {
        self.holding(write)
            .iter()
            .any(|store| store.may_hold(&write.key))
    }

    /// Whether the caches show what `write` did; true for what is not cached, or not any more.
    pub(crate) fn has_seen(&self, write: &Write) -> bool {
        self.holding(write)
            .iter()
            .filter(|store| store.may_hold(&write.key))
            .all(|store| write.effect.is_seen(&seen(&**store, write)))
    }

    /// How the object of a write stands in the caches; `None` if none would hold it, or it is not known to be there.
    pub(crate) fn standing(&self, write: &Write) -> Option<Standing> {
        let holding = self.holding(write);
        let stores = holding.iter().filter(|store| store.may_hold(&write.key));
        stores
            .filter_map(|store| write.effect.standing(&seen(&**store, write)))
            .max()
    }

    /// Asks the server what became of a write whose answer was lost. `None` when it does not answer either.
    pub(crate) async fn ask(
        &self,
        client: &Client,
        write: &Write,
        limit: Duration,
    ) -> Option<Effect> {
        // Before the question: what is held later may have been made since.
        let held = self.held(write);
        match self.live(client, write, limit).await? {
            Ok(Some(meta)) => Some(Effect::of_written(&meta)),
            Ok(None) => Some(Effect::Absent { held }),
            Err(error) => {
                tracing::debug!(key = %write.key, %error, "a write may have happened; the server does not say");
                None
            }
        }
    }

    /// The uids of the object of a write in the caches.
    fn held(&self, write: &Write) -> Vec<Option<String>> {
        let holding = self.holding(write);
        let stores = holding.iter().filter(|store| store.may_hold(&write.key));
        stores
            .filter_map(|store| seen(&**store, write).object)
            .map(|(uid, _)| uid)
            .collect()
    }

    /// Asks the server, for several at once and until `deadline`, what became of those writes whose answers were lost,
    /// and puts that in their place. Writes to what is not cached are left alone.
    pub(crate) async fn ask_for_lost(
        &self,
        client: &Client,
        writes: impl IntoIterator<Item = &mut Write>,
        deadline: Instant,
    ) {
        let lost = writes
            .into_iter()
            .filter(|write| write.effect == Effect::Unknown && self.covers(write));
        let asking = stream::iter(lost).for_each_concurrent(ASKS, async |write| {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(effect) = self.ask(client, write, left).await {
                write.effect = effect;
            }
        });
        // What was answered by then is known.
        let _ = timeout_at(deadline, asking).await;
    }

    /// The object of a write as the server has it, within `limit` and 5 s. `None` if the kind is not cached.
    pub(crate) async fn live(
        &self,
        client: &Client,
        write: &Write,
        limit: Duration,
    ) -> Option<Result<Option<ObjectMeta>, client::Error>> {
        let slots = self.slots();
        let mut served = slots
            .iter()
            .filter(|slot| slot.kind.is_of_objects(&write.kind));
        let kind = &served.next()?.kind;
        // The note may be of a clone for another namespace, and it is no call of the program.
        let client = client
            .unbound()
            .with_deadline(limit.min(Duration::from_secs(5)));
        let live = client.dynamic_metadata(kind).get(&write.key).await;
        Some(client::optional(live).map(|live| live.map(|live| live.metadata)))
    }

    /// The stores of the objects of a write, in whatever version of the API.
    fn holding(&self, write: &Write) -> Vec<Arc<dyn Store>> {
        let slots = self.slots();
        slots
            .iter()
            .filter(|slot| slot.kind.is_of_objects(&write.kind))
            .filter_map(|slot| slot.store().cloned())
            .collect()
    }
}

/// Whether a cache is not filled that should be. One that was, and lists a namespace that came since, has a while.
fn is_late(health: &CacheHealth, now: Timestamp) -> bool {
    let since = |watch: &WatchHealth| watch.failure.as_ref().map_or(watch.since, |it| it.since);
    let mut unfilled = health.watches.iter().filter(|watch| !watch.synced);
    let late =
        !health.was_synced || unfilled.any(|watch| now.duration_since(since(watch)) > TOLERATED);
    !health.synced && late
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

/// What a store shows of the object of a write.
fn seen(store: &dyn Store, write: &Write) -> writes::View {
    // What happens in other namespaces says nothing of this one.
    let through = store.resource_version_in(&scope_of(&write.key));
    let object = store.get(write.key.as_ref());
    let object = object.and_then(|row| {
        let meta = row.metadata().ok()?;
        Some((meta.uid.clone(), meta.resource_version.clone()))
    });
    writes::View {
        object,
        through: (!through.is_empty()).then(|| through.as_str().to_owned()),
    }
}

impl State {
    fn in_use(&self) -> Vec<Arc<Slot>> {
        self.slots.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Index {
    /// Whether both are the index of one name, or of one label.
    fn is(&self, other: &Self) -> bool {
        self.kind.is(&other.kind)
            && self.name == other.name
            && self.function.is_none() == other.function.is_none()
    }

    fn add_to(&self, store: &dyn Store) -> Result<(), indexer::Error> {
        let name = Arc::clone(&self.name);
        match &self.function {
            Some(function) => store.add_index(name, Arc::clone(function)),
            None => store.add_label_index(name),
        }
    }
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caches")
            .field("factory", &self.shared.factory)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
