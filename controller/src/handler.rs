//! From events to requests.
//!
//! A handler only names requests; the controller adds them to its queue, those of the initial list and of a
//! resync at [`LOW_PRIORITY`] unless the handler has [another priority](Handler::priority) (controller-runtime: package
//! handler).

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::Resource;
use reeve_informer::{Event, ObjectKey, UpdateReason};
use reeve_workqueue::{LOW_PRIORITY, Reason};

use crate::cache::Kind;
use crate::client::{Object, key_of};
use crate::owner::group_of;
use crate::reconcile::Request;

/// An object as handlers and predicates see it: a Rust type of a kind, a `PartialObjectMeta`, a `DynamicObject`.
#[diagnostic::on_unimplemented(
    message = "there is no watched kind here: `{Self}` is not a Kubernetes object",
    label = "not a watched kind",
    note = "predicates and options of a watch come after it: `for_kind`, `owns` or `watches` first"
)]
pub trait Watched: Resource + Send + Sync + 'static {}

#[diagnostic::do_not_recommend]
impl<K: Resource + Send + Sync + 'static> Watched for K {}

/// Names the requests for an event.
///
/// It runs in the task of the kind's informer, as predicates do: its duration delays the cache. Reading other caches is
/// quick; do not wait in it.
///
/// A handler that panics gets the event again after 1 s, 4 s, 16 s, 64 s and 256 s. If the last try panics too, the event is
/// lost, and the request comes with the next event of the object or with a
/// [resync](crate::cache::KindOptions::resync), which is off by default. So are events beyond 1,024 that wait. A predicate
/// that panics lets the event through. Each panic is logged with the object's key, and counted in
/// `reeve_controller_watch_panics_total`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of events of `{K}` that makes requests of the type `{R}`",
    label = "not a handler",
    note = "a function of an object becomes one with `handler::map(function)`"
)]
pub trait Handler<K: Watched, R = Request>: Send + Sync + 'static {
    /// Calls `request` with each request. It may name one twice; the queue holds it once.
    fn requests(&self, event: &Event<K>, request: &mut dyn FnMut(R));

    /// The reason of the requests for `event`, which reconcilers read in [`Context::reasons`](crate::Context::reasons).
    /// By default the change of the event's object; for the owners of that object, [`Reason::Owner`].
    fn reason(&self, event: &Event<K>) -> Reason {
        match event {
            Event::Added { .. } => Reason::Added,
            Event::Updated { .. } if is_unchanged(event) => Reason::Resync,
            Event::Updated { .. } => Reason::Changed,
            Event::Deleted { .. } => Reason::Deleted,
        }
    }

    /// The delay of the requests for `event`, so that several events are one request: none by default. A request that is
    /// ready, or due earlier, keeps its time. [`Builder::min_interval`](crate::controller::Builder::min_interval) handles
    /// the first event at once instead.
    fn delay(&self, event: &Event<K>) -> Duration {
        let _ = event;
        Duration::ZERO
    }

    /// The priority of the requests for `event`; `None` is 0. By default [`LOW_PRIORITY`] for an event without news:
    /// the initial list, a resync, the same version again (controller-runtime: `WithLowPriorityWhenUnchanged`).
    ///
    /// A request that waits already takes the higher of its priorities.
    fn priority(&self, event: &Event<K>) -> Option<i32> {
        is_unchanged(event).then_some(LOW_PRIORITY)
    }
}

/// Requests the object itself.
#[derive(Clone, Copy, Debug)]
pub struct ForObject;

/// Requests the object itself (controller-runtime: `EnqueueRequestForObject`).
#[must_use]
pub fn for_object() -> ForObject {
    ForObject
}

impl<K: Watched> Handler<K> for ForObject {
    fn requests(&self, event: &Event<K>, request: &mut dyn FnMut(Request)) {
        request(match event {
            Event::Added { object, .. } => key_of(object.meta()),
            Event::Updated { new, .. } => key_of(new.meta()),
            Event::Deleted { key, .. } => key.clone(),
        });
    }
}

/// Requests the owners of a kind.
#[derive(Clone, Debug)]
pub struct ForOwner {
    every: bool,
    owner: Kind,
}

