//! Random histories with random faults: the store, and the events of the handlers, must end in the server's state.
//!
//! A history is drawn from a seed: objects that come, change and go, are deleted and created again, or cannot be
//! decoded; compactions; a kind that is removed and returns; a restore from a backup; refusals, resets, silence,
//! lagging replicas, torn frames, repeated events, bookmarks that run back. The informer reads in
//! pages or streams, through either queue, with handlers of each policy, fast and slow.
//!
//! `REEVE_HISTORIES` sets their number (default 200; a quarter of them has a restore), `REEVE_SEED` tries one
//! again, and `REEVE_FIRST` begins with another seed than 0.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU32;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use reeve_clock::{Clock, Random};
use reeve_informer::{
    Event, FirstList, HandlerHandle, HandlerOptions, Policy, ReflectorOptions, SharedInformer,
    Stored, UpdateReason,
};
use tokio_util::sync::CancellationToken;

use crate::harness::short;
use crate::world::World;

/// Follows the events of a handler, and records impossible ones.
#[derive(Clone, Default)]
struct Oracle(Arc<Mutex<Followed>>);

/// An object's version and uid, or none if it was not there.
type State = Option<(u64, String)>;

#[derive(Default)]
struct Followed {
    /// The content by the events of the handler: version and uid.
    known: BTreeMap<String, (u64, String)>,
    /// The newest version seen of each uid.
    newest: BTreeMap<String, u64>,
    /// Every state of each object in the events, in order.
    stories: BTreeMap<String, Vec<State>>,
    /// Versions may run back: the server was restored.
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

fn described(object: &ConfigMap) -> String {
    format!(
        "{}@{}/{}",
        object.name(),
        object.resource_version(),
        object.uid()
    )
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
                    last: Some(last),
                    seen: Some(seen),
                    ..
                },
                Some((version, uid)),
            ) => {
                (version_of(seen), seen.uid()) == (*version, uid.as_str())
                    && last.uid() == uid
                    && (self.restored || version_of(last) >= *version)
            }
            _ => false,
        };
        if !legal {
            self.wrong.push(format!("{} after {known:?}", short(event)));
        }
        let story = self.stories.entry(name.clone()).or_default();
        match event {
            Event::Added { object: new, .. } | Event::Updated { new, .. } => {
                let version = version_of(new);
                let newest = self.newest.entry(new.uid().to_owned()).or_default();
                if version < *newest && !self.restored {
                    self.wrong
                        .push(format!("{} after version {newest}", short(event)));
                }
                *newest = version;
                let state = (version, new.uid().to_owned());
                let again = matches!(
                    event,
                    Event::Updated {
                        reason: UpdateReason::Resync,
                        ..
                    }
                );
                if again && known.as_ref() != Some(&state) {
                    self.wrong
                        .push(format!("{} shows another state", short(event)));
                }
                if known.as_ref() != Some(&state) {
                    story.push(Some(state.clone()));
                }
                self.known.insert(name, state);
            }
            Event::Deleted { .. } => {
                story.push(None);
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

    /// True if all events here are in the whole story, too, in the same order.
    fn is_part_of(&self, whole: &Self) -> Result<(), String> {
        for (name, story) in &self.stories {
            let mut rest = whole.stories.get(name).into_iter().flatten();
            if let Some(state) = story
                .iter()
                .find(|state| !rest.any(|known| known == *state))
            {
                return Err(format!(
                    "{name}: {state:?} of {story:?} has no place in {:?}",
                    whole.stories.get(name)
                ));
            }
        }
        Ok(())
    }
}

/// The result of one history, for comparing runs.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Trace {
    asked: Vec<String>,
    received: Vec<Vec<String>>,
}

/// An informer in a world, with handlers of each kind.
struct History {
    world: World,
    informer: SharedInformer<ConfigMap>,
    /// Streams have no handle here.
    handlers: Vec<(Oracle, Option<HandlerHandle<ConfigMap>>)>,
    random: Random,
    restored: bool,
    /// Every delta goes through the store alone and in order, so that the store is always as of one version.
    ordered: bool,
}

/// The way in which events are received.
#[derive(Clone, Copy)]
enum Taker {
    /// The same, in the task of the informer.
    Inline,
    /// By a function that returns at once.
    Callback,
    /// By a slow function.
    Future,
    /// As a stream.
    Stream,
}

/// The longest time that a slow handler takes for an event.
const SLOW: Duration = Duration::from_millis(100);

const POLICIES: [Policy; 4] = [
    // It never has to drop or merge: its story is the whole one.
    Policy::Block { bound: 1 },
    Policy::Coalesce { bound: 1024 },
    Policy::Coalesce { bound: 1 },
    Policy::DropToResync { bound: 1 },
];

