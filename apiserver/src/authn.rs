//! Who sends a request: bearer tokens, service-account tokens, impersonation, anonymous.
//!
//! An [`Authenticator`] is made once from a [`Settings`]. For each request the HTTP layer calls
//! `Authenticator::authenticate` with the headers, then `Impersonation::of` with the same headers and
//! `Impersonation::apply` with the policy. Without any setting everyone is the administrator, as it suits a server
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
//! let user = authenticator.authenticate_bearer("s3cret", now, &|_, _| None).unwrap().user;
//! assert_eq!(user.groups, ["developers", "system:authenticated"]);
//! assert!(authenticator.authenticate_bearer("wrong", now, &|_, _| None).is_err());
//! ```

mod impersonation;
mod token;

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;

pub(crate) use impersonation::Impersonation;
pub use token::{API_AUDIENCE, BoundObject, TokenError, TokenSpec};

use crate::rbac::{AUTHENTICATED, User};
use crate::status::Status;
use token::Signer;

/// Answers the uid of the live ServiceAccount `name` in `namespace`; `None` when there is none.
pub type AccountLookup<'a> = &'a dyn Fn(&str, &str) -> Option<String>;

/// What a request without credentials is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// The administrator: everything is allowed. The default.
    #[default]
    Admin,
    /// `system:anonymous`, who may do what RBAC allows `system:unauthenticated`.
    Unprivileged,
    /// 401.
    Refused,
}

/// How users are told apart.
#[derive(Clone, Debug)]
#[must_use]
pub struct Settings {
    key: Vec<u8>,
    anonymous: Anonymous,
    tokens: BTreeMap<String, User>,
}

/// Tells who sends a request.
#[derive(Debug)]
pub struct Authenticator {
    anonymous: Anonymous,
    tokens: BTreeMap<String, User>,
    signer: Signer,
}

/// Who sent a token, and for whom the token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated {
    /// The user, in `system:authenticated`.
    pub user: User,
    /// The token's audiences.
    pub audiences: Vec<String>,
}

// === impl Settings ===

impl Settings {
    /// Everyone is the administrator; service-account tokens are signed with `key`, which should be 32 random bytes
    /// and survive a restart of the server, or its tokens do not.
    pub fn new(key: Vec<u8>) -> Self {
        Self {
            key,
            anonymous: Anonymous::default(),
            tokens: BTreeMap::new(),
        }
    }

    /// What a request without credentials is. Default: the administrator.
    pub fn anonymous(mut self, anonymous: Anonymous) -> Self {
        self.anonymous = anonymous;
        self
    }

    /// Whoever sends the bearer token `token` is `user`.
    pub fn token(mut self, token: impl Into<String>, user: User) -> Self {
        self.tokens.insert(token.into(), user);
        self
    }
}

// === impl Authenticator ===

impl Authenticator {
    /// An authenticator of these settings.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            anonymous: settings.anonymous,
            tokens: settings.tokens,
            signer: Signer::new(&settings.key),
        }
    }

    /// Who sends a request with these headers; impersonation is not looked at.
    ///
    /// As in the real server an `Authorization` header that is not `Bearer …` counts as none.
    ///
    /// # Errors
    /// 401 for a wrong token, and for none where anonymous requests are refused.
    pub(crate) fn authenticate(
        &self,
        headers: &HeaderMap,
        now: Timestamp,
        accounts: AccountLookup<'_>,
    ) -> Result<User, Status> {
        let bearer = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.trim().split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim())
            .filter(|token| !token.is_empty());
        let Some(token) = bearer else {
            return match self.anonymous {
                Anonymous::Admin => Ok(User::admin()),
                Anonymous::Unprivileged => Ok(User::anonymous()),
                Anonymous::Refused => Err(Status::unauthorized()),
            };
        };
        match self.authenticate_bearer(token, now, accounts) {
            Ok(authenticated)
                if authenticated
                    .audiences
                    .iter()
                    .any(|one| one == API_AUDIENCE) =>
            {
                Ok(authenticated.user)
            }
            _ => Err(Status::unauthorized()),
        }
    }

    /// Who owns `token`, for whichever audience.
    ///
    /// # Errors
    /// What is wrong with the token.
    pub fn authenticate_bearer(
        &self,
        token: &str,
        now: Timestamp,
        accounts: AccountLookup<'_>,
    ) -> Result<Authenticated, TokenError> {
        if let Some(user) = self.tokens.get(token) {
            let mut user = user.clone();
            if !user.is_in(AUTHENTICATED) {
                user.groups.push(AUTHENTICATED.to_owned());
            }
            return Ok(Authenticated {
                user,
                audiences: vec![API_AUDIENCE.to_owned()],
            });
        }
        self.signer.verify(token, now, accounts)
    }

    /// A signed service-account token of this server.
    #[must_use]
    pub fn sign(&self, spec: &TokenSpec) -> String {
        self.signer.sign(spec)
    }
}

#[cfg(test)]
mod tests;
