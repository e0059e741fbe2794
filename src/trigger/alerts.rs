//! The alerts of a request, whatever payload they came in.

use crate::target::Target;

/// Alerts past this number are not read.
pub(super) const MOST_ALERTS: usize = 1000;

/// How a payload is read, and how its sender signs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    /// The name in the configuration.
    pub(super) name: &'static str,
    /// The header in which the sender puts its signature unless the configuration names another.
    pub(super) hmac_header: &'static str,
    /// Reads a body; the flag is whether ranges may be banned. Pure.
    pub(super) read: fn(&[u8], bool) -> Result<Alerts, Unreadable>,
}

/// The content of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Alerts {
    pub(super) verdicts: Vec<Verdict>,
    /// How many alerts the sender left out of this request.
    pub(super) left_out: u64,
}

/// The request of an alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// To ban an address.
    Ban(Wanted),
    /// Nothing: resolved, a test, no address.
    Ignored,
    /// It cannot be read.
    Invalid(String),
}

/// A ban that an alert requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) target: Target,
    /// The label as sent: older objects are named after it.
    pub(super) raw: String,
    /// As sent; `None` is the configured default.
    pub(super) duration: Option<String>,
    pub(super) reason: String,
    /// A fault of the alert that does not prevent the ban; for the log.
    pub(super) remark: Option<String>,
}

/// Why a body has no alerts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    /// It is not the payload of the trigger's type.
    #[error("the body is not a {payload}: {problem}")]
    Malformed {
        payload: &'static str,
        problem: String,
    },
    /// More alerts than are read.
    #[error("more than {MOST_ALERTS} alerts in one request")]
    TooMany,
}
