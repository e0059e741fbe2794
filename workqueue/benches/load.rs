//! Cost of a queue under load: CPU, lateness and memory. `cargo bench -p reeve-workqueue --bench load`,
//! with the names of scenarios to run only some: `timers`, `through`, `hot`, `memory`.
//!
//! One line a scenario. CPU time and resident memory are read from `/proc`, so this runs on Linux only; memory is
//! the resident size without the texts of the keys.

#![allow(clippy::print_stdout, reason = "what it is for")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use reeve_workqueue::Queue;
use tokio::task::JoinSet;
use tokio::time::Instant;

const COUNT: u64 = 1_000_000;

fn keys(count: u64) -> Vec<Arc<str>> {
    (0..count)
        .map(|number| format!("namespace/name-{number:08}").into())
        .collect()
}

/// Seconds of CPU this process has used.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let after_name = stat.rsplit(") ").next().expect("a name in parentheses");
    let fields: Vec<&str> = after_name.split(' ').collect();
    let ticks: f64 =
        fields[11].parse::<f64>().expect("utime") + fields[12].parse::<f64>().expect("stime");
    ticks / 100.0
}

/// Resident megabytes of this process.
fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: f64 = statm
        .split(' ')
        .nth(1)
        .expect("resident")
        .parse()
        .expect("a number");
    pages * 4096.0 / 1e6
}

/// A million items, each after a time of its own within 5 s.
async fn timers() {
    let keys = keys(COUNT);
    let mut lateness: Vec<u32> = vec![0; keys.len()];
    lateness.clear();
    // The due time of each, in nanoseconds from the start.
    let due: Arc<Vec<AtomicU64>> = Arc::new((0..COUNT).map(AtomicU64::new).collect());
    let (cpu_before, memory_before) = (cpu(), resident());
    let queue: Queue<Arc<str>> = Queue::new();
    let start = Instant::now();
    let adder = tokio::task::spawn_blocking({
        let (queue, due) = (queue.clone(), Arc::clone(&due));
        move || {
            for ((number, key), due) in (0_u64..).zip(keys).zip(due.iter()) {
                let delay = Duration::from_micros(number.wrapping_mul(2_654_435_761) % 5_000_000);
                let at = (start.elapsed() + delay).as_nanos();
                due.store(u64::try_from(at).unwrap_or(u64::MAX), Relaxed);
                queue.add_after(key, delay);
            }
            start.elapsed()
        }
    });
    let mut peak = 0.0_f64;
    for _ in 0..COUNT {
        let item = queue.get().await.expect("it runs");
        let number: usize = item[15..].parse().expect("a number");
        let due = Duration::from_nanos(due[number].load(Relaxed));
        let late = start.elapsed().saturating_sub(due);
        lateness.push(u32::try_from(late.as_micros()).unwrap_or(u32::MAX));
        item.forget();
        if lateness.len().is_multiple_of(100_000) {
            peak = peak.max(resident() - memory_before);
        }
    }
    let used = cpu() - cpu_before;
    let added = adder.await.expect("no panic");
    lateness.sort_unstable();
    let at =
        |share: f64| f64::from(lateness[(share * (lateness.len() - 1) as f64) as usize]) / 1000.0;
    println!(
        "timers: {COUNT} over 5 s: {used:.2} s CPU (adding took {:.2} s), lateness p50 {:.2} p99 {:.2} max {:.1} ms, {peak:.0} MB",
        added.as_secs_f64(),
        at(0.5),
        at(0.99),
        at(1.0),
    );
}

/// Distinct keys through the queue: add, get, done.
async fn through(threads: usize) {
    let keys = keys(COUNT);
    let cpu_before = cpu();
    let queue: Queue<Arc<str>> = Queue::new();
    let start = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..threads {
        let queue = queue.clone();
        workers.spawn(async move {
            while let Some(item) = queue.get().await {
                item.forget();
            }
        });
    }
    let mut producers = JoinSet::new();
    for share in keys.chunks(keys.len() / threads) {
        let (queue, share) = (queue.clone(), share.to_vec());
        producers.spawn_blocking(move || {
            for key in share {
                queue.add(key);
            }
        });
    }
    while producers.join_next().await.is_some() {}
    queue.shut_down_with_drain().await;
    workers.join_all().await;
    let took = start.elapsed().as_secs_f64();
    println!(
        "through: {threads}+{threads}: {:.2} M/s, {:.0} ns CPU an item",
        COUNT as f64 / took / 1e6,
        (cpu() - cpu_before) / COUNT as f64 * 1e9
    );
}

/// Many adds of few keys.
async fn hot(threads: u64) {
    let keys = keys(1000);
    let cpu_before = cpu();
    let queue: Queue<Arc<str>> = Queue::new();
    let start = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..threads {
        let queue = queue.clone();
        workers.spawn(async move {
            while let Some(item) = queue.get().await {
                item.forget();
            }
        });
    }
    let adds = 4 * COUNT;
    let mut producers = JoinSet::new();
    for thread in 0..threads {
        let (queue, keys) = (queue.clone(), keys.clone());
        producers.spawn_blocking(move || {
            for number in 0..adds / threads {
                queue.add(Arc::clone(
                    &keys[((number * 7 + thread * 251) % 1000) as usize],
                ));
            }
        });
    }
    while producers.join_next().await.is_some() {}
    queue.shut_down_with_drain().await;
    workers.join_all().await;
    let took = start.elapsed().as_secs_f64();
    println!(
        "hot: {threads}+{threads}, 1,000 keys: {:.2} M adds/s, {:.0} ns CPU an add",
        adds as f64 / took / 1e6,
        (cpu() - cpu_before) / adds as f64 * 1e9
    );
}

fn memory() {
    let keys = keys(COUNT);
    let before = resident();
    let queue: Queue<Arc<str>> = Queue::new();
    for key in &keys {
        queue.add(Arc::clone(key));
    }
    let ready = resident() - before;
    while let Some(item) = queue.try_get() {
        item.forget();
    }
    println!(
        "memory: {:.1} bytes a ready key, {:.1} MB of {ready:.1} MB left when all are done",
        ready * 1e6 / COUNT as f64,
        resident() - before
    );
}

fn main() {
    let chosen: Vec<String> = std::env::args()
        .skip(1)
        .filter(|name| !name.starts_with('-'))
        .collect();
    let runs = |name: &str| chosen.is_empty() || chosen.iter().any(|other| other == name);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if runs("memory") {
        memory();
    }
    if runs("timers") {
        runtime
            .block_on(async { tokio::spawn(timers()).await })
            .expect("no panic");
    }
    if runs("through") {
        for threads in [1, 4] {
            runtime.block_on(through(threads));
        }
    }
    if runs("hot") {
        for threads in [1, 4] {
            runtime.block_on(hot(threads));
        }
    }
}
