//! Ports for programs that do not choose their own.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// The first port that is tried. Connections get theirs from 32768 on with Linux, and from 49152 on elsewhere.
const FIRST: u16 = 20_000;
/// How many ports are tried. Ports of `NodePort` Services begin after them.
const COUNT: u16 = 10_000;
/// Spreads the numbers of processes over the ports.
const SPREAD: u32 = 0x9E37_79B1;

/// A loopback port without a listener, for a program that takes its port as an argument.
///
/// The port lies below the range from which the system takes the ports of connections. A port of that range, which a
/// listener on port 0 gets, can be taken by a connection before the program listens. Calls of one process return
/// different ports. Processes that run at the same time begin at different places of the range, mostly far from each other.
///
/// # Errors
/// When no port can be listened on.
pub fn free_port() -> io::Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(SPREAD) >> 8;
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..COUNT {
        let next = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = port_of(next);
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The port of a try.
fn port_of(number: u32) -> u16 {
    let offset = number % u32::from(COUNT);
    FIRST + u16::try_from(offset).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_below_those_of_connections_and_differ() {
        for number in [0, 9_999, 10_000, u32::MAX] {
            assert!((20_000..30_000).contains(&port_of(number)), "{number}");
        }
        let (one, other) = (free_port().unwrap(), free_port().unwrap());
        assert_ne!(one, other);
    }

    #[test]
    fn a_port_with_a_listener_is_passed_over() {
        let held: Vec<TcpListener> = (0..20)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, free_port().unwrap())).unwrap())
            .collect();
        let ports = held.iter().map(|held| held.local_addr().unwrap().port());
        let distinct: std::collections::BTreeSet<u16> = ports.collect();
        assert_eq!(distinct.len(), held.len());
    }
}
