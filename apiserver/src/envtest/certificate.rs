//! The certificate of the server in `--cert-dir`.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};

use crate::disk;

/// The reason why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("--cert-dir: cannot {action} {path}: {source}")]
    File {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("the certificate of the server could not be made: {0}")]
    Make(#[from] rcgen::Error),
    #[error("--cert-dir {0}: only one of apiserver.crt and apiserver.key is there")]
    Half(PathBuf),
}

/// The paths of certificate and key in `directory`; both are made, for `address` and the names of the server, if they are missing.
///
/// # Errors
/// When one of them is missing, or they cannot be written.
pub(super) fn in_directory(directory: &Path, address: IpAddr) -> Result<(PathBuf, PathBuf), Error> {
    let chain = directory.join("apiserver.crt");
    let key = directory.join("apiserver.key");
    match (chain.exists(), key.exists()) {
        (true, true) => return Ok((chain, key)),
        (false, false) => {}
        _ => return Err(Error::Half(directory.to_owned())),
    }
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source| Error::File {
            action,
            path,
            source,
        }
    };
    fs::create_dir_all(directory).map_err(failed("create", directory))?;
    let (certificate_pem, key_pem) = make(address)?;
    for (path, pem) in [(&key, key_pem), (&chain, certificate_pem)] {
        disk::write_whole(path, pem.as_bytes()).map_err(failed("write", path))?;
    }
    Ok((chain, key))
}

/// A self-signed certificate, PEM, and its key.
fn make(address: IpAddr) -> Result<(String, String), rcgen::Error> {
    let names = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    let mut parameters = CertificateParams::new(names.map(str::to_owned).to_vec())?;
    parameters
        .distinguished_name
        .push(DnType::CommonName, "kube-apiserver");
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let addresses = [[127, 0, 0, 1].into(), address];
    for address in addresses
        .into_iter()
        .filter(|one: &IpAddr| !one.is_unspecified())
    {
        parameters
            .subject_alt_names
            .push(SanType::IpAddress(address));
    }
    let key = KeyPair::generate()?;
    Ok((parameters.self_signed(&key)?.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_made_once_and_half_a_pair_is_refused() {
        let directory = std::env::temp_dir().join(format!("reeve-cert-dir-{}", std::process::id()));
        let address = [127, 0, 0, 1].into();
        let (chain, key) = in_directory(&directory, address).unwrap();
        let made = (fs::read(&chain).unwrap(), fs::read(&key).unwrap());
        in_directory(&directory, address).unwrap();
        assert_eq!(made, (fs::read(&chain).unwrap(), fs::read(&key).unwrap()));
        fs::remove_file(&key).unwrap();
        let refused = in_directory(&directory, address).unwrap_err();
        assert!(matches!(refused, Error::Half(_)), "{refused}");
        fs::remove_dir_all(&directory).unwrap();
    }
}
