//! Two network namespaces, joined by a veth pair: a node and a client.
//!
//! Sockets are opened by threads that move into a namespace; a socket stays there when its thread ends.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use reeve_apiserver::assets;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The node's addresses.
pub(crate) const NODE: [&str; 2] = ["10.77.0.1", "2001:db8:77::1"];
/// The client's addresses. The second of each family is never banned by tests of the first.
pub(crate) const CLIENT: [&str; 4] = ["10.77.0.2", "10.77.0.3", "2001:db8:77::2", "2001:db8:77::3"];
/// How long a test waits for what has to happen.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long a dropped packet is waited for. It takes microseconds to arrive.
const DROPPED: Duration = Duration::from_millis(150);

/// A network namespace that lives as long as this process holds it.
pub(crate) struct Namespace {
    holder: Child,
}

/// A node and a client.
pub(crate) struct Pair {
    pub(crate) node: Namespace,
    pub(crate) client: Namespace,
}

// === impl Namespace ===

impl Namespace {
    fn new() -> Option<Self> {
        let mut holder = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", "echo ready && exec sleep 600"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut ready = [0; 6];
        let read = holder
            .stdout
            .as_mut()
            .is_some_and(|out| std::io::Read::read_exact(out, &mut ready).is_ok());
        let namespace = Self { holder };
        read.then_some(namespace)
    }

    fn pid(&self) -> u32 {
        self.holder.id()
    }

    /// A command inside of the namespace.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.pid()));
        command.arg("--").arg(program);
        command
    }

    /// Runs a command line, which must succeed, and returns what it prints.
    pub(crate) fn run(&self, line: &str) -> String {
        let mut words = line.split(' ');
        let output = self
            .command(words.next().unwrap())
            .args(words)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Calls `open` in a thread inside of the namespace.
    pub(crate) fn inside<T: Send>(&self, open: impl FnOnce() -> T + Send) -> T {
        let path = format!("/proc/{}/ns/net", self.pid());
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let namespace = File::open(path).unwrap();
                    let kind = Some(LinkNameSpaceType::Network);
                    move_into_link_name_space(namespace.as_fd(), kind).unwrap();
                    open()
                })
                .join()
                .unwrap()
        })
    }
}

