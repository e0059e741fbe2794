//! The path of every call: settings, gate, observer, interceptors, send within the deadline, and decoding of the answer,
//! whose size is bounded.

use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use crate::answer::{Answer, Reply, decode, refusal};
use crate::call::{Call, Verb};
use crate::client::Client;
use crate::connect::Unsent;
use crate::error::Error;
use crate::gate::Passage;
use crate::intercept::Next;
use crate::object::AnyObject;
use crate::observe::PendingWrite;
use crate::transport::error::retry_after;

/// Describes a request for messages; most requests need none.
type Describe<'a> = &'a (dyn Fn() -> String + Sync);

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

    /// Checks the gate outside of a call: before a step that is not a call to the API server.
    ///
    /// # Errors
    /// [`Error::NotLeader`], naming `step`, when the gate is closed.
    pub fn check_gate(&self, step: impl FnOnce() -> String) -> Result<(), Error> {
        match &self.gated {
            Some(gated) if !gated.gate.is_open() => Err(Error::NotLeader { request: step() }),
            _ => Ok(()),
        }
    }

    /// Reports a write to the observer, unless it is a dry run.
    fn begin(&self, call: &Call) -> Option<Box<dyn PendingWrite>> {
        let observer = self.observer.as_ref()?;
        if !call.verb.writes() || call.options.dry_run {
            return None;
        }
        observer.begin(call)
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

    /// Sends `call` as it is.
    pub(crate) async fn send(&self, call: &Call) -> Result<Answer, Error> {
        let http = call.http()?;
        let reply = self.within_deadline(&|| call.describe(), http).await?;
        if reply.code.is_success() {
            return Ok(Answer(reply.body));
        }
        let error = refusal(call.describe(), &reply);
        if error.is_not_served() {
            // The results of discovery for the group are outdated.
            self.known.forget(&call.resource().group);
        }
        Err(error)
    }

    /// Sends `http` and reads the answer, within the deadline.
    pub(crate) async fn within_deadline(
        &self,
        request: Describe<'_>,
        http: http::Request<Vec<u8>>,
    ) -> Result<Reply, Error> {
        let deadline = self.settings.deadline;
        match tokio::time::timeout(deadline, self.exchange(request, http)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Deadline {
                request: request(),
                after: deadline,
            }),
        }
    }

    async fn exchange(
        &self,
        request: Describe<'_>,
        http: http::Request<Vec<u8>>,
    ) -> Result<Reply, Error> {
        let mut http = http.map(kube_client::client::Body::from);
        let mut passage = self
            .gated
            .as_ref()
            .and_then(|gated| Passage::begin(&gated.gate, &mut http));
        // An interceptor may have held the call up.
        if passage
            .as_ref()
            .is_some_and(|passage| passage.check().is_err())
        {
            return Err(Error::NotLeader { request: request() });
        }
        let transport = |error: kube_client::Error| Error::Transport {
            request: request(),
            sent: !never_sent(&error),
            source: Box::new(error),
        };
        let answer = self.inner.counted.send(http).await.map_err(transport);
        if passage.as_ref().is_some_and(Passage::refused) {
            return Err(Error::NotLeader { request: request() });
        }
        if let Some(passage) = &mut passage {
            match &answer {
                Ok(answer) => passage.answered(answer.status()),
                Err(error) if error.is_ambiguous() => {}
                Err(_) => passage.settle(),
            }
        }
        let response = answer?;
        let code = response.status();
        let retry_after = retry_after(response.headers());
        self.warnings.log(request, response.headers());
        let body = Limited::new(response.into_body(), self.settings.body_limit)
            .collect()
            .await
            .map_err(|error| {
                if error.is::<LengthLimitError>() {
                    return Error::TooLarge {
                        request: request(),
                        limit: self.settings.body_limit,
                    };
                }
                transport(kube_client::Error::Service(error))
            })?;
        Ok(Reply {
            code,
            retry_after,
            body: body.to_bytes(),
        })
    }
}

/// Whether no connection had the request, so that a write certainly did not happen.
fn never_sent(error: &kube_client::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if error.is::<Unsent>() {
            return true;
        }
        if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            return error.is_connect();
        }
        next = error.source();
    }
    false
}
