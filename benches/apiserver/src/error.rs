//! The errors of the bench.

/// The result of a step of the bench.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// The reason why a measurement has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0}")]
    Setup(String),
    #[error("{what}: {source}")]
    Io {
        what: String,
        source: std::io::Error,
    },
    #[error("{what}: HTTP {status}: {body}")]
    Answer {
        what: String,
        status: u16,
        body: String,
    },
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Certificate(#[from] rcgen::Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("a worker ended early: {0}")]
    Worker(#[from] tokio::task::JoinError),
}

// === impl Error ===

impl Error {
    pub(crate) fn setup(cause: impl std::fmt::Display) -> Self {
        Self::Setup(cause.to_string())
    }

    /// Names what was done when `source` occurred.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
