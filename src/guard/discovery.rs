//! Follows the addresses of the cluster, on every replica.
//!
//! # When a kind cannot be read
//! It is tried again every half minute. Its known addresses stay protected, the problem is an Event and a metric, and the
//! replica stays ready: the right may come with the next manifests. A kind that the server does not have is no
//! problem. A first configuration waits a moment for the first lists, so that no node is banned at a start. Load balancers
//! may have names instead of addresses: see [`super::balancers`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube_core::params::ListParams;
use parking_lot::Mutex;
use reeve_controller::cache::{
    CacheOptions, Caches, Kind, KindOptions, Registration, StoreForm, View,
};
use reeve_controller::source::Sender;
use reeve_controller::{Client, Event, ObjectKey, Request, Runnable};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::balancers::{Balancers, RESOLVE_AGAIN};
use super::cluster::OwnAddresses;
use super::metrics::{Metrics, NAMES};
use crate::names::Resolver;
use crate::policy::Protected;
use crate::prefix::Prefixes;

/// How often a kind that cannot be read is tried again, and how long one that the server does not have.
const TRY_AGAIN: Duration = Duration::from_secs(30);
const MISSING: Duration = Duration::from_secs(600);

/// How often the watch of a kind is checked. One that is refused is dropped before it makes the replica unready.
const CHECK: Duration = Duration::from_secs(10);

/// How long changes are collected before they are in force.
const COLLECT: Duration = Duration::from_millis(500);

/// How long a first configuration waits for the first lists.
const FIRST: Duration = Duration::from_secs(3);

