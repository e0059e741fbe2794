//! Keeps a queue fed with what the API server says: list, then watch, for ever.
//!
//! # When things fail
//!
//! | what happens | what the reflector does |
//! |---|---|
//! | the server offers no streaming lists (422, 501, or 400 where pages can be read) | reads pages; remembers it for an hour, for all informers of a factory and kinds of a group |
//! | the server refuses this streaming list (another 400, 405, 406, 415), or never ends it | reads pages; remembers it for an hour, for this watch |
//! | the server is silent before the end of a streaming list, or does not answer it in time | reads pages; remembers it for an hour, for this watch. Where streaming lists of the group came to their end before: backs off and asks again; reads pages this time if that is silent, too |
//! | a continue token expires in the middle of paging | reads everything at once |
//! | everything at once is too large, or takes too long | reads pages; remembers it for an hour |
//! | a streaming list breaks off twice in a row | reads pages; remembers it for an hour |
//! | the watch ends when it was asked to | watches again from the last version |
//! | the watch ends early, or the connection breaks | the same, within seven seconds, drawn at random: many informers do not come back at once |
//! | the watch ends at once, again and again | backs off between attempts |
//! | 410, as HTTP status or in the stream; an object in the stream that the server cannot read itself | lists again, after a back-off |
//! | 429, 5xx, no connection | backs off (at least `Retry-After`) and watches again, without listing |
//! | a list has no version, or "0", so that the watch after it begins with all objects in any order | takes them all; lists again if the watch ends, or is silent for 90 s, before anything but additions came |
//! | the watch is silent for 90 s | opens a second at the last version, then drops the first |
//! | an object cannot be read, says that it is of another type, or its type or a transform panics at it | quarantines it; the others go on |
//! | a list is older than what is known | refuses it; after three in a row, accepts that history began anew |
//! | the store has not taken the last list yet, because a handler blocks it | waits before it lists again; a watch goes on until the queue is full |
//! | an event is not newer than what is known | drops it; after ten in a row, asks the server where it stands |
//! | the third 5xx, undecodable line or too large version in a row in a stream | lists again, after a back-off |
//!
//! Whatever happens, a server is asked for at most 120 lists and watches in an hour
//! ([`ReflectorOptions::request_interval`]). Every wait ends when the reflector is stopped.

mod initial;
mod list;
mod options;
mod pace;
mod progress;
mod react;
mod refusals;
mod watch;

pub use options::{FirstList, ReflectorOptions};
pub(crate) use refusals::Refusals;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use kube_client::Client;
use reeve_clock::{Clock, scaled};
use tokio_util::sync::CancellationToken;

use crate::decode::{Identity, Undecodable};
use crate::fifo::{Fifo, KnownObjects, Snapshot};
use crate::health::{Activity, HealthCell};
use crate::indexer::is_same;
use crate::metrics::{Measurement, Recorder};
use crate::object::Decoding;
use crate::object::Stored;
use progress::Progress;
use reeve_client::ResourceVersion;
use reeve_client::error_chain;
use reeve_client::transport::{self, Endpoint, Scope, Selection, Transport};

/// Changes an object before anyone sees it: to drop what is not needed. An object at which it panics is quarantined,
/// as one that cannot be read; what the store held of it before stays.
pub type Transform<S> = Arc<dyn Fn(&mut S) + Send + Sync>;

/// Lists and watches one selection of one kind, into one queue.
pub struct Reflector<S: Stored> {
    pub(crate) transport: Transport,
    pub(crate) endpoint: Endpoint,
    pub(crate) selection: Selection,
    pub(crate) decoding: Decoding,
    pub(crate) options: ReflectorOptions,
    pub(crate) transform: Option<Transform<S>>,
    pub(crate) fifo: Arc<dyn Fifo<S>>,
    /// What the consumer of the queue holds: an object of a list that is there already is not kept twice.
    pub(crate) known: Option<Arc<dyn KnownObjects<S>>>,
    /// A list that is older is refused: the consumer has seen this version, from another reflector.
    pub(crate) not_before: ResourceVersion,
    /// Who does not offer streaming lists, as far as others saw it, too.
    pub(crate) refusals: Refusals,
    pub(crate) clock: Clock,
    pub(crate) health: Arc<HealthCell>,
    pub(crate) recorder: Recorder,
}

