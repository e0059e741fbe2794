//! UDP listeners: HAProxy does not balance them, so these are forwarded here.
//!
//! The datagrams of a client go to one backend, until the client is silent for [`IDLE`]; backends are chosen in turn, each as often as its
//! weight. There are no health checks. A change of the backends holds for new clients, and a client of a backend that is gone gets
//! another one.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::cloud::{Protocol, State};

/// The silence after which a client is forgotten.
pub const IDLE: Duration = Duration::from_secs(60);
/// The clients of a listener at once. Datagrams of more are dropped.
const MOST_CLIENTS: usize = 4096;
/// The longest datagram.
const LONGEST: usize = 65_535;
/// The time before a failed bind is tried again.
const AGAIN: Duration = Duration::from_secs(1);

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
    answers: AbortOnDropHandle<()>,
}

/// Follows `states` until `stop`.
pub async fn run(mut states: watch::Receiver<Arc<State>>, stop: CancellationToken) {
    let mut listeners: BTreeMap<SocketAddr, (watch::Sender<Target>, AbortOnDropHandle<()>)> =
        BTreeMap::new();
    loop {
        let wanted = targets(&states.borrow_and_update());
        listeners.retain(|address, _| wanted.contains_key(address));
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
                    let task = tokio::spawn(listen(address, receiver));
                    listeners.insert(address, (sender, AbortOnDropHandle::new(task)));
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = states.changed() => if changed.is_err() {
                return stop.cancelled().await;
            },
        }
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

async fn listen(address: SocketAddr, targets: watch::Receiver<Target>) {
    loop {
        match UdpSocket::bind(address).await {
            Ok(socket) => forward(Arc::new(socket), &targets).await,
            Err(error) => tracing::error!(%address, %error, "cannot bind a UDP listener"),
        }
        sleep(AGAIN).await;
    }
}

/// Forwards until the socket fails.
async fn forward(socket: Arc<UdpSocket>, targets: &watch::Receiver<Target>) {
    let mut clients: HashMap<SocketAddr, Client> = HashMap::new();
    let mut turn = 0;
    let mut datagram = vec![0; LONGEST];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut datagram).await else {
            return;
        };
        let target = targets.borrow().clone();
        if !target.allows(from.ip()) {
            continue;
        }
        let known = clients.get(&from).is_some_and(|client| {
            let has = |(backend, _): &(SocketAddr, u8)| *backend == client.backend;
            !client.answers.is_finished() && target.backends.iter().any(has)
        });
        if !known {
            if clients.len() >= MOST_CLIENTS {
                clients.retain(|_, client| !client.answers.is_finished());
            }
            if clients.len() >= MOST_CLIENTS {
                continue;
            }
            let Some(backend) = target.choose(turn) else {
                continue;
            };
            turn += 1;
            let Ok(client) = Client::start(&socket, from, backend).await else {
                continue;
            };
            clients.insert(from, client);
        }
        if let Some(client) = clients.get(&from) {
            // UDP promises nothing: a datagram that cannot be sent is dropped.
            let _ = client.socket.send(&datagram[..length]).await;
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
    /// Connects to the backend, and sends its answers to the client until both are silent for [`IDLE`].
    async fn start(
        listener: &Arc<UdpSocket>,
        client: SocketAddr,
        backend: SocketAddr,
    ) -> io::Result<Self> {
        let socket = UdpSocket::bind(SocketAddr::from(([0, 0, 0, 0], 0))).await?;
        socket.connect(backend).await?;
        let socket = Arc::new(socket);
        let (listener, answers) = (Arc::clone(listener), Arc::clone(&socket));
        let task = tokio::spawn(async move {
            let mut datagram = vec![0; LONGEST];
            // An error is a refusal of the backend: the next datagram of the client chooses another turn.
            while let Ok(Ok(length)) = timeout(IDLE, answers.recv(&mut datagram)).await {
                let _ = listener.send_to(&datagram[..length], client).await;
            }
        });
        Ok(Self {
            backend,
            socket,
            answers: AbortOnDropHandle::new(task),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(weights: &[u8]) -> Target {
        let backends = weights.iter().enumerate();
        let backends = backends.map(|(n, weight)| {
            let port = u16::try_from(n).unwrap() + 1;
            (SocketAddr::from(([127, 0, 0, 1], port)), *weight)
        });
        Target {
            backends: backends.collect(),
            access: None,
        }
    }

    fn ports(target: &Target, turns: usize) -> Vec<u16> {
        (0..turns)
            .map(|turn| target.choose(turn).unwrap().port())
            .collect()
    }

    #[test]
    fn equal_backends_take_turns_and_others_by_weight() {
        assert_eq!(ports(&target(&[100, 100]), 4), [1, 2, 1, 2]);
        assert_eq!(ports(&target(&[1, 2]), 6), [1, 2, 2, 1, 2, 2]);
        assert_eq!(target(&[]).choose(7), None);
    }

    #[test]
    fn lists_decide_which_sources_pass() {
        let mut target = target(&[1]);
        let inside = IpAddr::from([10, 1, 2, 3]);
        let outside = IpAddr::from([11, 1, 2, 3]);
        assert!(target.allows(inside));
        let networks: Vec<Ipv4Net> = vec!["10.0.0.0/8".parse().unwrap()];
        target.access = Some((true, networks.clone()));
        assert!(target.allows(inside) && !target.allows(outside));
        target.access = Some((false, networks));
        assert!(!target.allows(inside) && target.allows(outside));
    }
}
