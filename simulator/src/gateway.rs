//! The handle of a simulated gateway.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use parking_lot::Mutex;
use reeve_clock::Clock;
use reeve_serve::http::Running;

use crate::faults::Faults;
use crate::listener;
use crate::state::Entry;
use crate::world::{Call, World};

/// A simulated gateway. Cloning is cheap; clones are the same gateway. It listens while a clone of it
/// lives, from [`Gateway::listen`] on.
#[derive(Clone, Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    world: Arc<World>,
    listener: Mutex<Option<Running>>,
    address: Mutex<Option<SocketAddr>>,
}

// === impl Gateway ===

impl Gateway {
    /// A gateway that blocks nothing and does not listen yet.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            shared: Arc::new(Shared {
                world: Arc::new(World::new(clock)),
                listener: Mutex::new(None),
                address: Mutex::new(None),
            }),
        }
    }

    /// Listens at `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn listen(&self, address: SocketAddr) -> io::Result<SocketAddr> {
        let listener = listener::start(address, Arc::clone(&self.shared.world))?;
        let address = listener.local_addr();
        *self.shared.listener.lock() = Some(listener);
        *self.shared.address.lock() = Some(address);
        Ok(address)
    }

    /// Where it listens, or listened before [`Gateway::refuse`].
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        *self.shared.address.lock()
    }

    /// Closes every connection and refuses new ones, as a gateway whose process is gone. What it
    /// enforces stays; [`Gateway::lose_state`] is apart.
    pub async fn refuse(&self) {
        let listener = self.shared.listener.lock().take();
        if let Some(listener) = listener {
            // Returns when the port is closed: later connections are refused.
            listener.stop().await;
        }
    }

    /// Listens again where it did before [`Gateway::refuse`].
    ///
    /// # Errors
    /// When it never listened, or the address was taken meanwhile.
    pub fn accept(&self) -> io::Result<SocketAddr> {
        match self.address() {
            Some(address) => self.listen(address),
            None => Err(io::Error::other("this gateway never listened")),
        }
    }

    /// The faults it has.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.shared.world.faults
    }

    /// Forgets every ban, as a machine that restarts.
    pub fn lose_state(&self) {
        self.shared.world.state.lock().lose();
    }

    /// Everything that is blocked now: first the iptables agent's, then XDP's, each by target.
    #[must_use]
    pub fn enforced(&self) -> Vec<Entry> {
        self.shared.world.enforced()
    }

    /// The targets of [`Gateway::enforced`].
    #[must_use]
    pub fn targets(&self) -> Vec<String> {
        let entries = self.enforced().into_iter();
        entries.map(|entry| entry.target).collect()
    }

    /// Whether a packet from `address` is dropped now.
    #[must_use]
    pub fn drops(&self, address: IpAddr) -> bool {
        let world = &self.shared.world;
        world.state.lock().drops(address, world.clock.now())
    }

    /// The engines' calls so far, oldest first; of very many, the last 100,000.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.shared.world.calls.lock().iter().cloned().collect()
    }

    /// Forgets the calls so far.
    pub fn forget_calls(&self) {
        self.shared.world.calls.lock().clear();
    }

    /// Answers a request as over the network, without a socket. `None`: the connection closes without an
    /// answer. A call that a fault makes hang never returns.
    #[must_use]
    pub fn answer<B>(&self, request: &Request<B>) -> BoxFuture<'static, Option<Response<Bytes>>> {
        let world = Arc::clone(&self.shared.world);
        let method = request.method().clone();
        let uri = request.uri().clone();
        Box::pin(async move {
            let query = uri.query().unwrap_or_default();
            world.answer(&method, uri.path(), query).await
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::{Fault, Rule};

    fn gateway() -> Gateway {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        Gateway::new(Clock::simulated(start, 1))
    }

    /// The bytes that come back over the network, up to the end of the connection.
    async fn get(address: SocketAddr, path: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn a_call_over_the_network_is_answered_or_cut_off() {
        let gateway = gateway();
        let address = gateway.listen(([127, 0, 0, 1], 0).into()).unwrap();
        let answer = get(address, "/limit?ip=192.0.2.7").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.ends_with(r#"{"ip":"192.0.2.7","status":"limited"}"#));
        gateway.faults().add(Rule::all(Fault::LoseAnswer).times(1));
        let answer = get(address, "/limit?ip=192.0.2.8").await.unwrap();
        assert_eq!(answer, "", "no answer, and the call is carried out");
        assert_eq!(gateway.targets(), ["192.0.2.7", "192.0.2.8"]);
        let statuses: Vec<_> = gateway.calls().iter().map(|call| call.status).collect();
        assert_eq!(statuses, [Some(200), None]);
    }

    #[tokio::test]
    async fn a_gateway_that_is_gone_closes_its_connections_and_its_port() {
        let gateway = gateway();
        let address = gateway.listen(([127, 0, 0, 1], 0).into()).unwrap();
        let mut open = TcpStream::connect(address).await.unwrap();
        gateway.faults().set(Fault::Hang);
        let hanging = open.write_all(b"GET /limits HTTP/1.1\r\nhost: g\r\n\r\n");
        hanging.await.unwrap();
        while gateway.calls().is_empty() {
            tokio::task::yield_now().await;
        }
        gateway.refuse().await;
        // The end of the stream, or a reset.
        assert!(matches!(open.read(&mut [0; 64]).await, Ok(0) | Err(_)));
        let refused = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        gateway.faults().clear();
        assert_eq!(gateway.accept().unwrap(), address);
        assert!(get(address, "/limits").await.unwrap().contains(" 200 "));
    }

    #[tokio::test]
    async fn faults_state_and_page_can_be_reached_by_requests() {
        let gateway = gateway();
        let send = async |method: &str, path: &str| {
            let request = http::Request::builder()
                .method(method)
                .uri(format!("http://g{path}"))
                .body(())
                .unwrap();
            let answer = gateway.answer(&request).await.unwrap();
            let body = String::from_utf8(answer.body().to_vec()).unwrap();
            (answer.status().as_u16(), body)
        };
        assert_eq!(
            send("POST", "/faults?fault=503&operation=ban&times=1")
                .await
                .0,
            200
        );
        assert_eq!(send("GET", "/limit?ip=192.0.2.7").await.0, 503);
        assert_eq!(send("GET", "/limit?ip=192.0.2.7").await.0, 200);
        let (_, listed) = send("GET", "/enforced").await;
        assert!(listed.contains(r#""target":"192.0.2.7""#), "{listed}");
        assert!(send("GET", "/").await.1.contains("192.0.2.7"));
        assert_eq!(send("POST", "/faults?fault=nonsense").await.0, 400);
        assert_eq!(send("POST", "/limit?ip=192.0.2.8").await.0, 405);
        assert_eq!(send("POST", "/lose-state").await.0, 200);
        assert!(gateway.targets().is_empty());
    }
}
