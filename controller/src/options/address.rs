//! Addresses to serve at, in the usual syntax.

use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::str::FromStr;

/// `:8080` (every address), `127.0.0.1:8080`, or `0` (nowhere, the default).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BindAddress(Option<SocketAddr>);

// === impl BindAddress ===

impl BindAddress {
    /// The address to serve at, if any.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.0
    }
}

impl From<SocketAddr> for BindAddress {
    fn from(address: SocketAddr) -> Self {
        Self(Some(address))
    }
}

impl FromStr for BindAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let help = "use for example :8080, 127.0.0.1:8080, or 0 for none";
        if text == "0" || text.is_empty() {
            return Ok(Self(None));
        }
        if let Some(port) = text.strip_prefix(':') {
            let port: u16 = port
                .parse()
                .map_err(|_| format!("{text:?} has no port; {help}"))?;
            return Ok(Self(Some(everywhere(port))));
        }
        text.parse()
            .map(|address| Self(Some(address)))
            .map_err(|_| format!("{text:?} is not an address; {help}"))
    }
}

/// Both families where the machine has IPv6, else IPv4.
pub(super) fn everywhere(port: u16) -> SocketAddr {
    let six = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    if TcpListener::bind(six).is_ok() {
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))
    } else {
        SocketAddr::from(([0, 0, 0, 0], port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_ecosystem_writes_them() {
        assert_eq!("0".parse(), Ok(BindAddress(None)));
        let local = SocketAddr::from(([127, 0, 0, 1], 8080));
        assert_eq!("127.0.0.1:8080".parse(), Ok(BindAddress::from(local)));
        let everywhere: BindAddress = ":8080".parse().unwrap();
        let everywhere = everywhere.address().unwrap();
        assert!(everywhere.ip().is_unspecified());
        assert_eq!(everywhere.port(), 8080);
        for text in ["8080", ":x", "localhost:1", ":99999"] {
            assert!(text.parse::<BindAddress>().is_err(), "{text}");
        }
    }
}
