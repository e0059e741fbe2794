//! Events (events.k8s.io/v1): the history of an object in `kubectl describe`.
//!
//! [`Recorder::event`] never waits and never fails. The event goes into a bounded queue; one writer makes series of
//! repeated events, combines those that differ in their notes only, limits objects with too many, and tries each write
//! up to 12 times. It writes up to four at once and rests after them, three times as long as they would have taken one
//! after another, and at most a second for each: when the API server is busy, reconciles go first and events follow. A
//! metric counts dropped events and counts (`reeve_events_dropped_total`). At the manager's stop the queue is written, as far as
//! the grace period allows.
//!
//! Needs `create` and `patch` on `events` in `events.k8s.io`, and nothing else.

mod correlate;
#[cfg(test)]
#[path = "tests.rs"]
mod recording;
mod turns;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube_core::{Resource, ResourceExt};
use prometheus_client::metrics::counter::Counter;
use reeve_clock::Clock;
use tokio::sync::mpsc;

pub use correlate::{COMBINED, SIMILAR};
use correlate::{Identity, ObjectIdentity};
pub(crate) use writer::Writer;

use crate::client::{AsObject, types_of};

/// The maximum number of queued events (client-go: 1,000; but the writer here lets reconciles go first).
const QUEUE: usize = 10_000;

/// The maximum length of a note, in bytes (kube-apiserver: `NoteLengthLimit`).
const NOTE: usize = 1024;

/// The maximum length of a reason, an action and the names of reporter and instance, in bytes.
const NAME: usize = 128;

/// The maximum length of the last part of a reporter's name (kube-apiserver: `IsQualifiedName`).
const PART: usize = 63;

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Information.
    Normal,
    /// A problem.
    Warning,
}

/// Records events under the name of one controller. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    controller: Arc<str>,
    queue: mpsc::Sender<Recorded>,
    dropped: Counter,
    clock: Clock,
    annotations: Arc<BTreeMap<String, String>>,
}

/// An event on its way to the writer.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    regarding: ObjectReference,
    related: Option<ObjectReference>,
    identity: Identity,
    at: Timestamp,
    annotations: Arc<BTreeMap<String, String>>,
    dropped: Counter,
}

// === impl Recorder ===

impl Recorder {
    pub(crate) fn new(
        controller: &str,
        queue: mpsc::Sender<Recorded>,
        dropped: Counter,
        clock: Clock,
    ) -> Self {
        Self {
            controller: qualified(controller).into(),
            queue,
            dropped,
            clock,
            annotations: Arc::default(),
        }
    }

    /// The same recorder, whose events carry these annotations (client-go: `AnnotatedEventf`). A series keeps those of
    /// its first event.
    #[must_use]
    pub fn annotated<K: Into<String>, V: Into<String>>(
        &self,
        annotations: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let annotations = annotations
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()));
        Self {
            annotations: Arc::new(annotations.collect()),
            ..self.clone()
        }
    }

    /// Records that `reason` happened to `object` while the controller did `action`; `note` is the text for people.
    ///
    /// `reason` and `action` are words for machines, in CamelCase, of at most 128 characters; `note` is cut at
    /// 1024 bytes. A dynamic object names its kind if it was read by a client or a cache of this crate; the event of one
    /// that does not is dropped and counted.
    pub fn event<Form>(
        &self,
        object: &impl AsObject<Form>,
        event_type: EventType,
        reason: &str,
        action: &str,
        note: impl Into<String>,
    ) {
        let regarding = reference(object);
        if regarding.kind.is_none() {
            tracing::warn!(
                object = regarding.name,
                reason,
                "dropped an event: the kind of its object is not known"
            );
            self.dropped.inc();
            return;
        }
        self.event_for(&regarding, None, event_type, reason, action, note);
    }

    /// As [`Recorder::event`], by reference, and with a second object that is related.
    pub fn event_for(
        &self,
        regarding: &ObjectReference,
        related: Option<&ObjectReference>,
        event_type: EventType,
        reason: &str,
        action: &str,
        note: impl Into<String>,
    ) {
        let action = if action.is_empty() { reason } else { action };
        let recorded = Recorded {
            regarding: regarding.clone(),
            related: related.cloned(),
            identity: Identity {
                object: identity_of(regarding),
                related: related.map(identity_of),
                warning: event_type == EventType::Warning,
                reason: cut(reason, NAME),
                action: cut(action, NAME),
                note: cut(&note.into(), NOTE),
                controller: self.controller.to_string(),
            },
            at: self.clock.now(),
            annotations: Arc::clone(&self.annotations),
            dropped: self.dropped.clone(),
        };
        if self.queue.try_send(recorded).is_err() {
            self.dropped.inc();
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("controller", &self.controller)
            .finish_non_exhaustive()
    }
}

