//! Cost of a queue operation: `cargo bench --bench queue`.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use futures::FutureExt;
use reeve_workqueue::{Item, ItemExponentialFailure, Queue};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Keys like those of controllers: text of their own.
fn keys(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("namespace/name-{number:08}"))
        .collect()
}

/// One key on one thread: without cache misses.
fn one_key(c: &mut Criterion) {
    let queue = Queue::new();
    let mut group = c.benchmark_group("one key");
    group.bench_function("add, get, done", |b| {
        b.iter(|| {
            queue.add(black_box(7_u64));
            queue.get_blocking().map(Item::forget)
        });
    });
    queue.add(7);
    group.bench_function("add of an item that is queued already", |b| {
        b.iter(|| queue.add(black_box(7_u64)));
    });
    let limited = Queue::builder()
        .rate_limiter(ItemExponentialFailure::default())
        .build();
    group.bench_function("add rate-limited, cancel, forget", |b| {
        b.iter(|| {
            limited.add_rate_limited(black_box(7_u64));
            limited.cancel(&7);
            limited.forget(&7);
        });
    });
    group.finish();
}

/// Producers and workers on tasks of their own, with `threads` of each, until all keys are done.
fn crowd(c: &mut Criterion) {
    const COUNT: usize = 100_000;
    let runtime = Runtime::new().expect("a runtime");
    let mut group = c.benchmark_group("100,000 keys");
    group.throughput(Throughput::Elements(COUNT as u64));
    for threads in [1, 4] {
        group.bench_function(format!("{threads} producers, {threads} workers"), |b| {
            b.iter_batched(
                || keys(COUNT),
                |keys| runtime.block_on(pass_through(keys, threads)),
                BatchSize::PerIteration,
            );
        });
    }
    group.bench_function("delayed, all due", |b| {
        b.iter_batched(
            || keys(COUNT),
            |keys| {
                let _guard = runtime.enter();
                let queue: Queue<String> = Queue::new();
                for (number, key) in (0_u64..).zip(keys) {
                    let spread = number.wrapping_mul(2_654_435_761) % 1_000;
                    queue.add_after(key, Duration::from_nanos(spread));
                }
                while let Some(Some(item)) = queue.get().now_or_never() {
                    item.forget();
                }
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

async fn pass_through(keys: Vec<String>, threads: usize) {
    let queue: Queue<String> = Queue::new();
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
    let share = keys.len() / threads;
    let mut keys = keys.into_iter();
    for _ in 0..threads {
        let queue = queue.clone();
        let share: Vec<String> = keys.by_ref().take(share).collect();
        producers.spawn(async move {
            for key in share {
                queue.add(key);
            }
        });
    }
    producers.join_all().await;
    queue.shut_down_with_drain().await;
    workers.join_all().await;
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = one_key, crowd
}
criterion_main!(benches);
