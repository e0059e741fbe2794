//! The decisions of CrowdSec: `GET /v1/decisions/stream` of the local API, with the key of a bouncer.
//!
//! The first call (`startup=true`) brings every decision, each later one what is new and what was deleted since the
//! last call of the same key. The server counts a delta as delivered when it has answered. So after any fault, of the call
//! or of a write, the next call starts up again. A key must not be shared: another bouncer would take away deltas.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;

use super::definition::{Flavour, Source};
use super::entry::{Entry, Fault, Pulled};
use crate::duration;
use crate::outbound::Outbound;
use crate::secret::Secret;
use crate::target::Target;
use crate::trigger::single_target;

/// Decisions that are remembered, for each entry that is allowed: an address may have several.
const DECISIONS_FOR_AN_ENTRY: usize = 4;

/// Decisions that are not taken and are counted.
const MOST_LEFT_OUT: usize = 65_536;

/// The stream between two calls.
#[derive(Debug, Default)]
pub(super) struct Stream {
    started: bool,
    decisions: BTreeMap<i64, Decision>,
    /// The reasons of the decisions, each once: thousands have the same.
    reasons: BTreeSet<Arc<str>>,
    /// The decisions that are not taken, by their ends; at most [`MOST_LEFT_OUT`].
    left_out: BTreeMap<i64, Timestamp>,
    /// Decisions were left out because there were too many.
    lacking: bool,
    /// The last full answer had far fewer decisions than there were, and did not count.
    doubted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Decision {
    target: Target,
    until: Timestamp,
    reason: Arc<str>,
}

/// The answer. Both lists may be null, and neither may be absent: another service behind the URL must not read as one
/// without decisions.
#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(deserialize_with = "Option::deserialize")]
    new: Option<Vec<Wire>>,
    #[serde(deserialize_with = "Option::deserialize")]
    deleted: Option<Vec<Wire>>,
}

/// A decision on the wire.
#[derive(Clone, Debug, Deserialize)]
struct Wire {
    id: i64,
    #[serde(default)]
    origin: String,
    #[serde(default)]
    scenario: String,
    #[serde(default)]
    scope: String,
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    value: String,
    /// The time that is left, in Go's notation, with a minus when it is over.
    #[serde(default)]
    duration: String,
}

// === impl Stream ===

