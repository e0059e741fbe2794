//! The wait for the first objects and the start of sources: for all members before the workers start, for a later
//! member beside them.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, interval_at, timeout};
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use super::member::Member;
use super::watching::Watching;
use crate::lifecycle::{Inspect, Unavailable};
use crate::reconcile::RequestKey;

/// The period of the check for new causes to log.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// Waits for the watches of one controller.
pub(super) struct Wait<'a, R: RequestKey> {
    pub(super) name: &'a str,
    pub(super) watching: &'a Watching<R>,
    /// The limit of the wait for the first objects.
    pub(super) limit: Option<Duration>,
    pub(super) stop: &'a CancellationToken,
}

/// The members to wait for.
enum Goal {
    /// All members, before the workers start.
    All,
    /// One member that was added after the start.
    Late(Member),
}

// === impl Wait ===

impl<R: RequestKey> Wait<'_, R> {
    /// Waits until every handler has seen its first objects; false on a stop.
    ///
    /// # Errors
    /// When the limit is exceeded.
    pub(super) async fn at_start(&self) -> Result<bool, BoxError> {
        self.reached_in_time(Goal::All).await
    }

    /// Waits for the members that are added later. Returns an error when one exceeds the limit.
    pub(super) async fn for_late(&self) -> BoxError {
        let mut waits = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(reached) = waits.next() => if let Err(late) = reached {
                    return late;
                },
                late = self.watching.next_late() => {
                    waits.push(self.reached_in_time(Goal::Late(late)));
                }
            }
        }
    }

    async fn reached_in_time(&self, goal: Goal) -> Result<bool, BoxError> {
        let Some(limit) = self.limit else {
            return Ok(self.reached(&goal).await);
        };
        match timeout(limit, self.reached(&goal)).await {
            Ok(reached) => Ok(reached),
            Err(_) => {
                let missing = self.missing(&goal);
                let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
                let missing = missing.join("; ");
                Err(
                    format!("its watches and sources were not ready within {limit:?}: {missing}")
                        .into(),
                )
            }
        }
    }

    /// Waits for `goal` and logs the causes of the wait; false on a stop.
    async fn reached(&self, goal: &Goal) -> bool {
        let reached = async {
            match goal {
                Goal::All => self.watching.synced().await,
                Goal::Late(member) => member.attached().await,
            }
        };
        tokio::pin!(reached);
        let mut check = interval_at(Instant::now() + CHECK_PERIOD, CHECK_PERIOD);
        let mut logged: Vec<(Arc<str>, &'static str)> = Vec::new();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return false,
                () = &mut reached => break,
                _ = check.tick() => {}
            }
            // One line for each kind and cause, not for each check.
            let missing = self.missing(goal);
            for kind in &missing {
                let entry = (Arc::clone(&kind.informer), kind.cause);
                if !logged.contains(&entry) {
                    self.warn(goal, kind);
                    logged.push(entry);
                }
            }
            logged.retain(|(informer, cause)| {
                missing
                    .iter()
                    .any(|kind| kind.informer == *informer && kind.cause == *cause)
            });
        }
        for kind in self.missing(goal).iter().filter(|kind| kind.optional) {
            tracing::info!(
                controller = self.name,
                informer = &*kind.informer,
                why = kind.message,
                "running without an optional kind until it appears"
            );
        }
        true
    }

    fn missing(&self, goal: &Goal) -> Vec<Unavailable> {
        match goal {
            Goal::All => self.watching.unavailable(),
            Goal::Late(member) => member.trouble().into_iter().collect(),
        }
    }

    fn warn(&self, goal: &Goal, kind: &Unavailable) {
        let effect = match goal {
            Goal::All => "no worker starts before this kind can be followed",
            Goal::Late(_) => "this kind was added and cannot be followed; the others go on",
        };
        tracing::warn!(
            controller = self.name,
            informer = &*kind.informer,
            cause = kind.cause,
            why = kind.message,
            "{effect}"
        );
    }
}
