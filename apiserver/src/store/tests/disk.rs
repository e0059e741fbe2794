//! What the data directory promises: over kills, power failures and damage.

use super::*;
use crate::disk::steps;

fn open_with(directory: &Directory, step: u64) -> Result<Store, PersistError> {
    let unknown = |_: &str, _: &Found| String::new();
    Store::open(&directory.0, 1000, step, History::default(), &unknown)
}

fn open(directory: &Directory) -> Result<Store, PersistError> {
    let store = open_with(directory, 7)?;
    store.create_table(STORAGE);
    Ok(store)
}

fn newest_log(directory: &Directory) -> std::path::PathBuf {
    let numbers = 1..;
    let path = |number: u32| directory.0.join(format!("log.{number}.jsonl"));
    let mut paths = numbers.map(path).skip_while(|path| !path.exists());
    let mut newest = paths.next().unwrap();
    for path in paths.take_while(|path| path.exists()) {
        newest = path;
    }
    newest
}

fn names(directory: &Directory) -> Vec<String> {
    let entries = std::fs::read_dir(&directory.0).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<_> = entries
        .map(|entry| name(entry).into_string().unwrap())
        .filter(|name| name != "lock")
        .collect();
    names.sort();
    names
}

proptest! {
    #[test]
    fn a_store_opened_again_holds_what_was_written(operations in operations(), torn in 0_usize..40) {
        let keys = ["a/x", "a/y", "b/x", "a-b/z", "c", "b/y"];
        let directory = Directory::new();
        let (state, revision) = {
            let store = open_with(&directory, 7).unwrap();
            store.create_table(STORAGE);
            for (at, (key, content)) in operations.iter().enumerate() {
                write(&store, keys[*key], *content);
                if at == 20 {
                    store.flush().unwrap();
                }
            }
            (everything(&store, None).unwrap(), store.revision())
        };
        // Killed in the middle of another write: half a line.
        use std::io::Write as _;
        let line = br#"{"version":999999,"storage":"things","key":"a/x","value":{"metadata":{}}}"#;
        let mut log = std::fs::OpenOptions::new().append(true).open(newest_log(&directory)).unwrap();
        log.write_all(&line[..torn.min(line.len())]).unwrap();
        drop(log);
        let store = open_with(&directory, 7).unwrap();
        store.create_table(STORAGE);
        prop_assert_eq!(&everything(&store, None).unwrap(), &state);
        prop_assert!(store.revision() >= revision, "versions are not used twice");
        let version = write(&store, "new/one", Some(1)).unwrap();
        prop_assert!(version > revision);
        drop(store);
        let store = open_with(&directory, 7).unwrap();
        prop_assert_eq!(store.get(STORAGE, "new/one").map(|object| object.version()), Some(version));
    }
}

/// A directory of its own, removed in the end.
pub(super) struct Directory(pub(super) std::path::PathBuf);

