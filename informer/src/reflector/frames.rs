//! The frames of a watch, in order: [`Frames`].
//!
//! A change that comes alone is decoded in place, unless its line fills a chunk: to hand it over would wake a thread, which costs
//! more than the work.
//! Where many lines have arrived, or arrive in quick succession, other threads decode them in chunks, while the frames
//! of earlier chunks are applied. The order is that of the server: an error, or the end, comes after everything before it. A [`Permit`] for each chunk
//! bounds their number, so a consumer that falls behind still stops the reading of the connection.
//!
//! On a runtime with one thread everything is decoded in place, and nothing is read ahead.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use tokio::time::{Instant, Sleep, sleep};

use super::chunk::{Chunk, Decode, Decoded, PATIENCE};
use super::threads::Permit;
use crate::decode::{Budget, DecodeError, Frame};
use reeve_client::transport::{self, Encoding, Lines};

/// The bytes of the lines in a chunk: some hundred microseconds' worth.
const CHUNK: usize = 64 * 1024;

/// The bytes of lines that make a chunk if no more have arrived. Fewer are decoded in place.
const MANY: usize = 32 * 1024;

/// The longest wait for a line that counts as none.
const RUSH_GAP: Duration = Duration::from_micros(50);

/// The number of such waits in a row after which lines are collected before they are decoded. A real API server sends
/// each event as a piece of its own, and the connection passes on one piece at a time.
const RUSH: u32 = 8;

/// The number of turns of the runtime without a line after which nothing more is collected.
const EMPTY_TURNS: u32 = 3;

/// The frames of a watch, in order.
pub(super) struct Frames<S: ?Sized> {
    lines: Lines,
    decode: Arc<Decode<S>>,
    /// The most chunks at once; 0 to decode in place.
    most: usize,
    /// Decoded frames. The oldest.
    decoded: std::vec::IntoIter<Result<Frame<S>, DecodeError>>,
    /// Lines of a chunk that no thread has begun. After `decoded`.
    taken_back: VecDeque<Bytes>,
    /// Lines that other threads decode. After `taken_back`.
    chunks: VecDeque<Chunk<S>>,
    /// Lines that are not decoded yet. After `chunks`.
    gathered: VecDeque<Bytes>,
    /// The bytes of `gathered`.
    bytes: usize,
    /// The end of the lines, or their error. After `gathered`.
    end: Option<Result<(), transport::Error>>,
    budget: Budget,
    /// The number of waits in a row that were shorter than [`RUSH_GAP`].
    rush: u32,
    /// Fires when the first chunk may have waited for too long, or too early: to set a timer for each chunk would wake
    /// the thread that sleeps until the next one.
    patience: Pin<Box<Sleep>>,
}

// === impl Frames ===

