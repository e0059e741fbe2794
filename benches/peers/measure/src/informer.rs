//! The scenarios of informers, for every Rust peer alike: `sync`, `steady`, `latency`, `get`,
//! `listns`, `relist`.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::control::Server;
use crate::flags::Flags;
use crate::heap;
use crate::keys;
use crate::latency::Sorted;
use crate::report::{Outcome, Report, Stop};
use crate::usage::{self, Span, Stopwatch};

/// How many namespaces the objects are in.
const NAMESPACES: usize = 100;

/// The set-up of a cache.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The server, and the kind of the objects.
    pub server: Server,
    /// The first list is streamed.
    pub streaming: bool,
    /// The handlers of every object and every change.
    pub handlers: Vec<Arc<Tally>>,
}

/// The objects and changes that a handler received.
#[derive(Debug)]
pub struct Tally {
    seen: AtomicUsize,
    /// The delay of each, in nanoseconds, if it is measured.
    late: Option<Mutex<Vec<u64>>>,
}

/// A cache of a peer. Dropping it ends it and frees what it held.
pub trait Cache: Sync {
    /// The peer's type for the key of an object.
    type Key: Sync;

    /// Returns when the cache holds all objects.
    fn wait_synced(&self);

    /// The number of objects.
    fn count(&self) -> usize;

    /// The key of an object.
    fn key(&self, namespace: &str, name: &str) -> Self::Key;

    /// Reads an object. False if the cache does not hold it.
    fn get(&self, key: &Self::Key) -> bool;

    /// The version of an object, 0 if the cache does not hold it.
    fn version(&self, key: &Self::Key) -> u64;

    /// Reads all objects of a namespace, and returns their number.
    fn list(&self, namespace: &str) -> usize;
}

/// Runs the scenario of the flags with the cache that `start` starts.
///
/// # Errors
/// If a flag cannot be read, or the cache does not hold what it should.
pub fn run<C: Cache>(flags: &Flags, start: impl Fn(Setup) -> C) -> Outcome {
    let setup = Setup {
        server: Server::of(flags)?,
        streaming: streaming(flags)?,
        handlers: Vec::new(),
    };
    match flags.scenario.as_str() {
        "sync" => sync(flags, &setup, start),
        "steady" => steady(flags, setup, start),
        "latency" => latency(flags, setup, start),
        "get" => read(flags, setup, start, |cache, keys, _, random| {
            cache.get(&keys[random as usize % keys.len()])
        }),
        "listns" => read(flags, setup, start, |cache, _, each, random| {
            let namespace = &each[random as usize % NAMESPACES];
            cache.list(&namespace.0) == namespace.1
        }),
        "relist" => relist(flags, setup, start),
        _ => Err(Stop::unknown(flags)),
    }
}

/// Whether `-mode` has the first list streamed.
pub(crate) fn streaming(flags: &Flags) -> Result<bool, Stop> {
    match flags.text("mode", "list").as_str() {
        "list" => Ok(false),
        "watchlist" => Ok(true),
        other => Err(Stop::wrong(format!("-mode={other}: list or watchlist"))),
    }
}

/// Runs twice: the first run measures memory, the second one speed, with memory that was touched.
fn sync<C: Cache>(flags: &Flags, setup: &Setup, start: impl Fn(Setup) -> C) -> Outcome {
    let count = flags.get("n", 100_000)?;
    setup.server.reset(count)?;
    heap::count();
    usage::forget_peak();
    let before = heap::live();
    let stopwatch = Stopwatch::start();
    let cache = start(setup.clone());
    cache.wait_synced();
    let cold = stopwatch.stop();
    expect_count(&cache, count)?;
    // Other tasks free the memory of the transfer a little later.
    thread::sleep(Duration::from_millis(300));
    let bytes = (heap::live() - before) as f64 / count as f64;
    let (peak, settled) = (usage::peak(), usage::resident());
    heap::keep_memory();
    drop(cache);
    heap::stop_counting();
    let server = setup.server.cpu()?;
    let stopwatch = Stopwatch::start();
    let cache = start(setup.clone());
    cache.wait_synced();
    let span = stopwatch.stop();
    let server = setup.server.cpu()? - server;
    expect_count(&cache, count)?;
    Ok(Report::new(count, span)
        .heap(bytes)
        .peak(peak)
        .extra("settled_mb", settled)
        .extra("cold_secs", cold.secs)
        .extra("cold_cpu", cold.cpu.all)
        .extra("server_cpu", server)
        .extra("faults", span.cpu.faults))
}