/// The addresses of the cluster as they were last seen. Clones share them.
#[derive(Clone, Debug)]
pub struct Discovery {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    found: Mutex<Found>,
    changed: Notify,
    /// Whether the configuration asks for it.
    enabled: watch::Sender<bool>,
    /// How many kinds were listed, or cannot be.
    settled: watch::Sender<usize>,
    balancers: Balancers,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct Found {
    ranges: BTreeMap<(&'static str, ObjectKey), Vec<Protected>>,
    /// Those of `ranges` by prefix; `None`: they changed.
    snapshot: Option<Arc<Prefixes<Arc<str>>>>,
    problems: BTreeMap<&'static str, String>,
    counts: BTreeMap<&'static str, usize>,
}

/// The number of kinds.
const KINDS: usize = 3;

// === impl Discovery ===

impl Discovery {
    /// Nothing is read before it is enabled. `resolver` has the addresses of load balancers with names.
    #[must_use]
    pub fn new(metrics: Metrics, resolver: Arc<dyn Resolver>) -> Self {
        Self {
            shared: Arc::new(Shared {
                found: Mutex::default(),
                changed: Notify::new(),
                enabled: watch::Sender::new(false),
                settled: watch::Sender::new(0),
                balancers: Balancers::new(resolver),
                metrics,
            }),
        }
    }

    /// `options`, with what is kept of the kinds: a few fields, in every namespace.
    pub(crate) fn cache(options: CacheOptions) -> CacheOptions {
        fn kept<K: OwnAddresses>(options: CacheOptions) -> CacheOptions {
            let skipped = K::SKIPPED.iter().filter_map(|path| path.parse().ok());
            let kind = KindOptions::new().form(StoreForm::Compact).skip(skipped);
            let kind = if Kind::of::<K>().is_namespaced() {
                kind.in_every_namespace()
            } else {
                kind
            };
            options.for_kind::<K>(kind)
        }
        // A watch that is given up ends soon.
        let options = options.linger(Duration::from_secs(1));
        kept::<ServiceCIDR>(kept::<Service>(kept::<Node>(options)))
    }

    /// Begins to follow the cluster, or stops it.
    pub fn enable(&self, enabled: bool) {
        self.shared.enabled.send_if_modified(|before| {
            let news = *before != enabled;
            *before = enabled;
            news
        });
    }

    /// Waits until each kind was listed or cannot be, for three seconds at most.
    pub async fn settled(&self) {
        let mut settled = self.shared.settled.subscribe();
        let all = settled.wait_for(|count| *count >= KINDS);
        if timeout(FIRST, all).await.is_err() {
            tracing::warn!(
                "the addresses of the cluster are not known yet; they are protected as they come"
            );
        }
    }

    /// The ranges that are protected now.
    #[must_use]
    pub fn ranges(&self) -> Arc<Prefixes<Arc<str>>> {
        if !*self.shared.enabled.borrow() {
            return Arc::default();
        }
        let mut found = self.shared.found.lock();
        let Found {
            ranges, snapshot, ..
        } = &mut *found;
        let all = || ranges.values().flatten().cloned().collect();
        Arc::clone(snapshot.get_or_insert_with(|| Arc::new(all())))
    }

    /// What cannot be read, and what to do.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        self.shared
            .found
            .lock()
            .problems
            .values()
            .cloned()
            .collect()
    }

    /// Whether there are nodes, and none names a range of Pods: then the network plugin has the ranges.
    #[must_use]
    pub fn lacks_pods(&self) -> bool {
        let found = self.shared.found.lock();
        let nodes = found
            .ranges
            .iter()
            .filter(|((kind, _), _)| *kind == Node::KIND);
        let mut ranges = nodes.flat_map(|(_, ranges)| ranges).peekable();
        ranges.peek().is_some() && ranges.all(|range| range.target.is_host())
    }

    /// Follows the cluster on every replica, and requests `configuration` after changes.
    pub(crate) fn runnable(
        &self,
        client: Client,
        caches: Caches,
        refresh: Sender<Request>,
        configuration: Request,
    ) -> Runnable {
        let own = self.clone();
        Runnable::new("addresses of the cluster", move |stop| async move {
            own.run(client, caches, refresh, configuration, stop).await;
            Ok::<_, std::convert::Infallible>(())
        })
        .without_leader_election()
    }

    async fn run(
        self,
        client: Client,
        caches: Caches,
        refresh: Sender<Request>,
        configuration: Request,
        stop: CancellationToken,
    ) {
        let work = async {
            tokio::join!(
                self.follow::<Node>(&client, &caches),
                self.follow::<Service>(&client, &caches),
                self.follow::<ServiceCIDR>(&client, &caches),
                self.follow_names(),
                self.pass_on(&refresh, &configuration),
            );
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = work => {}
        }
    }

    async fn pass_on(&self, refresh: &Sender<Request>, configuration: &Request) {
        loop {
            self.shared.changed.notified().await;
            tokio::time::sleep(COLLECT).await;
            if refresh.send(configuration.clone()).await.is_err() {
                return;
            }
        }
    }

    /// Follows one kind: checks that it can be listed, watches it, and begins again when the watch is refused.
    async fn follow<K: OwnAddresses>(&self, client: &Client, caches: &Caches) {
        let mut enabled = self.shared.enabled.subscribe();
        let mut first = true;
        loop {
            if enabled.wait_for(|enabled| *enabled).await.is_err() {
                return;
            }
            let params = ListParams::default().limit(1);
            let wait = match client.list::<K>(None, &params).await {
                Ok(_) => match self.watch::<K>(caches) {
                    Ok(registration) => {
                        let synced = timeout(CHECK, registration.wait_synced()).await.is_ok();
                        if synced {
                            self.works(K::KIND);
                            self.retain::<K>(caches);
                            self.resolve_names().await;
                        }
                        self.settle(&mut first);
                        self.stands::<K>(caches, registration, synced, &mut enabled)
                            .await
                    }
                    Err(error) => {
                        self.fails(K::KIND, &error);
                        TRY_AGAIN
                    }
                },
                Err(error) if error.is_not_found() => {
                    self.works(K::KIND);
                    MISSING
                }
                Err(error) => {
                    self.fails(K::KIND, &error.to_string());
                    TRY_AGAIN
                }
            };
            self.settle(&mut first);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // Disabled: what is known is dropped.
                _ = enabled.wait_for(|enabled| !*enabled) => self.forget(K::KIND),
            }
        }
    }

    fn watch<K: OwnAddresses>(&self, caches: &Caches) -> Result<Registration, String> {
        let shared = Arc::clone(&self.shared);
        let handler = move |event: Event<K>| match event {
            Event::Added { object, .. } | Event::Updated { new: object, .. } => {
                let key = key_of(&*object);
                shared.balancers.set(&key, object.names());
                shared.set(K::KIND, key, object.ranges());
            }
            Event::Deleted { key, .. } => {
                shared.balancers.set(&key, Vec::new());
                shared.set(K::KIND, key, Vec::new());
            }
        };
        let registered = caches.add_handler(&View::<K>::typed(), "cluster addresses", handler);
        registered.map_err(|error| error.to_string())
    }

    /// Drops objects that went while the kind could not be read.
    fn retain<K: OwnAddresses>(&self, caches: &Caches) {
        let Ok(Ok(present)) = caches.lister::<K>().map(|lister| lister.list()) else {
            return;
        };
        let present: BTreeSet<ObjectKey> = present.iter().map(|object| key_of(&**object)).collect();
        if K::KIND == Service::KIND {
            self.shared.balancers.retain(|key| present.contains(key));
        }
        let gone: Vec<ObjectKey> = {
            let found = self.shared.found.lock();
            let known = found.ranges.keys().filter(|(kind, _)| *kind == K::KIND);
            let gone = known.filter(|(_, key)| !present.contains(key));
            gone.map(|(_, key)| key.clone()).collect()
        };
        for key in gone {
            self.shared.set(K::KIND, key, Vec::new());
        }
    }

