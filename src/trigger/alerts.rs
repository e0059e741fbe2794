//! The alerts of a request, whatever payload they came in.

use crate::api::Alert;
use crate::target::Target;

/// Bans past this number in one request are not read, and as many other verdicts. Each address of an alert counts. The
/// alerts past it are counted: a refusal of the whole request would lose every ban, and its sender would not repeat it.
pub(super) const MOST_ALERTS: usize = 4000;

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
    /// How many bans and ends of alerts were not read, because there are more than [`MOST_ALERTS`].
    pub(crate) not_read: u64,
    pub(super) bans: usize,
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
}

// === impl Alerts ===

impl Alerts {
    /// Adds the verdicts of the alert at `position`. Resolved and useless alerts take no place of a ban.
    pub(super) fn add(&mut self, position: usize, verdicts: impl IntoIterator<Item = Verdict>) {
        for verdict in verdicts {
            let bans = matches!(verdict, Verdict::Ban(_));
            let others = self.judged.len() - self.bans;
            if (if bans { self.bans } else { others }) >= MOST_ALERTS {
                let counts = !matches!(verdict, Verdict::Ignored(_));
                self.not_read += u64::from(counts);
                continue;
            }
            self.bans += usize::from(bans);
            self.judged.push(Judged { position, verdict });
        }
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
