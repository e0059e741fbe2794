//! The listeners, kept in step with the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use reeve_serve::certificates::Certificates;
use tokio::sync::Mutex;

use super::blocks::Blocks;
use super::debounce::Debounce;
use super::definition::{AtResolved, Definition};
use super::graced::Graced;
use super::intake::{Intake, Settings, Shared};
use super::listen::listen;
use super::metrics::Metrics;
use super::receive::Route;
use super::tls::Tls;
use super::unfinished::Unfinished;
use crate::inbound::{Budget, Limits, Running};
use crate::lock::KeyedLocks;
use crate::sampled::Sampled;
use crate::target::Target;
use crate::time::Time;

/// Mebibytes of bodies that are read at once, by all triggers that check their senders first: sixteen of the largest.
const BODIES: usize = 16;

/// Mebibytes of bodies that are read at once by one trigger that reads a body before it can check its sender, or checks
/// none: four of the largest.
const UNCHECKED_BODIES: usize = 4;

/// One line of each kind about the requests of a route within this time.
const LOGGED: Duration = Duration::from_secs(10);

/// The parts that the triggers use.
#[derive(Clone, Debug)]
pub struct Dependencies {
    /// The objects.
    pub blocks: Arc<dyn Blocks>,
    /// One lock an address.
    pub locks: KeyedLocks<Target>,
    /// The time that bans end by, and that signatures are checked against.
    pub time: Time,
    /// What is counted.
    pub metrics: Metrics,
    /// Limits of each listening address.
    pub limits: Limits,
}

/// All triggers. They run from [`Triggers::apply`] on, until another one or the drop.
#[derive(Debug)]
pub struct Triggers {
    shared: Shared,
    limits: Limits,
    listeners: Mutex<BTreeMap<SocketAddr, Listening>>,
}

/// A trigger that could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {address} for {names}: {source}")]
pub struct ApplyError {
    /// Where.
    pub address: SocketAddr,
    /// The triggers of the address.
    pub names: String,
    /// The error of the system.
    pub source: io::Error,
}

#[derive(Debug)]
struct Listening {
    listener: Running,
    tls: Option<Tls>,
    routes: Arc<Routes>,
}

/// Routes by path, exchanged under the running listener.
#[derive(Debug, Default)]
pub(super) struct Routes(RwLock<BTreeMap<String, Arc<Route>>>);

// === impl Triggers ===

impl Triggers {
    /// No trigger yet.
    #[must_use]
    pub fn new(dependencies: Dependencies, settings: Settings) -> Self {
        Self {
            shared: Shared {
                blocks: dependencies.blocks,
                locks: dependencies.locks,
                settings: Arc::new(RwLock::new(Arc::new(settings))),
                metrics: dependencies.metrics,
                bodies: Budget::mebibytes(BODIES),
                time: dependencies.time,
                graced: Arc::new(Graced::new()),
            },
            limits: dependencies.limits,
            listeners: Mutex::default(),
        }
    }

    pub(super) fn shared(&self) -> Shared {
        self.shared.clone()
    }

    /// Sets the values for later alerts: default duration, namespace, engine.
    pub fn set(&self, settings: Settings) {
        *self.shared.settings.write() = Arc::new(settings);
    }

