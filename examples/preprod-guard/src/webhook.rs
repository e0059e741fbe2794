//! The webhook: reads a request, decides, writes a record, answers.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::RwLock;
use reeve_webhook::Webhook;
use reeve_webhook::admission::{Request, Verdict};

use crate::audit::Record;
use crate::config::{Config, Mode};
use crate::decision::{Decision, Rule, decide};
use crate::state::State;
use crate::target::Target;

/// A webhook `name` for requests of any kind, such as `pod.validate.hbox`.
///
/// `now` returns the time, and `record` takes the line of each decision.
pub fn guard(
    name: impl Into<String>,
    config: Arc<Config>,
    state: Arc<RwLock<State>>,
    now: impl Fn() -> Timestamp + Send + Sync + 'static,
    record: impl Fn(&Record) + Send + Sync + 'static,
) -> Webhook {
    Webhook::validating_any(name, move |request: Request| {
        let target = Target::of(request, &config.mark);
        let now = now();
        let decision = decide(&target, &state.read(), &config, now);
        record(&Record::of(&target, &decision, now));
        std::future::ready(verdict(decision))
    })
}

/// The answer to the API server. A denial has no reason: kubectl would print it before the message.
fn verdict(decision: Decision) -> Verdict {
    let mut verdict = match &decision.denial {
        Some(finding) => {
            let code = if finding.rule == Rule::Unresolved {
                503
            } else {
                403
            };
            Verdict::deny(&finding.message).code(code).reason("")
        }
        None => Verdict::allow(),
    };
    for (finding, mode) in decision.noted {
        let name = serde_json::json!(finding.rule);
        let name = name.as_str().unwrap_or_default().to_owned();
        if mode == Mode::Warn {
            verdict = verdict.warn(&finding.message);
        }
        verdict = verdict.audit(name, finding.message);
    }
    verdict
}
