//! Lines that another thread decodes: [`Chunk`].

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::threads::Permit;
use crate::decode::{DecodeError, Frame};
use reeve_client::transport::Encoding;

/// Decodes one event. It is called by several threads.
pub(super) type Decode<S> = dyn Fn(Encoding, &[u8]) -> Result<Frame<S>, DecodeError> + Send + Sync;

/// Frames up to the end of the lines or the first error.
pub(super) type Decoded<S> = Vec<Result<Frame<S>, DecodeError>>;

/// Lines that a thread for blocking work decodes. Dropping this drops what it has not begun.
///
/// These threads and not the runtime's workers, for two reasons. A task that a worker spawns stays with that worker until
/// its present task pauses, so one chunk at a time would be decoded by turns and not at once. And the more threads
/// allocate, the rarer is it that a state is freed into the arena that another thread uses at that moment, for which
/// glibc has a lock; with two threads that cost more than the work itself.
pub(super) struct Chunk<S: ?Sized> {
    since: Instant,
    /// `None` once they are being decoded.
    lines: Arc<Mutex<Option<VecDeque<Bytes>>>>,
    /// `None` if the lines were taken away.
    decoded: AbortOnDropHandle<Option<Decoded<S>>>,
}

// === impl Chunk ===

impl<S: ?Sized + Send + Sync + 'static> Chunk<S> {
    /// Has `lines` decoded.
    pub(super) fn begin(
        lines: VecDeque<Bytes>,
        encoding: Encoding,
        decode: Arc<Decode<S>>,
        permit: Permit,
    ) -> Self {
        let lines = Arc::new(Mutex::new(Some(lines)));
        let work = Arc::clone(&lines);
        let decoded = spawn_blocking(move || {
            let _permit = permit;
            let lines = work.lock().take()?;
            Some(decode_all(lines, encoding, &*decode))
        });
        Self {
            since: Instant::now(),
            lines,
            decoded: AbortOnDropHandle::new(decoded),
        }
    }

    /// The time at which it was handed over.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// The frames; `None` if the lines were taken away. Cancel-safe until it is ready.
    pub(super) async fn decoded(&mut self) -> Option<Decoded<S>> {
        joined((&mut self.decoded).await).await
    }

    /// Takes the lines away, unless a thread has begun to decode them.
    pub(super) fn take_away(&self) -> Option<VecDeque<Bytes>> {
        self.lines.lock().take()
    }
}

fn decode_all<S: ?Sized>(
    lines: VecDeque<Bytes>,
    encoding: Encoding,
    decode: &Decode<S>,
) -> Decoded<S> {
    let mut decoded = Vec::with_capacity(lines.len());
    for line in lines {
        let frame = decode(encoding, &line);
        let failed = frame.is_err();
        decoded.push(frame);
        if failed {
            break;
        }
    }
    decoded
}

/// The result of a task. Its panic goes on in this one.
pub(super) async fn joined<T>(result: Result<T, JoinError>) -> T {
    match result {
        Ok(result) => result,
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        // The runtime ends, and this task with it.
        Err(_) => pending().await,
    }
}
