//! The credentials of readers of a set.

use http::HeaderMap;

use crate::mounted::MountedFile;
use crate::trigger::{Refusal, bearer, is_one_of, secrets};

/// The credentials that a reader must show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// One of the lines of a mounted file.
    Secret(MountedFile),
    /// Every client may read.
    Insecure,
}

// === impl Access ===

impl Access {
    /// Checks `Authorization: Bearer`.
    pub(super) async fn check_bearer(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        match self {
            Self::Insecure => Ok(()),
            Self::Secret(_) => self.check(bearer(headers)?).await,
        }
    }

    /// Checks a token that a reader shows.
    pub(super) async fn check(&self, shown: &str) -> Result<(), Refusal> {
        let Self::Secret(file) = self else {
            return Ok(());
        };
        if is_one_of(shown, &secrets(file).await?) {
            Ok(())
        } else {
            Err(Refusal::Unauthorized("the token is not the right one"))
        }
    }
}
