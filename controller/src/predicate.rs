//! Which events are worth a reconcile.
//!
//! A predicate sees the whole event, old and new, so that an object leaving a selector is visible. The ones that
//! ask what changed let additions and deletions through (controller-runtime: package predicate).

use kube_core::ObjectMeta;
use reeve_informer::Event;

use crate::client::Object;

/// Says whether an event is handled.
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

/// Updates that changed something a predicate of this module looks at; see the functions that make it.
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

/// Updates of the spec: `metadata.generation` changed. Marking for deletion counts, for it does change it; status
/// and metadata do not.
#[must_use]
pub fn generation_changed() -> Changed {
    Changed(Aspect::Generation)
}

/// Updates of anything: not the resync, which shows the same version again.
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

/// Updates of the finalizers: somebody stripped one, say.
#[must_use]
pub fn finalizers_changed() -> Changed {
    Changed(Aspect::Finalizers)
}

// === impl Changed ===

impl<K: Object> Predicate<K> for Changed {
    fn allows(&self, event: &Event<K>) -> bool {
        match event {
            Event::Updated { old, new, .. } => self.0.differs(old.meta(), new.meta()),
            Event::Added { .. } | Event::Deleted { .. } => true,
        }
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

/// Events that both `one` and `other` allow.
#[must_use]
pub fn and<A, B>(one: A, other: B) -> And<A, B> {
    And(one, other)
}

/// Events that `one` or `other` allows.
#[must_use]
pub fn or<A, B>(one: A, other: B) -> Or<A, B> {
    Or(one, other)
}

/// Events that `predicate` does not allow.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;
    use reeve_informer::{ObjectKey, UpdateReason};

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
    fn additions_and_deletions_always_pass() {
        let added = Event::Added {
            object: Arc::new(ConfigMap::default()),
            initial: true,
        };
        let deleted = Event::<ConfigMap>::Deleted {
            key: ObjectKey::cluster("a"),
            last: None,
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
}
