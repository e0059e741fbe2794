//! One handler with its queue, and the task that calls it.

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
use super::replay::Replay;
use crate::event::Event;
use crate::indexer::StoreSnapshot;
use crate::metrics::{Measurement, Recorder};
use crate::object::Stored;
use crate::turns::{self, PIECE};
use crate::use_count::InUse;
use reeve_client::ObjectKey;
use reeve_clock::LONGEST;

/// The shortest resync period (client-go: `minimumResyncPeriod`).
const MINIMUM_RESYNC: Duration = Duration::from_secs(1);

/// The number of events after which the task of a handler yields. The task of a synchronous handler also takes so many
/// from its queue at once.
const CHUNK: usize = 128;

pub(crate) struct Listener<S: ?Sized> {
    pub(crate) name: Arc<str>,
    /// Dropped when the listener has ended, with everything that it holds.
    receiver: Mutex<Option<Receiver<S>>>,
    /// Until then the informer counts as used.
    in_use: Mutex<Option<Arc<InUse>>>,
    /// The number of events that are taken from the queue at once.
    chunk: usize,
    inline: bool,
    resync: Option<Duration>,
    recorder: Recorder,
    waiting: Mutex<Waiting<S>>,
    /// Notified when there is something to hand out, and when the listener ended.
    wake: Notify,
    /// Notified when the queue became shorter.
    room: Notify,
    removed: AtomicBool,
    /// The listener ends when its queue is empty.
    draining: AtomicBool,
    panics: AtomicU64,
    dropped: AtomicU64,
    delivered: AtomicU64,
    synced: watch::Sender<bool>,
    phase: watch::Sender<Phase>,
}

/// The phase of a listener's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The informer does not run yet.
    Idle,
    Running,
    Ended,
}

struct Waiting<S: ?Sized> {
    /// Delivered before the queue.
    replay: Replay<S>,
    queue: EventQueue<S>,
    /// The number of initial additions that were not delivered yet.
    initial: usize,
    upstream_synced: bool,
    /// The time of the next resync.
    next_resync: Option<Instant>,
    /// A resync is due.
    due: bool,
    /// The store has made a change whose events are not all queued.
    incomplete: bool,
}

/// The next step of a handler's task.
enum Next<S: ?Sized> {
    Deliver(Vec<Event<S>>),
    /// Nothing yet: a piece of the first objects was copied.
    Copied,
    CatchUp,
    /// The queue is empty. Dropped events are to be made up for once all events of a change are queued.
    Hold,
    Wait,
}

// === impl Listener ===

