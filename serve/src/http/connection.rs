//! One connection: its protocol, its time-outs and its end.
//!
//! Requests, also the many of one HTTP/2 connection, run inside the connection's own task, and end with it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::CONNECTION;
use http::{HeaderValue, Response, StatusCode, Version};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::coop;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::activity::{Activity, Cause, Protocol, Recorded, Tracked};
use super::answer::is_hang_up;
use super::driven::{Driven, Spawned};
use super::tls::Tls;
use super::{Answer, ClientCertificate, Handler, Limits, Peer, Request, text};

/// Interval of the pings to a silent HTTP/2 peer.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Time for the answer to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Time for the goodbye to a peer that took too long.
const GOODBYE: Duration = Duration::from_secs(1);

/// HTTP/2 requests that may be reset before the server has seen them (CVE-2023-44487). One more ends the connection.
const UNSEEN_RESETS: usize = 20;
/// HTTP/2 requests that a connection may have refused, as one too many or as a violation of the protocol. One more ends it.
const REFUSALS: usize = 256;
/// Bytes of bodies that an HTTP/2 client may send before they are read, of a connection and of each request.
const WINDOW: u32 = 64 * 1024;
/// Bytes of an answer that are kept for an HTTP/2 client that does not read, besides the answer itself.
const SEND_BUFFER: usize = 64 * 1024;

/// The bytes of a connection, plain or of TLS. hyper's connection is large, and is compiled for this type alone.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<IO: AsyncRead + AsyncWrite + Send + Unpin> Stream for IO {}

/// Makes hyper close the connection, or reset the request, without an answer.
#[derive(Debug, thiserror::Error)]
#[error("closed without an answer")]
struct Closed;

/// A connection that was accepted, and the rules for it.
pub(super) struct Connection {
    pub(super) peer: Peer,
    pub(super) limits: Limits,
    pub(super) handler: Handler,
    pub(super) stop: CancellationToken,
    /// Whether each request is a task of its own.
    pub(super) tasks: bool,
    /// `None` before the handshake, and for a client without one.
    pub(super) client: Option<ClientCertificate>,
}

// === impl Connection ===

impl Connection {
    /// Serves `plain`, or what the handshake of `tls` chooses. The future is made here, because a caller in another crate would
    /// compile hyper again.
    #[inline(never)]
    pub(super) fn run(
        self,
        stream: TcpStream,
        tls: Option<Tls>,
        plain: Protocol,
    ) -> BoxFuture<'static, ()> {
        match tls {
            Some(tls) => Box::pin(self.serve_tls(stream, tls)),
            None => Box::pin(self.serve(Box::new(stream), plain)),
        }
    }

    /// Completes the TLS handshake, then serves the protocol that it chose.
    async fn serve_tls(self, stream: TcpStream, tls: Tls) {
        let handshake = tokio::select! {
            biased;
            () = self.stop.cancelled() => return,
            handshake = timeout(self.limits.header_timeout, tls.accept(stream)) => handshake,
        };
        let problem = match handshake {
            Ok(Ok((stream, protocol, client))) => {
                let connection = Self { client, ..self };
                return connection.serve(Box::new(stream), protocol).await;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it took too long".to_owned(),
        };
        tracing::debug!(peer = %self.peer.0, problem, "TLS handshake failed");
    }

    /// Answers requests until the peer leaves or takes too long. After the stop, only the requests in work are answered.
    async fn serve(self, io: Box<dyn Stream>, protocol: Protocol) {
        let Self {
            peer,
            limits,
            handler,
            stop,
            tasks,
            client,
        } = self;
        let handler = if tasks { in_tasks(handler) } else { handler };
        let spawned = Spawned::new();
        let activity = Activity::new(protocol, spawned.begun());
        let service = {
            let activity = Arc::clone(&activity);
            service_fn(move |mut request: Request| {
                if let Some(client) = &client {
                    request.extensions_mut().insert(client.clone());
                }
                answer(&activity, &handler, peer, limits, request)
            })
        };
        let builder = builder(spawned.clone(), protocol, &limits);
        let io = Recorded::new(io, Arc::clone(&activity));
        let connection = builder.serve_connection(TokioIo::new(io), service);
        let connection = pin!(connection);
        let mut driven = Driven::new(connection, spawned);
        let mut ending = false;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled(), if !ending => {
                    driven.connection().graceful_shutdown();
                    ending = true;
                }
                result = &mut driven => {
                    if let Err(error) = result {
                        tracing::debug!(peer = %peer.0, error, "connection ended with an error");
                    }
                    return;
                }
                // Without the budget, which the connection may have used up.
                cause = coop::unconstrained(activity.abused(&limits)) => {
                    tracing::debug!(peer = %peer.0, ?cause, "connection closed");
                    if cause == Cause::GivesUp {
                        return;
                    }
                    // HTTP/2 sends a GOAWAY, unless the peer does not read.
                    driven.connection().graceful_shutdown();
                    let _ = timeout(limits.drain.min(GOODBYE), &mut driven).await;
                    return;
                }
            }
        }
    }
}

