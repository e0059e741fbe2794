//! The failures after which a reflector has to list or watch again: [`Error`].

use std::time::Duration;

use reeve_client::ResourceVersion;
use reeve_client::transport;

/// The reason why a list or a watch failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Transport(#[from] transport::Error),
    #[error(
        "server answered with version {got}, which is older than the known version {known}: it lags behind, or was restored"
    )]
    Behind {
        known: ResourceVersion,
        got: ResourceVersion,
    },
    #[error("streaming list ended before it was complete")]
    Incomplete,
    #[error("streaming list did not end within {after:?}")]
    Endless { after: Duration },
    #[error("watch ended at once")]
    Brief,
    #[error(
        "server repeatedly sent bookmarks older than the known version {known}: it may have been restored"
    )]
    LowBookmarks { known: ResourceVersion },
}

// === impl Error ===

impl Error {
    /// One word for logs and health.
    pub(super) fn class(&self) -> &'static str {
        match self {
            Self::Transport(error) => error.class(),
            Self::Behind { .. } | Self::LowBookmarks { .. } => "behind",
            Self::Incomplete | Self::Endless { .. } | Self::Brief => "incomplete",
        }
    }

    /// The server does not have the kind.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Transport(error) if error.code() == Some(404))
    }

    /// The server cannot answer for the requested version: it has forgotten it, or has not reached it.
    pub(super) fn is_about_version(&self) -> bool {
        matches!(self, Self::Transport(error) if error.is_expired() || error.is_too_large_version())
    }

    /// The delay that the server requests.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Transport(error) => error.retry_after(),
            _ => None,
        }
    }
}
