//! A webhook: a name, a path and a handler.

use std::fmt;
use std::future::ready;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use json_patch::Patch;
use kube_core::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::review::Review;
use super::{Failure, Mutation, Operation, Outcome, Request, Response, Verdict, change};

/// The form of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Form {
    /// Allows or denies.
    Validating,
    /// May change the object, too.
    Mutating,
}

/// Answers the reviews of one path.
type Handler =
    Arc<dyn Fn(&[u8], Terms) -> BoxFuture<'static, Result<Response, Failure>> + Send + Sync>;

/// How a review is read.
#[derive(Clone, Copy, Debug, Default)]
struct Terms {
    deadline: Option<Instant>,
    /// Whether a stored object that cannot be read is denied.
    needs_old: bool,
}

/// An admission webhook: its name, its path and its handler. Clones share the handler.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use reeve_webhook::Webhook;
/// use reeve_webhook::admission::{Mutation, Request, Verdict};
///
/// let guard = Webhook::validating("guard.example.com", |request: Request<Pod>| async move {
///     let locked = |pod: &Pod| {
///         let labels = pod.metadata.labels.as_ref();
///         labels.is_some_and(|labels| labels.contains_key("locked"))
///     };
///     if request.either(locked) && request.user.username != "admin" {
///         return Verdict::deny("the Pod is locked");
///     }
///     Verdict::allow()
/// });
/// assert_eq!(guard.path(), "/validate--v1-pod");
///
/// let team = Webhook::mutating("team.example.com", |mut request: Request<Pod>| async move {
///     let Some(mut pod) = request.object.take() else { return Mutation::unchanged() };
///     pod.metadata.labels.get_or_insert_default().insert("team".into(), "a".into());
///     Mutation::changed(pod)
/// });
/// # let _ = team;
/// ```
#[derive(Clone)]
pub struct Webhook {
    name: String,
    path: String,
    form: Form,
    needs_old: bool,
    /// The kind of its type, if it has one.
    expected: Option<Expected>,
    handler: Handler,
}

/// The kind that a handler takes.
#[derive(Clone)]
struct Expected {
    group: String,
    version: String,
    kind: String,
    #[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "rules of tests"))]
    plural: String,
}

// === impl Webhook ===

