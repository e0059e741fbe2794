//! Service-account tokens: JSON web tokens with Kubernetes' claims, signed by this server for itself (HMAC-SHA256), or with keys
//! from files.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::Sha256;

use super::keys::AccountKeys;
use super::{Authenticated, ObjectLookup};
use crate::meta;
use crate::rbac::User;

/// The issuer of tokens and the audience of this API.
pub const API_AUDIENCE: &str = "https://kubernetes.default.svc.cluster.local";

/// The issuer of the tokens in Secrets, which kube-controller-manager makes.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// A token is valid this long after the deletion of an object that it depends on, while finalizers keep the object.
/// (kubernetes: `pkg/serviceaccount`, the leeway of the claims.)
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);

/// The label of a Secret whose token is not valid any more.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

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
    /// Its ServiceAccount or the object it is bound to was deleted, or replaced by another of the same name.
    #[error("[invalid bearer token, service account token has been invalidated]")]
    Invalidated,
}

#[derive(Debug)]
pub(super) struct Signer {
    mac: Hmac<Sha256>,
    /// In place of `mac`.
    keys: Option<AccountKeys>,
}

#[derive(Deserialize)]
struct Head {
    alg: String,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    #[serde(default)]
    aud: Vec<String>,
    #[serde(default)]
    nbf: i64,
    #[serde(default)]
    exp: Option<i64>,
    #[serde(default)]
    jti: String,
    #[serde(rename = "kubernetes.io", default)]
    kubernetes: Option<Private>,
    #[serde(flatten)]
    legacy: Legacy,
}

/// The claims of a token in a Secret.
#[derive(Deserialize)]
struct Legacy {
    #[serde(rename = "kubernetes.io/serviceaccount/namespace", default)]
    namespace: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name", default)]
    name: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid", default)]
    uid: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name", default)]
    secret: String,
}

#[derive(Deserialize)]
struct Private {
    namespace: String,
    serviceaccount: Reference,
    #[serde(default)]
    pod: Option<Reference>,
    #[serde(default)]
    secret: Option<Reference>,
    #[serde(default)]
    node: Option<Reference>,
}

#[derive(Deserialize)]
struct Reference {
    name: String,
    uid: String,
}

// === impl Signer ===

impl Signer {
    pub(super) fn new(key: &[u8], keys: Option<AccountKeys>) -> Self {
        #[allow(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mac = Hmac::new_from_slice(key).expect("HMAC takes keys of any length");
        Self { mac, keys }
    }

