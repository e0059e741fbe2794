//! Authorities of clients: a server accepts only clients with a certificate that one of them signed.
//!
//! The file is read again as those of the certificate are, so an authority can be replaced: first both are in the file,
//! then the new one alone. (kube-apiserver: `--client-ca-file`, read again in the same way.)

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};

use super::Error;
use super::pem::{content, provider};
use super::seen::Seen;

/// Verifies the certificates of clients.
type Verifier = Arc<dyn ClientCertVerifier>;

/// The authorities in a file, as they are now.
pub(super) struct Authorities {
    path: PathBuf,
    current: RwLock<Verifier>,
    pub(super) seen: Mutex<Seen>,
}

// === impl Authorities ===

impl Authorities {
    pub(super) async fn from_file(path: PathBuf) -> Result<Self, Error> {
        let (in_use, verifier) = read(&path).await?;
        Ok(Self {
            path,
            current: RwLock::new(verifier?),
            seen: Mutex::new(Seen {
                in_use,
                problem: None,
            }),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file, and uses it if it is new. Returns whether it was.
    pub(super) async fn reload(&self) -> Result<bool, Error> {
        let (digest, verifier) = read(&self.path).await?;
        if self.seen.lock().in_use == digest {
            return Ok(false);
        }
        *self.current.write() = verifier?;
        self.seen.lock().in_use = digest;
        Ok(true)
    }

    fn current(&self) -> Verifier {
        Arc::clone(&self.current.read())
    }
}

impl ClientCertVerifier for Authorities {
    /// Empty: the authorities may change, and without hints a client sends the certificate that it has.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.current()
            .verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current()
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current()
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().supported_verify_schemes()
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authorities").field(&self.path).finish()
    }
}

/// Reads the file: its digest, and the verifier that it makes.
async fn read(path: &Path) -> Result<([u8; 32], Result<Verifier, Error>), Error> {
    let pem = content(path).await?;
    Ok((Sha256::digest(&pem).into(), verifier(path, &pem)))
}

fn verifier(path: &Path, pem: &[u8]) -> Result<Verifier, Error> {
    let unusable = |problem: String| Error::Authorities {
        path: path.to_owned(),
        problem,
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|source| Error::Pem {
            path: path.to_owned(),
            what: "certificates of authorities",
            source,
        })?;
        roots
            .add(certificate)
            .map_err(|error| unusable(error.to_string()))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider());
    verifier
        .build()
        .map(|verifier| verifier as Verifier)
        .map_err(|error| unusable(error.to_string()))
}
