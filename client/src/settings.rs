//! The settings of a client.

use std::sync::Arc;
use std::time::Duration;

use reeve_clock::Clock;

use crate::client::Client;
use crate::intercept::{Interceptor, Layer};
use crate::key::ObjectKey;
use crate::options::FieldValidation;

/// Default deadline of a call.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(30);

/// Default limit of an answer, in bytes. Read larger lists in pages.
pub const DEFAULT_BODY_LIMIT: usize = 256 * 1024 * 1024;

/// The settings of a client.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) deadline: Duration,
    pub(crate) body_limit: usize,
    pub(crate) dry_run: bool,
    pub(crate) field_owner: Option<String>,
    pub(crate) field_validation: Option<FieldValidation>,
    pub(crate) namespace: Option<String>,
    /// Unset, the system's.
    clock: Option<Clock>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            deadline: DEFAULT_DEADLINE,
            body_limit: DEFAULT_BODY_LIMIT,
            dry_run: false,
            field_owner: None,
            field_validation: None,
            namespace: None,
            clock: None,
        }
    }
}

impl Client {
    /// The same client with another deadline for each call. Default: [`DEFAULT_DEADLINE`].
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.settings_mut().deadline = deadline;
        self
    }

    /// The same client with a limit for answers. Default: [`DEFAULT_BODY_LIMIT`].
    #[must_use]
    pub fn with_body_limit(mut self, bytes: usize) -> Self {
        self.settings_mut().body_limit = bytes;
        self
    }

    /// The same client with the randomness of `clock` for the pauses between tries ([`Client::edit`]). Default: the
    /// system's.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.settings_mut().clock = Some(clock);
        self
    }

    pub(crate) fn clock(&self) -> Clock {
        let clock = self.settings.clock.as_ref();
        clock.map_or_else(Clock::system, Clock::clone)
    }

    /// The same client, whose writes the server does not store. A call cannot override that (controller-runtime:
    /// `NewDryRunClient`).
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.settings_mut().dry_run = true;
        self
    }

    /// The same client, which writes as `owner` unless a call sets another (controller-runtime:
    /// `WithFieldOwner`).
    #[must_use]
    pub fn field_owner(mut self, owner: impl Into<String>) -> Self {
        self.settings_mut().field_owner = Some(owner.into());
        self
    }

    /// The same client with this validation unless a call sets another (controller-runtime:
    /// `WithFieldValidation`).
    #[must_use]
    pub fn field_validation(mut self, validation: FieldValidation) -> Self {
        self.settings_mut().field_validation = Some(validation);
        self
    }

    /// The same client for one namespace: a call without a namespace gets this one, a call with another one fails, and
    /// kinds without namespaces are unaffected (controller-runtime: `NewNamespacedClient`).
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.settings_mut().namespace = Some(namespace.into());
        self
    }

    /// The same client with `interceptor` before it, and before the interceptors it already has.
    #[must_use]
    pub fn intercepted(mut self, interceptor: Interceptor) -> Self {
        let inner = self.intercepted.take();
        self.intercepted = Some(Arc::new(Layer { interceptor, inner }));
        self
    }

    /// The same client for all namespaces and without interceptors: for calls of the library itself. Its gates and its
    /// observers stay. Not a method, so that a type that dereferences to a client does not have it.
    #[must_use]
    pub fn unbound(client: &Self) -> Self {
        let mut client = client.clone();
        client.settings_mut().namespace = None;
        client.intercepted = None;
        client
    }

    /// Whether the server does not store its writes.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.settings.dry_run
    }

    fn settings_mut(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }

    /// The key, in this client's namespace if it has none.
    #[must_use]
    pub fn key_in_namespace(&self, key: &ObjectKey) -> ObjectKey {
        match (&key.namespace, &self.settings.namespace) {
            (None, Some(namespace)) => ObjectKey::namespaced(namespace.as_str(), &*key.name),
            _ => key.clone(),
        }
    }
}
