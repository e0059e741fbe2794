//! Whether this process may write, asked when a request is made and again when it goes out.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, StatusCode};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use reeve_clock::Clock;
use tokio::sync::Notify;
use tokio::time::sleep;
use tower::BoxError;

use crate::health::Health;

/// How long after the end of its lease a leader is taken for stuck (client-go's components pass it to
/// `NewLeaderHealthzAdaptor`).
pub const TOLERANCE: Duration = Duration::from_secs(20);

/// Tells whether the lease is certainly ours. The client of what runs under a lease asks it before each write.
/// Clones share it.
///
/// It is open from when the lease is taken until the renew deadline after the last renewal, on a clock that counts
/// suspend: nobody has to close it, so a process that stood still finds it closed.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    clock: Clock,
    state: Arc<State>,
}

/// Milliseconds since boot; zero when not leading.
#[derive(Debug, Default)]
struct State {
    /// Until when writes may go out.
    until: AtomicU64,
    /// Until when others cannot have taken the lease.
    lease: AtomicU64,
    sent: Mutex<Sent>,
    /// A write was answered, or given up.
    landed: Notify,
    /// A write was answered though nobody asked on its way out: once, it is said.
    bypassed: AtomicBool,
}

/// The writes that were sent, and what may send more.
#[derive(Debug, Default)]
struct Sent {
    /// How many wait for their answer.
    waiting: usize,
    /// How many workers and runnables still run under the lease.
    working: usize,
    /// When the last one was given up without an answer: it may still arrive.
    given_up: Option<Duration>,
}

/// Not sent: the fence is closed.
#[derive(Debug, thiserror::Error)]
#[error("not sent, this process is not the leader")]
pub(crate) struct Closed;

/// Something works under the lease of this fence.
#[derive(Debug)]
pub(crate) struct Working(Fence);

/// What one write takes with it to the connection, to be asked there: an extension of the request.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    fence: Fence,
    passed: Arc<Passed>,
}

/// What became of a write at its connection.
#[derive(Debug, Default)]
struct Passed {
    /// Whether the fence was asked there.
    asked: AtomicBool,
    refused: AtomicBool,
}

/// A write on its way, as its sender knows it. Dropped without an answer it may still arrive.
#[derive(Debug)]
pub(crate) struct Passage {
    gate: Gate,
    settled: bool,
}

// === impl Fence ===

impl Fence {
    pub(crate) fn closed(clock: Clock) -> Self {
        Self {
            clock,
            state: Arc::default(),
        }
    }

    /// Whether the lease is ours right now, as far as anyone can know.
    #[must_use]
    pub(crate) fn is_open(&self) -> bool {
        self.clock.since_boot() < millis(self.state.until.load(Ordering::Acquire))
    }

    /// Counts something that works under the lease, until the guard is dropped. A worker that blocks its thread cannot be
    /// dropped, and calls to other systems than the API server ask no fence: the lease is not released before.
    pub(crate) fn work(&self) -> Working {
        self.state.sent.lock().working += 1;
        Working(self.clone())
    }

    /// Returns when nothing works under the lease any more, and every write that was sent has been answered or was given
    /// up at least `margin` ago.
    pub(crate) async fn landed(&self, margin: Duration) {
        loop {
            let landed = self.state.landed.notified();
            match self.lands_in(margin) {
                Some(Duration::ZERO) => return,
                Some(left) => sleep(left).await,
                None => landed.await,
            }
        }
    }

    /// How long until every write that was sent was given up at least `margin` ago; `None` while one waits for its answer,
    /// or something works under the lease.
    pub(crate) fn lands_in(&self, margin: Duration) -> Option<Duration> {
        let sent = self.state.sent.lock();
        if sent.waiting > 0 || sent.working > 0 {
            return None;
        }
        let passed = |at| self.clock.since_boot().saturating_sub(at);
        let left = sent.given_up.map(|at| margin.saturating_sub(passed(at)));
        Some(left.unwrap_or_default())
    }

    /// Marks `request`, if it is a write, as one to be asked about again when it goes out.
    pub(crate) fn gate<B>(&self, request: &mut Request<B>) -> Option<Passage> {
        if matches!(
            *request.method(),
            Method::GET | Method::HEAD | Method::OPTIONS
        ) {
            return None;
        }
        let gate = Gate {
            fence: self.clone(),
            passed: Arc::default(),
        };
        request.extensions_mut().insert(gate.clone());
        self.state.sent.lock().waiting += 1;
        Some(Passage {
            gate,
            settled: false,
        })
    }

    /// `client`, refusing to write while the fence is closed.
    pub(crate) fn guard(&self, client: &kube_client::Client) -> kube_client::Client {
        let (fence, inner) = (self.clone(), client.clone());
        let service = tower::service_fn(move |mut request: Request<kube_client::client::Body>| {
            let passage = fence.gate(&mut request);
            let inner = inner.clone();
            async move {
                let Some(mut passage) = passage else {
                    return inner.send(request).await.map_err(BoxError::from);
                };
                passage.gate.check()?;
                let answer = inner.send(request).await;
                if passage.refused() {
                    return Err(Closed.into());
                }
                if let Ok(answer) = &answer {
                    passage.answered(answer.status());
                }
                answer.map_err(BoxError::from)
            }
        });
        kube_client::Client::new(service, client.default_namespace())
    }

