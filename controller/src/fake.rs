//! The small API server of [`reeve_fake`], and managers that use it.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use reeve_fake::{Fake, Fate, Lines, Spans, clock, eventually, eventually_within};

use crate::manager::{self, Manager};

/// Builds managers that use a fake.
pub(crate) trait Managed {
    /// A manager that uses the fake, with a clock that follows paused time.
    fn manager(&self) -> manager::Builder;
}

impl Managed for Fake {
    fn manager(&self) -> manager::Builder {
        Manager::builder(self.client()).clock(clock())
    }
}

/// A running manager.
pub(crate) struct Running {
    pub(crate) manager: Manager,
    pub(crate) stop: CancellationToken,
    pub(crate) run: JoinHandle<Result<(), manager::Error>>,
}

// === impl Running ===

impl Running {
    pub(crate) fn start(manager: Manager) -> Self {
        let stop = CancellationToken::new();
        let (running, token) = (manager.clone(), stop.clone());
        let run = tokio::spawn(async move { running.run(token).await });
        Self { manager, stop, run }
    }

    /// Stops the manager, which ends without an error.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.run.await.unwrap().unwrap();
    }

    /// The value of a metric line that starts with `name`.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.manager.metrics().encode();
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit(' ').next());
        value
            .unwrap_or_else(|| panic!("no {name} in {text}"))
            .parse()
            .unwrap()
    }
}
