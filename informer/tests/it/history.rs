//! Random histories with random faults: what the store holds, and what handlers were told, must come to what
//! the server holds.
//!
//! `REEVE_HISTORIES` sets how many are tried (default 200, and 100 with a restore), `REEVE_SEED` tries one again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use reeve_clock::{Clock, Random};
use reeve_informer::{
    Event, FirstList, HandlerHandle, HandlerOptions, Policy, ReflectorOptions, SharedInformer,
    Stored,
};
use tokio_util::sync::CancellationToken;

use crate::harness::short;
use crate::world::World;

/// Follows what a handler is told, and objects to what cannot be.
#[derive(Clone, Default)]
struct Oracle(Arc<Mutex<Followed>>);

#[derive(Default)]
struct Followed {
    /// What the handler must believe there is: version and uid.
    known: BTreeMap<String, (u64, String)>,
    /// The newest version seen of each uid.
    newest: BTreeMap<String, u64>,
    /// Whether versions may run back: the server was restored.
    restored: bool,
    wrong: Vec<String>,
    trace: Vec<String>,
}

impl Oracle {
    fn handler(&self) -> impl Fn(Event<ConfigMap>) + Send + Sync + 'static + use<> {
        let followed = Arc::clone(&self.0);
        move |event| followed.lock().follow(&event)
    }
}

fn version_of(object: &ConfigMap) -> u64 {
    object.resource_version().parse().unwrap()
}

impl Followed {
    fn follow(&mut self, event: &Event<ConfigMap>) {
        self.trace.push(short(event));
        let name = event.key().name.to_string();
        let known = self.known.get(&name).cloned();
        let legal = match (event, &known) {
            (Event::Added { .. }, None) | (Event::Deleted { last: None, .. }, Some(_)) => true,
            (Event::Updated { old, new, .. }, Some((version, uid))) => {
                version_of(old) == *version && old.uid() == uid && new.uid() == uid
            }
            (
                Event::Deleted {
                    last: Some(last), ..
                },
                Some((version, uid)),
            ) => last.uid() == uid && (self.restored || version_of(last) >= *version),
            _ => false,
        };
        if !legal {
            self.wrong.push(format!("{} after {known:?}", short(event)));
        }
        match event {
            Event::Added { object: new, .. } | Event::Updated { new, .. } => {
                let version = version_of(new);
                let newest = self.newest.entry(new.uid().to_owned()).or_default();
                if version < *newest && !self.restored {
                    self.wrong
                        .push(format!("{} after version {newest}", short(event)));
                }
                *newest = version;
                self.known.insert(name, (version, new.uid().to_owned()));
            }
            Event::Deleted { .. } => {
                self.known.remove(&name);
            }
        }
    }

    fn contents(&self) -> Vec<String> {
        self.known
            .iter()
            .map(|(name, (version, uid))| format!("{name}@{version}/{uid}"))
            .collect()
    }
}

/// What one history came to, for comparing runs.
#[derive(Debug, PartialEq, Eq)]
struct Trace {
    asked: Vec<String>,
    told: Vec<Vec<String>>,
}

