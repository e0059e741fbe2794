//! The floors: the minimum work of a deduplicating queue and of a limiter, under one mutex.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use parking_lot::{Condvar, Mutex};
use peer_measure::crowd::{Counters, Plan};
use peer_measure::keys::Key;
use peer_measure::limit::Limiter;
use peer_measure::usage::Stopwatch;
use peer_measure::{Flags, Outcome, Report, Stop, heap, keys, limit};

/// Add, get, done, and nothing else: no delays, priorities, limits or guards.
struct Floor<K> {
    state: Mutex<State<K>>,
    more: Condvar,
}

struct State<K> {
    queue: VecDeque<K>,
    dirty: HashSet<K>,
    processing: HashSet<K>,
    waiting: usize,
    closed: bool,
}

// === impl Floor ===

impl<K: Key> Floor<K> {
    fn new() -> Self {
        Self {
            state: Mutex::new(State {
                queue: VecDeque::new(),
                dirty: HashSet::new(),
                processing: HashSet::new(),
                waiting: 0,
                closed: false,
            }),
            more: Condvar::new(),
        }
    }

    fn add(&self, key: K) {
        let mut state = self.state.lock();
        if !state.dirty.insert(key.clone()) || state.processing.contains(&key) {
            return;
        }
        state.queue.push_back(key);
        self.tell(&state);
    }

    fn get(&self) -> Option<K> {
        let mut state = self.state.lock();
        loop {
            if let Some(key) = state.queue.pop_front() {
                state.dirty.remove(&key);
                state.processing.insert(key.clone());
                return Some(key);
            }
            if state.closed {
                return None;
            }
            state.waiting += 1;
            self.more.wait(&mut state);
            state.waiting -= 1;
        }
    }

    fn done(&self, key: K) {
        let mut state = self.state.lock();
        state.processing.remove(&key);
        if state.dirty.contains(&key) {
            state.queue.push_back(key);
            self.tell(&state);
        }
    }

    fn tell(&self, state: &State<K>) {
        if state.waiting > 0 {
            self.more.notify_one();
        }
    }

    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.dirty.is_empty() && state.processing.is_empty()
    }

    fn close(&self) {
        self.state.lock().closed = true;
        self.more.notify_all();
    }
}

pub(crate) fn wq<K: Key>(flags: &Flags) -> Outcome {
    let plan = Plan::of(flags)?;
    let queue = Arc::new(Floor::<K>::new());
    let done = Arc::new(Counters::new(plan.threads));
    let workers: Vec<_> = (0..plan.threads)
        .map(|worker| {
            let (queue, done) = (Arc::clone(&queue), Arc::clone(&done));
            thread::spawn(move || {
                while let Some(key) = queue.get() {
                    queue.done(key);
                    done.of(worker).count();
                }
            })
        })
        .collect();
    let adds = Arc::clone(&queue);
    let expected = plan.count as u64;
    let report = plan.run(
        &done,
        move |key| adds.add(key),
        |times| queue.is_idle() && (plan.hot || done.sum() == expected * times),
    );
    queue.close();
    for worker in workers {
        worker.join().expect("a worker that ends");
    }
    report
}

pub(crate) fn wqmem(flags: &Flags) -> Outcome {
    if flags.text("mode", "ready") != "ready" {
        return Err(Stop::skip("the floor is a queue without time"));
    }
    heap::count();
    let count = flags.get("n", 1_000_000)?;
    let keys: Vec<Arc<str>> = keys::range(0, count);
    let before = heap::live();
    let stopwatch = Stopwatch::start();
    let queue = Floor::new();
    for key in &keys {
        queue.add(Arc::clone(key));
    }
    let bytes = (heap::live() - before) as f64 / count as f64;
    let span = stopwatch.stop();
    let queued = queue.state.lock().queue.len();
    if queued != count {
        return Err(Stop::wrong(format!(
            "{count} keys were added, {queued} are queued"
        )));
    }
    Ok(Report::new(count, span).heap(bytes))
}

/// A map of counts behind a mutex.
#[derive(Default)]
struct Counts(Mutex<HashMap<Arc<str>, u32>>);

pub(crate) fn wqlimit(flags: &Flags) -> Outcome {
    if flags.text("mode", "limiter") != "limiter" {
        return Err(Stop::skip("the floor's queue has no limits"));
    }
    limit::run(flags, Counts::default())
}

impl Limiter for Counts {
    fn when(&mut self, keys: &[Arc<str>]) {
        for key in keys {
            let mut counts = self.0.lock();
            let failures = match counts.get_mut(key) {
                Some(failures) => {
                    *failures += 1;
                    *failures
                }
                None => {
                    counts.insert(Arc::clone(key), 1);
                    1
                }
            };
            std::hint::black_box(Duration::from_millis(5) * 2_u32.saturating_pow(failures - 1));
        }
    }

    fn forget(&mut self, keys: &[Arc<str>]) {
        for key in keys {
            self.0.lock().remove(key);
        }
    }

    fn failures(&self, key: &Arc<str>) -> u32 {
        self.0.lock().get(key).copied().unwrap_or(0)
    }
}
