//! The requests to stop: a signal, the end of the parent, the end of standard input.

use std::io::{self, Read as _};

use tokio::sync::oneshot;

/// The conditions to stop, observed from the start of the program on.
pub(super) struct Stop {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    parent: Option<Parent>,
    input: Option<oneshot::Receiver<()>>,
}

/// The process that started this one.
struct Parent(#[cfg(unix)] u32);

// === impl Stop ===

impl Stop {
    /// Observes the signals, and the ends of the parent and of standard input if they are asked for.
    ///
    /// # Errors
    /// When signals cannot be observed.
    pub(super) fn observe(with_parent: bool, with_stdin: bool) -> io::Result<Self> {
        // Without a notion of a parent, the pipe to it ends with it.
        let input = with_stdin || (with_parent && cfg!(not(unix)));
        Ok(Self {
            #[cfg(unix)]
            terminate: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?,
            parent: with_parent.then(Parent::now),
            input: input.then(end_of_input),
        })
    }

    /// Returns when one of the conditions holds.
    ///
    /// # Errors
    /// When interrupts cannot be observed.
    pub(super) async fn asked(mut self) -> io::Result<()> {
        let parent = self.parent.take();
        let input = self.input.take();
        tokio::select! {
            biased;
            () = self.terminated() => Ok(()),
            interrupted = tokio::signal::ctrl_c() => interrupted,
            () = optional(parent, Parent::ended) => {
                tracing::info!("stopping: the parent has ended");
                Ok(())
            }
            () = optional(input, |end| async { let _ = end.await; }) => {
                tracing::info!("stopping: standard input has ended");
                Ok(())
            }
        }
    }

    #[cfg(unix)]
    async fn terminated(&mut self) {
        self.terminate.recv().await;
    }

    #[cfg(not(unix))]
    async fn terminated(&mut self) {
        std::future::pending::<()>().await;
    }
}

/// Awaits `then` of a value; without one, it never returns.
async fn optional<T, F: Future<Output = ()>>(value: Option<T>, then: impl FnOnce(T) -> F) {
    match value {
        Some(value) => then(value).await,
        None => std::future::pending().await,
    }
}

// === impl Parent ===

impl Parent {
    #[cfg(unix)]
    fn now() -> Self {
        Self(std::os::unix::process::parent_id())
    }

    /// Returns when this process has another parent: the first one has ended. A signal at its end (`PR_SET_PDEATHSIG`) exists
    /// on Linux only, and comes when the thread ends that started this process, which a runtime such as Go's ends early.
    #[cfg(unix)]
    async fn ended(self) {
        while std::os::unix::process::parent_id() == self.0 {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }

    #[cfg(not(unix))]
    fn now() -> Self {
        Self()
    }

    #[cfg(not(unix))]
    async fn ended(self) {
        std::future::pending::<()>().await;
    }
}

/// Resolves when standard input ends or cannot be read. A thread reads it, because the runtime waits at its end for reads that
/// it started itself.
fn end_of_input() -> oneshot::Receiver<()> {
    let (ended, end) = oneshot::channel();
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        let mut ignored = [0; 4096];
        loop {
            match input.read(&mut ignored) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        // The receiver is gone when the program ends for another reason.
        let _ = ended.send(());
    });
    end
}
