//! The kinds, places and forms of the cached objects.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use kube_core::{DynamicObject, GroupVersionKind, ObjectMeta};
use reeve_informer::{SkipPath, Stored};

use super::store::{Model, StoreForm};
use super::view::{Need, Shape, View};
use super::{Kind, OptionsError};
use crate::client::Object;
use reeve_clock::LONGEST;

/// The content of a manager's caches: which namespaces, which objects, how much of each, in which form. By default all
/// objects of every watched kind, as its type, without `managedFields`.
///
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
/// use reeve_controller::cache::{CacheOptions, KindOptions, Selected, StoreForm};
/// let options = CacheOptions::new()
///     // Namespaced kinds in these namespaces only, each with a watch of its own,
///     .in_namespace("red", Selected::new())
///     .in_namespace("blue", Selected::new().labels("tier=front"))
///     // and Secrets only where they are labelled,
///     .for_kind::<Secret>(KindOptions::new().labels("app=web"))
///     // ConfigMaps from everywhere, whatever the options above,
///     .for_kind::<ConfigMap>(KindOptions::new().in_every_namespace())
///     // and Pods, which are many, as their JSON without their status.
///     .for_kind::<Pod>(KindOptions::new().form(StoreForm::Compact).skip([".status".parse()?]));
/// # Ok::<(), reeve_informer::SkipPathError>(())
/// ```
///
/// # What counts
///
/// For one kind in one namespace, each of label selector, field selector, skipped paths and transform is taken from
/// the first of these that names it:
///
/// 1. the entry of the namespace in the kind's options ([`KindOptions::in_namespace`]);
/// 2. the kind's options;
/// 3. the entry of the namespace in these options ([`CacheOptions::in_namespace`]);
/// 4. these options.
///
/// An unset option is inherited; one set to all (`labels("")`, `fields("")`, `skip([])`, `no_transform`) is not. Form,
/// resync and decoded objects belong to the store of a kind, and are those of the kind's options, else of these.
///
/// The namespaces are those of the kind's options if they name any or set every one, else those of these options, else
/// every one. For a kind without namespaces those of these options are ignored, and those of its own are an error.
/// [`resolve`](super::resolve()) is the function; [`Caches::resolved`](super::Caches::resolved) returns the result.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct CacheOptions {
    pub(super) selected: Selected,
    pub(super) namespaces: Option<Namespaces>,
    pub(super) store: StoreOptions,
    pub(super) linger: Option<Duration>,
    pub(super) kinds: Vec<(Which, KindOptions)>,
}

/// The cache options of one kind; an unset option is that of all kinds. See [`CacheOptions`] for the precedence.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct KindOptions {
    pub(super) selected: Selected,
    pub(super) namespaces: Option<Namespaces>,
    pub(super) store: StoreOptions,
    pub(super) decoded: Option<NonZeroUsize>,
    pub(super) packed: bool,
}

/// The selected objects of a place, and the part of each; an unset option is inherited.
#[derive(Clone, Default)]
#[must_use]
pub struct Selected {
    pub(super) labels: Option<String>,
    pub(super) fields: Option<String>,
    pub(super) skip: Option<Vec<SkipPath>>,
    pub(super) transform: Option<Transform>,
}

/// The options of a kind's store as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StoreOptions {
    pub(super) form: Option<StoreForm>,
    pub(super) resync: Option<Option<Duration>>,
}

/// The namespaces of a kind, and the selection from each.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Namespaces {
    /// None, and no others, stands for every namespace watched as one.
    pub(super) named: BTreeMap<Arc<str>, Selected>,
    pub(super) others: Option<Selected>,
}

/// A kind that options are for.
#[derive(Clone, Debug)]
pub(super) enum Which {
    Typed(Kind),
    /// Whether it has namespaces is decided when it is watched.
    Named(GroupVersionKind),
}

/// Changes every object before it is stored.
#[derive(Clone)]
pub(super) enum Transform {
    /// Set to none.
    None,
    Metadata(Arc<dyn Fn(&mut ObjectMeta) + Send + Sync>),
    Typed(Typed),
}

