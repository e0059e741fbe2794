//! The way of the data, from the API server to the handlers.
//!
//! ```text
//! API server ──LIST/WATCH──▶ Reflector ──deltas──▶ FIFO ──batch──▶ Indexer ──events──▶ queues of the handlers
//!                            poll_reflectors       drain           apply               call_inline, wait_for_room
//! ```
//!
//! One task walks it, each time that it is polled, in this order:
//! 1. [`poll_reflectors`] polls the reflector of each [`Feed`]. It reads and decodes what has come
//!    ([`reflector`](crate::reflector)), and appends the deltas to the feed's FIFO ([`fifo`](crate::fifo)).
//! 2. [`drain`] takes a batch out of each FIFO in turn until all are empty, or other tasks are to have their turn. Before
//!    them it removes the objects of namespaces that are not watched any more.
//! 3. [`apply_next`] puts a batch into the store ([`Feed::apply`], [`indexer`](crate::indexer)), and the events that come of
//!    it into the queues of all handlers ([`Processor::distribute`](crate::processor::Processor::distribute)).
//! 4. [`call_inline`] calls the handlers that share this task, and [`wait_for_room`] waits for those that ask for it
//!    ([`Policy::Block`](crate::Policy::Block)). The others have tasks of their own.
//!
//! Each step lets other tasks run after some hundred objects ([`Turns`]). A batch changes the store in one step, and so does
//! a list: it becomes a state beside the present one, and takes its place at once. Only the objects of a namespace that is
//! not watched any more go in several steps. If the informer stops meanwhile, the store keeps the others.
//!
//! A full FIFO stops its reflector, and so its watch: a slow store or handler costs no memory. A FIFO wakes no consumer:
//! a poll of the task runs step 1 before step 2, so what was appended is found in the same poll ([`next_turn`]). The
//! reflector of an informer with one watch stops once it has appended what came after a pause, and goes on after step 4 in
//! the same poll ([`Handover`](crate::handover::Handover)). What it queues then wakes the task for another poll.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::feed::{Applied, Feed};
use super::handlers::RunningHandlers;
use super::inner::Inner;
use super::stopping::StopOnDrop;
use crate::metrics::Measurement;
use crate::object::Stored;
use crate::processor::Listener;
use crate::turns::{PIECE, Turns};

/// Runs the pipeline until `stop` is cancelled, and returns when the callbacks of handlers in flight are over.
pub(super) async fn run<S: Stored + ?Sized>(inner: &Arc<Inner<S>>, stop: CancellationToken) {
    let end = StopOnDrop(Arc::clone(inner));
    let mut handlers = RunningHandlers::default();
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = take_steps(inner, &mut handlers) => {}
    }
    drop(end);
    handlers.ended().await;
}

/// All steps, in each poll of the task. Never returns.
async fn take_steps<S: Stored + ?Sized>(inner: &Arc<Inner<S>>, handlers: &mut RunningHandlers) {
    let mut reflectors = pin!(poll_reflectors(inner));
    let mut rest = pin!(drain_and_hand_out(inner, handlers));
    let handover = &inner.source.handover;
    poll_fn(|cx| {
        if !handover.is_due() {
            let _pending = reflectors.as_mut().poll(cx);
        }
        let _pending = rest.as_mut().poll(cx);
        if handover.take() {
            // The handlers have what it queued, unless they are full. What it finds now is for the next poll, after other
            // tasks.
            let _pending = reflectors.as_mut().poll(cx);
            if handover.is_due() || inner.has_queued() {
                cx.waker().wake_by_ref();
            }
        }
        Poll::<()>::Pending
    })
    .await;
}

