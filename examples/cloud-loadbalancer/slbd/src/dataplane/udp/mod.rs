//! UDP listeners: HAProxy does not balance them, so these are forwarded here.
//!
//! The datagrams of a client go to one backend, until neither of them has sent anything for [`IDLE`]; backends are chosen in turn, each as
//! often as its weight. There are no health checks. A change of the backends holds for new clients, and a client of a backend that is
//! gone, or refuses its datagrams, gets another one.
//!
//! Each client takes a socket. There are at most as many as [`Udp::new`] allows; one more takes the place of the client that was silent
//! longest.

mod clients;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ipnet::Ipv4Net;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::{Instant, interval, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::clients::{Clients, Key};
use crate::cloud::{Protocol, State};

/// The silence after which a client is forgotten, at the next [`SWEEP`].
pub const IDLE: Duration = Duration::from_secs(60);
/// The interval of the searches for silent clients.
pub const SWEEP: Duration = Duration::from_secs(15);
/// The longest datagram.
const LONGEST: usize = 65_535;
/// The time before a failed bind is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// The forwarding of UDP listeners. Clones share it.
#[derive(Clone, Debug)]
pub struct Udp {
    shared: Arc<Shared>,
}

/// How the forwarding is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The clients of all listeners.
    pub clients: usize,
    /// The most clients at once.
    pub most_clients: usize,
    /// The listeners that could not be bound, with the reason.
    pub failed: BTreeMap<SocketAddr, String>,
}

#[derive(Debug)]
struct Shared {
    clients: Mutex<Clients<Client>>,
    failed: Mutex<BTreeMap<SocketAddr, String>>,
}

/// What a listener does with datagrams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Target {
    /// The backends with their weights, none of which is 0.
    backends: Vec<(SocketAddr, u8)>,
    /// Whether the networks are the allowed ones, and the networks.
    access: Option<(bool, Vec<Ipv4Net>)>,
}

/// A client and its backend.
#[derive(Debug)]
struct Client {
    backend: SocketAddr,
    socket: Arc<UdpSocket>,
    _answers: AbortOnDropHandle<()>,
}

// === impl Udp ===