    pub(super) fn sign(&self, spec: &TokenSpec) -> String {
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = |algorithm: &str, issuer: &str| {
            let head = encode(&json!({"alg": algorithm, "kid": "reeve", "typ": "JWT"}));
            format!("{head}.{}", encode(&spec.claims(issuer)))
        };
        let issuer = self.issuer();
        let with_key = self.keys.as_ref();
        let with_key = with_key.and_then(|keys| keys.sign(|algorithm| signed(algorithm, issuer)));
        if let Some(token) = with_key {
            return token;
        }
        let signed = signed("HS256", issuer);
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
        objects: ObjectLookup<'_>,
    ) -> Result<Authenticated, TokenError> {
        let claims = self.claims(token).ok_or(TokenError::Invalid)?;
        if claims.iss == LEGACY_ISSUER && self.keys.is_some() {
            return self.of_secret(token, claims.legacy, objects);
        }
        let Some(kubernetes) = claims.kubernetes.filter(|_| self.accepts(&claims.iss)) else {
            return Err(TokenError::Invalid);
        };
        let seconds = now.as_second();
        if seconds < claims.nbf || claims.exp.is_some_and(|end| seconds >= end) {
            return Err(TokenError::Expired);
        }
        let Private {
            namespace,
            serviceaccount: account,
            pod,
            secret,
            node,
        } = &kubernetes;
        // The node of a Pod is said for information: the Pod binds the token.
        let node = node.as_ref().filter(|_| pod.is_none());
        let bound = [
            ("serviceaccounts", namespace.as_str(), Some(account)),
            ("secrets", namespace, secret.as_ref()),
            ("pods", namespace, pod.as_ref()),
            ("nodes", "", node),
        ];
        for (resource, namespace, reference) in bound {
            let Some(Reference { name, uid }) = reference else {
                continue;
            };
            let found = objects(resource, namespace, name).ok_or(TokenError::Invalidated)?;
            if meta::text(&found, "uid") != uid || was_deleted(&found, now) {
                return Err(TokenError::Invalidated);
            }
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

    /// The issuer of new tokens.
    fn issuer(&self) -> &str {
        let keys = self.keys.as_ref();
        keys.and_then(|keys| keys.issuers.first())
            .map_or(API_AUDIENCE, String::as_str)
    }

    fn accepts(&self, issuer: &str) -> bool {
        match &self.keys {
            Some(keys) => keys.issuers.iter().any(|one| one == issuer),
            None => issuer == API_AUDIENCE,
        }
    }

    /// The owner of a token in a Secret: it has no audience, and ends with its Secret. (kubernetes:
    /// `legacyValidator.Validate`.)
    fn of_secret(
        &self,
        token: &str,
        claims: Legacy,
        objects: ObjectLookup<'_>,
    ) -> Result<Authenticated, TokenError> {
        let Legacy {
            namespace,
            name,
            uid,
            secret,
        } = claims;
        let live = |resource: &str, name: &str| {
            let found = objects(resource, &namespace, name);
            let found = found.filter(|one| meta::text(one, "deletionTimestamp").is_empty());
            found.ok_or(TokenError::Invalidated)
        };
        let secret = live("secrets", &secret)?;
        let content = secret["data"]["token"].as_str().unwrap_or_default();
        let is_content = STANDARD
            .decode(content)
            .is_ok_and(|one| one == token.as_bytes());
        let labels = &secret["metadata"]["labels"];
        let is_marked = labels[INVALID_SINCE]
            .as_str()
            .is_some_and(|since| !since.is_empty());
        if !is_content || is_marked || meta::text(&*live("serviceaccounts", &name)?, "uid") != uid {
            return Err(TokenError::Invalidated);
        }
        let keys = self.keys.as_ref();
        Ok(Authenticated {
            user: User::service_account(&namespace, &name, &uid),
            audiences: keys.map(|keys| keys.audiences.clone()).unwrap_or_default(),
        })
    }

    /// The claims of a token with a valid signature.
    fn claims(&self, token: &str) -> Option<Claims> {
        let (signed, signature) = token.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let (head, body) = signed.split_once('.')?;
        let head: Head = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(head).ok()?).ok()?;
        match &self.keys {
            Some(keys) if head.alg != "HS256" => {
                let is_valid = keys.verify(&head.alg, signed.as_bytes(), &signature);
                is_valid.then_some(())?;
            }
            // Compares in constant time.
            _ => self
                .mac
                .clone()
                .chain_update(signed)
                .verify_slice(&signature)
                .ok()?,
        }
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).ok()?).ok()
    }
}

/// Whether the deletion of an object began so long ago that it ends tokens.
fn was_deleted(object: &Value, now: Timestamp) -> bool {
    let deleted = meta::text(object, "deletionTimestamp").parse::<Timestamp>();
    deleted.is_ok_and(|deleted| now.duration_since(deleted) > LEEWAY)
}

// === impl TokenSpec ===

impl TokenSpec {
    fn claims(&self, issuer: &str) -> Value {
        let mut private = json!({
            "namespace": self.namespace,
            "serviceaccount": {"name": self.name, "uid": self.uid},
        });
        if let Some(bound) = &self.bound {
            private[bound.kind.to_lowercase()] = json!({"name": bound.name, "uid": bound.uid});
        }
        let issued = self.issued.as_second();
        let mut claims = json!({
            "iss": issuer,
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
