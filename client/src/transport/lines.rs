//! The body of a watch, event by event: lines of JSON, or frames of protobuf.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body as _, Frame};
use kube_client::client::Body;
use tokio::time::{Instant, Sleep, sleep_until};

use super::{Encoding, Error};

/// The lines of the body of a watch. A frame of protobuf counts as a line, without its length.
pub struct Lines {
    body: Body,
    splitter: Splitter,
    silence: Silence,
    /// Number of received frames.
    frames: u64,
    /// The connection had nothing at an ask since the last complete line.
    waited: bool,
    /// A line was passed on since the last ask.
    passed_on: bool,
    ended: bool,
}

/// Detects a wait that is too long. One timer serves all waits, and is moved only when it fires too early: setting one
/// for each wait would wake the thread that sleeps until the next timer.
#[derive(Default)]
struct Silence {
    timer: Option<Pin<Box<Sleep>>>,
}

/// Splits the frames of a connection into lines. A line that came in one frame is passed on without a copy.
#[doc(hidden)]
#[derive(Debug)]
pub struct Splitter {
    /// The unread part of the newest frame.
    frame: Bytes,
    /// The start of a line whose end has not arrived.
    partial: BytesMut,
    encoding: Encoding,
    limit: usize,
}

/// The number of bytes in front of an event in protobuf: its length, highest byte first.
const HEAD: usize = 4;

// === impl Splitter ===

impl Splitter {
    #[must_use]
    pub fn new(encoding: Encoding, limit: usize) -> Self {
        Self {
            frame: Bytes::new(),
            partial: BytesMut::new(),
            encoding,
            limit,
        }
    }

    /// Adds the next frame, after [`Splitter::next_line`] has returned `None`.
    pub fn push(&mut self, frame: Bytes) {
        debug_assert!(self.frame.is_empty(), "the last frame is used up");
        self.frame = frame;
    }

    /// Number of buffered bytes.
    #[must_use]
    pub fn held(&self) -> usize {
        self.frame.len() + self.partial.len()
    }

    /// The next complete line. After an error there is none.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for a line that is longer than the limit.
    pub fn next_line(&mut self) -> Result<Option<Bytes>, Error> {
        match self.encoding {
            Encoding::Json => self.next_text(),
            Encoding::Protobuf => self.next_event(),
        }
    }

    /// The next event of protobuf.
    fn next_event(&mut self) -> Result<Option<Bytes>, Error> {
        if self.partial.is_empty()
            && let Some(head) = self.frame.first_chunk()
        {
            let length = self.length(*head)?;
            if self.frame.len() >= HEAD + length {
                self.frame.advance(HEAD);
                return Ok(Some(self.frame.split_to(length)));
            }
        }
        // Memory is taken for what has come, not for the length that was sent.
        self.gather(HEAD);
        let Some(head) = self.partial.first_chunk() else {
            return Ok(None);
        };
        let length = self.length(*head)?;
        self.gather(HEAD + length);
        if self.partial.len() < HEAD + length {
            return Ok(None);
        }
        self.partial.advance(HEAD);
        Ok(Some(self.partial.split().freeze()))
    }

    /// Moves bytes of the frame to the partial event, until it has `length` bytes.
    fn gather(&mut self, length: usize) {
        let missing = length.saturating_sub(self.partial.len());
        let part = self.frame.split_to(missing.min(self.frame.len()));
        self.partial.extend_from_slice(&part);
    }

    fn length(&mut self, head: [u8; HEAD]) -> Result<usize, Error> {
        let length = usize::try_from(u32::from_be_bytes(head)).unwrap_or(usize::MAX);
        if length > self.limit {
            return Err(self.too_large());
        }
        Ok(length)
    }

    fn too_large(&mut self) -> Error {
        *self = Self::new(self.encoding, self.limit);
        Error::TooLarge { limit: self.limit }
    }

    /// The next line of JSON.
    fn next_text(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let end = memchr::memchr(b'\n', &self.frame);
            // The limit does not depend on the frames.
            if self.partial.len() + end.unwrap_or(self.frame.len()) > self.limit {
                return Err(self.too_large());
            }
            let Some(end) = end else {
                self.partial.extend_from_slice(&self.frame);
                self.frame.clear();
                return Ok(None);
            };
            let line = self.frame.split_to(end);
            self.frame.advance(1);
            let line = if self.partial.is_empty() {
                line
            } else {
                self.partial.extend_from_slice(&line);
                self.partial.split().freeze()
            };
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Ok(Some(line));
            }
        }
    }
}

// === impl Lines ===

impl Lines {
    pub(super) fn new(body: Body, encoding: Encoding, limit: usize) -> Self {
        Self {
            body,
            splitter: Splitter::new(encoding, limit),
            silence: Silence::default(),
            frames: 0,
            waited: false,
            passed_on: false,
            ended: false,
        }
    }

