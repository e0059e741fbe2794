//! `wq`, `wqdedup`, `wqdelay`, `wqmem`: kube-runtime's scheduler.
//!
//! A scheduler is a stream that one task polls. That task also handles the items, which is the
//! minimum of a program (`Controller` adds a task for each reconcile). Producers use an
//! unbounded channel.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant as Wall};

use futures::{FutureExt, Stream, StreamExt, stream};
use kube_runtime::scheduler;
use kube_runtime::scheduler::ScheduleRequest;
use peer_measure::crowd::{Counters, Plan};
use peer_measure::keys::Key;
use peer_measure::late::{Due, Seen};
use peer_measure::usage::Stopwatch;
use peer_measure::{Flags, Outcome, Report, Stop, heap, keys};
use tokio::runtime::{self, Runtime};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::Instant;

/// The requests of the producers, and how many of them the scheduler has received.
struct Requests<K> {
    channel: UnboundedReceiver<ScheduleRequest<K>>,
    taken: Arc<AtomicU64>,
}

impl<K> Stream for Requests<K> {
    type Item = ScheduleRequest<K>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let request = self.channel.poll_recv(cx);
        if let Poll::Ready(Some(_)) = request {
            let taken = self.taken.load(Ordering::Relaxed);
            self.taken.store(taken + 1, Ordering::Relaxed);
        }
        request
    }
}

pub(crate) fn wq<K: Key + Unpin>(flags: &Flags) -> Outcome {
    let plan = Plan::of(flags)?;
    let (adds, channel) = mpsc::unbounded_channel();
    let taken = Arc::new(AtomicU64::new(0));
    // How many requests had been received when the scheduler last had nothing to hand out.
    let idle_after = Arc::new(AtomicU64::new(0));
    let done = Arc::new(Counters::new(1));
    let runtime = runtime(plan.threads);
    runtime.spawn({
        let (taken, idle_after, done) = (taken.clone(), idle_after.clone(), done.clone());
        let requests = Requests {
            channel,
            taken: taken.clone(),
        };
        async move {
            let mut keys = Box::pin(scheduler(requests));
            let mut next = stream::poll_fn(move |cx| {
                let key = keys.poll_next_unpin(cx);
                if key.is_pending() {
                    idle_after.store(taken.load(Ordering::Relaxed), Ordering::Release);
                }
                key
            });
            while let Some(key) = next.next().await {
                drop(key);
                done.of(0).count();
            }
        }
    });
    let expected = plan.count as u64;
    plan.run(
        &done,
        move |key: K| {
            let request = ScheduleRequest {
                message: key,
                run_at: Instant::now(),
            };
            adds.send(request).expect("a scheduler that runs");
        },
        |times| {
            if plan.hot {
                idle_after.load(Ordering::Acquire) == expected * times
            } else {
                done.sum() == expected * times
            }
        },
    )
}

pub(crate) fn wqdelay(flags: &Flags) -> Outcome {
    let due = Arc::new(Due::of(flags)?);
    let (adds, channel) = mpsc::unbounded_channel();
    let runtime = runtime(flags.get("threads", 1)?);
    let worker = runtime.spawn({
        let mut seen = Seen::new(&due);
        let taken = Arc::default();
        async move {
            let mut keys = Box::pin(scheduler(Requests { channel, taken }));
            while let Some(key) = keys.next().await {
                let key: Arc<str> = key;
                if seen.note(&key, Wall::now()) {
                    break;
                }
            }
            seen
        }
    });
    due.run(
        |message, delay| {
            let run_at = Instant::now() + delay;
            let request = ScheduleRequest { message, run_at };
            adds.send(request).expect("a scheduler that runs");
        },
        || vec![runtime.block_on(worker).expect("a worker that ends")],
    )
}

pub(crate) fn wqmem(flags: &Flags) -> Outcome {
    heap::count();
    let count: usize = flags.get("n", 1_000_000)?;
    let keys: Vec<Arc<str>> = keys::range(0, count);
    let delay = match flags.text("mode", "ready").as_str() {
        "ready" => Duration::ZERO,
        "delayed" => Duration::from_secs(3600),
        other => return Err(Stop::wrong(format!("-mode={other}: ready or delayed"))),
    };
    let runtime = runtime(1);
    runtime.block_on(async {
        let before = heap::live();
        let stopwatch = Stopwatch::start();
        let requests = keys.iter().map(|key| ScheduleRequest {
            message: Arc::clone(key),
            run_at: Instant::now() + delay,
        });
        // Never ends, because a scheduler ends with its requests.
        let requests = stream::iter(requests).chain(stream::pending());
        let mut waiting = Box::pin(scheduler(requests));
        // One poll receives all requests, and may hand out a key that is due.
        let handed_out = waiting.next().now_or_never().is_some();
        let kept = count - usize::from(handed_out);
        let bytes = (heap::live() - before) as f64 / kept as f64;
        let span = stopwatch.stop();
        if handed_out && !delay.is_zero() {
            return Err(Stop::wrong("a key was handed out before its time"));
        }
        Ok(Report::new(count, span).heap(bytes))
    })
}

/// The runtime of a usual program, with `threads` workers.
pub(crate) fn runtime(threads: usize) -> Runtime {
    runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .expect("a runtime")
}