impl Webhook {
    /// A webhook that allows or denies requests for objects of type `K`. Its name is that in the webhook configuration,
    /// for logs and errors. Its path is kubebuilder's: `/validate-group-version-kind`, with `-` for each dot of the group.
    ///
    /// For a subresource `K` is the type of its body: `Scale`, `Eviction`. A request with another kind is a failure, and an
    /// object that is no `K` is denied with code 400, also a stored one ([`Webhook::allow_unreadable_old`]).
    pub fn validating<K, F, Fut>(name: impl Into<String>, handler: F) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
        F: Fn(Request<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: Outcome<Verdict>> + Send + 'static,
    {
        let expected = Expected::of::<K>();
        let path = expected.path("validate");
        Self::new_validating(name.into(), path, Some(expected), handler)
    }

    /// As [`Webhook::validating`], for objects of any kind: those of several kinds, or of a kind without a type, such as
    /// `PodExecOptions`. Its path is `/validate/` and the name.
    pub fn validating_any<F, Fut>(name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Request<Value>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: Outcome<Verdict>> + Send + 'static,
    {
        let name = name.into();
        let path = format!("/validate/{name}");
        Self::new_validating(name, path, None, handler)
    }

    /// A webhook that may change objects of type `K`. Its path is kubebuilder's: `/mutate-group-version-kind`. See
    /// [`Mutation::changed`] for the patch.
    ///
    /// A stored object that is no `K` is not denied, because most handlers do not use it, and an update may repair it
    /// ([`Request::old_unreadable`]; controller-runtime: a `Defaulter` gets the new object alone).
    pub fn mutating<K, F, Fut>(name: impl Into<String>, handler: F) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Serialize + Send + 'static,
        F: Fn(Request<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: Outcome<Mutation<K>>> + Send + 'static,
    {
        let expected = Expected::of::<K>();
        let path = expected.path("mutate");
        Self::new_mutating(name.into(), path, Some(expected), handler)
    }

    /// As [`Webhook::mutating`], for objects of any kind. Its path is `/mutate/` and the name.
    pub fn mutating_any<F, Fut>(name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Request<Value>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: Outcome<Mutation<Value>>> + Send + 'static,
    {
        let name = name.into();
        let path = format!("/mutate/{name}");
        Self::new_mutating(name, path, None, handler)
    }

    fn new_validating<K, F, Fut>(
        name: String,
        path: String,
        expected: Option<Expected>,
        handler: F,
    ) -> Self
    where
        K: DeserializeOwned + Send + 'static,
        F: Fn(Request<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: Outcome<Verdict>> + Send + 'static,
    {
        let (webhook, kind) = (name.clone(), expected.clone());
        let answer: Handler = Arc::new(move |body, terms| {
            let read = begin::<K>(&webhook, expected.as_ref(), body, terms);
            let (uid, decision) = match read {
                Ok((Begun::Ask(request), _)) => (request.uid.clone(), handler(*request)),
                Ok((Begun::Unreadable(response), _)) => return ready(Ok(response)).boxed(),
                Err(failure) => return ready(Err(failure)).boxed(),
            };
            let webhook = webhook.clone();
            async move {
                let decision = decision.await.into_decision();
                let verdict = decision.map_err(|source| Failure::Handler { webhook, source })?;
                Ok(Response::of(&uid, &verdict, Patch::default()))
            }
            .boxed()
        });
        Self {
            name,
            path,
            form: Form::Validating,
            needs_old: true,
            expected: kind,
            handler: answer,
        }
    }

    fn new_mutating<K, F, Fut>(
        name: String,
        path: String,
        expected: Option<Expected>,
        handler: F,
    ) -> Self
    where
        K: DeserializeOwned + Serialize + Send + 'static,
        F: Fn(Request<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: Outcome<Mutation<K>>> + Send + 'static,
    {
        let (webhook, kind) = (name.clone(), expected.clone());
        let answer: Handler = Arc::new(move |body, terms| {
            let read = begin::<K>(&webhook, expected.as_ref(), body, terms);
            let (request, raw) = match read {
                Ok((Begun::Ask(request), raw)) => (*request, raw),
                Ok((Begun::Unreadable(response), _)) => return ready(Ok(response)).boxed(),
                Err(failure) => return ready(Err(failure)).boxed(),
            };
            let (uid, operation) = (request.uid.clone(), request.operation);
            let object = request.object.as_ref().or(request.old_object.as_ref());
            let before = raw.zip(object).map(Before::of);
            let decision = handler(request);
            let webhook = webhook.clone();
            async move {
                let decision = decision.await.into_decision();
                let Mutation { verdict, object } = decision.map_err(|source| Failure::Handler {
                    webhook: webhook.clone(),
                    source,
                })?;
                let patch = match object {
                    Some(after) if verdict.is_allowed() => {
                        difference(&webhook, operation, before, &after)?
                    }
                    _ => Patch::default(),
                };
                Ok(Response::of(&uid, &verdict, patch))
            }
            .boxed()
        });
        Self {
            name,
            path,
            form: Form::Mutating,
            needs_old: false,
            expected: kind,
            handler: answer,
        }
    }

    /// Serves the webhook on another path.
    #[must_use]
    pub fn at(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Has a validating handler decide about an update or a deletion of a stored object that is no `K`:
    /// [`Request::old_object`] is `None` and [`Request::old_unreadable`] is set then. By default such a request is denied with
    /// code 400, because a rule about the old state cannot be checked (controller-runtime: `CustomValidator`); then an object
    /// that was stored before `K` had a field that it needs cannot be repaired or deleted. No effect on a mutating webhook.
    #[must_use]
    pub fn allow_unreadable_old(mut self) -> Self {
        self.needs_old = false;
        self
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The rule for every operation on the objects of its type.
    #[cfg(feature = "testing")]
    pub(crate) fn rule(&self) -> Option<Value> {
        let expected = self.expected.as_ref()?;
        Some(serde_json::json!({
            "apiGroups": [expected.group],
            "apiVersions": [expected.version],
            "resources": [expected.plural],
            "operations": ["*"],
            "scope": "*",
        }))
    }

    /// Whether it validates or mutates.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// The answer to `review`, an AdmissionReview of version v1 as JSON. It has no deadline, and a panic of the handler is
    /// the caller's: [`Server`](crate::Server) adds both.
    ///
    /// # Errors
    /// When the body is not such a review, or the handler fails.
    pub async fn answer(&self, review: &[u8]) -> Result<Response, Failure> {
        self.call_within(review, None).await
    }

    pub(crate) fn call(
        &self,
        review: &[u8],
        deadline: Instant,
    ) -> BoxFuture<'static, Result<Response, Failure>> {
        self.call_within(review, Some(deadline))
    }

    fn call_within(
        &self,
        review: &[u8],
        deadline: Option<Instant>,
    ) -> BoxFuture<'static, Result<Response, Failure>> {
        let needs_old = self.needs_old;
        let terms = Terms {
            deadline,
            needs_old,
        };
        (self.handler)(review, terms)
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("name", &self.name)
            .field("path", &self.path)
            .field("form", &self.form)
            .finish_non_exhaustive()
    }
}

/// A call that was read.
enum Begun<K> {
    Ask(Box<Request<K>>),
    /// An object of the request is no `K`.
    Unreadable(Response),
}

/// Reads a call. The text of the object that it is about is for the patch.
fn begin<'a, K: DeserializeOwned>(
    webhook: &str,
    expected: Option<&Expected>,
    body: &'a [u8],
    terms: Terms,
) -> Result<(Begun<K>, Option<&'a RawValue>), Failure> {
    let review = Review::of(body)?;
    if let Some(expected) = expected {
        expected.check(webhook, &review)?;
    }
    let begun = match review.read::<K>(terms.needs_old) {
        Ok(mut request) => {
            request.deadline = terms.deadline;
            Begun::Ask(Box::new(request))
        }
        // controller-runtime answers an object that cannot be decoded in the same way.
        Err(problem) => {
            let verdict = Verdict::deny(problem).code(400).reason("BadRequest");
            Begun::Unreadable(Response::of(&review.uid, &verdict, Patch::default()))
        }
    };
    Ok((begun, review.object.or(review.old_object)))
}

/// The object of a request before its handler ran.
struct Before {
    raw: String,
    /// As its type writes it.
    written: serde_json::Result<String>,
}

// === impl Before ===

impl Before {
    fn of<K: Serialize>((raw, object): (&RawValue, &K)) -> Self {
        Self {
            raw: raw.get().to_owned(),
            written: serde_json::to_string(object),
        }
    }
}

/// The patch from the object that the request is about to `after`. A deletion has only its stored object, and a handler that
/// returns it as it is changes nothing.
fn difference<K: Serialize>(
    webhook: &str,
    operation: Operation,
    before: Option<Before>,
    after: &K,
) -> Result<Patch, Failure> {
    let encode = |source| Failure::Encode {
        webhook: webhook.to_owned(),
        source,
    };
    let unchangeable = || Failure::Unchangeable {
        webhook: webhook.to_owned(),
        operation: operation.as_str(),
    };
    // A stored object that cannot be read is not the one that the handler returned.
    let Before { raw, written } = before.ok_or_else(unchangeable)?;
    let before = written.map_err(encode)?;
    let after = serde_json::to_string(after).map_err(encode)?;
    let patch = change::patch(&raw, &before, &after).map_err(encode)?;
    let changeable = matches!(operation, Operation::Create | Operation::Update);
    if !changeable && !patch.0.is_empty() {
        return Err(unchangeable());
    }
    Ok(patch)
}

// === impl Expected ===

impl Expected {
    fn of<K: Resource<DynamicType = ()>>() -> Self {
        Self {
            group: K::group(&()).into_owned(),
            version: K::version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
        }
    }

    /// kubebuilder: `generateValidatePath`.
    fn path(&self, verb: &str) -> String {
        let group = self.group.replace('.', "-");
        format!(
            "/{verb}-{group}-{}-{}",
            self.version,
            self.kind.to_lowercase()
        )
    }

    fn check(&self, webhook: &str, review: &Review<'_>) -> Result<(), Failure> {
        let found = review.kind();
        if (&found.group, &found.version, &found.kind) == (&self.group, &self.version, &self.kind) {
            return Ok(());
        }
        let named = |group: &str, version: &str, kind: &str| {
            if group.is_empty() {
                format!("{kind} of {version}")
            } else {
                format!("{kind} of {group}/{version}")
            }
        };
        Err(Failure::Kind {
            webhook: webhook.to_owned(),
            expected: named(&self.group, &self.version, &self.kind),
            found: named(&found.group, &found.version, &found.kind),
        })
    }
}
