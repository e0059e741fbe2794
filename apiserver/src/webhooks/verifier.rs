//! The certificate of a webhook, verified with a `caBundle` as Go verifies it.

use std::sync::Arc;

use reeve_serve::certificates::provider;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use x509_parser::parse_x509_certificate;

/// Trusts the certificates of a bundle: as authorities, and each one itself. The bundle of a webhook without an authority is its own
/// certificate, as in envtest. (Go: `x509.Certificate.Verify` accepts a certificate in the pool of roots.)
#[derive(Debug)]
struct Bundle {
    certificates: Vec<CertificateDer<'static>>,
    authorities: Arc<WebPkiServerVerifier>,
}

/// A TLS configuration that trusts the certificates of a bundle, DER.
///
/// # Errors
/// When there is none that the TLS library takes.
pub(super) fn trusting(certificates: &[Vec<u8>]) -> Result<ClientConfig, String> {
    let certificates: Vec<CertificateDer<'static>> =
        certificates.iter().cloned().map(Into::into).collect();
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        roots
            .add(certificate.clone())
            .map_err(|error| error.to_string())?;
    }
    let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
    let verifier = Bundle {
        certificates,
        authorities: authorities.build().map_err(|error| error.to_string())?,
    };
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions();
    Ok(builder
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

// === impl Bundle ===

impl ServerCertVerifier for Bundle {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.certificates.contains(leaf) {
            check_itself(leaf, now)?;
            verify_server_name(&ParsedCertificate::try_from(leaf)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        self.authorities
            .verify_server_cert(leaf, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

/// Checks the time and the purpose of a certificate that is trusted by itself.
fn check_itself(leaf: &CertificateDer<'_>, now: UnixTime) -> Result<(), CertificateError> {
    let (_, parsed) = parse_x509_certificate(leaf).map_err(|_| CertificateError::BadEncoding)?;
    let validity = parsed.validity();
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if seconds < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet);
    }
    if seconds > validity.not_after.timestamp() {
        return Err(CertificateError::Expired);
    }
    let purposes = parsed.extended_key_usage();
    match purposes.map_err(|_| CertificateError::BadEncoding)? {
        Some(purposes) if !purposes.value.server_auth && !purposes.value.any => {
            Err(CertificateError::InvalidPurpose)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair};

    fn certificate(purpose: ExtendedKeyUsagePurpose) -> CertificateDer<'static> {
        let mut parameters = CertificateParams::new(vec!["hook.local".to_owned()]).unwrap();
        parameters.not_before = rcgen::date_time_ymd(2026, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(2027, 1, 1);
        parameters.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        parameters.self_signed(&key).unwrap().der().clone()
    }

    fn verify(
        trusted: &CertificateDer<'static>,
        shown: &CertificateDer<'static>,
        name: &'static str,
        at: &str,
    ) -> Result<(), String> {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.clone()).unwrap();
        let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
        let bundle = Bundle {
            certificates: vec![trusted.clone()],
            authorities: authorities.build().unwrap(),
        };
        let at: jiff::Timestamp = at.parse().unwrap();
        let at = std::time::Duration::from_secs(at.as_second().cast_unsigned());
        let name = ServerName::try_from(name).unwrap();
        let verified =
            bundle.verify_server_cert(shown, &[], &name, &[], UnixTime::since_unix_epoch(at));
        verified.map(|_| ()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_bundle_with_the_certificate_of_the_webhook_itself_is_trusted_for_its_name_time_and_purpose()
     {
        let own = certificate(ExtendedKeyUsagePurpose::ServerAuth);
        let of_client = certificate(ExtendedKeyUsagePurpose::ClientAuth);
        let now = "2026-06-01T00:00:00Z";
        assert_eq!(verify(&own, &own, "hook.local", now), Ok(()));
        for (trusted, shown, name, at, expected) in [
            (&own, &own, "other.local", now, "not valid for name"),
            (
                &own,
                &own,
                "hook.local",
                "2025-06-01T00:00:00Z",
                "NotValidYet",
            ),
            (&own, &own, "hook.local", "2027-06-01T00:00:00Z", "expired"),
            (&of_client, &of_client, "hook.local", now, "purpose"),
            (&of_client, &own, "hook.local", now, "BadSignature"),
        ] {
            let error = verify(trusted, shown, name, at).unwrap_err();
            let is_expected = error.to_lowercase().contains(&expected.to_lowercase());
            assert!(is_expected, "{expected}: {error}");
        }
    }
}
