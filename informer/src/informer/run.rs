//! The running informer: reflector, store and handlers' tasks, all ended by one token.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Inner, SharedInformer, Stage};
use crate::entry::Stored;
use crate::fifo::{Batch, Delta};
use crate::indexer::Change;
use crate::metrics::Measurement;

/// The informer cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
    pub async fn run(&self, stop: CancellationToken) -> Result<(), RunError> {
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
        let mut tasks = JoinSet::new();
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = inner.serve(&mut tasks) => {}
            () = inner.reflector.run(stop.clone()) => {}
        }
        drop(end);
        while tasks.join_next().await.is_some() {}
        Ok(())
    }
}

/// Stops the informer when its run ends in any way.
struct End<S: Stored>(Arc<Inner<S>>);

impl<S: Stored> Drop for End<S> {
    fn drop(&mut self) {
        let mut processor = self.0.processor.lock();
        self.0.stage.send_replace(Stage::Stopped);
        processor.close();
    }
}

// === impl Inner ===

impl<S: Stored> Inner<S> {
    /// Takes changes to the store and to handlers, and keeps handlers' tasks.
    async fn serve(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        loop {
            self.start_handlers(tasks);
            let next_resync = self.processor.lock().next_resync();
            tokio::select! {
                biased;
                () = self.handlers_changed.notified() => {}
                () = sleep_until(next_resync.unwrap_or_else(Instant::now)), if next_resync.is_some() => {
                    if self.processor.lock().mark_due(Instant::now()) {
                        self.fifo.resync();
                    }
                }
                () = self.fifo.readable().notified() => {}
            }
            while tasks.try_join_next().is_some() {}
            self.drain(tasks).await;
        }
    }

    fn start_handlers(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let mut processor = self.processor.lock();
        processor.prune();
        for listener in processor.listeners() {
            if listener.start() {
                let inner = Arc::clone(self);
                // Under the processor's lock the store does not change.
                tasks.spawn(Arc::clone(listener).run(move |listener| {
                    let _unchanging = inner.processor.lock();
                    listener.catch_up(|key| inner.indexer.get(key));
                }));
            }
        }
    }

    /// Processes what is queued.
    async fn drain(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        loop {
            let more = self.fifo.process(&mut |batch| self.apply(batch));
            self.publish();
            if !more {
                return;
            }
            // A handler that wants to be waited for stops everyone; its task must run for that.
            loop {
                let blocking = self.processor.lock().blocking();
                let Some(listener) = blocking else {
                    break;
                };
                self.start_handlers(tasks);
                listener.room().await;
            }
            // The reflector shares this task.
            tokio::task::yield_now().await;
        }
    }

    /// Puts one batch into the store, and what it changed into the handlers' queues, as one step for whoever
    /// adds a handler meanwhile.
    fn apply(&self, batch: Batch<S>) {
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
                    events.extend(self.indexer.replace(snapshot, initial));
                }
                Delta::SyncAll => processor.resync(&self.indexer.list()),
                Delta::Bookmark(version) => {
                    self.indexer.change(|change| change.set_version(version));
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
                if let Some(version) = batch.resource_version {
                    change.advance(version);
                }
            });
        }
        processor.distribute(events);
        drop(processor);
        for _ in 0..stale {
            self.health.stale();
            self.recorder.record(Measurement::StaleEvent);
        }
        self.recorder.record(Measurement::Processed {
            deltas: size,
            duration: started.elapsed(),
        });
    }

    /// Says how far the store has come.
    fn publish(&self) {
        if !*self.synced.borrow() && self.fifo.has_synced() {
            self.processor.lock().upstream_synced();
            self.synced.send_replace(true);
        }
        let version = self.indexer.resource_version();
        self.version.send_if_modified(|held| {
            let news = *held != version;
            if news {
                *held = version;
            }
            news
        });
    }
}
