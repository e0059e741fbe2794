//! The events that are worth a reconcile.
//!
//! A predicate gets the whole event, old and new, so that an object leaving a selector is visible. Predicates that
//! compare the two let additions and deletions through (controller-runtime: package predicate).
//!
//! A [`Predicate`] is of one watch. A [`Filter`] reads metadata only, so that it applies to every kind: it is a
//! predicate of one watch too, and [`Builder::with_event_filter`](crate::controller::Builder::with_event_filter) makes
//! it one of all watches.
//!
//! # What lies between old and new
//! `old` is the last state that this controller got of the object, `new` is the state now. Other states in between may
//! be missing: a **second list** (reason [`Relist`](UpdateReason::Relist)), after a watch broke and the server had
//! dropped the events since, shows the last state only. The deletion of an object that had changed meanwhile keeps the
//! state that the controller got ([`seen`](Event::Deleted::seen)) beside the last one, and a condition is evaluated on
//! both: that an object left a selector and was deleted is seen.
//!
//! A controller that is behind misses nothing else: while more than 1,024 events wait for it, its cache waits, too
//! ([`Policy::Block`](reeve_informer::Policy::Block)). A reconcile may read an object before the event of it has come, so
//! the event of each state that the cache had comes later, and names the requests of that state.
//!
//! So A → B → A may come as A → A, which no predicate that compares lets through. Nothing is missed: a reconcile acts on
//! the state, and has seen this one. That is so for every *level-triggered* predicate: one that lets a change through
//! whenever the two states differ in what the reconcile reads, however many steps were in between. Comparisons
//! ([`generation_changed`] and its like), conditions on either state ([`labels`], [`object`], [`namespaces`]), and those
//! with [`or`] are.
//!
//! **[`not`] and [`and`] of comparisons are not.** `not(generation_changed())` is meant to let changes of the status
//! through. It refuses a change of the status and one of the spec that come as one update, whatever the status is.
//! Compare the needed fields instead: `|event| match event { Event::Updated { old, new, .. } => old.status !=
//! new.status, _ => true }`. Nor can a predicate count changes, or find that B existed.
//!
//! # What `generation_changed` does not see
//! * Kinds **without a generation** have no update at all for it: ConfigMap, Secret and others.
//! * Custom kinds without the status subresource count every change of the status, too.
//! * Labels, annotations, finalizers and owners have no generation: `or(generation_changed(), labels_changed())`.
//! * A **resync** shows the same generation again, and a status that another client spoilt has the same, too. Use
//!   [`Outcome::requeue_after`](crate::Outcome::requeue_after) for regular checks.

use std::fmt;

use kube_core::{ObjectMeta, Selector, SelectorExt};
use reeve_informer::{Event, ObjectKey, UpdateReason};

use crate::handler::Watched;

/// Decides whether an event of a watch is handled. It runs in the task of the kind's informer: return at once.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a predicate of events of `{K}`",
    label = "not a predicate",
    note = "a predicate is a function of `&Event<{K}>`; of an object, `predicate::object(function)`"
)]
pub trait Predicate<K>: Send + Sync + 'static {
    /// Whether `event` is handled.
    fn allows(&self, event: &Event<K>) -> bool;
}

impl<K, F> Predicate<K> for F
where
    F: Fn(&Event<K>) -> bool + Send + Sync + 'static,
{
    fn allows(&self, event: &Event<K>) -> bool {
        self(event)
    }
}

/// Decides whether an event of any kind is handled, by metadata alone.
pub trait Filter: Send + Sync + 'static {
    /// Whether `event` is handled.
    fn passes(&self, event: &MetaEvent<'_>) -> bool;
}

impl<F> Filter for F
where
    F: Fn(&MetaEvent<'_>) -> bool + Send + Sync + 'static,
{
    fn passes(&self, event: &MetaEvent<'_>) -> bool {
        self(event)
    }
}

/// A [`Filter`]'s view of an event.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum MetaEvent<'a> {
    /// An object exists.
    Added {
        /// The object.
        object: &'a ObjectMeta,
        /// It existed when the watch began.
        initial: bool,
    },
    /// An object changed, or is shown again.
    Updated {
        /// The state before.
        old: &'a ObjectMeta,
        /// The state now.
        new: &'a ObjectMeta,
        /// The reason of the event.
        reason: UpdateReason,
    },
    /// An object is gone.
    Deleted {
        /// Its key.
        key: &'a ObjectKey,
        /// Its last known state, if any.
        last: Option<&'a ObjectMeta>,
        /// The last state that this controller got, if known; older than `last` if the states in between were not
        /// delivered.
        seen: Option<&'a ObjectMeta>,
    },
}

