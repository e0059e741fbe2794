//! One handler with its queue, and the task that feeds it.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::handler::{Asynchronous, HandlerOptions, Receiver};
use super::queue::{EventQueue, Pushed};
use crate::event::Event;
use crate::metrics::{Measurement, Recorder};
use crate::object::Stored;
use crate::use_count::InUse;
use reeve_client::ObjectKey;
use reeve_clock::LONGEST;

/// The shortest resync period (client-go: `minimumResyncPeriod`).
const MINIMUM_RESYNC: Duration = Duration::from_secs(1);

/// How many events the task of a handler that returns at once takes from its queue, and any handler is told of before others
/// have their turn.
const CHUNK: usize = 128;

/// How many events a handler in the informer's task is told of at once, after each batch.
const AT_ONCE: usize = 1024;

pub(crate) struct Listener<S> {
    pub(crate) name: Arc<str>,
    /// Let go when the listener has ended, with everything it holds.
    receiver: Mutex<Option<Receiver<S>>>,
    /// Until then the informer is in use.
    in_use: Mutex<Option<Arc<InUse>>>,
    /// How many events are taken from the queue at once.
    chunk: usize,
    inline: bool,
    resync: Option<Duration>,
    recorder: Recorder,
    waiting: Mutex<Waiting<S>>,
    /// There is something to hand out, or the listener ended.
    wake: Notify,
    /// The queue became shorter.
    room: Notify,
    removed: AtomicBool,
    /// Ends when what is queued has been delivered.
    draining: AtomicBool,
    panics: AtomicU64,
    dropped: AtomicU64,
    delivered: AtomicU64,
    synced: watch::Sender<bool>,
    phase: watch::Sender<Phase>,
}

/// What became of a listener's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The informer does not run yet.
    Idle,
    Running,
    Ended,
}

struct Waiting<S> {
    /// Objects that were there when the handler came; shown before the queue.
    replay: std::vec::IntoIter<Arc<S>>,
    queue: EventQueue<S>,
    /// Initial additions that the handler has not been shown.
    initial: usize,
    upstream_synced: bool,
    /// When the next resync is due.
    next_resync: Option<Instant>,
    /// A resync is due.
    due: bool,
}

/// What a handler's task does next.
enum Next<S> {
    Deliver(Vec<Event<S>>),
    CatchUp,
    Wait,
}

// === impl Listener ===

impl<S: Stored> Listener<S> {
    pub(crate) fn new(
        id: u64,
        receiver: Receiver<S>,
        options: HandlerOptions,
        recorder: Recorder,
        default_resync: Option<Duration>,
        in_use: Option<Arc<InUse>>,
    ) -> Self {
        let period = options
            .resync
            .or(default_resync)
            .filter(|period| !period.is_zero());
        Self {
            name: options
                .name
                .unwrap_or_else(|| Arc::from(format!("handler-{id}"))),
            chunk: match receiver {
                Receiver::Callback(_) => CHUNK,
                // What it has not begun with stays in the queue, where it is counted and merged.
                Receiver::Task(_) => 1,
            },
            inline: options.inline && matches!(receiver, Receiver::Callback(_)),
            receiver: Mutex::new(Some(receiver)),
            in_use: Mutex::new(in_use),
            resync: period.map(|period| period.clamp(MINIMUM_RESYNC, LONGEST)),
            recorder,
            waiting: Mutex::new(Waiting {
                replay: Vec::new().into_iter(),
                queue: EventQueue::new(options.policy),
                initial: 0,
                upstream_synced: false,
                next_resync: None,
                due: false,
            }),
            wake: Notify::new(),
            room: Notify::new(),
            removed: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            panics: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            synced: watch::Sender::new(false),
            phase: watch::Sender::new(Phase::Idle),
        }
    }

    /// Shows `objects` before anything that comes later.
    pub(super) fn replay(&self, objects: Vec<Arc<S>>) {
        let mut waiting = self.waiting.lock();
        waiting.initial = objects.len();
        waiting.replay = objects.into_iter();
        drop(waiting);
        self.wake.notify_one();
    }

    pub(super) fn extend(&self, events: impl Iterator<Item = Event<S>>) {
        if !self.takes_more() {
            return;
        }
        let mut waiting = self.waiting.lock();
        let mut dropped = 0;
        for event in events {
            if event.is_resync() && !waiting.due {
                continue;
            }
            waiting.initial += usize::from(event.is_initial());
            let pushed = waiting.queue.push(event);
            waiting.account(pushed);
            dropped += pushed.dropped;
        }
        self.publish(&waiting);
        drop(waiting);
        if dropped > 0 {
            self.dropped.fetch_add(dropped as u64, Ordering::Relaxed);
            self.recorder
                .record(Measurement::HandlerDropped { events: dropped });
        }
        // To wake the task that runs would have it run again, on another thread if there is one.
        if !self.inline {
            self.wake.notify_one();
        }
    }

