//! Requests of callers, by impersonation.

use http::Request;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use super::world::{Guard, PATIENCE, World};

/// A caller: its name and a group.
pub(super) type Caller = (&'static str, &'static str);

pub(super) const MERGE: &str = "application/merge-patch+json";
pub(super) const APPLY: &str = "application/apply-patch+yaml";
pub(super) const JSON: &str = "application/json";

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) content: &'static str,
    pub(super) body: Value,
}

/// The status of an answer, and its message or its object.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) message: String,
    pub(super) object: Value,
}

impl Attempt {
    pub(super) fn new(method: &'static str, path: impl Into<String>, body: Value) -> Self {
        let content = if method == "PATCH" { MERGE } else { JSON };
        let path = path.into();
        Self {
            method,
            path,
            content,
            body,
        }
    }
}

impl World {
    /// Sends a request as a caller, or as the administrator.
    pub(super) async fn send(&self, attempt: &Attempt, caller: Option<Caller>) -> Answer {
        let mut request = Request::builder()
            .method(attempt.method)
            .uri(&attempt.path)
            .header("content-type", attempt.content);
        if let Some((user, group)) = caller {
            request = request
                .header("impersonate-user", user)
                .header("impersonate-group", group);
        }
        let body = match &attempt.body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        match self
            .client
            .request::<Value>(request.body(body).unwrap())
            .await
        {
            Ok(object) => Answer {
                code: 200,
                message: String::new(),
                object,
            },
            Err(kube_client::Error::Api(status)) => Answer {
                code: status.code,
                message: status.message.clone(),
                object: Value::Null,
            },
            Err(error) => panic!("{attempt:?}: {error}"),
        }
    }

    /// The result of a request of the administrator, which must succeed.
    pub(super) async fn must(&self, method: &'static str, path: &str, body: Value) -> Value {
        let attempt = Attempt::new(method, path, body);
        let answer = self.send(&attempt, None).await;
        assert_eq!(answer.code, 200, "{attempt:?}: {}", answer.message);
        answer.object
    }

    /// Deletes production Pods of another namespace until the guard gets records of deletions, or none any more: a real server
    /// reads configurations from a cache.
    pub(super) async fn until_recorded(&self, guard: &Guard, recorded: bool) {
        let pods = "/api/v1/namespaces/hbox-pre/pods";
        let end = Instant::now() + PATIENCE;
        for turn in 0.. {
            let name = format!("probe-{recorded}-{turn}");
            let pod = json!({
                "metadata": {"name": name, "labels": {"environment": "production"}},
                "spec": {"automountServiceAccountToken": false, "containers": [{"name": "a", "image": "a"}]},
            });
            self.must("POST", pods, pod).await;
            self.must("DELETE", &format!("{pods}/{name}"), Value::Null)
                .await;
            // A thread of the guard writes the line.
            sleep(Duration::from_millis(50)).await;
            let audit = std::fs::read_to_string(&guard.audit).unwrap();
            if audit.contains(&format!("pods/hbox-pre/{name}\"")) == recorded {
                return;
            }
            assert!(Instant::now() < end, "{audit}");
            sleep(Duration::from_millis(100)).await;
        }
    }
}