// === impl MetaEvent ===

impl<'a> MetaEvent<'a> {
    /// The view of `event` for a filter.
    #[must_use]
    pub fn of<K: Watched>(event: &'a Event<K>) -> Self {
        match event {
            Event::Added { object, initial } => Self::Added {
                object: object.meta(),
                initial: *initial,
            },
            Event::Updated { old, new, reason } => Self::Updated {
                old: old.meta(),
                new: new.meta(),
                reason: *reason,
            },
            Event::Deleted {
                key, last, seen, ..
            } => Self::Deleted {
                key,
                last: last.as_ref().map(|last| last.meta()),
                seen: seen.as_ref().map(|seen| seen.meta()),
            },
        }
    }

    /// Whether `holds` is true of the object, before or after; true for a deleted object whose delivered state is
    /// unknown.
    pub fn any(&self, mut holds: impl FnMut(&ObjectMeta) -> bool) -> bool {
        match self {
            Self::Added { object, .. } => holds(object),
            Self::Updated { old, new, .. } => holds(old) || holds(new),
            Self::Deleted { last, seen, .. } => deleted_of(*seen, *last, holds),
        }
    }
}

/// Whether `holds` is true of either known state of a deleted object. The delivered state counts, since a reconcile may
/// have acted on it; so does the last one, which a reconcile may have read from the cache before its delivery. True if
/// the delivered state is unknown, whatever the last one: `holds` may have been true of it.
fn deleted_of<T>(seen: Option<T>, last: Option<T>, mut holds: impl FnMut(T) -> bool) -> bool {
    seen.is_none_or(&mut holds) || last.is_some_and(holds)
}

/// Events of objects whose labels satisfy a selector, before or after: an object that leaves the selector has one more
/// event, for undoing earlier work (controller-runtime's `LabelSelectorPredicate` checks the new object only).
///
/// ```
/// use kube_core::Expression;
/// use reeve_controller::predicate;
/// let mine = predicate::labels(Expression::Equal("app".into(), "shop".into()));
/// ```
#[must_use]
pub fn labels(selector: impl Into<Selector>) -> Labels {
    Labels(selector.into())
}

/// Events of objects in one of these namespaces; those without a namespace are in none.
#[must_use]
pub fn namespaces(names: impl IntoIterator<Item: Into<String>>) -> Namespaces {
    Namespaces(names.into_iter().map(Into::into).collect())
}

/// Events of objects for which `holds`, before or after; and of deleted ones whose delivered state is unknown
/// (controller-runtime: `NewPredicateFuncs`, which checks the new object only).
pub fn object<K: Watched>(
    holds: impl Fn(&K) -> bool + Send + Sync + 'static,
) -> impl Predicate<K> + 'static {
    move |event: &Event<K>| match event {
        Event::Added { object, .. } => holds(object),
        Event::Updated { old, new, .. } => holds(old) || holds(new),
        Event::Deleted { last, seen, .. } => deleted_of(seen.as_deref(), last.as_deref(), &holds),
    }
}

/// See [`labels`].
#[derive(Clone, Debug)]
pub struct Labels(Selector);

/// See [`namespaces`].
#[derive(Clone, Debug)]
pub struct Namespaces(std::collections::BTreeSet<String>);

// === impl Labels ===

impl Filter for Labels {
    fn passes(&self, event: &MetaEvent<'_>) -> bool {
        event.any(|meta| match &meta.labels {
            Some(labels) => self.0.matches(labels),
            None => self.0.matches(&std::collections::BTreeMap::new()),
        })
    }
}

impl<K: Watched> Predicate<K> for Labels {
    fn allows(&self, event: &Event<K>) -> bool {
        self.passes(&MetaEvent::of(event))
    }
}

// === impl Namespaces ===