    pub(super) fn upstream_synced(&self) {
        let mut waiting = self.waiting.lock();
        waiting.upstream_synced = true;
        self.publish(&waiting);
    }

    pub(super) fn is_blocking(&self) -> bool {
        self.takes_more() && self.waiting.lock().queue.is_blocking()
    }

    /// Returns when a blocking queue has room again.
    pub(crate) async fn room(&self) {
        while self.is_blocking() {
            self.room.notified().await;
        }
    }

    pub(super) fn next_resync(&self) -> Option<Instant> {
        let period = self.resync.filter(|_| self.takes_more())?;
        let mut waiting = self.waiting.lock();
        Some(
            *waiting
                .next_resync
                .get_or_insert_with(|| Instant::now() + period),
        )
    }

    /// Marks a resync that is due at `now`; true if it is. `settled` says that all former ones were shown.
    pub(super) fn mark_due(&self, now: Instant, settled: bool) -> bool {
        let Some(period) = self.resync else {
            return false;
        };
        let mut waiting = self.waiting.lock();
        let due = waiting.next_resync.is_some_and(|at| at <= now);
        if due {
            waiting.next_resync = Some(now + period);
        }
        waiting.due = due || (waiting.due && !settled);
        due
    }

    pub(super) fn is_due(&self) -> bool {
        self.waiting.lock().due
    }

