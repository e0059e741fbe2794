//! The requests of bouncers.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, Method, Response, StatusCode};
use jiff::Timestamp;
use reeve_serve::http::{Body, Peer};
use serde_json::json;
use sha2::{Digest, Sha256};
use url::form_urlencoded;

use super::super::access::Access;
use super::super::serve::{Surface, in_pieces};
use super::super::set::{Entry, TargetSet};
use super::decision::{Decision, ORIGIN, Scopes, containing};
use super::{Bouncer, CrowdSecEngine};
use crate::inbound::{Answer, Budget, Request, json};
use crate::outbound::BoxFuture;
use crate::target::Target;
use crate::trigger::Refusal;

/// The header with the key of a bouncer.
const KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The largest report of usage, in bytes. It is not kept.
const LARGEST_REPORT: usize = 1024 * 1024;

/// Serves one set to bouncers.
#[derive(Debug)]
pub(in super::super) struct CrowdSecSurface {
    engine: Arc<CrowdSecEngine>,
    access: Access,
    reports: Budget,
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
            tracing::warn!("the keys of bouncers cannot be read: {why}");
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
        let Some(set) = self.engine.set() else {
            let mut answer = message(StatusCode::SERVICE_UNAVAILABLE, "the bans are not read yet");
            let headers = answer.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            return answer;
        };
        let query = Query::read(request.uri().query().unwrap_or_default());
        if head {
            return document(Body::whole(Bytes::new()));
        }
        if rest == "/v1/decisions" {
            return self.decisions(&set, &query);
        }
        let peer = request.extensions().get::<Peer>();
        let address = peer.map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0.ip());
        let mut key = [0; 16];
        let digest = Sha256::digest(shown.as_bytes());
        key.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        document(self.stream(Bouncer { key, address }, set, &query))
    }

    /// All decisions, or what changed since the last answer to this bouncer.
    fn stream(&self, bouncer: Bouncer, set: TargetSet, query: &Query) -> Body {
        let now = self.engine.time.now();
        let scopes = query.scopes;
        let from = if query.startup {
            None
        } else {
            self.engine.position(&bouncer)
        };
        let (engine, to) = (Arc::clone(&self.engine), set.clone());
        // The last piece is made when all others were taken.
        let last = move |text: String| {
            std::iter::once_with(move || {
                engine.advance(bouncer, to);
                text
            })
        };
        if query.excluded {
            return in_pieces(last(r#"{"new":[],"deleted":[]}"#.into()));
        }
        let Some(from) = from else {
            let new = pieces(set, scopes, now);
            let head = std::iter::once(r#"{"new":["#.to_owned());
            return in_pieces(head.chain(new).chain(last(r#"],"deleted":[]}"#.into())));
        };
        let (mut new, mut deleted) = (Vec::new(), Vec::new());
        from.differences(&set, |difference| {
            let target = difference.target;
            if !scopes.has(&target) {
                return;
            }
            if difference.before.is_some() {
                deleted.push(Decision::deleted(target, now));
            }
            if let Some(until) = difference.after {
                new.push(Decision::new(&Entry { target, until }, now));
            }
        });
        in_pieces(last(json!({"new": new, "deleted": deleted}).to_string()))
    }

    /// An answer that no client reads.
    #[cfg(test)]
    pub(super) fn unread_for_test(&self, bouncer: Bouncer) -> Option<Body> {
        let set = self.engine.set()?;
        Some(self.stream(bouncer, set, &Query::read("")))
    }

    /// The decisions about an address, a range or a value; without any of them all.
    fn decisions(&self, set: &TargetSet, query: &Query) -> Answer {
        let now = self.engine.time.now();
        let asked = [&query.ip, &query.range, &query.value];
        let Some(asked) = asked.into_iter().flatten().next() else {
            if query.excluded {
                return document(Body::whole("null"));
            }
            let all = pieces(set.clone(), query.scopes, now);
            let head = std::iter::once("[".to_owned());
            let tail = std::iter::once("]".to_owned());
            return document(in_pieces(head.chain(all).chain(tail)));
        };
        let Ok(target) = asked.parse::<Target>() else {
            let why = format!("{asked:?} is not an address or a range");
            return message(StatusCode::BAD_REQUEST, &why);
        };
        let found = if query.value.is_some() && query.ip.is_none() && query.range.is_none() {
            let until = set.get(&target);
            until
                .map(|until| Entry { target, until })
                .into_iter()
                .collect()
        } else if query.range.is_some() && !query.contains {
            let inside = set.iter().filter(|entry| target.contains(&entry.target));
            inside.collect()
        } else {
            containing(set, &target)
        };
        let found = found
            .iter()
            .filter(|entry| query.scopes.has(&entry.target) && !query.excluded);
        let found: Vec<Decision> = found.map(|entry| Decision::new(entry, now)).collect();
        // As the original: a client asks whether there is something at all.
        let text = if found.is_empty() {
            "null".to_owned()
        } else {
            json!(found).to_string()
        };
        document(Body::whole(text))
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
}

/// The decisions of a set, some kilobytes a piece, with commas between them.
fn pieces(
    set: TargetSet,
    scopes: Scopes,
    now: Timestamp,
) -> impl Iterator<Item = String> + Send + 'static {
    let (mut position, mut first) = (0, true);
    let parts = std::iter::from_fn(move || {
        let part = set.part(position)?;
        position += 1;
        let mut text = String::new();
        for entry in part.iter().filter(|entry| scopes.has(&entry.target)) {
            if !std::mem::take(&mut first) {
                text.push(',');
            }
            text.push_str(&json!(Decision::new(entry, now)).to_string());
        }
        Some(text)
    });
    parts.filter(|text| !text.is_empty())
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
