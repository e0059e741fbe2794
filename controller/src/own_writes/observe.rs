//! Records the writes of a client as they begin and end.

use std::sync::Arc;

use kube_core::ObjectMeta;
use kube_core::response::Status;
use reeve_client::{Answer, Call, Error, GroupKind, PendingWrite, Verb, WriteObserver};

use super::cached::Reading;
use super::effect::{Begun, Notes};
use super::outline::{Outline, Subject};

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
