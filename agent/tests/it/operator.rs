//! A double of the operator's `list` engine, in the client's namespace: the wire format and no more.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, DATE, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH};
use http::{Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use reeve_clock::Clock;
use reeve_serve::certificates::Certificates;
use reeve_serve::http::{Answer, CancellationToken, Limits, Request, Router, Server, answer, text};
use serde_json::{Value, json};

use crate::namespace::Namespace;

/// The server, which ends when this is dropped.
pub(crate) struct Operator {
    state: Arc<Mutex<State>>,
    stop: CancellationToken,
    running: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    clock: Option<Clock>,
    /// How far the server's clock is ahead.
    ahead: SignedDuration,
    /// Each version: targets and ends. The last is the newest.
    versions: Vec<Vec<(String, Option<Timestamp>)>>,
    token: Option<String>,
    fault: Option<(StatusCode, &'static str)>,
    /// The queries of the requests.
    queries: Vec<String>,
    /// Node and content.
    reports: Vec<(String, Value)>,
}

// === impl Operator ===

impl Operator {
    /// Serves at `address` inside of `namespace`; with a certificate and its key by HTTPS.
    pub(crate) fn start(
        namespace: &Namespace,
        address: &str,
        certificate: Option<(Vec<u8>, Vec<u8>)>,
    ) -> Self {
        let address: SocketAddr = address.parse().unwrap();
        let state = Arc::new(Mutex::new(State {
            clock: Some(Clock::system()),
            ..State::default()
        }));
        let stop = CancellationToken::new();
        let (ready, started) = std::sync::mpsc::channel();
        let shared = Arc::clone(&state);
        let until = stop.clone();
        let running = namespace.thread(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let router = Router::new().with("/bans", handler(shared)).unwrap();
                let server = Server::bind("operator", address, router.into_handler()).await;
                let limits = Limits::default().answer_timeout(Duration::from_secs(60));
                let mut server = server.unwrap().limits(limits.drain(Duration::ZERO));
                if let Some((chain, key)) = certificate {
                    let chain = vec![chain.into()];
                    let key = rustls::pki_types::PrivateKeyDer::try_from(key).unwrap();
                    let certificates = Certificates::from_der(chain, key).unwrap();
                    server = server.tls(certificates, false).unwrap();
                }
                ready.send(()).unwrap();
                server.run(until).await.unwrap();
            });
        });
        started.recv().unwrap();
        Self {
            state,
            stop,
            running: Some(running),
        }
    }

    /// Publishes a version with these targets, each with the seconds that it has left or indefinitely.
    pub(crate) fn publish(&self, entries: &[(&str, Option<i64>)]) {
        let mut state = self.state.lock();
        let now = state.now();
        let entries = entries
            .iter()
            .map(|(target, seconds)| {
                let until = seconds.map(|seconds| now + SignedDuration::from_secs(seconds));
                ((*target).to_owned(), until)
            })
            .collect();
        state.versions.push(entries);
    }

    /// Answers everything with this status and body.
    pub(crate) fn break_with(&self, fault: Option<(StatusCode, &'static str)>) {
        self.state.lock().fault = fault;
    }

    /// Accepts this token only.
    pub(crate) fn require(&self, token: &str) {
        self.state.lock().token = Some(token.to_owned());
    }

    /// Sets the server's clock ahead.
    pub(crate) fn set_ahead(&self, ahead: SignedDuration) {
        self.state.lock().ahead = ahead;
    }

    /// The queries of all requests.
    pub(crate) fn queries(&self) -> Vec<String> {
        self.state.lock().queries.clone()
    }

    /// The node and the content of all reports.
    pub(crate) fn reports(&self) -> Vec<(String, Value)> {
        self.state.lock().reports.clone()
    }

    /// Ends the server: connections to it are refused.
    pub(crate) fn stop(&mut self) {
        self.stop.cancel();
        if let Some(running) = self.running.take() {
            running.join().unwrap();
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

// === impl State ===

impl State {
    fn now(&self) -> Timestamp {
        self.clock.as_ref().unwrap().now() + self.ahead
    }

    fn version(&self) -> String {
        format!("v{}", self.versions.len())
    }

    /// The answer to a query; `None`: nothing has changed.
    fn body(&self, query: &str, known: Option<&str>) -> Option<String> {
        if known == Some(&format!("\"{}\"", self.version())) {
            return None;
        }
        let newest = self.versions.last();
        let lines = |before: &str, after: &str| -> String {
            let lines = newest.into_iter().flatten();
            lines
                .map(|(target, _)| format!("{before}{target}{after}\n"))
                .collect()
        };
        Some(match query {
            query if query.contains("format=json") => self.json(query).to_string(),
            query if query.contains("format=nginx") => lines("deny ", ";"),
            _ => lines("", ""),
        })
    }

    fn json(&self, query: &str) -> Value {
        let version = self.version();
        let entry = |(target, until): &(String, Option<Timestamp>)| match until {
            Some(until) => json!({"target": target, "until": until.to_string()}),
            None => json!({"target": target}),
        };
        let newest = self.versions.last().cloned().unwrap_or_default();
        let since = query
            .split('&')
            .find_map(|part| part.strip_prefix("since=v"));
        let before = since
            .and_then(|since| since.parse::<usize>().ok())
            .and_then(|since| self.versions.get(since.checked_sub(1)?));
        match before {
            Some(before) => {
                let added = newest.iter().filter(|entry| !before.contains(entry));
                let gone =
                    |(target, _): &&(String, _)| !newest.iter().any(|(new, _)| new == target);
                let removed = before.iter().filter(gone).map(|(target, _)| target);
                json!({
                    "version": version,
                    "since": format!("v{}", since.unwrap_or_default()),
                    "added": added.map(entry).collect::<Vec<_>>(),
                    "removed": removed.collect::<Vec<_>>(),
                })
            }
            None => json!({
                "version": version,
                "entries": newest.iter().map(entry).collect::<Vec<_>>(),
            }),
        }
    }
}

fn handler(state: Arc<Mutex<State>>) -> reeve_serve::http::Handler {
    Arc::new(move |request| {
        let state = Arc::clone(&state);
        Box::pin(async move {
            let mut answer = respond(&state, request).await;
            let date = state.lock().now().strftime("%a, %d %b %Y %H:%M:%S GMT");
            let date = HeaderValue::from_str(&date.to_string()).unwrap();
            answer.headers_mut().insert(DATE, date);
            answer
        })
    })
}

async fn respond(state: &Mutex<State>, request: Request) -> Answer {
    let header = |name| {
        let value: Option<&HeaderValue> = request.headers().get(name);
        value.map(|value| value.to_str().unwrap().to_owned())
    };
    let (token, known) = (header(AUTHORIZATION), header(IF_NONE_MATCH));
    let query = request.uri().query().unwrap_or_default().to_owned();
    {
        let mut state = state.lock();
        if let Some((status, body)) = state.fault {
            return answer(status, "application/json", body);
        }
        if let Some(expected) = &state.token
            && token != Some(format!("Bearer {expected}"))
        {
            return text(StatusCode::UNAUTHORIZED, "another token");
        }
        if request.method() == Method::GET {
            state.queries.push(query.clone());
        }
        if let (Some(node), Some(report)) = (
            header(HeaderName::from_static("x-ipblock-agent")),
            header(HeaderName::from_static("x-ipblock-agent-report")),
        ) {
            let report = serde_json::from_str(&report).unwrap();
            state.reports.push((node, report));
        }
    }
    let wait = query.split('&').find_map(|part| part.strip_prefix("wait="));
    let tries = wait.map_or(0, |wait| wait.parse::<u32>().unwrap() * 50);
    for _ in 0..=tries {
        {
            let state = state.lock();
            if let Some(body) = state.body(&query, known.as_deref()) {
                let mut answer = answer(StatusCode::OK, "text/plain", body);
                let tag = HeaderValue::from_str(&format!("\"{}\"", state.version())).unwrap();
                answer.headers_mut().insert(ETAG, tag);
                return answer;
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    text(StatusCode::NOT_MODIFIED, "")
}
