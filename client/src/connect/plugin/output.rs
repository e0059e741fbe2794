//! What a credential plugin printed.

use http::HeaderValue;
use jiff::Timestamp;
use serde::Deserialize;

use super::error::PluginError;
use crate::connect::pair::Pair;

/// `ExecCredential` of `client.authentication.k8s.io`, of which every version has these fields.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: Option<String>,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// The credentials in an output.
pub(super) struct Output {
    /// The value of the header `Authorization`.
    pub(super) token: Option<HeaderValue>,
    pub(super) pair: Option<Pair>,
    pub(super) expires: Option<Timestamp>,
}

// === impl Output ===

impl Output {
    /// The credentials in `text`, which is JSON or YAML, for a plugin that is configured with `version`.
    pub(super) fn read(text: &[u8], version: Option<&str>) -> Result<Self, PluginError> {
        let output: ExecCredential =
            serde_saphyr::from_slice(text).map_err(|_| PluginError::Output)?;
        if let (Some(configured), Some(returned)) = (version, output.api_version)
            && configured != returned
        {
            // A name that can be anything: it is shown no longer than one that exists.
            let returned = returned.chars().take(80).collect();
            let configured = configured.to_owned();
            return Err(PluginError::Version {
                configured,
                returned,
            });
        }
        let Some(status) = output.status else {
            return Err(PluginError::Credential("no status"));
        };
        let text_of = |text: Option<String>| text.filter(|text| !text.is_empty());
        let pair = match (
            text_of(status.client_certificate_data),
            text_of(status.client_key_data),
        ) {
            (Some(certificate), Some(key)) => Some(Pair::of_both(certificate, key)),
            (None, None) => None,
            _ => return Err(PluginError::Credential("a certificate or a key, not both")),
        };
        let token = text_of(status.token).map(bearer).transpose()?;
        if token.is_none() && pair.is_none() {
            return Err(PluginError::Credential("neither a token nor a certificate"));
        }
        let expires = text_of(status.expiration_timestamp).map(|text| text.parse());
        let expires = expires
            .transpose()
            .map_err(|_| PluginError::Credential("an expirationTimestamp that is no time"))?;
        Ok(Self {
            token,
            pair,
            expires,
        })
    }
}

fn bearer(token: String) -> Result<HeaderValue, PluginError> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| PluginError::Credential("a token that no header can have"))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const VERSION: &str = "client.authentication.k8s.io/v1";

    fn read(status: Value) -> Result<Output, String> {
        let text = json!({"apiVersion": VERSION, "kind": "ExecCredential", "status": status});
        let read = Output::read(text.to_string().as_bytes(), Some(VERSION));
        read.map_err(|error| error.to_string())
    }

    fn fault(status: Value) -> String {
        let text = read(status).err().unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        let start = "the credential plugin of the kubeconfig returned ";
        text.strip_prefix(start).unwrap().to_owned()
    }

    #[test]
    fn a_token_and_a_certificate_are_read_with_their_end() {
        let output =
            read(json!({"token": "hunter2", "expirationTimestamp": "2026-01-01T00:00:00Z"}));
        let output = output.unwrap();
        assert_eq!(output.token.unwrap(), "Bearer hunter2");
        assert_eq!(
            output.expires,
            Some("2026-01-01T00:00:00Z".parse().unwrap())
        );
        assert!(output.pair.is_none());
        let pair = json!({"clientCertificateData": "one", "clientKeyData": "other", "token": ""});
        let output = read(pair).unwrap();
        assert!(output.token.is_none() && output.expires.is_none());
        assert!(output.pair == Some(Pair::of_both("one".into(), "other".into())));
    }

    #[test]
    fn what_is_missing_is_named_and_no_secret_is_shown() {
        assert_eq!(fault(json!(null)), "no status");
        assert_eq!(fault(json!({})), "neither a token nor a certificate");
        assert_eq!(
            fault(json!({"token": "hunter2", "clientKeyData": "hunter2"})),
            "a certificate or a key, not both"
        );
        assert_eq!(
            fault(json!({"token": "hunter2\n"})),
            "a token that no header can have"
        );
        assert_eq!(
            fault(json!({"token": "hunter2", "expirationTimestamp": "hunter2"})),
            "an expirationTimestamp that is no time"
        );
    }

    #[test]
    fn yaml_is_read_and_another_version_is_refused() {
        let yaml = b"apiVersion: client.authentication.k8s.io/v1beta1\nstatus:\n  token: a\n";
        let version = Some("client.authentication.k8s.io/v1beta1");
        assert!(Output::read(yaml, version).is_ok());
        assert!(Output::read(yaml, None).is_ok());
        let other = Output::read(yaml, Some(VERSION)).err().unwrap();
        assert_eq!(
            other.to_string(),
            "the credential plugin of the kubeconfig answered in the version client.authentication.k8s.io/v1beta1, and client.authentication.k8s.io/v1 is configured"
        );
        let error = Output::read(b"hunter2: [", None).err().unwrap();
        assert!(matches!(error, PluginError::Output));
    }
}
