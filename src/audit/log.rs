//! The queue of lines, and the task that writes them.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use super::line::Line;
use super::metrics::Metrics;
use super::sink::{Destination, Sink};
use crate::api::IPBlock;
use crate::decide::{Announcement, Effect};

/// Lines that wait; further ones are dropped and counted.
pub(super) const CAPACITY: usize = 4096;

/// Lines written at once.
const BATCH: usize = 256;

/// The pause after a write that failed.
const AGAIN: Duration = Duration::from_secs(1);

/// Takes transitions, and writes a line for each in the background. Cloning is cheap; the writer ends with the last
/// clone.
#[derive(Clone, Debug, Default)]
pub struct Log {
    inner: Option<Arc<Inner>>,
    metrics: Metrics,
}

#[derive(Debug)]
struct Inner {
    queue: Arc<Queue>,
    replica: String,
    _writer: AbortOnDropHandle<()>,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    /// A line was queued, or the file is to be opened again.
    changed: Notify,
    /// The queue is empty, and what was in it is written.
    idle: Notify,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<String>,
    /// Dropped since the writer reported that.
    dropped: u64,
    reopen: bool,
    writing: bool,
}

/// Lines on their way to the sink.
#[derive(Debug)]
struct Batch {
    bytes: Vec<u8>,
    /// How much of it is written.
    written: usize,
    lines: u64,
}

// === impl Log ===

impl Log {
    /// A log that takes nothing.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// Opens `destination`, and starts the writer. Lines name `replica`.
    ///
    /// # Errors
    /// When the file cannot be opened.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn open(destination: &Destination, replica: impl Into<String>) -> io::Result<Self> {
        Ok(Self::to(destination.open()?, replica))
    }

    pub(super) fn to(sink: Box<dyn Sink>, replica: impl Into<String>) -> Self {
        let queue = Arc::<Queue>::default();
        let metrics = Metrics::default();
        let writer = tokio::spawn(write(Arc::clone(&queue), sink, metrics.clone()));
        let inner = Inner {
            queue,
            replica: replica.into(),
            _writer: AbortOnDropHandle::new(writer),
        };
        Self {
            inner: Some(Arc::new(inner)),
            metrics,
        }
    }

    /// What it counts.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Queues a line about a transition of `block` at `at`. Never waits and never fails.
    pub fn record(
        &self,
        block: &IPBlock,
        effect: Effect,
        announcement: &Announcement,
        at: Timestamp,
    ) {
        let Some(inner) = &self.inner else {
            return;
        };
        let line = Line::of(block, effect, announcement, at, &inner.replica);
        // It holds texts and numbers only, so this does not fail.
        let Ok(line) = line.to_json() else {
            return;
        };
        let mut state = inner.queue.state.lock();
        if state.lines.len() >= CAPACITY {
            state.dropped += 1;
            self.metrics.dropped(1);
            return;
        }
        state.lines.push_back(line);
        drop(state);
        inner.queue.changed.notify_one();
    }

    /// Opens the file again before the next line, as after SIGHUP.
    pub fn reopen(&self) {
        if let Some(inner) = &self.inner {
            inner.queue.state.lock().reopen = true;
            inner.queue.changed.notify_one();
        }
    }

    /// Waits until all lines are written, at most for `limit`.
    pub async fn flush(&self, limit: Duration) {
        let Some(inner) = &self.inner else {
            return;
        };
        let written = async {
            loop {
                let idle = inner.queue.idle.notified();
                {
                    let state = inner.queue.state.lock();
                    if state.lines.is_empty() && !state.writing {
                        return;
                    }
                }
                idle.await;
            }
        };
        if tokio::time::timeout(limit, written).await.is_err() {
            let left = inner.queue.state.lock().lines.len();
            tracing::error!(lines = left, "could not write the end of the audit log");
        }
    }
}

// === impl Queue ===

impl Queue {
    /// The next lines, and whether the file is to be opened again; `None` when there is nothing to do.
    fn take(&self) -> Option<(Batch, bool)> {
        let mut state = self.state.lock();
        let reopen = std::mem::take(&mut state.reopen);
        if state.lines.is_empty() && !reopen {
            state.writing = false;
            self.idle.notify_waiters();
            return None;
        }
        state.writing = true;
        let count = state.lines.len().min(BATCH);
        let mut bytes = Vec::new();
        for line in state.lines.drain(..count) {
            bytes.extend_from_slice(line.as_bytes());
        }
        let batch = Batch {
            bytes,
            written: 0,
            lines: count as u64,
        };
        Some((batch, reopen))
    }
}

async fn write(queue: Arc<Queue>, mut sink: Box<dyn Sink>, metrics: Metrics) {
    loop {
        let Some((mut batch, mut reopen)) = queue.take() else {
            queue.changed.notified().await;
            continue;
        };
        let mut failed = false;
        loop {
            // A file system may be slow; other tasks go on meanwhile.
            let attempt = tokio::task::spawn_blocking(move || {
                let result = batch.write_to(&mut *sink, reopen);
                (sink, batch, result)
            });
            let Ok(result) = attempt.await else {
                tracing::error!("the writer of the audit log ended; no further line is written");
                return;
            };
            (sink, batch) = (result.0, result.1);
            match result.2 {
                Ok(()) => break,
                Err(error) => {
                    if !failed {
                        tracing::error!(%error, "could not write to the audit log; trying again every second");
                    }
                    failed = true;
                    reopen |= std::mem::take(&mut queue.state.lock().reopen);
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
        metrics.written(batch.lines);
        let dropped = std::mem::take(&mut queue.state.lock().dropped);
        if failed || dropped > 0 {
            tracing::warn!(dropped, "the audit log is written again");
        }
    }
}

// === impl Batch ===

impl Batch {
    /// Writes what is left of it.
    fn write_to(&mut self, sink: &mut dyn Sink, reopen: bool) -> io::Result<()> {
        if sink.prepare(reopen)? {
            // A line whose begin is in another file is written whole.
            let before = &self.bytes[..self.written];
            let begin = before.iter().rposition(|byte| *byte == b'\n');
            self.written = begin.map_or(0, |end| end + 1);
        }
        while self.written < self.bytes.len() {
            match sink.write(&self.bytes[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        sink.sync()
    }
}
