//! Lists and watches one selection of one kind: [`Reflector`].
//!
//! The reflector performs the present [`Phase`] and passes its outcome to [`next`]. Requests are in `stream.rs`,
//! `list.rs` and `watch.rs`. Here are the waits, and what all of them share: objects go through
//! [`prepare`](Reflector::prepare), and a complete state through [`accept`](Reflector::accept).

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use reeve_clock::Clock;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::encoding::JsonOnly;
use super::error::Error;
use super::history::History;
use super::offers::Offers;
use super::opened::Opened;
use super::options::ReflectorOptions;
use super::phase::{Outcome, Phase, next};
use super::refusals::Refusals;
use super::waits::Waits;
use crate::decode::{Identity, Undecodable};
use crate::fifo::{Fifo, KnownObjects, Snapshot};
use crate::handover::Handover;
use crate::health::{Activity, HealthCell};
use crate::indexer::is_same;
use crate::metrics::{Measurement, Recorder};
use crate::object::{EntryReader, Stored};
use reeve_client::transport::{Endpoint, Scope, Selection, Transport};
use reeve_client::{KeyRef, ResourceVersion, error_chain};

/// Changes an object before it is queued, to drop unneeded parts. An object at which it panics is quarantined, as one
/// that cannot be read; the state that the store held of it before stays.
pub(crate) type Transform<S> = Arc<dyn Fn(&mut S) + Send + Sync>;

/// Lists and watches one selection of one kind, into one queue.
pub struct Reflector<S: Stored + ?Sized> {
    pub(super) transport: Transport,
    pub(super) endpoint: Endpoint,
    pub(super) selection: Selection,
    pub(crate) entries: EntryReader<S>,
    pub(super) options: ReflectorOptions,
    pub(crate) transform: Option<Transform<S>>,
    pub(super) fifo: Arc<dyn Fifo<S>>,
    /// The objects that the consumer of the queue holds: an unchanged object of a list is not kept twice.
    pub(super) known: Option<Arc<dyn KnownObjects<S>>>,
    /// An older list is refused: the consumer has seen this version, from another reflector.
    pub(crate) not_before: ResourceVersion,
    /// The namespaces of which the consumer may have entries with other parts left out: the first list replaces them, also
    /// those of equal versions.
    pub(crate) rereads: Arc<BTreeSet<Arc<str>>>,
    /// Present if the task that polls this takes the steps after it too.
    pub(crate) handover: Option<Arc<Handover>>,
    /// Shared with other watches of the same server.
    pub(crate) refusals: Refusals,
    pub(super) json_only: JsonOnly,
    pub(super) clock: Clock,
    pub(crate) health: Arc<HealthCell>,
    pub(crate) recorder: Recorder,
}

/// What is known of the namespaces that are not read again.
struct Elsewhere<S: ?Sized> {
    known: Arc<dyn KnownObjects<S>>,
    rereads: Arc<BTreeSet<Arc<str>>>,
}

// === impl Elsewhere ===

impl<S: Stored + ?Sized> KnownObjects<S> for Elsewhere<S> {
    fn known(&self, key: KeyRef<'_>) -> Option<Arc<S>> {
        let again = self.rereads.contains(key.namespace.unwrap_or_default());
        (!again).then(|| self.known.known(key)).flatten()
    }

    fn known_objects(&self) -> Vec<Arc<S>> {
        let mut objects = self.known.known_objects();
        objects.retain(|it| !self.rereads.contains(it.namespace().unwrap_or_default()));
        objects
    }
}

/// A complete state that was read.
pub(super) struct Listed<S: ?Sized> {
    pub(super) objects: Vec<Arc<S>>,
    pub(super) undecodable: Vec<Undecodable>,
    pub(super) version: ResourceVersion,
}

// === impl Reflector ===