    /// Whether a write was answered that nobody had asked about on its way out.
    #[cfg(test)]
    pub(super) fn is_bypassed(&self) -> bool {
        self.state.bypassed.load(Ordering::Acquire)
    }

    #[cfg(test)]
    pub(super) fn forget_bypassed(&self) {
        self.state.bypassed.store(false, Ordering::Release);
    }

    /// Whether this process still counts itself as the leader, `tolerance` after its lease ended
    /// (client-go: `HealthzAdaptor`). Zero tolerance counts from the moment writes are refused.
    pub(crate) fn is_overdue(&self, tolerance: Duration) -> bool {
        let state = &self.state;
        let (until, lease) = (
            state.until.load(Ordering::Acquire),
            state.lease.load(Ordering::Acquire),
        );
        let end = if tolerance.is_zero() { until } else { lease };
        end != 0 && self.clock.since_boot() >= millis(end).saturating_add(tolerance)
    }

    /// The lease was renewed by a write that was asked for at `asked`. The others count from when they see the
    /// write, which is not before that.
    pub(crate) fn renewed(&self, asked: Duration, deadline: Duration, lease: Duration) {
        let number = |at: Duration| u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        self.state
            .lease
            .store(number(asked.saturating_add(lease)), Ordering::Release);
        self.state
            .until
            .store(number(asked.saturating_add(deadline)), Ordering::Release);
    }

    pub(crate) fn close(&self) {
        self.state.until.store(0, Ordering::Release);
        self.state.lease.store(0, Ordering::Release);
    }
}

/// Adds the checks of one lease. `/readyz` fails while this process counts itself as the leader and may not write;
/// `/healthz` does [`TOLERANCE`] after the lease ended: the elector should have noticed, so its runtime must be stuck.
pub(crate) fn add_checks(health: &Health, lease: &str, fence: &Fence) {
    let name = check_name(lease);
    for (checks, tolerance) in [(health.ready(), Duration::ZERO), (health.live(), TOLERANCE)] {
        let fence = fence.clone();
        checks.add(name.as_str(), move || {
            if fence.is_overdue(tolerance) {
                return Err("leading without a valid lease".to_owned());
            }
            Ok(())
        });
    }
}

/// Removes what [`add_checks`] added.
pub(crate) fn remove_checks(health: &Health, lease: &str) {
    for checks in [health.ready(), health.live()] {
        checks.remove(&check_name(lease));
    }
}

fn check_name(lease: &str) -> String {
    format!("leader-election-{lease}")
}

fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

// === impl Working ===

impl Drop for Working {
    fn drop(&mut self) {
        self.0.state.sent.lock().working -= 1;
        self.0.state.landed.notify_waiters();
    }
}

// === impl Gate ===

impl Gate {
    fn check(&self) -> Result<(), Closed> {
        if self.fence.is_open() {
            return Ok(());
        }
        self.passed.refused.store(true, Ordering::Release);
        Err(Closed)
    }
}

// === impl Passage ===

impl Passage {
    /// Whether the request was stopped on its way out.
    pub(crate) fn refused(&self) -> bool {
        self.gate.passed.refused.load(Ordering::Acquire)
    }

    /// The write was answered with this status. A server error settles nothing: a proxy or the server's own time-out
    /// filter answers 504 while the write is still on its way. If the fence was not asked on the way out, the client
    /// cannot do that; the log says so once.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        if status.is_server_error() {
            return;
        }
        self.settle();
        let Gate { fence, passed } = &self.gate;
        if passed.asked.load(Ordering::Acquire) {
            return;
        }
        if !fence.state.bypassed.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                "this client asks for the lease when a write is made, and not again when it goes out; a write that is \
                 held up in between may be sent after the lease is lost. Make the client with client::connect"
            );
        }
    }

    /// The write was answered, or certainly not sent.
    pub(crate) fn settle(&mut self) {
        self.settled = true;
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        let fence = &self.gate.fence;
        let mut sent = fence.state.sent.lock();
        sent.waiting -= 1;
        if !self.settled && !self.refused() {
            sent.given_up = Some(fence.clock.since_boot());
        }
        drop(sent);
        fence.state.landed.notify_waiters();
    }
}

/// A request body that ends in [`Closed`] if the fence is closed by the time it is wanted: the connection was made
/// and the head is written, or about to be. A server does not act on a request whose body breaks off.
#[derive(Debug)]
pub(crate) struct Gated<B> {
    body: B,
    gate: Option<Gate>,
}

// === impl Gated ===

impl<B> Gated<B> {
    /// Takes the [`Gate`] out of `request` and puts it before its body; refuses it if that is closed already.
    pub(crate) fn request(mut request: Request<B>) -> Result<Request<Self>, Closed> {
        let gate = request.extensions_mut().remove::<Gate>();
        if let Some(gate) = &gate {
            gate.passed.asked.store(true, Ordering::Release);
            gate.check()?;
        }
        Ok(request.map(|body| Self { body, gate }))
    }
}

impl<B: Body + Unpin> Body for Gated<B>
where
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        if let Some(Err(closed)) = self.gate.as_ref().map(Gate::check) {
            return Poll::Ready(Some(Err(closed.into())));
        }
        Pin::new(&mut self.body)
            .poll_frame(context)
            .map_err(Into::into)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