/// Why there is no present state to go on from.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Transport(#[from] transport::Error),
    #[error(
        "the server answered with version {got}, and {known} is known already; it lags behind, or was restored"
    )]
    Behind {
        known: ResourceVersion,
        got: ResourceVersion,
    },
    #[error("the streaming list ended before it was complete")]
    Incomplete,
    #[error("the streaming list did not end within {after:?}")]
    Endless { after: Duration },
    #[error(
        "the server repeatedly says that less happened than is known (version {known}); it may have been restored"
    )]
    LowBookmarks { known: ResourceVersion },
}

/// The longest time that a server is left alone because it asked for that (`Retry-After`).
const LONGEST_WISH: Duration = Duration::from_secs(3600);

// === impl Error ===

impl Error {
    fn class(&self) -> &'static str {
        match self {
            Self::Transport(error) => error.class(),
            Self::Behind { .. } | Self::LowBookmarks { .. } => "behind",
            Self::Incomplete | Self::Endless { .. } => "incomplete",
        }
    }

    /// The server does not have the kind.
    fn is_missing(&self) -> bool {
        matches!(self, Self::Transport(error) if error.code() == Some(404))
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Transport(error) => error.retry_after(),
            _ => None,
        }
    }
}

// === impl Reflector ===

impl<S: Stored> Reflector<S> {
    /// A reflector of its own, for whoever brings a queue and a consumer (client-go: `NewReflector`). An
    /// informer makes its own.
    #[must_use]
    pub fn new(
        client: Client,
        endpoint: Endpoint,
        selection: Selection,
        options: ReflectorOptions,
        fifo: Arc<dyn Fifo<S>>,
        clock: Clock,
    ) -> Self {
        Self {
            transport: Transport::new(client, options.limits),
            decoding: decoding(&endpoint),
            health: Arc::new(HealthCell::new(clock.clone())),
            recorder: Recorder::default(),
            endpoint,
            selection,
            options: options.bounded(),
            transform: None,
            fifo,
            known: None,
            not_before: ResourceVersion::default(),
            refusals: Refusals::default(),
            clock,
        }
    }

