//! The spans of a thread, recorded for tests.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// The spans of the thread that records them.
#[derive(Clone, Debug, Default)]
pub struct Spans(Arc<Mutex<Vec<Span>>>);

/// A recorded span.
#[derive(Clone, Debug, Default)]
pub struct Span {
    /// The name at its call site.
    pub name: &'static str,
    /// Its parent, as an index among the recorded spans.
    pub parent: Option<usize>,
    /// Its fields with their last values.
    pub fields: BTreeMap<&'static str, String>,
    /// Whether it is closed.
    pub closed: bool,
}

/// The index of a span, as an extension of it.
#[derive(Clone, Copy)]
struct Index(usize);

// === impl Spans ===

impl Spans {
    /// Records the spans of this thread up to the level `most` until the guard is dropped.
    pub fn record(most: LevelFilter) -> (Self, DefaultGuard) {
        // Otherwise tracing disables a call site for good when the thread of another test reaches it first.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
        let spans = Self::default();
        let subscriber = tracing_subscriber::registry().with(spans.clone().with_filter(most));
        (spans, tracing::subscriber::set_default(subscriber))
    }

    /// The spans until now, in the order in which they began.
    #[must_use]
    pub fn all(&self) -> Vec<Span> {
        self.0.lock().clone()
    }

    /// The spans until now whose name is `name`.
    #[must_use]
    pub fn named(&self, name: &str) -> Vec<Span> {
        let all = self.0.lock();
        all.iter()
            .filter(|span| span.name == name)
            .cloned()
            .collect()
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).expect("a new span");
        let parent = span.parent();
        let parent = parent.and_then(|parent| parent.extensions().get::<Index>().copied());
        let mut recorded = Span {
            name: attributes.metadata().name(),
            parent: parent.map(|index| index.0),
            ..Span::default()
        };
        attributes.record(&mut recorded);
        let mut spans = self.0.lock();
        span.extensions_mut().insert(Index(spans.len()));
        spans.push(recorded);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        self.change(id, &context, |span| values.record(span));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        self.change(&id, &context, |span| span.closed = true);
    }
}

impl Spans {
    fn change<S>(&self, id: &Id, context: &Context<'_, S>, change: impl FnOnce(&mut Span))
    where
        S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    {
        let span = context.span(id).expect("an open span");
        if let Some(Index(index)) = span.extensions().get::<Index>() {
            change(&mut self.0.lock()[*index]);
        }
    }
}

// === impl Span ===

impl Span {
    /// The value of a field; empty if it has none.
    #[must_use]
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    fn set(&mut self, field: &Field, value: impl Display) {
        self.fields.insert(field.name(), value.to_string());
    }
}

impl Visit for Span {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.set(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value);
    }
}
