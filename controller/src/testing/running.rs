//! A running manager in a test.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::manager::{Error, Manager};

/// A manager that runs until [`Running::end`], or until this is dropped.
#[derive(Debug)]
pub struct Running {
    manager: Manager,
    stop: CancellationToken,
    run: JoinHandle<Result<(), Error>>,
}

// === impl Running ===

impl Running {
    /// Runs `manager` as a task of this runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn start(manager: &Manager) -> Self {
        let stop = CancellationToken::new();
        let (running, token) = (manager.clone(), stop.clone());
        Self {
            manager: manager.clone(),
            stop,
            run: tokio::spawn(async move { running.run(token).await }),
        }
    }

    /// The manager.
    #[must_use]
    pub fn manager(&self) -> &Manager {
        &self.manager
    }

    /// Stops it, and waits for its end.
    ///
    /// # Panics
    /// When it ends with an error.
    pub async fn end(self) {
        self.stop.cancel();
        if let Err(error) = self.ended().await {
            panic!("the manager did not end well: {error}");
        }
    }

    /// Stops it; [`Running::ended`] waits for its end.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until it has ended: by a failure, or after [`Running::stop`].
    ///
    /// # Errors
    /// As [`Manager::run`].
    ///
    /// # Panics
    /// When the run panicked.
    pub async fn ended(mut self) -> Result<(), Error> {
        (&mut self.run).await.expect("the run did not panic")
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.run.is_finished()
    }

    /// Drops all that it runs, at once and without a request to the API server, as a kill would, and waits for that.
    ///
    /// # Panics
    /// When the run panicked before.
    pub async fn crash(mut self) {
        self.run.abort();
        if let Err(error) = (&mut self.run).await {
            assert!(error.is_cancelled(), "the run panicked: {error}");
        }
    }

    /// The value of the first metric whose line starts with `name` (labels may be part of it), if any.
    ///
    /// # Panics
    /// When the line does not end with a number.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        let text = self.manager.metrics().encode();
        let line = text.lines().find(|line| line.starts_with(name))?;
        let value = line.rsplit(' ').next()?;
        Some(value.parse().expect("a number"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.run.abort();
    }
}
