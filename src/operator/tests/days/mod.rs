//! Days of virtual time with random faults: nothing is lost, doubled or leaked.
//!
//! A day is drawn from a seed. The operator runs with the built-in API server and two simulated gateways, in one thread,
//! without sockets except that of a list, which nothing reads. Users make, edit, trigger, unblock and delete blocks and edit a list of a set engine ([`sets`]), alerts ban and end, an administrator edits the
//! configuration ([`users`]). Gateways, the API server, clocks and processes fail ([`faults`]). [`checks`] has what must
//! hold at any time, and what must hold when nothing has failed for a while.
//!
//! `REEVE_DAYS` sets the number of days (default 3), `REEVE_SEED` tries one again and prints what happened, and
//! `REEVE_FIRST` begins with another seed than 0. Without optimization a day ends after three hours; `REEVE_HOURS` sets
//! another length.

mod checks;
mod faults;
mod found;
mod process;
mod sets;
mod users;
mod world;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use reeve_clock::{Clock, Random};
use tokio::time::Instant;

use users::Users;
use world::World;

use super::HOUR;

/// How many hours a day has.
const HOURS: u64 = if cfg!(debug_assertions) { 3 } else { 24 };

/// The mean time between two actions, and between two faults.
const ACTIONS: Duration = Duration::from_secs(180);
const FAULTS: Duration = Duration::from_secs(15 * 60);

/// How often everything is compared while nothing fails.
const CHECK: Duration = Duration::from_secs(10 * 60);

/// How long after the last fault everything must be in order.
const SETTLED: Duration = Duration::from_secs(180);

/// The last lines of a day that failed.
const SHOWN: usize = 120;

/// What happened, for the report of a failure.
#[derive(Clone, Debug)]
struct Timeline {
    lines: Arc<Mutex<Vec<String>>>,
    begun: Instant,
}

/// What a day came to.
#[derive(Clone, Copy, Debug, Default)]
struct Summary {
    /// The actions of users, alerts and administrators.
    actions: usize,
    faults: usize,
    /// Comparisons of everything.
    checks: usize,
    /// The most calls of gateways within an hour.
    calls: usize,
    /// The most requests about blocks within an hour.
    requests: u64,
}

// === impl Timeline ===

impl Timeline {
    fn add(&self, line: impl Into<String>) {
        let passed = self.begun.elapsed();
        let (seconds, milliseconds) = (passed.as_secs(), passed.subsec_millis());
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        let at = format!(
            "{hours:02}:{minutes:02}:{:02}.{milliseconds:03}",
            seconds % 60
        );
        self.lines.lock().push(format!("{at} {}", line.into()));
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

fn seconds_from(random: &Random, shortest: u64, longest: u64) -> Duration {
    Duration::from_secs(shortest + random.below(longest - shortest + 1))
}

/// Time to the next of events that happen every `mean` on average.
fn next_in(random: &Random, mean: Duration) -> Duration {
    mean.mul_f64(-(1.0 - random.unit()).ln())
}

async fn day(seed: u64, lines: Arc<Mutex<Vec<String>>>) -> Summary {
    let random = Random::seeded(seed);
    let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), seed);
    let timeline = Timeline {
        lines,
        begun: Instant::now(),
    };
    let engine = match random.below(3) {
        0 => "xdp",
        _ => "iptables",
    };
    let follows = random.below(2) == 0;
    timeline.add(format!(
        "the engine is {engine}, and with a list: {follows}"
    ));
    let mut world = World::new(engine, follows, clock, timeline).await;
    let mut users = Users::new(random.clone());
    world.start().await;
    let running = world.alive_tasks().await;
    let hours = number("REEVE_HOURS").unwrap_or(HOURS);
    let end = Instant::now() + Duration::from_secs(hours * 3600);
    let mut action = Instant::now() + next_in(&random, ACTIONS);
    let mut fault = Instant::now() + HOUR / 2;
    let mut check = Instant::now() + CHECK;
    let mut summary = Summary::default();
    loop {
        let next = action.min(fault).min(check);
        if next >= end {
            break;
        }
        tokio::time::sleep_until(next).await;
        world.watch(&mut summary);
        if world.replicas.take_if(|until| *until <= next).is_some() {
            world.replicate(false);
        }
        if check <= next {
            summary.checks += usize::from(world.check(&mut users).await);
            check = Instant::now() + CHECK;
        } else if fault <= next {
            summary.checks += usize::from(world.check(&mut users).await);
            summary.faults += 1;
            world.fail(&random).await;
            fault = Instant::now() + next_in(&random, FAULTS);
        } else {
            summary.actions += 1;
            users.act(&mut world).await;
            world.maybe_kill(&random).await;
            action = Instant::now() + next_in(&random, ACTIONS);
        }
    }
    world.mend().await;
    assert!(world.check(&mut users).await, "nothing fails any more");
    world.finish(&mut users, running).await;
    summary.checks += 2;
    summary
}

fn run(seed: u64, lines: Arc<Mutex<Vec<String>>>) -> Summary {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(day(seed, lines))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// One day; what happened, if it fails.
fn attempt(seed: u64, shown: bool) -> Result<Summary, String> {
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let kept = Arc::clone(&lines);
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| run(seed, kept)));
    let lines = lines.lock();
    if shown {
        lines.iter().for_each(|line| println!("{line}"));
    }
    result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        let skipped = lines.len().saturating_sub(SHOWN);
        format!(
            "REEVE_SEED={seed}: {}\n{}",
            text.unwrap_or_default(),
            lines[skipped..].join("\n")
        )
    })
}

#[test]
fn in_a_day_of_random_faults_nothing_is_lost_doubled_or_leaked() {
    let one = number("REEVE_SEED");
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("REEVE_FIRST").unwrap_or(0);
            first..first + number("REEVE_DAYS").unwrap_or(3)
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let results: Vec<Result<Summary, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let seeds = seeds.clone().skip(thread).step_by(threads);
                let days = move || seeds.map(move |seed| attempt(seed, one.is_some()));
                scope.spawn(move || days().collect::<Vec<_>>())
            })
            .collect();
        let days = threads.into_iter();
        days.flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut total = Summary::default();
    for summary in results.iter().flatten() {
        total.actions += summary.actions;
        total.faults += summary.faults;
        total.checks += summary.checks;
        total.calls = total.calls.max(summary.calls);
        total.requests = total.requests.max(summary.requests);
    }
    println!("{} days: {total:?}", results.len());
    let mut failures: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    failures.sort();
    assert!(
        failures.is_empty(),
        "{} failed, of which the first: {}",
        failures.len(),
        failures[..failures.len().min(3)].join("\n\n")
    );
}
