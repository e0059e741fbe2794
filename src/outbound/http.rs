//! Requests over the network, with reqwest.

use std::error::Error as StdError;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::{BoxFuture, Error, Limits, Outbound};

/// Metadata and platform services outside of the link-local ranges: Alibaba Cloud, Oracle Cloud, Azure.
const SERVICES_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];

/// The same over IPv6: Amazon, Google Cloud.
const SERVICES_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254),
    Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254),
];

/// Guards against a configuration that aims the operator at itself or at a cloud's metadata service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    /// Allows `127.0.0.0/8` and `::1`: for development, and for an agent on the same host network.
    pub allow_loopback: bool,
}

/// Sends over TCP and TLS. Cloning is cheap; clones share connections.
#[derive(Clone, Debug)]
pub struct Http {
    client: reqwest::Client,
    limits: Limits,
    policy: AddressPolicy,
}

/// Settings of [`Http`].
#[derive(Clone, Debug, Default)]
pub struct HttpBuilder {
    limits: Limits,
    policy: AddressPolicy,
    authority_pem: Option<Vec<u8>>,
}

// === impl AddressPolicy ===

impl AddressPolicy {
    /// Whether `address` may be connected to.
    #[must_use]
    pub fn allows(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if let IpAddr::V6(v6) = address
            && let Some(v4) = translated(v6)
        {
            return self.allows(IpAddr::V4(v4));
        }
        match address {
            IpAddr::V4(v4) if v4.is_loopback() => self.allow_loopback,
            IpAddr::V6(v6) if v6.is_loopback() => self.allow_loopback,
            IpAddr::V4(v4) => {
                !(v4.is_link_local()
                    || v4.is_multicast()
                    || v4.is_broadcast()
                    || v4.octets()[0] == 0
                    || SERVICES_V4.contains(&v4))
            }
            IpAddr::V6(v6) => {
                !(v6.is_unicast_link_local()
                    || v6.is_multicast()
                    || v6.is_unspecified()
                    || SERVICES_V6.contains(&v6))
            }
        }
    }
}

