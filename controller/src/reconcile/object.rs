//! A reconciler of objects: it reads the object that a request names.

use std::fmt;
use std::sync::Arc;

use super::error::Error;
use super::outcome::Outcome;
use super::reconciler::Reconciler;
use super::request::Request;
use crate::cache::View;
use crate::client;
use crate::context::Context;

/// A reconciler made of an async function of a context and an object: [`object`] or [`object_in`].
pub struct ForObject<V, F> {
    view: View<V>,
    function: F,
}

/// Makes a reconciler of an async function of a context and the object that the request names, as the cache shows it.
/// An object that the cache does not have is [`Outcome::done`], without a call.
///
/// The kind is one that the controller watches, or that the [caches keep](crate::Caches::keep). The function may be a
/// closure with state of its own. Its error is of any type that a [`Reconciler`] may have.
///
/// ```
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use reeve_controller::prelude::*;
///
/// async fn greet(ctx: Context, map: Arc<ConfigMap>) -> Result<Outcome, reconcile::Error> {
///     println!("{} reconciles {}", ctx.controller(), map.name_any());
///     Ok(Outcome::done())
/// }
///
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let controller = Controller::builder("greeter")
///     .for_kind::<ConfigMap>()
///     .complete(reconcile::object(greet))?;
///
/// // A closure with state. A closure has no place for the type of its error but its result.
/// let greeting: Arc<str> = "hello".into();
/// let controller = Controller::builder("second").for_kind::<ConfigMap>().complete(
///     reconcile::object(move |_: Context, map: Arc<ConfigMap>| {
///         let greeting = Arc::clone(&greeting);
///         async move {
///             println!("{greeting}, {}", map.name_any());
///             Ok::<_, reconcile::Error>(Outcome::done())
///         }
///     }),
/// )?;
/// # drop(controller);
/// # Ok(())
/// # }
/// # example().unwrap();
/// ```
pub fn object<K, F, Fut, E>(function: F) -> ForObject<K, F>
where
    K: client::Object,
    F: Fn(Context, Arc<K>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, E>> + Send,
    E: Into<Error>,
{
    object_in(View::typed(), function)
}

/// As [`object`], through a view: no more than the metadata ([`View::metadata`]), or a kind that is known only when the
/// program runs ([`View::dynamic`]).
///
/// ```
/// use std::sync::Arc;
///
/// use kube_core::DynamicObject;
/// use reeve_controller::cache::Kind;
/// use reeve_controller::controller::BuildError;
/// use reeve_controller::prelude::*;
///
/// fn controller(kind: &Kind) -> Result<Controller, BuildError> {
///     let view = View::dynamic(kind);
///     let reconciler = reconcile::object_in(
///         view.clone(),
///         |_: Context, object: Arc<DynamicObject>| async move {
///             println!("{}", object.name_any());
///             Ok::<_, reconcile::Error>(Outcome::done())
///         },
///     );
///     Controller::builder("any").for_view(view).complete(reconciler)
/// }
/// ```
pub fn object_in<V, F, Fut, E>(view: View<V>, function: F) -> ForObject<V, F>
where
    V: Send + Sync + 'static,
    F: Fn(Context, Arc<V>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, E>> + Send,
    E: Into<Error>,
{
    ForObject { view, function }
}

// === impl ForObject ===

impl<V, F, Fut, E> Reconciler for ForObject<V, F>
where
    V: Send + Sync + 'static,
    F: Fn(Context, Arc<V>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, E>> + Send,
    E: Into<Error>,
{
    type Error = Error;

    async fn reconcile(&self, ctx: Context, request: Request) -> Result<Outcome, Error> {
        let found = ctx.view(&self.view)?.get(&request)?;
        match found {
            Some(object) => (self.function)(ctx, object).await.map_err(Into::into),
            None => Ok(Outcome::done()),
        }
    }
}

impl<V, F> fmt::Debug for ForObject<V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForObject")
            .field("view", &self.view)
            .finish_non_exhaustive()
    }
}
