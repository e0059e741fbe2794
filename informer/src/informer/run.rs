//! The running informer: reflectors, store and handlers' tasks, all ended by one token.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use futures::StreamExt;
use futures::future::{BoxFuture, Either};
use futures::stream::FuturesUnordered;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::feed::Feed;
use super::namespaces::Part;
use super::{Inner, NamespaceSet, SharedInformer, Stage};
use crate::entry::Stored;
use crate::event::Event;
use crate::fifo::{Batch, Delta};
use crate::indexer::Change;
use crate::metrics::Measurement;
use crate::processor::Listener;

/// The informer cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// It ran before, or does now. An informer runs once (client-go: the same).
    #[error("the informer {name} was started before; an informer runs once")]
    StartedBefore {
        /// The informer's name.
        name: Arc<str>,
    },
}

impl<S: Stored> SharedInformer<S> {
    /// Runs until `stop` is cancelled; then drops what waits for handlers, and returns when their callbacks
    /// in flight are over. Dropping the future stops it too, at once.
    ///
    /// # Errors
    /// [`RunError::StartedBefore`] if it ran before.
    pub fn run(
        &self,
        stop: CancellationToken,
    ) -> impl Future<Output = Result<(), RunError>> + Send + use<'_, S> {
        // Made here and not in the future, which may be dropped before it is polled.
        let end = self.end_unless_run();
        async move {
            let _end = end;
            self.run_until(stop).await
        }
    }

    async fn run_until(&self, stop: CancellationToken) -> Result<(), RunError> {
        let inner = &self.inner;
        let claimed = inner.stage.send_if_modified(|stage| {
            let created = *stage == Stage::Created;
            if created {
                *stage = Stage::Running;
            }
            created
        });
        if !claimed {
            return Err(RunError::StartedBefore {
                name: Arc::clone(&inner.name),
            });
        }
        let end = End(Arc::clone(inner));
        let mut handlers = Handlers::default();
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            // What the one queues, the other finds when it is polled after it.
            () = inner.reflect() => {}
            () = inner.serve(&mut handlers) => {}
        }
        drop(end);
        handlers.ended().await;
        Ok(())
    }

    /// Ends the informer when what is returned is dropped, unless it runs by then or did.
    pub(crate) fn end_unless_run(&self) -> EndUnlessRun<S> {
        EndUnlessRun(Arc::clone(&self.inner))
    }
}

/// Stops the informer when its run ends in any way.
struct End<S: Stored>(Arc<Inner<S>>);

impl<S: Stored> Drop for End<S> {
    fn drop(&mut self) {
        self.0.end(|_| true);
    }
}

/// Ends an informer that was not run, when dropped.
pub(crate) struct EndUnlessRun<S: Stored>(Arc<Inner<S>>);

impl<S: Stored> Drop for EndUnlessRun<S> {
    fn drop(&mut self) {
        self.0.end_unless_run();
    }
}

impl<S: Stored> Drop for Inner<S> {
    fn drop(&mut self) {
        // Of handlers there may be handles left.
        self.end_unless_run();
    }
}

/// The handlers at work.
#[derive(Default)]
struct Handlers {
    /// Each in a task of its own.
    tasks: JoinSet<()>,
    /// Those that share the informer's task.
    inline: FuturesUnordered<BoxFuture<'static, ()>>,
}

// === impl Handlers ===

impl Handlers {
    fn start(&mut self, handler: impl Future<Output = ()> + Send + 'static, inline: bool) {
        if inline {
            self.inline.push(Box::pin(handler));
        } else {
            self.tasks.spawn(handler);
        }
    }

    /// Lets those that share this task work. Never over.
    async fn work(&mut self) {
        while self.inline.next().await.is_some() {}
        pending::<()>().await;
    }

    /// Forgets tasks that have ended.
    fn prune(&mut self) {
        while self.tasks.try_join_next().is_some() {}
    }

