//! The certificate of a client.

use std::sync::Arc;

/// The certificate of a client that was asked for one and has one; an extension of each of its requests
/// (`Certificates::with_client_authorities`, `Certificates::with_optional_clients`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    chain: Arc<[Vec<u8>]>,
    problem: Option<Arc<str>>,
}

// === impl ClientCertificate ===

impl ClientCertificate {
    #[cfg(feature = "tls")]
    pub(crate) fn new(chain: impl Iterator<Item = Vec<u8>>, problem: Option<String>) -> Self {
        Self {
            chain: chain.collect(),
            problem: problem.map(Arc::from),
        }
    }

    /// The chain in DER, the client's own certificate first.
    #[must_use]
    pub fn chain(&self) -> &[Vec<u8>] {
        &self.chain
    }

    /// The reason why no authority of the server vouches for it; `None` for a verified certificate. It was verified at the
    /// start of the connection: its time may have ended since.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}
