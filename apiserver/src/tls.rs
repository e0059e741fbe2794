//! The server's certificate, made when an address is served.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};
use reeve_serve::certificates::{self, Certificates, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::identity::{Authority, IdentityError};

/// The certificate of an address, and the authority that clients trust.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) certificates: Certificates,
    /// PEM.
    pub(crate) authority: String,
}

/// The reason why no certificate could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// Making a key or certificate failed.
    #[error("the server's certificate could not be made: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The authority could not be made.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// rustls refused it.
    #[error("the server's certificate was refused: {0}")]
    Config(#[from] certificates::Error),
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// A certificate for loopback, `localhost`, `address` and `more` names or addresses, signed by `authority`.
    pub(crate) fn generate(
        address: IpAddr,
        more: &[String],
        authority: &Authority,
    ) -> Result<Self, TlsError> {
        let key = KeyPair::generate()?;
        let names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
        ];
        let names = names.into_iter().map(str::to_owned);
        let names: Vec<String> = names.chain(more.iter().cloned()).collect();
        let mut server = CertificateParams::new(names)?;
        server
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let loopback = [
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ];
        for ip in loopback.into_iter().chain([address]) {
            if !ip.is_unspecified() {
                server.subject_alt_names.push(SanType::IpAddress(ip));
            }
        }
        let certificate = server.signed_by(&key, authority)?;

        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(Self {
            certificates: Certificates::from_der(vec![certificate.der().clone()], key)?
                .with_optional_clients(vec![authority.der().clone()])?,
            authority: authority.pem(),
        })
    }
}