impl<S: Stored + ?Sized> Listener<S> {
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
                // Further events stay in the queue, where they are counted and merged.
                Receiver::Task(_) => 1,
            },
            inline: options.inline && matches!(receiver, Receiver::Callback(_)),
            receiver: Mutex::new(Some(receiver)),
            in_use: Mutex::new(in_use),
            resync: period.map(|period| period.clamp(MINIMUM_RESYNC, LONGEST)),
            recorder,
            waiting: Mutex::new(Waiting {
                replay: Replay::none(),
                queue: EventQueue::new(options.policy),
                initial: 0,
                upstream_synced: false,
                next_resync: None,
                due: false,
                incomplete: false,
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

    /// Delivers the objects of `store` before any later event.
    pub(super) fn replay(&self, store: StoreSnapshot<S>) {
        let replay = Replay::of(store);
        let mut waiting = self.waiting.lock();
        waiting.initial = replay.len();
        waiting.replay = replay;
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
        // An inline listener is called by the task that is running: waking it would run it again, maybe on another thread.
        if !self.inline {
            self.wake.notify_one();
        }
    }

    /// Begins a change of the store whose events are queued in several calls of [`Listener::extend`]. Until
    /// [`Listener::end_change`] the store is ahead of the queue, so dropped events are not made up for by comparing
    /// with it.
    pub(super) fn begin_change(&self) {
        self.waiting.lock().incomplete = true;
    }

    pub(super) fn end_change(&self) {
        self.waiting.lock().incomplete = false;
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

    /// Marks a resync that is due at `now`; true if it is. `settled`: all former ones were delivered.
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

    /// Ends a resync: all of its events are queued.
    pub(super) fn resynced(&self) {
        self.waiting.lock().due = false;
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    fn takes_more(&self) -> bool {
        !self.is_removed() && !self.draining.load(Ordering::Acquire)
    }

    /// Takes no more events, and ends when the queue is empty. A listener that does not run yet ends at once.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        if *self.phase.borrow() == Phase::Idle {
            self.close();
        }
        self.wake.notify_one();
        self.room.notify_one();
    }

    /// Ends the listener: its queue is dropped, and a callback in flight finishes.
    pub(crate) fn close(&self) {
        self.removed.store(true, Ordering::Release);
        let mut waiting = self.waiting.lock();
        let events = waiting.queue.clear();
        let replay = std::mem::replace(&mut waiting.replay, Replay::none());
        drop(waiting);
        turns::free(events);
        turns::free(replay.into_objects());
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

    /// True if it shares the informer's task.
    pub(crate) fn is_inline(&self) -> bool {
        self.inline
    }

    /// True if it runs in the informer's task.
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

    /// Calls the handler until the listener is closed. `catch_up` compensates for dropped events: it calls
    /// [`Listener::catch_up`] while the store cannot change.
    pub(crate) fn run(
        self: Arc<Self>,
        catch_up: impl Fn(&Self) + Send,
    ) -> impl Future<Output = ()> + Send {
        // Made outside of the future, so that waits for the end return also if the task is aborted before its first poll.
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
                            // A busy handler must not keep the thread from other tasks.
                            without_pause = 0;
                            tokio::task::yield_now().await;
                        }
                    }
                    Next::Copied => tokio::task::yield_now().await,
                    Next::CatchUp => catch_up(listener),
                    Next::Hold => listener.wake.notified().await,
                    Next::Wait if listener.draining.load(Ordering::Acquire) => listener.close(),
                    Next::Wait => {
                        without_pause = 0;
                        listener.wake.notified().await;
                    }
                }
            }
        }
    }

    /// Delivers waiting events to a handler that runs in the informer's task, about as many as there are in a batch. The
    /// rest follows after the other handlers. Returns their number. `catch_up` as in [`Listener::run`].
    pub(crate) fn hand_out(&self, catch_up: impl Fn(&Self)) -> usize {
        let mut delivered = 0;
        while delivered < PIECE {
            match self.next() {
                Next::Deliver(events) => {
                    delivered += events.len();
                    // Always ready: a callback does not wait.
                    let _ready = self.deliver(events).now_or_never();
                }
                Next::Copied => delivered += PIECE,
                Next::CatchUp => catch_up(self),
                Next::Hold | Next::Wait => return delivered,
            }
        }
        self.wake.notify_one();
        delivered
    }

    /// Queues events that compensate for dropped ones. The store must not change meanwhile.
    pub(crate) fn catch_up(&self, now: impl Fn(&ObjectKey) -> Option<Arc<S>>) {
        let mut waiting = self.waiting.lock();
        if waiting.incomplete {
            return;
        }
        let pushed = waiting.queue.catch_up(now);
        waiting.account(pushed);
        self.publish(&waiting);
    }

    fn next(&self) -> Next<S> {
        let mut waiting = self.waiting.lock();
        if waiting.replay.copy() {
            return Next::Copied;
        }
        let mut events: Vec<_> = waiting
            .replay
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
        } else if waiting.queue.has_missed() && waiting.incomplete {
            Next::Hold
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
            // A second reference only if its key would be logged.
            let about = tracing::enabled!(tracing::Level::ERROR).then(|| event.object().cloned());
            let handled = match &receiver {
                Receiver::Callback(handler) => {
                    catch_unwind(AssertUnwindSafe(|| handler.handle(event))).map_err(drop)
                }
                Receiver::Task(handler) => self.wait_for(&**handler, event).await,
            };
            if handled.is_err() {
                self.panics.fetch_add(1, Ordering::Relaxed);
                self.recorder.record(Measurement::HandlerPanicked);
                tracing::error!(
                    handler = %self.name,
                    object = about.flatten().map(|object| tracing::field::display(object.key())),
                    "handler panicked; it does not get the event again"
                );
            }
            self.delivered.fetch_add(1, Ordering::Relaxed);
        }
        if initial > 0 {
            // A panic counts as a delivery: it must not keep the handler from its sync (kubernetes#129024).
            let mut waiting = self.waiting.lock();
            waiting.initial = waiting.initial.saturating_sub(initial);
            self.publish(&waiting);
        }
    }

    /// Waits for an asynchronous handler, or for the end of the listener.
    async fn wait_for(&self, handler: &dyn Asynchronous<S>, event: Event<S>) -> Result<(), ()> {
        let start = catch_unwind(AssertUnwindSafe(|| handler.handle_boxed(event)));
        let mut future = start.map_err(drop)?;
        let mut handled = pin!(poll_fn(|cx| {
            match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
                Ok(poll) => poll.map(Ok),
                Err(_) => Poll::Ready(Err(())),
            }
        }));
        while !self.is_removed() {
            tokio::select! {
                biased;
                handled = &mut handled => return handled,
                // Other causes of the wake-up are checked before the next wait.
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

impl<S: ?Sized> Waiting<S> {
    fn account(&mut self, pushed: Pushed) {
        self.initial = self.initial.saturating_sub(pushed.initial_gone);
    }
}

/// Marks the end of a listener's task when dropped.
struct End<S: Stored + ?Sized>(Arc<Listener<S>>);

impl<S: Stored + ?Sized> Drop for End<S> {
    fn drop(&mut self) {
        self.0.let_go();
        self.0.phase.send_replace(Phase::Ended);
    }
}
