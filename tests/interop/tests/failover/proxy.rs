//! A TCP proxy whose wire can be cut: bytes are lost then, and the connections do not survive it.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// A proxy in front of one server. Ends when dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    wire: Arc<watch::Sender<Wire>>,
    _task: AbortOnDropHandle<()>,
}

/// The state of the wire. Each cut has its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    Whole(u32),
    Cut(u32),
}

// === impl Proxy ===

impl Proxy {
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let wire = Arc::new(watch::channel(Wire::Whole(0)).0);
        let own = Arc::clone(&wire);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(carry(client, server, own.subscribe()));
                while connections.try_join_next().is_some() {}
            }
        });
        Self {
            address,
            wire,
            _task: AbortOnDropHandle::new(task),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Silently loses everything from now on.
    pub(crate) fn cut(&self) {
        self.wire.send_modify(|wire| {
            if let Wire::Whole(number) = *wire {
                *wire = Wire::Cut(number + 1);
            }
        });
    }

    /// New connections come through again. Those from before break.
    pub(crate) fn heal(&self) {
        self.wire.send_modify(|wire| {
            if let Wire::Cut(number) = *wire {
                *wire = Wire::Whole(number);
            }
        });
    }
}

/// One connection: whole until the wire is cut, then silent until it is whole again, then gone.
async fn carry(client: TcpStream, server: SocketAddr, mut wire: watch::Receiver<Wire>) {
    let whole = *wire.borrow_and_update();
    if let Wire::Whole(_) = whole {
        let Ok(server) = TcpStream::connect(server).await else {
            return;
        };
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let both = async {
            // Either way it ends, the other does soon.
            let _ = tokio::join!(
                tokio::io::copy(&mut from_client, &mut to_server),
                tokio::io::copy(&mut from_server, &mut to_client)
            );
        };
        tokio::select! {
            biased;
            _ = wire.wait_for(|now| *now != whole) => {}
            () = both => return,
        }
        // Neither side receives more; the client may go on sending.
        drop((to_server, from_server));
        swallow(&mut from_client, &mut wire).await;
        let _ = to_client.shutdown().await;
    } else {
        let (mut from_client, _to_client) = client.into_split();
        swallow(&mut from_client, &mut wire).await;
    }
}

async fn swallow(from: &mut tokio::net::tcp::OwnedReadHalf, wire: &mut watch::Receiver<Wire>) {
    let lose = async {
        let mut buffer = [0; 4096];
        while from.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    };
    tokio::select! {
        biased;
        _ = wire.wait_for(|now| matches!(now, Wire::Whole(_))) => {}
        () = lose => {}
    }
}