/// A change of objects of one type, with the types of its store.
#[derive(Clone)]
pub(super) struct Typed {
    pub(super) model: Model,
    pub(super) need: Need,
    pub(super) function: Function,
}

/// Changes an object if it is of the type.
pub(super) type Function = Arc<dyn Fn(&mut dyn Stored) + Send + Sync>;

// === impl CacheOptions ===

impl CacheOptions {
    /// All of every kind that is watched.
    pub fn new() -> Self {
        Self::default()
    }

    /// Caches namespaced kinds in this namespace, with a watch of its own, and so only in those that are named. May be
    /// called many times (controller-runtime: `DefaultNamespaces`). [`Caches::namespaces`](super::Caches::namespaces)
    /// changes them at run time.
    pub fn in_namespace(mut self, name: impl Into<Arc<str>>, selected: Selected) -> Self {
        add_namespace(&mut self.namespaces, name.into(), selected);
        self
    }

    /// Caches namespaced kinds in all namespaces that are not named, too, with one watch that excludes the named ones
    /// by `metadata.namespace!=…` (controller-runtime: the key `AllNamespaces` of `DefaultNamespaces`).
    pub fn in_all_others(mut self, selected: Selected) -> Self {
        self.namespaces.get_or_insert_default().others = Some(selected);
        self
    }

    /// Label selector, field selector, skipped paths and transform of all kinds without their own.
    pub fn selected(mut self, selected: Selected) -> Self {
        self.selected = selected;
        self
    }

    /// The interval at which a handler without its own gets every object again, ±10 % at random for each kind, so that
    /// they do not all come at once. Default: never; zero is never, too (controller-runtime: `SyncPeriod`, 10 h).
    pub fn resync(mut self, period: Duration) -> Self {
        self.store.resync = Some((!period.is_zero()).then_some(period.min(LONGEST)));
        self
    }

    /// The form of the stored objects. Default: the type, or metadata where no view needs more.
    pub fn form(mut self, form: StoreForm) -> Self {
        self.store.form = Some(form);
        self
    }

    /// The time that an unused kind stays cached; default 30 s.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = Some(linger);
        self
    }

    /// The options of kind `K`. A second call replaces them (controller-runtime: `ByObject`).
    pub fn for_kind<K: Object>(self, options: KindOptions) -> Self {
        self.with(Which::Typed(Kind::of::<K>()), options)
    }

    /// The options of a kind known only when the program runs.
    pub fn for_gvk(self, gvk: GroupVersionKind, options: KindOptions) -> Self {
        self.with(Which::Named(gvk), options)
    }

    fn with(mut self, which: Which, options: KindOptions) -> Self {
        let gvk = which.gvk();
        self.kinds.retain(|(known, _)| known.gvk() != gvk);
        self.kinds.push((which, options));
        self
    }

    /// The options of a kind.
    pub(super) fn of(&self, kind: &Kind) -> Option<&KindOptions> {
        let gvk = kind.gvk();
        let mut kinds = self.kinds.iter();
        let (_, options) = kinds.find(|(which, _)| which.gvk() == gvk)?;
        Some(options)
    }

    /// The form set for a kind. A change of a type needs the type.
    pub(super) fn form_of(&self, kind: &Kind) -> Option<StoreForm> {
        let own = self.of(kind).and_then(|options| options.store.form);
        own.or_else(|| self.typed(kind).map(|_| StoreForm::Typed))
            .or(self.store.form)
    }

    /// The change of a type that is set for a kind.
    pub(super) fn typed(&self, kind: &Kind) -> Option<&Typed> {
        match &self.of(kind)?.selected.transform {
            Some(Transform::Typed(typed)) => Some(typed),
            _ => None,
        }
    }

    pub(super) fn resync_of(&self, kind: &Kind) -> Option<Duration> {
        let own = self.of(kind).and_then(|options| options.store.resync);
        own.or(self.store.resync).flatten()
    }

    /// The namespaces in the options of a kind: its own, else those for all.
    ///
    /// # Errors
    /// For namespaces of a kind that has none.
    pub(super) fn namespaces_of(&self, kind: &Kind) -> Result<Option<&Namespaces>, OptionsError> {
        let own = self
            .of(kind)
            .and_then(|options| options.namespaces.as_ref());
        if kind.is_namespaced() {
            return Ok(own.or(self.namespaces.as_ref()));
        }
        match own {
            Some(namespaces) if !namespaces.is_every() => Err(OptionsError::ClusterScoped {
                kind: kind.to_string(),
            }),
            _ => Ok(None),
        }
    }
}

