//! `/healthz` and `/readyz`, answered as controller-runtime's healthz package does.
//!
//! Each is a set of named checks. All well is `200 ok`, or the list of checks with `?verbose`. A failure is
//! `500` with the list; it names the failed checks and keeps their reasons to itself, for anybody may ask. One
//! check alone (`/readyz/informers`) does say why. `?exclude=name` leaves a check out.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use parking_lot::RwLock;

use crate::manager::RunnableHealth;
use crate::manager::status::Board;
use crate::server::{Handler, text};

/// A check: `Ok`, or the reason why not. Must not block.
pub type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

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
    pub fn respond(&self, path: &str, query: Option<&str>) -> Response<Full<Bytes>> {
        for (root, checks) in [("healthz", &self.live), ("readyz", &self.ready)] {
            let Some(rest) = path
                .strip_prefix('/')
                .and_then(|path| path.strip_prefix(root))
            else {
                continue;
            };
            let rest = rest.trim_end_matches('/');
            if rest.is_empty() {
                return checks.all(root, query.unwrap_or_default());
            }
            if let Some(name) = rest.strip_prefix('/') {
                return checks.one(name);
            }
        }
        text(StatusCode::NOT_FOUND, "404 page not found\n")
    }

    pub(crate) fn handler(&self) -> Handler {
        let health = self.clone();
        Arc::new(move |request| {
            let response = match *request.method() {
                http::Method::GET | http::Method::HEAD => {
                    health.respond(request.uri().path(), request.uri().query())
                }
                _ => text(StatusCode::METHOD_NOT_ALLOWED, "405 method not allowed\n"),
            };
            Box::pin(std::future::ready(response))
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
    /// Adds the check `name`, in place of one of that name.
    pub fn add(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.0.write().insert(name.into(), Arc::new(check));
    }

    /// Removes the check `name`.
    pub fn remove(&self, name: &str) {
        self.0.write().remove(name);
    }

    /// Runs every check, and returns those that failed with their reasons.
    #[must_use]
    pub fn failures(&self) -> Vec<(String, String)> {
        let results = self.results(&[]);
        let failed = |(name, result): (String, Result<(), String>)| Some((name, result.err()?));
        results.into_iter().filter_map(failed).collect()
    }

    fn results(&self, exclude: &[&str]) -> Vec<(String, Result<(), String>)> {
        let checks: Vec<(String, Check)> = self
            .0
            .read()
            .iter()
            .map(|(name, check)| (name.clone(), Arc::clone(check)))
            .collect();
        if checks.is_empty() && !exclude.contains(&"ping") {
            return vec![("ping".to_owned(), Ok(()))];
        }
        checks
            .into_iter()
            .filter(|(name, _)| !exclude.contains(&name.as_str()))
            .map(|(name, check)| (name, check()))
            .collect()
    }

    fn all(&self, root: &str, query: &str) -> Response<Full<Bytes>> {
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
        for (name, result) in self.results(&exclude) {
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

    fn one(&self, name: &str) -> Response<Full<Bytes>> {
        let check = {
            let checks = self.0.read();
            if checks.is_empty() && name == "ping" {
                return text(StatusCode::OK, "ok");
            }
            checks.get(name).cloned()
        };
        match check.map(|check| check()) {
            None => text(StatusCode::NOT_FOUND, "404 page not found\n"),
            Some(Ok(())) => text(StatusCode::OK, "ok"),
            Some(Err(reason)) => text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("internal server error: {reason}\n"),
            ),
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
    use futures::FutureExt;
    use http_body_util::BodyExt;

    use super::*;

    fn asked(health: &Health, path: &str) -> (u16, String) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let response = health.respond(path, Some(query));
        let status = response.status().as_u16();
        let body = response
            .into_body()
            .collect()
            .now_or_never()
            .unwrap()
            .unwrap();
        (status, String::from_utf8(body.to_bytes().to_vec()).unwrap())
    }

    #[test]
    fn each_path_answers_as_controller_runtime_does() {
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
            assert_eq!(asked(&health, path), (status, body.to_owned()), "{path}");
        }
    }
}