/// Requests the owner of kind `O` that controls the object; for an update, the old and the new one, and for a deletion
/// the one last delivered and the last one (controller-runtime: `EnqueueRequestForOwner` with `OnlyControllerOwner`).
///
/// Group and kind of the owner reference must match, its version need not.
#[must_use]
pub fn for_owner<O: Object>() -> ForOwner {
    for_owner_of(&Kind::of::<O>())
}

/// As [`for_owner`], for a kind that may be known only when the program runs.
#[must_use]
pub fn for_owner_of(owner: &Kind) -> ForOwner {
    ForOwner {
        every: false,
        owner: owner.clone(),
    }
}

// === impl ForOwner ===

impl ForOwner {
    /// Requests every owner of the kind, not only the controller of the object (controller-runtime: `MatchEveryOwner`).
    #[must_use]
    pub fn every_owner(mut self) -> Self {
        self.every = true;
        self
    }

    fn owners<K: Watched>(&self, object: &K, request: &mut dyn FnMut(Request)) {
        let references = object.meta().owner_references.iter().flatten();
        let wanted = references
            .filter(|reference| self.every || reference.controller == Some(true))
            .filter(|reference| is_of_kind(reference, &self.owner));
        for reference in wanted {
            let namespace = object.meta().namespace.as_deref();
            request(match namespace {
                Some(namespace) if self.owner.is_namespaced() => {
                    ObjectKey::namespaced(namespace, reference.name.as_str())
                }
                _ => ObjectKey::cluster(reference.name.as_str()),
            });
        }
    }
}

fn is_of_kind(reference: &OwnerReference, kind: &Kind) -> bool {
    let resource = kind.resource();
    let group = group_of(&reference.api_version);
    reference.kind == resource.kind && group == Some(resource.group.as_str())
}

impl<K: Watched> Handler<K> for ForOwner {
    fn requests(&self, event: &Event<K>, request: &mut dyn FnMut(Request)) {
        for_each_state(event, |object| self.owners(object, request));
    }

    fn reason(&self, _: &Event<K>) -> Reason {
        Reason::Owner
    }
}

/// Delays the requests of another handler.
#[derive(Clone, Copy, Debug)]
pub struct Delayed<H> {
    delay: Duration,
    handler: H,
}

/// The requests of `handler`, each after `delay`: the events of that time are one request (kube-rs:
/// `Config::debounce`, which starts again with each event; here the first event sets the time).
///
/// ```
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use reeve_controller::prelude::*;
///
/// # fn builder() -> impl Sized {
/// Controller::builder("report")
///     .for_kind::<ConfigMap>()
///     .watches::<Secret>(handler::delayed(Duration::from_secs(5), handler::for_owner::<ConfigMap>()))
/// # }
/// # drop(builder());
/// ```
#[must_use]
pub fn delayed<H>(delay: Duration, handler: H) -> Delayed<H> {
    Delayed { delay, handler }
}

impl<K: Watched, R, H: Handler<K, R>> Handler<K, R> for Delayed<H> {
    fn requests(&self, event: &Event<K>, request: &mut dyn FnMut(R)) {
        self.handler.requests(event, request);
    }

    fn reason(&self, event: &Event<K>) -> Reason {
        self.handler.reason(event)
    }

    fn delay(&self, event: &Event<K>) -> Duration {
        self.delay.max(self.handler.delay(event))
    }

    fn priority(&self, event: &Event<K>) -> Option<i32> {
        self.handler.priority(event)
    }
}

/// Gives the requests of another handler a priority.
#[derive(Clone, Copy, Debug)]
pub struct Prioritized<H> {
    priority: i32,
    handler: H,
}

/// The requests of `handler`, at `priority` if the event has news: an object that was added, changed or deleted. The initial
/// list and a resync keep the priority that `handler` has for them, [`LOW_PRIORITY`] by default, so that a change after a restart
/// still goes first. Other requests have 0, and a higher number goes first.
///
/// A request that waits already takes the higher of its priorities.
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use reeve_controller::prelude::*;
///
/// # fn builder() -> impl Sized {
/// Controller::builder("report")
///     .for_kind::<ConfigMap>()
///     .watches::<Secret>(handler::prioritized(10, handler::for_owner::<ConfigMap>()))
/// # }
/// # drop(builder());
/// ```
#[must_use]
pub fn prioritized<H>(priority: i32, handler: H) -> Prioritized<H> {
    Prioritized { priority, handler }
}

