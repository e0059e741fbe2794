//! The path of every call: settings, gate, observer, interceptors, send, and decoding of the answer.

use serde::de::DeserializeOwned;

use crate::answer::{Answer, decode};
use crate::call::{Call, Verb};
use crate::client::Client;
use crate::error::Error;
use crate::intercept::Next;
use crate::object::AnyObject;
use crate::observe::PendingWrite;

impl Client {
    /// Performs `call`, and decodes the answer as `T`.
    pub(crate) async fn answer<T: DeserializeOwned>(&self, mut call: Call) -> Result<T, Error> {
        let answer = self.perform_shaped(&mut call).await?;
        decode(|| call.describe(), &answer.0)
    }

    /// Performs `call`, and decodes the answer as an object of the kind. The observer of a write gets the decoded object,
    /// so that the answer is decoded once.
    pub(crate) async fn object<K: AnyObject>(&self, mut call: Call) -> Result<K, Error> {
        let (answer, pending) = self.perform_begun(&mut call).await?;
        let object = decode::<K>(|| call.describe(), &answer.0);
        if let Some(pending) = pending {
            pending.answered(&answer, object.as_ref().ok().map(K::meta));
        }
        object
    }

    /// Performs `call`.
    pub(crate) async fn perform(&self, mut call: Call) -> Result<Answer, Error> {
        self.perform_shaped(&mut call).await
    }

    /// Performs `call`, and leaves it in the form that was sent.
    async fn perform_shaped(&self, call: &mut Call) -> Result<Answer, Error> {
        let (answer, pending) = self.perform_begun(call).await?;
        if let Some(pending) = pending {
            pending.answered(&answer, None);
        }
        Ok(answer)
    }

    /// Performs `call`, the one way to the server. The caller reports the answer to the observer of a write.
    async fn perform_begun(
        &self,
        call: &mut Call,
    ) -> Result<(Answer, Option<Box<dyn PendingWrite>>), Error> {
        self.shape(call).await?;
        if call.verb.writes() {
            self.check_gate(|| call.describe())?;
        }
        let pending = self.begin(call);
        let answer = if self.intercepted.is_none() {
            self.send(call).await
        } else {
            Next::new(self.clone()).send(call.clone()).await
        };
        match answer {
            Ok(answer) => Ok((answer, pending)),
            Err(error) => {
                if let Some(pending) = pending {
                    pending.failed(&error);
                }
                Err(error)
            }
        }
    }

    /// Applies the settings to a call.
    pub(crate) async fn shape(&self, call: &mut Call) -> Result<(), Error> {
        let settings = &self.settings;
        if call.endpoint.namespaced == Some(false) {
            // Whatever its key holds: an observer would record the write under a key that no cache has.
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

    /// Whether the kind has namespaces; by discovery if that is unknown.
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