impl Filter for Namespaces {
    fn passes(&self, event: &MetaEvent<'_>) -> bool {
        let namespace = match event {
            MetaEvent::Added { object: meta, .. } | MetaEvent::Updated { new: meta, .. } => {
                meta.namespace.as_deref()
            }
            MetaEvent::Deleted { key, .. } => key.namespace.as_deref(),
        };
        namespace.is_some_and(|namespace| self.0.contains(namespace))
    }
}

impl<K: Watched> Predicate<K> for Namespaces {
    fn allows(&self, event: &Event<K>) -> bool {
        self.passes(&MetaEvent::of(event))
    }
}

/// Updates that changed an aspect checked by this module; see the functions that make it.
#[derive(Clone, Copy, Debug)]
pub struct Changed(Aspect);

#[derive(Clone, Copy, Debug)]
enum Aspect {
    Generation,
    ResourceVersion,
    Labels,
    Annotations,
    Finalizers,
}

/// Updates of the spec: `metadata.generation` changed. Marking for deletion counts, because it changes it; status and
/// metadata do not. [Not for every kind](self#what-generation_changed-does-not-see).
#[must_use]
pub fn generation_changed() -> Changed {
    Changed(Aspect::Generation)
}

/// All updates but the resync, which shows the same version again.
#[must_use]
pub fn resource_version_changed() -> Changed {
    Changed(Aspect::ResourceVersion)
}

/// Updates of the labels.
#[must_use]
pub fn labels_changed() -> Changed {
    Changed(Aspect::Labels)
}

/// Updates of the annotations.
#[must_use]
pub fn annotations_changed() -> Changed {
    Changed(Aspect::Annotations)
}

/// Updates of the finalizers: a client removed one, for example.
#[must_use]
pub fn finalizers_changed() -> Changed {
    Changed(Aspect::Finalizers)
}

// === impl Changed ===

impl Filter for Changed {
    fn passes(&self, event: &MetaEvent<'_>) -> bool {
        match event {
            MetaEvent::Updated { old, new, .. } => self.0.differs(old, new),
            MetaEvent::Added { .. } | MetaEvent::Deleted { .. } => true,
        }
    }
}

impl<K: Watched> Predicate<K> for Changed {
    fn allows(&self, event: &Event<K>) -> bool {
        self.passes(&MetaEvent::of(event))
    }
}

impl Aspect {
    fn differs(self, old: &ObjectMeta, new: &ObjectMeta) -> bool {
        match self {
            Self::Generation => old.generation != new.generation,
            Self::ResourceVersion => old.resource_version != new.resource_version,
            Self::Labels => old.labels.iter().flatten().ne(new.labels.iter().flatten()),
            Self::Annotations => {
                let (old, new) = (old.annotations.iter(), new.annotations.iter());
                old.flatten().ne(new.flatten())
            }
            Self::Finalizers => {
                let (old, new) = (old.finalizers.iter(), new.finalizers.iter());
                old.flatten().ne(new.flatten())
            }
        }
    }
}

/// A closure as a predicate, with the types inferred.
pub fn function<K, F>(function: F) -> F
where
    F: Fn(&Event<K>) -> bool + Send + Sync + 'static,
{
    function
}

/// Both hold.
#[derive(Clone, Copy, Debug)]
pub struct And<A, B>(A, B);

/// One holds.
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B>(A, B);

/// It does not hold.
#[derive(Clone, Copy, Debug)]
pub struct Not<P>(P);

/// Events that both `one` and `other` allow. If both compare, changes [that come as one
/// update](self#what-lies-between-old-and-new) may pass that would not have passed one by one.
#[must_use]
pub fn and<A, B>(one: A, other: B) -> And<A, B> {
    And(one, other)
}

/// Events that `one` or `other` allows.
#[must_use]
pub fn or<A, B>(one: A, other: B) -> Or<A, B> {
    Or(one, other)
}

/// Events that `predicate` does not allow. If it compares, it [misses changes](self#what-lies-between-old-and-new) that
/// come together with others.
#[must_use]
pub fn not<P>(predicate: P) -> Not<P> {
    Not(predicate)
}

impl<K, A: Predicate<K>, B: Predicate<K>> Predicate<K> for And<A, B> {
    fn allows(&self, event: &Event<K>) -> bool {
        self.0.allows(event) && self.1.allows(event)
    }
}