/// A burst of changes, until every handler has all. A smaller one runs before and is not measured.
fn steady<C: Cache>(flags: &Flags, mut setup: Setup, start: impl Fn(Setup) -> C) -> Outcome {
    let count = flags.get("n", 20_000)?;
    let events = flags.get("events", 200_000)?;
    let handlers = flags.get("handlers", 1)?;
    setup.handlers = (0..handlers).map(|_| Arc::new(Tally::new(false))).collect();
    let cache = started(&setup, count, start)?;
    let burst = |events: usize| -> Result<Span, Stop> {
        let until: Vec<usize> = setup
            .handlers
            .iter()
            .map(|handler| handler.seen() + events)
            .collect();
        let stopwatch = Stopwatch::start();
        setup.server.burst(events, 0)?;
        for (handler, until) in setup.handlers.iter().zip(until) {
            handler.wait(until)?;
        }
        Ok(stopwatch.stop())
    };
    burst(events / 10)?;
    let server = setup.server.cpu()?;
    let span = burst(events)?;
    let server = setup.server.cpu()? - server;
    drop(cache);
    Ok(Report::new(events, span).extra("server_cpu", server))
}

/// Changes at an even rate, and the delay until the handler receives each.
fn latency<C: Cache>(flags: &Flags, mut setup: Setup, start: impl Fn(Setup) -> C) -> Outcome {
    let count = flags.get("n", 20_000)?;
    let rate = flags.get("rate", 5000)?;
    let events = flags.get("events", 5 * rate)?;
    let handler = Arc::new(Tally::new(true));
    setup.handlers = vec![Arc::clone(&handler)];
    let cache = started(&setup, count, start)?;
    setup.server.burst(rate / 2, rate)?;
    handler.wait(count + rate / 2)?;
    handler.forget_late();
    let until = handler.seen() + events;
    let stopwatch = Stopwatch::start();
    setup.server.burst(events, rate)?;
    handler.wait(until)?;
    let span = stopwatch.stop();
    drop(cache);
    let late = handler.late();
    if late.len() < events {
        return Err(Stop::skip(
            "the stored form of this peer does not contain the time of an object",
        ));
    }
    Ok(Report::new(events, span).latency(&Sorted::new(late)))
}

/// Random reads, two seconds on each of `-threads` threads.
fn read<C: Cache>(
    flags: &Flags,
    setup: Setup,
    start: impl Fn(Setup) -> C,
    read: impl Fn(&C, &[C::Key], &[(String, usize)], u64) -> bool + Sync,
) -> Outcome {
    let count: usize = flags.get("n", 100_000)?;
    let threads: usize = flags.get("threads", 1)?;
    let seconds = Duration::from_secs_f64(flags.get("secs", 2.0)?);
    let cache = started(&setup, count, start)?;
    let keys = all_keys(&cache, count);
    let each: Vec<(String, usize)> = (0..NAMESPACES)
        .map(|number| {
            (
                format!("ns-{number:04}"),
                (count + NAMESPACES - 1 - number) / NAMESPACES,
            )
        })
        .collect();
    let over = AtomicBool::new(false);
    let stopwatch = Stopwatch::start();
    let reads: Vec<Result<usize, usize>> = thread::scope(|scope| {
        let (cache, keys, each, over, read) = (&cache, &keys, &each, &over, &read);
        let readers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let mut random = Random::new(thread as u64);
                    let mut reads = 0;
                    while !over.load(Ordering::Relaxed) {
                        if !black_box(read(cache, keys, each, random.next())) {
                            return Err(reads);
                        }
                        reads += 1;
                    }
                    Ok(reads)
                })
            })
            .collect();
        thread::sleep(seconds);
        over.store(true, Ordering::Relaxed);
        readers
            .into_iter()
            .map(|reader| reader.join().expect("a reader"))
            .collect()
    });
    let span = stopwatch.stop();
    let reads: Result<Vec<usize>, usize> = reads.into_iter().collect();
    let reads =
        reads.map_err(|reads| Stop::wrong(format!("a read was wrong after {reads} reads")))?;
    Ok(Report::new(reads.iter().sum(), span))
}

