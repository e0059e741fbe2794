//! The limits of a client's use of a server.

use std::time::Duration;

use reeve_clock::LONGEST;
use tokio::sync::Semaphore;

/// Limits of one server. Each time may be [`Duration::MAX`] for none.
///
/// Start from the default, and set what differs:
/// ```
/// use reeve_serve::http::Limits;
/// let limits = Limits::default().connections(64).headers(50);
/// assert_eq!(limits.connections, 64);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Time for the header of a request, from its first byte; for the first byte of a new connection; and for the
    /// TLS handshake.
    pub header_timeout: Duration,
    /// Time that a connection may stay open without a request, and that a client may read nothing of an answer.
    pub idle: Duration,
    /// Size of a request's header in bytes, at least 8192. hyper checks it after each read, so up to twice as much may
    /// pass.
    pub header_bytes: usize,
    /// Header lines of a request (HTTP/1).
    pub headers: usize,
    /// Time for an answer, from the end of the header to the begin of the answer; the client gets 503 after that.
    pub answer_timeout: Duration,
    /// Connections at once. Further ones wait in the kernel.
    pub connections: usize,
    /// Requests at once on one connection (HTTP/2). Further ones are refused, and many of them end the connection.
    pub streams: u32,
    /// Requests that a client may cancel on one connection beyond those it waits for (HTTP/2, "rapid reset"). One more
    /// closes the connection.
    pub given_up: u32,
    /// Time that requests in work have when the server stops. Zero closes every connection at once.
    pub drain: Duration,
}

impl Default for Limits {
    /// 10 s for a header of at most 64 KiB and 100 lines, 90 s idle, 10 s for the answer, 256 connections with 100
    /// requests each, of which 100 may be cancelled, 5 s to drain. (controller-runtime: 32 s, 1 MiB, 90 s, none, none, 250,
    /// 60 s.)
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_secs(10),
            idle: Duration::from_secs(90),
            header_bytes: 64 * 1024,
            headers: 100,
            answer_timeout: Duration::from_secs(10),
            connections: 256,
            streams: 100,
            given_up: 100,
            drain: Duration::from_secs(5),
        }
    }
}

// === impl Limits ===

impl Limits {
    /// Sets [`Limits::header_timeout`](#structfield.header_timeout).
    #[must_use]
    pub fn header_timeout(mut self, header_timeout: Duration) -> Self {
        self.header_timeout = header_timeout;
        self
    }

    /// Sets [`Limits::idle`](#structfield.idle).
    #[must_use]
    pub fn idle(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }

    /// Sets [`Limits::header_bytes`](#structfield.header_bytes).
    #[must_use]
    pub fn header_bytes(mut self, header_bytes: usize) -> Self {
        self.header_bytes = header_bytes;
        self
    }

    /// Sets [`Limits::headers`](#structfield.headers).
    #[must_use]
    pub fn headers(mut self, headers: usize) -> Self {
        self.headers = headers;
        self
    }

    /// Sets [`Limits::answer_timeout`](#structfield.answer_timeout).
    #[must_use]
    pub fn answer_timeout(mut self, answer_timeout: Duration) -> Self {
        self.answer_timeout = answer_timeout;
        self
    }

    /// Sets [`Limits::connections`](#structfield.connections).
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Sets [`Limits::streams`](#structfield.streams).
    #[must_use]
    pub fn streams(mut self, streams: u32) -> Self {
        self.streams = streams;
        self
    }

    /// Sets [`Limits::given_up`](#structfield.given_up).
    #[must_use]
    pub fn given_up(mut self, given_up: u32) -> Self {
        self.given_up = given_up;
        self
    }

    /// Sets [`Limits::drain`](#structfield.drain).
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// The same limits, cut to what can be added to a time or counted. At least one connection is served.
    pub(super) fn countable(self) -> Self {
        Self {
            header_timeout: self.header_timeout.min(LONGEST),
            idle: self.idle.min(LONGEST),
            answer_timeout: self.answer_timeout.min(LONGEST),
            drain: self.drain.min(LONGEST),
            connections: self.connections.clamp(1, Semaphore::MAX_PERMITS),
            ..self
        }
    }
}
