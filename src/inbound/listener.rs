//! One listening address.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{Answer, Handler, Request, text};

/// What one listener grants to whoever connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; further ones wait in the kernel's queue. Default 256.
    pub connections: usize,
    /// Until the header is complete, also on a connection that is kept open. Default 5 s.
    pub header: Duration,
    /// From the complete header to the answer. Default 10 s; past it the answer is 503, so that the
    /// sender tries again.
    pub request: Duration,
    /// How long requests in work may go on after the stop. Default 5 s.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            header: Duration::from_secs(5),
            request: Duration::from_secs(10),
            grace: Duration::from_secs(5),
        }
    }
}

/// A listening address. Dropping it closes everything at once; [`Listener::stop`] is kinder.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

// === impl Listener ===

impl Listener {
    /// Listens at `address` (port 0 takes a free one) and answers with `handler`.
    ///
    /// # Errors
    /// When the address cannot be listened at.
    pub fn bind(
        address: SocketAddr,
        limits: Limits,
        handler: Arc<dyn Handler>,
    ) -> io::Result<Self> {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        // A listener that was stopped a moment ago must not keep its successor waiting.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(1024)?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(listener, limits, handler, stop.clone()));
        Ok(Self {
            address,
            stop,
            task: AbortOnDropHandle::new(task),
        })
    }

    /// Where it listens, with the port that was taken.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Accepts nothing more, and returns when the requests in work are answered or the grace is over.
    pub async fn stop(self) {
        self.stop.cancel();
        // A failed join means the task panicked or was aborted: either way it has ended.
        let _ = self.task.await;
    }
}

async fn serve(
    listener: TcpListener,
    limits: Limits,
    handler: Arc<dyn Handler>,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(limits.connections.max(1)));
    let mut connections = JoinSet::new();
    loop {
        let place = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            place = Arc::clone(&places).acquire_owned() => place,
        };
        let Ok(place) = place else { break };
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let handler = Arc::clone(&handler);
                let stop = stop.clone();
                connections.spawn(async move {
                    connection(stream, limits, handler, stop).await;
                    drop(place);
                });
            }
            Err(error) => {
                // Mostly too many open files: it passes when connections end.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(limits.grace, all_ended).await;
}

async fn connection(
    stream: TcpStream,
    limits: Limits,
    handler: Arc<dyn Handler>,
    stop: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request| {
        let handler = Arc::clone(&handler);
        async move { answer(&*handler, request, limits.request).await }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        // Without a timer hyper never applies the header time-out.
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header)
        .max_buf_size(16 * 1024)
        .max_headers(64)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

async fn answer(
    handler: &dyn Handler,
    request: Request,
    limit: Duration,
) -> Result<Answer, NoAnswer> {
    match tokio::time::timeout(limit, handler.handle(request)).await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(NoAnswer),
        Err(_) => {
            let mut answer = text(
                StatusCode::SERVICE_UNAVAILABLE,
                "the request took too long; send it again",
            );
            let close = http::HeaderValue::from_static("close");
            answer.headers_mut().insert(http::header::CONNECTION, close);
            Ok(answer)
        }
    }
}

/// Makes hyper close the connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("closed without an answer")]
struct NoAnswer;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    fn loopback() -> SocketAddr {
        ([127, 0, 0, 1], 0).into()
    }

    fn hello() -> Arc<dyn Handler> {
        Arc::new(|_: Request| async { Some(text(StatusCode::OK, "hello")) })
    }

    async fn exchange(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn a_half_sent_header_is_cut() {
        let limits = Limits {
            header: Duration::from_millis(200),
            ..Limits::default()
        };
        let listener = Listener::bind(loopback(), limits, hello()).unwrap();
        let started = Instant::now();
        let read = exchange(
            listener.local_addr(),
            b"POST / HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        );
        let ended = tokio::time::timeout(Duration::from_secs(5), read).await;
        let answer = ended.expect("the connection must be closed by the server");
        assert!(!answer.contains("200 OK"), "{answer}");
        assert!(started.elapsed() >= Duration::from_millis(200));
    }

    #[tokio::test]
    async fn a_request_past_its_time_is_told_to_come_again() {
        let limits = Limits {
            request: Duration::from_millis(100),
            ..Limits::default()
        };
        let slow: Arc<dyn Handler> =
            Arc::new(|_: Request| std::future::pending::<Option<Answer>>());
        let listener = Listener::bind(loopback(), limits, slow).unwrap();
        let answer = exchange(listener.local_addr(), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    }

    #[tokio::test]
    async fn connections_past_the_bound_wait_for_a_place() {
        let limits = Limits {
            connections: 1,
            header: Duration::from_millis(300),
            ..Limits::default()
        };
        let listener = Listener::bind(loopback(), limits, hello()).unwrap();
        let idle = TcpStream::connect(listener.local_addr()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let started = Instant::now();
        let answer = exchange(listener.local_addr(), request).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(
            started.elapsed() >= Duration::from_millis(150),
            "it had to wait until the idle connection was cut"
        );
        drop(idle);
    }

    #[tokio::test]
    async fn stopping_answers_what_is_in_work_and_frees_the_address() {
        let slow: Arc<dyn Handler> = Arc::new(|_: Request| async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            Some(text(StatusCode::OK, "done"))
        });
        let listener = Listener::bind(loopback(), Limits::default(), slow).unwrap();
        let address = listener.local_addr();
        let request = exchange(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let request = tokio::spawn(request);
        tokio::time::sleep(Duration::from_millis(50)).await;
        listener.stop().await;
        let answer = request.await.unwrap();
        assert!(answer.ends_with("done\n"), "{answer}");
        assert!(TcpStream::connect(address).await.is_err());
        Listener::bind(address, Limits::default(), hello()).unwrap();
    }
}