/// Paced reads while all objects are listed again, and before, for comparison.
fn relist<C: Cache>(flags: &Flags, setup: Setup, start: impl Fn(Setup) -> C) -> Outcome {
    let count: usize = flags.get("n", 100_000)?;
    let cache = started(&setup, count, start)?;
    let keys = all_keys(&cache, count);
    let mut reads = Paced::new(&cache, &keys);
    // The memory of the first list has been returned by now, as far as it will be.
    thread::sleep(Duration::from_millis(500));
    let control = Stopwatch::start();
    let control_ends = Instant::now() + Duration::from_secs(2);
    let quiet = reads.until(|| Instant::now() >= control_ends)?;
    let control = control.stop();
    usage::forget_peak();
    let before = usage::resident();
    let version = cache.version(&keys[0]);
    let server = setup.server.cpu()?;
    let stopwatch = Stopwatch::start();
    setup.server.expire()?;
    let deadline = Instant::now() + Duration::from_secs(120);
    let busy = reads.until(|| cache.version(&keys[0]) > version || Instant::now() > deadline)?;
    let span = stopwatch.stop();
    let server = setup.server.cpu()? - server;
    if cache.version(&keys[0]) == version {
        return Err(Stop::wrong("the change was not seen within two minutes"));
    }
    expect_count(&cache, count)?;
    // The objects that the relist replaced are freed by now.
    let after = reads.until({
        let ends = Instant::now() + Duration::from_millis(300);
        move || Instant::now() >= ends
    })?;
    let peak = usage::peak();
    let (quiet, busy) = (Sorted::new(quiet), Sorted::new([busy, after].concat()));
    let reading = control.cpu.all / control.secs;
    Ok(Report::new(count, span)
        .latency(&busy)
        .peak(peak)
        .extra("p999_us", busy.quantile_us(0.999))
        .extra("control_p999_us", quiet.quantile_us(0.999))
        .extra("control_max_us", quiet.quantile_us(1.0))
        .extra("mem_ratio", peak / before)
        .extra(
            "cpu_obj_us",
            (span.cpu.all - reading * span.secs) * 1e6 / count as f64,
        )
        .extra("server_cpu", server))
}

/// A cache that holds `count` objects, and whose handlers have received them.
fn started<C: Cache>(setup: &Setup, count: usize, start: impl Fn(Setup) -> C) -> Result<C, Stop> {
    setup.server.reset(count)?;
    let cache = start(setup.clone());
    cache.wait_synced();
    expect_count(&cache, count)?;
    for handler in &setup.handlers {
        handler.wait(count)?;
    }
    Ok(cache)
}

fn expect_count<C: Cache>(cache: &C, count: usize) -> Result<(), Stop> {
    let held = cache.count();
    if held == count {
        Ok(())
    } else {
        Err(Stop::wrong(format!("{held} of {count} objects")))
    }
}

fn all_keys<C: Cache>(cache: &C, count: usize) -> Vec<C::Key> {
    let texts = (0..count).map(keys::text);
    texts
        .map(|text| {
            let (namespace, name) = text.split_once('/').expect("a key with a namespace");
            cache.key(namespace, name)
        })
        .collect()
}

// === impl Tally ===

impl Tally {
    pub(crate) fn new(timed: bool) -> Self {
        Self {
            seen: AtomicUsize::new(0),
            late: timed.then(Mutex::default),
        }
    }

    /// Counts an object that the server wrote at `stamp`.
    pub fn note(&self, stamp: impl FnOnce() -> Option<u64>) {
        if let Some(late) = &self.late
            && let Some(stamp) = stamp()
        {
            let since = std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970");
            let nanoseconds = (since.as_nanos() as u64).saturating_sub(stamp * 1000);
            late.lock().expect("no panic").push(nanoseconds);
        }
        self.seen.fetch_add(1, Ordering::Release);
    }

    fn seen(&self) -> usize {
        self.seen.load(Ordering::Acquire)
    }

    pub(crate) fn wait(&self, until: usize) -> Result<(), Stop> {
        let deadline = Instant::now() + Duration::from_secs(120);
        while self.seen() < until {
            if Instant::now() > deadline {
                return Err(Stop::wrong(format!(
                    "a handler received {} of {until}",
                    self.seen()
                )));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    pub(crate) fn forget_late(&self) {
        if let Some(late) = &self.late {
            late.lock().expect("no panic").clear();
        }
    }

    pub(crate) fn late(&self) -> Vec<u64> {
        let late = self
            .late
            .as_ref()
            .map(|late| late.lock().expect("no panic").clone());
        late.unwrap_or_default()
    }
}

/// Reads once in 100 µs. If a read starts late because the one before took long, its time counts from when it
/// was due.
struct Paced<'a, C: Cache> {
    cache: &'a C,
    keys: &'a [C::Key],
    random: Random,
}

// === impl Paced ===

impl<'a, C: Cache> Paced<'a, C> {
    const PACE: Duration = Duration::from_micros(100);

    fn new(cache: &'a C, keys: &'a [C::Key]) -> Self {
        Self {
            cache,
            keys,
            random: Random::new(1),
        }
    }

    /// How long each read took, in nanoseconds, until `over`.
    fn until(&mut self, over: impl Fn() -> bool) -> Result<Vec<u64>, Stop> {
        let mut took = Vec::with_capacity(1 << 20);
        let mut due = Instant::now();
        while !over() {
            due += Self::PACE;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let key = &self.keys[self.random.next() as usize % self.keys.len()];
            if !self.cache.get(key) {
                return Err(Stop::wrong("an object was missing for a moment"));
            }
            took.push(due.elapsed().as_nanos() as u64);
        }
        Ok(took)
    }
}

/// Pseudo-random numbers: xorshift.
struct Random(u64);

// === impl Random ===

impl Random {
    fn new(seed: u64) -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ (seed + 1))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }
}
