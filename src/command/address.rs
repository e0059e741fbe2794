//! Addresses to serve at, as the ecosystem writes them.

use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::str::FromStr;

/// `:8080` (every address), `127.0.0.1:8080`, or `0` (nowhere).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BindAddress(pub(super) Option<SocketAddr>);

impl FromStr for BindAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "0" || text.is_empty() {
            return Ok(Self(None));
        }
        if let Some(port) = text.strip_prefix(':') {
            let port: u16 = port.parse().map_err(|_| {
                format!(
                    "{text:?} has no port; use for example :8080, 127.0.0.1:8080, or 0 for none"
                )
            })?;
            return Ok(Self(Some(everywhere(port))));
        }
        text.parse()
            .map(|address| Self(Some(address)))
            .map_err(|_| {
                format!(
                    "{text:?} is no address; use for example :8080, 127.0.0.1:8080, or 0 for none"
                )
            })
    }
}

/// Both families where the machine has IPv6, else IPv4.
fn everywhere(port: u16) -> SocketAddr {
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
        assert_eq!(
            "127.0.0.1:8080".parse(),
            Ok(BindAddress(Some(([127, 0, 0, 1], 8080).into())))
        );
        let everywhere: BindAddress = ":8080".parse().unwrap();
        assert!(everywhere.0.unwrap().ip().is_unspecified());
        assert_eq!(everywhere.0.unwrap().port(), 8080);
        for text in ["8080", ":x", "localhost:1", ":99999"] {
            assert!(text.parse::<BindAddress>().is_err(), "{text}");
        }
    }
}