impl<K: Watched, R, H: Handler<K, R>> Handler<K, R> for Prioritized<H> {
    fn requests(&self, event: &Event<K>, request: &mut dyn FnMut(R)) {
        self.handler.requests(event, request);
    }

    fn reason(&self, event: &Event<K>) -> Reason {
        self.handler.reason(event)
    }

    fn delay(&self, event: &Event<K>) -> Duration {
        self.handler.delay(event)
    }

    fn priority(&self, event: &Event<K>) -> Option<i32> {
        if is_unchanged(event) {
            return self.handler.priority(event);
        }
        Some(self.priority)
    }
}

/// Requests the result of a function.
#[derive(Clone, Copy, Debug)]
pub struct Map<F>(F);

/// Requests the result of `function` for an object; for an update, for the old and the new state, and for a deletion,
/// for the state last delivered and the last one (controller-runtime: `EnqueueRequestsFromMapFunc`).
///
/// It runs in the delivery of events: read listers, do not wait.
#[must_use]
pub fn map<K, R, F, I>(function: F) -> Map<F>
where
    F: Fn(&K) -> I + Send + Sync + 'static,
    I: IntoIterator<Item = R>,
{
    Map(function)
}

impl<K, R, F, I> Handler<K, R> for Map<F>
where
    K: Watched,
    F: Fn(&K) -> I + Send + Sync + 'static,
    I: IntoIterator<Item = R>,
{
    fn requests(&self, event: &Event<K>, request: &mut dyn FnMut(R)) {
        for_each_state(event, |object| {
            (self.0)(object).into_iter().for_each(&mut *request);
        });
    }
}

fn for_each_state<K>(event: &Event<K>, mut visit: impl FnMut(&K)) {
    match event {
        Event::Added { object, .. } => visit(object),
        Event::Updated { old, new, .. } => {
            if !std::sync::Arc::ptr_eq(old, new) {
                visit(old);
            }
            visit(new);
        }
        Event::Deleted { last, seen, .. } => {
            if let Some(last) = last {
                visit(last);
            }
            let same = seen.as_ref().zip(last.as_ref());
            let same = same.is_some_and(|(seen, last)| std::sync::Arc::ptr_eq(seen, last));
            // The server's final state may be newer than the one delivered, and have other owners.
            if let Some(seen) = seen.as_ref().filter(|_| !same) {
                visit(seen);
            }
        }
    }
}