impl<S: Stored + ?Sized> Reflector<S> {
    /// Lists and watches until `stop` is cancelled. Every wait and request ends then.
    pub async fn run(&self, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.run_phases() => {}
        }
        self.health.enter(Activity::Stopped);
    }

    async fn run_phases(&self) {
        self.json_only.reset();
        let mut history = History::new(&self.not_before);
        let mut offers = Offers::new(self.endpoint.clone(), self.refusals.clone(), self.options);
        let mut waits = Waits::new(&self.options, self.clock.random());
        let mut phase = Phase::Preparing;
        loop {
            let was_list = phase.is_list();
            let outcome = self.perform(phase, &mut history, &mut waits).await;
            phase = next(outcome, &mut history, &mut offers, Instant::now());
            if was_list && matches!(phase, Phase::BackingOff { .. }) {
                self.recorder.record(Measurement::ListFailed);
            }
        }
    }

    /// Does the work of a phase.
    async fn perform(
        &self,
        phase: Phase<Opened<S>>,
        history: &mut History,
        waits: &mut Waits,
    ) -> Outcome<Opened<S>> {
        match phase {
            Phase::Preparing => {
                self.health.enter(Activity::Listing);
                self.room_for_list().await;
                waits.pace.due().await;
                Outcome::Prepared
            }
            Phase::Streaming => {
                waits.pace.ready().await;
                self.stream(history).await
            }
            Phase::Listing(paging) => {
                waits.pace.ready().await;
                self.list(history, paging).await
            }
            Phase::Opening(streak) => {
                waits.pace.ready().await;
                match self.watch(&history.version()).await {
                    Ok(watch) => Outcome::Opened { watch, streak },
                    Err(error) => {
                        self.recorder.record(Measurement::WatchFailed);
                        Outcome::OpenFailed { error, streak }
                    }
                }
            }
            Phase::Watching { watch, streak } => {
                self.health.enter(Activity::Watching);
                let ended = self.follow(watch, history, waits).await;
                Outcome::Ended { ended, streak }
            }
            Phase::Spreading(then) => {
                sleep(waits.spread_once()).await;
                Outcome::Waited(then)
            }
            Phase::BackingOff { error, then } => {
                self.report_failure(&error);
                sleep(waits.after(&error, history.has_begun())).await;
                Outcome::Waited(then)
            }
        }
    }

    /// The namespace that it watches, if it is one.
    pub(super) fn namespace(&self) -> Option<&str> {
        match &self.selection.scope {
            Scope::Cluster => None,
            Scope::Namespace(name) => Some(name),
        }
    }

    /// Returns when the queue takes a list: at most one waits for the store.
    async fn room_for_list(&self) {
        while !self.fifo.has_room_for_list() {
            self.fifo.writable().notified().await;
        }
    }

    /// Returns when the queue takes more. A store that falls behind slows the server down and takes no memory.
    pub(super) async fn room(&self) {
        while !self.fifo.has_room() {
            self.fifo.writable().notified().await;
        }
    }

    /// Logs the first failure of each class in a row.
    fn report_failure(&self, error: &Error) {
        let text = error_chain(error).to_string();
        let is_new = self.health.failed(error.class(), text.clone());
        if is_new {
            tracing::warn!(kind = %self.endpoint, namespace = self.namespace(), error = %text, "cannot follow the API server; retrying");
        } else {
            tracing::debug!(kind = %self.endpoint, namespace = self.namespace(), error = %text, "still cannot follow the API server");
        }
        self.health.enter(if error.is_missing() {
            Activity::Missing
        } else {
            Activity::BackingOff
        });
    }

    /// Logs the end of a failure.
    pub(super) fn report_success(&self) {
        if let Some(failure) = self.health.recovered() {
            tracing::info!(kind = %self.endpoint, namespace = self.namespace(), since = %failure.since, attempts = failure.times, "follows the API server again");
        }
    }

    /// Counts and logs an object that cannot be read, once for each version.
    pub(super) fn report_undecodable(&self, object: &Undecodable) {
        if self.health.is_quarantined(object) {
            return;
        }
        self.recorder.record(Measurement::Quarantined);
        tracing::warn!(
            kind = %self.endpoint, namespace = self.namespace(),
            object = object.key.as_ref().map(tracing::field::display),
            version = object.resource_version.as_deref(),
            error = %object.error,
            "cannot read an object; the store keeps its former state"
        );
    }

    /// The objects that the consumer holds, so that a list does not double the memory. None while the history is doubtful:
    /// one version may then stand for two states.
    pub(super) fn holding(&self, history: &History) -> Option<Arc<dyn KnownObjects<S>>> {
        let known = self.known.clone().filter(|_| !history.is_doubtful())?;
        if history.has_listed() || self.rereads.is_empty() {
            return Some(known);
        }
        let rereads = Arc::clone(&self.rereads);
        Some(Arc::new(Elsewhere { known, rereads }))
    }

    /// A listed object: the entry that the consumer holds in the same version, or else this one, prepared.
    pub(super) fn reuse(&self, history: &History, object: Arc<S>) -> Result<Arc<S>, Undecodable> {
        let namespace = object.namespace().unwrap_or_default();
        let again = !history.has_listed() && self.rereads.contains(namespace);
        let held = self
            .known
            .as_ref()
            .filter(|_| !history.is_doubtful() && !again)
            .and_then(|known| known.known(object.key_ref()))
            .filter(|held| is_same::<S>(held, &object));
        held.map_or_else(|| self.prepare(object), Ok)
    }

    /// Transforms an object. An object at which the transform panics counts as one that cannot be read.
    pub(super) fn prepare(&self, mut object: Arc<S>) -> Result<Arc<S>, Undecodable> {
        let Some(transform) = &self.transform else {
            return Ok(object);
        };
        // Taken before: the transform may leave the object in any state.
        let (key, uid) = (object.key(), object.uid().into());
        let version = object.resource_version().to_owned();
        // Always possible: it is not shared yet.
        let Some(changed) = Arc::get_mut(&mut object) else {
            return Ok(object);
        };
        match catch_unwind(AssertUnwindSafe(|| transform(changed))) {
            Ok(()) => Ok(object),
            Err(_) => Err(Undecodable {
                key: Some(key),
                uid: Some(uid),
                resource_version: Some(version),
                // The text of the panic may hold values of the object.
                error: "the transform panicked".to_owned(),
                outline: String::new(),
            }),
        }
    }

    /// Queues a complete state, unless it is older than the known version. `consistent`: the server was asked for its
    /// newest state.
    pub(super) fn accept(
        &self,
        history: &mut History,
        listed: Listed<S>,
        consistent: bool,
    ) -> Result<(), Error> {
        let version = listed_version(listed.version);
        let reread = if history.has_listed() {
            Arc::default()
        } else {
            Arc::clone(&self.rereads)
        };
        let epoch = history
            .accept_list(&version, consistent, self.options.epoch_lists)
            .inspect_err(|_| {
                self.health.stale();
                self.recorder.record(Measurement::StaleList);
            })?;
        if let Some(epoch) = &epoch {
            tracing::warn!(
                kind = %self.endpoint, namespace = self.namespace(), known = %epoch.known, now = %version, lists = epoch.lists,
                "the server's history began again; its present state replaces the known one"
            );
            self.health.new_epoch();
            self.recorder.record(Measurement::NewEpoch);
        }
        for object in &listed.undecodable {
            self.report_undecodable(object);
        }
        self.health.quarantine_only(&listed.undecodable);
        self.health.heard();
        let retained = listed.undecodable.into_iter();
        self.fifo.replace(Snapshot {
            objects: listed.objects,
            retained: retained.filter_map(|object| object.key).collect(),
            resource_version: version,
            new_epoch: epoch.is_some(),
            reread,
        });
        Ok(())
    }
}

/// The entry of an object of a list, if it is `known` in the same version.
pub(super) fn held<S: Stored + ?Sized>(
    known: &dyn KnownObjects<S>,
    object: &Identity<'_>,
) -> Option<Arc<S>> {
    let held = known.known(object.key()?)?;
    let version = object.resource_version();
    let same = held.uid() == object.uid() && held.resource_version() == version;
    (same && !version.is_empty()).then_some(held)
}

/// The version of a list. A watch after "0" begins with all objects, as one without a version does, so "0" is none.
pub(super) fn listed_version(version: ResourceVersion) -> ResourceVersion {
    if version.as_str() == "0" {
        return ResourceVersion::default();
    }
    version
}

impl<S: Stored + ?Sized> std::fmt::Debug for Reflector<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reflector")
            .field("endpoint", &self.endpoint)
            .field("selection", &self.selection)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