impl Directory {
    pub(super) fn new() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!(
            "reeve-store-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_snapshot_is_durable_before_the_logs_that_it_replaces_are_removed() {
    let directory = Directory::new();
    let store = open(&directory).unwrap();
    write(&store, "a/x", Some(1));
    steps();
    store.close().unwrap();
    // The log first: what is written after it must not survive without it.
    assert_eq!(
        steps(),
        [
            "sync file",
            "sync file",
            "rename",
            "sync directory",
            "remove"
        ]
    );
}

#[test]
fn versions_that_a_power_failure_lost_are_not_used_again() {
    let directory = Directory::new();
    let store = open(&directory).unwrap();
    write(&store, "a/x", Some(1));
    let log = newest_log(&directory);
    let synced = std::fs::read(&log).unwrap();
    let lost: Vec<u64> = (2..50)
        .filter_map(|n| write(&store, "a/x", Some(n)))
        .collect();
    drop(store);
    // The lines that no sync has made durable are gone.
    std::fs::write(&log, synced).unwrap();
    let store = open(&directory).unwrap();
    assert_eq!(store.get(STORAGE, "a/x").unwrap().value()["content"], 1);
    let next = write(&store, "a/x", Some(2)).unwrap();
    assert!(next > *lost.last().unwrap(), "{next}");
}

#[test]
fn versions_are_reserved_again_when_a_block_is_used_up() {
    let directory = Directory::new();
    let store = open_with(&directory, 40_000).unwrap();
    store.create_table(STORAGE);
    steps();
    for n in 0..6 {
        write(&store, "a/x", Some(n)).unwrap();
    }
    // Three versions to a block of 100,000, with the first one.
    assert_eq!(steps(), ["sync file", "sync directory"].repeat(2));
}

#[test]
fn no_version_is_skipped_over_a_shutdown() {
    let directory = Directory::new();
    let store = open(&directory).unwrap();
    let version = write(&store, "a/x", Some(1)).unwrap();
    store.close().unwrap();
    assert_eq!(names(&directory), ["snapshot.jsonl"]);
    let store = open(&directory).unwrap();
    assert_eq!(write(&store, "a/x", Some(2)), Some(version + 7));
}

#[test]
fn writes_go_on_in_a_new_log_while_a_snapshot_is_written() {
    let directory = Directory::new();
    let store = open(&directory).unwrap();
    let first = write(&store, "a/x", Some(1));
    store.begin_snapshot(&mut store.log.lock());
    let second = write(&store, "a/y", Some(2));
    drop(store);
    // Whether the snapshot was finished or not: all is there.
    let store = open(&directory).unwrap();
    let version = |key: &str| store.get(STORAGE, key).map(|object| object.version());
    assert_eq!((version("a/x"), version("a/y")), (first, second));
    store.flush().unwrap();
    assert_eq!(names(&directory).len(), 2, "{:?}", names(&directory));
}

fn wait(store: &Store) {
    let _ = store.log.lock().as_mut().unwrap().wait();
}

#[test]
fn no_writer_waits_for_the_disk_when_a_snapshot_begins() {
    let directory = Directory::new();
    let store = open(&directory).unwrap();
    for n in 0..20_010 {
        write(&store, "a/x", Some(n)).unwrap();
    }
    wait(&store);
    steps();
    write(&store, "a/y", Some(1)).unwrap();
    // Another thread syncs the log so far and the name of the next one.
    assert_eq!(steps(), [""; 0]);
    wait(&store);
    assert_eq!(names(&directory), ["log.2.jsonl", "snapshot.jsonl"]);
    let state = everything(&store, None).unwrap();
    drop(store);
    assert_eq!(everything(&open(&directory).unwrap(), None).unwrap(), state);
}

#[test]
fn a_snapshot_that_failed_is_tried_again_some_lines_later() {
    for in_the_way in ["log.2.jsonl", "snapshot.jsonl.new"] {
        let directory = Directory::new();
        let store = open(&directory).unwrap();
        let obstacle = directory.0.join(in_the_way);
        std::fs::create_dir(&obstacle).unwrap();
        let attempts = || store.log.lock().as_ref().unwrap().attempts;
        let writes = |count| {
            for n in 0..count {
                write(&store, "a/x", Some(n)).unwrap();
            }
            wait(&store);
        };
        writes(20_010);
        writes(490);
        assert_eq!(attempts(), 1, "{in_the_way}: not with each write");
        std::fs::remove_dir(&obstacle).unwrap();
        writes(1_100);
        writes(1);
        assert_eq!(attempts(), 2);
        drop(store);
        let names = names(&directory);
        assert!(names.contains(&"snapshot.jsonl".to_owned()), "{names:?}");
    }
}

/// Logs of three writes each, of which the first has lost its end.
#[test]
fn a_log_that_follows_lost_lines_is_removed() {
    let directory = Directory::new();
    // In the place of the snapshot, which would replace the log.
    std::fs::create_dir(directory.0.join("snapshot.jsonl.new")).unwrap();
    let store = open(&directory).unwrap();
    for n in 0..6 {
        if n == 3 {
            store.begin_snapshot(&mut store.log.lock());
        }
        write(&store, &format!("a/{n}"), Some(n));
    }
    let revision = store.revision();
    drop(store);
    let first = directory.0.join("log.1.jsonl");
    let bytes = std::fs::read(&first).unwrap();
    let second = std::fs::read(directory.0.join("log.2.jsonl")).unwrap();
    let whole = everything(&open(&directory).unwrap(), None).unwrap();
    assert_eq!(whole.len(), 6);
    for (kind, left) in [
        ("shorter", bytes[..bytes.len() - 1].to_vec()),
        ("zeroes", {
            let mut left = bytes.clone();
            let from = left.len() - 100;
            left[from..].fill(0);
            left
        }),
        ("empty", Vec::new()),
    ] {
        std::fs::write(&first, &left).unwrap();
        std::fs::write(directory.0.join("log.2.jsonl"), &second).unwrap();
        let store = open(&directory).unwrap();
        let count = if left.is_empty() { 0 } else { 2 };
        assert_eq!(everything(&store, None).unwrap().len(), count, "{kind}");
        assert_eq!(names(&directory), ["log.1.jsonl", "snapshot.jsonl.new"]);
        assert!(left.is_empty() || store.revision() >= revision, "{kind}");
        write(&store, "a/new", Some(1)).unwrap();
        drop(store);
        let state = everything(&open(&directory).unwrap(), None).unwrap();
        assert_eq!(state.len(), count + 1, "{kind}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_log_that_could_not_begin_does_not_stay_behind_the_one_that_goes_on() {
    let directory = Directory::new();
    let store = open(&directory).unwrap();
    write(&store, "a/x", Some(1));
    std::os::unix::fs::symlink("/dev/full", directory.0.join("log.2.jsonl")).unwrap();
    store.begin_snapshot(&mut store.log.lock());
    assert_eq!(names(&directory), ["log.1.jsonl"]);
    write(&store, "a/y", Some(2));
    let state = everything(&store, None).unwrap();
    drop(store);
    assert_eq!(everything(&open(&directory).unwrap(), None).unwrap(), state);
}

#[cfg(unix)]
#[test]
fn reads_and_writes_go_on_while_the_disk_takes_a_snapshot() {
    let directory = Directory::new();
    // A pipe takes nothing until it is read.
    let draft = directory.0.join("snapshot.jsonl.new");
    let made = std::process::Command::new("mkfifo").arg(&draft).status();
    assert!(made.unwrap().success());
    let store = open(&directory).unwrap();
    write(&store, "a/before", Some(1));
    store.begin_snapshot(&mut store.log.lock());
    write(&store, "a/after", Some(2));
    let state = everything(&store, None).unwrap();
    assert_eq!(state.len(), 2);
    let snapshot = std::fs::read_to_string(&draft).unwrap();
    assert!(
        snapshot.contains("a/before") && !snapshot.contains("a/after"),
        "{snapshot}"
    );
    // A pipe cannot be synced: this snapshot counts for nothing.
    drop(store);
    assert_eq!(everything(&open(&directory).unwrap(), None).unwrap(), state);
}

#[test]
fn a_snapshot_that_was_not_finished_changes_nothing() {
    let directory = Directory::new();
    // In the place of the file that is written first.
    std::fs::create_dir(directory.0.join("snapshot.jsonl.new")).unwrap();
    let store = open(&directory).unwrap();
    write(&store, "a/x", Some(1));
    assert!(store.flush().is_err());
    write(&store, "a/y", Some(2));
    assert!(store.flush().is_err());
    write(&store, "a/x", None);
    let expected = everything(&store, None).unwrap();
    drop(store);
    let store = open(&directory).unwrap();
    assert_eq!(everything(&store, None).unwrap(), expected);
    std::fs::remove_dir(directory.0.join("snapshot.jsonl.new")).unwrap();
    store.close().unwrap();
    assert_eq!(names(&directory), ["snapshot.jsonl"]);
    let store = open(&directory).unwrap();
    assert_eq!(everything(&store, None).unwrap(), expected);
}

#[test]
fn a_directory_is_free_when_its_store_has_closed_though_its_lock_is_shared() {
    let directory = Directory::new();
    let store = open(&directory).unwrap();
    // As a child process has it between its start and its program.
    let shared = store.log.lock().as_ref().unwrap().share_lock();
    assert!(open(&directory).is_err());
    store.close().unwrap();
    open(&directory).unwrap();
    drop(shared);
}

#[test]
fn a_directory_of_a_newer_format_is_refused() {
    let directory = Directory::new();
    let head = "{\"format\":4,\"revision\":1,\"reserved\":1}\n";
    std::fs::write(directory.0.join("log.1.jsonl"), head).unwrap();
    let error = open(&directory).unwrap_err().to_string();
    assert!(
        error.contains("log.1.jsonl: its format 4 is newer than 3"),
        "{error}"
    );
}

/// Three writes, and the log with `damage` done to it.
fn damaged(damage: impl Fn(&mut Vec<u8>)) -> (Directory, std::path::PathBuf) {
    let directory = Directory::new();
    let store = open(&directory).unwrap();
    for (n, key) in ["a/x", "a/y", "a/z"].into_iter().enumerate() {
        write(&store, key, Some(n as u32));
    }
    drop(store);
    let log = newest_log(&directory);
    let mut bytes = std::fs::read(&log).unwrap();
    damage(&mut bytes);
    std::fs::write(&log, bytes).unwrap();
    (directory, log)
}

#[test]
fn a_damaged_line_before_whole_ones_is_refused_with_its_place_and_what_to_do() {
    let flip = |bytes: &mut Vec<u8>| {
        let at = bytes.windows(3).position(|part| part == b"a/y").unwrap();
        bytes[at + 2] ^= 1;
    };
    let (directory, log) = damaged(flip);
    let error = open(&directory).unwrap_err().to_string();
    // The head, a block of versions, a/x; then a/y.
    let place = format!(
        "cannot read {}: line 4 is damaged: its checksum does not match",
        log.display()
    );
    assert!(error.contains(&place), "{error}");
    assert!(error.contains("delete this line"), "{error}");
    let text = std::fs::read_to_string(&log).unwrap();
    let kept: Vec<&str> = text
        .lines()
        .enumerate()
        .filter(|(at, _)| *at != 3)
        .map(|(_, line)| line)
        .collect();
    std::fs::write(&log, kept.join("\n") + "\n").unwrap();
    let store = open(&directory).unwrap();
    let left: Vec<String> = everything(&store, None).unwrap().into_keys().collect();
    assert_eq!(left, ["a/x", "a/z"]);
}

#[test]
fn zeroes_at_the_end_of_a_log_are_cut_off() {
    let zero = |bytes: &mut Vec<u8>| {
        let from = bytes.len() - 30;
        bytes[from..].fill(0);
        bytes.extend([0; 4096]);
    };
    let (directory, _) = damaged(zero);
    let store = open(&directory).unwrap();
    let left: Vec<String> = everything(&store, None).unwrap().into_keys().collect();
    assert_eq!(left, ["a/x", "a/y"]);
    write(&store, "a/new", Some(1));
    drop(store);
    assert_eq!(
        everything(&open(&directory).unwrap(), None).unwrap().len(),
        3
    );
}

#[test]
fn a_snapshot_without_its_end_is_refused() {
    for cut in [1, 200] {
        let (directory, _) = damaged(|_| {});
        open(&directory).unwrap().close().unwrap();
        let path = directory.0.join("snapshot.jsonl");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - cut]).unwrap();
        let error = open(&directory).unwrap_err().to_string();
        assert!(error.contains("snapshot.jsonl: it ends after"), "{error}");
        assert!(error.contains("delete the first line"), "{error}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_write_that_a_full_disk_refuses_leaves_nothing_behind() {
    let directory = Directory::new();
    let store = open(&directory).unwrap();
    let first = write(&store, "a/x", Some(1));
    let log = newest_log(&directory);
    let length = || std::fs::metadata(&log).unwrap().len();
    let before = length();
    store.log.lock().as_mut().unwrap().fill(true);
    for _ in 0..2 {
        let refused = store.commit(STORAGE, "a/y", Expected::Absent, Some(thing("a/y", 1)));
        assert!(
            matches!(refused, Err(CommitError::Persist(_))),
            "{refused:?}"
        );
    }
    assert_eq!(store.failures(), 2);
    store.log.lock().as_mut().unwrap().fill(false);
    assert_eq!(length(), before);
    let second = write(&store, "a/y", Some(1));
    assert_eq!(second, first.map(|version| version + 3 * 7));
    drop(store);
    assert_eq!(
        everything(&open(&directory).unwrap(), None).unwrap().len(),
        2
    );
}
