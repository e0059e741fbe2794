//! Disks that refuse a write, and then the repair after it.

use super::disk::Directory;
use super::*;
use crate::disk::simulated::{self, Disk, Failing, Recorded};

fn open(directory: &Directory, synced: bool) -> Result<Store, PersistError> {
    let unknown = |_: &str, _: &Found| String::new();
    let store = Store::open(&directory.0, 1000, 7, History::default(), &unknown)?;
    store.create_table(STORAGE);
    store.with_synced_writes(synced)
}

/// One answered write.
struct Answered {
    /// The number of steps before its answer.
    steps: usize,
    key: &'static str,
    version: u64,
    content: u32,
}

struct Run {
    steps: Vec<Recorded>,
    answered: Vec<Answered>,
    refused: Vec<u64>,
}

/// Writes, of which one is refused; as long as `failing` cuts nothing off, all are. `closes`: the server stops then.
fn run(synced: bool, failing: Failing, closes: bool) -> Run {
    let directory = Directory::new();
    simulated::record(&directory.0);
    let mut store = open(&directory, synced).unwrap();
    let steps = || simulated::count(&directory.0);
    let mut answered = Vec::new();
    let mut put = |store: &Store, key: &'static str, content: u32| {
        let version = write(store, key, Some(content)).unwrap();
        answered.push(Answered {
            steps: steps(),
            key,
            version,
            content,
        });
    };
    put(&store, "a/x", 1);
    put(&store, "a/y", 2);
    let (before, revision) = (everything(&store, None).unwrap(), store.revision());
    simulated::fail(&directory.0, Some(failing));
    let mut refused = Vec::new();
    for n in 0..3_u64 {
        let value = Some(thing("a/z", 100));
        let result = store.commit(STORAGE, "a/z", Expected::Absent, value);
        assert!(
            matches!(result, Err(CommitError::Persist(_))),
            "{failing:?}"
        );
        refused.push(revision + 7 * (n + 1));
        if failing.cut {
            // The disk has room again, and what is in the log is not cut off.
            let failing = Failing {
                cut: true,
                ..Failing::default()
            };
            simulated::fail(&directory.0, Some(failing));
        } else {
            break;
        }
    }
    assert_eq!(everything(&store, None).unwrap(), before);
    assert_eq!(store.revision(), revision);
    if closes {
        let failing = Failing {
            cut: failing.cut,
            ..Failing::default()
        };
        simulated::fail(&directory.0, Some(failing));
        store.close().unwrap();
        simulated::fail(&directory.0, None);
        store = open(&directory, synced).unwrap();
    }
    simulated::fail(&directory.0, None);
    for (n, key) in ["a/x", "a/z", "a/y"].into_iter().enumerate() {
        put(&store, key, 10 + n as u32);
    }
    drop(store);
    let steps = simulated::take(&directory.0);
    Run {
        steps,
        answered,
        refused,
    }
}

/// Opens what is left after `cut` steps: each version is that of its one answered write.
fn check(run: &Run, cut: usize, keeps_all: bool, left: &BTreeMap<String, Vec<u8>>, what: &str) {
    let directory = Directory::new();
    for (name, content) in left {
        std::fs::write(directory.0.join(name), content).unwrap();
    }
    let store = open(&directory, false).unwrap_or_else(|error| panic!("{what}: {error}"));
    let known = || run.answered.iter().filter(|write| write.steps <= cut);
    for object in store.list(STORAGE, "").1 {
        let (version, content) = (object.version(), &object.value()["content"]);
        let answered = known().find(|write| write.version == version);
        let expected = match answered {
            Some(write) => write.content,
            None if run.refused.contains(&version) => 100,
            None => continue,
        };
        assert_eq!(
            *content, expected,
            "{what}: version {version} is used twice"
        );
    }
    let newest = known().map(|write| write.version).max().unwrap_or(0);
    for write in known().filter(|_| keeps_all) {
        let found = store.get(STORAGE, write.key);
        let is_there = found.is_some_and(|found| found.version() >= write.version);
        assert!(is_there, "{what}: {} is lost", write.version);
    }
    let next = write(&store, "a/new", Some(7)).unwrap();
    assert!(
        next > newest && !run.refused.contains(&next),
        "{what}: {next}"
    );
}

#[test]
fn the_version_of_a_refused_write_is_not_used_again() {
    let mut kinds = Vec::new();
    for cut in [false, true] {
        for closes in [false, true] {
            for room in [0, 1, 9, 40, 100, 150] {
                let failing = Failing {
                    room: Some(room),
                    cut,
                    sync: false,
                };
                kinds.push((false, failing, closes));
            }
            let failing = Failing {
                room: None,
                sync: true,
                cut,
            };
            kinds.push((true, failing, closes));
        }
    }
    for (synced, failing, closes) in kinds {
        let run = run(synced, failing, closes);
        let versions: Vec<u64> = run.answered.iter().map(|write| write.version).collect();
        assert!(
            versions
                .iter()
                .all(|version| !run.refused.contains(version))
        );
        assert!(versions.is_sorted());
        let mut random = fastrand::Rng::with_seed(7);
        let mut disk = Disk::default();
        for cut in 0..=run.steps.len() {
            let what = format!("{failing:?}, closes {closes}, {cut} steps");
            for _ in 0..4 {
                let left = disk.lose_power(&mut random);
                check(&run, cut, synced, &left, &format!("{what}, power"));
            }
            check(&run, cut, true, &disk.kill(), &format!("{what}, kill"));
            if let Some(step) = run.steps.get(cut) {
                disk.apply(step);
            }
        }
    }
}