// === impl KindOptions ===

impl KindOptions {
    /// As for all kinds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Caches the kind in this namespace, and so only in those named here, whatever the options for all kinds.
    pub fn in_namespace(mut self, name: impl Into<Arc<str>>, selected: Selected) -> Self {
        add_namespace(&mut self.namespaces, name.into(), selected);
        self
    }

    /// Caches the kind in all namespaces that are not named here, too. See [`CacheOptions::in_all_others`].
    pub fn in_all_others(mut self, selected: Selected) -> Self {
        self.namespaces.get_or_insert_default().others = Some(selected);
        self
    }

    /// Caches the kind in every namespace, as one, regardless of the options for all kinds (controller-runtime: an
    /// empty map `Namespaces`).
    pub fn in_every_namespace(mut self) -> Self {
        self.namespaces = Some(Namespaces::default());
        self
    }

    /// A label selector in kubectl's syntax; `""` selects all.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.selected = self.selected.labels(selector);
        self
    }

    /// A field selector in kubectl's syntax, of fields that the server supports for the kind; `""` selects all. With
    /// `metadata.namespace=x` alone, requests are for that namespace only.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.selected = self.selected.fields(selector);
        self
    }

    /// Skips these paths of every object, as bytes, before it is decoded.
    pub fn skip(mut self, paths: impl IntoIterator<Item = SkipPath>) -> Self {
        self.selected = self.selected.skip(paths);
        self
    }

    /// Changes the metadata of every object before it is stored. See [`Selected::transform_metadata`].
    pub fn transform_metadata(
        mut self,
        transform: impl Fn(&mut ObjectMeta) + Send + Sync + 'static,
    ) -> Self {
        self.selected = self.selected.transform_metadata(transform);
        self
    }

    /// Changes every object once before it is stored. The kind is stored as `K` then, so `K` has to be the type of
    /// [`CacheOptions::for_kind`], or [`DynamicObject`](kube_core::DynamicObject) through
    /// [`KindOptions::transform_dynamic`]. It must return the same for the same object, and should keep the name,
    /// namespace, uid, resourceVersion, labels and owners.
    pub fn transform<K: Object>(
        mut self,
        transform: impl Fn(&mut K) + Send + Sync + 'static,
    ) -> Self {
        let Shape { model, need, .. } = View::<K>::typed().shape;
        self.selected.transform = Some(Transform::Typed(Typed {
            model,
            need,
            function: function(transform),
        }));
        self
    }

    /// As [`KindOptions::transform`], for a kind without a Rust type.
    pub fn transform_dynamic(
        mut self,
        transform: impl Fn(&mut DynamicObject) + Send + Sync + 'static,
    ) -> Self {
        self.selected.transform = Some(Transform::Typed(Typed {
            model: Model::of::<DynamicObject>(),
            need: Need::Dynamic,
            function: function(transform),
        }));
        self
    }

    /// Changes no object of the kind, regardless of the options for all kinds.
    pub fn no_transform(mut self) -> Self {
        self.selected = self.selected.no_transform();
        self
    }

    /// The interval at which handlers get every object again. See [`CacheOptions::resync`].
    pub fn resync(mut self, period: Duration) -> Self {
        self.store.resync = Some((!period.is_zero()).then_some(period.min(LONGEST)));
        self
    }

    /// The form of the stored objects.
    pub fn form(mut self, form: StoreForm) -> Self {
        self.store.form = Some(form);
        self
    }

    /// For [`StoreForm::Compact`]: keeps the `objects` that were read last as their type. Default: none.
    pub fn cache_decoded(mut self, objects: NonZeroUsize) -> Self {
        self.decoded = Some(objects);
        self
    }

    /// For [`StoreForm::Compact`]: keeps what objects have in common once. Default: off. See
    /// [`reeve_informer::Builder::pack`].
    pub fn pack(mut self) -> Self {
        self.packed = true;
        self
    }
}

