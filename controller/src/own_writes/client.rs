//! A client that records its writes and reads from the caches.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use kube_core::ObjectMeta;
use kube_core::response::Status;
use reeve_client::{
    Answer, Call, Change, Error, FieldValidation, Gate, GroupKind, Interceptor, Kind, Mutated,
    Object, PendingWrite, Verb, WriteObserver, key_of,
};
use reeve_clock::Clock;

use super::cached::{CachedError, Reading};
use super::effect::{Begun, Notes};
use super::outline::{Outline, Subject};

/// Reads and writes objects: a [`reeve_client::Client`], which it dereferences to, with reads from the caches of the
/// manager it belongs to ([`Client::cached`]). Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    base: reeve_client::Client,
    /// The same without the observer of writes: the base of a client with other notes.
    unobserved: Arc<reeve_client::Client>,
    /// The record of writes, for the controller that holds the key until its caches show them.
    notes: Option<Arc<Notes>>,
    /// The caches to read.
    reading: Option<Arc<Reading>>,
}

// === impl Client ===

impl Client {
    /// Wraps a kube client. [`connect`](reeve_client::connect::connect) builds one that also detects dead peers.
    #[must_use]
    pub fn new(inner: kube_client::Client) -> Self {
        reeve_client::Client::new(inner).into()
    }

    fn map(mut self, change: impl FnOnce(reeve_client::Client) -> reeve_client::Client) -> Self {
        self.unobserved = Arc::new(change(Arc::unwrap_or_clone(self.unobserved)));
        self.observed()
    }

    /// Sets the observer of writes.
    fn observed(mut self) -> Self {
        let base = (*self.unobserved).clone();
        self.base = match &self.notes {
            Some(notes) => {
                let (notes, reading) = (Arc::clone(notes), self.reading.clone());
                base.observed(Arc::new(Observer { notes, reading }))
            }
            None => base,
        };
        self
    }

    pub(crate) fn with_notes(mut self, notes: Arc<Notes>) -> Self {
        self.notes = Some(notes);
        self.observed()
    }

    pub(crate) fn with_reading(mut self, reading: Reading) -> Self {
        self.reading = Some(Arc::new(reading));
        self.observed()
    }

    /// Adds `gate`, if there is one.
    pub(crate) fn with_gate(self, gate: Option<Arc<dyn Gate>>) -> Self {
        match gate {
            Some(gate) => self.map(|base| base.gated(gate)),
            None => self,
        }
    }

    pub(super) fn notes(&self) -> Option<&Arc<Notes>> {
        self.notes.as_ref()
    }

    pub(super) fn reading(&self) -> Option<&Arc<Reading>> {
        self.reading.as_ref()
    }

    /// As [`reeve_client::Client::with_deadline`].
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        self.map(|base| base.with_deadline(deadline))
    }

    /// As [`reeve_client::Client::with_clock`].
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        self.map(|base| base.with_clock(clock))
    }

    /// As [`reeve_client::Client::with_body_limit`].
    #[must_use]
    pub fn with_body_limit(self, bytes: usize) -> Self {
        self.map(|base| base.with_body_limit(bytes))
    }

    /// The same client, without a record of its writes: neither a key nor a cached read waits for them.
    #[must_use]
    pub fn without_read_your_writes(mut self) -> Self {
        self.notes = None;
        self.observed()
    }

    /// As [`reeve_client::Client::dry_run`].
    #[must_use]
    pub fn dry_run(self) -> Self {
        self.map(reeve_client::Client::dry_run)
    }

    /// As [`reeve_client::Client::field_owner`].
    #[must_use]
    pub fn field_owner(self, owner: impl Into<String>) -> Self {
        self.map(|base| base.field_owner(owner))
    }

    /// As [`reeve_client::Client::field_validation`].
    #[must_use]
    pub fn field_validation(self, validation: FieldValidation) -> Self {
        self.map(|base| base.field_validation(validation))
    }

    /// As [`reeve_client::Client::in_namespace`].
    #[must_use]
    pub fn in_namespace(self, namespace: impl Into<String>) -> Self {
        self.map(|base| base.in_namespace(namespace))
    }

    /// As [`reeve_client::Client::intercepted`].
    #[must_use]
    pub fn intercepted(self, interceptor: Interceptor) -> Self {
        self.map(|base| base.intercepted(interceptor))
    }

    /// As [`reeve_client::Client::create_or_update`]; the object is read from the cache if the kind is cached whole,
    /// after this client's own writes are seen, else from the server. An update writes the object as read, so it would
    /// delete the fields that [options](crate::cache::Selected) with `skip` or a transform keep out of the cache (as
    /// controller-runtime does).
    ///
    /// # Errors
    /// As [`reeve_client::Client::create_or_update`].
    pub async fn create_or_update<K: Object, M: Mutated>(
        &self,
        object: K,
        mutate: impl FnMut(&mut K) -> M + Send,
    ) -> Result<(K, Change), Error> {
        let objects = self.objects();
        match Box::pin(self.known(&object)).await {
            Some(found) => objects.create_or_update_known(object, found, mutate).await,
            None => objects.create_or_update(object, mutate).await,
        }
    }

    /// As [`reeve_client::Client::create_or_patch`]; the object is read from the cache if that holds the whole kind, after
    /// this client's own writes are seen, else from the server. A patch replaces a list as a whole, so one that was made of
    /// an object without a part of its items would delete that part.
    ///
    /// # Errors
    /// As [`reeve_client::Client::create_or_patch`].
    pub async fn create_or_patch<K: Object, M: Mutated>(
        &self,
        object: K,
        mutate: impl FnMut(&mut K) -> M + Send,
    ) -> Result<(K, Change), Error> {
        let objects = self.objects();
        match Box::pin(self.known(&object)).await {
            Some(found) => objects.create_or_patch_known(object, found, mutate).await,
            None => objects.create_or_patch(object, mutate).await,
        }
    }

    /// The object in the cache, or the cache's lack of it; `None` where only the server can answer: the kind is not
    /// cached, or not whole, or its cache is not filled or does not cover the namespace.
    async fn known<K: Object>(&self, object: &K) -> Option<Option<K>> {
        let (cached, reading) = (self.cached::<K>().ok()?, self.reading.as_ref()?);
        if !reading.caches.keeps_whole(&Kind::of::<K>()) {
            return None;
        }
        let key = self.key_in_namespace(&key_of(object.meta()));
        // Without a wait for a cache that is not filled, which may be for a right that is missing.
        if !cached.answers(key.namespace.as_deref()) {
            return None;
        }
        let found = match cached.get(&key).await {
            Ok(found) => found,
            Err(
                CachedError::NotCached(_) | CachedError::NoCaches { .. } | CachedError::Unread(_),
            ) => {
                return None;
            }
        };
        Some(found.map(Arc::unwrap_or_clone))
    }
}

