//! The activity of a connection, and its begin: the input of its time-outs.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::driven::{Begun, Cut};
use super::{Body, Limits};

/// The first bytes of an HTTP/2 connection (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The bytes of an HTTP/2 answer that are handed over at once: the largest frame of most peers.
const PIECE: usize = 16 * 1024;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
    /// The first bytes decide. Until the preface of HTTP/2 is complete, the limits of HTTP/1 hold.
    Either,
}

/// The state of a connection.
pub(super) struct Activity {
    times: Mutex<Times>,
    /// Where the means to end a request of HTTP/2 is put as it begins.
    begun: Begun,
    /// Notified when the peer gave up another request.
    given_up: Notify,
}

struct Times {
    protocol: Protocol,
    /// Bytes of the preface that were read so far.
    preface: usize,
    /// Requests in work.
    in_flight: usize,
    /// The arrival of the first byte of the header being read; for a new connection, the time it was accepted.
    reading: Option<Instant>,
    /// The time since which no request is in work.
    idle: Instant,
    /// The time since which the peer takes no byte of what is to be written; `None` while nothing waits to be written.
    blocked: Option<Instant>,
    /// The answers of HTTP/2 with a piece for which the peer gives no window, and the times since which they wait.
    unread: BTreeMap<u64, (Instant, Arc<Cut>)>,
    /// The number of the last request of HTTP/2.
    streams: u64,
    /// Requests that were cancelled before they were answered, less those that were answered.
    given_up: u32,
}

/// A request in work. It ends when this is dropped.
pub(super) struct Flight {
    activity: Arc<Activity>,
    answered: bool,
    /// For HTTP/2. Its connection's writes do not show whether this one answer is read.
    stream: Option<Stream>,
}

/// A request of HTTP/2, and the means to end it.
struct Stream {
    number: u64,
    cut: Arc<Cut>,
}

/// The reason why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The peer takes too long.
    Late,
    /// The peer cancels its requests.
    GivesUp,
}

/// A connection whose reads and blocked writes are recorded.
pub(super) struct Recorded<IO> {
    io: IO,
    activity: Arc<Activity>,
    /// Whether the last write was blocked, so that a write that is not takes no lock.
    blocked: bool,
}

/// A body that keeps its request in work until the last piece.
pub(super) struct Tracked {
    body: Body,
    /// The rest of a piece that is larger than [`PIECE`].
    rest: Bytes,
    flight: Option<Flight>,
    /// A piece was handed over, and no other was asked for since.
    handed: bool,
}

// === impl Times ===

impl Times {
    /// Compares the first bytes of a connection with the preface of HTTP/2.
    fn detect(&mut self, read: &[u8]) {
        if self.protocol != Protocol::Either {
            return;
        }
        let rest = &PREFACE[self.preface..];
        let length = rest.len().min(read.len());
        if rest[..length] != read[..length] {
            self.protocol = Protocol::Http1;
            return;
        }
        self.preface += length;
        if self.preface == PREFACE.len() {
            self.protocol = Protocol::Http2;
        }
    }

    /// When the connection is closed, if nothing happens until then.
    fn due(&self, limits: &Limits) -> Option<Instant> {
        let idle = self.idle + limits.idle;
        let header = self.header().map(|since| since + limits.header_timeout);
        let due = header.map_or(idle, |header| header.min(idle));
        let due = (self.in_flight == 0).then_some(due);
        let unread = self.blocked.map(|since| since + limits.idle);
        [due, unread].into_iter().flatten().min()
    }

    /// When the first of the answers of HTTP/2 that are not read is ended.
    fn first_cut(&self, limits: &Limits) -> Option<Instant> {
        let first = self.unread.values().map(|(since, _)| *since).min();
        first.map(|since| since + limits.idle)
    }

    /// Takes the answers of HTTP/2 that are not read for too long. Other requests of the connection go on.
    fn take_unread(&mut self, limits: &Limits, now: Instant) -> Vec<Arc<Cut>> {
        let mut late = Vec::new();
        self.unread.retain(|_, (since, cut)| {
            let waits = *since + limits.idle > now;
            if !waits {
                late.push(Arc::clone(cut));
            }
            waits
        });
        late
    }

    /// The arrival of the first byte of a header. HTTP/2 sends frames that are not requests at any time.
    fn header(&self) -> Option<Instant> {
        self.reading.filter(|_| self.protocol != Protocol::Http2)
    }

    /// The shortest limit that may begin.
    fn shortest(&self, limits: &Limits) -> Duration {
        let shortest = match self.protocol {
            Protocol::Http2 => limits.idle,
            Protocol::Http1 | Protocol::Either => limits.idle.min(limits.header_timeout),
        };
        shortest.max(Duration::from_millis(1))
    }
}

// === impl Activity ===

