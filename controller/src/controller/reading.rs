//! One source of a controller: read while the controller reads its sources, and started again when it fails.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use reeve_workqueue::{AddOptions, Queue, Reason};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::panics::text_of;
use crate::lifecycle::Unavailable;
use crate::reconcile::RequestKey;
use crate::source::{Requests, Source, Wanted};

/// The first pause before a source is started again. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause. A source that was read for this time begins with the first pause again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The state of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SourceState {
    Starting,
    Reading,
    /// Ended, which is not a fault.
    Finished,
    Failed(Failure),
}

/// The cause for which a source is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    /// The class of the failure, for readiness and metrics.
    cause: &'static str,
    text: String,
}

/// The state of a source, shared with health, readiness and the wait of the workers.
pub(super) struct Gauge {
    name: Arc<str>,
    state: watch::Sender<(SourceState, bool)>,
    /// Cancelled when the source is removed.
    removed: CancellationToken,
}

/// A source and its reader.
pub(super) struct Reading<R> {
    source: Source<R>,
    gauge: Arc<Gauge>,
    /// Its stream, after the start.
    requests: Option<Requests<R>>,
}

// === impl Gauge ===

impl Gauge {
    /// Returns when the source has started for the first time or is removed.
    pub(super) async fn started(&self) {
        let mut state = self.state.subscribe();
        tokio::select! {
            biased;
            () = self.removed.cancelled() => {}
            // The gauge owns the sender.
            _ = state.wait_for(|(_, started)| *started) => {}
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Ends the reading.
    pub(super) fn remove(&self) {
        self.removed.cancel();
    }

    pub(super) fn is_removed(&self) -> bool {
        self.removed.is_cancelled()
    }

    pub(super) fn is_started(&self) -> bool {
        self.state.borrow().1
    }

    /// The cause, if it is not read.
    pub(super) fn trouble(&self) -> Option<Unavailable> {
        if self.is_removed() {
            return None;
        }
        let (cause, message) = match &self.state.borrow().0 {
            SourceState::Reading | SourceState::Finished => return None,
            SourceState::Starting => ("not started", format!("{}: being started", self.name)),
            SourceState::Failed(failure) => {
                (failure.cause, format!("{}: {}", self.name, failure.text))
            }
        };
        Some(Unavailable {
            informer: Arc::clone(&self.name),
            cause,
            message,
            optional: false,
        })
    }

    fn enter(&self, state: SourceState) {
        self.state.send_modify(|(current, started)| {
            *started |= matches!(state, SourceState::Reading | SourceState::Finished);
            *current = state;
        });
    }
}

// === impl Reading ===

impl<R: RequestKey> Reading<R> {
    /// A reading of `source`. Without a name it is called `source <number>`.
    pub(super) fn new(source: Source<R>, number: usize) -> Self {
        let name = source.name.clone();
        let name = name.unwrap_or_else(|| format!("source {number}"));
        let gauge = Arc::new(Gauge {
            name: name.into(),
            state: watch::Sender::new((SourceState::Starting, false)),
            removed: CancellationToken::new(),
        });
        Self {
            source,
            gauge,
            requests: None,
        }
    }

    pub(super) fn gauge(&self) -> Arc<Gauge> {
        Arc::clone(&self.gauge)
    }

    /// Moves its requests into `queue` while `reads` is true, until it ends and cannot be started again, is removed, or
    /// `stop` is cancelled. Returns its gauge if the source has finished.
    pub(super) async fn run(
        mut self,
        controller: &str,
        queue: &Queue<R>,
        mut reads: watch::Receiver<bool>,
        stop: &CancellationToken,
    ) -> Option<Arc<Gauge>> {
        let gauge = self.gauge();
        let ended = async {
            tokio::select! {
                () = gauge.removed.cancelled() => {}
                () = stop.cancelled() => {}
            }
        };
        let reading = async {
            loop {
                if reads.wait_for(|reads| *reads).await.is_err() {
                    return;
                }
                tokio::select! {
                    biased;
                    _ = reads.wait_for(|reads| !*reads) => self.rest(),
                    () = self.follow(controller, queue, stop) => return,
                }
            }
        };
        tokio::select! {
            biased;
            () = ended => {}
            () = reading => {}
        }
        let finished = gauge.state.borrow().0 == SourceState::Finished;
        finished.then_some(gauge)
    }

    /// Pauses the reading. A source that can be started again is dropped: it may hold messages for other replicas.
    fn rest(&mut self) {
        if self.source.restarts {
            self.requests = None;
            self.gauge.enter(SourceState::Starting);
        }
    }

    /// Moves its requests into `queue`, until it ends and cannot be started again.
    async fn follow(&mut self, controller: &str, queue: &Queue<R>, stop: &CancellationToken) {
        let mut pause = FIRST_PAUSE;
        let mut logged: Option<Failure> = None;
        loop {
            let begin = Instant::now();
            let read = AssertUnwindSafe(self.read(queue)).catch_unwind().await;
            self.requests = None;
            let failure = match read {
                Ok(None) => return,
                Ok(Some(SourceState::Failed(failure))) => failure,
                Ok(Some(state)) => return self.gauge.enter(state),
                Err(panic) => Failure {
                    cause: "source panicked",
                    text: format!("it panicked: {}", text_of(&*panic)),
                },
            };
            if begin.elapsed() >= LONGEST_PAUSE {
                (pause, logged) = (FIRST_PAUSE, None);
            }
            // At a stop senders are dropped in any order.
            if stop.is_cancelled() {
                return;
            }
            // One line for each cause, not for each try.
            if logged.as_ref() != Some(&failure) {
                let (source, cause) = (&*self.gauge.name, failure.cause);
                let why = &failure.text;
                tracing::warn!(
                    controller,
                    source,
                    cause,
                    why,
                    "a source of requests is not read"
                );
                logged = Some(failure.clone());
            }
            self.gauge.enter(SourceState::Failed(failure));
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Starts it and reads it to its end; `None` if it cannot be started any more.
    async fn read(&mut self, queue: &Queue<R>) -> Option<SourceState> {
        let failed = |text| {
            Some(SourceState::Failed(Failure {
                cause: "source failed",
                text,
            }))
        };
        let requests = match &mut self.requests {
            Some(requests) => requests,
            none => match (self.source.start)()?.await {
                Ok(requests) => none.insert(requests),
                Err(error) => return failed(crate::error_chain(&*error).to_string()),
            },
        };
        self.gauge.enter(SourceState::Reading);
        while let Some(wanted) = requests.next().await {
            let Wanted { request, priority } = match wanted {
                Ok(wanted) => wanted,
                Err(error) => return failed(crate::error_chain(&*error).to_string()),
            };
            let options = AddOptions::new()
                .priority(priority.unwrap_or_default())
                .reason(Reason::Custom("source"));
            queue.add_with(request, options);
            // Yields to other tasks even if the stream is always ready.
            tokio::task::coop::consume_budget().await;
        }
        if self.source.finite {
            return Some(SourceState::Finished);
        }
        Some(SourceState::Failed(Failure {
            cause: "source ended",
            text: "its stream ended, so it requests nothing any more".to_owned(),
        }))
    }
}