/// Whether `event` has no news: the initial list, a resync, the same version again.
fn is_unchanged<K: Watched>(event: &Event<K>) -> bool {
    match event {
        Event::Added { initial, .. } => *initial,
        Event::Updated { old, new, reason } => {
            *reason == UpdateReason::Resync
                || old.meta().resource_version == new.meta().resource_version
        }
        Event::Deleted { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{ConfigMap, Node};

    use super::*;

    fn owned(references: &[(&str, &str, &str, bool)]) -> Arc<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some("ns".into());
        object.metadata.name = Some("child".into());
        let owner =
            |(api_version, kind, name, controller): &(&str, &str, &str, bool)| OwnerReference {
                api_version: (*api_version).into(),
                kind: (*kind).into(),
                name: (*name).into(),
                controller: controller.then_some(true),
                ..OwnerReference::default()
            };
        object.metadata.owner_references = Some(references.iter().map(owner).collect());
        Arc::new(object)
    }

    fn added(object: &Arc<ConfigMap>) -> Event<ConfigMap> {
        Event::Added {
            object: Arc::clone(object),
            initial: false,
        }
    }

    fn collect(handler: &impl Handler<ConfigMap>, event: &Event<ConfigMap>) -> Vec<String> {
        let mut keys = Vec::new();
        handler.requests(event, &mut |key| keys.push(key.to_string()));
        keys
    }

    #[test]
    fn owners_are_matched_by_group_and_kind_whatever_the_version() {
        let object = owned(&[
            ("apps/v1beta2", "Deployment", "web", true),
            ("apps/v1", "Deployment", "second", false),
            ("other/v1", "Deployment", "foreign", true),
            ("v1", "Node", "worker", true),
        ]);
        let event = added(&object);
        assert_eq!(collect(&for_owner::<Deployment>(), &event), ["ns/web"]);
        assert_eq!(
            collect(&for_owner::<Deployment>().every_owner(), &event),
            ["ns/web", "ns/second"]
        );
        assert_eq!(collect(&for_owner::<Node>(), &event), ["worker"]);
    }

    #[test]
    fn an_owner_with_a_bad_api_version_is_ignored() {
        let object = owned(&[
            ("apps/v1/web", "Deployment", "after", true),
            ("a/apps/v1", "Deployment", "before", true),
            ("apps/v1/", "Deployment", "at the end", true),
            ("/v1", "Deployment", "without a group", true),
            ("a/b/v1", "Node", "of no group", true),
        ]);
        let event = added(&object);
        let every = for_owner::<Deployment>().every_owner();
        assert_eq!(collect(&every, &event), Vec::<String>::new());
        let every = for_owner::<Node>().every_owner();
        assert_eq!(collect(&every, &event), Vec::<String>::new());
    }

    #[test]
    fn an_update_requests_the_owners_before_and_after() {
        let event = Event::Updated {
            old: owned(&[("apps/v1", "Deployment", "one", true)]),
            new: owned(&[("apps/v1", "Deployment", "two", true)]),
            reason: UpdateReason::Changed,
        };
        assert_eq!(
            collect(&for_owner::<Deployment>(), &event),
            ["ns/one", "ns/two"]
        );
    }

    #[test]
    fn a_map_sees_the_last_state_of_what_is_gone() {
        let handler = map(|object: &ConfigMap| {
            vec![ObjectKey::cluster(object.metadata.name.clone().unwrap())]
        });
        let gone = Event::Deleted {
            key: ObjectKey::namespaced("ns", "child"),
            last: Some(owned(&[])),
            seen: None,
            tombstone: false,
        };
        assert_eq!(collect(&handler, &gone), ["child"]);
        assert_eq!(collect(&for_object(), &gone), ["ns/child"]);
    }

    #[test]
    fn a_deletion_requests_the_owner_that_was_seen_last_and_the_last_one() {
        let last = owned(&[("apps/v1", "Deployment", "two", true)]);
        let seen = owned(&[("apps/v1", "Deployment", "one", true)]);
        let gone = |seen: &Arc<ConfigMap>| Event::Deleted {
            key: ObjectKey::namespaced("ns", "child"),
            last: Some(Arc::clone(&last)),
            seen: Some(Arc::clone(seen)),
            tombstone: false,
        };
        let owner = for_owner::<Deployment>();
        assert_eq!(collect(&owner, &gone(&seen)), ["ns/two", "ns/one"]);
        assert_eq!(collect(&owner, &gone(&last)), ["ns/two"]);
    }

    #[test]
    fn the_initial_list_a_resync_and_the_same_version_are_no_news() {
        let object = owned(&[]);
        let update = |new: &Arc<ConfigMap>, reason| Event::Updated {
            old: Arc::clone(&object),
            new: Arc::clone(new),
            reason,
        };
        let mut newer = ConfigMap::clone(&object);
        newer.metadata.resource_version = Some("2".into());
        let newer = Arc::new(newer);
        for (case, event, unchanged) in [
            ("added", added(&object), false),
            (
                "initial",
                Event::Added {
                    object: Arc::clone(&object),
                    initial: true,
                },
                true,
            ),
            ("resync", update(&object, UpdateReason::Resync), true),
            (
                "relisted, same",
                update(&object, UpdateReason::Relist),
                true,
            ),
            (
                "relisted, newer",
                update(&newer, UpdateReason::Relist),
                false,
            ),
            ("changed", update(&newer, UpdateReason::Changed), false),
        ] {
            assert_eq!(is_unchanged(&event), unchanged, "{case}");
        }
    }
}
