//! The certificates of a listener: the fields of an entry that name their files, and the files.

use std::io;

use reeve_serve::certificates::Certificates;

use crate::mounted::{Directory, MountedFile, Outside};

/// The certificates of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate with its chain, in PEM.
    pub certificate: MountedFile,
    /// Its key.
    pub key: MountedFile,
    /// The authorities that sign the certificates of senders; `None`: senders need none.
    pub clients: Option<MountedFile>,
}

/// The fields of an entry about certificates, as written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TlsFields<'a> {
    /// `tlsCertFile`.
    pub(crate) certificate: Option<&'a str>,
    /// `tlsKeyFile`.
    pub(crate) key: Option<&'a str>,
    /// `clientCAFile`.
    pub(crate) clients: Option<&'a str>,
    /// `clientNames`.
    pub(crate) names: &'a [String],
}

/// What is wrong about the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TlsFault {
    /// A field without another one.
    Needs {
        /// The field that is set.
        field: &'static str,
        /// What is missing.
        other: &'static str,
    },
    /// A file that may not be read.
    File(Outside),
}

// === impl TlsFields ===

impl TlsFields<'_> {
    /// The certificates; `None`: plain HTTP.
    pub(crate) fn define(self, secrets: &Directory) -> Result<Option<Tls>, TlsFault> {
        let needs = |field, other| Err(TlsFault::Needs { field, other });
        let file = |path: &str| secrets.file(path).map_err(TlsFault::File);
        let tls = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some(Tls {
                certificate: file(certificate)?,
                key: file(key)?,
                clients: self.clients.map(file).transpose()?,
            }),
            (Some(_), None) => return needs("tlsCertFile", "tlsKeyFile"),
            (None, Some(_)) => return needs("tlsKeyFile", "tlsCertFile"),
            (None, None) if self.clients.is_some() => {
                return needs("clientCAFile", "tlsCertFile and tlsKeyFile");
            }
            (None, None) => None,
        };
        if !self.names.is_empty() && self.clients.is_none() {
            return needs("clientNames", "clientCAFile");
        }
        Ok(tls)
    }
}

// === impl Tls ===

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// When one cannot be read or used, and when a link leads out of the directory of secrets.
    pub(crate) async fn load(&self) -> io::Result<Certificates> {
        let files = [&self.certificate, &self.key].into_iter();
        for file in files.chain(&self.clients) {
            let named = |error| io::Error::other(format!("{}: {error}", file.path().display()));
            file.read().map_err(named)?;
        }
        let pair = Certificates::from_files(self.certificate.path(), self.key.path());
        let certificates = pair.await.map_err(io::Error::other)?;
        match &self.clients {
            None => Ok(certificates),
            Some(file) => {
                let certificates = certificates.with_client_authorities(file.path());
                certificates.await.map_err(io::Error::other)
            }
        }
    }
}
