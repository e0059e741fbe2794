//! The kubeconfig of a pre-release caller.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube_client::Config as ClientConfig;
use reeve_client::{Client, ObjectKey, WriteOptions};
use reeve_webhook::admission::UserInfo;
use serde_json::{Value, json};

use crate::config::Config;
use crate::identity::{Environment, of_account};
use crate::program::BoxError;

/// The API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Its address.
    pub server: String,
    /// The authorities of its certificate in PEM; empty for those of the system.
    pub authorities: String,
}

/// The credentials of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// A client certificate and its key in PEM.
    Certificate {
        /// The certificate.
        certificate: String,
        /// The key.
        key: String,
    },
    /// A bearer token.
    Token(String),
}

/// The API server of a client configuration.
#[must_use]
pub fn access_of(config: &ClientConfig) -> Access {
    let pem = |der: &Vec<u8>| {
        let text = STANDARD.encode(der);
        let lines: Vec<&str> = text
            .as_bytes()
            .chunks(64)
            .map(|line| std::str::from_utf8(line).unwrap_or_default())
            .collect();
        format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            lines.join("\n")
        )
    };
    Access {
        server: config
            .cluster_url
            .to_string()
            .trim_end_matches('/')
            .to_owned(),
        authorities: config.root_cert.iter().flatten().map(pem).collect(),
    }
}

/// Checks that the owner of the credential is a pre-release caller of `config`: a misspelt name would be one of production.
///
/// # Errors
/// When it is not.
pub fn verify(
    config: &Config,
    user: &str,
    group: Option<&str>,
    account: Option<(&str, &str)>,
) -> Result<(), BoxError> {
    let identity = match account {
        Some((namespace, name)) => of_account(namespace, name),
        None => {
            let mut identity = UserInfo::default();
            user.clone_into(&mut identity.username);
            identity.groups = group.into_iter().map(str::to_owned).collect();
            identity
        }
    };
    // A group such as `system:masters` passes by every check of rights.
    let of_cluster = group.filter(|group| group.starts_with("system:"));
    if let Some(group) = of_cluster {
        return Err(format!("{group} is a group of the cluster; use another group").into());
    }
    if config.callers.environment(&identity) == Environment::PreRelease {
        return Ok(());
    }
    let name = identity.username;
    Err(format!(
        "{name} would be a caller of production: `callers` list neither the user nor the group; correct the name, or use --unchecked"
    )
    .into())
}

/// A token of a ServiceAccount, valid for `seconds`.
///
/// # Errors
/// When the API server refuses it.
pub async fn token(
    client: &Client,
    namespace: &str,
    account: &str,
    seconds: u64,
) -> Result<String, BoxError> {
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": seconds},
    });
    let key = ObjectKey::namespaced(namespace, account);
    let tokens = client.subresource::<ServiceAccount>("token");
    let answer: Value = tokens.create(&key, WriteOptions::new(), &request).await?;
    let token = answer["status"]["token"].as_str();
    Ok(token.ok_or("the answer has no token")?.to_owned())
}

/// A kubeconfig in YAML, whose cluster, user and context all have the name `user`.
///
/// # Errors
/// When it cannot be written as YAML.
pub fn kubeconfig(
    access: &Access,
    user: &str,
    namespace: &str,
    credentials: &Credentials,
) -> Result<String, BoxError> {
    let mut cluster = json!({"server": access.server});
    if !access.authorities.is_empty() {
        cluster["certificate-authority-data"] = json!(STANDARD.encode(&access.authorities));
    }
    let credentials = match credentials {
        Credentials::Token(token) => json!({"token": token}),
        Credentials::Certificate { certificate, key } => json!({
            "client-certificate-data": STANDARD.encode(certificate),
            "client-key-data": STANDARD.encode(key),
        }),
    };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": user, "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": user, "context": {"cluster": user, "user": user, "namespace": namespace}}],
        "current-context": user,
    });
    Ok(serde_saphyr::to_string(&config)?)
}