/// Runs each call of `handler` in a task, which ends when its future is dropped.
fn in_tasks(handler: Handler) -> Handler {
    Arc::new(move |request| {
        let handler = Arc::clone(&handler);
        let task = tokio::spawn(async move { handler(request).await });
        let task = AbortOnDropHandle::new(task);
        Box::pin(async move {
            task.await.unwrap_or_else(|error| {
                tracing::error!(%error, "the handler of a request panicked");
                let text = "the handler panicked\n";
                super::text(StatusCode::INTERNAL_SERVER_ERROR, text)
            })
        })
    })
}

/// Has `handler` answer `request` within the limits.
fn answer(
    activity: &Arc<Activity>,
    handler: &Handler,
    peer: Peer,
    limits: Limits,
    mut request: Request,
) -> impl Future<Output = Result<Response<Tracked>, Closed>> + Send + use<> {
    let flight = activity.begin();
    request.extensions_mut().insert(peer);
    let version = request.version();
    let answer = timeout(limits.answer_timeout, handler(request));
    async move {
        let answer = answer.await.unwrap_or_else(|_| too_late(version));
        if is_hang_up(&answer) {
            flight.refused();
            return Err(Closed);
        }
        Ok(answer.map(|body| flight.answered(body)))
    }
}

/// The answer in place of one that took too long. HTTP/1 connections end with it: part of the request may not be read.
fn too_late(version: Version) -> Answer {
    let mut answer = text(
        StatusCode::SERVICE_UNAVAILABLE,
        "the answer took too long\n",
    );
    if version < Version::HTTP_2 {
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(CONNECTION, close);
    }
    answer
}

