//! Power failures: at each step of a run, with whatever the disk may leave.

use super::disk::Directory;
use super::*;
use crate::disk::simulated::{self, Disk, Failing, Recorded, Step};
use crate::disk::{self, Appended};

/// A write of a run.
struct Written {
    /// The number of steps before it, and when it was answered.
    began: usize,
    answered: usize,
    version: u64,
}

struct Run {
    steps: Vec<Recorded>,
    writes: Vec<Written>,
    /// The state before the first write, and after each.
    states: Vec<BTreeMap<String, u64>>,
    /// The number of steps after which no power failure loses an answered write.
    synced_from: Option<usize>,
}

fn open(directory: &Directory, synced: bool) -> Result<Store, PersistError> {
    let unknown = |_: &str, _: &Found| String::new();
    let store = Store::open(&directory.0, 1000, 7, History::default(), &unknown)?;
    store.create_table(STORAGE);
    store.with_synced_writes(synced)
}

/// Writes with snapshots, kills and a shutdown between them.
fn run(synced: bool, seed: u64) -> Run {
    let directory = Directory::new();
    simulated::record(&directory.0);
    let mut random = fastrand::Rng::with_seed(seed);
    let keys = ["a/x", "a/y", "b/x", "c"];
    let (mut writes, mut states) = (Vec::new(), vec![BTreeMap::new()]);
    let mut store = open(&directory, synced).unwrap();
    let steps = || simulated::count(&directory.0);
    for n in 0..36 {
        match n {
            8 => store.flush().unwrap(),
            14 | 28 => {
                drop(store);
                store = open(&directory, synced).unwrap();
            }
            20 => store.begin_snapshot(&mut store.log.lock()),
            24 => {
                store.close().unwrap();
                drop(store);
                store = open(&directory, synced).unwrap();
            }
            _ => {}
        }
        let began = steps();
        let content = (random.u8(..4) > 0).then(|| random.u32(..));
        let key = keys[random.usize(..keys.len())];
        if let Some(version) = write(&store, key, content) {
            let answered = steps();
            writes.push(Written {
                began,
                answered,
                version,
            });
            states.push(everything(&store, None).unwrap());
        }
    }
    drop(store);
    let steps = simulated::take(&directory.0);
    Run {
        steps,
        writes,
        states,
        synced_from: synced.then_some(0),
    }
}

/// The logs that follow the first one, which no thread has synced.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// One that no line goes to.
    Prepared,
    /// This number of them; lines go to the last.
    Begun(u32),
}

/// The number of writes of a server, and whether it syncs them.
type Server = (u32, bool);

/// Two writes go to a log, others to those that follow it. Further servers find what a kill of the one before left. A
/// block has three versions.
fn run_on_an_unsynced_log(next: Next, first: Server, further: &[Server]) -> Run {
    let directory = Directory::new();
    simulated::record(&directory.0);
    let steps = || simulated::count(&directory.0);
    let (mut writes, mut states) = (Vec::new(), vec![BTreeMap::new()]);
    let mut put = |store: &Store| {
        let (began, n) = (steps(), writes.len() as u32);
        let version = write(store, &format!("a/{n}"), Some(n)).unwrap();
        writes.push(Written {
            began,
            answered: steps(),
            version,
        });
        states.push(everything(store, None).unwrap());
    };
    let open = |synced| {
        let unknown = |_: &str, _: &Found| String::new();
        let store = Store::open(&directory.0, 1000, 40_000, History::default(), &unknown).unwrap();
        store.create_table(STORAGE);
        store.with_synced_writes(synced).unwrap()
    };
    let store = open(first.1);
    let mut synced_from = first.1.then(steps);
    put(&store);
    put(&store);
    match next {
        Next::Prepared => {
            drop(Appended::open(&directory.0.join("log.2.jsonl")).unwrap());
            disk::sync_directory(&directory.0).unwrap();
        }
        Next::Begun(logs) => {
            let failing = Failing {
                sync: true,
                ..Failing::default()
            };
            simulated::fail(&directory.0, Some(failing));
            for _ in 0..logs {
                store.begin_snapshot(&mut store.log.lock());
                assert!(store.log.lock().as_mut().unwrap().wait().is_err());
            }
            simulated::fail(&directory.0, None);
        }
    }
    (0..first.0).for_each(|_| put(&store));
    drop(store);
    for &(count, synced) in further {
        let store = open(synced);
        if synced {
            synced_from = synced_from.or(Some(steps()));
        }
        (0..count).for_each(|_| put(&store));
    }
    Run {
        steps: simulated::take(&directory.0),
        writes,
        states,
        synced_from,
    }
}

/// Opens what is left after `cut` steps, and checks that it is a state that a client may find.
fn check(run: &Run, cut: usize, synced: bool, left: &BTreeMap<String, Vec<u8>>, what: &str) {
    let directory = Directory::new();
    for (name, content) in left {
        std::fs::write(directory.0.join(name), content).unwrap();
    }
    let store = open(&directory, synced).unwrap_or_else(|error| panic!("{what}: {error}"));
    let state = everything(&store, None).unwrap();
    let answered = |by: usize| {
        run.writes
            .iter()
            .filter(|write| write.answered <= by)
            .count()
    };
    let durable = match synced {
        true => answered(cut),
        // A log is synced while lines go to the next one.
        false => {
            let writes = run.writes.iter();
            let durable = writes.take_while(|write| is_synced(&run.steps[..cut], write.version));
            durable.count()
        }
    };
    let begun = run.writes.iter().filter(|write| write.began < cut).count();
    let found = run.states[durable..=begun].contains(&state);
    assert!(
        found,
        "{what}: {state:?} is none of the states {durable} to {begun}"
    );
    let used = run.writes.iter().filter(|write| write.answered <= cut);
    let newest = used.map(|write| write.version).max().unwrap_or(0);
    assert!(
        store.revision() >= newest,
        "{what}: {newest} would be used twice"
    );
}

