//! The request to stop: a signal.

use std::io;

/// Returns at SIGTERM or an interrupt.
#[cfg(unix)]
pub(super) async fn asked() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        biased;
        _ = terminate.recv() => Ok(()),
        interrupted = tokio::signal::ctrl_c() => interrupted,
    }
}

/// Returns at an interrupt.
#[cfg(not(unix))]
pub(super) async fn asked() -> io::Result<()> {
    tokio::signal::ctrl_c().await
}
