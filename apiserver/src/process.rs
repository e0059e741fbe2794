//! The process of a program: its log, and the signals that end it.

/// Sends logs to standard error; `level` unless `RUST_LOG` is set.
pub(crate) fn log(level: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
}

/// Waits for a signal that ends the program.
#[cfg(unix)]
pub(crate) async fn stop_requested() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        biased;
        _ = terminate.recv() => Ok(()),
        interrupted = tokio::signal::ctrl_c() => interrupted,
    }
}

/// Waits for a signal that ends the program.
#[cfg(not(unix))]
pub(crate) async fn stop_requested() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}