fn builder(spawned: Spawned, protocol: Protocol, limits: &Limits) -> auto::Builder<Spawned> {
    let mut builder = auto::Builder::new(spawned);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(limits.header_bytes.max(8192))
        .max_headers(limits.headers);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
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
        Protocol::Either => builder,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use http_body_util::StreamBody;
    use http_body_util::combinators::UnsyncBoxBody;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use tokio::time::{Instant, sleep};

    use super::super::{Body, hang_up};
    use super::*;

    const HELLO: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    /// A connection to a handler that takes `takes`.
    fn connected(takes: Duration) -> (DuplexStream, CancellationToken, JoinHandle<()>) {
        let handler: Handler = Arc::new(move |_| {
            async move {
                sleep(takes).await;
                text(StatusCode::OK, "hello")
            }
            .boxed()
        });
        connected_to(handler, Protocol::Http1)
    }

    fn connected_to(
        handler: Handler,
        protocol: Protocol,
    ) -> (DuplexStream, CancellationToken, JoinHandle<()>) {
        connected_over(4096, handler, protocol)
    }

    /// A connection that takes `buffer` bytes that are not read.
    fn connected_over(
        buffer: usize,
        handler: Handler,
        protocol: Protocol,
    ) -> (DuplexStream, CancellationToken, JoinHandle<()>) {
        let (near, far) = duplex(buffer);
        let stop = CancellationToken::new();
        let peer = Peer(([127, 0, 0, 1], 1).into());
        let connection = Connection {
            peer,
            limits: Limits::default(),
            handler,
            stop: stop.clone(),
            tasks: false,
            client: None,
        };
        let serving = connection.serve(Box::new(far), protocol);
        (near, stop, tokio::spawn(serving))
    }

    async fn read(stream: &mut DuplexStream) -> String {
        let mut buffer = [0; 1024];
        let length = stream.read(&mut buffer).await.unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_has_ten_seconds_and_an_idle_connection_ninety() {
        let (mut stream, _stop, serving) = connected(Duration::ZERO);
        stream.write_all(HELLO.as_bytes()).await.unwrap();
        assert!(read(&mut stream).await.contains("hello"));
        sleep(Duration::from_secs(80)).await;
        assert!(!serving.is_finished(), "idle for less than 90 s");
        stream.write_all(HELLO.as_bytes()).await.unwrap();
        assert!(read(&mut stream).await.contains("hello"));
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
        assert!(read(&mut stream).await.contains("hello"));
        let begin = Instant::now();
        serving.await.unwrap();
        assert_eq!(begin.elapsed().as_secs(), 90);

        let (_silent, _stop, serving) = connected(Duration::ZERO);
        let begin = Instant::now();
        serving.await.unwrap();
        assert_eq!(begin.elapsed().as_secs(), 10, "nothing was sent");

        // A header that begins long before the connection would have been idle for too long.
        let (mut stream, _stop, serving) = connected(Duration::ZERO);
        stream.write_all(HELLO.as_bytes()).await.unwrap();
        assert!(read(&mut stream).await.contains("hello"));
        sleep(Duration::from_secs(33)).await;
        stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let begin = Instant::now();
        serving.await.unwrap();
        assert_eq!(begin.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_http2_connection_has_ninety_seconds_though_its_peer_answers_pings() {
        const PING: u8 = 6;
        const GOAWAY: u8 = 7;
        let handler: Handler = Arc::new(|_| async { text(StatusCode::OK, "hello") }.boxed());
        let (mut stream, _stop, serving) = connected_to(handler, Protocol::Http2);
        let begin = Instant::now();
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        stream.write_all(preface).await.unwrap();
        stream.write_all(&settings).await.unwrap();
        let mut pings = 0;
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await.unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            stream.read_exact(&mut payload).await.unwrap();
            match (head[3], head[4]) {
                (PING, 0) => {
                    pings += 1;
                    head[4] = 1;
                    stream.write_all(&head).await.unwrap();
                    stream.write_all(&payload).await.unwrap();
                }
                (GOAWAY, _) => break,
                _ => {}
            }
        }
        assert_eq!(begin.elapsed().as_secs(), 90);
        assert!(pings >= 2, "{pings} pings");
        drop(stream);
        serving.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_takes_too_long_is_a_503_and_a_request_under_way_ends_after_the_stop() {
        let (mut stream, stop, serving) = connected(Duration::from_secs(3600));
        stream.write_all(HELLO.as_bytes()).await.unwrap();
        assert!(read(&mut stream).await.starts_with("HTTP/1.1 503"));
        stop.cancel();
        serving.await.unwrap();

        let (mut stream, stop, serving) = connected(Duration::from_secs(3));
        stream.write_all(HELLO.as_bytes()).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        stop.cancel();
        assert!(read(&mut stream).await.contains("hello"));
        serving.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_not_idle_and_its_connection_is_when_the_stream_has_ended() {
        let handler: Handler = Arc::new(|_| {
            let pieces = futures::stream::unfold(0, |piece| async move {
                if piece == 5 {
                    return None;
                }
                sleep(Duration::from_secs(80)).await;
                Some((Ok(http_body::Frame::data("piece".into())), piece + 1))
            });
            let body = UnsyncBoxBody::new(StreamBody::new(pieces));
            std::future::ready(Answer::new(Body::pieces(body))).boxed()
        });
        let (mut stream, _stop, serving) = connected_to(handler, Protocol::Http1);
        stream.write_all(HELLO.as_bytes()).await.unwrap();
        let begin = Instant::now();
        let mut everything = String::new();
        stream.read_to_string(&mut everything).await.unwrap();
        assert_eq!(everything.matches("piece").count(), 5, "{everything}");
        assert_eq!(begin.elapsed().as_secs(), 5 * 80 + 90);
        serving.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_of_a_stream_for_the_idle_time_is_cut_off() {
        let handler: Handler = Arc::new(|_| {
            let pieces = futures::stream::repeat_with(|| {
                Ok(http_body::Frame::data(vec![b'x'; 1024].into()))
            });
            let body = UnsyncBoxBody::new(StreamBody::new(pieces));
            std::future::ready(Answer::new(Body::pieces(body))).boxed()
        });
        let (mut stream, _stop, serving) = connected_to(handler, Protocol::Http1);
        stream.write_all(HELLO.as_bytes()).await.unwrap();
        // A slow reader goes on.
        let begin = Instant::now();
        let mut buffer = [0; 8192];
        for _ in 0..5 {
            sleep(Duration::from_secs(80)).await;
            assert!(!serving.is_finished());
            stream.read_exact(&mut buffer).await.unwrap();
        }
        let ended = timeout(Duration::from_secs(200), serving).await;
        ended.expect("it is cut off").unwrap();
        let unread = begin.elapsed() - Duration::from_secs(5 * 80);
        assert!((90..=91).contains(&unread.as_secs()), "{unread:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_gets_a_whole_answer_to_its_end() {
        const LENGTH: usize = 65_536;
        let handler: Handler = Arc::new(|_| {
            let body = Body::whole(vec![b'x'; LENGTH]);
            std::future::ready(Answer::new(body)).boxed()
        });
        let (mut stream, _stop, serving) = connected_to(handler, Protocol::Http1);
        stream.write_all(HELLO.as_bytes()).await.unwrap();
        let (mut received, mut buffer) = (0, [0; 8192]);
        while received < LENGTH {
            sleep(Duration::from_secs(80)).await;
            let length = stream.read(&mut buffer).await.unwrap();
            assert!(length > 0, "it ends after {received} bytes");
            received += length;
        }
        let idle = Instant::now();
        serving.await.unwrap();
        let idle = idle.elapsed().as_secs();
        assert!((80..=91).contains(&idle), "{idle}");
    }

    /// The bodies of two answers over one HTTP/2 connection, which ends as `JoinHandle` does. The client has windows of 16 KiB,
    /// which grow with what it reads.
    async fn http2(
        handler: Handler,
    ) -> (
        [hyper::body::Incoming; 2],
        JoinHandle<()>,
        AbortOnDropHandle<()>,
    ) {
        use hyper_util::rt::TokioExecutor;

        // The window alone holds up the answer.
        let (stream, stop, serving) = connected_over(1 << 20, handler, Protocol::Http2);
        let (mut sender, connection) =
            hyper::client::conn::http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(16 * 1024)
                .handshake(TokioIo::new(stream))
                .await
                .unwrap();
        let client = AbortOnDropHandle::new(tokio::spawn(async move {
            let _ = connection.await;
            drop(stop);
        }));
        let mut ask = async |path: &str| {
            let request = http::Request::get(format!("http://x/{path}"));
            let request = request.body(http_body_util::Empty::<bytes::Bytes>::new());
            let answer = sender.send_request(request.unwrap()).await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
            answer.into_body()
        };
        let bodies = [ask("one").await, ask("other").await];
        // Without the sender, the client would close the connection.
        let client = AbortOnDropHandle::new(tokio::spawn(async move {
            let _ = client.await;
            drop(sender);
        }));
        (bodies, serving, client)
    }

    /// Answers the first request with `body`, and the other with rare pieces.
    fn answers_with(body: fn() -> Body) -> Handler {
        Arc::new(move |request| {
            let body = match request.uri().path() {
                "/one" => body(),
                _ => rare(),
            };
            std::future::ready(Answer::new(body)).boxed()
        })
    }

    /// Three pieces, in four times 1,000 s.
    fn rare() -> Body {
        let pieces = futures::stream::unfold(0, |piece| async move {
            sleep(Duration::from_secs(1000)).await;
            (piece < 3).then(|| (Ok(http_body::Frame::data("piece".into())), piece + 1))
        });
        Body::pieces(UnsyncBoxBody::new(StreamBody::new(pieces)))
    }

    fn endless() -> Body {
        let pieces =
            futures::stream::repeat_with(|| Ok(http_body::Frame::data(vec![b'x'; 1024].into())));
        Body::pieces(UnsyncBoxBody::new(StreamBody::new(pieces)))
    }

    #[tokio::test(start_paused = true)]
    async fn an_http2_answer_of_which_nothing_is_read_ends_alone_after_the_idle_time() {
        use http_body_util::BodyExt;

        for body in [endless, || Body::whole(vec![b'x'; 1 << 20])] {
            let ([unread, other], serving, _client) = http2(answers_with(body)).await;
            let begin = Instant::now();
            // What came before the end is there, and no more.
            sleep(Duration::from_secs(92)).await;
            let error = unread.collect().await.err();
            assert!(error.is_some());
            assert!(begin.elapsed() < Duration::from_secs(93));
            let everything = other.collect().await.unwrap().to_bytes();
            assert_eq!(everything, "piece".repeat(3), "another answer goes on");
            assert_eq!(begin.elapsed().as_secs(), 4000);
            serving.await.unwrap();
            assert_eq!(begin.elapsed().as_secs(), 4090, "the connection is idle");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_http2_client_that_reads_slowly_gets_a_whole_answer_to_its_end() {
        use http_body_util::BodyExt;

        const LENGTH: usize = 200_000;
        let whole = || Body::whole(vec![b'x'; LENGTH]);
        let ([mut body, other], _serving, _client) = http2(answers_with(whole)).await;
        drop(other);
        let begin = Instant::now();
        let mut received = 0;
        while let Some(frame) = body.frame().await {
            received += frame.unwrap().into_data().unwrap().len();
            sleep(Duration::from_secs(20)).await;
        }
        assert_eq!(received, LENGTH);
        assert!(begin.elapsed() > Duration::from_secs(200));
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_that_hangs_up_closes_the_connection_without_a_byte() {
        let handler: Handler = Arc::new(|_| std::future::ready(hang_up()).boxed());
        let (mut stream, _stop, serving) = connected_to(handler, Protocol::Http1);
        stream.write_all(HELLO.as_bytes()).await.unwrap();
        let mut everything = Vec::new();
        stream.read_to_end(&mut everything).await.unwrap();
        assert_eq!(everything, b"");
        serving.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_of_either_protocol_has_ten_seconds_until_its_preface_is_complete() {
        let handler: Handler =
            Arc::new(|_| std::future::ready(text(StatusCode::OK, "hello")).boxed());
        // With its preface complete, the peer leaves a ping unanswered.
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let whole = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &settings].concat();
        for (sent, open) in [(&whole[..8], 10..15), (&whole[..], 45..50)] {
            let (mut stream, _stop, serving) = connected_to(Arc::clone(&handler), Protocol::Either);
            let begin = Instant::now();
            stream.write_all(sent).await.unwrap();
            let mut everything = Vec::new();
            let _ = stream.read_to_end(&mut everything).await;
            serving.await.unwrap();
            let took = begin.elapsed().as_secs();
            assert!(open.contains(&took), "{took} s, and not {open:?}");
        }
        let (mut stream, _stop, _serving) = connected_to(handler, Protocol::Either);
        stream.write_all(HELLO.as_bytes()).await.unwrap();
        assert!(read(&mut stream).await.contains("hello"));
    }
}