// === impl History ===

impl History {
    fn new(seed: u64, restored: bool) -> Self {
        let world = World::new(seed);
        let random = Random::seeded(seed ^ 0x5eed);
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), seed);
        for _ in 0..random.below(12) {
            world.act();
        }
        let options = ReflectorOptions::new()
            .page_size(NonZeroU32::new(3))
            .streaming(random.below(3) > 0)
            .first_list(if random.below(3) == 0 {
                FirstList::Any
            } else {
                FirstList::Consistent
            });
        let builder = SharedInformer::<ConfigMap>::builder(world.client())
            .clock(clock)
            .reflector(options);
        let ordered = random.below(3) > 0;
        let informer = if ordered {
            builder
        } else {
            builder.delta_fifo()
        }
        .build();
        let mut history = Self {
            world,
            informer,
            handlers: Vec::new(),
            random,
            restored,
            ordered,
        };
        for policy in POLICIES {
            history.add_handler(policy, Taker::Callback);
            history.add_handler(policy, Taker::Inline);
        }
        // Not in each history, for they take most of the time.
        let slow = match history.random.below(6) {
            0 => Some(Taker::Future),
            1 => Some(Taker::Stream),
            _ => None,
        };
        for policy in POLICIES.into_iter().filter(|_| slow.is_some()) {
            history.add_handler(policy, slow.unwrap_or(Taker::Callback));
        }
        history
    }

    fn add_handler(&mut self, policy: Policy, taker: Taker) {
        let oracle = Oracle::default();
        oracle.0.lock().restored = self.restored;
        let options = HandlerOptions::new()
            .policy(policy)
            .resync(Duration::from_secs(170));
        let (follow, random) = (oracle.handler(), self.random.clone());
        let handle = match taker {
            Taker::Callback => Some(self.informer.add_handler(follow, options).unwrap()),
            Taker::Inline => Some(self.informer.add_handler(follow, options.inline()).unwrap()),
            Taker::Future => {
                let slow = move |event| {
                    follow(event);
                    tokio::time::sleep(SLOW.mul_f64(random.unit()))
                };
                Some(self.informer.add_async_handler(slow, options).unwrap())
            }
            Taker::Stream => {
                let mut stream = self.informer.stream(options).unwrap();
                // It ends with the informer.
                tokio::spawn(async move {
                    while let Some(event) = stream.next().await {
                        follow(event);
                        tokio::time::sleep(SLOW.mul_f64(random.unit())).await;
                    }
                });
                None
            }
        };
        self.handlers.push((oracle, handle));
    }

    /// Takes one random step, and lets some time pass.
    async fn step(&mut self) {
        for _ in 0..=self.random.below(4) {
            self.world.act();
        }
        if self.random.below(12) == 0 {
            let policy = POLICIES[usize::try_from(self.random.below(4)).unwrap()];
            let takers = [Taker::Callback, Taker::Inline, Taker::Future, Taker::Stream];
            let taker = takers[usize::try_from(self.random.below(4)).unwrap()];
            self.add_handler(policy, taker);
        }
        let pause =
            [0, 0, 1, 30, 900, 20_000, 130_000][usize::try_from(self.random.below(7)).unwrap()];
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }

    fn stored(&self) -> BTreeMap<String, String> {
        let objects = self.informer.lister().list();
        objects
            .iter()
            .map(|object| (object.name().to_owned(), described(object)))
            .collect()
    }

    /// At any moment the store equals the server at the store's version, except for objects that cannot be read.
    fn check_store(&self) -> Result<(), String> {
        let Ok(version) = self
            .informer
            .last_sync_resource_version()
            .as_str()
            .parse::<u64>()
        else {
            return Ok(());
        };
        if self.restored || !self.ordered {
            return Ok(());
        }
        let server = self.world.contents_at(version);
        let mut store = self.stored();
        for (name, text) in &server {
            match text {
                Some(text) if store.remove(name).as_ref() != Some(text) => {
                    return Err(format!(
                        "at {version} the store lacks {text}: {:?}",
                        self.stored()
                    ));
                }
                Some(_) => {}
                // Its former state stays.
                None => {
                    store.remove(name);
                }
            }
        }
        if store.is_empty() {
            Ok(())
        } else {
            Err(format!("at {version} the store should not hold {store:?}"))
        }
    }

    /// Turns the faults off, waits, and compares everything.
    async fn check_at_rest(&self, rest: Duration) -> Result<(), String> {
        self.world.calm();
        tokio::time::sleep(rest).await;
        let mut expected = self.world.contents();
        expected.sort();
        let store: Vec<_> = self.stored().into_values().collect();
        if store != expected {
            return Err(format!(
                "the store holds {store:?}, the server {expected:?}; {:?}",
                self.informer.health()
            ));
        }
        let version = self.informer.last_sync_resource_version();
        let reached: u64 = version.as_str().parse().unwrap_or(0);
        if reached < self.world.version() {
            return Err(format!(
                "the store is at {reached}, the server at {}",
                self.world.version()
            ));
        }
        let health = self.informer.health();
        if !health.is_ready() || health.quarantined_count > 0 {
            return Err(format!("not well: {health:?}"));
        }
        let whole = self.handlers[0].0.0.lock();
        for (number, (oracle, handle)) in self.handlers.iter().enumerate() {
            let other = (number > 0).then(|| oracle.0.lock());
            let followed = other.as_deref().unwrap_or(&whole);
            let trace = || followed.trace.join(" ");
            if !followed.wrong.is_empty() {
                return Err(format!(
                    "handler {number}: {:?} in {}",
                    followed.wrong,
                    trace()
                ));
            }
            if followed.contents() != expected {
                return Err(format!(
                    "handler {number} believes {:?}, the server holds {expected:?}; its events: {}",
                    followed.contents(),
                    trace()
                ));
            }
            followed
                .is_part_of(&whole)
                .map_err(|error| format!("handler {number}: {error}"))?;
            if handle.as_ref().is_some_and(|handle| !handle.has_synced()) {
                return Err(format!("handler {number} never synced"));
            }
        }
        // A queue that is never full merges nothing.
        if self.handlers[1].0.0.lock().stories != whole.stories {
            return Err("handler 1 missed a part of the story".to_owned());
        }
        Ok(())
    }
}

