//! The requests of bouncers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, Method, Response, StatusCode};
use jiff::Timestamp;
use reeve_serve::http::{Body, Peer};
use serde_json::json;
use sha2::{Digest, Sha256};
use url::form_urlencoded;

use super::super::access::Access;
use super::super::kind::SetEngine as _;
use super::super::serve::{Surface, in_pieces};
use super::super::set::{Difference, Entry, TargetSet, Until};
use super::decision::{Decision, ORIGIN, Scopes, containing};
use super::{Bouncer, CrowdSecEngine, Version};
use crate::inbound::{Answer, Budget, Request, json};
use crate::outbound::BoxFuture;
use crate::sampled::Sampled;
use crate::target::Target;
use crate::trigger::Refusal;

/// The header with the key of a bouncer.
const KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The largest report of usage, in bytes. It is not kept.
const LARGEST_REPORT: usize = 1024 * 1024;

/// One line about keys that cannot be read within this time.
const UNREADABLE: Duration = Duration::from_secs(60);

/// How the User-Agent of bouncers begins that delete first, and whose kernel sets may keep the time of an element.
const FIREWALL: &str = "crowdsec-firewall-bouncer";

/// An end that moves by so many seconds is not news.
const SAME: u32 = 2;

/// The most changes that an answer holds in memory. Beyond them it is made from the sets themselves, piece by piece.
const MOST_NEWS: usize = 65_536;

/// Entries that are written as one piece of an answer.
const PIECE: usize = 512;

/// Serves one set to bouncers.
#[derive(Debug)]
pub(in super::super) struct CrowdSecSurface {
    engine: Arc<CrowdSecEngine>,
    access: Access,
    reports: Budget,
    unreadable: Sampled,
}

/// What is sent to a bouncer, in little memory: the texts are made when it reads them.
#[derive(Debug, Default)]
struct News {
    new: Vec<Entry>,
    deleted: Vec<Target>,
}

/// What a reader asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Query {
    startup: bool,
    scopes: Scopes,
    /// The reader wants decisions of others only.
    excluded: bool,
    ip: Option<String>,
    range: Option<String>,
    /// Ranges around the one that is asked for; `false`: those inside of it.
    contains: bool,
    value: Option<String>,
}

// === impl CrowdSecSurface ===

impl CrowdSecSurface {
    pub(in super::super) fn new(engine: Arc<CrowdSecEngine>, access: Access) -> Self {
        Self {
            engine,
            access,
            reports: Budget::mebibytes(4),
            unreadable: Sampled::every(UNREADABLE),
        }
    }

    async fn serve(&self, request: Request, rest: &str) -> Answer {
        if rest == "/health" {
            return json(StatusCode::OK, &json!({"status": "up"}));
        }
        let shown = shown(request.headers());
        if let Err(refusal) = self.access.check(shown).await {
            let Refusal::NoSecret(why) = refusal else {
                return message(StatusCode::FORBIDDEN, "access forbidden");
            };
            if let Some(unlogged) = self.unreadable.pass() {
                tracing::warn!(unlogged, "the keys of bouncers cannot be read: {why}");
            }
            let why = "the keys cannot be read";
            return message(StatusCode::SERVICE_UNAVAILABLE, why);
        }
        let head = request.method() == Method::HEAD;
        let reads = head || request.method() == Method::GET;
        match rest {
            "/v1/decisions/stream" | "/v1/decisions" if reads => {}
            "/v1/usage-metrics" if request.method() == Method::POST => {
                return match self.reports.read(request.into_body(), LARGEST_REPORT).await {
                    Ok(_) => json(StatusCode::CREATED, &json!({})),
                    Err(error) => message(StatusCode::BAD_REQUEST, &error.to_string()),
                };
            }
            "/v1/decisions/stream" | "/v1/decisions" | "/v1/usage-metrics" => {
                return message(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
            }
            _ => return message(StatusCode::NOT_FOUND, "no such page"),
        }
        let Some(version) = self.engine.current() else {
            let mut answer = message(
                StatusCode::SERVICE_UNAVAILABLE,
                "the bans are not read yet, or cannot be followed",
            );
            let headers = answer.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            return answer;
        };
        let query = Query::read(request.uri().query().unwrap_or_default());
        if head {
            return document(Body::whole(Bytes::new()));
        }
        if rest == "/v1/decisions" {
            return self.decisions(&version.set, &query);
        }
        let peer = request.extensions().get::<Peer>();
        let address = peer.map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0.ip());
        let agent = request.headers().get(USER_AGENT);
        let agent = agent.and_then(|agent| agent.to_str().ok());
        let agent = agent.unwrap_or_default();
        let bouncer = Bouncer {
            digest: query.digest(shown, agent),
            address,
        };
        document(self.stream(bouncer, agent.starts_with(FIREWALL), version, &query))
    }

