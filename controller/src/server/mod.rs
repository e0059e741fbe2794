//! A small HTTP server with a limit on everything: what health and metrics are served by, and any endpoint of a
//! program that wants the same limits.
//!
//! ```no_run
//! use reeve_controller::server::{Router, Server, text};
//! # async fn example(manager: reeve_controller::Manager) -> Result<(), Box<dyn std::error::Error>> {
//! let router = Router::new().route("/hello", |_| async { text(http::StatusCode::OK, "hello\n") })?;
//! let server = Server::bind("hello", ([0, 0, 0, 0], 8082).into(), router.into_handler()).await?;
//! manager.add(server.runnable())?;
//! // Or on the leader only; the address is bound when it leads.
//! let router = Router::new().route("/leads", |_| async { text(http::StatusCode::OK, "I do\n") })?;
//! let server = Server::later("leads", ([0, 0, 0, 0], 8083).into(), router.into_handler());
//! manager.add(server.runnable_when_leading())?;
//! # Ok(())
//! # }
//! ```

mod connection;
mod router;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::certificates::{self, Certificates};
use crate::manager::{FOR_EVER, Runnable};
use connection::{Connection, Protocol};
pub use router::{RouteError, Router};

/// What is answered.
pub type Answer = Response<Full<Bytes>>;

/// What answers requests. A panic costs the connection only. Who asks is the request's extension [`Peer`].
pub type Handler = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Answer> + Send + Sync>;

/// Who sent a request: the other end of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// What a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long the header of a request may take, from its first byte; how long a new connection may say nothing; and
    /// how long TLS may take to begin.
    pub header_timeout: Duration,
    /// How long a connection may stay without a request.
    pub idle: Duration,
    /// How large the header of a request may be, in bytes; at least 8192. hyper looks after each read, so up to twice
    /// as much may pass.
    pub header_bytes: usize,
    /// How many header lines a request may have (HTTP/1).
    pub headers: usize,
    /// How long an answer may take, counted from the header; 503 after that.
    pub answer_timeout: Duration,
    /// Connections at once. Further ones wait in the kernel.
    pub connections: usize,
    /// Requests at once on one connection (HTTP/2). Further ones are refused, and the connection ends when they are many.
    pub streams: u32,
    /// How many more requests a client may give up on one connection than it waits for (HTTP/2, "rapid reset"); the
    /// connection is closed then.
    pub given_up: u32,
    /// How long requests under way may go on when the server stops.
    pub drain: Duration,
}

impl Default for Limits {
    /// 10 s for a header of at most 64 KiB and 100 lines, 90 s idle, 10 s for the answer, 256 connections with 100
    /// requests each, of which 100 may be given up, 5 s to drain. (controller-runtime: 32 s, 1 MiB, 90 s, none, none, 250,
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
    /// The same limits, each of which can be added to a time or counted.
    fn countable(self) -> Self {
        Self {
            header_timeout: self.header_timeout.min(FOR_EVER),
            idle: self.idle.min(FOR_EVER),
            answer_timeout: self.answer_timeout.min(FOR_EVER),
            drain: self.drain.min(FOR_EVER),
            connections: self.connections.min(Semaphore::MAX_PERMITS),
            ..self
        }
    }
}

/// A server that does not serve yet.
pub struct Server {
    name: String,
    socket: Socket,
    limits: Limits,
    handler: Handler,
    tls: Option<Tls>,
}

#[derive(Clone)]
struct Tls {
    acceptor: TlsAcceptor,
    certificates: Certificates,
}

