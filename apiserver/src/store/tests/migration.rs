//! Directories of older formats: what they hold is the same after their migration, and after a kill in it.

use std::path::Path;

use super::disk::Directory;
use super::*;

/// The names and contents of the files in a directory.
type Files = BTreeMap<String, Vec<u8>>;
/// All objects by storage and key: version, `apiVersion` and content.
type Dump = BTreeMap<(String, String), (u64, String, Value)>;

const FORMATS: [&str; 2] = ["format-1", "format-2"];

/// The files that a release with this format wrote.
fn written(format: &str) -> Files {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/rules");
    files(&path.join(format))
}

fn files(path: &Path) -> Files {
    let entries = std::fs::read_dir(path).unwrap();
    let files = entries.map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read(path).unwrap())
    });
    files.filter(|(name, _)| name != "lock").collect()
}

fn directory(files: &Files) -> Directory {
    let directory = Directory::new();
    for (name, content) in files {
        std::fs::write(directory.0.join(name), content).unwrap();
    }
    directory
}

fn open(directory: &Directory) -> Result<Store, PersistError> {
    let former = |storage: &str, found: &Found| {
        let definitions = "customresourcedefinitions.apiextensions.k8s.io";
        let group = found.object(definitions, storage);
        let group = group.map_or("built-in".to_owned(), |it| {
            it["spec"]["group"].as_str().unwrap().to_owned()
        });
        format!("{group}/v1")
    };
    Store::open(&directory.0, 1000, 7, History::default(), &former)
}

fn dump(store: &Store) -> Dump {
    let storages = store.storages().into_iter();
    storages
        .flat_map(|storage| {
            let objects = store.list(&storage, "").1.into_iter();
            objects.map(move |object| {
                let key = (storage.clone(), object.key().to_string());
                let value = object.to_value();
                (
                    key,
                    (object.version(), object.api_version().to_owned(), value),
                )
            })
        })
        .collect()
}

/// What a directory holds, and the version of its next write.
fn content(directory: &Directory) -> (Dump, Option<u64>) {
    let store = open(directory).unwrap();
    let before = dump(&store);
    drop(store);
    let store = open(directory).unwrap();
    assert_eq!(dump(&store), before, "opened again");
    store.create_table(STORAGE);
    (before, write(&store, "new", Some(1)))
}

#[test]
fn each_older_format_holds_the_same_after_its_migration() {
    let [first, second] = FORMATS.map(|format| content(&directory(&written(format))).0);
    assert_eq!(first, second);
    let version = |storage: &str, key: &str| {
        let found = first.get(&(storage.to_owned(), key.to_owned()));
        found.map(|(version, api_version, _)| (*version, api_version.as_str()))
    };
    assert_eq!(first.len(), 37);
    assert_eq!(
        version("configmaps", "default/in-log"),
        Some((10_150, "built-in/v1"))
    );
    assert_eq!(version("configmaps", "default/in-snapshot"), None);
    assert_eq!(
        version("widgets.example.com", "default/w"),
        Some((10_141, "example.com/v1"))
    );
}

#[test]
fn a_migrated_directory_has_only_files_of_the_newest_format() {
    for format in FORMATS {
        let directory = directory(&written(format));
        drop(open(&directory).unwrap());
        let files = files(&directory.0);
        assert_eq!(files.len(), 2, "{format}: {:?}", files.keys());
        for (name, content) in &files {
            let head = String::from_utf8_lossy(content);
            assert_eq!(&head[9..21], "{\"format\":3,", "{format}: {name}");
        }
        // The next start has nothing to migrate.
        drop(open(&directory).unwrap());
        assert_eq!(self::files(&directory.0), files, "{format}");
    }
}

#[test]
fn a_kill_at_any_point_of_a_migration_loses_nothing() {
    for format in FORMATS {
        let old = written(format);
        let migrated = directory(&old);
        drop(open(&migrated).unwrap());
        let new = files(&migrated.0);
        let expected = content(&directory(&old));
        let snapshot = &new["snapshot.jsonl"];
        let (log, lines) = new
            .iter()
            .find(|(name, _)| name.starts_with("log"))
            .unwrap();
        let check = |files: &Files, what: &str| {
            assert_eq!(content(&directory(files)), expected, "{format}: {what}");
        };
        // The snapshot is being written.
        for length in [0, 1, snapshot.len() / 2, snapshot.len()] {
            let mut files = old.clone();
            let draft = snapshot[..length].to_vec();
            files.insert("snapshot.jsonl.new".to_owned(), draft);
            check(&files, &format!("{length} bytes of the snapshot"));
        }
        // It is renamed, and the old log is still there.
        let mut files = old.clone();
        files.insert("snapshot.jsonl".to_owned(), snapshot.clone());
        check(&files, "both");
        // The old log is gone, and the new one begins.
        files.retain(|name, _| name == "snapshot.jsonl");
        check(&files, "the snapshot alone");
        for length in 0..=lines.len() {
            files.insert(log.clone(), lines[..length].to_vec());
            check(&files, &format!("{length} bytes of the log"));
        }
    }
}

#[test]
fn a_migration_that_the_disk_refuses_leaves_the_old_directory() {
    for format in FORMATS {
        let old = written(format);
        let directory = directory(&old);
        let in_the_way = directory.0.join("snapshot.jsonl.new");
        std::fs::create_dir(&in_the_way).unwrap();
        let error = open(&directory).unwrap_err().to_string();
        assert!(error.contains("cannot write"), "{error}");
        std::fs::remove_dir(&in_the_way).unwrap();
        assert_eq!(files(&directory.0), old, "{format}");
        open(&directory).unwrap();
    }
}

#[test]
fn the_version_of_an_object_survives_its_snapshot_and_its_log() {
    let directory = Directory::new();
    let typed = |key: &str, api_version: &str| {
        let mut thing = thing(key, 1);
        thing["apiVersion"] = api_version.into();
        thing["kind"] = "Thing".into();
        thing
    };
    let store = open(&directory).unwrap();
    store.create_table(STORAGE);
    for (key, api_version) in [("a/x", "example.com/v1"), ("a/y", "example.com/v2")] {
        let value = Some(typed(key, api_version));
        let stored = store.commit(STORAGE, key, Expected::Absent, value).unwrap();
        assert_eq!(stored.api_version(), api_version);
        assert!(stored.value().get("apiVersion").is_none());
    }
    store.flush().unwrap();
    // A change without a version keeps the one of the object.
    write(&store, "a/x", Some(2));
    let live = store.get(STORAGE, "a/y").unwrap();
    let moved = Some(typed("a/y", "example.com/v3"));
    let expected = Expected::Version(live.version());
    store.commit(STORAGE, "a/y", expected, moved).unwrap();
    let before = dump(&store);
    drop(store);
    let store = open(&directory).unwrap();
    assert_eq!(dump(&store), before);
    let version = |key: &str| store.get(STORAGE, key).unwrap().api_version().to_owned();
    assert_eq!(version("a/x"), "example.com/v1");
    assert_eq!(version("a/y"), "example.com/v3");
}
