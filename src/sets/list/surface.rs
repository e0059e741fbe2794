//! The requests of a list's readers and agents.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, ALLOW, HeaderValue, IF_NONE_MATCH, RETRY_AFTER};
use http::{HeaderMap, HeaderName, Method, StatusCode};
use url::form_urlencoded;

use super::super::access::Access;
use super::super::serve::{LONGEST_WAIT, Surface};
use super::ListEngine;
use super::agents::Report;
use super::document::Format;
use super::history::Family;
use crate::inbound::{Answer, BodyError, Budget, Request, text};
use crate::outbound::BoxFuture;
use crate::sampled::Sampled;
use crate::trigger::Refusal;

/// The largest report of an agent, in bytes.
const LARGEST_REPORT: usize = 16 * 1024;

/// The name of the node of an agent, and its report in JSON: headers of its polls.
const AGENT: HeaderName = HeaderName::from_static("x-ipblock-agent");
const AGENT_REPORT: HeaderName = HeaderName::from_static("x-ipblock-agent-report");

/// One line about credentials that cannot be read within this time.
const UNREADABLE: Duration = Duration::from_secs(60);

/// Serves one list.
#[derive(Debug)]
pub(in super::super) struct ListSurface {
    engine: Arc<ListEngine>,
    access: Access,
    reports: Budget,
    unreadable: Sampled,
}

/// What a reader asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Query {
    format: Format,
    family: Family,
    wait: Option<Duration>,
    since: Option<String>,
}

// === impl ListSurface ===

impl ListSurface {
    pub(in super::super) fn new(engine: Arc<ListEngine>, access: Access) -> Self {
        Self {
            engine,
            access,
            reports: Budget::mebibytes(1),
            unreadable: Sampled::every(UNREADABLE),
        }
    }

    async fn serve(&self, request: Request, rest: &str) -> Answer {
        if let Err(refusal) = self.access.check_bearer(request.headers()).await {
            return self.refused(&refusal);
        }
        if let Some(agent) = rest.strip_prefix("/agents/") {
            return match *request.method() {
                Method::POST | Method::PUT => self.report(request, agent).await,
                _ => not_allowed("POST, PUT"),
            };
        }
        if !matches!(rest, "" | "/") {
            return text(StatusCode::NOT_FOUND, "there is no such page");
        }
        let head = match *request.method() {
            Method::GET => false,
            Method::HEAD => true,
            _ => return not_allowed("GET, HEAD"),
        };
        match Query::read(request.uri().query().unwrap_or_default(), request.headers()) {
            Ok(query) => {
                self.take_report(request.headers());
                self.read(&query, request.headers(), head).await
            }
            Err(why) => text(StatusCode::BAD_REQUEST, why),
        }
    }

    /// The list, once it differs from what the reader has.
    async fn read(&self, query: &Query, headers: &HeaderMap, head: bool) -> Answer {
        let mut changed = self.engine.changed.subscribe();
        let limit = tokio::time::sleep(query.wait.unwrap_or_default());
        tokio::pin!(limit);
        let mut fresh = self.engine.fresh.changes();
        loop {
            changed.borrow_and_update();
            fresh.borrow_and_update();
            if self.engine.fresh.is_stale() {
                return unavailable("this replica cannot follow the blocks", "5");
            }
            let content = query.format.content();
            let page = self
                .engine
                .page(query.family, content, query.since.as_deref());
            let Some(page) = page else {
                return unavailable("the bans are not read yet", "1");
            };
            if !has(headers, &page.version) {
                return page.answer(query.format, head);
            }
            if query.wait.is_none() {
                return page.unchanged(query.format);
            }
            tokio::select! {
                biased;
                _ = changed.changed() => {}
                _ = fresh.changed() => {}
                () = &mut limit => return page.unchanged(query.format),
                () = self.engine.closing.cancelled() => return page.unchanged(query.format),
            }
        }
    }

    fn refused(&self, refusal: &Refusal) -> Answer {
        match refusal {
            Refusal::Unauthorized(why) => {
                let mut answer = text(StatusCode::UNAUTHORIZED, *why);
                let headers = answer.headers_mut();
                headers.insert(
                    http::header::WWW_AUTHENTICATE,
                    HeaderValue::from_static("Bearer"),
                );
                answer
            }
            Refusal::NoSecret(why) => {
                if let Some(unlogged) = self.unreadable.pass() {
                    tracing::warn!(unlogged, "the credentials of a list cannot be read: {why}");
                }
                let why = "the credentials of this list cannot be read";
                text(StatusCode::SERVICE_UNAVAILABLE, why)
            }
        }
    }

