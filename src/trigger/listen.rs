//! The listener of an address: plain HTTP, or HTTPS with certificates that are read again when they change.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::StatusCode;
use reeve_serve::certificates::Certificates;
use reeve_serve::http::ClientCertificate;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::server::Routes;
use crate::inbound::{self, Limits, Running, text};

/// Serves `routes` at `address`.
pub(super) fn listen(
    address: SocketAddr,
    certificates: Option<Certificates>,
    limits: Limits,
    routes: &Arc<Routes>,
) -> io::Result<Running> {
    let serve = |address| {
        let routes = Arc::clone(routes);
        let handler = move |request: inbound::Request| {
            let route = routes.at(request.uri().path());
            async move {
                match route {
                    Some(route) => route.receive(request).await,
                    None => text(StatusCode::NOT_FOUND, "no trigger has this path"),
                }
            }
        };
        inbound::serve_tls(address, certificates.clone(), limits, handler)
    };
    match serve(address) {
        Err(error) if address.ip().is_unspecified() && address.is_ipv6() && no_ipv6(&error) => {
            serve(SocketAddr::new(
                IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                address.port(),
            ))
        }
        other => other,
    }
}

/// `:8090` means every address; a machine without IPv6 still has the others.
pub(crate) fn no_ipv6(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported
    ) || error.raw_os_error() == Some(97)
}

/// Whether the certificate of a request has one of `names`: as its common name, or as a DNS name.
pub(crate) fn is_named(certificate: Option<&ClientCertificate>, names: &[String]) -> bool {
    let leaf = certificate.and_then(|certificate| certificate.chain().first());
    let Some((_, leaf)) = leaf.and_then(|leaf| X509Certificate::from_der(leaf).ok()) else {
        return false;
    };
    let is_one = |name: &str| names.iter().any(|known| known == name);
    let mut common = leaf.subject().iter_common_name();
    if common.any(|name| name.as_str().is_ok_and(is_one)) {
        return true;
    }
    let alternative = leaf.subject_alternative_name().ok().flatten();
    alternative.is_some_and(|names| {
        names
            .value
            .general_names
            .iter()
            .any(|name| matches!(name, GeneralName::DNSName(name) if is_one(name)))
    })
}
