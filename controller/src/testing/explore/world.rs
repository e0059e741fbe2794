//! One run: an API server, the processes, and the scenario's hands on them.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube_core::params::DeleteParams;
use parking_lot::Mutex;
use reeve_apiserver::faults::Handle;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::core::{Core, Incarnation, SCENARIO};
use super::outside::{Check, Outside};
use super::state::State;
use super::tap::{agent, client};
use crate::client::{Client, Error, Object, Patch};
use crate::manager::Manager;
use crate::testing::{Cluster, Rule};
use crate::{Clock, ObjectKey};

/// The time from the end of a process to its next start.
const RESTART: Duration = Duration::from_secs(1);
/// How often a wait looks while something happens.
const LOOK: Duration = Duration::from_secs(1);
/// The looks of a wait while nothing happens, within the time without an event after which a run is at rest.
const QUIET_LOOKS: u32 = 4;

/// What a process is made of; see [`Explorer::new`](super::Explorer::new).
pub struct Process<S> {
    /// Its client. Everything that it writes has to pass here.
    pub(super) kube: kube_client::Client,
    pub(super) clock: Clock,
    pub(super) outside: Outside<S>,
    pub(super) incarnation: Incarnation,
    pub(super) core: Core,
}

/// The life of a process.
pub(super) type Factory<S> = Arc<dyn Fn(Process<S>) -> BoxFuture<'static, ()> + Send + Sync>;

/// The world of one run, for its scenario.
pub struct World<S> {
    pub(super) cluster: Cluster,
    core: Core,
    factory: Factory<S>,
    outside: Arc<Mutex<S>>,
    check: Check<S>,
    running: Mutex<Vec<Option<JoinHandle<()>>>>,
    panicked: Mutex<Option<String>>,
    thaws: Mutex<Vec<Handle>>,
    client: Client,
    quiet: Duration,
    limit: Duration,
    restless: Mutex<bool>,
    /// The collections that a run without faults writes to: they are read, too.
    pub(super) known: BTreeSet<String>,
    /// The version of the server's first state. What was there before counts in the known collections only.
    pub(super) prepared: u64,
    /// Whether the state at each rest is kept, for comparison.
    pub(super) keeps_rests: bool,
    rests: Mutex<Vec<State>>,
}

/// Says that a process is over, whether it returns, panics or is killed.
struct Ended {
    core: Core,
    process: usize,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.core.end(self.process);
    }
}

// === impl Process ===

impl<S> Process<S> {
    /// The client, for a manager.
    #[must_use]
    pub fn kube(&self) -> kube_client::Client {
        self.kube.clone()
    }

    /// The clock of the run.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The world outside.
    #[must_use]
    pub fn outside(&self) -> Outside<S> {
        self.outside.clone()
    }

    /// A builder of a manager with the client and the clock.
    pub fn manager(&self) -> crate::manager::Builder {
        Manager::builder(self.kube()).clock(self.clock.clone())
    }

    /// The name of this replica.
    #[must_use]
    pub fn name(&self) -> String {
        format!("p{}-{}", self.incarnation.process, self.incarnation.number)
    }
}

// === impl World ===

impl<S> World<S> {
    pub(super) fn new(
        cluster: Cluster,
        core: Core,
        factory: Factory<S>,
        outside: Arc<Mutex<S>>,
        check: Check<S>,
        (quiet, limit): (Duration, Duration),
    ) -> Self {
        let incarnation = core.start(SCENARIO);
        let kube = client(&cluster.kube(), core.clone(), incarnation);
        let client = Client::new(kube).with_clock(cluster.clock().clone());
        Self {
            cluster,
            core,
            factory,
            outside,
            check,
            running: Mutex::default(),
            panicked: Mutex::default(),
            thaws: Mutex::default(),
            client,
            quiet,
            limit,
            restless: Mutex::new(false),
            known: BTreeSet::new(),
            prepared: 0,
            keeps_rests: false,
            rests: Mutex::default(),
        }
    }

    /// The client of the scenario.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Reads or changes the world outside, as a person would.
    pub fn outside<T>(&self, with: impl FnOnce(&mut S) -> T) -> T {
        with(&mut self.outside.lock())
    }

    /// Notes a step, which the timeline of a failure shows.
    pub fn step(&self, text: &str) {
        self.core.step(text);
    }

    /// Creates an object.
    ///
    /// # Panics
    /// When the server refuses it.
    pub async fn create<K: Object>(&self, object: Value) -> K {
        let object: K = serde_json::from_value(object).expect("an object of the kind");
        let mut created = self.client.create(&object).await;
        if created.as_ref().is_err_and(Error::is_already_exists) {
            // The old one of its name may still be on its way out, because of a fault.
            self.come_to_rest(true).await;
            created = self.client.create(&object).await;
        }
        created.unwrap_or_else(|error| panic!("not created: {error}"))
    }

    /// Changes an object by a merge patch.
    ///
    /// # Panics
    /// When the server refuses it.
    pub async fn patch<K: Object>(&self, namespace: &str, name: &str, patch: Value) -> K {
        let key = ObjectKey::namespaced(namespace, name);
        let patched = self.client.patch::<K>(&key, Patch::merge(patch)).await;
        patched.unwrap_or_else(|error| panic!("{key} is not patched: {error}"))
    }

    /// Deletes an object.
    ///
    /// # Panics
    /// When the server refuses it.
    pub async fn delete<K: Object>(&self, namespace: &str, name: &str) {
        let key = ObjectKey::namespaced(namespace, name);
        let deleted = self
            .client
            .delete::<K>(&key, &DeleteParams::default())
            .await;
        if let Err(error) = deleted {
            panic!("{key} is not deleted: {error}");
        }
    }