    /// Lists and watches until `stop` is cancelled. No wait and no request outlives that.
    pub async fn run(&self, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.run_forever() => {}
        }
        self.health.enter(Activity::Stopped);
    }

    async fn run_forever(&self) {
        let mut progress = Progress::new(&self.options, &self.not_before, self.clock.random());
        loop {
            self.health.enter(Activity::Listing);
            let error = match self.list(&mut progress).await {
                Ok(opened) => self.follow(&mut progress, opened).await,
                Err(error) => {
                    self.recorder.record(Measurement::ListFailed);
                    Some(error)
                }
            };
            if let Some(error) = error {
                self.back_off(&mut progress, &error).await;
            }
        }
    }

    /// Notes a failure and waits for as long as it takes.
    async fn back_off(&self, progress: &mut Progress, error: &Error) {
        self.note(error);
        self.health.enter(if error.is_missing() {
            Activity::Missing
        } else {
            Activity::BackingOff
        });
        let delay = progress.backoff.next_delay();
        let wished = error.retry_after().unwrap_or_default();
        let delay = delay.max(wished.min(LONGEST_WISH));
        tokio::time::sleep(delay + self.scatter(progress)).await;
    }

    /// How much longer to wait before coming back to a server, so that others who lost it at the same moment
    /// come at other moments. Once is enough: after that they are apart.
    fn scatter(&self, progress: &mut Progress) -> Duration {
        if progress.version.is_none() || std::mem::replace(&mut progress.scattered, true) {
            return Duration::ZERO;
        }
        self.spread()
    }

    /// A time between zero and [`ReflectorOptions::reconnect_spread`].
    fn spread(&self) -> Duration {
        scaled(self.options.reconnect_spread, self.clock.random().unit())
    }

    /// Where it watches, if that is one namespace.
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
    async fn room(&self) {
        while !self.fifo.has_room() {
            self.fifo.writable().notified().await;
        }
    }

    /// Logs a failure once, not each time it comes back.
    fn note(&self, error: &Error) {
        let told = error_chain(error).to_string();
        let news = self.health.failed(error.class(), told.clone());
        if news {
            tracing::warn!(kind = %self.endpoint, namespace = self.namespace(), error = %told, "cannot follow the API server; retrying");
        } else {
            tracing::debug!(kind = %self.endpoint, namespace = self.namespace(), error = %told, "still cannot follow the API server");
        }
    }

    fn recovered(&self) {
        if let Some(failure) = self.health.recovered() {
            tracing::info!(kind = %self.endpoint, namespace = self.namespace(), since = %failure.since, attempts = failure.times, "follows the API server again");
        }
    }

    /// Counts and logs an object that cannot be read, once a version.
    fn report(&self, object: &Undecodable) {
        if self.health.is_quarantined(object) {
            return;
        }
        self.recorder.record(Measurement::Quarantined);
        tracing::warn!(
            kind = %self.endpoint, namespace = self.namespace(),
            object = object.key.as_ref().map(tracing::field::display),
            version = object.resource_version.as_deref(),
            error = %object.error,
            "an object cannot be read and is left as it was"
        );
    }

    /// The entry that is held already of an object of a list, if it is of the same version, so that a list does not
    /// double what is kept. Not while the server seems to be behind: a version then may come twice.
    fn held(&self, progress: &Progress, object: &Identity<'_>) -> Option<Arc<S>> {
        let known = self.known.as_ref().filter(|_| progress.behind == 0)?;
        let held = known.known(object.key()?)?;
        let version = object.resource_version();
        let same = held.uid() == object.uid() && held.resource_version() == version;
        (same && !version.is_empty()).then_some(held)
    }

    /// An object of a list: the entry that is [held](Self::held) already, or this one.
    fn reuse(&self, progress: &Progress, object: Arc<S>) -> Result<Arc<S>, Undecodable> {
        let known = self
            .known
            .as_ref()
            .filter(|_| progress.behind == 0)
            .and_then(|known| known.known(object.key_ref()))
            .filter(|known| is_same::<S>(known, &object));
        known.map_or_else(|| self.prepare(object), Ok)
    }

    /// Transforms an object. One that the transform panics at is as one that cannot be read.
    fn prepare(&self, mut object: Arc<S>) -> Result<Arc<S>, Undecodable> {
        let Some(transform) = &self.transform else {
            return Ok(object);
        };
        // Taken before: the transform may leave anything.
        let (key, uid) = (object.key(), object.uid().into());
        let version = object.resource_version().to_owned();
        // Nobody else has it yet.
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
                error: "the transform panicked at it".to_owned(),
                outline: String::new(),
            }),
        }
    }

    /// Hands a complete state on, unless it is older than what is known. `consistent` says that the server
    /// was asked for its newest.
    fn accept(
        &self,
        progress: &mut Progress,
        objects: Vec<Arc<S>>,
        undecodable: &[Undecodable],
        version: ResourceVersion,
        consistent: bool,
    ) -> Result<(), Error> {
        let version = listed_version(version);
        let mut anew = false;
        if let Some(known) = progress
            .version
            .as_ref()
            .filter(|known| version.is_older_than(known))
        {
            let new_epoch = self.options.epoch_lists.max(2);
            progress.behind += u32::from(consistent);
            // The next list shall count.
            progress.unavailable = true;
            if progress.behind < new_epoch {
                self.health.stale();
                self.recorder.record(Measurement::StaleList);
                return Err(Error::Behind {
                    known: known.clone(),
                    got: version,
                });
            }
            tracing::warn!(
                kind = %self.endpoint, namespace = self.namespace(), %known, now = %version, lists = progress.behind,
                "the server's history began anew; its present state replaces what was known"
            );
            self.health.new_epoch();
            self.recorder.record(Measurement::NewEpoch);
            anew = true;
        }
        for object in undecodable {
            self.report(object);
        }
        self.health.quarantine_only(undecodable);
        self.health.heard();
        progress.behind = 0;
        progress.low_bookmarks = 0;
        progress.old_events = 0;
        progress.failures = 0;
        progress.unavailable = false;
        progress.version = Some(version.clone());
        self.fifo.replace(Snapshot {
            objects,
            retained: undecodable
                .iter()
                .filter_map(|object| object.key.clone())
                .collect(),
            resource_version: version,
            new_epoch: anew,
        });
        Ok(())
    }
}

/// The version of a list. A watch after "0" begins with everything, as one without a version does: it is none.
fn listed_version(version: ResourceVersion) -> ResourceVersion {
    if version.as_str() == "0" {
        return ResourceVersion::default();
    }
    version
}

/// How objects of `endpoint` are read. Of metadata alone the server says that it is that.
fn decoding(endpoint: &Endpoint) -> Decoding {
    let decoding = Decoding::of(endpoint.api_version(), endpoint.kind());
    if endpoint.is_metadata_only() {
        decoding
    } else {
        decoding.guarded()
    }
}

impl<S: Stored> std::fmt::Debug for Reflector<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reflector")
            .field("endpoint", &self.endpoint)
            .field("selection", &self.selection)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