async fn history(seed: u64, restore: bool) -> Result<Trace, String> {
    let mut history = History::new(seed, restore);
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (informer, stop) = (history.informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    let parts = 1 + history.random.below(3);
    for part in 0..parts {
        let steps = (20 + history.random.below(60)) / parts;
        for step in 0..steps {
            if restore && part == 0 && step == steps / 2 {
                history.world.restore();
            }
            history.step().await;
            history.check_store()?;
        }
        // Silence reveals a restored server, which takes a while.
        let rest = if restore && part == 0 { 1800 } else { 400 };
        history.check_at_rest(Duration::from_secs(rest)).await?;
        history.world.trouble();
    }
    stop.cancel();
    running.await.unwrap().unwrap();
    let received = history
        .handlers
        .iter()
        .map(|(oracle, _)| oracle.0.lock().trace.clone())
        .collect();
    Ok(Trace {
        asked: history.world.asked(),
        received,
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

/// Tries the requested number of seeds on all cores. The result of a seed depends on nothing else.
fn try_seeds(restore: bool) {
    let seeds = match number("REEVE_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("REEVE_FIRST").unwrap_or(0);
            let count = number("REEVE_HISTORIES").unwrap_or(200);
            first..first + if restore { count.div_ceil(4) } else { count }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut failures: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let seeds = seeds.clone().skip(thread).step_by(threads);
                scope.spawn(move || {
                    seeds
                        .filter_map(|seed| {
                            let error = run(seed, restore).err()?;
                            Some(format!("REEVE_SEED={seed}: {error}"))
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    failures.sort();
    assert!(
        failures.is_empty(),
        "{} failed, of which the first: {}",
        failures.len(),
        failures[..failures.len().min(5)].join("\n")
    );
}

#[test]
fn after_any_history_the_store_equals_the_server_and_handlers_received_a_legal_story() {
    try_seeds(false);
}

#[test]
fn after_a_restore_of_the_server_the_store_equals_it_too() {
    try_seeds(true);
}

/// The first of the seeds that are traced.
const TRACED: &str = "REEVE_TRACE";

#[test]
#[ignore = "the_same_seed_gives_the_same_trace_in_two_processes runs it"]
fn traces_for_another_process() {
    let first = number(TRACED).expect("the number of the first seed");
    for seed in first..first + 20 {
        for restore in [false, true] {
            let trace = run(seed, restore).unwrap();
            assert!(!trace.asked.is_empty());
            // Its keys are fixed, unlike those of a hash map.
            let mut hash = DefaultHasher::new();
            trace.hash(&mut hash);
            println!("\ntrace {seed} {restore} {:016x}", hash.finish());
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_trace_in_two_processes() {
    let traces = |first: &str| {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "history::traces_for_another_process",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env(TRACED, first)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
        let traces = text.lines().filter(|line| line.starts_with("trace "));
        traces.map(str::to_owned).collect::<Vec<_>>()
    };
    let (one, two) = (traces("0"), traces("0"));
    assert_eq!(one.len(), 40);
    assert_eq!(one, two);
    assert_ne!(one, traces("100"), "the trace depends on the seed");
}
