//! Certificates of servers: from files that are read again when they change, or self-signed.
//!
//! The counterpart of controller-runtime's certwatcher, with its metrics ([`Metrics`]). Files are read every 10 s and
//! followed through symbolic links, as the kubelet and cert-manager renew them. New contents are used when all files are
//! readable and key and certificate fit. Until then the certificate in use stays: an update in two steps is seen
//! half-way now and then.
//!
//! [`Certificates::with_client_authorities`] also requires a certificate of each client;
//! [`Certificates::with_optional_clients`] asks for one.

mod authorities;
mod error;
mod handle;
mod metrics;
mod optional;
mod pem;
mod seen;
mod self_signed;

pub use error::Error;
pub use handle::{Certificates, LOOK_EVERY};
pub use metrics::Metrics;
pub use pem::provider;
pub use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
