//! What a client does to every call: its settings, and how they shape a call.

use std::sync::Arc;
use std::time::Duration;

use reeve_informer::ObjectKey;

use super::call::{Call, Verb};
use super::intercept::{Interceptor, Layer};
use super::options::FieldValidation;
use super::{Client, DEFAULT_BODY_LIMIT, DEFAULT_DEADLINE, Error};

/// The settings of a client.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) deadline: Duration,
    pub(super) body_limit: usize,
    dry_run: bool,
    field_owner: Option<String>,
    field_validation: Option<FieldValidation>,
    namespace: Option<String>,
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
        }
    }
}

impl Client {
    /// The same client with another deadline for each call, [`DEFAULT_DEADLINE`] unless said.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.settings_mut().deadline = deadline;
        self
    }

    /// The same client that takes answers of at most `bytes`, [`DEFAULT_BODY_LIMIT`] unless said.
    #[must_use]
    pub fn with_body_limit(mut self, bytes: usize) -> Self {
        self.settings_mut().body_limit = bytes;
        self
    }

    /// The same client, whose writes nobody waits to see in the caches.
    #[must_use]
    pub fn without_read_your_writes(mut self) -> Self {
        self.notes = None;
        self
    }

    /// The same client, of whose writes the server keeps nothing. A call cannot undo that (controller-runtime:
    /// `NewDryRunClient`).
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.settings_mut().dry_run = true;
        self
    }

    /// The same client, which writes in the name of `owner` unless a call names another (controller-runtime:
    /// `WithFieldOwner`).
    #[must_use]
    pub fn field_owner(mut self, owner: impl Into<String>) -> Self {
        self.settings_mut().field_owner = Some(owner.into());
        self
    }

    /// The same client, which asks for this validation unless a call asks for another (controller-runtime:
    /// `WithFieldValidation`).
    #[must_use]
    pub fn field_validation(mut self, validation: FieldValidation) -> Self {
        self.settings_mut().field_validation = Some(validation);
        self
    }

    /// The same client for one namespace: a call that names none is about this one, one that names another fails,
    /// and kinds without namespaces are left alone (controller-runtime: `NewNamespacedClient`).
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

    /// The same client of any namespace, and without interceptors: for what the library asks by itself.
    pub(crate) fn unbound(&self) -> Self {
        let mut client = self.clone();
        client.settings_mut().namespace = None;
        client.intercepted = None;
        client
    }

    /// Whether the server keeps nothing of what it writes.
    pub(super) fn is_dry_run(&self) -> bool {
        self.settings.dry_run
    }

    fn settings_mut(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }

    /// The key, in this client's namespace if it names none.
    pub(super) fn key_in_namespace(&self, key: &ObjectKey) -> ObjectKey {
        match (&key.namespace, &self.settings.namespace) {
            (None, Some(namespace)) => ObjectKey::namespaced(namespace.as_str(), &*key.name),
            _ => key.clone(),
        }
    }

    /// Applies the settings to a call.
    pub(super) async fn shape(&self, call: &mut Call) -> Result<(), Error> {
        let settings = &self.settings;
        if call.endpoint.namespaced == Some(false) {
            // Whatever its key says: a note under that key would be of what no cache holds.
            call.namespace = None;
        }
        if let Some(namespace) = &settings.namespace
            && self.is_namespaced(call).await?
        {
            match &call.namespace {
                None => call.namespace = Some(namespace.clone()),
                Some(named) if named == namespace => {}
                Some(named) => {
                    return Err(call.invalid(format!(
                        "the namespace {named} is not this client's, which is {namespace}"
                    )));
                }
            }
        }
        if !call.verb.writes() {
            return Ok(());
        }
        call.options.dry_run |= settings.dry_run;
        if matches!(
            call.verb,
            Verb::Create | Verb::Update | Verb::Patch | Verb::Apply
        ) {
            let options = &mut call.options;
            if options.field_owner.is_none() {
                options.field_owner.clone_from(&settings.field_owner);
            }
            options.field_validation = options.field_validation.or(settings.field_validation);
        }
        Ok(())
    }

    /// Whether the kind has namespaces; discovery is asked if that is not known.
    async fn is_namespaced(&self, call: &Call) -> Result<bool, Error> {
        if let Some(known) = call.endpoint.namespaced {
            return Ok(known);
        }
        let resource = call.resource();
        let mapped = self
            .mapper()
            .resource_in(&resource.group, &resource.version, &resource.plural)
            .await?;
        Ok(mapped.is_namespaced())
    }
}