/// The IPv4 address that a gateway on the way makes of `v6`: NAT64 (`64:ff9b::/96`) and 6to4 (`2002::/16`).
fn translated(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match v6.segments() {
        [0x0064, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

// === impl HttpBuilder ===

impl HttpBuilder {
    /// Time and size limits; see [`Limits`] for the defaults.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Which addresses may be called; loopback is refused by default.
    #[must_use]
    pub fn policy(mut self, policy: AddressPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Trusts only the certificate authorities in `pem`, instead of the system's.
    #[must_use]
    pub fn authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authority_pem = Some(pem.into());
        self
    }

    /// Builds the client.
    ///
    /// # Errors
    /// When the certificate authority is not a PEM certificate.
    pub fn build(self) -> Result<Http, Error> {
        let tls = tls_config(self.authority_pem.as_deref())?;
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .connect_timeout(self.limits.connect)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .retry(reqwest::retry::never())
            .pool_idle_timeout(Duration::from_secs(15))
            .pool_max_idle_per_host(32)
            .tcp_keepalive(Duration::from_secs(15))
            .dns_resolver(CheckedResolver {
                policy: self.policy,
            })
            .user_agent(concat!("ipblock-operator/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| Error::Other(error.without_url().to_string()))?;
        Ok(Http {
            client,
            limits: self.limits,
            policy: self.policy,
        })
    }
}

// === impl Http ===

impl Http {
    /// Default limits, system certificate authorities, loopback refused.
    #[must_use]
    pub fn builder() -> HttpBuilder {
        HttpBuilder::default()
    }

    /// A literal address in the URL never reaches the resolver, so it is checked here: as the client reads it, which takes
    /// `2852039166` and `0x7f.1` for IPv4 addresses.
    fn check(&self, url: &url::Url) -> Result<(), Error> {
        let address = match url.host() {
            None => return Err(Error::Url("it names no host".into())),
            Some(url::Host::Domain(_)) => return Ok(()),
            Some(url::Host::Ipv4(address)) => IpAddr::V4(address),
            Some(url::Host::Ipv6(address)) => IpAddr::V6(address),
        };
        if self.policy.allows(address) {
            Ok(())
        } else {
            Err(Error::Forbidden(address))
        }
    }

    async fn exchange(
        &self,
        request: http::Request<Bytes>,
    ) -> Result<http::Response<Bytes>, Error> {
        if request.uri().host().is_none() {
            return Err(Error::Url("it names no host".into()));
        }
        let request = reqwest::Request::try_from(request)
            .map_err(|error| Error::Url(error.without_url().to_string()))?;
        self.check(request.url())?;
        let mut answer = self
            .client
            .execute(request)
            .await
            .map_err(|error| self.classify(error))?;
        let mut head = http::Response::builder().status(answer.status());
        if let Some(headers) = head.headers_mut() {
            *headers = std::mem::take(answer.headers_mut());
        }
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.classify(error))? {
            if body.len() + chunk.len() > self.limits.answer_bytes {
                return Err(Error::TooLarge(self.limits.answer_bytes));
            }
            body.extend_from_slice(&chunk);
        }
        head.body(Bytes::from(body))
            .map_err(|error| Error::Other(error.to_string()))
    }

    fn classify(&self, error: reqwest::Error) -> Error {
        if error.is_timeout() {
            return if error.is_connect() {
                Error::ConnectTimeout(self.limits.connect)
            } else {
                Error::Timeout(self.limits.total)
            };
        }
        let error = error.without_url();
        let mut cause: Option<&(dyn StdError + 'static)> = error.source();
        while let Some(current) = cause {
            match known(current) {
                // The connection failed after the request may have been sent.
                Some(Error::Tls(_) | Error::Refused | Error::Unreachable)
                    if !error.is_connect() =>
                {
                    return Error::Reset;
                }
                Some(known) => return known,
                None => cause = current.source(),
            }
        }
        Error::Other(innermost(&error))
    }
}

impl Outbound for Http {
    fn send(
        &self,
        request: http::Request<Bytes>,
    ) -> BoxFuture<'_, Result<http::Response<Bytes>, Error>> {
        Box::pin(async move {
            let total = self.limits.total;
            match tokio::time::timeout(total, self.exchange(request)).await {
                Ok(answer) => answer,
                Err(_) => Err(Error::Timeout(total)),
            }
        })
    }
}

/// The error of one link of a chain of causes.
fn known(cause: &(dyn StdError + 'static)) -> Option<Error> {
    if let Some(ours) = cause.downcast_ref::<Error>() {
        return Some(ours.clone());
    }
    if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
        return Some(Error::Tls(tls.to_string()));
    }
    if let Some(hyper) = cause.downcast_ref::<hyper::Error>()
        && (hyper.is_incomplete_message() || hyper.is_closed() || hyper.is_canceled())
    {
        return Some(Error::Reset);
    }
    let io = cause.downcast_ref::<std::io::Error>()?;
    // The error that an I/O error wraps is not its source, so the chain alone does not have it.
    io.get_ref()
        .and_then(|inner| known(inner))
        .or_else(|| classify_io(io.kind()))
}

fn classify_io(kind: std::io::ErrorKind) -> Option<Error> {
    use std::io::ErrorKind;
    match kind {
        ErrorKind::ConnectionRefused => Some(Error::Refused),
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::UnexpectedEof => Some(Error::Reset),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => Some(Error::Unreachable),
        _ => None,
    }
}

fn innermost(error: &(dyn StdError + 'static)) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}

/// The system's certificate authorities. They are read until there are some, and then kept: a store of them is most of the
/// memory of a client.
fn system_roots() -> Arc<rustls::RootCertStore> {
    static ROOTS: OnceLock<Arc<rustls::RootCertStore>> = OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Arc::clone(roots);
    }
    let mut roots = rustls::RootCertStore::empty();
    // An image without certificates still reaches plain HTTP gateways, so a missing store is not an error here.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let roots = Arc::new(roots);
    if !roots.is_empty() {
        let _ = ROOTS.set(Arc::clone(&roots));
    }
    roots
}

fn tls_config(authority_pem: Option<&[u8]>) -> Result<rustls::ClientConfig, Error> {
    let roots = if let Some(pem) = authority_pem {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| {
                Error::Tls(format!("the certificate authority is not PEM: {error}"))
            })?;
            roots
                .add(certificate)
                .map_err(|error| Error::Tls(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(Error::Tls(
                "the certificate authority file holds no certificate".into(),
            ));
        }
        Arc::new(roots)
    } else {
        system_roots()
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Tls(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// Resolves a name and returns only the addresses that may be called, so that the connection goes to an address that
/// was checked.
#[derive(Debug)]
struct CheckedResolver {
    policy: AddressPolicy,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.policy;
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0))
                .await
                .map_err(|_| Error::Unresolved(host.clone()))?
                .collect();
            let refused = found.first().map(SocketAddr::ip);
            let allowed: Vec<SocketAddr> = found
                .into_iter()
                .filter(|address| policy.allows(address.ip()))
                .collect();
            match (allowed.is_empty(), refused) {
                (false, _) => Ok(Box::new(allowed.into_iter()) as Addrs),
                (true, Some(address)) => Err(Error::Forbidden(address).into()),
                (true, None) => Err(Error::Unresolved(host).into()),
            }
        })
    }
}

#[cfg(test)]
mod tests;
