//! Keys, certificates, tokens and kubeconfigs of a control plane.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};

use super::error::Error;
use crate::user_certificate::UserCertificate;

/// The user that [`ControlPlane::client`](super::ControlPlane::client) acts as, of group `system:masters`.
pub const ADMIN_USER: &str = "reeve-admin";

pub(super) const AUTHORITY_CERTIFICATE: &str = "ca.crt";
pub(super) const SERVER_CERTIFICATE: &str = "server.crt";
pub(super) const SERVER_KEY: &str = "server.key";
pub(super) const ACCOUNT_KEY: &str = "service-account.key";
pub(super) const ACCOUNT_PUBLIC_KEY: &str = "service-account.pub";
pub(super) const TOKENS: &str = "tokens.csv";
pub(super) const MANAGER_KUBECONFIG: &str = "kube-controller-manager.kubeconfig";

const MANAGER_USER: &str = "system:kube-controller-manager";

/// What a client needs to be let in.
pub(super) struct Credentials {
    /// PEM certificate of the authority.
    pub(super) authority: String,
    pub(super) admin_token: String,
    manager_token: String,
    issuer: Issuer<'static, KeyPair>,
}

// === impl Credentials ===

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Credentials {
    /// Makes all keys and certificates and writes the files that the programs read into `directory`.
    pub(super) fn make(directory: &Path) -> Result<Self, Error> {
        let authority_key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params
            .distinguished_name
            .push(DnType::CommonName, "reeve-control-plane");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let authority_certificate = params.self_signed(&authority_key)?;
        let issuer = Issuer::new(params, authority_key);

        let server_key = KeyPair::generate()?;
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
        let mut params = CertificateParams::new(names)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        let server_certificate = params.signed_by(&server_key, &issuer)?;
        let account_key = KeyPair::generate()?;

        let credentials = Self {
            authority: authority_certificate.pem(),
            admin_token: random_token(),
            manager_token: random_token(),
            issuer,
        };
        let tokens = format!(
            "{},{ADMIN_USER},{ADMIN_USER},\"system:masters\"\n{},{MANAGER_USER},{MANAGER_USER},\"system:masters\"\n",
            credentials.admin_token, credentials.manager_token
        );
        for (name, content) in [
            (AUTHORITY_CERTIFICATE, credentials.authority.clone()),
            (SERVER_CERTIFICATE, server_certificate.pem()),
            (SERVER_KEY, server_key.serialize_pem()),
            (ACCOUNT_KEY, account_key.serialize_pem()),
            (ACCOUNT_PUBLIC_KEY, account_key.public_key_pem()),
            (TOKENS, tokens),
        ] {
            write(&directory.join(name), &content)?;
        }
        Ok(credentials)
    }

    pub(super) fn user_certificate(
        &self,
        user: &str,
        group: Option<&str>,
    ) -> Result<UserCertificate, Error> {
        Ok(UserCertificate::issue(user, group, &self.issuer)?)
    }

    /// Writes the kubeconfig of kube-controller-manager, once the URL is known.
    pub(super) fn write_manager_kubeconfig(
        &self,
        directory: &Path,
        url: &str,
    ) -> Result<(), Error> {
        let content = kubeconfig(url, &self.authority, MANAGER_USER, &self.manager_token);
        write(&directory.join(MANAGER_KUBECONFIG), &content)
    }
}

fn write(path: &Path, content: &str) -> Result<(), Error> {
    std::fs::write(path, content).map_err(|source| Error::Prepare {
        what: path.display().to_string(),
        source,
    })
}

fn random_token() -> String {
    let clock = reeve_clock::Clock::system();
    let mut bytes = Vec::with_capacity(32);
    for _ in 0..4 {
        bytes.extend_from_slice(&clock.random().next_u64().to_le_bytes());
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The document of a kubeconfig with one cluster, one user and their context.
pub(super) fn kubeconfig_document(url: &str, authority: &str, user: &str, token: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "reeve", "cluster": {
            "server": url,
            "certificate-authority-data": STANDARD.encode(authority),
        }}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "reeve", "context": {"cluster": "reeve", "user": user}}],
        "current-context": "reeve",
    })
}

pub(super) fn kubeconfig(url: &str, authority: &str, user: &str, token: &str) -> String {
    // JSON is YAML, and every reader of kubeconfigs accepts it.
    format!("{:#}\n", kubeconfig_document(url, authority, user, token))
}