    /// Serves exactly `definitions` from now on. Unchanged ones run on, debounce included; the others stop, after
    /// answering the requests in work. A listener whose new certificates cannot be read goes on with its former ones and the
    /// new triggers, unless the new ones ask more of senders: then it ends until they can be read.
    ///
    /// Returns those that cannot be served; the next call tries them again.
    pub async fn apply(&self, definitions: &[Definition]) -> Vec<ApplyError> {
        let mut wanted: BTreeMap<SocketAddr, Vec<&Definition>> = BTreeMap::new();
        for definition in definitions {
            wanted
                .entry(definition.address)
                .or_default()
                .push(definition);
        }
        let mut listeners = self.listeners.lock().await;
        let mut failed = Vec::new();
        let mut fail = |address: SocketAddr, definitions: &[&Definition], source: io::Error| {
            let names: Vec<&str> = definitions.iter().map(|it| it.name.as_str()).collect();
            let names = names.join(", ");
            failed.push(ApplyError {
                address,
                names,
                source,
            });
        };
        // All triggers of an address have the same certificates. They are read before a listener ends.
        let mut loaded = BTreeMap::new();
        let (mut unread, mut kept) = (BTreeSet::new(), BTreeSet::new());
        for (address, definitions) in &wanted {
            let tls = definitions.first().and_then(|it| it.tls.clone());
            let running = listeners.get(address);
            if running.is_some_and(|running| running.tls == tls) {
                continue;
            }
            match certificates(tls.as_ref()).await {
                Ok(certificates) => {
                    loaded.insert(*address, (certificates, tls));
                }
                Err(source) => {
                    fail(*address, definitions, source);
                    unread.insert(*address);
                    let asks_less = |running: &&Listening| {
                        let certified = |tls: &Tls| tls.clients.is_some();
                        let former = running.tls.as_ref();
                        former.is_some_and(|former| {
                            tls.as_ref()
                                .is_some_and(|tls| certified(former) || !certified(tls))
                        })
                    };
                    if let Some(running) = running.filter(asks_less) {
                        self.exchange(&running.routes, definitions);
                        kept.insert(*address);
                    }
                }
            }
        }
        wanted.retain(|address, _| !unread.contains(address));
        let is_gone = |address: &&SocketAddr| {
            !kept.contains(*address)
                && (loaded.contains_key(*address) || !wanted.contains_key(*address))
        };
        let gone: Vec<SocketAddr> = listeners.keys().filter(is_gone).copied().collect();
        // First those that end: another address may need their port.
        let ending = gone.iter().filter_map(|address| listeners.remove(address));
        let ending = ending.map(|it| {
            tracing::info!(address = %it.listener.local_addr(), "stopping trigger listener");
            it.listener.stop()
        });
        futures::future::join_all(ending.collect::<Vec<_>>()).await;

        for (address, definitions) in wanted {
            if let Some(running) = listeners.get(&address) {
                self.exchange(&running.routes, &definitions);
                continue;
            }
            let routes = Arc::new(Routes::default());
            self.exchange(&routes, &definitions);
            let (certificates, tls) = loaded.remove(&address).unwrap_or_default();
            match listen(address, certificates, self.limits, &routes) {
                Ok(listener) => {
                    let at = listener.local_addr();
                    for definition in definitions {
                        tracing::info!(trigger = %definition.name, address = %at, https = tls.is_some(), path = %definition.path, "trigger listens");
                    }
                    let listening = Listening {
                        listener,
                        tls,
                        routes,
                    };
                    listeners.insert(address, listening);
                }
                Err(source) => fail(address, &definitions, source),
            }
        }
        let unbound = i64::try_from(failed.len()).unwrap_or(i64::MAX);
        self.shared.metrics.unbound.set(unbound);
        failed
    }

    /// Where the triggers listen now, with the ports that were taken.
    pub async fn addresses(&self) -> Vec<SocketAddr> {
        let listeners = self.listeners.lock().await;
        listeners
            .values()
            .map(|it| it.listener.local_addr())
            .collect()
    }

    /// Stops all of them, after answering the requests in work.
    pub async fn stop(&self) {
        self.apply(&[]).await;
    }

    fn exchange(&self, routes: &Routes, definitions: &[&Definition]) {
        let mut present = routes.0.write();
        let mut next = BTreeMap::new();
        for definition in definitions {
            let before = present.get(&definition.path);
            let route = match before {
                Some(before) if before.definition == **definition => Arc::clone(before),
                _ => Arc::new(self.route(definition, before)),
            };
            next.insert(definition.path.clone(), route);
        }
        *present = next;
    }

    fn route(&self, definition: &Definition, before: Option<&Arc<Route>>) -> Route {
        let same = |before: &&Arc<Route>| {
            before.definition.debounce == definition.debounce
                && before.definition.debounce_entries == definition.debounce_entries
        };
        let debounce = match before.filter(same) {
            Some(before) => Arc::clone(&before.intake.debounce),
            None => Arc::new(Debounce::new(
                definition.debounce,
                definition.debounce_entries,
            )),
        };
        self.shared.metrics.missed(&definition.name, 0, 0);
        let checks_first = definition.credentials.are_checked_before_the_body();
        // Senders without credentials may fill the budget of their own trigger, and of no other one.
        let bodies = match before {
            _ if checks_first => self.shared.bodies.clone(),
            Some(before) if !before.definition.credentials.are_checked_before_the_body() => {
                before.bodies.clone()
            }
            _ => Budget::mebibytes(UNCHECKED_BODIES),
        };
        Route {
            bodies,
            definition: definition.clone(),
            intake: Intake {
                shared: self.shared.clone(),
                debounce,
                unfinished: Unfinished::default(),
                source: definition.name.clone(),
                namespace: definition.namespace.clone(),
                lifts: definition.resolved == AtResolved::Lift,
                repeated: None,
                renew_before: Duration::ZERO,
            },
            refusals: Sampled::every(LOGGED),
            missed: Sampled::every(LOGGED),
            accepted: Sampled::every(LOGGED),
            faults: Sampled::every(LOGGED),
        }
    }
}

async fn certificates(tls: Option<&Tls>) -> io::Result<Option<Certificates>> {
    match tls {
        Some(tls) => tls.load().await.map(Some),
        None => Ok(None),
    }
}

// === impl Routes ===

impl Routes {
    pub(super) fn at(&self, path: &str) -> Option<Arc<Route>> {
        self.0.read().get(path).cloned()
    }
}
