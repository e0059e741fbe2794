//! The context of a reconcile: clients, caches, events, the attempt and its reasons.

use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use reeve_clock::Clock;
use reeve_workqueue::Reason;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cache::{Caches, Lister, NotCached, View};
use crate::client::{Client, Error, Object};
use crate::cluster::Cluster;
use crate::events::Recorder;
use crate::own_writes::effect::{Notes, Write};

/// The surroundings of one reconcile. Cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

/// The context that all reconciles of a controller share.
pub(crate) struct Surroundings {
    pub(crate) controller: Arc<str>,
    pub(crate) clock: Clock,
    pub(crate) caches: Caches,
    pub(crate) client: Client,
    /// Whether a key waits for its own writes, which are recorded for that.
    pub(crate) waits: bool,
    pub(crate) recorder: Recorder,
    pub(crate) stopping: CancellationToken,
}

/// Most reconciles need little of it, so the expensive parts are created on first use.
pub(crate) struct Inner {
    pub(crate) around: Arc<Surroundings>,
    /// The client that records the writes of this reconcile.
    pub(crate) client: OnceLock<(Client, Arc<Notes>)>,
    /// Its writes in other clusters.
    pub(crate) elsewhere: Elsewhere,
    pub(crate) id: OnceLock<ReconcileId>,
    pub(crate) attempt: u32,
    pub(crate) priority: i32,
    pub(crate) reasons: Vec<Reason>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) cancelled: OnceLock<CancellationToken>,
    pub(crate) span: tracing::Span,
}

/// The writes of one reconcile in other clusters.
#[derive(Default)]
pub(crate) struct Elsewhere(Mutex<Vec<(Cluster, Arc<Notes>)>>);

// === impl Elsewhere ===

impl Elsewhere {
    fn notes_of(&self, cluster: &Cluster) -> Arc<Notes> {
        let mut all = self.0.lock();
        let caches = cluster.caches();
        if let Some((_, notes)) = all.iter().find(|(known, _)| known.caches().is(caches)) {
            return Arc::clone(notes);
        }
        let notes = Arc::<Notes>::default();
        all.push((cluster.clone(), Arc::clone(&notes)));
        notes
    }

    /// The writes until now, by cluster.
    fn take(&self) -> Vec<(Cluster, Vec<Write>)> {
        let all = self.0.lock();
        let taken = all
            .iter()
            .map(|(cluster, notes)| (cluster.clone(), notes.take()));
        taken.collect()
    }
}

/// Names one reconcile in logs; printed as a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconcileId(u128);

// === impl Context ===