    /// Waits until nothing happens any more.
    pub async fn settle(&self) {
        self.rest(false).await;
    }

    /// As [`World::settle`]; with `all`, every fault that lasts ends before that.
    pub(super) async fn rest(&self, all: bool) {
        self.come_to_rest(all).await;
        if self.keeps_rests {
            let state = self.state().await;
            self.rests.lock().push(state);
        }
        self.core.rested();
    }

    /// The objects at each rest so far.
    pub(super) fn rests(&self) -> Vec<State> {
        self.rests.lock().clone()
    }

    async fn come_to_rest(&self, all: bool) {
        let mut started = Instant::now();
        let (mut seen, mut since) = (self.core.activity(), started);
        let mut rested = false;
        let mut look = LOOK;
        loop {
            tokio::select! {
                () = sleep(look) => {}
                () = self.core.death() => {}
            }
            if self.core.is_stuck() {
                *self.restless.lock() = true;
                return;
            }
            self.revive().await;
            let now = Instant::now();
            if self.core.activity() != seen {
                (seen, since) = (self.core.activity(), now);
            }
            // A run has many of them, and nothing else to do meanwhile.
            look = if now - since >= LOOK {
                self.quiet / QUIET_LOOKS
            } else {
                LOOK
            };
            if now - since >= self.quiet {
                if rested && !all {
                    return;
                }
                rested = true;
                if !self.end_faults(all) {
                    return;
                }
                since = now;
            }
            if now - started >= self.limit {
                // What is held may be what all those retries wait for.
                if !self.end_faults(true) {
                    *self.restless.lock() = true;
                    return;
                }
                (started, since) = (now, now);
            }
        }
    }

    /// Ends the faults that last until a rest. Whether there were some.
    fn end_faults(&self, all: bool) -> bool {
        let ended = self.core.rest(all);
        // Whatever read the past reads the present from now on.
        self.thaws.lock().drain(..).for_each(|past| past.remove());
        ended
    }

    pub(super) fn is_restless(&self) -> bool {
        *self.restless.lock()
    }

    /// The panic of a process.
    pub(super) fn panicked(&self) -> Option<String> {
        self.panicked.lock().clone()
    }

    /// Starts the processes.
    pub(super) fn start(&self, processes: usize) {
        for process in 1..=processes {
            self.running.lock().push(None);
            self.begin(process);
        }
    }

    /// Ends the processes and starts new ones.
    pub(super) async fn restart(&self) {
        let count = self.running.lock().len();
        (1..=count).for_each(|process| self.core.end(process));
        self.rest(true).await;
    }

    /// Starts processes again that were killed or have ended.
    async fn revive(&self) {
        for process in self.core.dead() {
            let slot = self.running.lock().get_mut(process - 1).map(Option::take);
            if let Some(Some(running)) = slot {
                self.kill(running).await;
            }
            sleep(RESTART).await;
            self.begin(process);
        }
    }

    async fn kill(&self, running: JoinHandle<()>) {
        running.abort();
        let Err(error) = running.await else { return };
        if let Ok(panic) = error.try_into_panic() {
            let mut panicked = self.panicked.lock();
            panicked.get_or_insert_with(|| text_of(&*panic));
        }
    }

    fn begin(&self, process: usize) {
        let incarnation = self.core.start(process);
        if let Some(version) = self.core.frozen(process) {
            let past = Rule::new()
                .user_agent(agent(incarnation))
                .verb("list")
                .stale(version);
            self.thaws.lock().push(self.cluster.faults().add(past));
        }
        let kube = client(&self.cluster.kube(), self.core.clone(), incarnation);
        let life = (self.factory)(Process {
            kube,
            clock: self.cluster.clock().clone(),
            outside: Outside::new(
                Arc::clone(&self.outside),
                self.core.clone(),
                incarnation,
                Arc::clone(&self.check),
            ),
            incarnation,
            core: self.core.clone(),
        });
        let ended = Ended {
            core: self.core.clone(),
            process,
        };
        let running = tokio::spawn(async move {
            let _ended = ended;
            life.await;
        });
        if let Some(slot) = self.running.lock().get_mut(process - 1) {
            *slot = Some(running);
        }
    }

    /// Kills all processes, at the end.
    pub(super) async fn finish(&self) {
        let running: Vec<_> = self.running.lock().drain(..).flatten().collect();
        for one in running {
            self.kill(one).await;
        }
        // Requests on their way arrive, so that no task of theirs is left.
        self.end_faults(true);
    }

    /// The objects of every resource that was written to.
    pub(super) async fn state(&self) -> State {
        let mut state = State::default();
        let written = self.core.collections();
        for collection in written.union(&self.known) {
            let request = http::Request::get(collection).body(Vec::new());
            let kube = self.cluster.kube();
            let Ok(request) = request else { continue };
            if let Ok(list) = kube.request::<Value>(request).await {
                let since = if self.known.contains(collection) || self.known.is_empty() {
                    0
                } else {
                    self.prepared
                };
                state.add(collection, list, since);
            }
        }
        state
    }
}

/// What a panic says.
pub(super) fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a text").to_owned()
}

impl<S> std::fmt::Debug for Process<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process")
            .field("incarnation", &self.incarnation)
            .finish_non_exhaustive()
    }
}

impl<S> std::fmt::Debug for World<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}
