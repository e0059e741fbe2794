//! A mock gateway with the iptables agent's three calls. It records when each arrived, and fails on request.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What the gateway does with a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Carries out the call.
    #[default]
    Serve,
    /// Answers 500.
    Fail,
    /// Accepts and closes with a reset.
    Reset,
    /// Reads the request and never answers.
    Hang,
    /// Does not listen at all.
    Refuse,
}

/// One call that changed, or tried to change, what is enforced.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) at: Instant,
    pub(crate) ban: bool,
    pub(crate) ip: String,
}

#[derive(Default)]
struct State {
    mode: Mode,
    enforced: BTreeSet<String>,
    calls: Vec<Call>,
    /// Connections or requests seen, answered or not.
    touched: usize,
}

/// A running mock gateway; stops when dropped.
pub(crate) struct Gateway {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    serving: Option<JoinSet<()>>,
}

// === impl Gateway ===

impl Gateway {
    pub(crate) async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State::default()));
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, state.clone()));
        Ok(Self {
            address,
            state,
            serving: Some(serving),
        })
    }

    /// `host:port`, the form of the ConfigMap's `gatewayHost`.
    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    /// Changes the answer to all later calls.
    pub(crate) async fn set_mode(&mut self, mode: Mode) -> std::io::Result<()> {
        self.state.lock().mode = mode;
        if mode == Mode::Refuse {
            if let Some(mut serving) = self.serving.take() {
                serving.shutdown().await;
            }
        } else if self.serving.is_none() {
            let listener = TcpListener::bind(self.address).await?;
            let mut serving = JoinSet::new();
            serving.spawn(serve(listener, self.state.clone()));
            self.serving = Some(serving);
        }
        Ok(())
    }

    pub(crate) fn enforced(&self) -> BTreeSet<String> {
        self.state.lock().enforced.clone()
    }

    pub(crate) fn touched(&self) -> usize {
        self.state.lock().touched
    }

    /// Forgets calls and everything enforced.
    pub(crate) fn clear(&self) {
        let mut state = self.state.lock();
        state.calls.clear();
        state.enforced.clear();
        state.touched = 0;
    }

    /// When each address was first banned.
    pub(crate) fn first_bans(&self) -> BTreeMap<String, Instant> {
        let mut first = BTreeMap::new();
        for call in self.state.lock().calls.iter().filter(|call| call.ban) {
            first.entry(call.ip.clone()).or_insert(call.at);
        }
        first
    }

    /// When each address was last lifted.
    pub(crate) fn last_lifts(&self) -> BTreeMap<String, Instant> {
        let mut last = BTreeMap::new();
        for call in self.state.lock().calls.iter().filter(|call| !call.ban) {
            last.insert(call.ip.clone(), call.at);
        }
        last
    }

    /// How many addresses were banned more than once.
    pub(crate) fn banned_again(&self) -> usize {
        let mut bans: BTreeMap<String, usize> = BTreeMap::new();
        for call in self.state.lock().calls.iter().filter(|call| call.ban) {
            *bans.entry(call.ip.clone()).or_default() += 1;
        }
        bans.values().filter(|count| **count > 1).count()
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                connections.spawn(connection(stream, state.clone()));
            }
        }
    }
}

async fn connection(stream: TcpStream, state: Arc<Mutex<State>>) {
    {
        let mut state = state.lock();
        if state.mode == Mode::Reset {
            state.touched += 1;
            drop(state);
            reset(stream);
            return;
        }
    }
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let state = state.clone();
        async move { answer(&request, &state).await }
    });
    // An error here is a closed connection, or the reset of `Mode::Reset`.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

#[allow(deprecated, reason = "a zero linger causes the wanted reset")]
fn reset(stream: TcpStream) {
    let _ = stream.set_linger(Some(Duration::ZERO));
    drop(stream);
}

#[derive(Debug, thiserror::Error)]
#[error("the connection is reset on purpose")]
struct ResetOnPurpose;

async fn answer(
    request: &Request<Incoming>,
    state: &Mutex<State>,
) -> Result<Response<Full<Bytes>>, ResetOnPurpose> {
    let at = Instant::now();
    let ip = query(request.uri().query().unwrap_or(""), "ip");
    let (mode, body) = {
        let mut state = state.lock();
        state.touched += 1;
        let mode = state.mode;
        let body = if mode == Mode::Serve {
            state.apply(request.uri().path(), ip, at)
        } else {
            None
        };
        (mode, body)
    };
    match mode {
        Mode::Hang => {
            std::future::pending::<()>().await;
            Err(ResetOnPurpose)
        }
        Mode::Reset | Mode::Refuse => Err(ResetOnPurpose),
        Mode::Fail => Ok(json(
            StatusCode::INTERNAL_SERVER_ERROR,
            r#"{"error":"on purpose"}"#.into(),
        )),
        Mode::Serve => Ok(body.map_or_else(
            || json(StatusCode::NOT_FOUND, r#"{"error":"no such path"}"#.into()),
            |body| json(StatusCode::OK, body),
        )),
    }
}

// === impl State ===

impl State {
    fn apply(&mut self, path: &str, ip: Option<String>, at: Instant) -> Option<String> {
        match (path, ip) {
            ("/limit", Some(ip)) => {
                let status = if self.enforced.insert(ip.clone()) {
                    "limited"
                } else {
                    "already_limited"
                };
                self.calls.push(Call {
                    at,
                    ban: true,
                    ip: ip.clone(),
                });
                Some(serde_json::json!({"ip": ip, "status": status}).to_string())
            }
            ("/unlimit", Some(ip)) => {
                self.enforced.remove(&ip);
                self.calls.push(Call {
                    at,
                    ban: false,
                    ip: ip.clone(),
                });
                Some(serde_json::json!({"ip": ip, "status": "unlimited"}).to_string())
            }
            ("/limits", _) => Some(serde_json::json!({"limited_ips": self.enforced}).to_string()),
            _ => None,
        }
    }
}

fn json(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    response
}

/// The value of `name` in a query string; addresses need only `%3A` and `%2F` decoded.
fn query(query: &str, name: &str) -> Option<String> {
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.replace("%3A", ":").replace("%2F", "/"))
}
