//! The function that brings the world to the state that one object asks for.

use std::sync::Arc;

use super::error::Error;
use super::outcome::Outcome;
use super::request::Request;
use crate::context::Context;

/// Brings the world closer to the state that one request names.
///
/// Called with a key, not with the change: read the current state, decide, write, and return an [`Outcome`].
/// Never called twice at once for the same request. Must be idempotent: it runs again after a crash, a
/// resync, a failed write.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a reconciler of requests of the type `{R}`",
    label = "not a reconciler",
    note = "an async function of a context and an object becomes one with `reconcile::object(function)`, an async function \
            of a context and a request with `reconcile::function(function)`"
)]
pub trait Reconciler<R = Request>: Send + Sync + 'static {
    /// The error of a failed run; any error converts ([`Error`]).
    type Error: Into<Error>;

    /// Reconciles `request` once.
    ///
    /// The future is dropped at its next await when the grace period of a stop ends, when the lease is lost,
    /// or when the time-out of the controller passes; the key is then tried again, here or by the next leader.
    fn reconcile(
        &self,
        ctx: Context,
        request: R,
    ) -> impl Future<Output = Result<Outcome, Self::Error>> + Send;
}

impl<R: Send + 'static, T: Reconciler<R>> Reconciler<R> for Arc<T> {
    type Error = T::Error;

    fn reconcile(
        &self,
        ctx: Context,
        request: R,
    ) -> impl Future<Output = Result<Outcome, Self::Error>> + Send {
        T::reconcile(self, ctx, request)
    }
}

/// A reconciler made of an async function.
#[derive(Clone, Copy, Debug)]
pub struct Function<F>(F);

/// Makes a reconciler of an async function of a context and a request.
pub fn function<R, F, Fut, E>(function: F) -> Function<F>
where
    F: Fn(Context, R) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, E>> + Send,
    E: Into<Error>,
{
    Function(function)
}

impl<R, F, Fut, E> Reconciler<R> for Function<F>
where
    R: Send + 'static,
    F: Fn(Context, R) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, E>> + Send,
    E: Into<Error>,
{
    type Error = E;

    fn reconcile(
        &self,
        ctx: Context,
        request: R,
    ) -> impl Future<Output = Result<Outcome, E>> + Send {
        (self.0)(ctx, request)
    }
}
