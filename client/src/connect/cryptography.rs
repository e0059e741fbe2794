//! The provider of cryptography for TLS.

use rustls::crypto::CryptoProvider;

/// Installs the provider of this crate's feature for the process, unless the program has installed one. Without one,
/// rustls panics at the first TLS configuration of a program in which two of its providers are compiled, or none; it
/// finds a single one. Returns whether there is one now.
pub(super) fn install() -> bool {
    if CryptoProvider::get_default().is_some() {
        return true;
    }
    #[cfg(feature = "aws-lc-rs")]
    let provider = Some(rustls::crypto::aws_lc_rs::default_provider());
    #[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
    let provider = Some(rustls::crypto::ring::default_provider());
    #[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
    let provider: Option<CryptoProvider> = {
        // It installs the single provider, or panics.
        let _ = std::panic::catch_unwind(|| drop(rustls::ClientConfig::builder()));
        None
    };
    if let Some(provider) = provider {
        // Another thread may have been first.
        let _ = provider.install_default();
    }
    CryptoProvider::get_default().is_some()
}
