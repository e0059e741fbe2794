//! Errors of a webhook server.

use std::io;

use reeve_serve::certificates;
use reeve_serve::http::RouteError;

/// The reason why a webhook server cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address cannot be bound.
    #[error(transparent)]
    Bind(#[from] io::Error),
    /// The certificate cannot be used.
    #[error("the webhook server: {0}")]
    Certificate(#[from] certificates::Error),
    /// Two webhooks have one path, or a path does not begin with a slash.
    #[error("the webhook server: {0}; `at` sets another path")]
    Route(#[from] RouteError),
}
