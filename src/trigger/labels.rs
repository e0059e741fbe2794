//! Alerts with labels and annotations: the payloads of Grafana and of Alertmanager, as far as they are the same. Pure.

use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::address::addresses;
use super::alerts::{self, Alerts, Resolved, Unreadable, Verdict, Wanted};
use crate::api;
use crate::duration;

/// Longest fingerprint that is kept as it is; a longer one is hashed.
const LONGEST_FINGERPRINT: usize = 64;

/// The labels and annotations that hold the parts of a ban, most wanted first.
///
/// An address, a duration or a requester is taken from a label, or else from an annotation of the name; a reason from an
/// annotation, or else from a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// The address, or several between commas or blanks.
    pub ip: Vec<String>,
    /// How long the ban lasts.
    pub duration: Vec<String>,
    /// Why.
    pub reason: Vec<String>,
    /// The person or system that requests it.
    pub by: Vec<String>,
}

/// The parts in which two payloads differ.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialect {
    /// The payload, for messages.
    pub(super) payload: &'static str,
    /// The text before a reason.
    pub(super) prefix: &'static str,
    /// The versions of the payload that can be read; empty: any.
    pub(super) versions: &'static [&'static str],
    /// The names of alerts that are not about an address.
    pub(super) ignored: &'static [&'static str],
}

/// The request. Unknown fields are ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload {
    alerts: Vec<Alert>,
    #[serde(default)]
    version: Option<String>,
    /// How many alerts the sender left out of this request.
    #[serde(default)]
    truncated_alerts: Option<u64>,
}

/// One alert.
#[derive(Debug, Deserialize)]
struct Alert {
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    labels: Option<Map<String, Value>>,
    #[serde(default)]
    annotations: Option<Map<String, Value>>,
    #[serde(default)]
    fingerprint: Option<String>,
}

// === impl Labels ===

impl Default for Labels {
    fn default() -> Self {
        let names = |names: &[&str]| names.iter().copied().map(String::from).collect();
        Self {
            ip: names(&["ip"]),
            duration: names(&["duration"]),
            reason: names(&["description", "summary", "alertname"]),
            by: Vec::new(),
        }
    }
}

/// Reads a body.
pub(super) fn read(
    body: &[u8],
    dialect: Dialect,
    labels: &Labels,
    allow_ranges: bool,
) -> Result<Alerts, Unreadable> {
    let malformed = |problem: String| Unreadable::Malformed {
        payload: dialect.payload,
        problem,
    };
    let payload: Payload =
        serde_json::from_slice(body).map_err(|error| malformed(error.to_string()))?;
    let version = payload.version.as_deref().unwrap_or_default();
    if !dialect.versions.is_empty() && !dialect.versions.contains(&version) {
        let known = dialect.versions.join(" or ");
        return Err(malformed(format!(
            "its version is {version:?}, not {known}"
        )));
    }
    let mut alerts = Alerts {
        left_out: payload.truncated_alerts.unwrap_or_default(),
        ..Alerts::default()
    };
    for (position, alert) in payload.alerts.iter().enumerate() {
        alerts.add(position, alert.judge(dialect, labels, allow_ranges));
    }
    Ok(alerts)
}

// === impl Alert ===

impl Alert {
    fn judge(&self, dialect: Dialect, names: &Labels, allow_ranges: bool) -> Vec<Verdict> {
        let ignored = |why: String| vec![Verdict::Ignored(why)];
        let firing = match self.status.as_deref() {
            Some("firing") => true,
            Some("resolved") => false,
            Some(other) => return ignored(format!("its status is {other:?}")),
            None => return ignored("it has no status".into()),
        };
        let name = self.label("alertname");
        if let Some(name) = name.filter(|name| dialect.ignored.contains(name)) {
            return ignored(format!("{name} is not about an address"));
        }
        let label = |names: &[String]| {
            let mut names = names.iter();
            names
                .find_map(|name| self.label(name).or_else(|| self.annotation(name)))
                .map(String::from)
        };
        let Some(text) = label(&names.ip) else {
            return ignored(format!("it has no label {}", names.ip.join(", ")));
        };
        let alert = self.fingerprint();
        let given = label(&names.duration);
        let mut reasons = names.reason.iter();
        let reason = reasons.find_map(|name| self.annotation(name).or_else(|| self.label(name)));
        let reason = alerts::reason(reason.unwrap_or("alert without a description"));
        let named = api::Alert {
            rule: name.map(alerts::rule),
            fingerprint: Some(alert.clone()),
        };
        let by = label(&names.by).map(|by| alerts::by(&by));
        let found = addresses(&text, allow_ranges).into_iter();
        found
            .map(|entry| match entry {
                Ok((target, raw)) if firing => {
                    let (duration, remark) = lasting(given.as_deref(), &target);
                    Verdict::Ban(Wanted {
                        target,
                        raw: raw.to_owned(),
                        duration,
                        reason: format!("{}{reason}", dialect.prefix),
                        by: by.clone(),
                        alert: alert.clone(),
                        named: Some(named.clone()),
                        remark,
                    })
                }
                Ok((target, raw)) => Verdict::Resolved(Resolved {
                    target,
                    raw: raw.to_owned(),
                    alert: alert.clone(),
                }),
                Err(why) if firing => Verdict::Invalid(why.0),
                Err(why) => Verdict::Ignored(why.0),
            })
            .collect()
    }

    fn label(&self, name: &str) -> Option<&str> {
        text(self.labels.as_ref(), name)
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        text(self.annotations.as_ref(), name)
    }

    /// The sender's fingerprint of the labels, or one of our own.
    fn fingerprint(&self) -> String {
        let given = self.fingerprint.as_deref().unwrap_or_default().trim();
        if !given.is_empty() {
            return bounded(given);
        }
        let labels = self.labels.as_ref().map(|labels| {
            // The same labels in another order are the same alert.
            let mut pairs: Vec<String> = labels
                .iter()
                .map(|(name, value)| format!("{name:?}={value}"))
                .collect();
            pairs.sort();
            pairs.join(",")
        });
        digest(&labels.unwrap_or_default())
    }
}

/// The identity of an alert as it is kept: short ones as they are.
pub(super) fn bounded(identity: &str) -> String {
    let plain = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
    if identity.len() <= LONGEST_FINGERPRINT && identity.chars().all(plain) {
        return identity.to_owned();
    }
    digest(identity)
}

fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).map(|b| format!("{b:02x}")).collect()
}

/// The duration as given, or what is wrong with it: the attack is real even when the label is wrong, so it is a ban for
/// the default time.
pub(super) fn lasting(
    given: Option<&str>,
    target: &crate::target::Target,
) -> (Option<String>, Option<String>) {
    match given.map(|given| (given, duration::parse(given))) {
        None => (None, None),
        Some((given, Ok(_))) => (Some(given.to_owned()), None),
        Some((_, Err(error))) => {
            let remark = format!("{target}: {error}; the default is used");
            (None, Some(remark))
        }
    }
}

fn text<'a>(map: Option<&'a Map<String, Value>>, name: &str) -> Option<&'a str> {
    let text = map?.get(name)?.as_str()?.trim();
    (!text.is_empty()).then_some(text)
}
