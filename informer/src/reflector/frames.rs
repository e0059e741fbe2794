//! The frames of a watch, in order: [`Frames`].
//!
//! A change that comes alone is decoded in place: to hand it over would wake a thread, which costs more than the work.
//! Where many lines have arrived, they are decoded in chunks by several threads of the runtime, while the frames of
//! earlier chunks are applied. The order is that of the server: an error, or the end, comes after everything before it.
//! At most [`threads`] chunks of [`CHUNK`] bytes are in work, so a consumer that falls behind stops the reading of the
//! connection as before.
//!
//! On a runtime with one thread everything is decoded in place, and nothing is read ahead.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use tokio_util::task::AbortOnDropHandle;

use super::pages::joined;
use super::threads::threads;
use crate::decode::{Budget, DecodeError, Frame};
use reeve_client::transport::{self, Encoding, Lines};

/// The bytes of the lines that one task decodes: some hundred microseconds' worth.
const CHUNK: usize = 64 * 1024;

/// The bytes of complete lines from which more are read before they are decoded. Fewer are decoded at once, where they
/// are.
const MANY: usize = 16 * 1024;

/// Decodes one event. It is called by several threads.
pub(super) type Decode<S> = dyn Fn(Encoding, &[u8]) -> Result<Frame<S>, DecodeError> + Send + Sync;

/// Frames up to the end of the lines or the first error.
type Decoded<S> = Vec<Result<Frame<S>, DecodeError>>;

/// The frames of a watch, in order.
pub(super) struct Frames<S: ?Sized> {
    lines: Lines,
    decode: Arc<Decode<S>>,
    /// The most chunks that are decoded at once; 0 to decode in place.
    threads: usize,
    /// Lines that are not decoded yet, after those in `chunks`.
    gathered: VecDeque<Bytes>,
    /// The bytes of `gathered`.
    bytes: usize,
    /// Lines that are being decoded. Dropping this ends the tasks.
    chunks: VecDeque<AbortOnDropHandle<Decoded<S>>>,
    /// Decoded frames, before those in `chunks`.
    decoded: std::vec::IntoIter<Result<Frame<S>, DecodeError>>,
    /// The end of the lines, or their error, which comes after everything else.
    end: Option<Result<(), transport::Error>>,
    budget: Budget,
}

// === impl Frames ===