/// A reference to `object`, with its uid and version if it has them, and without a kind for a dynamic object that does
/// not name it.
pub fn reference<Form>(object: &impl AsObject<Form>) -> ObjectReference {
    let object = object.as_object();
    let types = types_of(object);
    let (api_version, kind) = types.map(|types| (types.api_version, types.kind)).unzip();
    ObjectReference {
        api_version,
        kind,
        namespace: object.namespace(),
        name: object.meta().name.clone(),
        uid: object.uid(),
        resource_version: object.resource_version(),
        field_path: None,
    }
}

fn identity_of(reference: &ObjectReference) -> ObjectIdentity {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    ObjectIdentity {
        api_version: text(&reference.api_version),
        kind: text(&reference.kind),
        namespace: text(&reference.namespace),
        name: text(&reference.name),
        uid: text(&reference.uid),
    }
}

/// `controller` in a form that the server accepts for reporters: letters, digits, `-`, `_` and `.` between letters or
/// digits, at most 63 of them, after a DNS name and a slash if there is one. The server refuses every other event.
fn qualified(controller: &str) -> String {
    let (prefix, name) = match controller.rsplit_once('/') {
        Some((prefix, name)) => (Some(prefix.to_lowercase()), name),
        None => (None, controller),
    };
    let part = |text: &str, allowed: &[char], length| {
        let plain = |letter: char| {
            let good = letter.is_ascii_alphanumeric() || allowed.contains(&letter);
            if good { letter } else { '-' }
        };
        let text: String = text.chars().map(plain).take(length).collect();
        let ends = |letter: char| !letter.is_ascii_alphanumeric();
        text.trim_matches(ends).to_owned()
    };
    let name = part(name, &['-', '_', '.'], PART);
    let name = if name.is_empty() {
        "unnamed".to_owned()
    } else {
        name
    };
    let prefix = prefix.map(|prefix| part(&prefix, &['-', '.'], NAME));
    match prefix.filter(|prefix| !prefix.is_empty()) {
        Some(prefix) => format!("{prefix}/{name}"),
        None => name,
    }
}

/// The start of `text`, at most `bytes` long, ending at a character.
fn cut(text: &str, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use kube_core::{ApiResource, DynamicObject};

    use super::*;

    #[test]
    fn a_full_queue_drops_and_counts_and_never_waits() {
        let (queue, mut waiting) = mpsc::channel(2);
        let dropped = Counter::default();
        let recorder = Recorder::new("example.com/test", queue, dropped.clone(), Clock::system());
        for _ in 0..5 {
            recorder.event_for(
                &ObjectReference::default(),
                None,
                EventType::Normal,
                "A",
                "",
                "b",
            );
        }
        assert_eq!(dropped.get(), 3);
        assert_eq!(waiting.try_recv().unwrap().identity.action, "A");
    }

    #[test]
    fn a_shared_or_a_dynamic_object_has_the_same_events() {
        let (queue, mut waiting) = mpsc::channel(9);
        let dropped = Counter::default();
        let recorder = Recorder::new("test", queue, dropped.clone(), Clock::system());
        let mut web = Deployment::default();
        web.metadata.name = Some("web".into());
        let mut dynamic = DynamicObject::new("web", &ApiResource::erase::<Deployment>(&()));
        recorder.event(&web, EventType::Normal, "A", "", "b");
        recorder.event(&Arc::new(web), EventType::Normal, "A", "", "b");
        recorder.event(&dynamic, EventType::Normal, "A", "", "b");
        recorder.event(&Arc::new(dynamic.clone()), EventType::Normal, "A", "", "b");
        let first = waiting.try_recv().unwrap();
        assert_eq!(first.regarding.kind.as_deref(), Some("Deployment"));
        for _ in 0..3 {
            assert_eq!(waiting.try_recv().unwrap().regarding, first.regarding);
        }
        dynamic.types = None;
        recorder.event(&dynamic, EventType::Normal, "A", "", "b");
        assert!(waiting.try_recv().is_err() && dropped.get() == 1);
    }

    #[test]
    fn a_reporter_is_named_as_the_server_takes_it() {
        let long = "a".repeat(200);
        for (controller, expected) in [
            ("web", "web".to_owned()),
            ("example.com/Web_1", "example.com/Web_1".to_owned()),
            ("Web Controller", "Web-Controller".to_owned()),
            ("Example.COM/web", "example.com/web".to_owned()),
            ("-web-", "web".to_owned()),
            ("/", "unnamed".to_owned()),
            (&long, "a".repeat(63)),
        ] {
            assert_eq!(qualified(controller), expected);
        }
    }

    #[test]
    fn text_is_cut_at_a_character() {
        assert_eq!(cut("äää", 3), "ä");
        assert_eq!(cut("abc", 128), "abc");
    }
}
