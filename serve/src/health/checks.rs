//! Named checks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use http::StatusCode;
use parking_lot::{Mutex, RwLock};
use tokio::time::timeout;

use crate::http::{Answer, text};

/// Time for an asynchronous check; after that it has failed.
pub const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// `Ok`, or the reason of the failure.
type Verdict = Result<(), String>;

/// Returns a verdict at once.
type Immediate = Arc<dyn Fn() -> Verdict + Send + Sync>;
/// Takes time for a verdict.
type Asynchronous = Arc<dyn Fn() -> BoxFuture<'static, Verdict> + Send + Sync>;

/// The verdict of the last run, and how many runs have ended.
#[derive(Default)]
struct Last {
    verdict: Option<String>,
    ended: u64,
}

/// A check.
#[derive(Clone)]
enum Check {
    Immediate(Immediate),
    /// The last result is kept.
    Asynchronous {
        run: Asynchronous,
        last: Arc<Mutex<Last>>,
    },
    /// What is known at once, and what a run finds.
    Either {
        known: Immediate,
        run: Asynchronous,
    },
}

/// A set of named checks. Clones share it.
#[derive(Clone, Default)]
pub struct Checks(Arc<RwLock<BTreeMap<String, Check>>>);

// === impl Checks ===

impl Checks {
    /// Adds the check `name`, or replaces the check of that name. It must not block.
    pub fn add(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let check = Check::Immediate(Arc::new(check));
        self.0.write().insert(name.into(), check);
    }

    /// Adds the asynchronous check `name`. It runs at each request and has [`CHECK_TIMEOUT`].
    ///
    /// Probes are frequent. For an expensive check, run it now and then, and return its last result from a plain check.
    pub fn add_async<F>(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let check = Check::Asynchronous {
            run: Arc::new(move || check().boxed()),
            last: Arc::default(),
        };
        self.0.write().insert(name.into(), check);
    }

    /// Adds `other` as the check `name`: it passes if all checks of `other` pass.
    pub fn add_all(&self, name: impl Into<String>, other: &Self) {
        let (known, running) = (other.clone(), other.clone());
        let check = Check::Either {
            known: Arc::new(move || known.check()),
            run: Arc::new(move || {
                let running = running.clone();
                async move { verdict(&running.run().await) }.boxed()
            }),
        };
        self.0.write().insert(name.into(), check);
    }

    /// Removes the check `name`.
    pub fn remove(&self, name: &str) {
        self.0.write().remove(name);
    }

    /// Runs every check, and returns those that failed with their reasons. An asynchronous check is not run: its last
    /// result counts, and it has not failed if it never ran.
    #[must_use]
    pub fn failures(&self) -> Vec<(String, String)> {
        let checks = self.0.read().clone();
        checks
            .into_iter()
            .filter_map(|(name, check)| Some((name, check.last().err()?)))
            .collect()
    }

    /// `Ok` if there are no [`failures`](Self::failures).
    ///
    /// # Errors
    /// The failed checks with their reasons, in one text.
    pub fn check(&self) -> Result<(), String> {
        verdict(&self.failures())
    }

    /// Runs every check, also the asynchronous ones, and returns those that failed with their reasons.
    async fn run(&self) -> Vec<(String, String)> {
        let checks = self.0.read().clone();
        let running = checks
            .into_iter()
            .map(|(name, check)| async move { Some((name, check.run().await.err()?)) });
        join_all(running).await.into_iter().flatten().collect()
    }

    async fn results(&self, exclude: &[&str]) -> Vec<(String, Verdict)> {
        let checks = self.0.read().clone();
        if checks.is_empty() && !exclude.contains(&"ping") {
            return vec![("ping".to_owned(), Ok(()))];
        }
        let running = checks
            .into_iter()
            .filter(|(name, _)| !exclude.contains(&name.as_str()))
            .map(|(name, check)| async move { (name, check.run().await) });
        join_all(running).await
    }

    /// The answer to a request for all checks.
    pub(super) async fn all(&self, root: &str, query: &str) -> Answer {
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

    /// The answer to a request for one check.
    pub(super) async fn one(&self, name: &str) -> Answer {
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
            Self::Immediate(check) => check(),
            Self::Asynchronous { run, last } => {
                let run_of = RunOf {
                    last,
                    ended: last.lock().ended,
                };
                let verdict = in_time(run).await;
                run_of.has(verdict.clone().err());
                verdict
            }
            Self::Either { run, .. } => in_time(run).await,
        }
    }

    fn last(&self) -> Verdict {
        match self {
            Self::Immediate(check) => check(),
            Self::Asynchronous { last, .. } => last.lock().verdict.clone().map_or(Ok(()), Err),
            Self::Either { known, .. } => known(),
        }
    }
}

/// A run of a check. Dropped before it has a verdict, because a probe gave its request up, it counts as failed, unless
/// another run has ended meanwhile.
struct RunOf<'a> {
    last: &'a Mutex<Last>,
    /// The runs that had ended when it began.
    ended: u64,
}

// === impl RunOf ===

impl RunOf<'_> {
    fn has(&self, verdict: Option<String>) {
        let mut last = self.last.lock();
        last.verdict = verdict;
        last.ended += 1;
    }
}

impl Drop for RunOf<'_> {
    fn drop(&mut self) {
        let mut last = self.last.lock();
        if last.ended == self.ended {
            last.verdict = Some("it had not ended when its request was given up".to_owned());
        }
    }
}

async fn in_time(run: &Asynchronous) -> Verdict {
    let verdict = timeout(CHECK_TIMEOUT, run()).await;
    verdict.unwrap_or_else(|_| Err(format!("no answer in {CHECK_TIMEOUT:?}")))
}

/// One verdict for all failures.
fn verdict(failures: &[(String, String)]) -> Verdict {
    if failures.is_empty() {
        return Ok(());
    }
    let texts = failures
        .iter()
        .map(|(name, reason)| format!("{name}: {reason}"));
    Err(texts.collect::<Vec<_>>().join("; "))
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.read().keys()).finish()
    }
}