impl<S: ?Sized + Send + Sync + 'static> Frames<S> {
    /// The frames of `lines`, read by `decode`.
    pub(super) fn new(lines: Lines, decode: Arc<Decode<S>>) -> Self {
        Self {
            lines,
            decode,
            most: Permit::most(),
            decoded: Decoded::new().into_iter(),
            taken_back: VecDeque::new(),
            chunks: VecDeque::new(),
            gathered: VecDeque::new(),
            bytes: 0,
            end: None,
            budget: Budget::new(),
            rush: 0,
            patience: Box::pin(sleep(PATIENCE)),
        }
    }

    /// Reads lines that are not decoded yet by `decode`.
    pub(super) fn read_by(&mut self, decode: Arc<Decode<S>>) {
        self.decode = decode;
    }

    /// The encoding of the events.
    pub(super) fn encoding(&self) -> Encoding {
        self.lines.encoding()
    }

    /// The number of pieces of data that have arrived.
    pub(super) fn received(&self) -> u64 {
        self.lines.frames()
    }

    /// As [`Lines::waited`].
    pub(super) fn waited(&self) -> bool {
        self.lines.waited()
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
            if let Some(line) = self.taken_back.front() {
                self.budget.spend(line.len()).await;
                return self
                    .taken_back
                    .pop_front()
                    .map(|line| (self.decode)(self.lines.encoding(), &line));
            }
            if self.gathered.is_empty() || !self.chunks.is_empty() {
                self.gather();
            }
            if self.chunks.is_empty() && self.rush >= RUSH && self.bytes < MANY {
                self.collect().await;
            }
            if self.chunks.is_empty() {
                break;
            }
            self.next_chunk().await;
            // The other threads have work while these frames are applied.
            self.gather();
        }
        self.budget.spend(self.gathered.front()?.len()).await;
        let line = self.gathered.pop_front()?;
        self.bytes -= line.len();
        Some((self.decode)(self.lines.encoding(), &line))
    }

    /// Collects lines for a chunk, as long as each turn of the runtime brings some.
    async fn collect(&mut self) {
        let mut empty = 0;
        while empty < EMPTY_TURNS && self.reads_on() && self.chunks.is_empty() {
            let bytes = self.bytes;
            tokio::task::yield_now().await;
            if let Some(line) = self.lines.next_line(Duration::MAX).now_or_never() {
                self.take(line);
            }
            self.gather();
            empty = if self.bytes == bytes { empty + 1 } else { 0 };
        }
        if empty > 0 {
            self.rush = 0;
        }
    }

    /// Waits until the first chunk is decoded, or a line has arrived.
    async fn next_chunk(&mut self) {
        let reads_on = self.reads_on();
        let Some(chunk) = self.chunks.front_mut() else {
            return;
        };
        tokio::select! {
            biased;
            decoded = chunk.output() => {
                self.chunks.pop_front();
                self.decoded = decoded.unwrap_or_default().into_iter();
            }
            line = self.lines.next_line(Duration::MAX), if reads_on => self.take(line),
            () = &mut self.patience => {
                let due = chunk.since() + PATIENCE;
                let now = Instant::now();
                if due > now {
                    self.patience.as_mut().reset(due);
                } else if let Some(lines) = chunk.take_away() {
                    self.chunks.pop_front();
                    self.taken_back = lines;
                } else {
                    self.patience.as_mut().reset(now + PATIENCE);
                }
            }
        }
    }

    /// True if more lines would be decoded by other threads.
    fn reads_on(&self) -> bool {
        self.end.is_none() && self.chunks.len() < self.most && self.bytes < CHUNK
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
        if self.most == 0 {
            let line = self.lines.next_line(idle).await?;
            return Ok(line.map(|line| self.push(line)).is_some());
        }
        let asked = Instant::now();
        let line = self.lines.next_line(idle).await?;
        self.rush = if asked.elapsed() < RUSH_GAP {
            self.rush.saturating_add(1)
        } else {
            0
        };
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

    /// Takes lines that have arrived, and has them decoded by other threads if they are many.
    fn gather(&mut self) {
        if self.most == 0 {
            if self.gathered.is_empty() && self.end.is_none() {
                let line = self.lines.ready_line();
                self.take_ready(line);
            }
            return;
        }
        while self.reads_on() {
            let line = self.lines.ready_line();
            if self.take_ready(line) {
                continue;
            }
            // A change alone is not worth another look at the connection.
            if self.bytes < MANY && self.chunks.is_empty() {
                return;
            }
            let Some(line) = self.lines.next_line(Duration::MAX).now_or_never() else {
                if self.bytes >= MANY {
                    self.hand_over();
                }
                return;
            };
            self.take(line);
        }
    }

    /// Takes a line that has arrived; false if there is none.
    fn take_ready(&mut self, line: Result<Option<Bytes>, transport::Error>) -> bool {
        let none = matches!(line, Ok(None));
        if !none {
            self.take(line);
        }
        !none
    }

    /// Takes the next line, or the end of the lines.
    fn take(&mut self, line: Result<Option<Bytes>, transport::Error>) {
        match line {
            Ok(Some(line)) => self.push(line),
            Ok(None) => self.end = Some(Ok(())),
            Err(error) => self.end = Some(Err(error)),
        }
    }

    /// Adds a line, and has a chunk decoded that is full with it, however the line came.
    fn push(&mut self, line: Bytes) {
        self.bytes += line.len();
        self.gathered.push_back(line);
        if self.bytes >= CHUNK {
            self.hand_over();
        }
    }

    /// Has the gathered lines decoded by another thread, if one may be used.
    fn hand_over(&mut self) {
        let Some(permit) = Permit::take(self.most) else {
            return;
        };
        self.bytes = 0;
        let lines = std::mem::take(&mut self.gathered);
        let decode = Arc::clone(&self.decode);
        self.chunks
            .push_back(Chunk::of(lines, self.lines.encoding(), decode, permit));
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Poll;
    use std::thread;

    use http::{Request, Response};
    use http_body_util::{Full, StreamBody};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube_client::Client;
    use kube_client::client::Body;
    use reeve_client::transport::{Limits, Transport};

    use super::super::threads::ALL_PERMITS;
    use super::*;

    const LINES: usize = 20_000;
    const LINE: usize = 100;

    fn line() -> String {
        format!("{}\n", "x".repeat(LINE))
    }

    /// Lines that are there at once.
    async fn lines() -> Lines {
        let body = Bytes::from(line().repeat(LINES));
        lines_of(move || Full::new(body.clone())).await
    }

    async fn lines_of<B>(body: impl Fn() -> B + Send + 'static) -> Lines
    where
        B: http_body::Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let service = tower::service_fn(move |_: Request<Body>| {
            std::future::ready(Ok::<_, Infallible>(Response::new(body())))
        });
        let transport = Transport::new(Client::new(service, "default"), Limits::default());
        let request = Request::get("/").body(Body::empty()).unwrap();
        transport.watch(request).await.unwrap()
    }

    /// Frames without content, and the number of lines that were read for them.
    async fn frames() -> (Frames<ConfigMap>, Arc<AtomicUsize>) {
        let (frames, decoded, _) = frames_of(lines().await);
        (frames, decoded)
    }

    /// Frames, and the numbers of lines that were read for them, in all and by the present thread.
    fn frames_of(lines: Lines) -> (Frames<ConfigMap>, Arc<AtomicUsize>, Arc<AtomicUsize>) {
        let (count, in_place) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, here) = (
            (Arc::clone(&count), Arc::clone(&in_place)),
            thread::current().id(),
        );
        let decode = move |_: Encoding, _: &[u8]| {
            counted.0.fetch_add(1, Ordering::Relaxed);
            counted.1.fetch_add(
                usize::from(thread::current().id() == here),
                Ordering::Relaxed,
            );
            Ok(Frame::Unknown)
        };
        (Frames::new(lines, Arc::new(decode)), count, in_place)
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
    async fn a_bounded_number_of_chunks_is_read_ahead() {
        let _permits = ALL_PERMITS.lock().await;
        let (mut frames, decoded) = frames().await;
        let most = AtomicUsize::new(0);
        let count = all(&mut frames, |frames| {
            assert!(frames.chunks.len() <= 4);
            assert!(frames.bytes < CHUNK + LINE, "{} bytes", frames.bytes);
            most.fetch_max(frames.chunks.len(), Ordering::Relaxed);
        });
        assert_eq!(count.await, LINES);
        assert!(most.into_inner() > 1, "several at once");
        assert_eq!(decoded.load(Ordering::Relaxed), LINES);
    }

    /// Frames of lines that are a piece of data each, with `turns` of the runtime before each.
    async fn pieces(turns: usize) -> (Frames<ConfigMap>, Arc<AtomicUsize>, Arc<AtomicUsize>) {
        let piece = move |number| async move {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            let piece = http_body::Frame::data(Bytes::from(line()));
            (number < LINES).then(|| (Ok::<_, Infallible>(piece), number + 1))
        };
        let body = move || StreamBody::new(Box::pin(futures::stream::unfold(0, piece)));
        frames_of(lines_of(body).await)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn lines_that_come_one_by_one_in_quick_succession_are_collected() {
        let _permits = ALL_PERMITS.lock().await;
        for turns in [0, 1] {
            let (mut frames, decoded, in_place) = pieces(turns).await;
            let collected = AtomicUsize::new(0);
            let count = all(&mut frames, |frames| {
                collected.fetch_max(frames.decoded.len(), Ordering::Relaxed);
            });
            assert_eq!(count.await, LINES);
            assert_eq!(decoded.load(Ordering::Relaxed), LINES);
            let collected = collected.into_inner();
            assert!(collected > MANY / LINE / 2, "{collected} at once");
            // A chunk that is full, by whichever line, is not decoded line by line.
            let in_place = in_place.load(Ordering::Relaxed);
            assert!(in_place < LINES / 4, "{in_place} in place, {turns} turns");
        }
    }

    #[tokio::test]
    async fn a_line_was_waited_for_if_a_part_of_it_was_not_there() {
        // "" stands for a look at the connection that finds nothing.
        let body =
            || {
                let pieces = ["", "one ", "line\ntw", "o\nthree\n", "", "four\nfi", "ve\n"];
                let mut pieces = pieces.into_iter();
                StreamBody::new(futures::stream::poll_fn(move |cx| match pieces.next() {
                    Some("") => {
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    }
                    piece => Poll::Ready(piece.map(|piece| {
                        Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(piece)))
                    })),
                }))
            };
        let (mut frames, ..) = frames_of(lines_of(body).await);
        let mut waited = Vec::new();
        while frames.next(Duration::from_secs(1)).await.unwrap().is_some() {
            waited.push(frames.waited());
        }
        assert_eq!(waited, [true, false, false, true, false]);
    }

    #[test]
    fn chunks_that_no_thread_begins_are_decoded_in_place() {
        let _permits = ALL_PERMITS.blocking_lock();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(1)
            .enable_time()
            .build();
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        runtime.unwrap().block_on(async {
            let busy = tokio::task::spawn_blocking(move || blocked.recv());
            let (mut frames, decoded) = frames().await;
            assert_eq!(all(&mut frames, |_| {}).await, LINES);
            assert_eq!(decoded.load(Ordering::Relaxed), LINES);
            drop(release);
            busy.await.unwrap().unwrap_err();
        });
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