async fn history(seed: u64, restore: bool) -> Result<Trace, String> {
    let world = World::new(seed);
    let random = Random::seeded(seed ^ 0x5eed);
    let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), seed);
    for _ in 0..random.below(12) {
        world.act();
    }
    let options = ReflectorOptions {
        page_size: 3,
        first_list: if random.below(3) == 0 {
            FirstList::Any
        } else {
            FirstList::Consistent
        },
        ..ReflectorOptions::default()
    };
    let builder = SharedInformer::<ConfigMap>::builder(world.client())
        .clock(clock)
        .reflector(options);
    let informer = if random.below(3) == 0 {
        builder.delta_fifo()
    } else {
        builder
    }
    .build();
    let mut handlers: Vec<(Oracle, HandlerHandle<ConfigMap>)> = Vec::new();
    let add = |policy| {
        let oracle = Oracle::default();
        oracle.0.lock().restored = restore;
        let options = HandlerOptions::new()
            .policy(policy)
            .resync(Duration::from_secs(45));
        let handle = informer.add_handler(oracle.handler(), options).unwrap();
        (oracle, handle)
    };
    let policies = [
        Policy::Coalesce { bound: 1 },
        Policy::Coalesce { bound: 1024 },
        Policy::Block { bound: 1 },
        Policy::DropToResync { bound: 1 },
    ];
    handlers.extend(policies.map(add));
    // The same for handlers that take their time, and for streams.
    let mut streams = Vec::new();
    for policy in policies {
        let oracle = Oracle::default();
        oracle.0.lock().restored = restore;
        let (options, pause) = (HandlerOptions::new().policy(policy), random.below(50));
        let follow = oracle.handler();
        let slow = move |event| {
            follow(event);
            tokio::time::sleep(Duration::from_millis(pause))
        };
        let handle = informer.add_async_handler(slow, options.clone()).unwrap();
        handlers.push((oracle, handle));
        let oracle = Oracle::default();
        oracle.0.lock().restored = restore;
        let follow = oracle.handler();
        let mut stream = informer.stream(options).unwrap();
        streams.push(oracle);
        tokio::spawn(async move {
            while let Some(event) = stream.next().await {
                follow(event);
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        });
    }
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    let steps = 20 + random.below(60);
    for step in 0..steps {
        for _ in 0..=random.below(4) {
            world.act();
        }
        if restore && step == steps / 2 {
            world.restore();
        }
        if random.below(12) == 0 {
            let policy = policies[usize::try_from(random.below(4)).unwrap()];
            handlers.push(add(policy));
        }
        let pause = [0, 0, 1, 30, 900, 20_000, 130_000][usize::try_from(random.below(7)).unwrap()];
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    world.calm();
    // A restored server is found out by silence, which takes a while.
    tokio::time::sleep(Duration::from_secs(if restore { 1800 } else { 600 })).await;

    let mut expected = world.contents();
    let mut store: Vec<_> = informer
        .lister()
        .list()
        .iter()
        .map(|object| {
            format!(
                "{}@{}/{}",
                object.name(),
                object.resource_version(),
                object.uid()
            )
        })
        .collect();
    expected.sort();
    store.sort();
    if store != expected {
        return Err(format!(
            "the store holds {store:?}, the server {expected:?}; {:?}",
            informer.health()
        ));
    }
    let reached: u64 = informer
        .last_sync_resource_version()
        .as_str()
        .parse()
        .unwrap_or(0);
    if reached < world.version() {
        return Err(format!(
            "the store is at {reached}, the server at {}",
            world.version()
        ));
    }
    let health = informer.health();
    if !health.is_ready() || health.quarantined_count > 0 {
        return Err(format!("not well: {health:?}"));
    }
    let synced = |handle: &HandlerHandle<ConfigMap>| Some(handle.is_synced());
    let told = handlers
        .iter()
        .map(|(oracle, handle)| (oracle, synced(handle)))
        .chain(streams.iter().map(|oracle| (oracle, None)));
    for (number, (oracle, synced)) in told.enumerate() {
        let followed = oracle.0.lock();
        if !followed.wrong.is_empty() {
            return Err(format!(
                "handler {number}: {:?} in {:?}",
                followed.wrong, followed.trace
            ));
        }
        if followed.contents() != expected {
            return Err(format!(
                "handler {number} believes {:?}, the server holds {expected:?}; it was told {:?}",
                followed.contents(),
                followed.trace
            ));
        }
        if synced == Some(false) {
            return Err(format!("handler {number} never synced"));
        }
    }
    stop.cancel();
    running.await.unwrap().unwrap();
    let told = handlers
        .iter()
        .map(|(oracle, _)| oracle)
        .chain(&streams)
        .map(|oracle| oracle.0.lock().trace.clone())
        .collect();
    Ok(Trace {
        asked: world.asked(),
        told,
    })
}

fn run(seed: u64, restore: bool) -> Result<Trace, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(history(seed, restore))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn try_seeds(restore: bool) {
    let seeds = match number("REEVE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("REEVE_HISTORIES").unwrap_or(if restore { 100 } else { 200 }),
    };
    let failures: Vec<_> = seeds
        .filter_map(|seed| {
            run(seed, restore)
                .err()
                .map(|error| format!("REEVE_SEED={seed}: {error}"))
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} failed, the first: {}",
        failures.len(),
        failures[0]
    );
}

#[test]
fn after_any_history_the_store_equals_the_server_and_handlers_were_told_a_legal_story() {
    try_seeds(false);
}

#[test]
fn after_a_restore_of_the_server_the_store_equals_it_too() {
    try_seeds(true);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..20 {
        let (one, two) = (run(seed, false).unwrap(), run(seed, false).unwrap());
        assert!(!one.asked.is_empty());
        assert_eq!(one, two, "seed {seed}");
    }
}