    /// All decisions, or what changed since the last answers to this bouncer. `firewall`: see [`FIREWALL`].
    fn stream(
        &self,
        bouncer: Bouncer,
        firewall: bool,
        version: Arc<Version>,
        query: &Query,
    ) -> Body {
        let now = self.engine.time.now();
        let scopes = query.scopes;
        let known = if query.startup {
            None
        } else {
            self.engine.position(&bouncer)
        };
        let set = version.set.clone();
        let (engine, whole) = (Arc::clone(&self.engine), known.is_none());
        // The last piece is made when all others were taken.
        let last = move |text: &'static str| {
            std::iter::once_with(move || {
                engine.advance(bouncer, version, whole);
                text.to_owned()
            })
        };
        if query.excluded {
            return in_pieces(last(r#"{"new":[],"deleted":[]}"#));
        }
        let head = std::iter::once(r#"{"new":["#.to_owned());
        let middle = std::iter::once(r#"],"deleted":["#.to_owned());
        let tail = last("]}");
        let Some(known) = known else {
            // After its start a bouncer has nothing that could be deleted.
            let mut deleted = Vec::new();
            if !query.startup {
                let lifted = self.engine.desired.lifted(now);
                let lifted = lifted.iter().map(|entry| entry.target);
                // A bouncer never got what this engine does not take.
                let capabilities = self.engine.capabilities();
                let had = |it: &Target| capabilities.takes(it) && scopes.has(it);
                deleted.extend(lifted.filter(|it| had(it) && set.get(it).is_none()));
            }
            let new = decisions(parts(set), scopes, now).chain(middle);
            let deleted = deletions(in_parts(deleted), scopes);
            return in_pieces(head.chain(new).chain(deleted).chain(tail));
        };
        let known: Vec<TargetSet> = known.iter().map(|it| it.set.clone()).collect();
        let Some(News { new, deleted }) = News::since(&known, &set, firewall, MOST_NEWS) else {
            let new = decisions(parts(set.clone()), scopes, now).chain(middle);
            let deleted = deletions(gone(known, set, firewall), scopes);
            return in_pieces(head.chain(new).chain(deleted).chain(tail));
        };
        let new = decisions(in_parts(new), scopes, now).chain(middle);
        let deleted = deletions(in_parts(deleted), scopes);
        in_pieces(head.chain(new).chain(deleted).chain(tail))
    }

    /// The decisions about an address, a range or a value; without any of them all.
    fn decisions(&self, set: &TargetSet, query: &Query) -> Answer {
        let now = self.engine.time.now();
        let asked = [&query.ip, &query.range, &query.value];
        let Some(asked) = asked.into_iter().flatten().next() else {
            if query.excluded {
                return document(Body::whole("null"));
            }
            return document(list(parts(set.clone()), query.scopes, now));
        };
        let Ok(target) = asked.parse::<Target>() else {
            let why = format!("{asked:?} is not an address or a range");
            return message(StatusCode::BAD_REQUEST, &why);
        };
        let scopes = query.scopes;
        let shows =
            |entry: &Entry| scopes.has(&entry.target) && Decision::new(entry, now).is_some();
        // As the original: a client asks whether there is something at all.
        let nothing = || document(Body::whole("null"));
        if query.range.is_some() && !query.contains {
            let inside = move |entry: &Entry| target.contains(&entry.target);
            if query.excluded || !set.iter().any(|entry| inside(&entry) && shows(&entry)) {
                return nothing();
            }
            let found = parts(set.clone()).map(move |mut part| {
                part.retain(inside);
                part
            });
            return document(list(found, scopes, now));
        }
        let value = query.value.is_some() && query.ip.is_none() && query.range.is_none();
        let found: Vec<Entry> = if value {
            let until = set.get(&target);
            until
                .map(|until| Entry { target, until })
                .into_iter()
                .collect()
        } else {
            containing(set, &target)
        };
        if query.excluded || !found.iter().any(shows) {
            return nothing();
        }
        document(list(in_parts(found), scopes, now))
    }
}

impl Surface for CrowdSecSurface {
    fn answer(self: Arc<Self>, request: Request, rest: String) -> BoxFuture<'static, Answer> {
        Box::pin(async move { self.serve(request, &rest).await })
    }
}

// === impl Query ===

impl Query {
    fn read(query: &str) -> Self {
        let mut read = Self {
            startup: false,
            scopes: Scopes::BOTH,
            excluded: false,
            ip: None,
            range: None,
            contains: true,
            value: None,
        };
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.trim();
            if value.is_empty() {
                continue;
            }
            match &*key {
                "startup" => read.startup = value.eq_ignore_ascii_case("true"),
                "scopes" | "scope" => read.scopes = Scopes::read(value),
                "origins" => read.excluded |= !value.split(',').any(|it| it.trim() == ORIGIN),
                "type" => read.excluded |= !value.eq_ignore_ascii_case("ban"),
                "ip" => read.ip = Some(value.to_owned()),
                "range" => read.range = Some(value.to_owned()),
                "contains" => read.contains = !value.eq_ignore_ascii_case("false"),
                "value" => read.value = Some(value.to_owned()),
                _ => {}
            }
        }
        read
    }

    /// Distinguishes bouncers at one address.
    fn digest(&self, key: &str, agent: &str) -> [u8; 16] {
        let mut digest = Sha256::new();
        for part in [key, agent] {
            digest.update(part);
            digest.update([0]);
        }
        let Scopes { addresses, ranges } = self.scopes;
        digest.update([addresses, ranges, self.excluded].map(u8::from));
        let mut short = [0; 16];
        let digest = digest.finalize();
        short
            .iter_mut()
            .zip(digest)
            .for_each(|(to, from)| *to = from);
        short
    }
}

// === impl News ===

impl News {
    /// What differs in `set` from any of the sets that a bouncer may have. What it has already it may get again. `None`:
    /// there are more than `most` changes.
    fn since(known: &[TargetSet], set: &TargetSet, firewall: bool, most: usize) -> Option<Self> {
        let differences = || known.iter().flat_map(|earlier| earlier.differences(set));
        if differences().nth(most).is_some() {
            return None;
        }
        // Each target with its end, and whether an earlier one is deleted first.
        let mut changed: BTreeMap<Target, (Option<Until>, bool)> = BTreeMap::new();
        for difference in differences() {
            let Difference { before, after, .. } = difference;
            let moved = before.zip(after).map(|(one, other)| one.distance(other));
            if moved.is_some_and(|seconds| seconds <= SAME) {
                continue;
            }
            let moves = difference.before.is_some() && firewall;
            let entry = changed.entry(difference.target);
            entry.or_insert((difference.after, false)).1 |= moves;
        }
        let mut news = Self::default();
        for (target, (until, moves)) in changed {
            if moves || until.is_none() {
                news.deleted.push(target);
            }
            news.new.extend(until.map(|until| Entry { target, until }));
        }
        Some(news)
    }
}

/// What is deleted for a bouncer that may have any of the sets `known`, a chunk at a time: what `set` does not have, and
/// for a firewall what has another end there.
fn gone(
    known: Vec<TargetSet>,
    set: TargetSet,
    firewall: bool,
) -> impl Iterator<Item = Vec<Target>> + Send + 'static {
    // Together with the set before it, whose entries were passed already.
    let before = std::iter::once(TargetSet::default()).chain(known.clone());
    known
        .into_iter()
        .zip(before)
        .flat_map(move |(known, before)| {
            let set = set.clone();
            parts(known).map(move |part| {
                let gone = part.iter().filter(|entry| {
                    let moved = |until: Until| firewall && until.distance(entry.until) > SAME;
                    before.get(&entry.target) != Some(entry.until)
                        && set.get(&entry.target).is_none_or(moved)
                });
                gone.map(|entry| entry.target).collect()
            })
        })
}