    /// Returns when the kind cannot be read any more, or is disabled.
    async fn stands<K: OwnAddresses>(
        &self,
        caches: &Caches,
        registration: Registration,
        mut synced: bool,
        enabled: &mut watch::Receiver<bool>,
    ) -> Duration {
        loop {
            tokio::select! {
                () = tokio::time::sleep(CHECK) => {}
                _ = enabled.wait_for(|enabled| !*enabled) => return Duration::from_millis(1),
            }
            let health = registration.health();
            let failure = health.failure.as_ref();
            // A first list may take longer than the first look.
            if !synced && registration.has_synced() {
                synced = true;
                self.works(K::KIND);
                self.retain::<K>(caches);
            }
            let refused = failure.filter(|it| ["forbidden", "not found"].contains(&it.class));
            if let Some(failure) = refused {
                self.fails(K::KIND, &failure.message);
                return TRY_AGAIN;
            }
        }
    }

    /// Resolves the names of load balancers again and again, and new ones after a moment.
    async fn follow_names(&self) {
        let mut enabled = self.shared.enabled.subscribe();
        loop {
            if enabled.wait_for(|enabled| *enabled).await.is_err() {
                return;
            }
            let new = tokio::select! {
                () = tokio::time::sleep(RESOLVE_AGAIN) => false,
                () = self.shared.balancers.changed.notified() => true,
                _ = enabled.wait_for(|enabled| !*enabled) => {
                    self.shared.balancers.retain(|_| false);
                    false
                }
            };
            if new {
                tokio::time::sleep(COLLECT).await;
            }
            self.resolve_names().await;
        }
    }

    async fn resolve_names(&self) {
        let resolved = self.shared.balancers.resolve().await;
        for (name, ranges) in resolved.ranges {
            self.shared.set(NAMES, ObjectKey::cluster(name), ranges);
        }
        match resolved.problem {
            None => self.works(NAMES),
            Some(problem) => self.report(NAMES, problem),
        }
    }

    fn settle(&self, first: &mut bool) {
        if std::mem::take(first) {
            self.shared.settled.send_modify(|count| *count += 1);
        }
    }

    fn works(&self, kind: &'static str) {
        self.shared.found.lock().problems.remove(kind);
        self.shared.metrics.discovery(kind, false);
    }

    fn fails(&self, kind: &'static str, why: &str) {
        let problem = format!(
            "operator cannot follow {kind} to protect their addresses from bans: {why}; grant list and watch on {kind}, or set protectCluster to false"
        );
        self.report(kind, problem);
    }

    fn report(&self, kind: &'static str, problem: String) {
        self.shared.metrics.discovery(kind, true);
        let mut found = self.shared.found.lock();
        if found.problems.insert(kind, problem).is_none() {
            drop(found);
            self.shared.changed.notify_one();
        }
    }

    fn forget(&self, kind: &'static str) {
        let mut found = self.shared.found.lock();
        found.ranges.retain(|(of, _), _| *of != kind);
        found.counts.remove(kind);
        found.problems.remove(kind);
        found.snapshot = None;
        self.shared.metrics.ranges(kind, 0);
        self.shared.metrics.discovery(kind, false);
    }
}

// === impl Shared ===

impl Shared {
    fn set(&self, kind: &'static str, key: ObjectKey, ranges: Vec<Protected>) {
        let mut found = self.found.lock();
        let (new, place) = (ranges.len(), (kind, key));
        let before = if ranges.is_empty() {
            found.ranges.remove(&place)
        } else if found.ranges.get(&place) == Some(&ranges) {
            return;
        } else {
            found.ranges.insert(place, ranges)
        };
        let old = before.map_or(0, |before| before.len());
        if (old, new) == (0, 0) {
            return;
        }
        let count = found.counts.entry(kind).or_default();
        *count = (*count + new).saturating_sub(old);
        self.metrics.ranges(kind, *count);
        found.snapshot = None;
        drop(found);
        self.changed.notify_one();
    }
}

fn key_of<K: OwnAddresses>(object: &K) -> ObjectKey {
    let metadata = object.meta();
    let name = metadata.name.as_deref().unwrap_or_default();
    match metadata.namespace.as_deref() {
        Some(namespace) => ObjectKey::namespaced(namespace, name),
        None => ObjectKey::cluster(name),
    }
}
