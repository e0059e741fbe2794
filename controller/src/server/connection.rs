//! One connection: who waits for whom, and for how long.
//!
//! Requests, also the many of one HTTP/2 connection, run inside the connection's own task, and end with it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{Handler, Limits, Peer, text};

/// How often a silent HTTP/2 peer is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(30);
/// How long it may take to say so.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// How many HTTP/2 requests may be taken back before they were looked at (CVE-2023-44487); more end the connection.
const UNSEEN_RESETS: usize = 20;
/// How many HTTP/2 requests a connection may have refused, for being one too many or against the protocol; more end it.
const REFUSALS: usize = 256;
/// What an HTTP/2 client may send of bodies before somebody reads them, of a connection and of each request.
const WINDOW: u32 = 64 * 1024;
/// How much of an answer is kept for an HTTP/2 client that does not read, beside the answer itself.
const SEND_BUFFER: usize = 64 * 1024;

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// What a connection is at.
struct Watch {
    times: Mutex<Times>,
    changed: Notify,
}

struct Times {
    /// Requests being answered.
    in_flight: usize,
    /// When the first byte of the header that is being read came; of a new connection, when it was made.
    reading: Option<Instant>,
    /// Since when no request was answered.
    idle: Instant,
    /// Requests that were given up before they were answered, less those that were answered.
    given_up: u32,
}

/// A request being answered.
struct Flight {
    watch: Arc<Watch>,
    answered: bool,
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The peer takes too long.
    Late,
    /// The peer gives up its requests.
    GivesUp,
}

/// Bytes from the peer, noticed.
struct Noticed<IO> {
    io: IO,
    watch: Arc<Watch>,
}

/// Where hyper sends what it would spawn: at most as many futures as a connection may have requests.
#[derive(Clone)]
struct Streams(mpsc::UnboundedSender<BoxFuture<'static, ()>>);

// === impl Watch ===

impl Watch {
    fn new() -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            times: Mutex::new(Times {
                in_flight: 0,
                reading: Some(now),
                idle: now,
                given_up: 0,
            }),
            changed: Notify::new(),
        })
    }

    fn begin(self: &Arc<Self>) -> Flight {
        let mut times = self.times.lock();
        times.in_flight += 1;
        times.reading = None;
        Flight {
            watch: Arc::clone(self),
            answered: false,
        }
    }

    fn read(&self) {
        let mut times = self.times.lock();
        if times.in_flight == 0 && times.reading.is_none() {
            times.reading = Some(Instant::now());
            self.changed.notify_one();
        }
    }

    /// Returns when the peer has taken too long, or has given up too many requests.
    async fn abused(&self, protocol: Protocol, limits: &Limits) -> Cause {
        loop {
            let due = {
                let times = self.times.lock();
                if times.given_up > limits.given_up {
                    return Cause::GivesUp;
                }
                let idle = times.idle + limits.idle;
                // HTTP/2 sends frames that are no requests at any time.
                let reading = times.reading.filter(|_| protocol == Protocol::Http1);
                let header = reading.map(|since| since + limits.header_timeout);
                let due = header.map_or(idle, |header| header.min(idle));
                (times.in_flight == 0).then_some(due)
            };
            match due {
                Some(due) if due <= Instant::now() => return Cause::Late,
                Some(due) => tokio::select! {
                    () = sleep_until(due) => {}
                    () = self.changed.notified() => {}
                },
                None => self.changed.notified().await,
            }
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut times = self.watch.times.lock();
        times.in_flight -= 1;
        times.idle = Instant::now();
        times.given_up = if self.answered {
            times.given_up.saturating_sub(1)
        } else {
            times.given_up.saturating_add(1)
        };
        self.watch.changed.notify_one();
    }
}

// === impl Noticed ===

impl<IO: AsyncRead + Unpin> AsyncRead for Noticed<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.watch.read();
        }
        polled
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Noticed<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
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
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }
}

// === impl Streams ===

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, future: F) {
        // The receiver lives as long as the connection.
        let _ = self.0.send(Box::pin(future));
    }
}

/// Whom a connection is to, and by what rules.
pub(super) struct Connection {
    pub(super) peer: Peer,
    pub(super) limits: Limits,
    pub(super) handler: Handler,
    pub(super) stop: CancellationToken,
}

// === impl Connection ===

