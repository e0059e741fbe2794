//! Errors of certificates.

use std::io;
use std::path::PathBuf;

/// The reason why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("the certificate file {path} cannot be read: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file has no certificate, or no key, in it.
    #[error("{path} is not a PEM file with {what}: {source}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// The item that was expected.
        what: &'static str,
        /// The reason why the item was not found.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate and key do not fit, or are of a kind that is not supported.
    #[error("{chain} and {key} are not usable together: {source}")]
    Pair {
        /// The file of the certificate.
        chain: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The reason.
        source: rustls::Error,
    },
    /// The certificates of the clients' authorities are not usable.
    #[error("{path} has no usable authorities: {problem}")]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The reason.
        problem: String,
    },
    /// A self-signed certificate could not be made.
    #[error("no certificate could be made: {0}")]
    Make(#[from] rcgen::Error),
    /// rustls refuses a certificate, or TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}
