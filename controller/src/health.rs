//! `/healthz` and `/readyz`, answered as controller-runtime's healthz package does.
//!
//! Each is a set of named checks. All well is `200 ok`, or the list of checks with `?verbose`. A failure is
//! `500` with the list; it names the failed checks and keeps their reasons to itself, for anybody may ask. One
//! check alone (`/readyz/informers`) does say why. `?exclude=name` leaves a check out.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use http::StatusCode;
use parking_lot::{Mutex, RwLock};
use tokio::time::timeout;

use crate::manager::RunnableHealth;
use crate::manager::status::Board;
use crate::server::{Answer, Handler, text};

/// How long an asynchronous check may take; after that it has failed.
pub const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// `Ok`, or the reason why not.
type Verdict = Result<(), String>;

/// A check.
#[derive(Clone)]
enum Check {
    /// Answers at once.
    Now(Arc<dyn Fn() -> Verdict + Send + Sync>),
    /// Asks somebody; what it said last is kept.
    Asked {
        ask: Arc<dyn Fn() -> BoxFuture<'static, Verdict> + Send + Sync>,
        last: Arc<Mutex<Verdict>>,
    },
}

/// The checks of one manager. Clones share them.
#[derive(Clone, Default)]
pub struct Health {
    live: Checks,
    ready: Checks,
    board: Board,
}

/// A set of named checks. Clones share it.
#[derive(Clone, Default)]
pub struct Checks(Arc<RwLock<BTreeMap<String, Check>>>);

// === impl Health ===

impl Health {
    /// No checks: both paths answer `ok`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What `/healthz` asks: whether the process should be restarted.
    #[must_use]
    pub fn live(&self) -> &Checks {
        &self.live
    }

    /// What `/readyz` asks: whether the process can do its work.
    #[must_use]
    pub fn ready(&self) -> &Checks {
        &self.ready
    }

    /// What the manager runs and has not ended well, in the order in which it was added: the state of each, and of
    /// a controller the kinds it cannot follow and what it is at.
    #[must_use]
    pub fn runnables(&self) -> Vec<RunnableHealth> {
        self.board.runnables()
    }

    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    /// The answer to a GET of `path` with `query`.
    #[must_use]
    pub async fn respond(&self, path: &str, query: Option<&str>) -> Answer {
        for (root, checks) in [("healthz", &self.live), ("readyz", &self.ready)] {
            let Some(rest) = path
                .strip_prefix('/')
                .and_then(|path| path.strip_prefix(root))
            else {
                continue;
            };
            let rest = rest.trim_end_matches('/');
            if rest.is_empty() {
                return checks.all(root, query.unwrap_or_default()).await;
            }
            if let Some(name) = rest.strip_prefix('/') {
                return checks.one(name).await;
            }
        }
        text(StatusCode::NOT_FOUND, "404 page not found\n")
    }

    pub(crate) fn handler(&self) -> Handler {
        let health = self.clone();
        Arc::new(move |request| {
            let health = health.clone();
            Box::pin(async move {
                let (path, query) = (request.uri().path(), request.uri().query());
                match *request.method() {
                    http::Method::GET | http::Method::HEAD => health.respond(path, query).await,
                    _ => text(StatusCode::METHOD_NOT_ALLOWED, "405 method not allowed\n"),
                }
            })
        })
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health")
            .field("live", &self.live)
            .field("ready", &self.ready)
            .finish()
    }
}

// === impl Checks ===

impl Checks {
    /// Adds the check `name`, in place of one of that name. It must not block.
    pub fn add(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let check = Check::Now(Arc::new(check));
        self.0.write().insert(name.into(), check);
    }

    /// Adds the check `name` that asks somebody, whenever the path is; it has [`CHECK_TIMEOUT`].
    ///
    /// Whoever probes asks often: what is dear to ask should be asked now and then, and its last answer be told by a
    /// plain check.
    pub fn add_async<F>(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let check = Check::Asked {
            ask: Arc::new(move || check().boxed()),
            last: Arc::new(Mutex::new(Ok(()))),
        };
        self.0.write().insert(name.into(), check);
    }

    /// Removes the check `name`.
    pub fn remove(&self, name: &str) {
        self.0.write().remove(name);
    }

    /// Runs every check, and returns those that failed with their reasons. Of asynchronous checks what they said last,
    /// nothing if they were never asked.
    #[must_use]
    pub fn failures(&self) -> Vec<(String, String)> {
        let checks = self.0.read().clone();
        checks
            .into_iter()
            .filter_map(|(name, check)| Some((name, check.last().err()?)))
            .collect()
    }

    async fn results(&self, exclude: &[&str]) -> Vec<(String, Verdict)> {
        let checks = self.0.read().clone();
        if checks.is_empty() && !exclude.contains(&"ping") {
            return vec![("ping".to_owned(), Ok(()))];
        }
        let asked = checks
            .into_iter()
            .filter(|(name, _)| !exclude.contains(&name.as_str()))
            .map(|(name, check)| async move { (name, check.run().await) });
        join_all(asked).await
    }

