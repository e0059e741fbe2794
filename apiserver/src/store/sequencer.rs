//! The order of writes: each takes the next version, its line goes to the log, and then readers see it.
//!
//! Writers queue their encoded objects. The one that gets the lock of the log leads: it takes what is queued, checks each
//! write against the state that the ones before leave, appends all lines in one write to the file (and one sync, with
//! synced writes), and changes the state. The others find their result. The lock of the state is held for the changes in
//! memory only, so that readers wait neither for the encoding nor for the disk.
//!
//! Locks are taken in this order: the log, the state. What adds or removes a table holds both, so no table goes between
//! the check of a write and its change.
//!
//! When the disk refuses the lines, all writes of the batch fail and nothing has changed. Their versions are skipped.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::epoch::{Decision, Restores};
use super::object::{Content, Key, Object};
use super::objects::Store;
use super::persist::{Line, Log, PersistError};
use super::state::State;
use super::table::{Change, Event, publish};
use super::write::{CommitError, Expected};

/// Maximum number of writes in one batch.
const MAX_BATCH: usize = 256;

/// Writes that wait for a leader.
#[derive(Default)]
pub(super) struct Queue(Mutex<Writes>);

#[derive(Default)]
struct Writes(VecDeque<Waiting>);

struct Waiting {
    write: Write,
    done: Arc<Mutex<Option<Done>>>,
}

type Done = Result<Arc<Object>, CommitError>;

/// A write before it has a version.
pub(super) struct Write {
    pub(super) storage: String,
    pub(super) key: Key,
    pub(super) expected: Expected,
    /// `None` to remove the object.
    pub(super) content: Option<Content>,
    /// Of the background task: a restore that began later refuses the write.
    pub(super) decision: Option<Decision>,
}

/// A write that has a version.
struct Sequenced {
    storage: String,
    key: Key,
    change: Change,
    object: Arc<Object>,
    previous: Option<Arc<Object>>,
}

/// The state as the earlier writes of a batch leave it.
struct Draft<'a> {
    state: &'a State,
    restores: Restores,
    step: u64,
    revision: u64,
    /// Whether the batch has several writes.
    several: bool,
    /// The version of the write before, if it was accepted.
    last: Option<u64>,
    /// The objects that the batch has written so far; `None` where it removed one.
    written: HashMap<(String, Key), Option<Arc<Object>>>,
}

// === impl Queue ===

impl Queue {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().0.len()
    }
}

// === impl Writes ===

impl Writes {
    /// Adds a write; returns the place of its result.
    fn add(&mut self, write: Write) -> Arc<Mutex<Option<Done>>> {
        let done = Arc::new(Mutex::new(None));
        self.0.push_back(Waiting {
            write,
            done: done.clone(),
        });
        done
    }
}

// === impl Store ===

impl Store {
    /// Takes a write through the queue.
    pub(super) fn sequence(&self, write: Write) -> Done {
        let done = self.queue.0.lock().add(write);
        self.result(&done)
    }

    /// Takes writes through the queue, next to each other; their results are in their order.
    pub(super) fn sequence_all(&self, writes: Vec<Write>) -> Vec<Done> {
        let waiting: Vec<_> = {
            let mut queue = self.queue.0.lock();
            writes.into_iter().map(|write| queue.add(write)).collect()
        };
        waiting.iter().map(|done| self.result(done)).collect()
    }

    /// Waits for the result of a queued write, and leads batches until it is there.
    fn result(&self, done: &Mutex<Option<Done>>) -> Done {
        loop {
            if let Some(result) = done.lock().take() {
                return result;
            }
            let mut log = self.log.lock();
            if let Some(result) = done.lock().take() {
                return result;
            }
            if !self.lead(&mut log) {
                // A leader panicked with this write.
                return Err(CommitError::Closed);
            }
        }
    }