impl Udp {
    /// Forwards for at most `clients` clients at once, of all listeners together. Each takes a file of the process:
    /// [`Shares::of_process`](crate::files::Shares::of_process) has a number that fits.
    #[must_use]
    pub fn new(clients: usize) -> Self {
        let shared = Shared {
            clients: Mutex::new(Clients::new(clients)),
            failed: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// How the forwarding is.
    #[must_use]
    pub fn status(&self) -> Status {
        let clients = self.shared.clients.lock();
        Status {
            clients: clients.count(),
            most_clients: clients.most(),
            failed: self.shared.failed.lock().clone(),
        }
    }

    /// Follows `states` until `stop`.
    pub async fn run(&self, mut states: watch::Receiver<Arc<State>>, stop: CancellationToken) {
        let mut listeners: BTreeMap<SocketAddr, (watch::Sender<Target>, AbortOnDropHandle<()>)> =
            BTreeMap::new();
        let mut sweep = interval(SWEEP);
        loop {
            let wanted = targets(&states.borrow_and_update());
            listeners.retain(|address, _| {
                let stays = wanted.contains_key(address);
                if !stays {
                    self.shared.forget(*address);
                }
                stays
            });
            for (address, target) in wanted {
                match listeners.get(&address) {
                    Some((sender, _)) => {
                        sender.send_if_modified(|now| {
                            let changed = *now != target;
                            *now = target;
                            changed
                        });
                    }
                    None => {
                        let (sender, receiver) = watch::channel(target);
                        let task = listen(Arc::clone(&self.shared), address, receiver);
                        let task = AbortOnDropHandle::new(tokio::spawn(task));
                        listeners.insert(address, (sender, task));
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => break,
                changed = states.changed() => if changed.is_err() {
                    stop.cancelled().await;
                    break;
                },
                now = sweep.tick() => self.shared.clients.lock().forget_silent(now, IDLE),
            }
        }
        self.shared.clients.lock().clear();
    }
}

fn targets(state: &State) -> BTreeMap<SocketAddr, Target> {
    let running = state.listeners().filter(|(balancer, listener)| {
        balancer.active && listener.running && listener.protocol == Protocol::Udp
    });
    let targets = running.map(|(balancer, listener)| {
        let group = listener.group.as_ref().and_then(|id| state.groups.get(id));
        let backends = group.map_or(&balancer.backends, |group| &group.backends);
        let backends = backends.iter().filter(|backend| backend.weight > 0);
        let backends = backends.map(|backend| {
            let port = match backend.port {
                0 => listener.backend_port.unwrap_or_default(),
                port => port,
            };
            (SocketAddr::from((backend.address, port)), backend.weight)
        });
        let access = state.access_of(listener).map(|(white, networks)| {
            let networks = networks.iter().filter_map(|text| text.parse().ok());
            (white, networks.collect())
        });
        let target = Target {
            backends: backends.collect(),
            access,
        };
        (SocketAddr::from((balancer.address, listener.port)), target)
    });
    targets.collect()
}

async fn listen(shared: Arc<Shared>, address: SocketAddr, targets: watch::Receiver<Target>) {
    loop {
        match UdpSocket::bind(address).await {
            Ok(socket) => {
                shared.failed.lock().remove(&address);
                forward(&shared, address, Arc::new(socket), &targets).await;
            }
            Err(error) => {
                let error = error.to_string();
                let before = shared.failed.lock().insert(address, error.clone());
                if before.as_ref() != Some(&error) {
                    tracing::error!(%address, error, "cannot bind a UDP listener");
                }
            }
        }
        sleep(AGAIN).await;
    }
}

/// Forwards until the socket fails.
async fn forward(
    shared: &Arc<Shared>,
    address: SocketAddr,
    socket: Arc<UdpSocket>,
    targets: &watch::Receiver<Target>,
) {
    let mut turn = 0;
    let mut datagram = vec![0; LONGEST];
    loop {
        let Ok((length, client)) = socket.recv_from(&mut datagram).await else {
            return;
        };
        let key = Key {
            listener: address,
            client,
        };
        let to = shared.socket_of(key, &targets.borrow(), &mut turn, &socket);
        if let Some(to) = to {
            // UDP promises nothing: a datagram that cannot be sent is dropped.
            let _ = to.send(&datagram[..length]).await;
        }
    }
}

// === impl Shared ===

impl Shared {
    /// Forgets a listener.
    fn forget(&self, listener: SocketAddr) {
        self.clients.lock().forget_listener(listener);
        self.failed.lock().remove(&listener);
    }

    /// The socket to the backend of a client, which is chosen if the client has none. `None` if its datagram is dropped.
    fn socket_of(
        self: &Arc<Self>,
        key: Key,
        target: &Target,
        turn: &mut usize,
        listener: &Arc<UdpSocket>,
    ) -> Option<Arc<UdpSocket>> {
        if !target.allows(key.client.ip()) {
            return None;
        }
        let now = Instant::now();
        let mut clients = self.clients.lock();
        if let Some(client) = clients.heard(&key, now)
            && target.has(client.backend)
        {
            return Some(Arc::clone(&client.socket));
        }
        let backend = target.choose(*turn)?;
        *turn = turn.wrapping_add(1);
        match Client::start(self, key, backend, listener) {
            Ok(client) => {
                let socket = Arc::clone(&client.socket);
                clients.add(key, now, client);
                Some(socket)
            }
            Err(error) => {
                // Out of files, most likely: the next datagram finds one.
                tracing::debug!(%error, "cannot open a socket for a UDP client");
                clients.forget_longest_silent();
                None
            }
        }
    }
}

// === impl Target ===

impl Target {
    /// The backend of the client number `turn`.
    fn choose(&self, turn: usize) -> Option<SocketAddr> {
        let all: usize = self
            .backends
            .iter()
            .map(|(_, weight)| usize::from(*weight))
            .sum();
        // Turns are spread over the weights, so that equal ones alternate.
        let backends = self.backends.iter();
        let scaled = |weight: u8| usize::from(weight) * self.backends.len();
        let even = backends.clone().all(|(_, weight)| scaled(*weight) == all);
        if even {
            return (!self.backends.is_empty())
                .then(|| self.backends[turn % self.backends.len()].0);
        }
        let mut left = turn % all.max(1);
        for (backend, weight) in backends {
            match left.checked_sub(usize::from(*weight)) {
                Some(rest) => left = rest,
                None => return Some(*backend),
            }
        }
        None
    }

    fn has(&self, backend: SocketAddr) -> bool {
        self.backends.iter().any(|(one, _)| *one == backend)
    }

    fn allows(&self, address: IpAddr) -> bool {
        let Some((white, networks)) = &self.access else {
            return true;
        };
        let listed = match address {
            IpAddr::V4(address) => networks.iter().any(|network| network.contains(&address)),
            IpAddr::V6(_) => false,
        };
        listed == *white
    }
}

// === impl Client ===

impl Client {
    /// Connects to the backend, and sends its answers to the client from then on.
    fn start(
        shared: &Arc<Shared>,
        key: Key,
        backend: SocketAddr,
        listener: &Arc<UdpSocket>,
    ) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(backend)?;
        socket.set_nonblocking(true)?;
        let socket = Arc::new(UdpSocket::from_std(socket)?);
        // The table owns the task.
        let task = answers(
            Arc::downgrade(shared),
            key,
            Arc::clone(&socket),
            Arc::clone(listener),
        );
        Ok(Self {
            backend,
            socket,
            _answers: AbortOnDropHandle::new(tokio::spawn(task)),
        })
    }
}

/// Sends the answers of a backend to its client, until the backend refuses a datagram. The next one chooses another turn.
async fn answers(shared: Weak<Shared>, key: Key, socket: Arc<UdpSocket>, listener: Arc<UdpSocket>) {
    // A refusal is an error of the socket, and nothing to read.
    let interest = Interest::READABLE | Interest::ERROR;
    while let Ok(ready) = socket.ready(interest).await
        && !ready.is_error()
    {
        // Not kept while the backend is silent: there may be thousands of clients.
        let mut datagram = Vec::with_capacity(LONGEST);
        match socket.try_recv_buf(&mut datagram) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => break,
        }
        let Some(shared) = shared.upgrade() else {
            return;
        };
        shared.clients.lock().heard(&key, Instant::now());
        let _ = listener.send_to(&datagram, key.client).await;
    }
    if let Some(shared) = shared.upgrade() {
        let own = |client: &Client| Arc::ptr_eq(&client.socket, &socket);
        shared.clients.lock().forget(&key, own);
    }
}
