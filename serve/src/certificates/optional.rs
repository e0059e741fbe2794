//! Clients that may have a certificate, verified after the handshake.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};

use super::Error;
use super::pem::provider;
use crate::http::ClientCertificate;

/// Asks each client for a certificate. The handshake proves only that the client has its key: a handler decides what
/// follows from a certificate of another authority.
pub(super) struct OptionalClients(Arc<dyn ClientCertVerifier>);

// === impl OptionalClients ===

impl OptionalClients {
    pub(super) fn new(authorities: Vec<CertificateDer<'static>>) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority)?;
        }
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        let verifier = verifier.map_err(|error| rustls::Error::General(error.to_string()))?;
        Ok(Self(verifier))
    }

    /// The certificate of a client: the chain of its handshake, leaf first.
    pub(super) fn verified(&self, chain: &[CertificateDer<'_>]) -> Option<ClientCertificate> {
        let (leaf, intermediates) = chain.split_first()?;
        let verified = self
            .0
            .verify_client_cert(leaf, intermediates, UnixTime::now());
        let problem = verified.err().map(|error| error.to_string());
        let chain = chain.iter().map(|one| one.to_vec());
        Some(ClientCertificate::new(chain, problem))
    }
}

impl ClientCertVerifier for OptionalClients {
    /// Empty: a client sends the certificate that it has.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

impl fmt::Debug for OptionalClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OptionalClients").finish_non_exhaustive()
    }
}