    /// Writes the first batch of the queue; `false` if the queue is empty.
    fn lead(&self, log: &mut Option<Log>) -> bool {
        let batch: Vec<Waiting> = {
            let mut queue = self.queue.0.lock();
            let mut count = queue.0.len().min(MAX_BATCH);
            let belongs = |next: &Waiting| next.write.expected == Expected::JustWritten;
            while queue.0.get(count).is_some_and(belongs) {
                count += 1;
            }
            queue.0.drain(..count).collect()
        };
        let is_empty = batch.is_empty();
        let (writes, waiting): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|one| (one.write, one.done)).unzip();
        let results = self.write_all(log, writes);
        for (done, result) in waiting.into_iter().zip(results) {
            *done.lock() = Some(result);
        }
        !is_empty
    }

    pub(super) fn write_all(&self, log: &mut Option<Log>, writes: Vec<Write>) -> Vec<Done> {
        let decided: Vec<_> = {
            let state = self.state.read();
            let mut draft = Draft::new(&state, self.step, *self.restores.borrow());
            draft.revision = draft.revision.max(log.as_ref().map_or(0, Log::refused));
            draft.several = writes.len() > 1;
            writes
                .into_iter()
                .map(|write| draft.decide(write))
                .collect()
        };
        let sequenced: Vec<&Sequenced> = decided.iter().flatten().collect();
        if sequenced.is_empty() {
            return decided
                .into_iter()
                .map(|one| one.map(|one| one.object))
                .collect();
        }
        if let Err(error) = self.append(log, &sequenced) {
            let count = sequenced.len() as u64;
            self.failures.fetch_add(count, Ordering::Relaxed);
            // What was decided behind a write of this batch may be wrong without that write.
            let first = decided.iter().position(Result::is_ok);
            let refused = |(nth, one): (usize, Result<Sequenced, CommitError>)| -> Done {
                match one {
                    Err(own) if first.is_none_or(|first| nth < first) => Err(own),
                    _ => Err(error.clone().into()),
                }
            };
            return decided.into_iter().enumerate().map(refused).collect();
        }
        self.apply(&sequenced);
        if log.as_mut().is_some_and(Log::wants_snapshot) {
            self.begin_snapshot(log);
        }
        decided
            .into_iter()
            .map(|one| one.map(|one| one.object))
            .collect()
    }

    fn append(&self, log: &mut Option<Log>, writes: &[&Sequenced]) -> Result<(), PersistError> {
        #[cfg(test)]
        if self.state.read().broken {
            return Err(PersistError::injected());
        }
        let Some(log) = log else {
            return Ok(());
        };
        let lines: Vec<_> = writes
            .iter()
            .map(|write| Line {
                version: write.object.version(),
                storage: &write.storage,
                key: &write.key,
                object: write.stays(),
            })
            .collect();
        log.append(&lines)
    }

    /// Changes the state, and wakes its readers.
    fn apply(&self, writes: &[&Sequenced]) {
        let mut signals = Vec::new();
        let (mut chores, mut revision) = (false, 0);
        {
            let mut guard = self.state.write();
            let state = &mut *guard;
            let at = Instant::now();
            for write in writes {
                revision = write.object.version();
                let Some(table) = state.tables.get_mut(&write.storage) else {
                    continue;
                };
                let event = Event {
                    version: revision,
                    at,
                    key: write.key.clone(),
                    change: write.change,
                    object: write.object.clone(),
                    previous: write.previous.clone(),
                };
                let raised = table.record(event, &self.history);
                signals.extend(raised.map(|signal| (signal, revision)));
                state.revision = revision;
                state.learn(&write.object);
                let (storage, previous) = (&write.storage, write.previous.as_deref());
                state.note(storage, &write.key, previous, write.stays());
                chores |= self.plan_upkeep(state, storage);
            }
            chores |= !state.chores.is_empty();
        }
        publish(&self.revision, revision);
        for (signal, version) in signals {
            publish(&signal, version);
        }
        if chores {
            self.chores.notify_one();
        }
    }

    /// Starts to write a snapshot while writes and reads go on.
    pub(super) fn begin_snapshot(&self, log: &mut Option<Log>) {
        let frozen = self.state.read().freeze();
        if let Some(log) = log
            && let Err(error) = log.begin_snapshot(frozen)
        {
            // The logs still hold everything; a later write retries.
            tracing::warn!(%error, "could not write the snapshot of the store: the log keeps growing");
        }
    }
}

