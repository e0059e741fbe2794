//! The trait for the reviews of the filter.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;

use super::User;

/// Time for one review.
pub(super) const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Reviews the user of a token, and the access of a user.
pub trait Reviewer: Send + Sync + 'static {
    /// Reviews a token (authentication.k8s.io `TokenReview`).
    fn review_token<'a>(
        &'a self,
        token: &'a str,
    ) -> BoxFuture<'a, Result<TokenReview, ReviewError>>;

    /// Reviews whether `user` may send `verb`, a method in lower case, to `path` (authorization.k8s.io
    /// `SubjectAccessReview`).
    fn review_access<'a>(
        &'a self,
        user: &'a User,
        verb: &'a str,
        path: &'a str,
    ) -> BoxFuture<'a, Result<AccessReview, ReviewError>>;
}

/// The status of a token's review. Start from the default, which is no user, and set the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenReview {
    /// Whether the token belongs to `user`.
    pub authenticated: bool,
    /// The user.
    pub user: Option<User>,
    /// The reason why the token could not be checked, or is not valid.
    pub error: Option<String>,
}

/// The status of a review of access. Start from the default, which is no rule, and set the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessReview {
    /// Whether a rule allows the request.
    pub allowed: bool,
    /// Whether a rule denies the request, which outweighs `allowed`.
    pub denied: bool,
}

/// The reason why there is no review.
#[derive(Debug)]
pub struct ReviewError {
    code: Option<u16>,
    source: Box<dyn std::error::Error + Send + Sync>,
}

// === impl ReviewError ===

impl ReviewError {
    /// An error of the server with its HTTP status `code`; `None` if the server did not answer.
    pub fn new(
        code: Option<u16>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            code,
            source: source.into(),
        }
    }

    /// Whether another try may succeed: the server was not reached, or reports that it is busy or broken.
    pub(super) fn is_transient(&self) -> bool {
        self.code
            .is_none_or(|code| matches!(code, 429 | 500 | 502..=504))
    }
}

impl fmt::Display for ReviewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl std::error::Error for ReviewError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.source()
    }
}
