//! One source of a controller: read while the controller may, and started again when it fails.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use reeve_workqueue::{AddOptions, Queue, Reason};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::worker::text_of;
use crate::manager::Unavailable;
use crate::reconcile::RequestKey;
use crate::source::{Requests, Source, Wanted};

/// The first pause before a source is started again; each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest. A source that was read for so long begins with the first again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Where a source is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    Starting,
    Reading,
    /// It came to its end, which is no fault.
    Finished,
    Failed(Failure),
}

/// Why a source is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    /// What readiness and metrics say.
    cause: &'static str,
    text: String,
}

/// How a source is doing, for who does not read it.
pub(super) struct Gauge {
    name: Arc<str>,
    standing: watch::Sender<(Standing, bool)>,
    /// Cancelled when the source is removed.
    removed: CancellationToken,
}

/// A source that is to be read.
pub(super) struct Reading<R> {
    source: Source<R>,
    gauge: Arc<Gauge>,
    /// Its stream, once it was started.
    requests: Option<Requests<R>>,
}

// === impl Gauge ===

impl Gauge {
    /// Returns when the source was started for the first time, or is removed.
    pub(super) async fn started(&self) {
        let mut standing = self.standing.subscribe();
        tokio::select! {
            biased;
            () = self.removed.cancelled() => {}
            // The sender lives in here.
            _ = standing.wait_for(|(_, started)| *started) => {}
        }
    }

    /// Has it not read any more.
    pub(super) fn remove(&self) {
        self.removed.cancel();
    }

    pub(super) fn is_removed(&self) -> bool {
        self.removed.is_cancelled()
    }

    pub(super) fn is_started(&self) -> bool {
        self.standing.borrow().1
    }

    /// Why it is not read.
    pub(super) fn trouble(&self) -> Option<Unavailable> {
        if self.is_removed() {
            return None;
        }
        let (cause, message) = match &self.standing.borrow().0 {
            Standing::Reading | Standing::Finished => return None,
            Standing::Starting => ("not started", format!("{}: being started", self.name)),
            Standing::Failed(failure) => {
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

    fn enter(&self, standing: Standing) {
        self.standing.send_modify(|(current, started)| {
            *started |= matches!(standing, Standing::Reading | Standing::Finished);
            *current = standing;
        });
    }
}

// === impl Reading ===

impl<R: RequestKey> Reading<R> {
    /// `source`, which is called `source <number>` if it has no name.
    pub(super) fn new(source: Source<R>, number: usize) -> Self {
        let name = source.name.clone();
        let name = name.unwrap_or_else(|| format!("source {number}"));
        let gauge = Arc::new(Gauge {
            name: name.into(),
            standing: watch::Sender::new((Standing::Starting, false)),
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

    /// Moves its requests into `queue` while `reads` says so, until it ends and cannot be started again, is removed, or
    /// `stop` comes. Returns its gauge if there is nothing to say of it any more.
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
        let finished = gauge.standing.borrow().0 == Standing::Finished;
        finished.then_some(gauge)
    }

    /// It is not read for now. What can be started again is dropped: it may hold what others could work on.
    fn rest(&mut self) {
        if self.source.restarts {
            self.requests = None;
            self.gauge.enter(Standing::Starting);
        }
    }

    /// Moves its requests into `queue`, until it ends and cannot be started again.
    async fn follow(&mut self, controller: &str, queue: &Queue<R>, stop: &CancellationToken) {
        let mut pause = FIRST_PAUSE;
        let mut said: Option<Failure> = None;
        loop {
            let begin = Instant::now();
            let read = AssertUnwindSafe(self.read(queue)).catch_unwind().await;
            self.requests = None;
            let failure = match read {
                Ok(None) => return,
                Ok(Some(Standing::Failed(failure))) => failure,
                Ok(Some(standing)) => return self.gauge.enter(standing),
                Err(panic) => Failure {
                    cause: "source panicked",
                    text: format!("it panicked: {}", text_of(&*panic)),
                },
            };
            if begin.elapsed() >= LONGEST_PAUSE {
                (pause, said) = (FIRST_PAUSE, None);
            }
            // At the stop senders go in any order.
            if stop.is_cancelled() {
                return;
            }
            // A line for each cause, not for each try.
            if said.as_ref() != Some(&failure) {
                let (source, cause) = (&*self.gauge.name, failure.cause);
                let why = &failure.text;
                tracing::warn!(
                    controller,
                    source,
                    cause,
                    why,
                    "a source of requests is not read"
                );
                said = Some(failure.clone());
            }
            self.gauge.enter(Standing::Failed(failure));
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Starts it and reads it to its end; `None` if it cannot be started any more.
    async fn read(&mut self, queue: &Queue<R>) -> Option<Standing> {
        let failed = |text| {
            Some(Standing::Failed(Failure {
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
        self.gauge.enter(Standing::Reading);
        while let Some(wanted) = requests.next().await {
            let Wanted { request, priority } = match wanted {
                Ok(wanted) => wanted,
                Err(error) => return failed(crate::error_chain(&*error).to_string()),
            };
            let options = AddOptions {
                priority,
                reason: Some(Reason::Custom("source")),
                ..AddOptions::default()
            };
            queue.add_with(request, options);
            // A stream that always has more leaves time to others.
            tokio::task::coop::consume_budget().await;
        }
        if self.source.finite {
            return Some(Standing::Finished);
        }
        Some(Standing::Failed(Failure {
            cause: "source ended",
            text: "its stream ended, so it requests nothing any more".to_owned(),
        }))
    }
}
