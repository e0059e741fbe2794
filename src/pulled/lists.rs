//! Entries as BlockLists.
//!
//! [`placing`](super::placing) says which list has which entries, and this module carries that out: only lists that changed
//! are written, [at a bounded pace](super::pace), with the version of the object as a precondition. What stands is
//! remembered in 24 bytes an entry, and read from the API server when this replica begins to pull and after an edit by
//! another client, which the metadata in the cache show.
//!
//! # When something fails
//! A list whose write fails is read again before the next attempt, and the others are written meanwhile. Lists are deleted
//! only when every write has succeeded, so no entry is without a list while it moves. Each step is safe to repeat.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use kube_core::ObjectMeta;
use kube_core::params::{DeleteParams, Preconditions};
use parking_lot::Mutex;
use reeve_controller::client::{self, Patch, optional};
use reeve_controller::{Client, ObjectKey};

use super::brake::Brakes;
use super::definition::Source;
use super::entry::Entries;
use super::metrics::Metrics;
use super::objects::Objects;
use super::pace::Pace;
use super::placing::{self, Closed, Item, Lists, Moment, Plan};
use super::sink::{Kept, Sink};
use super::written;
use crate::api::BlockList;
use crate::outbound::BoxFuture;
use crate::trigger::Triggers;

/// Lists that are read at once.
const AT_ONCE: usize = 4;

/// Writes of one pull that may fail before the rest is left to the next attempt.
const FAILURES: usize = 3;

/// A request that takes longer is given up.
const DEADLINE: Duration = Duration::from_secs(15);

/// The field manager in managedFields.
const FIELD_MANAGER: &str = "ipblock-operator";

/// The metadata of lists that are known.
pub(super) trait KnownLists: Send + Sync + fmt::Debug {
    /// The lists of a namespace; `None`: of all.
    fn lists<'a>(
        &'a self,
        namespace: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Vec<ObjectMeta>, String>>;
}

/// Keeps sources as BlockLists.
pub(super) struct ListSink {
    client: Client,
    known: Arc<dyn KnownLists>,
    triggers: Arc<Triggers>,
    brakes: Arc<Brakes>,
    pace: Pace,
    metrics: Metrics,
    states: Mutex<HashMap<String, Arc<tokio::sync::Mutex<State>>>>,
}

/// The lists of one source, as the API server has them.
type State = BTreeMap<u32, Written>;

#[derive(Clone, Debug)]
struct Written {
    items: Arc<[Item]>,
    uid: String,
    generation: i64,
    version: String,
    suspended: bool,
}

/// The lists of one source in one pull.
struct Work<'a> {
    sink: &'a ListSink,
    source: &'a str,
    namespace: &'a str,
    entries: &'a Entries,
}

fn suspended(state: &State) -> BTreeSet<u32> {
    let suspended = state.iter().filter(|(_, written)| written.suspended);
    suspended.map(|(number, _)| *number).collect()
}

// === impl Written ===

impl Written {
    fn of(meta: &ObjectMeta, items: Arc<[Item]>, suspended: bool) -> Self {
        Self {
            suspended,
            items,
            uid: meta.uid.clone().unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            version: meta.resource_version.clone().unwrap_or_default(),
        }
    }

    /// Whether `meta` is of the object as it was written, but for its status.
    fn is_at(&self, meta: &ObjectMeta) -> bool {
        meta.uid.as_deref() == Some(&*self.uid) && meta.generation == Some(self.generation)
    }

    /// Whether another client wrote it, or made it again. A cache that is behind shows an earlier generation.
    fn is_behind(&self, meta: &ObjectMeta) -> bool {
        meta.uid.as_deref() != Some(&*self.uid) || meta.generation > Some(self.generation)
    }

    fn preconditions(&self) -> DeleteParams {
        DeleteParams::default().preconditions(Preconditions {
            uid: Some(self.uid.clone()),
            resource_version: Some(self.version.clone()),
        })
    }
}

// === impl ListSink ===

