//! The queues of a program, and the items of each.

use std::borrow::Cow;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use parking_lot::Mutex;
use reeve_clock::Clock;
use reeve_workqueue::{ItemStatus, Queue, Snapshot};
use serde::{Deserialize, Serialize};

use super::times::{after, before};

/// The set of shown queues. Clones are one set.
#[derive(Clone, Default)]
pub struct Queues(Arc<Mutex<Vec<Weak<dyn Inspect>>>>);

/// Shows a queue until it is dropped.
#[must_use = "the queue is shown until this is dropped"]
pub struct Registration(#[allow(dead_code, reason = "it is kept, not read")] Arc<dyn Inspect>);

/// A queue with any type of items.
trait Inspect: Send + Sync {
    fn report(&self, limit: usize) -> QueueReport;
}

/// The content of a queue at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct QueueReport {
    /// The name of the queue: for a controller's, that of the controller.
    pub name: String,
    /// Items ready for a worker.
    pub ready: usize,
    /// Items that wait for a time.
    pub waiting: usize,
    /// Items whose time has come and that wait for a token of a rate limiter.
    pub awaiting_token: usize,
    /// Items in the hands of workers.
    pub in_flight: usize,
    /// Keys whose last run failed: also those that wait for a retry, are in flight again, or are no longer queued.
    pub failing: usize,
    /// Adds that were refused because the queue was shut down.
    pub refused: u64,
    /// The queue is shutting down.
    pub shutting_down: bool,
    /// Items in flight, then ready ones in their order, then those that wait for a token, then those that wait for a time, soonest first.
    pub items: Vec<ItemReport>,
    /// There are more items than the limit.
    pub more: bool,
}

/// One item of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ItemReport {
    /// The key.
    pub key: String,
    /// Its state.
    #[serde(flatten)]
    pub state: ItemState,
    /// The priority of its request.
    pub priority: i32,
    /// Runs in a row that failed.
    pub failures: u32,
    /// The error of the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<ErrorReport>,
    /// The reasons of its request.
    pub reasons: Vec<String>,
}

/// The state of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
#[non_exhaustive]
pub enum ItemState {
    /// A worker has it.
    InFlight {
        /// The begin of the run.
        since: Timestamp,
        /// It was added again meanwhile, and runs again after.
        again: bool,
    },
    /// It is ready.
    Ready,
    /// It waits for a token of the rate limiter.
    AwaitingToken,
    /// It waits for a time.
    Waiting {
        /// The time.
        due: Timestamp,
    },
}

/// The error of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ErrorReport {
    /// The error; at most 256 bytes of it.
    pub message: String,
    /// Its class, if it has one.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub class: Cow<'static, str>,
}

// === impl Queues ===

impl Queues {
    /// Shows `queue` under its name; times are those of the system's clock.
    pub fn add<T>(&self, queue: &Queue<T>) -> Registration
    where
        T: Hash + Eq + Clone + std::fmt::Display + Send + Sync + 'static,
    {
        self.add_at(queue, Clock::system())
    }

    /// Shows `queue`, with the times of `clock`.
    pub fn add_at<T>(&self, queue: &Queue<T>, clock: Clock) -> Registration
    where
        T: Hash + Eq + Clone + std::fmt::Display + Send + Sync + 'static,
    {
        let queue: Arc<dyn Inspect> = Arc::new(Shown {
            queue: queue.clone(),
            clock,
        });
        let mut queues = self.0.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(&queue));
        Registration(queue)
    }

    /// The content of each queue, by name, with at most `limit` items each.
    #[must_use]
    pub fn report(&self, limit: usize) -> Vec<QueueReport> {
        let queues: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        let mut reports: Vec<QueueReport> =
            queues.iter().map(|queue| queue.report(limit)).collect();
        reports.sort_by(|a, b| a.name.cmp(&b.name));
        reports
    }
}

impl std::fmt::Debug for Queues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queues").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration").finish_non_exhaustive()
    }
}

/// A queue and the clock of its times.
struct Shown<T> {
    queue: Queue<T>,
    clock: Clock,
}