impl Connection {
    /// Agrees on keys and protocol, then as [`Connection::serve`].
    pub(super) async fn serve_tls(self, stream: TcpStream, acceptor: TlsAcceptor) {
        let agreed = tokio::select! {
            biased;
            () = self.stop.cancelled() => return,
            agreed = timeout(self.limits.header_timeout, acceptor.accept(stream)) => agreed,
        };
        let problem = match agreed {
            Ok(Ok(stream)) => {
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let protocol = if http2 {
                    Protocol::Http2
                } else {
                    Protocol::Http1
                };
                return self.serve(stream, protocol).await;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it took too long".to_owned(),
        };
        tracing::debug!(peer = %self.peer.0, problem, "TLS was not agreed on");
    }

    /// Answers requests until the peer leaves, takes too long, or the stop comes; then what is under way.
    pub(super) async fn serve<IO>(self, io: IO, protocol: Protocol)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self {
            peer,
            limits,
            handler,
            stop,
        } = self;
        let watch = Watch::new();
        let noted = Arc::clone(&watch);
        let service = service_fn(move |mut request: Request<Incoming>| {
            let mut flight = noted.begin();
            request.extensions_mut().insert(peer);
            let answer = timeout(limits.answer_timeout, handler(request));
            async move {
                let answer = answer.await.unwrap_or_else(|_| {
                    text(
                        StatusCode::SERVICE_UNAVAILABLE,
                        "the answer took too long\n",
                    )
                });
                flight.answered = true;
                drop(flight);
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        let (sender, mut spawned) = mpsc::unbounded_channel();
        let builder = builder(Streams(sender), protocol, &limits);
        let io = Noticed {
            io,
            watch: Arc::clone(&watch),
        };
        let connection = builder.serve_connection(TokioIo::new(io), service);
        tokio::pin!(connection);
        let mut streams = FuturesUnordered::new();
        let mut ending = false;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled(), if !ending => {
                    connection.as_mut().graceful_shutdown();
                    ending = true;
                }
                Some(stream) = spawned.recv() => streams.push(stream),
                Some(()) = streams.next(), if !streams.is_empty() => {}
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        tracing::debug!(peer = %peer.0, error, "a connection ended with an error");
                    }
                    return;
                }
                cause = watch.abused(protocol, &limits) => {
                    tracing::debug!(peer = %peer.0, ?cause, "a connection is closed");
                    if cause == Cause::GivesUp {
                        return;
                    }
                    // One that takes too long is told so; one that does not hear is left.
                    connection.as_mut().graceful_shutdown();
                    let _ = timeout(limits.drain.min(Duration::from_secs(1)), connection.as_mut()).await;
                    return;
                }
            }
        }
    }
}

fn builder(streams: Streams, protocol: Protocol, limits: &Limits) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(streams);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(limits.header_bytes.max(8192))
        .max_headers(limits.headers);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(limits.streams)
        .max_pending_accept_reset_streams(UNSEEN_RESETS)
        .max_local_error_reset_streams(REFUSALS)
        .initial_connection_window_size(WINDOW)
        .initial_stream_window_size(WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX));
    match protocol {
        Protocol::Http1 => builder.http1_only(),
        Protocol::Http2 => builder.http2_only(),
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use tokio::time::sleep;

    use super::*;

    const HELLO: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    /// A connection to a handler that takes so long.
    fn connected(takes: Duration) -> (DuplexStream, CancellationToken, JoinHandle<()>) {
        let handler: Handler = Arc::new(move |_| {
            async move {
                sleep(takes).await;
                text(StatusCode::OK, "hello")
            }
            .boxed()
        });
        let (near, far) = duplex(4096);
        let stop = CancellationToken::new();
        let peer = Peer(([127, 0, 0, 1], 1).into());
        let connection = Connection {
            peer,
            limits: Limits::default(),
            handler,
            stop: stop.clone(),
        };
        let serving = connection.serve(far, Protocol::Http1);
        (near, stop, tokio::spawn(serving))
    }

    async fn answer(stream: &mut DuplexStream) -> String {
        let mut buffer = [0; 1024];
        let read = stream.read(&mut buffer).await.unwrap();
        String::from_utf8(buffer[..read].to_vec()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_has_ten_seconds_and_an_idle_connection_ninety() {
        let (mut stream, _stop, serving) = connected(Duration::ZERO);
        stream.write_all(HELLO.as_bytes()).await.unwrap();
        assert!(answer(&mut stream).await.contains("hello"));
        sleep(Duration::from_secs(80)).await;
        assert!(!serving.is_finished(), "idle for less than 90 s");
        stream.write_all(HELLO.as_bytes()).await.unwrap();
        assert!(answer(&mut stream).await.contains("hello"));
        stream.write_all(b"GET / HTTP/1.1\r\nHost: ").await.unwrap();
        let begin = Instant::now();
        serving.await.unwrap();
        let took = begin.elapsed();
        assert!(
            took >= Duration::from_secs(10) && took < Duration::from_secs(12),
            "{took:?}"
        );

        let (mut stream, _stop, serving) = connected(Duration::ZERO);
        stream.write_all(HELLO.as_bytes()).await.unwrap();
        assert!(answer(&mut stream).await.contains("hello"));
        let begin = Instant::now();
        serving.await.unwrap();
        assert_eq!(begin.elapsed().as_secs(), 90);

        let (_silent, _stop, serving) = connected(Duration::ZERO);
        let begin = Instant::now();
        serving.await.unwrap();
        assert_eq!(begin.elapsed().as_secs(), 10, "it never said anything");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_takes_too_long_is_a_503_and_a_request_under_way_ends_after_the_stop() {
        let (mut stream, stop, serving) = connected(Duration::from_secs(3600));
        stream.write_all(HELLO.as_bytes()).await.unwrap();
        assert!(answer(&mut stream).await.starts_with("HTTP/1.1 503"));
        stop.cancel();
        serving.await.unwrap();

        let (mut stream, stop, serving) = connected(Duration::from_secs(3));
        stream.write_all(HELLO.as_bytes()).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        stop.cancel();
        assert!(answer(&mut stream).await.contains("hello"));
        serving.await.unwrap();
    }
}