/// The entries of a set, a chunk at a time.
fn parts(set: TargetSet) -> impl Iterator<Item = Vec<Entry>> + Send + 'static {
    (0..).map_while(move |position| set.part(position))
}

/// The items of a list, some hundred at a time.
fn in_parts<T: Send + 'static>(list: Vec<T>) -> impl Iterator<Item = Vec<T>> + Send + 'static {
    let mut rest = list.into_iter();
    std::iter::from_fn(move || {
        let part: Vec<T> = rest.by_ref().take(PIECE).collect();
        (!part.is_empty()).then_some(part)
    })
}

/// Decisions in JSON with commas between them, some kilobytes a piece.
fn texts<T: 'static>(
    parts: impl Iterator<Item = Vec<T>> + Send + 'static,
    decision: impl Fn(&T) -> Option<Decision> + Send + 'static,
) -> impl Iterator<Item = String> + Send + 'static {
    let mut first = true;
    let texts = parts.map(move |part| {
        let mut text = String::new();
        for decision in part.iter().filter_map(&decision) {
            let Ok(decision) = serde_json::to_string(&decision) else {
                continue;
            };
            if !std::mem::take(&mut first) {
                text.push(',');
            }
            text.push_str(&decision);
        }
        text
    });
    texts.filter(|text| !text.is_empty())
}

