//! What the store promises, over random histories.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt as _;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

mod bounds;
mod disk;
mod faults;
mod migration;
mod power;
mod scopes;
mod sequence;

const STORAGE: &str = "things";

fn store(history: History) -> Store {
    let store = Store::new(1000, 7, history);
    store.create_table(STORAGE);
    store
}

fn thing(key: &str, content: u32) -> Value {
    let key = Key::from(key);
    json!({"metadata": {"name": key.name(), "namespace": key.namespace(), "uid": key.as_str()}, "content": content})
}

fn write(store: &Store, key: &str, content: Option<u32>) -> Option<u64> {
    let current = store.get(STORAGE, key);
    let expected = current.as_ref().map_or(Expected::Absent, |object| {
        Expected::Version(object.version())
    });
    let value = content.map(|content| thing(key, content));
    if current.is_none() && value.is_none() {
        return None;
    }
    let object = store.commit(STORAGE, key, expected, value).unwrap();
    Some(object.version())
}

fn everything(store: &Store, at: Option<u64>) -> Result<BTreeMap<String, u64>, HistoryError> {
    let query = Query {
        prefix: "",
        after: None,
        at,
        limit: None,
        accept: &|_| true,
    };
    let page = store.page(STORAGE, &query)?;
    Ok(page
        .objects
        .iter()
        .map(|object| (object.key().to_string(), object.version()))
        .collect())
}

#[test]
fn versions_grow_by_the_step_over_all_resources() {
    let store = store(History::default());
    store.create_table("others");
    assert_eq!(write(&store, "a/x", Some(1)), Some(1007));
    let other = store.commit(
        "others",
        "y",
        Expected::Absent,
        Some(json!({"metadata": {"name": "y"}})),
    );
    assert_eq!(other.unwrap().version(), 1014);
    assert_eq!(write(&store, "a/x", Some(2)), Some(1021));
    assert_eq!(write(&store, "a/x", None), Some(1028));
    assert_eq!(store.revision(), 1028);
}

#[test]
fn a_write_that_expects_another_version_changes_nothing() {
    let store = store(History::default());
    write(&store, "a/x", Some(1));
    let before = store.revision();
    for expected in [Expected::Absent, Expected::Version(3)] {
        let refused = store.commit(STORAGE, "a/x", expected, Some(thing("a/x", 2)));
        assert!(matches!(refused, Err(CommitError::Raced)));
    }
    assert_eq!(store.revision(), before);
}