// === impl Selected ===

impl Selected {
    /// All as inherited.
    pub fn new() -> Self {
        Self::default()
    }

    /// A label selector in kubectl's syntax; `""` selects all.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// A field selector in kubectl's syntax, of fields that the server supports for the kind; `""` selects all.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    /// Skips these paths of every object, as bytes, before it is decoded. `.metadata.managedFields` always is skipped.
    pub fn skip(mut self, paths: impl IntoIterator<Item = SkipPath>) -> Self {
        self.skip = Some(paths.into_iter().collect());
        self
    }

    /// Changes the metadata of every object once before it is stored. It must return the same for the same object, and
    /// should keep the name, namespace, uid, resourceVersion, labels and owners. A kind stored as
    /// [`StoreForm::Compact`] cannot be changed, only skipped from.
    pub fn transform_metadata(
        mut self,
        transform: impl Fn(&mut ObjectMeta) + Send + Sync + 'static,
    ) -> Self {
        self.transform = Some(Transform::Metadata(Arc::new(transform)));
        self
    }

    /// Changes no object, in place of an inherited transform.
    pub fn no_transform(mut self) -> Self {
        self.transform = Some(Transform::None);
        self
    }
}

impl PartialEq for Selected {
    fn eq(&self, other: &Self) -> bool {
        (&self.labels, &self.fields, &self.skip, &self.transform)
            == (&other.labels, &other.fields, &other.skip, &other.transform)
    }
}

impl fmt::Debug for Selected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selected")
            .field("labels", &self.labels)
            .field("fields", &self.fields)
            .field("skip", &self.skip)
            .field("transform", &self.transform)
            .finish()
    }
}

// === impl Namespaces ===

impl Namespaces {
    /// Whether it is every namespace watched as one, without options for any.
    pub(super) fn is_every(&self) -> bool {
        self.named.is_empty() && self.others.is_none()
    }

    /// The options of the place: a namespace, or all others.
    pub(super) fn entry(&self, namespace: Option<&str>) -> Option<&Selected> {
        match namespace {
            Some(name) => self.named.get(name),
            None => self.others.as_ref(),
        }
    }
}

fn add_namespace(namespaces: &mut Option<Namespaces>, name: Arc<str>, selected: Selected) {
    let namespaces = namespaces.get_or_insert_default();
    namespaces.named.insert(name, selected);
}

// === impl Which ===

impl Which {
    pub(super) fn gvk(&self) -> GroupVersionKind {
        match self {
            Self::Typed(kind) => kind.gvk(),
            Self::Named(gvk) => gvk.clone(),
        }
    }
}

fn function<S: Stored>(transform: impl Fn(&mut S) + Send + Sync + 'static) -> Function {
    Arc::new(move |object| {
        if let Some(object) = object.cast_mut() {
            transform(object);
        }
    })
}

// === impl Transform ===

impl PartialEq for Transform {
    /// Functions are equal if they are identical.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (Self::Metadata(a), Self::Metadata(b)) => Arc::ptr_eq(a, b),
            (Self::Typed(a), Self::Typed(b)) => Arc::ptr_eq(&a.function, &b.function),
            _ => false,
        }
    }
}

impl fmt::Debug for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Metadata(_) => "of metadata",
            Self::Typed(_) => "of the type",
        })
    }
}
