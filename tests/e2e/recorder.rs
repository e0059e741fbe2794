//! An HTTP server that records its requests: a chat's hook, or a gateway that shows how it is called.

use std::net::SocketAddr;
use std::sync::Arc;

use http::StatusCode;
use http_body_util::BodyExt as _;
use ipblock_operator::inbound::{self, Running};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::world::PATIENCE;

/// A request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// Path and query.
    pub(crate) path: String,
    /// The value of the `authorization` header.
    pub(crate) authorization: Option<String>,
    pub(crate) body: Value,
}

/// Answers every request with success: as the iptables agent or a hook of Lark does.
pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    requests: watch::Receiver<Vec<Recorded>>,
    _listener: Running,
}

// === impl Recorder ===

impl Recorder {
    pub(crate) fn start() -> Self {
        let (sender, requests) = watch::channel(Vec::new());
        let sender = Arc::new(sender);
        let handler = move |request: inbound::Request| {
            let sender = Arc::clone(&sender);
            async move {
                let (head, body) = request.into_parts();
                let Ok(body) = body.collect().await else {
                    return inbound::hang_up();
                };
                let body = body.to_bytes();
                let authorization = head.headers.get(http::header::AUTHORIZATION);
                let recorded = Recorded {
                    path: head.uri.to_string(),
                    authorization: authorization
                        .and_then(|value| value.to_str().ok())
                        .map(str::to_owned),
                    body: serde_json::from_slice(&body).unwrap_or_default(),
                };
                sender.send_modify(|all| all.push(recorded));
                let answer = match head.uri.path() {
                    "/limit" => json!({"status": "limited"}),
                    "/unlimit" => json!({"status": "unlimited"}),
                    _ => json!({"code": 0, "msg": "success"}),
                };
                inbound::json(StatusCode::OK, &answer)
            }
        };
        let listener = inbound::serve(([127, 0, 0, 1], 0).into(), inbound::limits(), handler)
            .expect("a free port");
        Self {
            address: listener.local_addr(),
            requests,
            _listener: listener,
        }
    }

    /// `http://…` of `path` at this server.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Everything that arrived so far, oldest first.
    pub(crate) fn all(&self) -> Vec<Recorded> {
        self.requests.borrow().clone()
    }

    /// Waits for a request to `path` (with its query) that holds `text` somewhere in its body; the first.
    pub(crate) async fn receives(&self, path: &str, text: &str) -> Recorded {
        let mut requests = self.requests.clone();
        let find = |all: &Vec<Recorded>| {
            let found = all
                .iter()
                .find(|one| one.path == path && one.body.to_string().contains(text));
            found.cloned()
        };
        let arrival = requests.wait_for(|all| find(all).is_some());
        let arrived = tokio::time::timeout(PATIENCE, arrival)
            .await
            .map(|all| find(&all.expect("the server lives as long as this")));
        match arrived {
            Ok(Some(found)) => found,
            _ => panic!(
                "within {PATIENCE:?} {path} receives {text:?}; there are {:#?}",
                self.all()
            ),
        }
    }
}
