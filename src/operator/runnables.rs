//! What runs beside the controllers: clocks, ends of bans, lists, and the end of the process.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use kube_core::PartialObjectMeta;
use parking_lot::Mutex;
use reeve_controller::cache::{Caches, View};
use reeve_controller::source::{Sender, Wanted};
use reeve_controller::{Controller, Manager, Request, Runnable, predicate};

use super::Error;
use crate::api::{BlockList, IPBlock};
use crate::audit;
use crate::decide::Coverage;
use crate::lists::ListReconciler;
use crate::metrics::Metrics;
use crate::notify::Notifications;
use crate::pulled::Sources;
use crate::reconcile::{alarm, request_all};
use crate::sets::Sets;
use crate::time::{ServerTime, Time};
use crate::trigger::Triggers;

/// When the wall clock moves by more than this, every block is requested.
const JUMP: Duration = Duration::from_millis(500);
const JUMP_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Follows the lists, on each replica.
pub(super) fn list_controller(
    reconciler: ListReconciler,
    again: &Sender<Request>,
    requests: BoxStream<'static, Wanted<Request>>,
) -> Result<Controller, Error> {
    // Requested once even when there is no list: set engines wait for the first reading.
    again.try_send(Request::cluster("first"))?;
    Ok(Controller::builder("lists")
        .for_view(View::<PartialObjectMeta<BlockList>>::metadata())
        .optional()
        .with_predicate(predicate::generation_changed())
        .watches_source(requests)
        .without_leader_election()
        .complete(reconciler)?)
}

/// Requests lists after an edit of the configuration, and when this replica begins to lead.
pub(super) fn followed_lists(reconciler: ListReconciler, again: Sender<Request>) -> Runnable {
    Runnable::new("edits for lists", move |stop| async move {
        reconciler.follow(again, stop).await;
        Ok::<_, std::convert::Infallible>(())
    })
    .without_leader_election()
}

/// Serves lists only while the blocks are followed.
pub(super) fn set_freshness(sets: Arc<Sets>, caches: Caches) -> Runnable {
    Runnable::new("freshness of sets", move |stop| async move {
        let fails = || {
            let blocks = caches.lister::<IPBlock>().ok();
            let health = blocks.and_then(|blocks| blocks.health());
            health.is_some_and(|health| health.failure.is_some())
        };
        sets.watch_cache(fails, stop).await;
        Ok::<_, std::convert::Infallible>(())
    })
    .without_leader_election()
}

/// Compares the clock with the API server's.
pub(super) fn compared(
    time: Time,
    server: Arc<dyn ServerTime>,
    coverage: Arc<Mutex<Coverage>>,
    metrics: Metrics,
) -> Runnable {
    Runnable::new("clock of the API server", move |stop| async move {
        time.watch(server, coverage, metrics, stop).await;
        Ok::<_, std::convert::Infallible>(())
    })
    .without_leader_election()
}

/// Puts blocks in front when their bans end.
pub(super) fn ends(coverage: Arc<Mutex<Coverage>>, time: Time, again: Sender<Request>) -> Runnable {
    Runnable::new("ends of bans", move |stop| async move {
        alarm(coverage, time, again, stop).await;
        Ok::<_, std::convert::Infallible>(())
    })
}

/// Requests every block when the wall clock was set, and sets the alarms of all ends again: after a clock was set back,
/// an end that was due is ahead.
pub(super) fn jumps(
    manager: &Manager,
    coverage: Arc<Mutex<Coverage>>,
    again: Sender<Request>,
) -> Runnable {
    let clock = manager.clock().clone();
    let caches = manager.caches().clone();
    Runnable::new("wall clock", move |stop| async move {
        // One watcher for all calls: a jump while the blocks of another are sent is reported, too.
        let mut watcher = clock.watch_jumps(JUMP, JUMP_CHECK_INTERVAL);
        loop {
            let jump = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok::<_, std::convert::Infallible>(()),
                jump = watcher.jumped() => jump,
            };
            tracing::warn!(by = ?jump.by, "the wall clock was set; requesting every block");
            coverage.lock().rearm();
            let Ok(lister) = caches.lister::<IPBlock>() else {
                continue;
            };
            if request_all(lister, &again).await.is_err() {
                return Ok(());
            }
        }
    })
}

/// Pulls the sources, on the leader.
pub(super) fn pulling(sources: Arc<Sources>) -> Runnable {
    Runnable::new("sources", move |stop| async move {
        sources.run(stop).await;
        Ok::<_, std::convert::Infallible>(())
    })
}

/// At the end: answers the requests in work at the triggers, sends the queued notifications, and writes the end of the
/// audit log.
pub(super) fn ending(
    triggers: Arc<Triggers>,
    notifications: Notifications,
    audit: audit::Log,
) -> Runnable {
    Runnable::new("triggers", move |stop| async move {
        stop.cancelled().await;
        triggers.stop().await;
        notifications.flush(Duration::from_secs(3)).await;
        audit.flush(Duration::from_secs(3)).await;
        Ok::<_, std::convert::Infallible>(())
    })
    .as_server()
}