/// Whether the log with the line of this version was synced behind it.
fn is_synced(steps: &[Recorded], version: u64) -> bool {
    let line = format!("{{\"version\":{version},").into_bytes();
    let has_line = |bytes: &[u8]| bytes.windows(line.len()).any(|part| part == line);
    let mut steps = steps.iter();
    let appended = steps.find(|(name, step)| {
        name.starts_with("log.") && matches!(step, Step::Append(bytes) if has_line(bytes))
    });
    appended
        .is_some_and(|(log, _)| steps.any(|(name, step)| name == log && matches!(step, Step::Sync)))
}

fn every_cut(synced: bool, seed: u64) {
    let what = format!("seed {seed}, synced {synced}");
    cut_each(&run(synced, seed), seed, 4, &what);
}

/// Loses power so many times after each step of a run, and kills its process there.
fn cut_each(run: &Run, seed: u64, losses: usize, what: &str) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut disk = Disk::default();
    for cut in 0..=run.steps.len() {
        let synced = run.synced_from.is_some_and(|from| from <= cut);
        for n in 0..losses {
            let left = disk.lose_power(&mut random);
            let what = format!("{what}, {cut} steps, loss {n}");
            check(run, cut, synced, &left, &what);
        }
        // A process that is killed loses nothing that it answered, synced or not.
        let what = format!("{what}, {cut} steps, kill");
        check(run, cut, true, &disk.kill(), &what);
        if let Some(step) = run.steps.get(cut) {
            disk.apply(step);
        }
    }
}

#[test]
fn a_power_failure_loses_no_answered_write_that_was_synced() {
    for seed in 0..3 {
        every_cut(true, seed);
    }
}

#[test]
fn without_synced_writes_a_power_failure_loses_the_last_ones_alone() {
    for seed in 10..13 {
        every_cut(false, seed);
    }
}

#[test]
fn versions_reserved_in_a_log_are_kept_when_the_log_before_loses_its_end() {
    for (next, first, further) in [
        // The block ends in the log that follows the unsynced one.
        (Next::Begun(1), (4, false), &[][..]),
        (Next::Begun(2), (4, false), &[]),
        // A server after a kill begins a block there.
        (Next::Prepared, (0, false), &[(2, false)]),
        (Next::Begun(1), (1, false), &[(1, false), (2, false)]),
    ] {
        let run = run_on_an_unsynced_log(next, first, further);
        cut_each(&run, 20, 8, &format!("{next:?}, {first:?}, {further:?}"));
    }
}

#[test]
fn synced_writes_are_kept_though_the_log_before_was_not_synced() {
    for (next, first, further) in [
        (Next::Prepared, (0, false), &[(2, true)][..]),
        (Next::Begun(1), (1, false), &[(2, true)]),
        // The second log has a head alone, which is not synced.
        (Next::Begun(2), (1, true), &[]),
    ] {
        let run = run_on_an_unsynced_log(next, first, further);
        cut_each(&run, 21, 8, &format!("{next:?}, {first:?}, {further:?}"));
    }
}

#[test]
fn writers_that_come_together_share_a_sync() {
    let directory = Directory::new();
    simulated::record(&directory.0);
    let store = open(&directory, true).unwrap();
    // The writers queue behind a leader.
    let log = store.log.lock();
    std::thread::scope(|scope| {
        for n in 0..40 {
            let store = &store;
            scope.spawn(move || write(store, &format!("a/{n}"), Some(n)));
        }
        while store.queue.len() < 40 {
            std::thread::yield_now();
        }
        drop(log);
    });
    assert_eq!(store.count(STORAGE), 40);
    let steps = simulated::take(&directory.0);
    let syncs = steps.iter().filter(|(_, step)| matches!(step, Step::Sync));
    // The first log, the block of versions, and the batch.
    assert_eq!(syncs.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_thread_write_together_while_the_disk_syncs() {
    let directory = Directory::new();
    let store = open(&directory, true).unwrap();
    let start = tokio::time::Instant::now();
    let writes = (0..20).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            let (key, absent) = (format!("a/{n}"), Expected::Absent);
            let value = thing(&key, n);
            let first =
                store.commit_unblocked(None, STORAGE, &key, absent, Effect::Put(value.clone()), ());
            first.await.unwrap();
            let again = store
                .commit_unblocked(None, STORAGE, &key, absent, Effect::Put(value), ())
                .await;
            assert!(matches!(again, Err(CommitError::Raced)));
        })
    });
    let writes: Vec<_> = writes.collect();
    for write in writes {
        write.await.unwrap();
    }
    // The time of a sync is not one of the paused clock.
    assert_eq!(start.elapsed(), Duration::ZERO);
    let state = everything(&store, None).unwrap();
    assert_eq!(state.len(), 20);
    drop(store);
    let left = everything(&open(&directory, true).unwrap(), None).unwrap();
    assert_eq!(left, state);
}
