//! Service-account tokens: JSON web tokens with Kubernetes' claims, signed by this server for itself (HMAC-SHA256).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::Sha256;

use super::{AccountLookup, Authenticated};
use crate::rbac::User;

/// The issuer of tokens and the audience of this API.
pub const API_AUDIENCE: &str = "https://kubernetes.default.svc.cluster.local";

/// The content of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSpec {
    /// Namespace of the ServiceAccount.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid; the token is invalid for a later account of the same name.
    pub uid: String,
    /// The audiences of the token.
    pub audiences: Vec<String>,
    /// Time of issue.
    pub issued: Timestamp,
    /// Time of expiry; `None`: never, as for tokens in Secrets.
    pub expires: Option<Timestamp>,
    /// A unique id of the token.
    pub id: String,
    /// The object it is bound to.
    pub bound: Option<BoundObject>,
}

/// The object a token is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundObject {
    /// `Pod`, `Secret` or `Node`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// The reason why a token is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Not a token of this server, or modified.
    #[error("invalid bearer token")]
    Invalid,
    /// Expired, or not valid yet.
    #[error("[invalid bearer token, service account token has expired]")]
    Expired,
    /// Its ServiceAccount was deleted, or replaced by another of the same name.
    #[error("[invalid bearer token, service account token has been invalidated]")]
    Invalidated,
}

#[derive(Debug)]
pub(super) struct Signer {
    mac: Hmac<Sha256>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Vec<String>,
    nbf: i64,
    #[serde(default)]
    exp: Option<i64>,
    jti: String,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Private,
}

#[derive(Deserialize)]
struct Private {
    namespace: String,
    serviceaccount: Reference,
    #[serde(default)]
    pod: Option<Reference>,
}

#[derive(Deserialize)]
struct Reference {
    name: String,
    uid: String,
}

// === impl Signer ===

impl Signer {
    pub(super) fn new(key: &[u8]) -> Self {
        #[allow(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mac = Hmac::new_from_slice(key).expect("HMAC takes keys of any length");
        Self { mac }
    }

    pub(super) fn sign(&self, spec: &TokenSpec) -> String {
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let head = encode(&json!({"alg": "HS256", "kid": "reeve", "typ": "JWT"}));
        let signed = format!("{head}.{}", encode(&spec.claims()));
        let signature = self
            .mac
            .clone()
            .chain_update(&signed)
            .finalize()
            .into_bytes();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    pub(super) fn verify(
        &self,
        token: &str,
        now: Timestamp,
        accounts: AccountLookup<'_>,
    ) -> Result<Authenticated, TokenError> {
        let claims = self.claims(token).ok_or(TokenError::Invalid)?;
        if claims.iss != API_AUDIENCE {
            return Err(TokenError::Invalid);
        }
        let now = now.as_second();
        if now < claims.nbf || claims.exp.is_some_and(|end| now >= end) {
            return Err(TokenError::Expired);
        }
        let Private {
            namespace,
            serviceaccount: account,
            pod,
        } = &claims.kubernetes;
        if accounts(namespace, &account.name).as_ref() != Some(&account.uid) {
            return Err(TokenError::Invalidated);
        }
        let mut user = User::service_account(namespace, &account.name, &account.uid);
        let mut extra = |key: &str, value: &str| {
            let key = format!("authentication.kubernetes.io/{key}");
            user.extra.insert(key, vec![value.to_owned()]);
        };
        extra("credential-id", &format!("JTI={}", claims.jti));
        if let Some(pod) = pod {
            extra("pod-name", &pod.name);
            extra("pod-uid", &pod.uid);
        }
        Ok(Authenticated {
            user,
            audiences: claims.aud,
        })
    }

    /// The claims of a token with a valid signature.
    fn claims(&self, token: &str) -> Option<Claims> {
        let (signed, signature) = token.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        // Compares in constant time.
        self.mac
            .clone()
            .chain_update(signed)
            .verify_slice(&signature)
            .ok()?;
        let (_, body) = signed.split_once('.')?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).ok()?).ok()
    }
}

// === impl TokenSpec ===

impl TokenSpec {
    fn claims(&self) -> Value {
        let mut private = json!({
            "namespace": self.namespace,
            "serviceaccount": {"name": self.name, "uid": self.uid},
        });
        if let Some(bound) = &self.bound {
            private[bound.kind.to_lowercase()] = json!({"name": bound.name, "uid": bound.uid});
        }
        let issued = self.issued.as_second();
        let mut claims = json!({
            "iss": API_AUDIENCE,
            "sub": format!("system:serviceaccount:{}:{}", self.namespace, self.name),
            "aud": self.audiences,
            "iat": issued,
            "nbf": issued,
            "jti": self.id,
            "kubernetes.io": private,
        });
        if let Some(expires) = self.expires {
            claims["exp"] = json!(expires.as_second());
        }
        claims
    }
}