impl ListSink {
    pub(super) fn new(
        client: Client,
        known: Arc<dyn KnownLists>,
        triggers: Arc<Triggers>,
        brakes: Arc<Brakes>,
        metrics: Metrics,
    ) -> Self {
        Self {
            client: client.with_deadline(DEADLINE).field_owner(FIELD_MANAGER),
            known,
            triggers,
            brakes,
            pace: Pace::default(),
            metrics,
            states: Mutex::default(),
        }
    }

    async fn try_put(&self, source: &Source, entries: &Entries) -> Result<Kept, String> {
        let name = &source.name;
        let intake = self.triggers.pulled(name, source.namespace.as_deref());
        let namespace = intake.namespace();
        let state = Arc::clone(self.states.lock().entry(name.clone()).or_default());
        let mut state = state.lock().await;
        let work = Work {
            sink: self,
            source: name,
            namespace: &namespace,
            entries,
        };
        let closed = Closed {
            taken: work.read(&mut state).await?,
            suspended: suspended(&state),
        };
        let moment = Moment {
            now: intake.now(),
            interval: source.interval,
            longest: intake.longest(),
        };
        let lists = state.iter().map(|(number, it)| (*number, it.items.clone()));
        let lists: Lists = lists.collect();
        let (name, entries) = (source.name.clone(), entries.clone());
        let brakes = Arc::clone(&self.brakes);
        // Of a million entries it takes longer than a task may run without a pause.
        let planned = tokio::task::spawn_blocking(move || {
            let gone = placing::gone(&lists, &entries, moment.now);
            let hold = brakes.holds(&name, &gone.targets, gone.standing);
            let plan = placing::plan(&lists, &entries, &closed, hold, &moment);
            (hold.then_some(gone.targets.len()), plan)
        });
        let (held, plan) = planned.await.map_err(|error| error.to_string())?;
        let done = work.carry_out(&mut state, plan).await;
        self.metrics.kept(&source.name, state.len());
        done?;
        Ok(match held {
            Some(count) => Kept::Held(count),
            None => {
                // The release was for these: later ones are judged again.
                self.brakes.forget(&source.name);
                Kept::Lifted
            }
        })
    }

    /// Deletes the lists of sources that are not configured any more once all of their entries have ended. A list that cannot
    /// be deleted keeps no other. Returns the first error.
    async fn try_tidy(&self, sources: &[Source]) -> Result<(), String> {
        let now = self.triggers.pulled("", None).now();
        let mut outcome = Ok(());
        for meta in self.known.lists(None).await? {
            let over = written::last_end(&meta).is_some_and(|end| end <= now);
            let Some(source) = BlockList::written_for(&meta).filter(|_| over) else {
                continue;
            };
            let namespace = meta.namespace.as_deref().unwrap_or_default();
            if meta.deletion_timestamp.is_none() && !self.is_wanted(sources, source, namespace) {
                let deleted = self.delete_ended(&meta, now).await;
                let deleted = deleted.map_err(|error| in_words(&error, namespace));
                outcome = outcome.and(deleted);
            }
        }
        outcome
    }

    /// Whether a source is kept as lists of this name and namespace.
    fn is_wanted(&self, sources: &[Source], name: &str, namespace: &str) -> bool {
        sources.iter().any(|source| {
            let own = || self.triggers.pulled(name, source.namespace.as_deref());
            source.objects == Objects::Lists
                && source.name == name
                && own().namespace() == namespace
        })
    }

    /// Deletes a list, unless an entry of it stands.
    async fn delete_ended(&self, meta: &ObjectMeta, now: Timestamp) -> Result<(), client::Error> {
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        let key = ObjectKey::namespaced(namespace.unwrap_or_default(), name.unwrap_or_default());
        let Some(list) = optional(self.client.get::<BlockList>(&key).await)? else {
            return Ok(());
        };
        let now_of = BlockList::written_for(&list.metadata);
        if now_of != BlockList::written_for(meta) || list.metadata.deletion_timestamp.is_some() {
            // Another client took its labels meanwhile, and keeps it.
            return Ok(());
        }
        let items = written::items(&list);
        let stands = |item: &Item| item.until.at().is_none_or(|end| end > now);
        if items.len() < list.spec.entries.len() || items.iter().any(stands) {
            // Another client edited it, so it is that client's.
            return Ok(());
        }
        self.pace.turn().await;
        let params = Written::of(&list.metadata, items, false).preconditions();
        optional(self.client.delete::<BlockList>(&key, &params).await)?;
        tracing::info!(list = %key, "deleted a list whose entries have ended, of a source that is not configured any more");
        Ok(())
    }
}

