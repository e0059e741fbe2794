//! The span of a reconcile.
//!
//! Every log line of a reconcile shows the fields that the span has at that time: the controller, the key and the id. The
//! fields that only a trace needs are recorded at the end, after the last line.

use std::fmt::{self, Display};

use tracing::Span;
use tracing::field::Empty;

use super::worker::{Label, Settlement};
use crate::context::ReconcileId;
use crate::reconcile::{Class, Error};
use reeve_workqueue::Reason;

/// A new span. `id` is called if the span is enabled. It has the highest level, so that a warning has its fields whatever
/// the level of the log.
pub(super) fn of_reconcile(
    controller: &str,
    key: &impl Display,
    id: impl FnOnce() -> ReconcileId,
) -> Span {
    tracing::error_span!(
        "reconcile",
        controller = %controller,
        key = %key,
        reconcile_id = %id(),
        attempt = Empty,
        reasons = Empty,
        outcome = Empty,
        error.type = Empty,
        otel.status_code = Empty,
        otel.status_description = Empty,
    )
}

/// The record of the end of a reconcile in its span. A reconcile that is dropped has the outcome `dropped`.
pub(super) struct Ending {
    span: Span,
    attempt: u32,
    reasons: String,
    ended: bool,
}

// === impl Ending ===

impl Ending {
    pub(super) fn new(span: &Span, attempt: u32, reasons: &[Reason]) -> Self {
        let reasons = if span.is_disabled() {
            String::new()
        } else {
            Words(reasons).to_string()
        };
        Self {
            span: span.clone(),
            attempt,
            reasons,
            ended: false,
        }
    }

    /// Records the outcome, with the words of `controller_runtime_reconcile_total`.
    pub(super) fn settled(mut self, settled: &Settlement) {
        self.ended = true;
        if self.span.is_disabled() {
            return;
        }
        let outcome = match settled.label {
            Label::Success => "success",
            Label::Error => "error",
            Label::Requeue => "requeue",
            Label::RequeueAfter => "requeue_after",
        };
        tracing::debug!(outcome, attempt = self.attempt, reasons = %self.reasons, "reconciled");
        match &settled.error {
            None => self.record(outcome),
            Some(error) => tracing::record_all!(
                self.span,
                attempt = self.attempt,
                reasons = &*self.reasons,
                outcome = outcome,
                error.type = type_of(error),
                otel.status_code = "ERROR",
                otel.status_description = %error,
            ),
        }
    }

    fn record(&self, outcome: &str) {
        tracing::record_all!(
            self.span,
            attempt = self.attempt,
            reasons = &*self.reasons,
            outcome = outcome,
        );
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.ended {
            self.record("dropped");
        }
    }
}

/// The effect of an error on its key, as one word.
fn type_of(error: &Error) -> &'static str {
    match error.class() {
        Class::Terminal => "terminal",
        Class::RateLimited { .. } => "rate_limited",
        Class::Transient if error.is_outage() => "outage",
        Class::Transient => "transient",
    }
}

/// Reasons with commas between them.
struct Words<'a>(&'a [Reason]);

impl Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, reason) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{reason}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_warning_has_the_key_of_its_reconcile_at_every_level_of_the_log() {
        // Otherwise a thread of another test that reaches the span first would disable it for the whole process.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
        let clock = reeve_clock::Clock::system();
        for level in [Level::INFO, Level::WARN, Level::ERROR] {
            let log = tracing_subscriber::fmt().with_max_level(level).finish();
            tracing::subscriber::with_default(log, || {
                let span = of_reconcile("ipblock", &"default/scanner", || ReconcileId::new(&clock));
                assert!(!span.is_disabled(), "{level}");
            });
        }
    }
}
