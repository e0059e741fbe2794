//! The fence of a lease: a check before a request is made and again before it is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use reeve_client::Gate;
use reeve_clock::Clock;
use tokio::sync::Notify;
use tokio::time::sleep;

/// Whether the lease is certainly ours. Clients that work under a lease check it before each write. Clones share it.
///
/// It is open from the time when the lease is taken until the renew deadline after the last renewal, on a clock that
/// counts suspend. It closes by itself, so a process that was paused finds it closed.
#[derive(Clone, Debug)]
pub struct Fence {
    clock: Clock,
    state: Arc<State>,
}

/// Milliseconds since boot; zero when not leading.
#[derive(Debug, Default)]
struct State {
    /// End of the time in which writes may be sent.
    until: AtomicU64,
    /// End of the time in which no other process can have taken the lease.
    lease: AtomicU64,
    sent: Mutex<Sent>,
    /// Notified when a write was answered or given up, or a worker ended.
    landed: Notify,
    /// A write was answered whose connection did not check the fence. Logged once.
    bypassed: AtomicBool,
}

/// Writes in flight, and workers that may send more.
#[derive(Debug, Default)]
struct Sent {
    /// Number of writes without an answer.
    waiting: usize,
    /// Number of workers and runnables under the lease.
    working: usize,
    /// Time when the last write without an answer was given up: it may still arrive.
    given_up: Option<Duration>,
}

/// Guard of a worker under the lease of this fence.
#[derive(Debug)]
pub struct Working(Fence);

// === impl Fence ===

impl Fence {
    /// A fence that is closed until an elector leads.
    #[must_use]
    pub fn closed(clock: Clock) -> Self {
        Self {
            clock,
            state: Arc::default(),
        }
    }

    /// The fence as the gate of a client.
    #[must_use]
    pub fn gate(&self) -> Arc<dyn Gate> {
        Arc::new(self.clone())
    }

    /// Whether the lease is ours now, to the knowledge of this process.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.clock.since_boot() < millis(self.state.until.load(Ordering::Acquire))
    }

    /// Counts a worker under the lease until the guard is dropped. The lease is not released before: a worker that blocks
    /// its thread cannot be dropped, and calls to systems other than the API server do not check the fence.
    pub fn work(&self) -> Working {
        self.state.sent.lock().working += 1;
        Working(self.clone())
    }

    /// Returns when nothing works under the lease any more, and every write has been answered, or was given up at least
    /// `margin` ago.
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

    /// Time until every write without an answer was given up at least `margin` ago; `None` while a write is in flight or
    /// a worker runs under the lease.
    pub fn lands_in(&self, margin: Duration) -> Option<Duration> {
        let sent = self.state.sent.lock();
        if sent.waiting > 0 || sent.working > 0 {
            return None;
        }
        let passed = |at| self.clock.since_boot().saturating_sub(at);
        let left = sent.given_up.map(|at| margin.saturating_sub(passed(at)));
        Some(left.unwrap_or_default())
    }

    /// Whether a write was answered whose connection did not check the fence.
    #[cfg(test)]
    pub(crate) fn is_bypassed(&self) -> bool {
        self.state.bypassed.load(Ordering::Acquire)
    }

    #[cfg(test)]
    pub(crate) fn forget_bypassed(&self) {
        self.state.bypassed.store(false, Ordering::Release);
    }

    /// Whether this process still leads `tolerance` after its lease ended (client-go: `HealthzAdaptor`). Zero tolerance
    /// counts from the time when writes are refused.
    pub fn is_overdue(&self, tolerance: Duration) -> bool {
        let state = &self.state;
        let (until, lease) = (
            state.until.load(Ordering::Acquire),
            state.lease.load(Ordering::Acquire),
        );
        let end = if tolerance.is_zero() { until } else { lease };
        end != 0 && self.clock.since_boot() >= millis(end).saturating_add(tolerance)
    }

    /// Records a renewal by a write that started at `sent_at`. The other candidates count from the time when they see the
    /// write, which is not earlier.
    pub fn renewed(&self, sent_at: Duration, deadline: Duration, lease: Duration) {
        let number = |at: Duration| u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        self.state
            .lease
            .store(number(sent_at.saturating_add(lease)), Ordering::Release);
        self.state
            .until
            .store(number(sent_at.saturating_add(deadline)), Ordering::Release);
    }

    /// Closes the fence: writes are refused until the lease is renewed.
    pub fn close(&self) {
        self.state.until.store(0, Ordering::Release);
        self.state.lease.store(0, Ordering::Release);
    }
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

impl Gate for Fence {
    fn is_open(&self) -> bool {
        Fence::is_open(self)
    }

    fn sent(&self) {
        self.state.sent.lock().waiting += 1;
    }

    fn ended(&self, settled: bool) {
        let mut sent = self.state.sent.lock();
        sent.waiting -= 1;
        if !settled {
            sent.given_up = Some(self.clock.since_boot());
        }
        drop(sent);
        self.state.landed.notify_waiters();
    }

    fn unasked(&self) {
        if !self.state.bypassed.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                "this client checks the lease when a write is made, but not again when it is sent: a write that is delayed \
                 in between may be sent after the lease is lost; create the client with reeve_client::connect"
            );
        }
    }
}
