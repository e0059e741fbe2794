//! The server: binds an address, accepts connections within its limits, and drains them when it stops.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::activity::Protocol;
use super::connection::Connection;
use super::tls::Tls;
use super::{Handler, Limits, Peer, Running};
#[cfg(feature = "tls")]
use crate::certificates::{self, Certificates};

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 1024;

/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time for the connections that are cut off to be closed.
const ABORT: Duration = Duration::from_secs(1);

/// A server that is configured and does not serve yet. Dropping the future of [`Server::run`] closes every connection.
pub struct Server {
    name: String,
    socket: Socket,
    limits: Limits,
    handler: Handler,
    plain: Protocol,
    tls: Option<Tls>,
    tasks: bool,
}

#[derive(Debug)]
enum Socket {
    Bound(TcpListener),
    Later(SocketAddr),
}

// === impl Server ===

impl Server {
    /// Binds `address`. Port 0 takes a free one.
    ///
    /// # Errors
    /// When the address cannot be bound; the error names it.
    pub async fn bind(
        name: impl Into<String>,
        address: SocketAddr,
        handler: Handler,
    ) -> io::Result<Self> {
        let mut server = Self::later(name, address, handler);
        server.socket = Socket::Bound(bind(&server.name, address)?);
        Ok(server)
    }

    /// Serves on a listener that is bound already, see [`listen`].
    pub fn on(name: impl Into<String>, listener: TcpListener, handler: Handler) -> Self {
        Self::with(name.into(), Socket::Bound(listener), handler)
    }

    /// Binds `address` when it begins to serve: for a server that only the leader has, whose clients must not reach the
    /// other replicas (controller-runtime: `manager.Server` with `OnlyServeWhenLeader`).
    pub fn later(name: impl Into<String>, address: SocketAddr, handler: Handler) -> Self {
        Self::with(name.into(), Socket::Later(address), handler)
    }

    fn with(name: String, socket: Socket, handler: Handler) -> Self {
        Self {
            name,
            socket,
            limits: Limits::default(),
            handler,
            plain: Protocol::Http1,
            tls: None,
            tasks: false,
        }
    }