impl<K, A: Predicate<K>, B: Predicate<K>> Predicate<K> for Or<A, B> {
    fn allows(&self, event: &Event<K>) -> bool {
        self.0.allows(event) || self.1.allows(event)
    }
}

impl<K, P: Predicate<K>> Predicate<K> for Not<P> {
    fn allows(&self, event: &Event<K>) -> bool {
        !self.0.allows(event)
    }
}

impl<A: Filter, B: Filter> Filter for And<A, B> {
    fn passes(&self, event: &MetaEvent<'_>) -> bool {
        self.0.passes(event) && self.1.passes(event)
    }
}

impl<A: Filter, B: Filter> Filter for Or<A, B> {
    fn passes(&self, event: &MetaEvent<'_>) -> bool {
        self.0.passes(event) || self.1.passes(event)
    }
}

impl<P: Filter> Filter for Not<P> {
    fn passes(&self, event: &MetaEvent<'_>) -> bool {
        !self.0.passes(event)
    }
}

impl fmt::Debug for dyn Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Filter")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube_core::Expression;

    use super::*;

    fn updated(change: impl FnOnce(&mut ObjectMeta)) -> Event<ConfigMap> {
        let mut old = ConfigMap::default();
        old.metadata.generation = Some(1);
        old.metadata.resource_version = Some("1".into());
        let mut new = old.clone();
        change(&mut new.metadata);
        Event::Updated {
            old: Arc::new(old),
            new: Arc::new(new),
            reason: UpdateReason::Changed,
        }
    }

    #[test]
    fn each_predicate_looks_at_its_own_part() {
        let same = updated(|_| {});
        let spec = updated(|meta| meta.generation = Some(2));
        let version = updated(|meta| meta.resource_version = Some("2".into()));
        let labels = updated(|meta| meta.labels = Some([("a".into(), "b".into())].into()));
        let notes = updated(|meta| meta.annotations = Some([("a".into(), "b".into())].into()));
        let empty = updated(|meta| meta.labels = Some([].into()));
        let finalizer = updated(|meta| meta.finalizers = Some(vec!["a/b".into()]));
        let events = [&same, &spec, &version, &labels, &notes, &empty, &finalizer];
        for (case, predicate, expected) in [
            ("generation", generation_changed(), [0, 1, 0, 0, 0, 0, 0]),
            ("version", resource_version_changed(), [0, 0, 1, 0, 0, 0, 0]),
            ("labels", labels_changed(), [0, 0, 0, 1, 0, 0, 0]),
            ("annotations", annotations_changed(), [0, 0, 0, 0, 1, 0, 0]),
            ("finalizers", finalizers_changed(), [0, 0, 0, 0, 0, 0, 1]),
        ] {
            let allowed = events.map(|event| i32::from(predicate.allows(event)));
            assert_eq!(allowed, expected, "{case}");
        }
    }

    #[test]
    fn combined_filters_and_predicates_allow_what_their_truth_table_says() {
        fn says(answer: bool) -> impl Fn(&MetaEvent<'_>) -> bool + Send + Sync + 'static {
            move |_| answer
        }
        fn shows(answer: bool) -> impl Fn(&Event<ConfigMap>) -> bool + Send + Sync + 'static {
            move |_| answer
        }
        let event = updated(|_| {});
        let meta = MetaEvent::of(&event);
        for (one, other) in [(false, false), (false, true), (true, false), (true, true)] {
            let case = format!("{one} {other}");
            let (both, either) = (one && other, one || other);
            assert_eq!(and(says(one), says(other)).passes(&meta), both, "{case}");
            assert_eq!(and(shows(one), shows(other)).allows(&event), both, "{case}");
            assert_eq!(or(says(one), says(other)).passes(&meta), either, "{case}");
            assert_eq!(
                or(shows(one), shows(other)).allows(&event),
                either,
                "{case}"
            );
            assert_eq!(not(says(one)).passes(&meta), !one, "{case}");
            assert_eq!(not(shows(one)).allows(&event), !one, "{case}");
        }
    }

    #[test]
    fn additions_and_deletions_always_pass() {
        let added = Event::Added {
            object: Arc::new(ConfigMap::default()),
            initial: true,
        };
        let deleted = Event::<ConfigMap>::Deleted {
            key: ObjectKey::cluster("a"),
            last: None,
            seen: None,
            tombstone: true,
        };
        assert!(generation_changed().allows(&added) && generation_changed().allows(&deleted));
    }

    #[test]
    fn predicates_combine() {
        let spec = updated(|meta| meta.generation = Some(2));
        let no = |_: &Event<ConfigMap>| false;
        assert!(!and(generation_changed(), no).allows(&spec));
        assert!(or(no, generation_changed()).allows(&spec));
        assert!(not(no).allows(&spec));
    }

    fn labelled(labels: &[(&str, &str)]) -> Arc<ConfigMap> {
        let mut object = ConfigMap::default();
        let labels = labels.iter();
        let labels = labels.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        object.metadata.labels = Some(labels.collect());
        Arc::new(object)
    }

    #[test]
    fn leaving_a_selector_is_seen() {
        let (inside, outside) = (labelled(&[("app", "shop")]), labelled(&[("app", "other")]));
        let undecodable = labelled(&[]);
        let added = |object: &Arc<ConfigMap>| Event::Added {
            object: Arc::clone(object),
            initial: false,
        };
        let update = |old: &Arc<ConfigMap>, new: &Arc<ConfigMap>| Event::Updated {
            old: Arc::clone(old),
            new: Arc::clone(new),
            reason: UpdateReason::Changed,
        };
        let merged =
            |seen: Option<&Arc<ConfigMap>>, last: Option<&Arc<ConfigMap>>| Event::Deleted {
                key: ObjectKey::cluster("a"),
                last: last.map(Arc::clone),
                seen: seen.map(Arc::clone),
                tombstone: last.is_none(),
            };
        let deleted = |last| merged(last, last);
        let by_label = labels(Expression::Equal("app".into(), "shop".into()));
        let by_object =
            object(|map: &ConfigMap| map.metadata.labels.as_ref().unwrap()["app"] == "shop");
        for (case, event, expected) in [
            ("added inside", added(&inside), true),
            ("added outside", added(&outside), false),
            ("enters", update(&outside, &inside), true),
            ("stays", update(&inside, &inside), true),
            ("leaves", update(&inside, &outside), true),
            ("stays outside", update(&outside, &outside), false),
            ("deleted inside", deleted(Some(&inside)), true),
            ("deleted outside", deleted(Some(&outside)), false),
            ("deleted, and nothing is known", deleted(None), true),
            (
                "leaves and is deleted, as one event",
                merged(Some(&inside), Some(&outside)),
                true,
            ),
            (
                "deleted outside, and what was shown is not known",
                merged(None, Some(&outside)),
                true,
            ),
            (
                "was shown, does not decode, leaves and is deleted",
                merged(Some(&undecodable), Some(&outside))
                    .filter_map(|object| (!Arc::ptr_eq(&object, &undecodable)).then_some(object))
                    .unwrap(),
                true,
            ),
            (
                "enters and is deleted, as one event",
                merged(Some(&outside), Some(&inside)),
                true,
            ),
        ] {
            assert_eq!(by_label.allows(&event), expected, "{case}");
            assert_eq!(by_object.allows(&event), expected, "{case}");
        }
        let unlabelled = added(&Arc::new(ConfigMap::default()));
        assert!(!by_label.allows(&unlabelled));
        assert!(labels(Expression::DoesNotExist("app".into())).allows(&unlabelled));
    }

    #[test]
    fn a_namespace_is_of_the_object_or_of_the_key_of_what_is_gone() {
        let mine = namespaces(["a", "b"]);
        let in_namespace = |namespace: Option<&str>| {
            let mut object = ConfigMap::default();
            object.metadata.namespace = namespace.map(ToOwned::to_owned);
            Event::Added {
                object: Arc::new(object),
                initial: false,
            }
        };
        let gone = |key| Event::<ConfigMap>::Deleted {
            key,
            last: None,
            seen: None,
            tombstone: true,
        };
        assert!(mine.allows(&in_namespace(Some("b"))));
        assert!(!mine.allows(&in_namespace(Some("c"))) && !mine.allows(&in_namespace(None)));
        assert!(mine.allows(&gone(ObjectKey::namespaced("a", "x"))));
        assert!(!mine.allows(&gone(ObjectKey::cluster("a"))));
    }
}
