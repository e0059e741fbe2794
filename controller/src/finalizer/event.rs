//! One finalizer around a reconcile: applies an object while it lives, and cleans up before it is removed.

use std::sync::Arc;

use kube_core::{ObjectMeta, Resource};

use super::{add, contains, is_deleting, remove, write};
use crate::client::{self, AnyObject, Object, Objects, optional};
use crate::context::Context;
use crate::reconcile::{Next, Outcome};

/// The work on an object with a finalizer (kube-rs: `finalizer::Event`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<K> {
    /// The object exists and carries the finalizer: bring the world to the state that it asks for.
    Apply(Arc<K>),
    /// The object is being deleted and waits for this finalizer: undo what `Apply` did outside of its children, which
    /// the garbage collector deletes.
    Cleanup(Arc<K>),
}

/// Reconciles an object that carries the finalizer `name`, such as `example.com/records` (kube-rs: `finalizer`).
///
/// | the object | what happens |
/// |---|---|
/// | lives, without the finalizer | the finalizer is added; then [`Event::Apply`] with the new state |
/// | lives, with it | [`Event::Apply`] |
/// | is being deleted, with it | [`Event::Cleanup`]; after [`Outcome::done`] the finalizer is removed |
/// | is being deleted, without it | [`Outcome::done`], without a call |
///
/// So nothing that `Cleanup` must undo is done before the finalizer is stored. After an error, and after an outcome
/// other than `done`, the object keeps the finalizer and `Cleanup` runs again: return [`Outcome::requeue_after`] while
/// another system still deletes. Both calls must be idempotent.
///
/// The finalizers of others are kept: a write is refused if another client changed the object since it was read. Then
/// the request is retried with its back-off, without an error ([`Outcome::retry`]). A finalizer is removed in spite of
/// such a change if the generation of the object is the same, so `Cleanup` may write the status.
///
/// It needs the rights to `patch` and to `get` the object; the latter for such a change, and after a lost answer.
///
/// ```
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use reeve_controller::prelude::*;
///
/// async fn records(ctx: Context, map: Arc<ConfigMap>) -> Result<Outcome, reconcile::Error> {
///     finalizer::apply_or_cleanup(&ctx, "example.com/records", map, async |event| match event {
///         finalizer::Event::Apply(map) => {
///             println!("writing the records of {}", map.name_any());
///             Ok(Outcome::done())
///         }
///         finalizer::Event::Cleanup(map) => {
///             println!("removing the records of {}", map.name_any());
///             Ok(Outcome::done())
///         }
///     })
///     .await
/// }
///
/// let controller = Controller::builder("records")
///     .for_kind::<ConfigMap>()
///     .complete(reconcile::object(records));
/// # controller.unwrap();
/// ```
///
/// # Errors
/// Those of `reconcile`, and when a write of the finalizer fails but for a conflict.
pub async fn apply_or_cleanup<K, E>(
    ctx: &Context,
    name: &str,
    object: Arc<K>,
    reconcile: impl AsyncFnOnce(Event<K>) -> Result<Outcome, E>,
) -> Result<Outcome, E>
where
    K: Object,
    E: From<client::Error>,
{
    let objects = ctx.client().objects();
    apply_or_cleanup_in(&objects, name, object, reconcile).await
}

/// As [`apply_or_cleanup`], for any objects of a client: for example of a kind that is known only when the program runs,
/// `ctx.client().dynamic(&kind)`, or of another cluster.
///
/// # Errors
/// As [`apply_or_cleanup`].
pub async fn apply_or_cleanup_in<K, E>(
    objects: &Objects<K>,
    name: &str,
    object: Arc<K>,
    reconcile: impl AsyncFnOnce(Event<K>) -> Result<Outcome, E>,
) -> Result<Outcome, E>
where
    K: AnyObject,
    E: From<client::Error>,
{
    match Step::of(&*object, name) {
        Step::Add => match change(objects, &object, |object| add(object, name)).await? {
            Written::Now(object) => reconcile(Event::Apply(Arc::new(object))).await,
            Written::Conflict => Ok(Outcome::retry()),
            Written::Gone => Ok(Outcome::done()),
        },
        Step::Apply => reconcile(Event::Apply(object)).await,
        Step::Cleanup => {
            let outcome = reconcile(Event::Cleanup(Arc::clone(&object))).await?;
            if !matches!(outcome.next, Next::Done) {
                return Ok(outcome);
            }
            match finish(objects, &object, name).await? {
                Written::Now(_) | Written::Gone => Ok(outcome),
                Written::Conflict => Ok(Outcome::retry()),
            }
        }
        Step::Nothing => Ok(Outcome::done()),
    }
}

/// The step for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Add,
    Apply,
    Cleanup,
    Nothing,
}

// === impl Step ===

impl Step {
    fn of<K: Resource + 'static>(object: &K, name: &str) -> Self {
        match (is_deleting(object), contains(object, name)) {
            (false, false) => Self::Add,
            (false, true) => Self::Apply,
            (true, true) => Self::Cleanup,
            // The API server refuses new finalizers now.
            (true, false) => Self::Nothing,
        }
    }
}

/// The end of a write.
enum Written<K> {
    /// The new state.
    Now(K),
    /// Another write changed the object before.
    Conflict,
    /// There is no such object any more.
    Gone,
}

async fn change<K: AnyObject>(
    objects: &Objects<K>,
    before: &K,
    change: impl FnOnce(&mut K) -> bool,
) -> Result<Written<K>, client::Error> {
    let mut after = before.clone();
    change(&mut after);
    match write(objects, before, &after).await {
        Ok(now) => Ok(Written::Now(now)),
        Err(error) if error.is_conflict() => Ok(Written::Conflict),
        Err(error) if error.is_not_found() && !error.is_not_served() => Ok(Written::Gone),
        Err(error) => Err(error),
    }
}

/// Removes the finalizer after the cleanup of `object`.
async fn finish<K: AnyObject>(
    objects: &Objects<K>,
    object: &K,
    name: &str,
) -> Result<Written<K>, client::Error> {
    match change(objects, object, |object| remove(object, name)).await? {
        Written::Conflict => {}
        written => return Ok(written),
    }
    let key = client::key_of(object.meta());
    let Some(live) = optional(objects.get(&key).await)? else {
        return Ok(Written::Gone);
    };
    if live.meta().uid != object.meta().uid {
        return Ok(Written::Gone);
    }
    if !is_cleaned_up(object.meta(), live.meta()) {
        return Ok(Written::Conflict);
    }
    change(objects, &live, |object| remove(object, name)).await
}

/// Whether the cleanup of one state of an object is that of another: its spec did not change in between.
fn is_cleaned_up(before: &ObjectMeta, after: &ObjectMeta) -> bool {
    before.generation.is_some() && before.generation == after.generation
}