    /// The encoding of its events.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.splitter.encoding
    }

    /// Number of received frames.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// True if the connection had nothing when it was asked for the newest line, or for a part of it. Lines that
    /// came together have the same answer.
    #[must_use]
    pub fn waited(&self) -> bool {
        self.waited
    }

    /// The next complete line.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for a line beyond the limit; no line follows it.
    pub fn ready_line(&mut self) -> Result<Option<Bytes>, Error> {
        // The end of the long line is unknown, so no line follows.
        let line = self
            .splitter
            .next_line()
            .inspect_err(|_| self.ended = true)?;
        self.passed_on |= line.is_some();
        Ok(line)
    }

    /// The next line, or `None` at the end. A last line without its end is dropped: it may be incomplete.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Silent`] if no data arrives for `idle`, [`Error::Connection`] if the connection breaks,
    /// [`Error::TooLarge`] for a line beyond the limit; no line follows the latter two.
    pub async fn next_line(&mut self, idle: Duration) -> Result<Option<Bytes>, Error> {
        loop {
            let line = self.ready_line()?;
            if line.is_some() || self.ended {
                return Ok(line);
            }
            match self.next_frame(idle).await {
                None => return Err(Error::Silent { after: idle }),
                Some(None) => self.ended = true,
                Some(Some(Err(error))) => {
                    self.ended = true;
                    return Err(Error::Connection(error));
                }
                Some(Some(Ok(frame))) => {
                    self.frames += 1;
                    if let Ok(data) = frame.into_data() {
                        self.splitter.push(data);
                    }
                }
            }
        }
    }

    /// The next frame, or the end, or `None` if no data arrives for `idle`.
    async fn next_frame(
        &mut self,
        idle: Duration,
    ) -> Option<Option<Result<Frame<Bytes>, kube_client::Error>>> {
        // An overflow means never.
        let due = Instant::now().checked_add(idle);
        // What was asked for before the line that is asked for now does not count.
        self.waited &= !std::mem::take(&mut self.passed_on);
        poll_fn(|cx| {
            if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
                return Poll::Ready(Some(frame));
            }
            self.waited = true;
            match due {
                Some(due) => self.silence.poll(cx, due).map(|()| None),
                None => Poll::Pending,
            }
        })
        .await
    }
}

// === impl Silence ===

impl Silence {
    /// Ready at `due`.
    fn poll(&mut self, cx: &mut Context<'_>, due: Instant) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if timer.deadline() > due {
            timer.as_mut().reset(due);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() == due {
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
        }
    }
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines")
            .field("buffered", &self.splitter.held())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(body: &'static str, limit: usize) -> Result<Vec<String>, Error> {
        let body = Body::from(body.as_bytes().to_vec());
        let mut lines = Lines::new(body, Encoding::Json, limit);
        let mut found = Vec::new();
        while let Some(line) = lines.next_line(Duration::from_secs(1)).await? {
            found.push(String::from_utf8(line.to_vec()).unwrap());
        }
        Ok(found)
    }

    #[tokio::test]
    async fn empty_lines_are_skipped_and_a_cut_last_line_dropped() {
        assert_eq!(
            lines("{a}\n\n \r\n{b}\n{cut", 100).await.unwrap(),
            ["{a}", "{b}"]
        );
        assert!(lines("", 100).await.unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_when_it_is_due_whatever_was_waited_for_before() {
        let mut silence = Silence::default();
        let start = Instant::now();
        let mut wait = async |idle: u64, given_up_after: u64| {
            let due = Instant::now() + Duration::from_secs(idle);
            let silent = poll_fn(|cx| silence.poll(cx, due));
            tokio::time::timeout(Duration::from_secs(given_up_after), silent)
                .await
                .is_ok()
        };
        // Data came after 1, 50, 5 and 89 seconds of 90.
        for heard in [1, 50, 5, 89] {
            assert!(!wait(90, heard).await);
        }
        // Then none, for waits that are longer, shorter and longer than before.
        for idle in [200, 3, 120] {
            assert!(wait(idle, 1000).await);
        }
        let seconds = 1 + 50 + 5 + 89 + 200 + 3 + 120;
        assert_eq!(start.elapsed().as_secs(), seconds);
    }

    #[tokio::test]
    async fn a_line_past_the_limit_is_refused() {
        assert!(matches!(
            lines("0123456789", 5).await,
            Err(Error::TooLarge { limit: 5 })
        ));
    }

    /// The events of a body that comes in frames of `size` bytes, and whether one was too long.
    fn events(body: &[u8], size: usize, limit: usize) -> (Vec<Bytes>, bool) {
        let mut splitter = Splitter::new(Encoding::Protobuf, limit);
        let mut events = Vec::new();
        for frame in body.chunks(size) {
            splitter.push(Bytes::copy_from_slice(frame));
            loop {
                match splitter.next_line() {
                    Ok(Some(event)) => events.push(event),
                    Ok(None) => break,
                    Err(error) => {
                        assert!(matches!(error, Error::TooLarge { .. }), "{error}");
                        assert_eq!(splitter.held(), 0);
                        return (events, true);
                    }
                }
            }
            assert!(splitter.held() <= HEAD + limit);
        }
        (events, false)
    }

    #[test]
    fn events_of_protobuf_are_the_same_however_they_arrive() {
        let body = b"\0\0\0\x03abc\0\0\0\0\0\0\0\x01d\0\0\0\x05cut";
        for size in 1..=body.len() {
            let (events, too_long) = events(body, size, 5);
            assert_eq!(events, [&b"abc"[..], b"", b"d"], "{size}");
            assert!(!too_long, "{size}");
        }
    }

    #[test]
    fn a_length_past_the_limit_is_refused_before_its_bytes_arrive() {
        let body = b"\0\0\0\x01a\0\0\0\x06bcdefg";
        for size in 1..=body.len() {
            assert_eq!(events(body, size, 5), (vec![Bytes::from("a")], true));
        }
        assert_eq!(events(b"<html>", 6, 512 << 20), (vec![], true));
    }
}