    /// Takes the report of an agent that polls. One that cannot be read is no reason to withhold the list.
    fn take_report(&self, headers: &HeaderMap) {
        let agent = headers.get(AGENT).and_then(|name| name.to_str().ok());
        let report = headers.get(AGENT_REPORT);
        let report = report.and_then(|it| serde_json::from_slice(it.as_bytes()).ok());
        if let (Some(agent), Some(report)) = (agent, report) {
            self.engine.report(agent, &report);
        }
    }

    /// A read without a socket, for tests under paused time.
    #[cfg(test)]
    pub(super) async fn read_for_test(&self, query: &str, version: &str) -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert(IF_NONE_MATCH, HeaderValue::from_str(version).unwrap());
        let query = Query::read(query, &headers).unwrap();
        self.read(&query, &headers, false).await
    }

    async fn report(&self, request: Request, agent: &str) -> Answer {
        let agent = agent.to_owned();
        let body = match self.reports.read(request.into_body(), LARGEST_REPORT).await {
            Ok(body) => body,
            Err(error @ BodyError::TooLarge(_)) => {
                return text(StatusCode::PAYLOAD_TOO_LARGE, error.to_string());
            }
            Err(error @ BodyError::Busy) => {
                return text(StatusCode::SERVICE_UNAVAILABLE, error.to_string());
            }
            Err(error) => return text(StatusCode::BAD_REQUEST, error.to_string()),
        };
        match serde_json::from_slice::<Report>(&body) {
            Ok(report) => {
                if self.engine.report(&agent, &report) {
                    text(StatusCode::OK, "the report is taken")
                } else {
                    let why = "the name is not one of a node, or there are too many agents";
                    text(StatusCode::BAD_REQUEST, why)
                }
            }
            Err(error) => text(
                StatusCode::BAD_REQUEST,
                format!("the report is not {{\"version\",\"count\"}} in JSON: {error}"),
            ),
        }
    }
}

impl Surface for ListSurface {
    fn answer(self: Arc<Self>, request: Request, rest: String) -> BoxFuture<'static, Answer> {
        Box::pin(async move { self.serve(request, &rest).await })
    }
}

// === impl Query ===

impl Query {
    fn read(query: &str, headers: &HeaderMap) -> Result<Self, String> {
        let mut read = Self::default();
        if accepts_json(headers) {
            read.format = Format::Json;
        }
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match (&*key, &*value) {
                ("format", "json") => read.format = Format::Json,
                ("format", "nginx") => read.format = Format::Nginx,
                ("format", "plain" | "haproxy" | "text") => read.format = Format::Plain,
                ("format", _) => return Err("format is plain, json, nginx or haproxy".into()),
                ("family", "4") => read.family = Family::V4,
                ("family", "6") => read.family = Family::V6,
                ("family", _) => return Err("family is 4 or 6".into()),
                ("since", version) => read.since = Some(version.to_owned()),
                ("wait", seconds) => {
                    let seconds = seconds.parse().map(Duration::from_secs);
                    let seconds = seconds.ok().filter(|wait| *wait <= LONGEST_WAIT);
                    let most = LONGEST_WAIT.as_secs();
                    read.wait =
                        Some(seconds.ok_or_else(|| {
                            format!("wait is a number of seconds, at most {most}")
                        })?);
                }
                // Caches and proxies add parameters of their own.
                _ => {}
            }
        }
        if read.since.is_some() && read.format != Format::Json {
            return Err("since is for format=json".into());
        }
        Ok(read)
    }
}

fn accepts_json(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| {
        let mut kinds = accept.split(',');
        kinds.any(|kind| {
            let kind = kind.split(';').next().unwrap_or_default().trim();
            kind.eq_ignore_ascii_case("application/json")
        })
    })
}

/// Whether `If-None-Match` names `version`.
fn has(headers: &HeaderMap, version: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).into_iter();
    let mut tags = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim);
    tags.any(|tag| {
        let tag = tag.strip_prefix("W/").unwrap_or(tag);
        tag == "*" || tag.trim_matches('"') == version
    })
}

fn unavailable(why: &'static str, again: &'static str) -> Answer {
    let mut answer = text(StatusCode::SERVICE_UNAVAILABLE, why);
    let headers = answer.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static(again));
    answer
}

fn not_allowed(methods: &'static str) -> Answer {
    let mut answer = text(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("the methods are {methods}"),
    );
    let headers = answer.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static(methods));
    answer
}
