//! The order of writes that come together.

use std::sync::Arc;

use super::disk::Directory;
use super::*;
use crate::store::object::Content;
use crate::store::sequencer::Write;

fn write_of(storage: &str, key: &str, expected: Expected, value: Option<Value>) -> Write {
    Write {
        storage: storage.to_owned(),
        key: Key::from(key),
        expected,
        content: value.map(|value| Content::new(value, 0)),
        decision: None,
    }
}

fn open(directory: &Directory) -> Store {
    let unknown = |_: &str, _: &Found| String::new();
    let store = Store::open(&directory.0, 1000, 7, History::default(), &unknown).unwrap();
    store.create_table(STORAGE);
    store.create_table("namespaces");
    store
}

fn batch() -> Vec<Write> {
    let namespace = |name: &str| json!({"metadata": {"name": name}});
    let absent = Expected::Absent;
    vec![
        write_of("namespaces", "a", absent, Some(namespace("a"))),
        write_of(STORAGE, "a/x", absent, Some(thing("a/x", 1))),
        write_of(STORAGE, "a/x", absent, Some(thing("a/x", 2))),
        write_of(
            STORAGE,
            "a/x",
            Expected::Version(1014),
            Some(thing("a/x", 3)),
        ),
        write_of("namespaces", "a", Expected::Version(1007), None),
        write_of(STORAGE, "a/y", absent, Some(thing("a/y", 1))),
        write_of(STORAGE, "a/x", Expected::Version(1021), None),
        write_of("nothing", "a/x", absent, Some(thing("a/x", 1))),
        write_of(STORAGE, "z", absent, Some(thing("z", 1))),
    ]
}

#[test]
fn a_write_finds_what_those_before_it_in_its_batch_leave() {
    let directory = Directory::new();
    let store = open(&directory);
    let results = store.write_all(&mut store.log.lock(), batch());
    let results: Vec<_> = results
        .into_iter()
        .map(|result| result.map(|object| object.version()))
        .map(|result| result.map_err(|error| error.to_string()))
        .collect();
    let raced = || Err(CommitError::Raced.to_string());
    let expected = [
        Ok(1007),
        Ok(1014),
        raced(),
        Ok(1021),
        Ok(1028),
        Err(CommitError::Namespace.to_string()),
        Ok(1035),
        Err(CommitError::NoTable("nothing".to_owned()).to_string()),
        Ok(1042),
    ];
    assert_eq!(results, expected);
    let (events, seen) = store.events_after(STORAGE, 1000, 9).unwrap();
    let versions: Vec<u64> = events.iter().map(|event| event.version).collect();
    assert_eq!((versions, seen), (vec![1014, 1021, 1035, 1042], 1042));
    let state = everything(&store, None).unwrap();
    drop(store);
    assert_eq!(everything(&open(&directory), None).unwrap(), state);
}

#[cfg(target_os = "linux")]
#[test]
fn a_batch_that_the_disk_refuses_changes_nothing() {
    let directory = Directory::new();
    let store = open(&directory);
    write(&store, "before", Some(1));
    let before = everything(&store, None).unwrap();
    let mut log = store.log.lock();
    log.as_mut().unwrap().fill(true);
    let results = store.write_all(&mut log, batch());
    // Also one that lost to another write of the batch: that has not happened.
    for result in results {
        assert!(matches!(result, Err(CommitError::Persist(_))));
    }
    log.as_mut().unwrap().fill(false);
    drop(log);
    assert_eq!(store.revision(), 1007);
    assert_eq!(everything(&store, None).unwrap(), before);
    // The versions of the refused writes are skipped.
    assert_eq!(write(&store, "after", Some(1)), Some(1049));
    let state = everything(&store, None).unwrap();
    drop(store);
    assert_eq!(everything(&open(&directory), None).unwrap(), state);
}

#[test]
fn a_batch_that_is_cut_at_any_byte_leaves_its_first_writes_whole() {
    let directory = Directory::new();
    let store = open(&directory);
    write(&store, "before", Some(1));
    let log = directory.0.join("log.1.jsonl");
    let start = std::fs::metadata(&log).unwrap().len() as usize;
    let state = |store: &Store| {
        let objects = ["namespaces", STORAGE].map(|storage| store.list(storage, "").1);
        let objects = objects.into_iter().flatten();
        let form = |object: Arc<Object>| (object.key().to_string(), object.encoded().clone());
        objects.map(form).collect::<Vec<_>>()
    };
    // The same writes one by one, each with the state that it leaves.
    let alone = {
        let directory = Directory::new();
        let store = open(&directory);
        write(&store, "before", Some(1));
        let mut states = vec![state(&store)];
        for write in batch() {
            if store.write_all(&mut store.log.lock(), vec![write])[0].is_ok() {
                states.push(state(&store));
            }
        }
        states
    };
    let done = store.write_all(&mut store.log.lock(), batch());
    assert_eq!(
        done.iter().filter(|one| one.is_ok()).count() + 1,
        alone.len()
    );
    assert_eq!(state(&store), alone[alone.len() - 1]);
    drop(store);
    let bytes = std::fs::read(&log).unwrap();
    for cut in start..=bytes.len() {
        std::fs::write(&log, &bytes[..cut]).unwrap();
        let whole = bytes[start..cut]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        let store = open(&directory);
        assert_eq!(state(&store), alone[whole], "{cut}");
        // What is written next does not follow half a line.
        let next = write(&store, "next", Some(1)).unwrap();
        drop(store);
        let store = open(&directory);
        let found = store.get(STORAGE, "next").unwrap();
        assert_eq!(
            (found.version(), state(&store).len()),
            (next, alone[whole].len() + 1)
        );
    }
}

#[test]
fn the_log_has_the_order_of_the_versions_of_many_writers() {
    let directory = Directory::new();
    let store = open(&directory);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..300 {
                    let key = format!("t{thread}-{}", n % 7);
                    let version = write(store, &key, (n % 5 != 4).then_some(n));
                    // Its own write is there, for readers and for a watch.
                    assert!(version.is_none_or(|version| store.revision() >= version));
                }
            });
        }
    });
    let log = std::fs::read_to_string(directory.0.join("log.1.jsonl")).unwrap();
    let versions = log.lines().filter_map(|line| {
        let rest = line.split_once("\"version\":")?.1;
        rest.split(',').next()?.parse::<u64>().ok()
    });
    let versions: Vec<u64> = versions.collect();
    assert!(versions.windows(2).all(|two| two[0] + 7 == two[1]));
    assert_eq!(versions.last(), Some(&store.revision()));
    let state = everything(&store, None).unwrap();
    drop(store);
    assert_eq!(everything(&open(&directory), None).unwrap(), state);
}