    /// Returns when all have ended.
    async fn ended(&mut self) {
        while self.inline.next().await.is_some() {}
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Is over when the task is polled again, for whatever reason.
async fn next_poll() {
    let mut polled = false;
    poll_fn(|_| {
        if std::mem::replace(&mut polled, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

// === impl Inner ===

impl<S: Stored> Inner<S> {
    /// Ends it for ever, if its stage is one to end from: who waits for it is told, and so is who asks.
    fn end(&self, from: impl FnOnce(Stage) -> bool) {
        let listeners = {
            let mut processor = self.processor.lock();
            let ends = self.stage.send_if_modified(|stage| {
                let ends = from(*stage);
                if ends {
                    *stage = Stage::Stopped;
                }
                ends
            });
            if !ends {
                return;
            }
            processor.take()
        };
        // What handlers hold may ask the informer when it is let go.
        for listener in listeners {
            listener.close();
        }
    }

    fn end_unless_run(&self) {
        self.end(|stage| stage == Stage::Created);
    }

    /// Runs one reflector a watch, and has as many watches as there are namespaces.
    async fn reflect(&self) {
        let mut namespaces = self.namespaces.as_ref().map(NamespaceSet::changes);
        let mut reflectors = FuturesUnordered::new();
        // A set whose futures were all polled wakes its own task, in case they are many and greedy: then each change would wake
        // another thread to poll everything again. This one is not polled again.
        reflectors.push(Either::Right(pending()));
        self.follow_namespaces();
        for feed in self.feeds().iter() {
            reflectors.push(Either::Left(Arc::clone(feed).run()));
        }
        self.publish();
        loop {
            let changed = async {
                match &mut namespaces {
                    Some(namespaces) => namespaces.changed().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = changed => {
                    for feed in self.follow_namespaces() {
                        reflectors.push(Either::Left(feed.run()));
                    }
                    self.publish();
                }
                Some(()) = reflectors.next() => {}
            }
        }
    }

    /// Takes changes to the store and to handlers, and keeps handlers' tasks.
    async fn serve(self: &Arc<Self>, handlers: &mut Handlers) {
        loop {
            self.drain(handlers).await;
            self.start_handlers(handlers);
            let next_resync = self.processor.lock().next_resync();
            tokio::select! {
                biased;
                () = self.handlers_changed.notified() => {}
                () = sleep_until(next_resync.unwrap_or_else(Instant::now)), if next_resync.is_some() => {
                    let feeds = self.feeds();
                    let settled = feeds.iter().all(|feed| feed.fifo.is_empty());
                    if self.processor.lock().mark_due(Instant::now(), settled) {
                        for feed in feeds.iter() {
                            feed.fifo.resync();
                        }
                    }
                }
                // The reflectors share this task and were polled before: they may have queued something.
                () = next_poll() => {}
                () = handlers.work() => {}
            }
            handlers.prune();
        }
    }

    fn start_handlers(self: &Arc<Self>, handlers: &mut Handlers) {
        let mut processor = self.processor.lock();
        processor.prune();
        for listener in processor.listeners() {
            if listener.start() {
                let inner = Arc::clone(self);
                let running = Arc::clone(listener).run(move |listener| inner.catch_up(listener));
                handlers.start(running, listener.is_inline());
            }
        }
    }

    /// Makes up for the events that a handler missed.
    fn catch_up(&self, listener: &Listener<S>) {
        // Under the processor's lock the store does not change.
        let _unchanging = self.processor.lock();
        listener.catch_up(|key| self.indexer.get(key));
    }

    /// Processes what is queued, one batch of each watch in turn. That comes to an end: nothing is queued meanwhile,
    /// except while a handler is waited for.
    async fn drain(self: &Arc<Self>, handlers: &mut Handlers) {
        loop {
            let mut more = false;
            for feed in self.feeds().iter() {
                // Its namespace may have been taken away during the last wait.
                if feed.is_stopped() || !feed.fifo.process(&mut |batch| self.apply(feed, batch)) {
                    continue;
                }
                more = true;
                feed.progress();
                self.publish();
                let inline = self.processor.lock().inline();
                for listener in inline {
                    listener.hand_out(|listener| self.catch_up(listener));
                }
                // A handler that wants to be waited for stops everyone; its task must run for that.
                loop {
                    let blocking = self.processor.lock().blocking();
                    let Some(listener) = blocking else {
                        break;
                    };
                    self.start_handlers(handlers);
                    tokio::select! {
                        biased;
                        () = listener.room() => {}
                        // A handler that comes now is told what is there, whoever is waited for.
                        () = self.handlers_changed.notified() => {}
                        () = handlers.work() => {}
                    }
                }
            }
            if !more {
                return;
            }
        }
    }

    /// Puts one batch into the store, and what it changed into the handlers' queues, as one step for whoever
    /// adds a handler meanwhile.
    fn apply(&self, feed: &Feed<S>, batch: Batch<S>) {
        let started = Instant::now();
        let size = batch.deltas.len();
        let processor = self.processor.lock();
        let initial = batch.initial;
        let mut events = Vec::new();
        let mut stale = 0;
        let mut single = Vec::with_capacity(batch.deltas.len());
        for delta in batch.deltas {
            match delta {
                Delta::ReplacedAll(snapshot) => {
                    let version = snapshot.resource_version.clone();
                    events.extend(match &feed.part {
                        Part::Whole => self.indexer.replace(snapshot, initial),
                        part => self.replace_within(part, snapshot, initial),
                    });
                    // Who reads the version may read the store next.
                    feed.set_version(version);
                }
                Delta::SyncAll => processor.resync(&self.indexer),
                Delta::Bookmark(version) => {
                    feed.set_version(version.clone());
                    self.indexer.change(|change| match feed.part.name() {
                        None => change.set_version(version),
                        part => change.advance_part(part, version),
                    });
                }
                delta => single.push(delta),
            }
        }
        if !single.is_empty() {
            self.indexer.change(|change| {
                for delta in single {
                    match change.apply(delta, initial) {
                        Change::Known => {}
                        Change::Stale => stale += 1,
                        Change::One(event) => events.push(event),
                        Change::Recreated(deleted, added) => events.extend([deleted, added]),
                    }
                }
                if let Some(version) = &batch.resource_version {
                    change.advance_part(feed.part.name(), version.clone());
                }
            });
            if let Some(version) = &batch.resource_version {
                feed.advance(version);
            }
        }
        self.note_change(&events);
        processor.distribute(events);
        drop(processor);
        for _ in 0..stale {
            feed.health.stale();
            self.recorder.record(Measurement::StaleEvent);
        }
        self.recorder.record(Measurement::Processed {
            deltas: size,
            duration: started.elapsed(),
        });
    }

    /// Notes when the store changed, if these events say so.
    pub(super) fn note_change(&self, events: &[Event<S>]) {
        if events.iter().any(|event| !event.is_resync()) {
            let now = self.source.clock.now().as_microsecond();
            self.last_change.store(now, Ordering::Relaxed);
        }
    }

    /// Says how far the store has come.
    pub(super) fn publish(&self) {
        if !self.told_synced.load(Ordering::Relaxed) && self.has_synced() {
            self.processor.lock().upstream_synced();
            self.told_synced.store(true, Ordering::Relaxed);
        }
        let version = self.oldest_version();
        self.version.send_if_modified(|held| {
            let news = *held != version;
            if news {
                *held = version;
            }
            news
        });
        self.moved.send_replace(());
    }
}
