//! Certificates and keys in PEM files.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;

use super::Error;

/// The largest file, in bytes, that is taken for certificates.
const LARGEST: u64 = 1024 * 1024;

/// The provider of cryptography: the one that the program has installed for the process, else that of the feature.
pub fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().map_or_else(|| Arc::new(of_feature()), Arc::clone)
}

#[cfg(feature = "aws-lc-rs")]
fn of_feature() -> CryptoProvider {
    rustls::crypto::aws_lc_rs::default_provider()
}

#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
fn of_feature() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

#[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
compile_error!("reeve-serve: the feature `tls` needs the feature `ring` or `aws-lc-rs`, too");

/// Reads a pair: a digest of both files, and the pair that they make.
pub(super) async fn read(
    chain: &Path,
    key: &Path,
) -> Result<([u8; 32], Result<CertifiedKey, Error>), Error> {
    let (chain_pem, key_pem) = (content(chain).await?, content(key).await?);
    let mut digest = Sha256::new();
    digest.update((chain_pem.len() as u64).to_le_bytes());
    digest.update(&chain_pem);
    digest.update(&key_pem);
    Ok((
        digest.finalize().into(),
        certified(chain, &chain_pem, key, &key_pem),
    ))
}

fn certified(
    chain: &Path,
    chain_pem: &[u8],
    key: &Path,
    key_pem: &[u8],
) -> Result<CertifiedKey, Error> {
    let no = |path: &Path, what| {
        let path = path.to_owned();
        move |source| Error::Pem { path, what, source }
    };
    let certificates = CertificateDer::pem_slice_iter(chain_pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(no(chain, "a certificate"))?;
    if certificates.is_empty() {
        return Err(no(chain, "a certificate")(pem::Error::NoItemsFound));
    }
    let private = PrivateKeyDer::from_pem_slice(key_pem).map_err(no(key, "a private key"))?;
    CertifiedKey::from_der(certificates, private, &provider()).map_err(|source| Error::Pair {
        chain: chain.to_owned(),
        key: key.to_owned(),
        source,
    })
}

/// The content of a file, up to [`LARGEST`].
pub(super) async fn content(path: &Path) -> Result<Vec<u8>, Error> {
    let read = async {
        let mut bytes = Vec::new();
        let file = tokio::fs::File::open(path).await?;
        file.take(LARGEST).read_to_end(&mut bytes).await?;
        Ok(bytes)
    };
    read.await.map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })
}
