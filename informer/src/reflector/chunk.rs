//! Work that a thread for blocking work does: [`Handed`], and lines that it decodes: [`Chunk`].

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::task::JoinError;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::threads::Permit;
use crate::decode::{DecodeError, Frame};
use crate::tasks;
use reeve_client::transport::Encoding;

/// The time after which work that no thread has begun is done in place. The threads for blocking work are those of the whole
/// program, and may be busy for long.
pub(super) const PATIENCE: Duration = Duration::from_millis(10);

/// Decodes one event. It is called by several threads.
pub(super) type Decode<S> = dyn Fn(Encoding, &[u8]) -> Result<Frame<S>, DecodeError> + Send + Sync;

/// Frames up to the end of the lines or the first error.
pub(super) type Decoded<S> = Vec<Result<Frame<S>, DecodeError>>;

/// Lines that another thread decodes.
pub(super) type Chunk<S> = Handed<VecDeque<Bytes>, Decoded<S>>;

/// Work that a thread for blocking work does. Dropping this drops what it has not begun.
///
/// These threads and not the runtime's workers, for two reasons. A task that a worker spawns stays with that worker until
/// its present task pauses, so one piece at a time would be decoded by turns and not at once. And the more threads
/// allocate, the rarer is it that a state is freed into the arena that another thread uses at that moment, for which
/// glibc has a lock; with two threads that cost more than the work itself.
pub(super) struct Handed<I, O> {
    since: Instant,
    shared: Arc<Shared<I, O>>,
    task: AbortOnDropHandle<()>,
}

struct Shared<I, O> {
    /// `None` once a thread has begun.
    input: Mutex<Option<I>>,
    /// `None` until the work is done, and if the input was taken away.
    output: Mutex<Option<O>>,
}

// === impl Handed ===

impl<I: Send + 'static, O: Send + 'static> Handed<I, O> {
    /// Has `work` done with `input`.
    pub(super) fn begin(
        input: I,
        permit: Permit,
        work: impl FnOnce(I) -> O + Send + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            input: Mutex::new(Some(input)),
            output: Mutex::new(None),
        });
        let given = Arc::clone(&shared);
        let task = tasks::block(Box::new(move || {
            let _permit = permit;
            let input = given.input.lock().take();
            if let Some(input) = input {
                let output = work(input);
                *given.output.lock() = Some(output);
            }
        }));
        Self {
            since: Instant::now(),
            shared,
            task: AbortOnDropHandle::new(task),
        }
    }

    /// The time at which it was handed over.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// The result; `None` if the input was taken away. Cancel-safe until it is ready.
    pub(super) async fn output(&mut self) -> Option<O> {
        joined((&mut self.task).await).await;
        self.shared.output.lock().take()
    }

    /// Takes the input away, unless a thread has begun.
    pub(super) fn take_away(&self) -> Option<I> {
        self.shared.input.lock().take()
    }

    /// The result, or the input again if no thread has begun within [`PATIENCE`]. Cancel-safe until it is ready.
    pub(super) async fn output_or_input(&mut self) -> Result<O, I> {
        let since = self.since;
        tokio::select! {
            biased;
            output = self.output() => return present(output).await,
            () = sleep_until(since + PATIENCE) => {}
        }
        match self.take_away() {
            Some(input) => Err(input),
            None => present(self.output().await).await,
        }
    }
}

/// The result of work whose input was not taken away.
async fn present<I, O>(output: Option<O>) -> Result<O, I> {
    match output {
        Some(output) => Ok(output),
        // It was, and what called this is over.
        None => pending().await,
    }
}

impl<S: ?Sized + Send + Sync + 'static> Chunk<S> {
    /// Has `lines` decoded.
    pub(super) fn of(
        lines: VecDeque<Bytes>,
        encoding: Encoding,
        decode: Arc<Decode<S>>,
        permit: Permit,
    ) -> Self {
        Self::begin(lines, permit, move |lines| {
            decode_all(lines, encoding, &*decode)
        })
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