    /// Everything was shown.
    pub(super) fn resynced(&self) {
        self.waiting.lock().due = false;
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    fn takes_more(&self) -> bool {
        !self.is_removed() && !self.draining.load(Ordering::Acquire)
    }

    /// Takes nothing more, and ends when what is queued has been delivered. One that does not run yet ends at
    /// once.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        if *self.phase.borrow() == Phase::Idle {
            self.close();
        }
        self.wake.notify_one();
        self.room.notify_one();
    }

    /// Ends the listener: what is queued is dropped, a callback in flight finishes.
    pub(crate) fn close(&self) {
        self.removed.store(true, Ordering::Release);
        let mut waiting = self.waiting.lock();
        waiting.queue.clear();
        waiting.replay = Vec::new().into_iter();
        drop(waiting);
        let never_ran = self.phase.send_if_modified(|phase| {
            let idle = *phase == Phase::Idle;
            if idle {
                *phase = Phase::Ended;
            }
            idle
        });
        if never_ran {
            self.let_go();
        }
        self.wake.notify_one();
        self.room.notify_one();
    }

    fn let_go(&self) {
        let held = (self.receiver.lock().take(), self.in_use.lock().take());
        drop(held);
    }

    pub(crate) fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    pub(crate) fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    pub(crate) fn backlog(&self) -> usize {
        let waiting = self.waiting.lock();
        waiting.replay.len() + waiting.queue.len()
    }

    /// Whether it shares the informer's task.
    pub(crate) fn is_inline(&self) -> bool {
        self.inline
    }

    /// Whether it runs, in the informer's task.
    pub(super) fn runs_inline(&self) -> bool {
        self.inline && *self.phase.borrow() == Phase::Running
    }

    /// Claims the right to run; false if it runs already or has ended.
    pub(crate) fn start(&self) -> bool {
        self.phase.send_if_modified(|phase| {
            let idle = *phase == Phase::Idle;
            if idle {
                *phase = Phase::Running;
            }
            idle
        })
    }

    /// Feeds the handler until the listener is closed. `catch_up` makes up for dropped events: it calls
    /// [`Listener::catch_up`] while the store cannot change.
    pub(crate) fn run(
        self: Arc<Self>,
        catch_up: impl Fn(&Self) + Send,
    ) -> impl Future<Output = ()> + Send {
        // Made here and not in the future: whoever waits for the end is told also when the task is aborted
        // before it was polled once.
        let end = End(self);
        async move {
            let listener = &end.0;
            let mut without_pause = 0;
            while !listener.is_removed() {
                match listener.next() {
                    Next::Deliver(events) => {
                        listener.room.notify_one();
                        without_pause += events.len();
                        listener.deliver(events).await;
                        if without_pause >= CHUNK {
                            // A handler with much to do is not to keep the thread from others.
                            without_pause = 0;
                            tokio::task::yield_now().await;
                        }
                    }
                    Next::CatchUp => catch_up(listener),
                    Next::Wait if listener.draining.load(Ordering::Acquire) => listener.close(),
                    Next::Wait => {
                        without_pause = 0;
                        listener.wake.notified().await;
                    }
                }
            }
        }
    }

    /// Tells a handler that runs in the informer's task what waits for it, about as much as there is in a batch; the
    /// rest follows when others had their turn. `catch_up` as in [`Listener::run`].
    pub(crate) fn hand_out(&self, catch_up: impl Fn(&Self)) {
        let mut told = 0;
        while told < AT_ONCE {
            match self.next() {
                Next::Deliver(events) => {
                    told += events.len();
                    // A callback does not wait for anything.
                    let _told = self.deliver(events).now_or_never();
                }
                Next::CatchUp => catch_up(self),
                Next::Wait => return,
            }
        }
        self.wake();
    }

    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Queues what makes up for dropped events. The store must not change meanwhile.
    pub(crate) fn catch_up(&self, now: impl Fn(&ObjectKey) -> Option<Arc<S>>) {
        let mut waiting = self.waiting.lock();
        let pushed = waiting.queue.catch_up(now);
        waiting.account(pushed);
        self.publish(&waiting);
    }

    fn next(&self) -> Next<S> {
        let mut waiting = self.waiting.lock();
        let mut events: Vec<_> = waiting
            .replay
            .by_ref()
            .take(self.chunk)
            .map(|object| Event::Added {
                object,
                initial: true,
            })
            .collect();
        if events.is_empty() {
            while events.len() < self.chunk
                && let Some(event) = waiting.queue.pop()
            {
                events.push(event);
            }
        }
        if !events.is_empty() {
            Next::Deliver(events)
        } else if waiting.queue.has_missed() {
            Next::CatchUp
        } else {
            Next::Wait
        }
    }

    async fn deliver(&self, events: Vec<Event<S>>) {
        let Some(receiver) = self.receiver.lock().clone() else {
            return;
        };
        let mut initial = 0;
        for event in events {
            if self.is_removed() {
                return;
            }
            initial += usize::from(event.is_initial());
            let about = event.object().cloned();
            let told = match &receiver {
                Receiver::Callback(handler) => {
                    catch_unwind(AssertUnwindSafe(|| handler.handle(event))).map_err(drop)
                }
                Receiver::Task(handler) => self.wait_for(&**handler, event).await,
            };
            if told.is_err() {
                self.panics.fetch_add(1, Ordering::Relaxed);
                self.recorder.record(Measurement::HandlerPanicked);
                tracing::error!(
                    handler = %self.name,
                    object = about.map(|object| tracing::field::display(object.key())),
                    "the handler panicked; the event is lost to it"
                );
            }
            self.delivered.fetch_add(1, Ordering::Relaxed);
        }
        if initial > 0 {
            // A panic counts as shown: the handler's sync must not hang on it (kubernetes#129024).
            let mut waiting = self.waiting.lock();
            waiting.initial = waiting.initial.saturating_sub(initial);
            self.publish(&waiting);
        }
    }

    /// Tells a handler that takes its time, unless the listener ends meanwhile.
    async fn wait_for(&self, handler: &dyn Asynchronous<S>, event: Event<S>) -> Result<(), ()> {
        let start = catch_unwind(AssertUnwindSafe(|| handler.handle_boxed(event)));
        let mut future = start.map_err(drop)?;
        let mut told = pin!(poll_fn(|cx| {
            match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
                Ok(poll) => poll.map(Ok),
                Err(_) => Poll::Ready(Err(())),
            }
        }));
        while !self.is_removed() {
            tokio::select! {
                biased;
                told = &mut told => return told,
                // What else it says is looked at before the next wait.
                () = self.wake.notified() => {}
            }
        }
        Ok(())
    }

    fn publish(&self, waiting: &Waiting<S>) {
        if waiting.upstream_synced && waiting.initial == 0 {
            self.synced
                .send_if_modified(|synced| !std::mem::replace(synced, true));
        }
    }
}

impl<S> Waiting<S> {
    fn account(&mut self, pushed: Pushed) {
        self.initial = self.initial.saturating_sub(pushed.initial_gone);
    }
}

/// Says that a listener's task is over, when dropped.
struct End<S: Stored>(Arc<Listener<S>>);

impl<S: Stored> Drop for End<S> {
    fn drop(&mut self) {
        self.0.let_go();
        self.0.phase.send_replace(Phase::Ended);
    }
}