impl Context {
    pub(crate) fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }

    /// Cancels [`Context::cancelled`] at the end of the reconcile.
    pub(crate) fn end(&mut self) {
        match Arc::get_mut(&mut self.0) {
            // No other clone is left that could create the token later.
            Some(inner) => inner
                .cancelled
                .take()
                .iter()
                .for_each(CancellationToken::cancel),
            None => self.cancelled().cancel(),
        }
    }

    /// Its writes until now, in the manager's cluster.
    pub(crate) fn take_writes(&self) -> Vec<Write> {
        let noted = self.0.client.get();
        noted.map_or_else(Vec::new, |(_, notes)| notes.take())
    }

    /// Its writes until now in other clusters.
    pub(crate) fn take_writes_elsewhere(&self) -> Vec<(Cluster, Vec<Write>)> {
        self.0.elsewhere.take()
    }

    /// The name of the controller.
    #[must_use]
    pub fn controller(&self) -> &str {
        &self.0.around.controller
    }

    /// Wall time and randomness.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.0.around.clock
    }

    /// The client for writes. The key is not reconciled again before the caches show its writes.
    #[must_use]
    pub fn client(&self) -> &Client {
        let Inner { around, client, .. } = &*self.0;
        if !around.waits {
            return &around.client;
        }
        let (client, _) = client.get_or_init(|| {
            let notes = Arc::<Notes>::default();
            let client = around.client.clone().with_notes(Arc::clone(&notes));
            (client, notes)
        });
        client
    }

    /// Checks that this process may still act for its controller: always without leader election, else while it
    /// certainly holds the lease. The client checks this before each write; a reconciler calls it before each step that
    /// is not a write to the API server, such as a call to another system. Requests that were sent before may still
    /// land.
    ///
    /// # Errors
    /// [`Error::NotLeader`], which names `step`. Return it: the key is tried again if this process leads again.
    pub fn check_fence(&self, step: &str) -> Result<(), Error> {
        self.0.around.client.check_gate(|| step.to_owned())
    }

    /// Reads of kind `K` from the cache.
    ///
    /// # Errors
    /// When no controller watches `K` and [`Caches::keep`](crate::Caches::keep) was not called for it.
    pub fn lister<K: Object>(&self) -> Result<Lister<K>, NotCached> {
        self.0.around.caches.lister()
    }

    /// As [`Context::lister`], through a view: for example of a kind that is known only when the program runs.
    ///
    /// # Errors
    /// As [`Context::lister`].
    pub fn view<V: 'static>(&self, view: &View<V>) -> Result<Lister<V>, NotCached> {
        self.0.around.caches.view(view)
    }

    /// Records events under the controller's name, in the cluster of the manager.
    #[must_use]
    pub fn events(&self) -> &Recorder {
        &self.0.around.recorder
    }

    /// As [`Context::events`], for objects of another cluster.
    #[must_use]
    pub fn events_of(&self, cluster: &Cluster) -> Recorder {
        cluster.recorder(&self.0.around.controller)
    }

    /// The id of this reconcile in the logs.
    #[must_use]
    pub fn reconcile_id(&self) -> ReconcileId {
        let Inner { around, id, .. } = &*self.0;
        *id.get_or_init(|| ReconcileId::new(&around.clock))
    }

    /// The number of failures of this key in a row before this run.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// The priority of the key in this run.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.0.priority
    }

    /// The reasons of this run, merged over every event since the last run.
    #[must_use]
    pub fn reasons(&self) -> &[Reason] {
        &self.0.reasons
    }

    /// The time at which the reconcile is dropped, if the controller has a
    /// [time-out](crate::controller::Builder::reconcile_timeout).
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    /// Cancelled when the controller stops. A reconcile may then end early, or go on for the grace period: its writes
    /// still succeed.
    #[must_use]
    pub fn stopping(&self) -> &CancellationToken {
        &self.0.around.stopping
    }

    /// Cancelled when the reconcile is over: it returned, or was dropped at its time-out, at the end of the grace
    /// period or with the lease. For a blocking call or a task that it started elsewhere and that must not outlive it.
    #[must_use]
    pub fn cancelled(&self) -> &CancellationToken {
        self.0.cancelled.get_or_init(CancellationToken::new)
    }

    /// The span of this reconcile, with the controller, the key and the reconcile id, for tasks that it starts
    /// elsewhere.
    #[must_use]
    pub fn span(&self) -> &tracing::Span {
        &self.0.span
    }

    /// A client of another cluster that writes while this process may act for its controller, as
    /// [`Context::client`] does. The key is not reconciled again before the caches of that cluster show its writes.
    #[must_use]
    pub fn client_of(&self, cluster: &Cluster) -> Client {
        let Inner {
            around, elsewhere, ..
        } = &*self.0;
        let client = cluster
            .client()
            .clone()
            .with_gate(around.client.gate().cloned());
        if around.waits {
            client.with_notes(elsewhere.notes_of(cluster))
        } else {
            client.without_read_your_writes()
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("controller", &self.0.around.controller)
            .field("reconcile_id", &self.reconcile_id())
            .field("attempt", &self.0.attempt)
            .finish_non_exhaustive()
    }
}

// === impl ReconcileId ===

impl ReconcileId {
    pub(crate) fn new(clock: &Clock) -> Self {
        let random = clock.random();
        Self(u128::from(random.next_u64()) << 64 | u128::from(random.next_u64()))
    }
}

impl fmt::Display for ReconcileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            id >> 96,
            (id >> 80) & 0xffff,
            (id >> 64) & 0xffff,
            (id >> 48) & 0xffff,
            id & 0xffff_ffff_ffff
        )
    }
}
