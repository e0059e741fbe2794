//! A small HTTP server with a limit on everything: what health and metrics are served by, and any endpoint of a
//! program that wants the same limits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// What answers requests. A panic costs the connection only.
pub type Handler =
    Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Full<Bytes>>> + Send + Sync>;

/// What a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long the header of a request may take, and how long a connection may be idle.
    pub header_timeout: Duration,
    /// How large the header of a request may be, in bytes; at least 8192. hyper looks after each read, so up to twice
    /// as much may pass.
    pub header_bytes: usize,
    /// How many header lines a request may have.
    pub headers: usize,
    /// How long an answer may take, counted from the header; 503 after that.
    pub answer_timeout: Duration,
    /// Connections at once. Further ones wait in the kernel.
    pub connections: usize,
    /// How long requests under way may go on when the server stops.
    pub drain: Duration,
}

impl Default for Limits {
    /// 10 s for a header of at most 64 KiB and 100 lines, 10 s for the answer, 256 connections, 5 s to drain.
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_secs(10),
            header_bytes: 64 * 1024,
            headers: 100,
            answer_timeout: Duration::from_secs(10),
            connections: 256,
            drain: Duration::from_secs(5),
        }
    }
}

/// A bound server, not yet serving.
pub struct Server {
    name: String,
    listener: TcpListener,
    limits: Limits,
    handler: Handler,
}

// === impl Server ===

impl Server {
    /// Binds `address`.
    ///
    /// # Errors
    /// When the address cannot be bound; the error names it.
    pub async fn bind(
        name: impl Into<String>,
        address: SocketAddr,
        handler: Handler,
    ) -> std::io::Result<Self> {
        let name = name.into();
        let listener = TcpListener::bind(address).await.map_err(|error| {
            let text = format!("the {name} server cannot listen on {address}: {error}");
            std::io::Error::new(error.kind(), text)
        })?;
        Ok(Self {
            name,
            listener,
            limits: Limits::default(),
            handler,
        })
    }

    /// Sets other limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Where it listens: the real port if the address said 0.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`, then lets requests under way end.
    ///
    /// # Errors
    /// None; the result fits a [`Runnable`](crate::manager::Runnable).
    pub async fn run(self, stop: CancellationToken) -> Result<(), std::io::Error> {
        let places = Arc::new(Semaphore::new(self.limits.connections));
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = accept(&self.listener, &places) => match accepted {
                    Ok((stream, place)) => {
                        let serve = serve(stream, self.limits, Arc::clone(&self.handler), stop.clone());
                        connections.spawn(async move {
                            serve.await;
                            drop(place);
                        });
                    }
                    Err(error) => {
                        // Out of file descriptors, most likely: others must close theirs first.
                        tracing::warn!(server = %self.name, %error, "a connection could not be accepted");
                        sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
        let drained = async { while connections.join_next().await.is_some() {} };
        if timeout(self.limits.drain, drained).await.is_err() {
            tracing::warn!(server = %self.name, "requests were cut off at the stop");
        }
        Ok(())
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.name)
            .field("listener", &self.listener)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places)
        .acquire_owned()
        .await
        .map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

async fn serve(stream: TcpStream, limits: Limits, handler: Handler, stop: CancellationToken) {
    let service = service_fn(move |request: Request<Incoming>| {
        let handler = Arc::clone(&handler);
        async move {
            let answer = timeout(limits.answer_timeout, handler(request)).await;
            let answer = answer.unwrap_or_else(|_| {
                text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the answer took too long\n",
                )
            });
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        // Without a timer hyper does not enforce the header time-out, and says nothing.
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(limits.header_bytes.max(8192))
        .max_headers(limits.headers)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        biased;
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        result = connection.as_mut() => {
            if let Err(error) = result {
                tracing::debug!(%error, "a connection ended with an error");
            }
            return;
        }
    }
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection ended with an error");
    }
}

/// A plain-text answer.
#[must_use]
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    answer(status, "text/plain; charset=utf-8", body)
}

/// An answer of a content type, which browsers must not guess otherwise.
#[must_use]
pub fn answer(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static(content_type),
    );
    headers.insert(
        http::header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn hello() -> Handler {
        Arc::new(|_| async { text(StatusCode::OK, "hello") }.boxed())
    }

    async fn started(limits: Limits) -> (SocketAddr, CancellationToken, JoinSet<()>) {
        let server = Server::bind("test", ([127, 0, 0, 1], 0).into(), hello())
            .await
            .unwrap()
            .limits(limits);
        let address = server.local_addr().unwrap();
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let token = stop.clone();
        tasks.spawn(async move { server.run(token).await.unwrap() });
        (address, stop, tasks)
    }

    async fn exchange(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The server may close before it has read everything.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    #[tokio::test]
    async fn a_half_sent_header_is_cut_off() {
        let limits = Limits {
            header_timeout: Duration::from_millis(100),
            ..Limits::default()
        };
        let (address, stop, mut tasks) = started(limits).await;
        let answer = timeout(
            Duration::from_secs(20),
            exchange(address, "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "),
        )
        .await
        .expect("the connection is closed by the server");
        assert!(!answer.contains("hello"));
        stop.cancel();
        tasks.join_next().await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_header_too_large_is_refused() {
        let (address, stop, mut tasks) = started(Limits::default()).await;
        let huge = format!(
            "GET / HTTP/1.1\r\nHost: x\r\nX-Huge: {}\r\n\r\n",
            "a".repeat(256 * 1024)
        );
        let answer = exchange(address, &huge).await;
        assert!(!answer.contains("hello"), "{answer}");
        stop.cancel();
        tasks.join_next().await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn more_connections_than_allowed_wait_their_turn() {
        let limits = Limits {
            connections: 1,
            ..Limits::default()
        };
        let (address, stop, mut tasks) = started(limits).await;
        let idle = TcpStream::connect(address).await.unwrap();
        let waiting = exchange(
            address,
            "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        );
        let mut waiting = std::pin::pin!(waiting);
        assert!(
            timeout(Duration::from_millis(200), waiting.as_mut())
                .await
                .is_err(),
            "the only place is taken"
        );
        drop(idle);
        assert!(waiting.await.contains("hello"));
        stop.cancel();
        tasks.join_next().await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let (address, stop, mut tasks) = started(Limits::default()).await;
        let error = Server::bind("second", address, hello()).await.unwrap_err();
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        stop.cancel();
        tasks.join_next().await.unwrap().unwrap();
    }
}