    async fn all(&self, root: &str, query: &str) -> Answer {
        let parameters = || {
            query
                .split('&')
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        };
        let verbose = parameters().any(|(name, _)| name == "verbose");
        let exclude: Vec<&str> = parameters()
            .filter(|(name, _)| *name == "exclude")
            .map(|(_, value)| value)
            .collect();
        let unknown: Vec<&str> = {
            let known = self.0.read();
            let is_known =
                |name: &str| known.contains_key(name) || (known.is_empty() && name == "ping");
            exclude
                .iter()
                .copied()
                .filter(|name| !is_known(name))
                .collect()
        };
        let mut lines = String::new();
        let mut failed = Vec::new();
        for name in exclude.iter().filter(|name| !unknown.contains(name)) {
            lines.push_str(&format!("[+]{name} excluded: ok\n"));
        }
        for (name, result) in self.results(&exclude).await {
            match result {
                Ok(()) => lines.push_str(&format!("[+]{name} ok\n")),
                Err(reason) => {
                    lines.push_str(&format!("[-]{name} failed: reason withheld\n"));
                    failed.push((name, reason));
                }
            }
        }
        if !unknown.is_empty() {
            lines.push_str(&format!(
                "warn: some health checks cannot be excluded: no matches for {unknown:?}\n"
            ));
        }
        if !failed.is_empty() {
            for (check, reason) in &failed {
                tracing::info!(check, reason, "{root} check failed");
            }
            lines.push_str(&format!("{root} check failed\n"));
            return text(StatusCode::INTERNAL_SERVER_ERROR, lines);
        }
        if verbose {
            lines.push_str(&format!("{root} check passed\n"));
            return text(StatusCode::OK, lines);
        }
        text(StatusCode::OK, "ok")
    }

    async fn one(&self, name: &str) -> Answer {
        let check = {
            let checks = self.0.read();
            if checks.is_empty() && name == "ping" {
                return text(StatusCode::OK, "ok");
            }
            checks.get(name).cloned()
        };
        let Some(check) = check else {
            return text(StatusCode::NOT_FOUND, "404 page not found\n");
        };
        match check.run().await {
            Ok(()) => text(StatusCode::OK, "ok"),
            Err(reason) => text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("internal server error: {reason}\n"),
            ),
        }
    }
}

// === impl Check ===

impl Check {
    async fn run(&self) -> Verdict {
        match self {
            Self::Now(check) => check(),
            Self::Asked { ask, last } => {
                let verdict = timeout(CHECK_TIMEOUT, ask()).await;
                let verdict =
                    verdict.unwrap_or_else(|_| Err(format!("no answer in {CHECK_TIMEOUT:?}")));
                last.lock().clone_from(&verdict);
                verdict
            }
        }
    }

    fn last(&self) -> Verdict {
        match self {
            Self::Now(check) => check(),
            Self::Asked { last, .. } => last.lock().clone(),
        }
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.read().keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn asked(health: &Health, path: &str) -> (u16, String) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let response = health.respond(path, Some(query)).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap();
        (status, String::from_utf8(body.to_bytes().to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_that_asks_is_waited_for_and_given_up() {
        let health = Health::new();
        let delay = Arc::new(Mutex::new(Duration::from_secs(1)));
        let takes = Arc::clone(&delay);
        health.ready().add_async("gateway", move || {
            let takes = *takes.lock();
            async move {
                tokio::time::sleep(takes).await;
                if takes.is_zero() {
                    return Err("connection refused".into());
                }
                Ok(())
            }
        });
        assert!(health.ready().failures().is_empty(), "never asked");
        assert_eq!(asked(&health, "/readyz").await, (200, "ok".into()));
        *delay.lock() = Duration::from_secs(3600);
        let failed = "[-]gateway failed: reason withheld\nreadyz check failed\n";
        assert_eq!(asked(&health, "/readyz").await, (500, failed.into()));
        let last = [("gateway".to_owned(), "no answer in 5s".to_owned())];
        assert_eq!(health.ready().failures(), last);
        *delay.lock() = Duration::ZERO;
        let refused = "internal server error: connection refused\n";
        assert_eq!(
            asked(&health, "/readyz/gateway").await,
            (500, refused.into())
        );
        *delay.lock() = Duration::from_secs(1);
        assert_eq!(asked(&health, "/readyz/gateway").await.0, 200);
        assert!(health.ready().failures().is_empty());
    }

    #[tokio::test]
    async fn each_path_answers_as_controller_runtime_does() {
        let health = Health::new();
        health.ready().add("caches", || Ok(()));
        health
            .ready()
            .add("gateway", || Err("connection refused".into()));
        let failed = "[+]caches ok\n[-]gateway failed: reason withheld\nreadyz check failed\n";
        let warned = "[+]caches ok\n[-]gateway failed: reason withheld\n\
                      warn: some health checks cannot be excluded: no matches for [\"x\"]\n\
                      readyz check failed\n";
        for (path, status, body) in [
            ("/healthz", 200, "ok"),
            (
                "/healthz?verbose",
                200,
                "[+]ping ok\nhealthz check passed\n",
            ),
            ("/healthz/ping", 200, "ok"),
            ("/readyz", 500, failed),
            ("/readyz/", 500, failed),
            ("/readyz?exclude=x", 500, warned),
            ("/readyz?exclude=gateway", 200, "ok"),
            (
                "/readyz?verbose&exclude=gateway",
                200,
                "[+]gateway excluded: ok\n[+]caches ok\nreadyz check passed\n",
            ),
            ("/readyz/caches", 200, "ok"),
            (
                "/readyz/gateway",
                500,
                "internal server error: connection refused\n",
            ),
            ("/readyz/other", 404, "404 page not found\n"),
            ("/readyzother", 404, "404 page not found\n"),
            ("/", 404, "404 page not found\n"),
        ] {
            assert_eq!(
                asked(&health, path).await,
                (status, body.to_owned()),
                "{path}"
            );
        }
    }
}