#[test]
fn keys_are_ordered_bytewise_and_a_prefix_is_one_namespace() {
    let store = store(History::default());
    for key in ["a/z", "a-b/x", "a/b", "ab/c"] {
        write(&store, key, Some(1));
    }
    let keys: Vec<String> = everything(&store, None).unwrap().into_keys().collect();
    assert_eq!(keys, ["a-b/x", "a/b", "a/z", "ab/c"]);
    let (_, of_a) = store.list(STORAGE, "a/");
    assert_eq!(of_a.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn old_events_go_but_a_minimum_stays_whatever_its_age() {
    let history = History {
        min_events: 3,
        max_events: 100,
        age: Duration::from_secs(75),
        ..History::default()
    };
    let store = store(history);
    let versions: Vec<u64> = (0..5)
        .filter_map(|n| write(&store, "a/x", Some(n)))
        .collect();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(
        store.events_after(STORAGE, 1000, 10).is_ok(),
        "an idle resource keeps what it has"
    );
    write(&store, "a/x", Some(9));
    assert_eq!(store.oldest(STORAGE), Some(versions[2]));
    assert!(matches!(
        store.events_after(STORAGE, versions[1], 10),
        Err(HistoryError::TooOld { .. })
    ));
    assert_eq!(
        store
            .events_after(STORAGE, versions[2], 10)
            .unwrap()
            .0
            .len(),
        3
    );
}

#[test]
fn no_more_than_the_maximum_of_events_is_kept() {
    let history = History {
        min_events: 1,
        max_events: 4,
        age: Duration::from_secs(75),
        ..History::default()
    };
    let store = store(history);
    for n in 0..10 {
        write(&store, "a/x", Some(n));
    }
    let oldest = store.oldest(STORAGE).unwrap();
    assert_eq!(store.events_after(STORAGE, oldest, 100).unwrap().0.len(), 4);
}

#[test]
fn a_compaction_forbids_the_past_and_leaves_what_watches_resume_from() {
    let store = store(History::default());
    let first = write(&store, "a/x", Some(1)).unwrap();
    let second = write(&store, "a/x", Some(2)).unwrap();
    store.compact(second);
    assert!(matches!(
        everything(&store, Some(first)),
        Err(HistoryError::TooOld { .. })
    ));
    assert!(everything(&store, Some(second)).is_ok());
    assert!(store.check_start(STORAGE, first).is_ok());
    assert_eq!(store.events_after(STORAGE, first, 9).unwrap().0.len(), 1);
}

#[test]
fn what_is_forgotten_is_missed_only_by_readers_that_have_not_seen_it() {
    let store = store(History::default());
    let seen = write(&store, "a/x", Some(1)).unwrap();
    store.create_table("others");
    let other = json!({"metadata": {"name": "y"}});
    store
        .commit("others", "y", Expected::Absent, Some(other))
        .unwrap();
    store.forget(u64::MAX);
    assert!(matches!(
        store.check_start(STORAGE, seen),
        Err(HistoryError::TooOld { .. })
    ));
    write(&store, "a/x", Some(2));
    let (events, _) = store.events_after(STORAGE, seen, 9).unwrap();
    assert_eq!(events.len(), 1, "a watch that runs has missed nothing");
    assert!(store.events_after(STORAGE, seen - 1, 9).is_err());
}

#[test]
fn the_index_of_owners_follows_references() {
    let store = store(History::default());
    let owned = |uids: &[&str]| {
        let references: Vec<Value> = uids.iter().map(|uid| json!({"uid": uid})).collect();
        json!({"metadata": {"name": "x", "ownerReferences": references}})
    };
    let object = store
        .commit(STORAGE, "x", Expected::Absent, Some(owned(&["1", "2"])))
        .unwrap();
    assert_eq!(store.owned_by("1"), [(STORAGE.to_owned(), Key::from("x"))]);
    let expected = Expected::Version(object.version());
    store
        .commit(STORAGE, "x", expected, Some(owned(&["2"])))
        .unwrap();
    assert!(store.owned_by("1").is_empty());
    assert_eq!(store.owned_by("2").len(), 1);
}

#[test]
fn a_copy_is_what_it_was_and_has_the_chores_that_are_not_finished() {
    let first = store(History::default());
    let owned =
        |n: u32| json!({"metadata": {"name": "x", "ownerReferences": [{"uid": "1"}]}, "n": n});
    let object = first
        .commit(STORAGE, "x", Expected::Absent, Some(owned(1)))
        .unwrap();
    let chore = Chore::Dependent(STORAGE.to_owned(), Key::from("x"));
    assert_eq!(first.take_chores(), std::slice::from_ref(&chore));
    let copy = first.copy();
    first.finish_chores(std::iter::empty());
    let finished = first.copy();
    let expected = Expected::Version(object.version());
    first.commit(STORAGE, "x", expected, None).unwrap();
    write(&first, "a/y", Some(1));
    for (copy, chores) in [(&copy, vec![chore]), (&finished, Vec::new())] {
        let store = Store::of(copy, 7, History::default());
        assert_eq!(
            everything(&store, None).unwrap(),
            [("x".to_owned(), 1007)].into()
        );
        assert_eq!(store.owned_by("1").len(), 1);
        assert_eq!(store.take_chores(), chores);
        assert_eq!(write(&store, "a/z", Some(1)), Some(1014));
    }
    assert_eq!(first.owned_by("1"), []);
}

#[test]
fn an_owner_is_not_taken_for_one_whose_uid_begins_alike() {
    let store = store(History::default());
    for (name, uid) in [("x", "1"), ("y", "1/things"), ("z", "12")] {
        let owned = json!({"metadata": {"name": name, "ownerReferences": [{"uid": uid}]}});
        store
            .commit(STORAGE, name, Expected::Absent, Some(owned))
            .unwrap();
    }
    assert_eq!(store.owned_by("1"), [(STORAGE.to_owned(), Key::from("x"))]);
    assert_eq!(store.owned_by("1/things").len(), 1);
    assert!(store.owned_by("2").is_empty());
}

fn operations() -> impl Strategy<Value = Vec<(usize, Option<u32>)>> {
    proptest::collection::vec(
        (0_usize..6, proptest::option::weighted(0.7, 0_u32..5)),
        1..60,
    )
}

proptest! {
    #[test]
    fn the_past_reads_as_it_was_and_events_lead_from_it_to_the_present(operations in operations()) {
        let keys = ["a/x", "a/y", "b/x", "a-b/z", "c", "b/y"];
        let store = store(History { min_events: 10, max_events: 40, age: Duration::from_secs(75), ..History::default() });
        let mut states = vec![(store.revision(), BTreeMap::new())];
        for (key, content) in operations {
            if let Some(version) = write(&store, keys[key], content) {
                prop_assert!(version > states.last().unwrap().0, "versions grow");
                states.push((version, everything(&store, None).unwrap()));
            }
        }
        let now = &states.last().unwrap().1;
        let oldest = store.oldest(STORAGE).unwrap();
        for (version, state) in &states {
            if *version < oldest {
                prop_assert!(everything(&store, Some(*version)).is_err());
                continue;
            }
            prop_assert_eq!(&everything(&store, Some(*version)).unwrap(), state);
            let mut replayed = state.clone();
            let mut cursor = *version;
            loop {
                let (events, seen) = store.events_after(STORAGE, cursor, 3).unwrap();
                for event in &events {
                    prop_assert!(event.version > cursor, "nothing is seen twice");
                    cursor = event.version;
                    let key = event.key.to_string();
                    let known = replayed.get(&key).copied();
                    prop_assert_eq!(known, event.previous.as_ref().map(|object| object.version()));
                    if event.change == Change::Deleted {
                        replayed.remove(&key);
                    } else {
                        replayed.insert(key, event.object.version());
                    }
                }
                cursor = seen;
                if events.len() < 3 {
                    break;
                }
            }
            prop_assert_eq!(&replayed, now);
        }
    }

    #[test]
    fn pages_of_one_version_make_up_its_list(operations in operations(), limit in 1_usize..4, cut in 0_usize..30) {
        let keys = ["a/x", "a/y", "b/x", "a-b/z", "c", "b/y"];
        let store = store(History::default());
        let cut = cut.min(operations.len());
        for (key, content) in &operations[..cut] {
            write(&store, keys[*key], *content);
        }
        let version = store.revision();
        let whole = everything(&store, None).unwrap();
        let mut rest = operations[cut..].iter();
        let (mut paged, mut after) = (BTreeMap::new(), None::<String>);
        loop {
            let query = Query {
                prefix: "",
                after: after.as_deref(),
                at: Some(version),
                limit: Some(limit),
                accept: &|_| true,
            };
            let page = store.page(STORAGE, &query).unwrap();
            prop_assert_eq!(page.version, version);
            prop_assert!(page.objects.len() <= limit);
            paged.extend(page.objects.iter().map(|object| (object.key().to_string(), object.version())));
            prop_assert_eq!(page.remaining, whole.len() - paged.len());
            // Others write between the pages.
            if let Some((key, content)) = rest.next() {
                write(&store, keys[*key], *content);
            }
            match page.last {
                Some(last) => after = Some(last.to_string()),
                None => break,
            }
        }
        prop_assert_eq!(paged, whole);
    }
}

#[test]
fn the_published_version_never_goes_back() {
    let store = store(History::default());
    let follow = store.follow(STORAGE, "").unwrap();
    super::table::publish(&store.revision, 1300);
    super::table::publish(&store.revision, 1200);
    assert_eq!(store.revision(), 1300);
    drop(follow);
}

#[test]
fn a_writer_finds_its_own_version_published_beside_other_writers() {
    let store = store(History::default());
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..2_000 {
                    let key = format!("t{thread}/{n}");
                    let version = write(store, &key, Some(n)).unwrap();
                    assert!(store.revision() >= version, "{version}");
                    assert!(store.last_change(STORAGE) >= version, "{version}");
                }
            });
        }
    });
    assert_eq!(store.revision(), 1000 + 7 * 16_000);
}

