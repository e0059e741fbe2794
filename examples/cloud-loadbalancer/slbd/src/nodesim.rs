//! Simulated nodes and Pods: ports that forward, and processes that answer.
//!
//! A [`Forwarder`] is a node port, as kube-proxy keeps it: each connection goes to one of its Pods in turn, and to the next one if that
//! does not accept. [`health`] is the health check port of a node, and [`pod`] a Pod that answers with its name.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reeve_serve::http::{Handler, Limits, Running, Server, StatusCode, answer, listen, text};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// The connections of a forwarder at once. More wait to be accepted.
const MOST_CONNECTIONS: usize = 4096;
/// The time that a Pod has to accept a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// The time before a failed accept is tried again.
const AGAIN: Duration = Duration::from_millis(50);

/// The Pods behind a node port.
pub type Pods = watch::Receiver<Vec<SocketAddr>>;

/// A node port. Its connections are cut when it is dropped.
#[derive(Debug)]
pub struct Forwarder {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<JoinSet<()>>,
}

// === impl Forwarder ===

impl Forwarder {
    /// Forwards connections at `address` to `pods`. Port 0 takes a free one.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn start(address: SocketAddr, pods: Pods) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(forward(listener, pods, stop.clone()));
        Ok(Self {
            address,
            stop,
            task,
        })
    }

    /// The address, with the port that was chosen.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts nothing more, and cuts the connections that have not ended after `drain`.
    pub async fn stop(mut self, drain: Duration) {
        self.stop.cancel();
        if let Ok(mut connections) = (&mut self.task).await {
            let ended = async { while connections.join_next().await.is_some() {} };
            let _ = timeout(drain, ended).await;
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(listener: TcpListener, pods: Pods, stop: CancellationToken) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    let turn = Arc::new(AtomicUsize::new(0));
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= MOST_CONNECTIONS {
            connections.join_next().await;
        }
        let accepted = tokio::select! {
            () = stop.cancelled() => return connections,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((client, _)) => {
                connections.spawn(one(client, pods.clone(), Arc::clone(&turn)));
            }
            // Out of files, mostly.
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

async fn one(mut client: TcpStream, pods: Pods, turn: Arc<AtomicUsize>) {
    let pods = pods.borrow().clone();
    let first = turn.fetch_add(1, Ordering::Relaxed);
    for index in 0..pods.len() {
        let pod = pods[(first + index) % pods.len()];
        if let Ok(Ok(mut pod)) = timeout(CONNECT, TcpStream::connect(pod)).await {
            let _ = client.set_nodelay(true);
            let _ = pod.set_nodelay(true);
            let _ = copy_bidirectional(&mut client, &mut pod).await;
            return;
        }
    }
}

/// A health check port: 200 while there are Pods, and 503 without.
///
/// # Errors
/// When the address cannot be bound.
pub fn health(address: SocketAddr, pods: Pods) -> io::Result<Running> {
    let handler: Handler = Arc::new(move |_| {
        let count = pods.borrow().len();
        let status = match count {
            0 => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::OK,
        };
        let body = format!("{{\"localEndpoints\":{count}}}");
        Box::pin(async move { answer(status, "application/json", body) })
    });
    Server::on("node health", listen(address)?, handler).start()
}

/// A Pod: an HTTP server that answers every request with `name`.
///
/// # Errors
/// When the address cannot be bound.
pub fn pod(address: SocketAddr, name: &str) -> io::Result<Running> {
    let body = format!("{name}\n");
    let handler: Handler = Arc::new(move |_| {
        let body = body.clone();
        Box::pin(async move { text(StatusCode::OK, body) })
    });
    let limits = Limits::default().connections(4096);
    Server::on("pod", listen(address)?, handler)
        .limits(limits)
        .start()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const LOOPBACK: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    async fn ask(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn connections_go_to_pods_in_turn_and_past_a_dead_one() {
        let one = pod(LOOPBACK, "one").unwrap();
        let two = pod(LOOPBACK, "two").unwrap();
        let gone = TcpListener::bind(LOOPBACK).await.unwrap();
        let dead = gone.local_addr().unwrap();
        drop(gone);
        let (set, pods) = watch::channel(vec![one.local_addr(), two.local_addr()]);
        let port = Forwarder::start(LOOPBACK, pods).await.unwrap();
        let mut answers = [ask(port.address()).await, ask(port.address()).await];
        answers.sort();
        assert!(answers[0].ends_with("one\n"), "{answers:?}");
        assert!(answers[1].ends_with("two\n"), "{answers:?}");
        set.send_replace(vec![dead, two.local_addr()]);
        for _ in 0..2 {
            assert!(ask(port.address()).await.ends_with("two\n"));
        }
        port.stop(Duration::ZERO).await;
    }

    #[tokio::test]
    async fn a_node_port_that_stops_ends_its_connections_first() {
        let pod = TcpListener::bind(LOOPBACK).await.unwrap();
        let (_set, pods) = watch::channel(vec![pod.local_addr().unwrap()]);
        let port = Forwarder::start(LOOPBACK, pods).await.unwrap();
        let address = port.address();
        let mut client = TcpStream::connect(address).await.unwrap();
        let (mut server, _) = pod.accept().await.unwrap();
        let stopping = tokio::spawn(port.stop(Duration::from_secs(60)));
        // Refused as soon as the listener is gone; the open connection goes on.
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        client.write_all(b"ping").await.unwrap();
        let mut read = [0; 4];
        server.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"ping");
        assert!(!stopping.is_finished());
        drop((client, server));
        stopping.await.unwrap();
    }

    #[tokio::test]
    async fn the_health_check_port_counts_pods() {
        let (set, pods) = watch::channel(vec![LOOPBACK]);
        let health = health(LOOPBACK, pods).unwrap();
        let answer = ask(health.local_addr()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        set.send_replace(Vec::new());
        let answer = ask(health.local_addr()).await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    }
}