// === impl Shown ===

impl<T> Inspect for Shown<T>
where
    T: Hash + Eq + Clone + std::fmt::Display + Send + Sync + 'static,
{
    fn report(&self, limit: usize) -> QueueReport {
        report(&self.queue.snapshot_of(limit), self.clock.now())
    }
}

fn report<T: std::fmt::Display>(snapshot: &Snapshot<T>, now: Timestamp) -> QueueReport {
    let items = snapshot.items.iter().map(|item| ItemReport {
        key: item.item.to_string(),
        state: match item.status {
            ItemStatus::InFlight { running, again } => ItemState::InFlight {
                since: before(now, running),
                again,
            },
            ItemStatus::Waiting { due_in } => ItemState::Waiting {
                due: after(now, due_in),
            },
            ItemStatus::AwaitingToken => ItemState::AwaitingToken,
            _ => ItemState::Ready,
        },
        priority: item.priority,
        failures: item.failures,
        last_error: item.last_error.as_ref().map(|cause| ErrorReport {
            message: cause.message().to_owned(),
            class: cause.kind().into(),
        }),
        reasons: item.reasons.iter().map(ToString::to_string).collect(),
    });
    let items: Vec<ItemReport> = items.collect();
    let all = snapshot.ready + snapshot.waiting + snapshot.awaiting_token + snapshot.in_flight;
    QueueReport {
        name: snapshot.name.clone(),
        ready: snapshot.ready,
        waiting: snapshot.waiting,
        awaiting_token: snapshot.awaiting_token,
        in_flight: snapshot.in_flight,
        failing: snapshot.failing,
        refused: snapshot.refused,
        shutting_down: snapshot.shutting_down,
        more: items.len() < all,
        items,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::SignedDuration;
    use reeve_workqueue::{AddOptions, Cause, Reason};

    use super::*;
    use crate::fake::clock;

    #[tokio::test(start_paused = true)]
    async fn a_queue_is_shown_with_what_each_key_is_at() {
        let (queues, clock) = (Queues::default(), clock());
        let queue: Queue<String> = Queue::builder().name("test").clock(clock.clone()).build();
        let shown = queues.add_at(&queue, clock.clone());
        queue.add("failed".into());
        let failed = queue.get().await.unwrap();
        let delay = failed.retry_because(Cause::new("refused").class("throttled"));
        queue.add("working".into());
        let working = queue.get().await.unwrap();
        queue.add("working".into());
        queue.add_with(
            "ready".into(),
            AddOptions::new().reason(Reason::Changed).priority(7),
        );
        let begin = clock.now();
        tokio::time::sleep(Duration::from_millis(1)).await;
        queue.add_after("later".into(), Duration::from_secs(3600));
        let reports = queues.report(100);
        let report = &reports[0];
        assert_eq!((report.ready, report.waiting, report.in_flight), (1, 2, 1));
        assert_eq!(report.failing, 1, "it waits for its retry");
        let by_key = |key: &str| report.items.iter().find(|item| item.key == key).unwrap();
        assert_eq!(
            by_key("working").state,
            ItemState::InFlight {
                since: begin,
                again: true
            }
        );
        let ready = by_key("ready");
        assert_eq!(
            (ready.priority, ready.reasons.join(",")),
            (7, "changed".into())
        );
        let failed = by_key("failed");
        assert_eq!(failed.failures, 1);
        assert_eq!(failed.last_error.as_ref().unwrap().message, "refused");
        assert_eq!(
            failed.state,
            ItemState::Waiting {
                due: begin + SignedDuration::try_from(delay).unwrap()
            }
        );
        let in_an_hour = clock.now() + SignedDuration::from_hours(1);
        assert_eq!(
            by_key("later").state,
            ItemState::Waiting { due: in_an_hour }
        );

        assert!(!report.more);
        let some = &queues.report(2)[0];
        assert_eq!((some.items.len(), some.more), (2, true));
        working.done();
        drop(shown);
        assert!(
            queues.report(100).is_empty(),
            "shown while it is registered"
        );
    }
}
