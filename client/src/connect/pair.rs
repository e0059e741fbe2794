//! A client certificate and its key.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube_client::config::AuthInfo;

/// A certificate and its key in PEM. A part that is missing is that of the configuration.
#[derive(PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) certificate: Option<Vec<u8>>,
    pub(super) key: Option<Vec<u8>>,
}

// === impl Pair ===

impl Pair {
    pub(super) fn of_both(certificate: String, key: String) -> Self {
        Self {
            certificate: Some(certificate.into_bytes()),
            key: Some(key.into_bytes()),
        }
    }

    /// Sets the parts in a configuration.
    pub(super) fn set(&self, user: &mut AuthInfo) {
        if let Some(certificate) = &self.certificate {
            user.client_certificate_data = Some(STANDARD.encode(certificate));
        }
        if let Some(key) = &self.key {
            user.client_key_data = Some(STANDARD.encode(key).into());
        }
    }
}