impl Activity {
    /// `begun` is that of the executor of the connection.
    pub(super) fn new(protocol: Protocol, begun: Begun) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            begun,
            times: Mutex::new(Times {
                protocol,
                preface: 0,
                in_flight: 0,
                reading: Some(now),
                idle: now,
                blocked: None,
                unread: BTreeMap::new(),
                streams: 0,
                given_up: 0,
            }),
            given_up: Notify::new(),
        })
    }

    pub(super) fn begin(self: &Arc<Self>) -> Flight {
        let mut times = self.times.lock();
        times.in_flight += 1;
        times.reading = None;
        let stream = (times.protocol == Protocol::Http2).then(|| {
            times.streams += 1;
            let cut = Arc::<Cut>::default();
            *self.begun.lock() = Some(Arc::clone(&cut));
            let number = times.streams;
            Stream { number, cut }
        });
        Flight {
            activity: Arc::clone(self),
            answered: false,
            stream,
        }
    }

    fn read(&self, bytes: &[u8]) {
        let mut times = self.times.lock();
        times.detect(bytes);
        if times.in_flight == 0 && times.reading.is_none() {
            times.reading = Some(Instant::now());
        }
    }

    fn write_blocked(&self, blocked: bool) {
        let (mut times, now) = (self.times.lock(), Instant::now());
        times.blocked = blocked.then_some(now);
        if !blocked {
            // A whole answer has ended its request when it was handed over, and its peer still reads it.
            times.idle = now;
        }
    }

    /// Returns when the peer takes longer than the limits allow, or has cancelled too many requests.
    ///
    /// Requests and bytes change the times, and wake nothing: that would be a wake of the connection's task for each.
    /// A limit that begins during a wait ends after it, since no wait is longer than the shortest limit, or a millisecond.
    pub(super) async fn abused(&self, limits: &Limits) -> Cause {
        loop {
            let now = Instant::now();
            let (next, unread) = {
                let mut times = self.times.lock();
                if times.given_up > limits.given_up {
                    return Cause::GivesUp;
                }
                if times.due(limits).is_some_and(|due| due <= now) {
                    return Cause::Late;
                }
                let unread = times.take_unread(limits, now);
                let check = now + times.shortest(limits);
                let due = [times.due(limits), times.first_cut(limits)];
                let next = due.into_iter().flatten().fold(check, Instant::min);
                (next, unread)
            };
            unread.iter().for_each(|stream| stream.cut());
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.given_up.notified() => {}
            }
        }
    }
}

// === impl Flight ===

impl Flight {
    /// The handler has answered with `body`. With HTTP/1 a whole body ends the request here; pieces keep it in work,
    /// since a connection that streams is not idle. With HTTP/2 every body does.
    pub(super) fn answered(mut self, body: Body) -> Tracked {
        self.answered = true;
        let flight = (self.stream.is_some() || !body.is_whole()).then_some(self);
        Tracked {
            body,
            rest: Bytes::new(),
            flight,
            handed: false,
        }
    }

    /// A piece of the answer was handed over, and waits for the peer to take it.
    fn handed(&self) {
        if let Some(Stream { number, cut }) = &self.stream {
            let unread = (Instant::now(), Arc::clone(cut));
            self.activity.times.lock().unread.insert(*number, unread);
        }
    }

    /// The peer took the piece that was handed over.
    fn taken(&self) {
        if let Some(stream) = &self.stream {
            self.activity.times.lock().unread.remove(&stream.number);
        }
    }

    /// The handler has refused to answer.
    pub(super) fn refused(mut self) {
        self.answered = true;
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut times = self.activity.times.lock();
        times.in_flight -= 1;
        if let Some(stream) = &self.stream {
            times.unread.remove(&stream.number);
        }
        times.idle = Instant::now();
        times.given_up = if self.answered {
            times.given_up.saturating_sub(1)
        } else {
            times.given_up.saturating_add(1)
        };
        if !self.answered {
            self.activity.given_up.notify_one();
        }
    }
}

// === impl Recorded ===

impl<IO> Recorded<IO> {
    pub(super) fn new(io: IO, activity: Arc<Activity>) -> Self {
        Self {
            io,
            activity,
            blocked: false,
        }
    }

    /// Records whether a write was blocked.
    fn wrote<T>(&mut self, polled: Poll<T>) -> Poll<T> {
        if self.blocked != polled.is_pending() {
            self.blocked = polled.is_pending();
            self.activity.write_blocked(self.blocked);
        }
        polled
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Recorded<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.activity.read(&buffer.filled()[before..]);
        }
        polled
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Recorded<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(context, bytes);
        self.wrote(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        self.wrote(polled)
    }
}

// === impl Tracked ===

impl Tracked {
    /// The next piece. Those of HTTP/2 are small: a request ends when its last piece is handed over.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let small = self
            .flight
            .as_ref()
            .is_some_and(|flight| flight.stream.is_some());
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) if small => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                polled => return polled,
            }
        }
        let length = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }
}

impl http_body::Body for Tracked {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        if let Some(flight) = this.flight.as_ref().filter(|_| this.handed) {
            flight.taken();
        }
        let polled = this.poll_piece(context);
        this.handed = matches!(polled, Poll::Ready(Some(Ok(_))));
        if let Some(flight) = this.flight.as_ref().filter(|_| this.handed) {
            flight.handed();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower().saturating_add(rest));
        if let Some(upper) = body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_http2_once_its_preface_is_complete_however_it_is_cut() {
        for (pieces, protocol) in [
            (vec![PREFACE], Protocol::Http2),
            (
                vec![&PREFACE[..1], &PREFACE[1..20], &PREFACE[20..]],
                Protocol::Http2,
            ),
            (vec![PREFACE, b"more"], Protocol::Http2),
            (vec![&PREFACE[..23]], Protocol::Either),
            (vec![b"GET / HTTP/1.1".as_slice()], Protocol::Http1),
            // Like PRI, and another method.
            (vec![b"P".as_slice(), b"OST /"], Protocol::Http1),
            (vec![b"P".as_slice(), b"OST /", PREFACE], Protocol::Http1),
        ] {
            let activity = Activity::new(Protocol::Either, Begun::default());
            for piece in &pieces {
                activity.read(piece);
            }
            assert_eq!(activity.times.lock().protocol, protocol, "{pieces:?}");
        }
    }
}
