//! The alerts of a request, whatever payload they came in.

use crate::api::Alert;
use crate::target::Target;

/// Alerts, and addresses of alerts, past this number are not read.
pub(super) const MOST_ALERTS: usize = 1000;

/// Longest reason taken over, in characters.
const LONGEST_REASON: usize = 1024;

/// Longest name of a requester taken over, in characters; `spec.by` holds 256 bytes.
const LONGEST_BY: usize = 64;

/// The content of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alerts {
    /// What each alert requests; one with several addresses is listed once for each.
    pub(crate) judged: Vec<Judged>,
    /// How many alerts the sender left out of this request.
    pub(crate) left_out: u64,
}

/// One alert of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    /// Its place in the body, from 0.
    pub(crate) position: usize,
    /// What it requests.
    pub(crate) verdict: Verdict,
}

/// The request of an alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// To ban an address.
    Ban(Wanted),
    /// The alert about an address is over.
    Resolved(Resolved),
    /// Nothing: a test, no address.
    Ignored(String),
    /// It cannot be read.
    Invalid(String),
}

/// A ban that an alert requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) target: Target,
    /// The label as sent: older objects are named after it.
    pub(crate) raw: String,
    /// As sent; `None` is the configured default.
    pub(crate) duration: Option<String>,
    pub(crate) reason: String,
    /// The person or system that the alert names.
    pub(crate) by: Option<String>,
    /// Distinguishes this alert from others about the address: see [`firing`](super::firing).
    pub(crate) alert: String,
    /// The alert as its sender names it, for the block; `None` for a list that was read.
    pub(crate) named: Option<Alert>,
    /// A fault of the alert that does not prevent the ban; for the log.
    pub(crate) remark: Option<String>,
}

/// An alert that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) target: Target,
    pub(crate) raw: String,
    pub(crate) alert: String,
}

/// Why a text is not an address that may be banned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unusable(pub(super) String);

/// Why a body has no alerts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    /// It is not the payload of the trigger's type.
    #[error("the body is not an expected {payload}: {problem}")]
    Malformed {
        payload: &'static str,
        problem: String,
    },
    /// More alerts than are read.
    #[error("more than {MOST_ALERTS} alerts or addresses in one request")]
    TooMany,
}

// === impl Alerts ===

impl Alerts {
    /// Adds the verdicts of the alert at `position`.
    pub(super) fn add(
        &mut self,
        position: usize,
        verdicts: impl IntoIterator<Item = Verdict>,
    ) -> Result<(), Unreadable> {
        let judged = verdicts.into_iter();
        self.judged
            .extend(judged.map(|verdict| Judged { position, verdict }));
        if self.judged.len() > MOST_ALERTS {
            return Err(Unreadable::TooMany);
        }
        Ok(())
    }
}

/// A reason in one line of bounded length.
pub(super) fn reason(text: &str) -> String {
    clean(text, LONGEST_REASON)
}

/// A requester in one line of bounded length.
pub(super) fn by(text: &str) -> String {
    clean(text, LONGEST_BY)
}

/// The name of a rule in one line of bounded length.
pub(super) fn rule(text: &str) -> String {
    clean(text, LONGEST_BY)
}

fn clean(text: &str, longest: usize) -> String {
    text.trim()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(longest)
        .collect()
}