// === impl Work ===

impl Work<'_> {
    fn key(&self, number: u32) -> ObjectKey {
        ObjectKey::namespaced(self.namespace, written::name(self.source, number))
    }

    /// Whether the object is a list of the source.
    fn owns(&self, meta: &ObjectMeta) -> bool {
        BlockList::written_for(meta) == Some(self.source) && meta.deletion_timestamp.is_none()
    }

    /// Reads the lists that are not known as they are. Returns the numbers that are taken by other objects.
    async fn read(&self, state: &mut State) -> Result<BTreeSet<u32>, String> {
        let mut taken = BTreeSet::new();
        let mut shown = BTreeMap::new();
        for meta in self.sink.known.lists(Some(self.namespace)).await? {
            let name = meta.name.as_deref().unwrap_or_default();
            let Some(number) = written::number(self.source, name) else {
                continue;
            };
            if self.owns(&meta) {
                shown.insert(number, meta);
            } else {
                state.remove(&number);
                taken.insert(number);
            }
        }
        let mut unread = BTreeSet::new();
        for (number, meta) in &shown {
            match state.get_mut(number) {
                Some(written) if written.is_behind(meta) => drop(unread.insert(*number)),
                Some(written) if written.is_at(meta) => {
                    // The status was written since.
                    written.version = meta.resource_version.clone().unwrap_or_default();
                }
                Some(_) => {}
                None => drop(unread.insert(*number)),
            }
        }
        // One that the cache does not show is new, or was deleted.
        unread.extend(state.keys().filter(|number| !shown.contains_key(number)));
        let reads = unread.into_iter().map(|number| async move {
            let list = self.sink.client.get::<BlockList>(&self.key(number)).await;
            let list = optional(list).map_err(|error| error.to_string())?;
            let own = list.map(|list| {
                let own = self.owns(&list.metadata);
                let suspended = list.spec.suspended == Some(true);
                own.then(|| Written::of(&list.metadata, written::items(&list), suspended))
            });
            Ok::<_, String>((number, own))
        });
        let mut reads = futures::stream::iter(reads).buffer_unordered(AT_ONCE);
        while let Some(read) = reads.next().await {
            let (number, list) = read?;
            state.remove(&number);
            match list {
                Some(Some(written)) => drop(state.insert(number, written)),
                Some(None) => drop(taken.insert(number)),
                None => {}
            }
        }
        Ok(taken)
    }

    async fn carry_out(&self, state: &mut State, plan: Plan) -> Result<(), String> {
        let (mut failures, mut first) = (0, None);
        for (number, items) in plan.writes {
            self.sink.pace.turn().await;
            // A write that fails or is cancelled may have taken effect: the list is read again.
            let before = state.remove(&number);
            match self.write(number, before, items).await {
                Ok(written) => {
                    self.sink.metrics.wrote(self.source, "written");
                    state.insert(number, written);
                }
                Err(error) => {
                    self.sink.metrics.wrote(self.source, "failed");
                    failures += 1;
                    first.get_or_insert_with(|| in_words(&error, self.namespace));
                    if failures >= FAILURES {
                        break;
                    }
                }
            }
        }
        // A write that fails keeps no list that is empty: it would ban what the source has no more.
        let emptied = self.delete(state, plan.empty).await;
        if let Some(why) = first {
            return Err(why);
        }
        emptied?;
        self.delete(state, plan.deletes).await
    }

    /// A list that cannot be deleted keeps no other. Returns the first error.
    async fn delete(&self, state: &mut State, numbers: Vec<u32>) -> Result<(), String> {
        let (mut failures, mut first) = (0, None);
        for number in numbers {
            let Some(written) = state.remove(&number) else {
                continue;
            };
            self.sink.pace.turn().await;
            if let Err(error) = self.delete_one(number, written).await {
                self.sink.metrics.wrote(self.source, "failed");
                failures += 1;
                first.get_or_insert_with(|| in_words(&error, self.namespace));
                if failures >= FAILURES {
                    break;
                }
            } else {
                self.sink.metrics.wrote(self.source, "deleted");
            }
        }
        first.map_or(Ok(()), Err)
    }

    async fn delete_one(&self, number: u32, mut written: Written) -> Result<(), client::Error> {
        let key = self.key(number);
        let delete = async |written: &Written| {
            let params = written.preconditions();
            optional(self.sink.client.delete::<BlockList>(&key, &params).await)
        };
        let mut deleted = delete(&written).await;
        if deleted.as_ref().is_err_and(client::Error::is_conflict)
            && let Some(meta) = self.unedited(&key, &written).await?
        {
            written.version = meta.resource_version.unwrap_or_default();
            deleted = delete(&written).await;
        }
        deleted.map(drop)
    }

    /// The metadata of a list whose version is another one, if only its status was written since.
    async fn unedited(
        &self,
        key: &ObjectKey,
        written: &Written,
    ) -> Result<Option<ObjectMeta>, client::Error> {
        let meta = self.sink.client.get_metadata::<BlockList>(key).await;
        let own = |meta: &ObjectMeta| written.is_at(meta) && self.owns(meta);
        Ok(optional(meta)?.filter(own))
    }

    async fn write(
        &self,
        number: u32,
        before: Option<Written>,
        items: Arc<[Item]>,
    ) -> Result<Written, client::Error> {
        let client = &self.sink.client;
        let Some(mut before) = before else {
            let list = written::object(self.source, self.namespace, number, &items, self.entries);
            let made = client.create(&list).await?;
            return Ok(Written::of(&made.metadata, items, false));
        };
        let key = self.key(number);
        let lists = client.metadata::<BlockList>();
        let patch = |version: &str| {
            let body = written::patch(self.source, version, &items, self.entries);
            lists.patch(&key, Patch::merge(body))
        };
        let mut answer = patch(&before.version).await;
        if answer.as_ref().is_err_and(client::Error::is_conflict)
            // An edit of the spec is read first.
            && let Some(meta) = self.unedited(&key, &before).await?
        {
            before.version = meta.resource_version.unwrap_or_default();
            answer = patch(&before.version).await;
        }
        Ok(Written::of(&answer?.metadata, items, before.suspended))
    }
}

