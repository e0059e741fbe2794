//! The two paths.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;

use super::Checks;
use crate::http::{Answer, Handler, text};

/// The checks of one process. Clones share them.
#[derive(Clone, Default)]
pub struct Health {
    live: Checks,
    ready: Checks,
}

// === impl Health ===

impl Health {
    /// Health without checks: both paths answer `ok`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The checks of `/healthz`: a failure means that the process should be restarted.
    #[must_use]
    pub fn live(&self) -> &Checks {
        &self.live
    }

    /// The checks of `/readyz`: a failure means that the process cannot do its work.
    #[must_use]
    pub fn ready(&self) -> &Checks {
        &self.ready
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

    /// Answers both paths and those below them.
    #[must_use]
    pub fn handler(&self) -> Handler {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt;
    use parking_lot::Mutex;

    use super::*;

    async fn asked(health: &Health, path: &str) -> (u16, String) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let response = health.respond(path, Some(query)).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap();
        (status, String::from_utf8(body.to_bytes().to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_of_other_checks_runs_them_and_knows_what_they_know() {
        let (health, other) = (Health::new(), Health::new());
        health.ready().add_all("other", other.ready());
        assert_eq!(asked(&health, "/readyz/other").await, (200, "ok".into()));
        other
            .ready()
            .add_async("caches", || async { Err("empty".to_owned()) });
        assert!(health.ready().failures().is_empty(), "never run");
        let failed = "internal server error: caches: empty\n";
        assert_eq!(asked(&health, "/readyz/other").await, (500, failed.into()));
        other
            .ready()
            .add("caches", || Err("still empty".to_owned()));
        let known = [("other".to_owned(), "caches: still empty".to_owned())];
        assert_eq!(health.ready().failures(), known);
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
        assert!(health.ready().failures().is_empty(), "never run");
        assert_eq!(asked(&health, "/readyz").await, (200, "ok".into()));
        *delay.lock() = Duration::from_secs(3600);
        let failed = "[-]gateway failed: reason withheld\nreadyz check failed\n";
        assert_eq!(asked(&health, "/readyz").await, (500, failed.into()));
        let last = [("gateway".to_owned(), "no answer in 5s".to_owned())];
        assert_eq!(health.ready().failures(), last);
        let probe = asked(&health, "/readyz/gateway");
        let gone = tokio::time::timeout(Duration::from_secs(1), probe).await;
        assert!(gone.is_err(), "the probe does not wait so long");
        let reason = "it had not ended when its request was given up".to_owned();
        assert_eq!(health.ready().failures(), [("gateway".to_owned(), reason)]);
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
