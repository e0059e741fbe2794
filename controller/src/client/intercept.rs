//! Functions that stand between a client and the server, for tests: to fail, delay or change what a call answers.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::call::{Call, Verb};
use super::send::decode;
use super::{Client, Error};

type Handler = Arc<dyn Fn(Next, Call) -> BoxFuture<'static, Result<Answer, Error>> + Send + Sync>;

/// What the server answers a successful call with.
#[derive(Clone)]
pub struct Answer(pub(super) Bytes);

// === impl Answer ===

impl Answer {
    /// The answer that says `value`.
    ///
    /// # Errors
    /// When it does not encode.
    pub fn of(value: &impl Serialize) -> Result<Self, Error> {
        match serde_json::to_vec(value) {
            Ok(body) => Ok(Self(body.into())),
            Err(error) => Err(Error::Invalid {
                request: "an answer of an interceptor".to_owned(),
                message: error.to_string(),
            }),
        }
    }

    /// What it says, read as `T`: the type of the object, or a [`serde_json::Value`].
    ///
    /// # Errors
    /// [`Error::Decode`].
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        decode(|| "an intercepted answer".to_owned(), &self.0)
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may hold a Secret.
        write!(f, "Answer({} bytes)", self.0.len())
    }
}

/// The rest of the way to the server.
#[derive(Clone, Debug)]
pub struct Next {
    client: Client,
}

// === impl Next ===

impl Next {
    pub(super) fn new(client: Client) -> Self {
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
    /// What the call comes to.
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

/// One interceptor, and those that were there before.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub(super) interceptor: Interceptor,
    pub(super) inner: Option<Arc<Layer>>,
}

/// At most one function for each verb, and each verb of subresources. What has none passes.
/// (controller-runtime: `interceptor.Funcs`.)
///
/// A function is given the way on and the call. It may answer itself, fail, wait, send the call and change the answer,
/// or call something else through [`Next::client`].
///
/// ```
/// use reeve_controller::Client;
/// use reeve_controller::client::{Error, Interceptor};
///
/// /// Every update of a status finds that somebody was faster.
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
    /// Lets everything pass.
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
        /// Intercepts patches that are no server-side apply.
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