impl Stream {
    pub(super) async fn pull(
        &mut self,
        source: &Source,
        secret: Option<&Secret>,
        outbound: &Arc<dyn Outbound>,
        now: Timestamp,
    ) -> Result<Pulled, Fault> {
        let Flavour::CrowdSec { origins, scenarios } = &source.flavour else {
            return Err(Fault::new("it is not CrowdSec"));
        };
        let url = self.url(source, origins, scenarios);
        let key = secret.map(Secret::expose).unwrap_or_default();
        let request = http::Request::get(url).header("x-api-key", key);
        let request = request.body(Bytes::new());
        let request = request.map_err(|_| Fault::new("the URL or the key cannot be sent"))?;
        // Until this call has its effect, the next one has to bring everything.
        let snapshot = !std::mem::take(&mut self.started);
        let answer = outbound.send(request).await;
        let answer = answer.map_err(|error| Fault::new(error.to_string()))?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Err(Fault::new("CrowdSec refuses the key in apiKeyFile"));
            }
            _ => return Err(Fault::of(&answer)),
        }
        let answer: Answer = serde_json::from_slice(answer.body()).map_err(|error| {
            // The words of the error may repeat the answer, which may be anything.
            let (line, column) = (error.line(), error.column());
            Fault::new(format!(
                "the answer is not a stream of decisions (line {line}, column {column})"
            ))
        })?;
        if snapshot {
            // CrowdSec answers 200 before it reads its database, and closes the list when that fails.
            let count = answer.new.as_ref().map_or(0, Vec::len);
            let small = count == 0 || count * 2 < self.decisions.len();
            if small && !std::mem::replace(&mut self.doubted, true) {
                return Err(Fault::new(format!(
                    "CrowdSec lists {count} decisions, and there were {}; it is asked again before that counts",
                    self.decisions.len()
                )));
            }
            self.doubted = false;
            self.decisions.clear();
            self.left_out.clear();
            self.lacking = false;
        }
        let has_news = [&answer.new, &answer.deleted];
        let has_news = has_news
            .iter()
            .any(|list| list.as_ref().is_some_and(|it| !it.is_empty()));
        // Without news only the ends of decisions change the list.
        let before = has_news.then(|| self.targets());
        let count = self.decisions.len();
        self.take(answer, source, now);
        // A decision that was left out is in no later answer: once there is room, the next call brings everything.
        let most = source.max_entries * DECISIONS_FOR_AN_ENTRY;
        self.started = !(self.lacking && self.decisions.len() <= most / 4 * 3);
        let mut pulled = self.listed(source, now);
        pulled.changed = snapshot
            || match before {
                Some(before) => before != self.targets(),
                None => count != self.decisions.len(),
            };
        Ok(pulled)
    }

    fn url(&self, source: &Source, origins: &[String], scenarios: &[String]) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("startup", if self.started { "false" } else { "true" });
        query.append_pair("scopes", "ip,range");
        // Of the decisions on one address CrowdSec sends only the longest otherwise, which may be of an origin or a scenario
        // that the source does not take.
        query.append_pair("dedup", "false");
        query.append_pair("origins", &origins.join(","));
        if !scenarios.is_empty() {
            query.append_pair("scenarios_containing", &scenarios.join(","));
        }
        format!("{}/v1/decisions/stream?{}", source.url, query.finish())
    }

    /// A write failed: the next call brings everything.
    pub(super) fn restart(&mut self) {
        self.started = false;
    }

    fn targets(&self) -> BTreeSet<Target> {
        self.decisions.values().map(|it| it.target).collect()
    }

    fn take(&mut self, answer: Answer, source: &Source, now: Timestamp) {
        for gone in answer.deleted.unwrap_or_default() {
            self.decisions.remove(&gone.id);
            self.left_out.remove(&gone.id);
        }
        self.decisions.retain(|_, decision| decision.until > now);
        self.left_out.retain(|_, until| *until > now);
        let most = source.max_entries * DECISIONS_FOR_AN_ENTRY;
        for new in answer.new.unwrap_or_default() {
            match decision(&new, source, now) {
                Some(mut decision) if self.decisions.len() < most => {
                    match self.reasons.get(&decision.reason) {
                        Some(known) => decision.reason = Arc::clone(known),
                        None => drop(self.reasons.insert(Arc::clone(&decision.reason))),
                    }
                    self.decisions.insert(new.id, decision);
                }
                wanted => {
                    self.lacking |= wanted.is_some();
                    if self.left_out.len() < MOST_LEFT_OUT {
                        let until = end(&new, now).unwrap_or(Timestamp::MAX);
                        self.left_out.insert(new.id, until);
                    }
                }
            }
        }
        // Reasons of decisions that ended.
        self.reasons.retain(|it| Arc::strong_count(it) > 1);
    }

    /// The addresses, each until its last decision ends.
    fn listed(&self, source: &Source, now: Timestamp) -> Pulled {
        let mut pulled = Pulled {
            left_out: self.left_out.len(),
            ..Pulled::default()
        };
        let mut entries: BTreeMap<Target, Entry> = BTreeMap::new();
        for decision in self.decisions.values() {
            let left = Duration::try_from(decision.until.duration_since(now)).unwrap_or_default();
            let full = entries.len() >= source.max_entries;
            match entries.get_mut(&decision.target) {
                Some(entry) if entry.duration >= left => {}
                Some(entry) => {
                    entry.duration = left;
                    entry.reason = Arc::clone(&decision.reason);
                }
                None if full => pulled.left_out += 1,
                None => {
                    let reason = Arc::clone(&decision.reason);
                    entries.insert(
                        decision.target,
                        Entry {
                            duration: left,
                            reason,
                        },
                    );
                }
            }
        }
        pulled.entries = entries.into();
        pulled
    }
}

/// The decision, if it is one that the source takes. The server filters, too; an older one knows fewer filters.
fn decision(wire: &Wire, source: &Source, now: Timestamp) -> Option<Decision> {
    let Flavour::CrowdSec { origins, scenarios } = &source.flavour else {
        return None;
    };
    let scope = wire.scope.to_ascii_lowercase();
    let wanted = wire.kind.eq_ignore_ascii_case("ban")
        && matches!(scope.as_str(), "ip" | "range")
        && origins.contains(&wire.origin)
        && (scenarios.is_empty() || scenarios.iter().any(|part| wire.scenario.contains(part)));
    let target = single_target(&wire.value)?;
    if !wanted || !(target.is_host() || source.allow_ranges) {
        return None;
    }
    let until = end(wire, now)?;
    let scenario: String = wire
        .scenario
        .chars()
        .filter(|c| !c.is_control())
        .take(256)
        .collect();
    Some(Decision {
        target,
        until,
        reason: format!("CrowdSec: {scenario} ({})", wire.origin).into(),
    })
}

/// When the decision ends.
fn end(wire: &Wire, now: Timestamp) -> Option<Timestamp> {
    let left = duration::parse(&wire.duration).ok()?;
    now.checked_add(jiff::SignedDuration::try_from(left).ok()?)
        .ok()
}

#[cfg(test)]
mod tests;
