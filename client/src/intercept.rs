//! Interceptors between a client and the server, for tests: they fail, delay or change the answer of a call.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::answer::Answer;
use crate::call::{Call, Verb};
use crate::client::Client;
use crate::error::Error;
use futures::FutureExt;
use futures::future::BoxFuture;

type Handler = Arc<dyn Fn(Next, Call) -> BoxFuture<'static, Result<Answer, Error>> + Send + Sync>;

/// The remaining layers to the server.
#[derive(Clone, Debug)]
pub struct Next {
    client: Client,
}

// === impl Next ===

impl Next {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// The client without this interceptor, for other calls.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Sends `call`.
    ///
    /// # Errors
    /// The error of the call.
    pub async fn send(mut self, call: Call) -> Result<Answer, Error> {
        while let Some(layer) = self.client.intercepted.take() {
            self.client.intercepted.clone_from(&layer.inner);
            if let Some(handler) = layer.interceptor.handler(&call) {
                return handler(self, call).await;
            }
        }
        self.client.send(&call).await
    }
}

/// One interceptor, and those added before.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) interceptor: Interceptor,
    pub(crate) inner: Option<Arc<Layer>>,
}

/// At most one function for each verb, and each verb of subresources. Calls without a function pass.
/// (controller-runtime: `interceptor.Funcs`.)
///
/// A function gets the remaining layers and the call. It may answer itself, fail, wait, send the call and change the
/// answer, or make another call through [`Next::client`].
///
/// ```
/// use reeve_client::Client;
/// use reeve_client::{Error, Interceptor};
///
/// /// Every update of a status conflicts.
/// fn conflicting(client: Client) -> Client {
///     client.intercepted(Interceptor::new().subresource_update(|_, call| async move {
///         Err(Error::refused(&call, 409, "Conflict", "the object has been modified"))
///     }))
/// }
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct Interceptor {
    handlers: Vec<(Verb, bool, Handler)>,
}

// === impl Interceptor ===

macro_rules! verbs {
    ($($(#[$doc:meta])* $name:ident => $verb:ident, $subresource:literal;)*) => {
        $(
            $(#[$doc])*
            pub fn $name<F, A>(self, function: F) -> Self
            where
                F: Fn(Next, Call) -> A + Send + Sync + 'static,
                A: Future<Output = Result<Answer, Error>> + Send + 'static,
            {
                self.with(Verb::$verb, $subresource, function)
            }
        )*
    };
}

impl Interceptor {
    /// Lets every call pass.
    pub fn new() -> Self {
        Self::default()
    }

    verbs! {
        /// Intercepts reads of one object.
        get => Get, false;
        /// Intercepts lists.
        list => List, false;
        /// Intercepts creates.
        create => Create, false;
        /// Intercepts updates.
        update => Update, false;
        /// Intercepts patches, except server-side apply.
        patch => Patch, false;
        /// Intercepts server-side apply.
        apply => Apply, false;
        /// Intercepts deletes of one object.
        delete => Delete, false;
        /// Intercepts deletes of many.
        delete_all_of => DeleteAllOf, false;
        /// Intercepts reads of subresources.
        subresource_get => Get, true;
        /// Intercepts creates of subresources.
        subresource_create => Create, true;
        /// Intercepts updates of subresources, the status among them.
        subresource_update => Update, true;
        /// Intercepts patches of subresources.
        subresource_patch => Patch, true;
        /// Intercepts server-side apply to subresources.
        subresource_apply => Apply, true;
    }

    /// Intercepts calls of `verb` to objects.
    pub fn on<F, A>(self, verb: Verb, function: F) -> Self
    where
        F: Fn(Next, Call) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Answer, Error>> + Send + 'static,
    {
        self.with(verb, false, function)
    }

    /// Intercepts calls of `verb` to subresources.
    pub fn on_subresource<F, A>(self, verb: Verb, function: F) -> Self
    where
        F: Fn(Next, Call) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Answer, Error>> + Send + 'static,
    {
        self.with(verb, true, function)
    }

    fn with<F, A>(mut self, verb: Verb, subresource: bool, function: F) -> Self
    where
        F: Fn(Next, Call) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Answer, Error>> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |next, call| function(next, call).boxed());
        self.handlers
            .retain(|(other, of, _)| (*other, *of) != (verb, subresource));
        self.handlers.push((verb, subresource, handler));
        self
    }

    fn handler(&self, call: &Call) -> Option<Handler> {
        let wanted = (call.verb, call.subresource.is_some());
        let found = self
            .handlers
            .iter()
            .find(|(verb, of, _)| (*verb, *of) == wanted);
        found.map(|(.., handler)| Arc::clone(handler))
    }
}

impl fmt::Debug for Interceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verbs = self.handlers.iter().map(|(verb, of, _)| (verb, of));
        f.debug_list().entries(verbs).finish()
    }
}