    /// Sets the limits. A time may be [`Duration::MAX`] for none.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits.countable();
        self
    }

    /// Serves HTTPS with `certificates`, which are kept up to date while the server runs, and offers HTTP/2 if `http2`.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    #[cfg(feature = "tls")]
    pub fn tls(
        mut self,
        certificates: Certificates,
        http2: bool,
    ) -> Result<Self, certificates::Error> {
        self.tls = Some(Tls::new(certificates, http2)?);
        Ok(self)
    }

    /// Accepts HTTP/2 with prior knowledge on connections without TLS, besides HTTP/1.
    #[must_use]
    pub fn plain_http2(mut self) -> Self {
        self.plain = Protocol::Either;
        self
    }

    /// Runs each request in a task of its own, so that the requests of one HTTP/2 connection use several threads, and a
    /// panic of the handler costs that request only: its answer is 500. The task ends with the request: when its client
    /// cancels it, and when the connection ends.
    ///
    /// Without it the requests of a connection run inside the task of the connection, which costs less for short handlers.
    #[must_use]
    pub fn task_per_request(mut self) -> Self {
        self.tasks = true;
        self
    }

    /// The server's name, for logs and errors.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address: with the real port, once it is bound.
    ///
    /// # Errors
    /// When the system does not return it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.socket {
            Socket::Bound(listener) => listener.local_addr(),
            Socket::Later(address) => Ok(*address),
        }
    }

    /// Serves in a task of its own, until the handle is stopped or dropped.
    ///
    /// # Errors
    /// When the system does not return the address.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(self) -> io::Result<Running> {
        Running::start(self)
    }

    /// Serves until `stop`, then lets the requests in work end within [`Limits::drain`].
    ///
    /// # Errors
    /// When the address cannot be bound, if it was not bound before.
    pub async fn run(self, stop: CancellationToken) -> io::Result<()> {
        let listener = match self.socket {
            Socket::Bound(listener) => listener,
            Socket::Later(address) => bind(&self.name, address)?,
        };
        let places = Arc::new(Semaphore::new(self.limits.connections));
        let mut connections = JoinSet::new();
        let certificates = async {
            match &self.tls {
                Some(tls) => tls.watch().await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(certificates);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = &mut certificates => unreachable!("certificates are watched indefinitely"),
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = accept(&listener, &places) => match accepted {
                    Ok((stream, peer, place)) => {
                        let connection = Connection {
                            peer,
                            limits: self.limits,
                            handler: Arc::clone(&self.handler),
                            stop: stop.clone(),
                            tasks: self.tasks,
                            client: None,
                        };
                        let served = connection.run(stream, self.tls.clone(), self.plain);
                        connections.spawn(async move {
                            served.await;
                            drop(place);
                        });
                    }
                    Err(error) => {
                        // Out of file descriptors, most likely: other connections must close first.
                        tracing::warn!(server = %self.name, %error, "could not accept a connection");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        let drained = async { while connections.join_next().await.is_some() {} };
        if timeout(self.limits.drain, drained).await.is_err() && !self.limits.drain.is_zero() {
            tracing::warn!(server = %self.name, "requests were cut off by the stop");
        }
        // A handler that blocks its thread cannot be aborted.
        let _ = timeout(ABORT, connections.shutdown()).await;
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

/// Listens at `address`, also when a listener was closed there a moment ago. Port 0 takes a free one.
///
/// # Errors
/// When the address cannot be bound.
///
/// # Panics
/// Outside a tokio runtime.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        // All of the machine's addresses, also where the system's default is IPv6 alone (`net.ipv6.bindv6only`).
        SockRef::from(&socket).set_only_v6(false)?;
    }
    // On Windows the option lets two listeners share an address.
    if cfg!(not(windows)) {
        socket.set_reuseaddr(true)?;
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn bind(name: &str, address: SocketAddr) -> io::Result<TcpListener> {
    listen(address).map_err(|error| {
        let text = format!("the {name} server cannot listen on {address}: {error}");
        io::Error::new(error.kind(), text)
    })
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, Peer, OwnedSemaphorePermit)> {
    let place = Arc::clone(places)
        .acquire_owned()
        .await
        .map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    // The small pieces of a stream must not wait for one another.
    let _ = stream.set_nodelay(true);
    Ok((stream, Peer(peer), place))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use http::StatusCode;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::text;
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

    #[tokio::test]
    async fn a_server_that_is_stopped_or_dropped_frees_its_address() {
        let bind = |address| Server::on("again", listen(address).unwrap(), hello());
        let running = bind(([127, 0, 0, 1], 0).into()).start().unwrap();
        let address = running.local_addr();
        let request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        assert!(exchange(address, request).await.contains("hello"));
        running.stop().await;
        assert!(TcpStream::connect(address).await.is_err());
        let running = bind(address).start().unwrap();
        assert!(exchange(address, request).await.contains("hello"));
        drop(running);
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_stop_answers_the_request_in_work() {
        let (enters, mut entered) = tokio::sync::mpsc::unbounded_channel();
        let goes_on = Arc::new(tokio::sync::Notify::new());
        let waits = Arc::clone(&goes_on);
        let handler: Handler = Arc::new(move |_| {
            let _ = enters.send(());
            let waits = Arc::clone(&waits);
            async move {
                waits.notified().await;
                text(StatusCode::OK, "done")
            }
            .boxed()
        });
        let server = Server::on("slow", listen(([127, 0, 0, 1], 0).into()).unwrap(), handler);
        let running = server.start().unwrap();
        let address = running.local_addr();
        let request = exchange(address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let request = tokio::spawn(request);
        entered.recv().await.unwrap();
        let stopping = tokio::spawn(running.stop());
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        goes_on.notify_one();
        stopping.await.unwrap();
        let answer = request.await.unwrap();
        assert!(answer.ends_with("done"), "{answer}");
    }
}
