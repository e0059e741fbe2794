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

/// The stream between two calls.
#[derive(Debug, Default)]
pub(super) struct Stream {
    started: bool,
    decisions: BTreeMap<i64, Decision>,
    /// The reasons of the decisions, each once: thousands have the same.
    reasons: BTreeSet<Arc<str>>,
    left_out: usize,
    /// Decisions were left out because there were too many.
    lacking: bool,
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
            self.decisions.clear();
            self.left_out = 0;
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
        }
        self.decisions.retain(|_, decision| decision.until > now);
        for new in answer.new.unwrap_or_default() {
            match decision(&new, source, now) {
                Some(mut decision)
                    if self.decisions.len() < source.max_entries * DECISIONS_FOR_AN_ENTRY =>
                {
                    match self.reasons.get(&decision.reason) {
                        Some(known) => decision.reason = Arc::clone(known),
                        None => drop(self.reasons.insert(Arc::clone(&decision.reason))),
                    }
                    self.decisions.insert(new.id, decision);
                }
                wanted => {
                    self.lacking |= wanted.is_some();
                    self.left_out += 1;
                }
            }
        }
        // Reasons of decisions that ended.
        self.reasons.retain(|it| Arc::strong_count(it) > 1);
    }

    /// The addresses, each until its last decision ends.
    fn listed(&self, source: &Source, now: Timestamp) -> Pulled {
        let mut pulled = Pulled {
            left_out: self.left_out,
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
    let left = duration::parse(&wire.duration).ok()?;
    let until = now
        .checked_add(jiff::SignedDuration::try_from(left).ok()?)
        .ok()?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Options;
    use crate::mounted::Directory;
    use crate::outbound::InProcess;
    use crate::pulled::RawSource;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use std::collections::VecDeque;

    fn source(extra: &str) -> Source {
        let yaml =
            format!("{{name: crowdsec, url: 'https://lapi.example', apiKeyFile: /s/k, {extra}}}");
        let raw: RawSource = serde_saphyr::from_str(&yaml).unwrap();
        let options = Options {
            secrets: Directory::new("/s"),
            ..Options::default()
        };
        raw.define(&options).unwrap()
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn wire(id: i64, value: &str, duration: &str) -> Value {
        json!({
            "id": id, "uuid": format!("u{id}"), "origin": "crowdsec", "type": "ban",
            "scenario": "crowdsecurity/ssh-bf", "scope": "Ip", "value": value, "duration": duration
        })
    }

    /// The local API with the rules of its documentation: the key, the query, one answer after another.
    #[derive(Clone, Debug, Default)]
    struct Lapi {
        answers: Arc<Mutex<VecDeque<(u16, Value)>>>,
        startups: Arc<Mutex<Vec<bool>>>,
    }

    impl Lapi {
        fn answers(answers: impl IntoIterator<Item = (u16, Value)>) -> (Self, Arc<dyn Outbound>) {
            let lapi = Self::default();
            lapi.answers.lock().extend(answers);
            let server = lapi.clone();
            let outbound = InProcess::new(move |request| {
                let answer = server.answer(&request);
                async move { Ok(answer) }
            });
            (lapi, Arc::new(outbound))
        }

        fn answer(&self, request: &http::Request<Bytes>) -> http::Response<Bytes> {
            assert_eq!(request.method(), http::Method::GET);
            let url = url::Url::parse(&request.uri().to_string()).unwrap();
            assert_eq!(url.path(), "/v1/decisions/stream");
            let query: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
            let known = ["startup", "scopes", "origins", "scenarios_containing"];
            assert!(
                query.keys().all(|key| known.contains(&key.as_str())),
                "{query:?}"
            );
            self.startups.lock().push(query["startup"] == "true");
            let (status, body) = if request.headers()["x-api-key"] == "key" {
                self.answers.lock().pop_front().unwrap()
            } else {
                (403, json!({"message": "access forbidden"}))
            };
            let answer = http::Response::builder().status(status);
            answer.body(Bytes::from(body.to_string())).unwrap()
        }
    }

    async fn pull(
        stream: &mut Stream,
        source: &Source,
        outbound: &Arc<dyn Outbound>,
        at: Timestamp,
    ) -> Result<Pulled, Fault> {
        stream
            .pull(source, Some(&Secret::new("key")), outbound, at)
            .await
    }

    fn shown(pulled: &Pulled) -> Vec<String> {
        let entries = pulled.entries.iter();
        entries
            .map(|(target, it)| format!("{target} {}", duration::display(it.duration)))
            .collect()
    }

    #[tokio::test]
    async fn deltas_follow_the_first_list() {
        let (lapi, outbound) = Lapi::answers([
            (
                200,
                json!({"new": [wire(1, "192.0.2.1", "3h59m48.5s"), wire(2, "192.0.2.2", "1h"), wire(3, "192.0.2.1", "10m")], "deleted": null}),
            ),
            (200, json!({"new": null, "deleted": null})),
            (
                200,
                json!({"new": [wire(4, "2001:db8::1", "1h")], "deleted": [wire(2, "192.0.2.2", "-1s"), wire(1, "192.0.2.1", "-1s")]}),
            ),
        ]);
        let (mut stream, source) = (Stream::default(), source(""));
        let first = pull(&mut stream, &source, &outbound, now()).await.unwrap();
        assert_eq!(shown(&first), ["192.0.2.1 3h59m49s", "192.0.2.2 1h"]);
        assert!(first.changed);
        let second = pull(&mut stream, &source, &outbound, now()).await.unwrap();
        assert!(!second.changed && second.entries == first.entries);
        let third = pull(&mut stream, &source, &outbound, now()).await.unwrap();
        assert_eq!(
            shown(&third),
            ["192.0.2.1 10m", "2001:db8::1 1h"],
            "its other decision stands"
        );
        assert_eq!(*lapi.startups.lock(), [true, false, false]);
    }

    #[tokio::test]
    async fn after_a_fault_everything_is_asked_for_again() {
        let one = json!({"new": [wire(1, "192.0.2.1", "1h")], "deleted": []});
        let none = json!({"new": [], "deleted": []});
        let (lapi, outbound) = Lapi::answers([
            (200, one.clone()),
            (500, json!({})),
            (200, one),
            (200, json!("x")),
            (200, none),
        ]);
        let (mut stream, source) = (Stream::default(), source(""));
        pull(&mut stream, &source, &outbound, now()).await.unwrap();
        pull(&mut stream, &source, &outbound, now())
            .await
            .unwrap_err();
        pull(&mut stream, &source, &outbound, now()).await.unwrap();
        pull(&mut stream, &source, &outbound, now())
            .await
            .unwrap_err();
        let last = pull(&mut stream, &source, &outbound, now()).await.unwrap();
        assert!(
            last.entries.is_empty() && last.changed,
            "an empty first list is a list"
        );
        assert_eq!(*lapi.startups.lock(), [true, false, true, false, true]);
        stream.restart();
        lapi.answers
            .lock()
            .push_back((200, json!({"new": null, "deleted": null})));
        pull(&mut stream, &source, &outbound, now()).await.unwrap();
        assert_eq!(
            lapi.startups.lock().last(),
            Some(&true),
            "after a write that failed"
        );
    }

    #[tokio::test]
    async fn only_bans_of_the_origins_and_scenarios_are_taken() {
        let with = |field: &str, value: &str| {
            let mut decision = wire(9, "192.0.2.9", "1h");
            decision[field] = json!(value);
            decision
        };
        let new = json!([
            with("origin", "CAPI"),
            with("origin", "lists"),
            with("type", "captcha"),
            with("scope", "Country"),
            with("scenario", "crowdsecurity/http-probing"),
            with("value", "203.0.113.0/24"),
            with("value", "example.com"),
            with("duration", "-3s"),
            with("duration", "x"),
            wire(1, "192.0.2.1", "1h"),
        ]);
        let (_, outbound) = Lapi::answers([(200, json!({"new": new, "deleted": null}))]);
        let source = source("scenarios: [ssh]");
        let pulled = pull(&mut Stream::default(), &source, &outbound, now())
            .await
            .unwrap();
        assert_eq!(shown(&pulled), ["192.0.2.1 1h"]);
        assert_eq!(pulled.left_out, 9);
        assert_eq!(
            &*pulled.entries.iter().next().unwrap().1.reason,
            "CrowdSec: crowdsecurity/ssh-bf (crowdsec)"
        );
    }

    #[tokio::test]
    async fn decisions_end_by_themselves_and_their_number_is_bounded() {
        let many: Vec<Value> = (0..20)
            .map(|id| wire(id, &format!("192.0.2.{id}"), "1h"))
            .collect();
        let (_, outbound) = Lapi::answers([
            (200, json!({"new": many, "deleted": null})),
            (200, json!({"new": null, "deleted": null})),
        ]);
        let (mut stream, source) = (Stream::default(), source("maxEntries: 2"));
        let first = pull(&mut stream, &source, &outbound, now()).await.unwrap();
        assert_eq!((first.entries.len(), stream.decisions.len()), (2, 8));
        assert_eq!(first.left_out, 18);
        let later = now() + jiff::SignedDuration::from_hours(1);
        let second = pull(&mut stream, &source, &outbound, later).await.unwrap();
        assert!(second.entries.is_empty());
    }

    #[tokio::test]
    async fn decisions_that_were_too_many_come_back_when_there_is_room() {
        let many: Vec<Value> = (0..10)
            .map(|id| wire(id, &format!("192.0.2.{id}"), "1h"))
            .collect();
        let gone = json!({"new": null, "deleted": many[..4]});
        let (lapi, outbound) = Lapi::answers([
            (200, json!({"new": many, "deleted": null})),
            (200, json!({"new": null, "deleted": null})),
            (200, gone),
            (200, json!({"new": many[4..], "deleted": null})),
            (200, json!({"new": null, "deleted": null})),
        ]);
        let (mut stream, source) = (Stream::default(), source("maxEntries: 2"));
        for _ in 0..5 {
            pull(&mut stream, &source, &outbound, now()).await.unwrap();
        }
        assert_eq!(*lapi.startups.lock(), [true, false, false, true, false]);
        assert_eq!(stream.decisions.len(), 6, "8 and 9 too");
    }

    #[tokio::test]
    async fn an_answer_without_the_lists_is_a_fault_that_repeats_nothing_of_it() {
        for answer in [
            json!({}),
            json!({"new": []}),
            json!({"deleted": null}),
            json!({"new": "hunter2", "deleted": null}),
        ] {
            let (_, outbound) = Lapi::answers([(200, answer.clone())]);
            let mut stream = Stream::default();
            let fault = pull(&mut stream, &source(""), &outbound, now()).await;
            let why = fault.expect_err(&answer.to_string()).why;
            assert!(
                why.contains("not a stream") && !why.contains("hunter2"),
                "{why}"
            );
        }
    }

    #[tokio::test]
    async fn a_wrong_key_is_reported_as_that() {
        let (_, outbound) = Lapi::answers([]);
        let key = Secret::new("wrong");
        let fault = Stream::default()
            .pull(&source(""), Some(&key), &outbound, now())
            .await;
        assert!(fault.unwrap_err().why.contains("refuses the key"));
    }
}
