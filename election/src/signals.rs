//! A candidate that is the whole program: [`Elector::run_until_signal`].

use tokio_util::sync::CancellationToken;

use crate::elector::Elector;
use crate::machine::Lost;

/// The reason for which a program under a lease failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The lease is lost.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The handlers of the signals were not installed.
    #[error("leader election: the handlers of SIGTERM and SIGINT cannot be installed: {0}")]
    Signals(#[source] std::io::Error),
}

// === impl Elector ===

impl Elector {
    /// As [`Elector::run`], until the first SIGTERM or SIGINT (Ctrl-C): the signal drops `work` and releases the lease, so
    /// that another candidate leads at once. It does not end the process any more, and neither does a second one.
    ///
    /// # Errors
    /// When the lease is lost, and when the handlers of the signals cannot be installed. The process should exit, and start
    /// again as a standby.
    pub async fn run_until_signal<T>(
        self,
        work: impl Future<Output = T>,
    ) -> Result<Option<T>, RunError> {
        let signal = signal().map_err(RunError::Signals)?;
        let stop = CancellationToken::new();
        let run = self.run(stop.clone(), work);
        let mut run = std::pin::pin!(run);
        let early = tokio::select! {
            biased;
            result = &mut run => Some(result),
            () = signal => None,
        };
        if let Some(result) = early {
            return Ok(result?);
        }
        tracing::info!("a signal ends the work and releases the lease");
        stop.cancel();
        Ok(run.await?)
    }
}

/// The first SIGTERM or SIGINT after this call.
fn signal() -> std::io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        Ok(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        })
    }
    #[cfg(not(unix))]
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}
