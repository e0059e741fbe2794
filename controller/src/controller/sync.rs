//! The wait for the first objects and the start of sources: of all before the workers start, of each that is added
//! later beside them.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, interval_at, timeout};
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use super::watching::{Member, Watching};
use crate::manager::{Inspect, Unavailable};
use crate::reconcile::RequestKey;

/// How often a controller looks what it waits for, and says so if that is new.
const LOOK: Duration = Duration::from_secs(1);

/// Waits for the watches of one controller.
pub(super) struct Wait<'a, R: RequestKey> {
    pub(super) name: &'a str,
    pub(super) watching: &'a Watching<R>,
    /// After how long without the first objects it gives up.
    pub(super) limit: Option<Duration>,
    pub(super) stop: &'a CancellationToken,
}

/// What is waited for.
enum Goal {
    /// The workers are to start.
    All,
    /// They have started.
    Late(Member),
}

// === impl Wait ===

impl<R: RequestKey> Wait<'_, R> {
    /// Waits until every handler has seen its first objects; false if the stop came first.
    ///
    /// # Errors
    /// When that takes longer than it may.
    pub(super) async fn at_start(&self) -> Result<bool, BoxError> {
        self.reached_in_time(Goal::All).await
    }

    /// Waits for the watches that are added later, for as long as each may take. Returns when one takes longer.
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

    /// Waits for `goal`, and says what it waits for; false if the stop came first.
    async fn reached(&self, goal: &Goal) -> bool {
        let reached = async {
            match goal {
                Goal::All => self.watching.synced().await,
                Goal::Late(member) => member.attached().await,
            }
        };
        tokio::pin!(reached);
        let mut look = interval_at(Instant::now() + LOOK, LOOK);
        let mut said: Vec<(Arc<str>, &'static str)> = Vec::new();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return false,
                () = &mut reached => break,
                _ = look.tick() => {}
            }
            // A line for each kind and cause, not for each look.
            let missing = self.missing(goal);
            for kind in &missing {
                let known = (Arc::clone(&kind.informer), kind.cause);
                if !said.contains(&known) {
                    self.warn(goal, kind);
                    said.push(known);
                }
            }
            said.retain(|(informer, cause)| {
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
                "doing without an optional kind, which is attached when it appears"
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
        let so = match goal {
            Goal::All => "no worker starts before this kind can be followed",
            Goal::Late(_) => "this kind was added and cannot be followed; the others go on",
        };
        tracing::warn!(
            controller = self.name,
            informer = &*kind.informer,
            cause = kind.cause,
            why = kind.message,
            "{so}"
        );
    }
}