/// Step 1: runs one reflector for each feed, and as many feeds as there are namespaces.
async fn poll_reflectors<S: Stored + ?Sized>(inner: &Inner<S>) {
    let Some(namespaces) = &inner.namespaces else {
        inner.publish();
        // The one watch of such an informer is never replaced.
        let feed = inner.feeds().first().map(Arc::clone);
        if let Some(feed) = feed {
            feed.run().boxed().await;
        }
        return pending().await;
    };
    let mut namespaces = namespaces.changes();
    let mut reflectors = FuturesUnordered::new();
    // `FuturesUnordered` wakes its own task once it has polled all of its futures. Each change would then wake another
    // thread to poll everything again. This future is never polled again, which prevents that.
    reflectors.push(pending().boxed());
    inner.follow_namespaces().await;
    for feed in inner.feeds().iter() {
        reflectors.push(Arc::clone(feed).run().boxed());
    }
    inner.publish();
    loop {
        tokio::select! {
            biased;
            () = namespaces.changed() => {
                for feed in inner.follow_namespaces().await {
                    reflectors.push(feed.run().boxed());
                }
                inner.publish();
            }
            Some(()) = reflectors.next() => {}
        }
    }
}

/// Steps 2 to 4, again whenever there may be something to do. Starts handlers and resyncs too.
async fn drain_and_hand_out<S: Stored + ?Sized>(
    inner: &Arc<Inner<S>>,
    handlers: &mut RunningHandlers,
) {
    let mut next = 0;
    loop {
        let more = drain(inner, handlers, &mut next).await;
        inner.start_handlers(handlers);
        let next_resync = inner.processor.lock().next_resync();
        let resync = async {
            match next_resync {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = inner.handlers_changed.notified() => {}
            () = resync => inner.resync_due(),
            // Step 1 may have filled a FIFO in the same poll of the task.
            () = next_turn(more, || inner.has_queued()) => {}
            () = handlers.work() => {}
        }
        handlers.prune();
    }
}

/// Step 2: processes what is queued, one batch of each feed in turn, beginning with `next`. True if there may be more:
/// after a [`PIECE`] other tasks and the other steps have their turn.
async fn drain<S: Stored + ?Sized>(
    inner: &Arc<Inner<S>>,
    handlers: &mut RunningHandlers,
    next: &mut usize,
) -> bool {
    let (mut left, mut empty) = (PIECE, 0);
    loop {
        let changes = if let Some(removed) = inner.remove_piece() {
            removed
        } else {
            let feeds = inner.feeds();
            if empty >= feeds.len() {
                return false;
            }
            let feed = &feeds[*next % feeds.len()];
            *next = next.wrapping_add(1);
            let Some(deltas) = apply_next(inner, feed).await else {
                empty += 1;
                continue;
            };
            feed.mark_processed();
            deltas
        };
        empty = 0;
        call_inline(inner).await;
        wait_for_room(inner, handlers).await;
        left = left.saturating_sub(changes);
        if left == 0 {
            return true;
        }
    }
}

/// Step 3: puts one batch into the store, and its events into the handlers' queues. Returns the number of its deltas, if
/// there was one.
async fn apply_next<S: Stored + ?Sized>(inner: &Inner<S>, feed: &Feed<S>) -> Option<usize> {
    // Most feeds have nothing most of the time, and a wait for a lock is counted in the budget of the task's turn.
    if feed.fifo.is_empty() {
        return None;
    }
    // Taken before the batch: from then on, nothing waits before its first change.
    let _applying = match inner.applying.try_lock() {
        Ok(applying) => applying,
        Err(_) => inner.applying.lock().await,
    };
    // The namespace may have been removed during the last wait.
    if feed.is_stopped() {
        return None;
    }
    let mut next = None;
    feed.fifo.process(&mut |batch| next = Some(batch));
    let batch = next?;
    let deltas = batch.deltas.len();
    let mut duration = Duration::ZERO;
    let Applied { changed, stale } = {
        let mut applied = pin!(feed.apply(&inner.indexer, &inner.processor, batch));
        // Without the turns of other tasks in between.
        poll_fn(|cx| {
            let started = Instant::now();
            let poll = applied.as_mut().poll(cx);
            duration += started.elapsed();
            poll
        })
        .await
    };
    if changed {
        inner.record_change();
    }
    for _ in 0..stale {
        feed.health.stale();
        inner.recorder.record(Measurement::StaleEvent);
    }
    inner
        .recorder
        .record(Measurement::Processed { deltas, duration });
    Some(deltas)
}

/// Step 4: calls the handlers that share this task. After the first of them, and before this task lets others run, it
/// publishes how far the store has come: the events are urgent, and the informer may be stopped in a turn of another task.
async fn call_inline<S: Stored + ?Sized>(inner: &Inner<S>) {
    let call = |listener: Arc<Listener<S>>| listener.hand_out(|one| inner.catch_up(one));
    let mut inline = inner.processor.lock().inline().into_iter();
    let mut delivered = inline.next().map_or(0, call);
    inner.publish();
    let mut turns = Turns::new();
    turns.spend(delivered).await;
    for listener in inline {
        delivered = call(listener);
        turns.spend(delivered).await;
    }
}

/// Step 4: waits until no blocking handler is full.
async fn wait_for_room<S: Stored + ?Sized>(inner: &Arc<Inner<S>>, handlers: &mut RunningHandlers) {
    loop {
        let blocking = inner.processor.lock().blocking();
        let Some(listener) = blocking else {
            return;
        };
        // A full handler makes room only if it has been started.
        inner.start_handlers(handlers);
        tokio::select! {
            biased;
            () = listener.room() => {}
            // A handler that is added now receives the content of the store, whatever the pipeline waits for.
            () = inner.handlers_changed.notified() => {}
            () = handlers.work() => {}
        }
    }
}

/// Returns when the task is polled again, for whatever reason; if there is `more` to do, in its next turn.
///
/// A `select!` polls none of its branches once the task's budget is used up, so the first poll of this may be in a later
/// poll of the task. Step 1 was polled again by then, so this returns at once if a FIFO is filled: `has_queued`.
async fn next_turn(more: bool, has_queued: impl Fn() -> bool) {
    if more {
        return tokio::task::yield_now().await;
    }
    let mut polled = false;
    poll_fn(|_| {
        if std::mem::replace(&mut polled, true) || has_queued() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use futures::stream;
    use http::Response;
    use http_body::Frame;
    use http_body_util::combinators::UnsyncBoxBody;
    use http_body_util::{BodyExt, Full, StreamBody};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube_client::Client;
    use kube_client::client::Body;
    use parking_lot::Mutex;
    use tokio::task::coop::{consume_budget, has_budget_remaining};
    use tokio::task::yield_now;

    use super::*;
    use crate::fifo::Delta;
    use crate::sample::map;
    use crate::{Builder, Event, HandlerOptions, ReflectorOptions, SharedInformer};

    /// An informer whose server answers nothing.
    fn builder() -> Builder<ConfigMap> {
        let service = tower::service_fn(|_: http::Request<kube_client::client::Body>| async {
            Ok::<_, std::io::Error>(http::Response::new(kube_client::client::Body::empty()))
        });
        SharedInformer::builder(Client::new(service, "default"))
    }

    #[tokio::test]
    async fn what_is_queued_while_the_budget_of_the_task_is_used_up_waits_for_no_other_wake_up() {
        let informer = builder().build();
        let inner = &informer.inner;
        let mut handlers = RunningHandlers::default();
        let mut steps = pin!(drain_and_hand_out(inner, &mut handlers));
        poll_fn(|cx| {
            while has_budget_remaining() {
                let _ready = pin!(consume_budget()).poll(cx);
            }
            assert!(steps.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        yield_now().await;
        assert!(has_budget_remaining());
        inner.feeds()[0].fifo.push(Delta::Added(map("a@1")));
        assert!(futures::poll!(steps.as_mut()).is_pending());
        assert_eq!(inner.indexer.len(), 1);
    }

    /// The answers of a server with `listed` objects, whose watch brings two. Each is there when it is asked for again.
    fn answer(
        listed: usize,
        request: &http::Request<Body>,
        asked: &Arc<impl Fn() + Send + Sync + 'static>,
    ) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        if !request.uri().to_string().contains("watch=") {
            let items: Vec<_> = (0..listed)
                .map(|n| (*map(&format!("m{n}@1"))).clone())
                .collect();
            let list = serde_json::json!({
                "kind": "ConfigMapList", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": items,
            });
            return Response::new(Full::new(Bytes::from(list.to_string())).boxed_unsync());
        }
        let mut lines = ["a@2", "b@3"].into_iter().map(|object| {
            let event = serde_json::json!({ "type": "ADDED", "object": *map(object) });
            Frame::data(Bytes::from(format!("{event}\n")))
        });
        let asked = Arc::clone(asked);
        let mut asks = 0;
        let frames = stream::poll_fn(move |cx| {
            asked();
            asks += 1;
            if asks % 2 == 1 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            lines.next().map_or(Poll::Pending, |line| {
                Poll::Ready(Some(Ok::<_, Infallible>(line)))
            })
        });
        Response::new(StreamBody::new(frames).boxed_unsync())
    }

    /// An informer of the server of [`answer`].
    fn informer_of(
        listed: usize,
        asked: Arc<impl Fn() + Send + Sync + 'static>,
    ) -> SharedInformer<ConfigMap> {
        let service = tower::service_fn(move |request| {
            std::future::ready(Ok::<_, Infallible>(answer(listed, &request, &asked)))
        });
        SharedInformer::builder(Client::new(service, "default"))
            .reflector(ReflectorOptions::new().streaming(false))
            .build()
    }

    #[tokio::test]
    async fn an_informer_that_is_stopped_while_its_handlers_have_the_first_list_has_synced() {
        let informer = informer_of(2 * PIECE, Arc::new(|| {}));
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        let inline = HandlerOptions::new().inline();
        let _handler = informer.add_handler(move |_: Event<ConfigMap>| stopping.cancel(), inline);
        informer.run(stop).await.unwrap();
        assert!(informer.has_synced());
        informer.wait_synced().await.unwrap();
        assert_eq!(informer.last_sync_resource_version().as_str(), "1");
    }

    #[tokio::test]
    async fn what_comes_alone_is_handled_before_the_connection_is_asked_for_more() {
        let handled = Arc::new(AtomicUsize::new(0));
        let handled_when_asked = Arc::new(Mutex::new(Vec::new()));
        let asked = {
            let (handled, record) = (Arc::clone(&handled), Arc::clone(&handled_when_asked));
            Arc::new(move || record.lock().push(handled.load(Ordering::Relaxed)))
        };
        let informer = informer_of(0, asked);
        let counter = Arc::clone(&handled);
        let count = move |_: Event<ConfigMap>| {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        let inline = HandlerOptions::new().inline();
        let _handler = informer.add_handler(count, inline).unwrap();
        let stop = CancellationToken::new();
        let mut run = pin!(informer.run(stop.clone()));
        for _ in 0..1000 {
            assert!(futures::poll!(run.as_mut()).is_pending());
            if handled.load(Ordering::Relaxed) == 2 {
                break;
            }
            yield_now().await;
        }
        assert_eq!(*handled_when_asked.lock(), [0, 0, 1, 1, 2]);
    }

    #[tokio::test]
    async fn a_feed_with_nothing_queued_waits_for_no_change_of_the_store() {
        for delta_fifo in [false, true] {
            let builder = builder();
            let builder = if delta_fifo {
                builder.delta_fifo()
            } else {
                builder
            };
            let informer = builder.build();
            let (inner, feed) = (&informer.inner, &informer.inner.feeds()[0]);
            let change = inner.applying.try_lock().unwrap();
            assert_eq!(apply_next(inner, feed).now_or_never(), Some(None));
            feed.fifo.push(Delta::Added(map("a@1")));
            assert_eq!(apply_next(inner, feed).now_or_never(), None, "it waits");
            drop(change);
            assert_eq!(apply_next(inner, feed).now_or_never(), Some(Some(1)));
            feed.fifo.bookmark("7".into());
            assert_eq!(apply_next(inner, feed).now_or_never(), Some(Some(1)));
            assert_eq!(inner.indexer.resource_version().as_str(), "7");
        }
    }
}