impl Sink for ListSink {
    /// Compares at each pull: that costs no request.
    fn put<'a>(
        &'a self,
        source: &'a Source,
        entries: &'a Entries,
        _compare: bool,
    ) -> BoxFuture<'a, Result<Kept, String>> {
        Box::pin(self.try_put(source, entries))
    }

    fn forget(&self, source: &str) {
        self.states.lock().remove(source);
    }

    fn tidy<'a>(&'a self, sources: &'a [Source]) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Err(why) = self.try_tidy(sources).await {
                tracing::warn!(%why, "cannot delete the lists of former sources; trying again in an hour");
            }
        })
    }
}

impl fmt::Debug for ListSink {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sources: Vec<String> = self.states.lock().keys().cloned().collect();
        formatter
            .debug_struct("ListSink")
            .field("sources", &sources)
            .finish_non_exhaustive()
    }
}

/// The error, with its remedy.
fn in_words(error: &client::Error, namespace: &str) -> String {
    let forbidden = error.status().is_some_and(|status| status.code == 403);
    if forbidden {
        return format!(
            "{error}; the operator needs the rights to create, patch and delete blocklists in the namespace {namespace}: docs/triggers.md has the Role"
        );
    }
    error.to_string()
}

#[cfg(test)]
#[path = "lists_tests.rs"]
mod tests;