impl Deref for Client {
    type Target = reeve_client::Client;

    fn deref(&self) -> &reeve_client::Client {
        &self.base
    }
}

impl From<reeve_client::Client> for Client {
    fn from(base: reeve_client::Client) -> Self {
        Self {
            unobserved: Arc::new(base.clone()),
            base,
            notes: None,
            reading: None,
        }
    }
}

/// Records each write to a kind that is cached.
#[derive(Debug)]
pub(super) struct Observer {
    pub(super) notes: Arc<Notes>,
    pub(super) reading: Option<Arc<Reading>>,
}

/// One recorded write on its way.
struct Pending {
    begun: Begun,
    subject: Subject,
}

// === impl Observer ===

impl WriteObserver for Observer {
    fn begin(&self, call: &Call) -> Option<Box<dyn PendingWrite>> {
        let kind = GroupKind::from(call.resource());
        // Nothing can wait for a kind that is not cached, and its records would push others out.
        let cached = self
            .reading
            .as_ref()
            .is_none_or(|reading| reading.caches.holds(&kind));
        if !cached {
            return None;
        }
        let subject = Subject::of(call);
        let mut begun = self.notes.begin(kind, subject.key.clone());
        if subject.verb == Verb::DeleteAllOf {
            begun = begun.about_many();
        }
        Some(Box::new(Pending { begun, subject }))
    }
}

// === impl Pending ===

impl PendingWrite for Pending {
    fn answered(self: Box<Self>, answer: &Answer, object: Option<&ObjectMeta>) {
        let Self { begun, subject } = *self;
        let outline = object.and_then(|meta| Outline::of_object(meta, &subject));
        match outline.or_else(|| Outline::of(answer.body(), &subject)) {
            Some(outline) => begun.settle(outline.effects(&subject)),
            // The write happened; a live read finds its effect.
            None => drop(begun),
        }
    }

    fn failed(self: Box<Self>, error: &Error) {
        let begun = self.begun;
        // Some objects may be deleted when one is refused.
        let in_part = begun.is_about_many()
            && error
                .status()
                .is_some_and(|status| !is_of_the_request(status));
        if in_part || error.is_ambiguous() {
            drop(begun);
        } else {
            begun.discard();
        }
    }
}

/// Whether the server refused a delete of many before it deleted any. Checks of each object (admission, a precondition)
/// may refuse it after others are gone.
fn is_of_the_request(status: &Status) -> bool {
    match status.code {
        // A webhook chooses its codes.
        _ if status.message.starts_with("admission webhook") => false,
        401 | 404 | 405 | 415 | 429 => true,
        // For the account, and not for one of the objects.
        403 => status.message.contains(" cannot deletecollection "),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_of_each_object_is_no_refusal_of_the_request() {
        let account = "configmaps is forbidden: User \"me\" cannot deletecollection resource \"configmaps\" in API group \"\"";
        let webhook = "admission webhook \"guard.example.com\" denied the request: not now";
        let policy =
            "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'keep' denied request";
        for (code, message, whole) in [
            (401, "Unauthorized", true),
            (403, account, true),
            (403, policy, false),
            (403, webhook, false),
            (
                404,
                "the server could not find the requested resource",
                true,
            ),
            (405, "method not allowed", true),
            (409, "the uid in the precondition does not match", false),
            (415, "unsupported media type", true),
            (422, "invalid", false),
            (429, "too many requests", true),
            (429, webhook, false),
            (500, "internal error", false),
        ] {
            let status = Status::failure(message, "").with_code(code);
            assert_eq!(is_of_the_request(&status), whole, "{code} {message}");
        }
    }
}
