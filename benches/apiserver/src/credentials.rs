//! Certificates of a server and of the bench, as envtest makes them: an authority of their own, P-256.

use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::error::{Error, Result};

/// The files that a server reads.
pub(crate) const AUTHORITY: &str = "authority.crt";
pub(crate) const ACCOUNT_KEY: &str = "sa-signer.key";
pub(crate) const ACCOUNT_CERTIFICATE: &str = "sa-signer.crt";

/// Writes the files of a server into `directory`, and returns the configuration of an administrator's connections.
pub(crate) fn make(directory: &Path) -> Result<Arc<ClientConfig>> {
    let write = |name: &str, content: &str| {
        let path = directory.join(name);
        std::fs::write(&path, content).map_err(Error::io(path.display().to_string()))
    };
    let key = KeyPair::generate()?;
    let mut params = named("apiserver-bench", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    let authority = params.self_signed(&key)?;
    let issuer = Issuer::new(params, key);
    write(AUTHORITY, &authority.pem())?;

    let account_key = KeyPair::generate()?;
    let account = named("service-accounts", None).self_signed(&account_key)?;
    write(ACCOUNT_KEY, &account_key.serialize_pem())?;
    write(ACCOUNT_CERTIFICATE, &account.pem())?;

    let server_key = KeyPair::generate()?;
    let names = ["127.0.0.1", "localhost"].map(str::to_owned);
    let mut params = CertificateParams::new(names)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let server = params.signed_by(&server_key, &issuer)?;
    write("apiserver.crt", &server.pem())?;
    write("apiserver.key", &server_key.serialize_pem())?;

    let client_key = KeyPair::generate()?;
    let mut params = named("apiserver-bench", Some("system:masters"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let client = params.signed_by(&client_key, &issuer)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(client_key.serialize_der()));
    let config = trusting(authority.der().clone())?
        .with_client_auth_cert(vec![client.der().clone()], key)?;
    Ok(finished(config))
}

/// A configuration that trusts the authority of a kubeconfig, without a certificate of its own.
pub(crate) fn of_authority(pem: &[u8]) -> Result<Arc<ClientConfig>> {
    let authority = CertificateDer::from_pem_slice(pem)
        .map_err(|error| Error::Setup(format!("certificate authority: {error}")))?;
    Ok(finished(trusting(authority)?.with_no_client_auth()))
}

fn named(name: &str, group: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(group) = group {
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
    }
    params
}

type Verified = rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>;

fn trusting(authority: CertificateDer<'static>) -> Result<Verified> {
    let mut roots = RootCertStore::empty();
    roots.add(authority)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots))
}

fn finished(mut config: ClientConfig) -> Arc<ClientConfig> {
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}
