//! A server that runs in a task of its own.

use std::io;
use std::net::SocketAddr;

use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::Server;

/// A server that serves in a task of its own. Dropping it closes every connection at once; [`Running::stop`] lets
/// requests in work end.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    task: AbortOnDropHandle<io::Result<()>>,
}

// === impl Running ===

impl Running {
    pub(super) fn start(server: Server) -> io::Result<Self> {
        let address = server.local_addr()?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(server.run(stop.clone()));
        Ok(Self {
            address,
            stop,
            task: AbortOnDropHandle::new(task),
        })
    }

    /// The address, with the port that was chosen.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Accepts nothing more, and returns when the requests in work are answered or [`Limits::drain`](super::Limits::drain)
    /// is over.
    pub async fn stop(self) {
        self.stop.cancel();
        // A failed join means that the task panicked or was aborted: either way it has ended.
        let _ = self.task.await;
    }
}