#[derive(Debug)]
enum Socket {
    Bound(TcpListener),
    Later(SocketAddr),
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
        let mut server = Self::later(name, address, handler);
        server.socket = Socket::Bound(listen(&server.name, address).await?);
        Ok(server)
    }

    /// Binds `address` when it begins to serve: for a server that only the leader has, whose clients must not reach the
    /// others (controller-runtime: `manager.Server` with `OnlyServeWhenLeader`).
    pub fn later(name: impl Into<String>, address: SocketAddr, handler: Handler) -> Self {
        Self {
            name: name.into(),
            socket: Socket::Later(address),
            limits: Limits::default(),
            handler,
            tls: None,
        }
    }

    /// Sets other limits. A time may be [`Duration::MAX`] for none.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits.countable();
        self
    }

    /// Serves HTTPS with `certificates`, which it keeps up to date; HTTP/2 to who wants it, if `http2`.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn tls(
        mut self,
        certificates: Certificates,
        http2: bool,
    ) -> Result<Self, certificates::Error> {
        let config = certificates.server_config(http2)?;
        self.tls = Some(Tls {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            certificates,
        });
        Ok(self)
    }

    /// Where it listens: the real port if the address said 0, once it is bound.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        match &self.socket {
            Socket::Bound(listener) => listener.local_addr(),
            Socket::Later(address) => Ok(*address),
        }
    }

    /// For a manager: serves on every replica, from the start until everything else has ended.
    #[must_use]
    pub fn runnable(self) -> Runnable {
        self.runnable_when_leading().as_server()
    }

    /// For a manager: serves while this replica leads.
    #[must_use]
    pub fn runnable_when_leading(self) -> Runnable {
        Runnable::new(format!("{} server", self.name), move |stop| self.run(stop))
    }

    /// Serves until `stop`, then lets requests under way end.
    ///
    /// # Errors
    /// When the address cannot be bound, if it was not yet.
    pub async fn run(self, stop: CancellationToken) -> std::io::Result<()> {
        let listener = match self.socket {
            Socket::Bound(listener) => listener,
            Socket::Later(address) => listen(&self.name, address).await?,
        };
        let places = Arc::new(Semaphore::new(self.limits.connections));
        let mut connections = JoinSet::new();
        let certificates = async {
            match &self.tls {
                Some(tls) => tls.certificates.watch().await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(certificates);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = &mut certificates => unreachable!("certificates are watched for ever"),
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = accept(&listener, &places) => match accepted {
                    Ok((stream, peer, place)) => {
                        let connection = Connection {
                            peer,
                            limits: self.limits,
                            handler: Arc::clone(&self.handler),
                            stop: stop.clone(),
                        };
                        let tls = self.tls.as_ref().map(|tls| tls.acceptor.clone());
                        connections.spawn(async move {
                            match tls {
                                Some(acceptor) => connection.serve_tls(stream, acceptor).await,
                                None => connection.serve(stream, Protocol::Http1).await,
                            }
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
        drop(listener);
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
            .field("socket", &self.socket)
            .field("limits", &self.limits)
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

async fn listen(name: &str, address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        let text = format!("the {name} server cannot listen on {address}: {error}");
        std::io::Error::new(error.kind(), text)
    })
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, Peer, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places)
        .acquire_owned()
        .await
        .map_err(std::io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, Peer(peer), place))
}

/// A plain-text answer.
#[must_use]
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    answer(status, "text/plain; charset=utf-8", body)
}

/// An answer of a content type, which browsers must not guess otherwise.
#[must_use]
pub fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
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
    async fn limits_may_be_none() {
        let limits = Limits {
            header_timeout: Duration::MAX,
            idle: Duration::MAX,
            answer_timeout: Duration::MAX,
            drain: Duration::MAX,
            connections: usize::MAX,
            ..Limits::default()
        };
        let (address, stop, mut tasks) = started(limits).await;
        let request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        assert!(exchange(address, request).await.contains("hello"));
        stop.cancel();
        tasks.join_next().await.unwrap().unwrap();
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
    async fn a_server_for_later_listens_when_it_runs() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server::later("late", taken.local_addr().unwrap(), hello());
        let error = server.run(CancellationToken::new()).await.unwrap_err();
        assert!(
            error.to_string().contains("the late server cannot listen"),
            "{error}"
        );
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