#[test]
fn nothing_is_added_to_a_sealed_resource_and_one_with_objects_is_not_sealed() {
    let store = store(History::default());
    write(&store, "a/x", Some(1));
    let decide = || store.begin_decision().now_or_never().unwrap();
    assert!(!store.seal(STORAGE, decide()));
    write(&store, "a/x", None);
    let before = decide();
    drop(store.begin_restore());
    assert!(!store.seal(STORAGE, before), "what a restore brought back");
    assert!(store.seal(STORAGE, decide()));
    let added = store.commit(STORAGE, "a/y", Expected::Absent, Some(thing("a/y", 1)));
    assert!(matches!(added, Err(CommitError::NoTable(_))));
    store.drop_table(STORAGE);
    store.create_table(STORAGE);
    assert!(write(&store, "a/y", Some(1)).is_some());
}

#[test]
fn a_commit_into_a_namespace_that_is_gone_or_going_is_refused() {
    let store = store(History::default());
    store.create_table("namespaces");
    let create = |key: &str| {
        store
            .commit(STORAGE, key, Expected::Absent, Some(thing(key, 1)))
            .map(|object| object.version())
    };
    assert!(matches!(create("n/a"), Err(CommitError::Namespace)));
    let namespace = json!({"metadata": {"name": "n"}});
    let made = store
        .commit("namespaces", "n", Expected::Absent, Some(namespace))
        .unwrap();
    let inside = create("n/a").unwrap();
    create("cluster-scoped").unwrap();
    let going = json!({"metadata": {"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    store
        .commit(
            "namespaces",
            "n",
            Expected::Version(made.version()),
            Some(going),
        )
        .unwrap();
    assert!(matches!(create("n/b"), Err(CommitError::Namespace)));
    // What is there already may still change.
    store
        .commit(
            STORAGE,
            "n/a",
            Expected::Version(inside),
            Some(thing("n/a", 2)),
        )
        .unwrap();
}

#[test]
fn a_number_is_the_same_after_it_was_read_from_its_text() {
    for number in [8.055860453925688e-08, 1.7976931348623157e308, 0.1, 1e23] {
        let object = Object::new(json!({"metadata": {"name": "a"}, "spec": number}), 1);
        let read: Value = serde_json::from_slice(object.encoded()).unwrap();
        assert_eq!(read["spec"], json!(number));
    }
}