impl<S: ?Sized + Send + Sync + 'static> Frames<S> {
    /// The frames of `lines`, read by `decode`.
    pub(super) fn new(lines: Lines, decode: Arc<Decode<S>>) -> Self {
        Self {
            lines,
            decode,
            threads: threads(),
            gathered: VecDeque::new(),
            bytes: 0,
            chunks: VecDeque::new(),
            decoded: Vec::new().into_iter(),
            end: None,
            budget: Budget::new(),
        }
    }

    /// The same, with lines that are not decoded yet read by `decode`.
    pub(super) fn read_by(mut self, decode: Arc<Decode<S>>) -> Self {
        self.decode = decode;
        self
    }

    /// The encoding of the events.
    pub(super) fn encoding(&self) -> Encoding {
        self.lines.encoding()
    }

    /// The number of pieces of data that have arrived.
    pub(super) fn received(&self) -> u64 {
        self.lines.frames()
    }

    /// The next frame of the lines that have arrived; `None` if [`Frames::wait`] has to be called.
    ///
    /// Cancel-safe.
    pub(super) async fn ready(&mut self) -> Option<Result<Frame<S>, DecodeError>> {
        loop {
            if self.decoded.len() > 0 {
                self.budget.spend(0).await;
                return self.decoded.next();
            }
            if self.gathered.is_empty() || !self.chunks.is_empty() {
                self.gather();
            }
            let Some(chunk) = self.chunks.front_mut() else {
                break;
            };
            let decoded = chunk.await;
            self.chunks.pop_front();
            self.decoded = joined(decoded).await.into_iter();
            // The other threads have work while these frames are applied.
            self.gather();
        }
        self.budget.spend(self.gathered.front()?.len()).await;
        let line = self.gathered.pop_front()?;
        self.bytes -= line.len();
        Some((self.decode)(self.lines.encoding(), &line))
    }

    /// Waits for the next line, after [`Frames::ready`] has returned `None`; false at the end.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    /// As [`Lines::next_line`].
    pub(super) async fn wait(&mut self, idle: Duration) -> Result<bool, transport::Error> {
        if let Some(end) = self.end.take() {
            return end.map(|()| false);
        }
        let line = self.lines.next_line(idle).await?;
        Ok(line.map(|line| self.push(line)).is_some())
    }

    /// The next frame; `None` at the end.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    /// As [`Lines::next_line`].
    pub(super) async fn next(
        &mut self,
        idle: Duration,
    ) -> Result<Option<Result<Frame<S>, DecodeError>>, transport::Error> {
        loop {
            if let Some(frame) = self.ready().await {
                return Ok(Some(frame));
            }
            if !self.wait(idle).await? {
                return Ok(None);
            }
        }
    }

    /// Takes lines that have arrived, and has them decoded if they are many.
    fn gather(&mut self) {
        let most = self.threads.max(1);
        while self.end.is_none() && self.chunks.len() < most {
            let line = match self.lines.ready_line() {
                // A change alone is not worth another look at the connection.
                Ok(None) if self.threads == 0 || self.bytes < MANY => break,
                Ok(None) => match self.lines.next_line(Duration::MAX).now_or_never() {
                    Some(line) => line,
                    None => break,
                },
                line => line,
            };
            match line {
                Ok(Some(line)) => self.push(line),
                Ok(None) => self.end = Some(Ok(())),
                Err(error) => self.end = Some(Err(error)),
            }
            if self.threads == 0 {
                break;
            }
            if self.bytes >= CHUNK {
                self.hand_over();
            }
        }
    }

    fn push(&mut self, line: Bytes) {
        self.bytes += line.len();
        self.gathered.push_back(line);
    }

    /// Has the gathered lines decoded by another task.
    fn hand_over(&mut self) {
        self.bytes = 0;
        let lines = std::mem::take(&mut self.gathered);
        let (decode, encoding) = (Arc::clone(&self.decode), self.lines.encoding());
        let chunk = tokio::spawn(async move {
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
        });
        self.chunks.push_back(AbortOnDropHandle::new(chunk));
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use http_body_util::Full;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube_client::Client;
    use kube_client::client::Body;
    use reeve_client::transport::{Limits, Transport};

    use super::*;

    const LINES: usize = 20_000;
    const LINE: usize = 100;

    /// Lines that are there at once.
    async fn lines() -> Lines {
        let body = Bytes::from(format!("{}\n", "x".repeat(LINE)).repeat(LINES));
        let service = tower::service_fn(move |_: Request<Body>| {
            std::future::ready(Ok::<_, Infallible>(Response::new(Full::new(body.clone()))))
        });
        let transport = Transport::new(Client::new(service, "default"), Limits::default());
        let request = Request::get("/").body(Body::empty()).unwrap();
        transport.watch(request).await.unwrap()
    }

    /// Frames without content, and the number of lines that were read for them.
    async fn frames() -> (Frames<ConfigMap>, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let decode = move |_: Encoding, _: &[u8]| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(Frame::Unknown)
        };
        (Frames::new(lines().await, Arc::new(decode)), count)
    }

    /// The number of frames up to the end. `check` is called after each.
    async fn all(frames: &mut Frames<ConfigMap>, check: impl Fn(&Frames<ConfigMap>)) -> usize {
        let mut count = 0;
        while let Some(frame) = frames.next(Duration::from_secs(1)).await.unwrap() {
            frame.unwrap();
            check(frames);
            count += 1;
        }
        count
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn at_most_a_chunk_a_thread_is_read_ahead() {
        let (mut frames, decoded) = frames().await;
        let most = AtomicUsize::new(0);
        let count = all(&mut frames, |frames| {
            assert!(frames.chunks.len() <= 2);
            assert!(frames.bytes < CHUNK + LINE, "{} bytes", frames.bytes);
            most.fetch_max(frames.chunks.len(), Ordering::Relaxed);
        });
        assert_eq!(count.await, LINES);
        assert_eq!(most.into_inner(), 2, "as many as there are threads");
        assert_eq!(decoded.load(Ordering::Relaxed), LINES);
    }

    #[tokio::test]
    async fn with_one_thread_a_line_is_decoded_when_its_frame_is_taken() {
        let (mut frames, decoded) = frames().await;
        let mut count = 0;
        while frames.next(Duration::from_secs(1)).await.unwrap().is_some() {
            count += 1;
            assert_eq!(decoded.load(Ordering::Relaxed), count);
            assert!(frames.chunks.is_empty() && frames.gathered.is_empty());
        }
        assert_eq!(count, LINES);
    }
}
