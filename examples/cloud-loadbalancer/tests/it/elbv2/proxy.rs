//! A proxy in front of moto. It gives each call its account, records the actions, and holds one of the calls, before or after
//! its effect.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The header by which moto separates accounts.
pub(super) const ACCOUNT_HEADER: &str = "x-moto-account-id";
/// The longest head of a request.
const LONGEST_HEAD: usize = 16 << 10;

/// The side of an effect at which a call is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The call never reaches the cloud.
    Before,
    /// The cloud carries the call out, and the answer is lost.
    After,
    /// The call reaches the cloud after [`Proxy::release`].
    Late,
}

/// The answer of a cloud that has too many calls.
const THROTTLING: &str = "<ErrorResponse><Error><Type>Sender</Type><Code>Throttling</Code>\
    <Message>Rate exceeded</Message></Error><RequestId>r-1</RequestId></ErrorResponse>";

/// The call to hold.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// Its action; `None` for any.
    pub(super) action: Option<String>,
    /// The number of such calls before it.
    pub(super) skip: usize,
    pub(super) side: Side,
}

pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    // Ends with the proxy.
    _tasks: JoinSet<()>,
}

struct Shared {
    cloud: SocketAddr,
    /// What the head of each request gets.
    header: String,
    actions: Mutex<Vec<String>>,
    point: Mutex<Option<Point>>,
    /// Whether the call is held, and whether it was released.
    held: watch::Sender<bool>,
    released: watch::Sender<bool>,
    /// Whether a late call was carried out.
    late: watch::Sender<bool>,
    /// The actions whose next call is throttled.
    throttled: Mutex<BTreeSet<&'static str>>,
}

// === impl Proxy ===

impl Proxy {
    pub(super) async fn start(cloud: SocketAddr, account: &str, point: Option<Point>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let shared = Arc::new(Shared {
            cloud,
            header: format!("{ACCOUNT_HEADER}: {account}\r\nconnection: close\r\n"),
            actions: Mutex::default(),
            point: Mutex::new(point),
            held: watch::Sender::new(false),
            released: watch::Sender::new(false),
            late: watch::Sender::new(false),
            throttled: Mutex::default(),
        });
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            _tasks: tasks,
        }
    }

    /// Waits until the call is held.
    pub(super) async fn held(&self) {
        let mut held = self.shared.held.subscribe();
        drop(held.wait_for(|held| *held).await);
    }

    /// Lets a late call go on, and waits until the cloud carried it out.
    pub(super) async fn release(&self) {
        self.shared.released.send_replace(true);
        let mut late = self.shared.late.subscribe();
        drop(late.wait_for(|late| *late).await);
    }

    /// Throttles the next call of each of these actions.
    pub(super) fn throttle(&self, actions: &[&'static str]) {
        self.shared.throttled.lock().extend(actions);
    }

    /// The number of calls of an action.
    pub(super) fn count(&self, action: &str) -> usize {
        let actions = self.shared.actions.lock();
        actions.iter().filter(|one| *one == action).count()
    }

    /// The actions of all calls in their order.
    pub(super) fn actions(&self) -> Vec<String> {
        self.shared.actions.lock().clone()
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            // The controller was killed, or the case is over.
            let _ = shared.pass(stream).await;
        });
    }
}

// === impl Shared ===

impl Shared {
    /// Passes one request on, and its answer back. The connection ends with the answer.
    async fn pass(&self, mut stream: TcpStream) -> io::Result<()> {
        let request = read(&mut stream).await?;
        let action = action(&request);
        let side = self.arrived(&action);
        if self.throttled.lock().remove(action.as_str()) {
            let head = format!(
                "HTTP/1.1 400 Bad Request\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                THROTTLING.len()
            );
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(THROTTLING.as_bytes()).await?;
            return stream.shutdown().await;
        }
        match side {
            Some(Side::Before) => std::future::pending().await,
            Some(Side::Late) => {
                let mut released = self.released.subscribe();
                drop(released.wait_for(|released| *released).await);
            }
            Some(Side::After) | None => {}
        }
        let answer = self.forward(&request).await?;
        if side == Some(Side::Late) {
            self.late.send_replace(true);
        }
        if side == Some(Side::After) {
            self.held.send_replace(true);
            return std::future::pending().await;
        }
        stream.write_all(&answer).await?;
        stream.shutdown().await
    }

    /// Records a call. Returns where it is held.
    fn arrived(&self, action: &str) -> Option<Side> {
        self.actions.lock().push(action.to_owned());
        let mut point = self.point.lock();
        let next = point.as_mut()?;
        if next.action.as_ref().is_some_and(|one| one != action) {
            return None;
        }
        if let Some(rest) = next.skip.checked_sub(1) {
            next.skip = rest;
            return None;
        }
        let side = point.take()?.side;
        if side != Side::After {
            self.held.send_replace(true);
        }
        Some(side)
    }

    async fn forward(&self, request: &[u8]) -> io::Result<Vec<u8>> {
        let mut cloud = TcpStream::connect(self.cloud).await?;
        let line = 2 + find(request, b"\r\n").unwrap_or_default();
        cloud.write_all(&request[..line]).await?;
        cloud.write_all(self.header.as_bytes()).await?;
        cloud.write_all(&request[line..]).await?;
        let mut answer = Vec::new();
        cloud.read_to_end(&mut answer).await?;
        Ok(answer)
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|one| one == part)
}

/// A request with its body.
async fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let head = loop {
        if let Some(end) = find(&request, b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut request).await? == 0 || request.len() > LONGEST_HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
    };
    let text = String::from_utf8_lossy(&request[..head]).to_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
    while request.len() < head + length {
        if stream.read_buf(&mut request).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(request)
}

fn action(request: &[u8]) -> String {
    let text = String::from_utf8_lossy(request);
    let (_, rest) = text.split_once("\r\n\r\nAction=").expect("a call");
    rest.split('&').next().unwrap_or_default().to_owned()
}
