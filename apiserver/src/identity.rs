//! The identity of a server across restarts: the key that signs its tokens, and the certificate authority that
//! its clients trust.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use reeve_clock::Clock;
use sha2::Sha256;

use crate::disk;

/// The reason why the identity could not be made or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// A file of the data directory.
    #[error("data directory: cannot {action} {path}: {source}")]
    File {
        /// The action.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The certificate authority.
    #[error("the certificate authority could not be made: {0}")]
    Authority(#[from] rcgen::Error),
}

/// Keys of one server.
pub(crate) struct Identity {
    /// Signs service-account tokens.
    pub(crate) key: Vec<u8>,
    /// The directory of the authority; `None`: a new one for each served address.
    directory: Option<PathBuf>,
}

/// A certificate authority that can sign.
pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Identity {
    /// A new identity, or the one in `directory`.
    pub(crate) fn open(directory: Option<&Path>, clock: &Clock) -> Result<Self, IdentityError> {
        let key = match directory {
            Some(directory) => kept(&directory.join("tokens.key"), || Ok(random_key(clock)))?,
            None => random_key(clock),
        };
        Ok(Self {
            key,
            directory: directory.map(Path::to_owned),
        })
    }

    /// The token of the administrator: the same for the same key.
    pub(crate) fn admin_token(&self) -> String {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.key) else {
            unreachable!("an HMAC takes keys of any length");
        };
        mac.update(b"administrator");
        let digest = mac.finalize().into_bytes();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The certificate authority.
    pub(crate) fn authority(&self) -> Result<Authority, IdentityError> {
        let pem = match &self.directory {
            Some(directory) => kept(&directory.join("authority.key"), || {
                Ok(KeyPair::generate()?.serialize_pem().into_bytes())
            })?,
            None => KeyPair::generate()?.serialize_pem().into_bytes(),
        };
        let key = KeyPair::from_pem(&String::from_utf8_lossy(&pem))?;
        let mut parameters = CertificateParams::default();
        parameters
            .distinguished_name
            .push(DnType::CommonName, "reeve-apiserver");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(CertifiedIssuer::self_signed(parameters, key)?)
    }
}

/// The content of a file that only its owner may read; created when absent.
fn kept(
    path: &Path,
    make: impl FnOnce() -> Result<Vec<u8>, IdentityError>,
) -> Result<Vec<u8>, IdentityError> {
    let failed = |action: &'static str| {
        let path = path.to_owned();
        move |source| IdentityError::File {
            action,
            path,
            source,
        }
    };
    match fs::read(path) {
        Ok(content) if !content.is_empty() => return Ok(content),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("read")(error)),
    }
    let content = make()?;
    disk::write_whole(path, &content).map_err(failed("write"))?;
    Ok(content)
}

/// A key for signing tokens of a server for tests.
fn random_key(clock: &Clock) -> Vec<u8> {
    (0..4)
        .flat_map(|_| clock.random().next_u64().to_le_bytes())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_cannot_be_read_is_not_replaced() {
        let directory = std::env::temp_dir().join(format!("reeve-identity-{}", std::process::id()));
        // A directory in the place of the file: it exists, and cannot be read.
        fs::create_dir_all(directory.join("tokens.key")).unwrap();
        let error = Identity::open(Some(&directory), &Clock::system()).unwrap_err();
        assert!(error.to_string().contains("cannot read"), "{error}");
        fs::remove_dir_all(&directory).unwrap();
    }
}