impl Namespace {
    /// Starts a thread inside of the namespace.
    pub(crate) fn thread(&self, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        let path = format!("/proc/{}/ns/net", self.pid());
        std::thread::spawn(move || {
            let namespace = File::open(path).unwrap();
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), kind).unwrap();
            work();
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

// === impl Pair ===

impl Pair {
    /// A pair. `None` skips the test where the machine does not allow it, see `reeve_apiserver::assets`.
    pub(crate) fn new() -> Option<Self> {
        let reason =
            "network namespaces are not allowed: root, `ip`, `nsenter` and `nft` are needed";
        assets::decide(Self::made(), reason)
    }

    fn made() -> Option<Self> {
        for program in ["ip", "nft", "nsenter"] {
            Command::new(program).arg("--version").output().ok()?;
        }
        let (node, client) = (Namespace::new()?, Namespace::new()?);
        let allowed = node.command("nft").args(["list", "ruleset"]).output();
        if !allowed.ok()?.status.success() {
            return None;
        }
        let peer = client.pid();
        node.run(&format!(
            "ip link add gate type veth peer name gate netns {peer}"
        ));
        for (namespace, addresses) in [(&node, &NODE[..]), (&client, &CLIENT[..])] {
            for address in addresses {
                if address.contains(':') {
                    // Without the second in which a new address may not be used.
                    namespace.run(&format!("ip address add {address}/64 dev gate nodad"));
                } else {
                    namespace.run(&format!("ip address add {address}/24 dev gate"));
                }
            }
            namespace.run("ip link set lo up");
            namespace.run("ip link set gate up");
        }
        let pair = Self { node, client };
        // The neighbours know each other then, so that no packet of a test waits for a solicitation.
        for client in CLIENT {
            assert!(pair.passes(client), "a datagram from {client}");
        }
        Some(pair)
    }

    /// Whether one datagram from the client's address `from` does not reach the node.
    pub(crate) fn is_dropped(&self, from: &str) -> bool {
        let node = NODE[usize::from(from.contains(':'))];
        let node: IpAddr = node.parse().unwrap();
        let receiver = self.node.inside(|| UdpSocket::bind((node, 0)).unwrap());
        let to = receiver.local_addr().unwrap();
        !self.arrives(from, to, &receiver)
    }

    /// Whether one datagram from the client's address `from` to `to` arrives at `receiver`.
    pub(crate) fn arrives(&self, from: &str, to: SocketAddr, receiver: &UdpSocket) -> bool {
        let from: IpAddr = from.parse().unwrap();
        let sender = self.client.inside(|| UdpSocket::bind((from, 0)).unwrap());
        sender.send_to(b"?", to).unwrap();
        receiver.set_read_timeout(Some(DROPPED)).unwrap();
        receiver.recv(&mut [0; 8]).is_ok()
    }

    /// A namespace behind the node, as that of a Pod: its address is 10.78.0.2.
    pub(crate) fn pod(&self) -> Namespace {
        let pod = Namespace::new().expect("a third namespace");
        let peer = pod.pid();
        self.node.run(&format!(
            "ip link add pod type veth peer name eth netns {peer}"
        ));
        self.node.run("ip address add 10.78.0.1/24 dev pod");
        self.node.run("ip link set pod up");
        self.node
            .inside(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"))
            .unwrap();
        pod.run("ip address add 10.78.0.2/24 dev eth");
        pod.run("ip link set eth up");
        pod.run("ip route add default via 10.78.0.1");
        self.client
            .run(&format!("ip route add 10.78.0.0/24 via {}", NODE[0]));
        pod
    }

    /// Whether a datagram reaches the node, now or within [`PATIENCE`].
    pub(crate) fn passes(&self, from: &str) -> bool {
        (0..PATIENCE.as_millis() / DROPPED.as_millis()).any(|_| !self.is_dropped(from))
    }

    /// Whether datagrams are dropped, now or within [`PATIENCE`].
    pub(crate) fn becomes_dropped(&self, from: &str) -> bool {
        let pause = Duration::from_millis(50);
        (0..PATIENCE.as_millis() / pause.as_millis()).any(|_| {
            let dropped = self.is_dropped(from);
            if !dropped {
                wait(pause);
            }
            dropped
        })
    }

    /// A TCP connection from the client's address `from` to the node: both ends.
    pub(crate) fn connection(&self, from: &str) -> (TcpStream, TcpStream) {
        let from: IpAddr = from.parse().unwrap();
        let node: IpAddr = NODE[usize::from(from.is_ipv6())].parse().unwrap();
        let listener = self.node.inside(|| TcpListener::bind((node, 0)).unwrap());
        let to = listener.local_addr().unwrap();
        let client = self.client.inside(|| connect(from, to));
        (client, listener.accept().unwrap().0)
    }

    /// Whether what the client sends on a connection arrives.
    pub(crate) fn stream_passes(client: &mut TcpStream, node: &mut TcpStream) -> bool {
        client.write_all(b"?").unwrap();
        node.set_read_timeout(Some(DROPPED)).unwrap();
        let read = std::io::Read::read(node, &mut [0; 8]);
        !matches!(&read, Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    }

    /// Whether the node answers one ping from `from`.
    pub(crate) fn ping_passes(&self, from: &str) -> Option<bool> {
        let node = NODE[usize::from(from.contains(':'))];
        let ping = self
            .client
            .command("ping")
            .args(["-c1", "-W1", "-I", from, node])
            .output();
        // `nsenter` reports a missing program by 127.
        let status = ping.ok()?.status;
        (status.code() != Some(127)).then_some(status.success())
    }
}

/// Connects from a given address. The route prefers the first address of the interface, and std binds no stream, so the
/// route to the node gets the address as its source for the moment of the connection.
fn connect(from: IpAddr, to: SocketAddr) -> TcpStream {
    let node = to.ip();
    let family = if node.is_ipv6() { "-6" } else { "-4" };
    let route = format!("{family} route replace {node} dev gate src {from}");
    let set = Command::new("ip").args(route.split(' ')).status().unwrap();
    assert!(set.success(), "ip {route}");
    TcpStream::connect_timeout(&to, PATIENCE).unwrap()
}

/// Real time: what the kernel ends cannot be paused.
#[allow(
    clippy::disallowed_methods,
    reason = "the kernel's time-outs are real time"
)]
pub(crate) fn wait(time: Duration) {
    std::thread::sleep(time);
}