// === impl Sequenced ===

impl Sequenced {
    /// The object, unless it was removed.
    fn stays(&self) -> Option<&Object> {
        (self.change != Change::Deleted).then_some(&*self.object)
    }
}

// === impl Draft ===

impl<'a> Draft<'a> {
    fn new(state: &'a State, step: u64, restores: Restores) -> Self {
        Self {
            state,
            restores,
            step,
            revision: state.revision,
            several: false,
            last: None,
            written: HashMap::new(),
        }
    }

    /// Checks a write, and gives it the next version.
    fn decide(&mut self, write: Write) -> Result<Sequenced, CommitError> {
        let last = self.last.take();
        if self.state.closed {
            return Err(CommitError::Closed);
        }
        if write
            .decision
            .is_some_and(|decision| !self.restores.allow(decision))
        {
            return Err(CommitError::Restored);
        }
        let table = self.state.tables.get(&write.storage);
        let table = table.ok_or_else(|| CommitError::NoTable(write.storage.clone()))?;
        let place = (write.storage, write.key);
        let previous = match self.written.get(&place) {
            Some(written) => written.clone(),
            None => table.objects.get(place.1.as_str()).cloned(),
        };
        if table.sealed && previous.is_none() {
            return Err(CommitError::NoTable(place.0));
        }
        let holds = match (&previous, write.expected) {
            (None, Expected::Absent) => write.content.is_some(),
            (Some(object), Expected::Version(version)) => object.version() == version,
            (Some(object), Expected::JustWritten) => Some(object.version()) == last,
            _ => false,
        };
        if !holds {
            return Err(CommitError::Raced);
        }
        if write.expected == Expected::Absent && !self.takes_new_objects(place.1.namespace()) {
            return Err(CommitError::Namespace);
        }
        let version = self.revision.saturating_add(self.step);
        let (change, object) = match (write.content, &previous) {
            (Some(content), previous) => {
                let change = match previous {
                    None => Change::Added,
                    Some(_) => Change::Modified,
                };
                let api_version = match (content.api_version(), previous) {
                    (Some(api_version), _) => self.state.shared(api_version),
                    (None, Some(previous)) => previous.shared_api_version(),
                    (None, None) => Arc::default(),
                };
                (change, content.at(place.1.clone(), api_version, version))
            }
            (None, Some(previous)) => (Change::Deleted, Object::at_version(previous, version)),
            (None, None) => return Err(CommitError::Raced),
        };
        self.revision = version;
        self.last = Some(version);
        let object = Arc::new(object);
        if self.several {
            let stays = (change != Change::Deleted).then(|| object.clone());
            self.written.insert(place.clone(), stays);
        }
        let (storage, key) = place;
        Ok(Sequenced {
            storage,
            key,
            change,
            object,
            previous,
        })
    }

    /// Whether objects may be created in `namespace`: it exists, and is not being deleted. Always true in a store
    /// without namespaces.
    fn takes_new_objects(&self, namespace: &str) -> bool {
        let Some(namespaces) = self.state.tables.get("namespaces") else {
            return true;
        };
        if namespace.is_empty() {
            return true;
        }
        let written = self
            .several
            .then(|| ("namespaces".to_owned(), Key::from(namespace)))
            .and_then(|place| self.written.get(&place));
        let found = match written {
            Some(written) => written.as_ref(),
            None => namespaces.objects.get(namespace),
        };
        found.is_some_and(|found| !found.is_terminating())
    }
}
