//! Kubeconfig files for the server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::user_certificate::UserCertificate;

/// Address and credentials of the server.
#[derive(Clone, Debug)]
pub(crate) struct Access<'a> {
    /// `http://127.0.0.1:port` or `https://…`.
    pub(crate) url: &'a str,
    /// The certificate authority, PEM.
    pub(crate) authority: Option<&'a str>,
    /// A bearer token.
    pub(crate) token: Option<&'a str>,
    /// A client certificate.
    pub(crate) certificate: Option<&'a UserCertificate>,
}

/// A kubeconfig with one cluster, one user and one context, as YAML.
pub(crate) fn kubeconfig(access: &Access<'_>) -> String {
    let mut cluster = json!({"server": access.url});
    if let Some(authority) = access.authority {
        cluster["certificate-authority-data"] = Value::String(STANDARD.encode(authority));
    }
    let mut user = json!({});
    if let Some(token) = access.token {
        user["token"] = token.into();
    }
    if let Some(certificate) = access.certificate {
        user["client-certificate-data"] = STANDARD.encode(certificate.certificate()).into();
        user["client-key-data"] = STANDARD.encode(certificate.key()).into();
    }
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "reeve", "cluster": cluster}],
        "users": [{"name": "reeve", "user": user}],
        "contexts": [{"name": "reeve", "context": {"cluster": "reeve", "user": "reeve", "namespace": "default"}}],
        "current-context": "reeve",
    });
    crate::yaml::write(&config)
}
