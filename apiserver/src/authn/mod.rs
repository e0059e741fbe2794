//! Authentication, the user of a request: client certificates, bearer tokens, service-account tokens, impersonation,
//! anonymous.
//!
//! An [`Authenticator`] is made once from a [`Settings`]. For each request the HTTP layer calls
//! `Authenticator::authenticate` with the headers, then `Impersonation::of` with the same headers and
//! `Impersonation::apply` with the policy. Without any setting every user is the administrator, which suits a server
//! on loopback.
//!
//! ```
//! use reeve_apiserver::authn::{Anonymous, Authenticator, Settings};
//! use reeve_apiserver::rbac::User;
//!
//! let settings = Settings::new(b"a key of this server".to_vec())
//!     .anonymous(Anonymous::Unprivileged)
//!     .token("s3cret", User::new("jane", ["developers"]));
//! let authenticator = Authenticator::new(settings);
//! let now = "2026-01-01T00:00:00Z".parse().unwrap();
//! let user = authenticator.authenticate_bearer("s3cret", now, &|_, _, _| None).unwrap().user;
//! assert_eq!(user.groups, ["developers", "system:authenticated"]);
//! assert!(authenticator.authenticate_bearer("wrong", now, &|_, _, _| None).is_err());
//! ```

mod certificate;
mod impersonation;
#[cfg_attr(
    not(feature = "program"),
    allow(dead_code, reason = "keys from files are flags of the program")
)]
pub(crate) mod keys;
mod token;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;
use reeve_serve::http::ClientCertificate;
use serde_json::Value;

pub(crate) use impersonation::Impersonation;
pub(crate) use keys::AccountKeys;
pub use token::{API_AUDIENCE, BoundObject, TokenError, TokenSpec};

use crate::rbac::{AUTHENTICATED, User};
use crate::status::Status;
use token::Signer;

/// Returns the stored object that a service-account token depends on; `None` when there is none.
///
/// The arguments are the resource (`serviceaccounts`, `secrets`, `pods` or `nodes`), the namespace, which is empty for
/// `nodes`, and the name.
pub type ObjectLookup<'a> = &'a dyn Fn(&str, &str, &str) -> Option<Arc<Value>>;

/// The user of a request without credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// The administrator: everything is allowed. The default.
    #[default]
    Admin,
    /// `system:anonymous`, with the rights of the group `system:unauthenticated`.
    Unprivileged,
    /// 401.
    Refused,
}

/// The ways to authenticate a user.
#[derive(Clone, Debug)]
#[must_use]
pub struct Settings {
    key: Vec<u8>,
    anonymous: Anonymous,
    tokens: BTreeMap<String, User>,
    account_keys: Option<AccountKeys>,
}

/// Finds the user of a request.
#[derive(Debug)]
pub struct Authenticator {
    anonymous: Anonymous,
    tokens: BTreeMap<String, User>,
    signer: Signer,
    audiences: Vec<String>,
}

/// The user of a token, and its audiences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated {
    /// The user, in `system:authenticated`.
    pub user: User,
    /// The token's audiences.
    pub audiences: Vec<String>,
}

// === impl Settings ===

impl Settings {
    /// Every user is the administrator; `key` signs service-account tokens. It should be 32 random bytes and survive a
    /// restart of the server, or its tokens become invalid.
    pub fn new(key: Vec<u8>) -> Self {
        Self {
            key,
            anonymous: Anonymous::default(),
            tokens: BTreeMap::new(),
            account_keys: None,
        }
    }

    /// Signs and verifies service-account tokens with these keys, in place of one of this server.
    pub(crate) fn account_keys(mut self, keys: AccountKeys) -> Self {
        self.account_keys = Some(keys);
        self
    }

    /// Sets the user of a request without credentials. Default: the administrator.
    pub fn anonymous(mut self, anonymous: Anonymous) -> Self {
        self.anonymous = anonymous;
        self
    }

    /// Requests with the bearer token `token` act as `user`.
    pub fn token(mut self, token: impl Into<String>, user: User) -> Self {
        self.tokens.insert(token.into(), user);
        self
    }
}

// === impl Authenticator ===

impl Authenticator {
    /// An authenticator with these settings.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let keys = settings.account_keys;
        let audiences = keys.as_ref().map(|keys| keys.audiences.clone());
        Self {
            anonymous: settings.anonymous,
            tokens: settings.tokens,
            audiences: audiences.unwrap_or_else(|| vec![API_AUDIENCE.to_owned()]),
            signer: Signer::new(&settings.key, keys),
        }
    }

    /// The audiences of this API; a token needs one of them.
    pub(crate) fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// The user of a request with these headers, before impersonation. A client certificate comes before a token.
    ///
    /// As in the real server an `Authorization` header that is not `Bearer …` counts as missing.
    ///
    /// # Errors
    /// 401 for a wrong token, for a certificate of another authority without a valid token, and for neither where anonymous requests are refused.
    pub(crate) fn authenticate(
        &self,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
        now: Timestamp,
        objects: ObjectLookup<'_>,
    ) -> Result<User, Status> {
        let of_certificate = match certificate.map(|one| certificate::user(one, now)) {
            Some(Ok(Some(user))) => return Ok(user),
            Some(Err(why)) => {
                tracing::debug!(why, "a client certificate was not accepted");
                Err(Status::unauthorized())
            }
            Some(Ok(None)) | None => Ok(()),
        };
        let bearer = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.trim().split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim())
            .filter(|token| !token.is_empty());
        let Some(token) = bearer else {
            of_certificate?;
            return match self.anonymous {
                Anonymous::Admin => Ok(User::admin()),
                Anonymous::Unprivileged => Ok(User::anonymous()),
                Anonymous::Refused => Err(Status::unauthorized()),
            };
        };
        match self.authenticate_bearer(token, now, objects) {
            Ok(authenticated)
                if authenticated
                    .audiences
                    .iter()
                    .any(|one| self.audiences.contains(one)) =>
            {
                Ok(authenticated.user)
            }
            _ => Err(Status::unauthorized()),
        }
    }

    /// The owner of `token`, for any audience.
    ///
    /// # Errors
    /// The reason why the token is invalid.
    pub fn authenticate_bearer(
        &self,
        token: &str,
        now: Timestamp,
        objects: ObjectLookup<'_>,
    ) -> Result<Authenticated, TokenError> {
        if let Some(user) = self.tokens.get(token) {
            let mut user = user.clone();
            if !user.is_in(AUTHENTICATED) {
                user.groups.push(AUTHENTICATED.to_owned());
            }
            return Ok(Authenticated {
                user,
                audiences: self.audiences.clone(),
            });
        }
        self.signer.verify(token, now, objects)
    }

    /// A signed service-account token of this server.
    #[must_use]
    pub fn sign(&self, spec: &TokenSpec) -> String {
        self.signer.sign(spec)
    }
}

#[cfg(test)]
mod tests;