/// What is banned.
fn decisions(
    parts: impl Iterator<Item = Vec<Entry>> + Send + 'static,
    scopes: Scopes,
    now: Timestamp,
) -> impl Iterator<Item = String> + Send + 'static {
    texts(parts, move |entry: &Entry| {
        let shown = scopes.has(&entry.target).then(|| Decision::new(entry, now));
        shown.flatten()
    })
}

/// What is not banned any more.
fn deletions(
    parts: impl Iterator<Item = Vec<Target>> + Send + 'static,
    scopes: Scopes,
) -> impl Iterator<Item = String> + Send + 'static {
    texts(parts, move |target| {
        scopes.has(target).then(|| Decision::deleted(target))
    })
}

/// A JSON list of decisions.
fn list(
    parts: impl Iterator<Item = Vec<Entry>> + Send + 'static,
    scopes: Scopes,
    now: Timestamp,
) -> Body {
    let head = std::iter::once("[".to_owned());
    let tail = std::iter::once("]".to_owned());
    in_pieces(head.chain(decisions(parts, scopes, now)).chain(tail))
}

fn shown(headers: &HeaderMap) -> &str {
    let shown = headers.get(KEY).and_then(|key| key.to_str().ok());
    shown.unwrap_or_default()
}

fn document(body: Body) -> Answer {
    let mut answer = Response::new(body);
    let headers = answer.headers_mut();
    let kind = HeaderValue::from_static("application/json; charset=utf-8");
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

fn message(status: StatusCode, message: &str) -> Answer {
    json(status, &json!({ "message": message }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(entries: &[(&str, i64)]) -> TargetSet {
        let entries = entries.iter().map(|(target, second)| Entry {
            target: target.parse().unwrap(),
            until: Until::new(Some(
                Timestamp::from_second(1_800_000_000 + second).unwrap(),
            )),
        });
        entries.collect()
    }

    #[test]
    fn many_changes_are_read_from_the_sets_and_delete_the_same() {
        let known = [
            set(&[("192.0.2.1", 0), ("192.0.2.2", 0), ("192.0.2.3", 0)]),
            set(&[("192.0.2.1", 0), ("192.0.2.3", 60), ("192.0.2.4", 0)]),
        ];
        let now = set(&[("192.0.2.3", 60), ("192.0.2.5", 0)]);
        for firewall in [false, true] {
            let few = News::since(&known, &now, firewall, 100).unwrap();
            let all: Vec<Target> = gone(known.to_vec(), now.clone(), firewall)
                .flatten()
                .collect();
            let mut once = all.clone();
            once.sort();
            once.dedup();
            assert_eq!(once, few.deleted, "{firewall}");
            assert_eq!(all.len(), once.len(), "what both have is passed once");
            assert_eq!(few.deleted.len(), if firewall { 4 } else { 3 });
        }
        // Three in the first set, three in the second.
        assert!(News::since(&known, &now, false, 6).is_none());
        assert!(News::since(&known, &now, false, 7).is_some());
    }
}
