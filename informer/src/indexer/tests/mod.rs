mod beside;
mod dropped;
mod model;

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;

use super::objects::CHUNK;
use super::*;
use crate::event::Event;
use crate::fifo::{Deletion, Delta, Snapshot};
use crate::object::Stored;
use crate::sample::{cases, line, map, text};
use reeve_client::ObjectKey;

fn events(change: Change<ConfigMap>) -> Vec<String> {
    match change {
        Change::Known => vec![],
        Change::Stale => vec!["stale".to_owned()],
        Change::One(event) => vec![line(&event)],
        Change::Recreated(deleted, added) => vec![line(&deleted), line(&added)],
    }
}

fn apply(indexer: &Indexer<ConfigMap>, delta: Delta<ConfigMap>) -> Vec<String> {
    events(indexer.change(|change| change.apply(delta, false)))
}

fn snapshot(objects: &[&str], version: &str) -> Snapshot<ConfigMap> {
    Snapshot {
        objects: objects.iter().map(|object| map(object)).collect(),
        retained: Vec::new(),
        new_epoch: false,
        reread: Arc::default(),
        resource_version: version.into(),
    }
}

fn contents(indexer: &Indexer<ConfigMap>) -> Vec<String> {
    let mut contents: Vec<_> = indexer.list().iter().map(|map| text(map)).collect();
    contents.sort();
    contents
}

#[test]
fn each_change_makes_the_events_that_describe_it() {
    let indexer = Indexer::new();
    let seen = |object| Delta::Deleted(Deletion::Seen(map(object)));
    let unreadable = |name: &str, uid: &str, version: &str| {
        Delta::Deleted(Deletion::Unreadable {
            key: ObjectKey::namespaced("n", name),
            uid: uid.to_owned(),
            resource_version: version.to_owned(),
        })
    };
    let cases: Vec<(Delta<ConfigMap>, &[&str])> = vec![
        (Delta::Added(map("a@1")), &["+a@1"]),
        (Delta::Added(map("a@1")), &[]),
        (Delta::Updated(map("a@3")), &["~a@1-3"]),
        (Delta::Updated(map("b@4")), &["+b@4"]),
        (seen("a@2"), &["stale"]),
        (seen("a@2/former"), &["stale"]),
        (seen("a@3/former"), &["stale"]),
        (unreadable("a", "former", "3"), &["stale"]),
        (unreadable("a", "u", "2"), &["stale"]),
        (seen("a@5"), &["-a@5<3"]),
        (seen("a@5"), &[]),
        (Delta::Added(map("b@6/new")), &["-b@4!", "+b@6"]),
        (Delta::Sync(map("b@6/new")), &["~b@6-6s"]),
        (Delta::Sync(map("c@6")), &[]),
        (
            Delta::Deleted(Deletion::FinalStateUnknown {
                key: ObjectKey::namespaced("n", "b"),
                last: None,
            }),
            &["-b@6!"],
        ),
        (Delta::Added(map("d@7")), &["+d@7"]),
        (seen("d@9/other"), &["stale"]),
        (unreadable("d", "other", "7"), &["stale"]),
        (unreadable("d", "", "6"), &["stale"]),
        // Some servers send the last version and not that of the deletion.
        (unreadable("d", "u", "7"), &["-d@7!"]),
        (Delta::Added(map("d@8")), &["+d@8"]),
        (unreadable("d", "", "9"), &["-d@8!"]),
        // A later object of the name, which could not be read either.
        (Delta::Added(map("d@10")), &["+d@10"]),
        (unreadable("d", "later", "12"), &["-d@10!"]),
        // The same where versions have no order.
        (Delta::Added(map("e@x")), &["+e@x"]),
        (seen("e@y/other"), &["stale"]),
        (unreadable("e", "later", "y"), &["-e@x!"]),
    ];
    for (number, (delta, expected)) in cases.into_iter().enumerate() {
        // The events of a server's stream so far.
        indexer.change(|change| change.advance("100".into()));
        assert_eq!(apply(&indexer, delta), expected, "case {number}");
    }
    assert!(indexer.is_empty());
}

#[test]
fn an_older_state_is_refused_but_by_a_list_or_after_a_new_epoch() {
    let indexer = Indexer::new();
    indexer.change(|change| change.advance("100".into()));
    apply(&indexer, Delta::Added(map("a@50")));
    assert_eq!(apply(&indexer, Delta::Updated(map("a@49"))), ["stale"]);
    assert_eq!(apply(&indexer, Delta::Replaced(map("a@20"))), ["~a@50-20r"]);
    apply(&indexer, Delta::Updated(map("a@90")));
    // A list of a restored server could not read `a`, and kept it.
    let mut restored = snapshot(&[], "30");
    restored.retained = vec![ObjectKey::namespaced("n", "a")];
    assert!(indexer.replace(restored, false).is_empty());
    assert_eq!(apply(&indexer, Delta::Updated(map("a@31"))), ["~a@90-31"]);
}

#[test]
fn the_version_of_the_store_only_goes_back_with_a_list() {
    let indexer = Indexer::<ConfigMap>::new();
    indexer.change(|change| change.advance("10".into()));
    indexer.change(|change| change.advance("9".into()));
    indexer.change(|change| change.advance("".into()));
    assert_eq!(indexer.resource_version().as_str(), "10");
    indexer.replace(snapshot(&[], "5"), false);
    assert_eq!(indexer.resource_version().as_str(), "5");
}

#[test]
fn in_a_new_epoch_equal_versions_do_not_mean_equal_objects() {
    let indexer = Indexer::new();
    indexer.replace(snapshot(&["a@1"], "5"), true);
    assert!(indexer.replace(snapshot(&["a@1"], "6"), false).is_empty());
    let mut listed = snapshot(&["a@1"], "3");
    listed.new_epoch = true;
    let events = indexer.replace(listed, false);
    assert_eq!(events.iter().map(line).collect::<Vec<_>>(), ["~a@1-1r"]);
}

#[test]
fn of_two_objects_with_one_key_in_a_list_the_later_counts() {
    let indexer = Indexer::new();
    indexer.replace(snapshot(&["a@1", "b@1", "a@2"], "5"), true);
    assert_eq!(contents(&indexer), ["a@2", "b@1"]);
}

#[test]
fn objects_that_share_a_value_are_found_by_one_of_them_and_failures_are_values() {
    let indexer = Indexer::new();
    let digits = |map: &ConfigMap| -> IndexValues {
        if map.name() == "bad" {
            return Err("no digits".to_owned());
        }
        Ok(map
            .resource_version()
            .chars()
            .map(|digit| Arc::from(digit.to_string()))
            .collect())
    };
    indexer.add_index("digits", digits).unwrap();
    indexer.replace(
        snapshot(&["d@31", "a@12", "b@23", "c@99", "bad@1"], "99"),
        true,
    );
    let names = |name: &str, object: &str| {
        let found = indexer.index(name, &map(object))?;
        Ok(found
            .iter()
            .map(|map| map.name().to_owned())
            .collect::<String>())
    };
    // Each once, though two values find it, in the order of the keys.
    assert_eq!(names("digits", "elsewhere@213"), Ok("abd".to_owned()));
    assert_eq!(names("digits", "elsewhere@9"), Ok("c".to_owned()));
    assert_eq!(names("digits", "elsewhere@7"), Ok(String::new()));
    assert_eq!(
        names(NAMESPACE_INDEX, "elsewhere@7"),
        Ok("abbadcd".to_owned())
    );
    assert_eq!(
        names("digits", "bad@1"),
        Err(Error::Function {
            name: "digits".into(),
            error: "no digits".to_owned()
        })
    );
    let known = vec!["namespace".into(), "digits".into()];
    assert_eq!(
        names("none", "a@1"),
        Err(Error::Unknown {
            name: "none".into(),
            known
        })
    );
    assert_eq!(indexer.index_failures("digits").unwrap().0, 1);
    let keys = indexer.index_keys("digits", "1").unwrap();
    assert_eq!(
        keys.iter().map(|key| &*key.name).collect::<Vec<_>>(),
        ["a", "d"]
    );
    assert!(matches!(
        indexer.add_index(NAMESPACE_INDEX, digits),
        Err(Error::Exists { .. })
    ));
    assert!(indexer.add_label_index("app").is_ok() && indexer.add_label_index("app").is_err());
}

#[test]
fn a_removed_index_is_unknown_and_its_name_is_free_for_another_function() {
    let indexer = Indexer::new();
    let named =
        |value: &'static str| move |_: &ConfigMap| -> IndexValues { Ok(vec![value.into()]) };
    indexer.add_index("value", named("one")).unwrap();
    indexer.add_index("other", named("other")).unwrap();
    indexer.add_label_index("app").unwrap();
    indexer.replace(snapshot(&["a@1", "b@2"], "2"), true);
    let before = indexer.snapshot();
    let taken = indexer.bytes().indexes;

    assert!(indexer.remove_index("value") && !indexer.remove_index("value"));
    let known = vec!["namespace".into(), "other".into(), "label:app".into()];
    assert_eq!(
        indexer.by_index("value", "one").unwrap_err(),
        Error::Unknown {
            name: "value".into(),
            known
        }
    );
    assert!(indexer.bytes().indexes < taken);
    assert_eq!(before.by_index("value", "one").unwrap().count(), 2);
    apply(&indexer, Delta::Added(map("c@3")));
    assert_eq!(indexer.by_index("other", "other").unwrap().len(), 3);

    indexer.add_index("value", named("two")).unwrap();
    assert_eq!(indexer.by_index("value", "two").unwrap().len(), 3);
    assert!(indexer.by_index("value", "one").unwrap().is_empty());

    assert!(indexer.remove_label_index("app") && !indexer.remove_label_index("app"));
    assert!(indexer.add_label_index("app").is_ok());
    assert!(!indexer.remove_index(NAMESPACE_INDEX));
    assert_eq!(indexer.by_index(NAMESPACE_INDEX, "n").unwrap().len(), 3);
}

#[test]
fn an_update_that_leaves_an_object_where_it_is_in_an_index_copies_nothing_of_it() {
    let indexer = Indexer::new();
    indexer
        .add_index("name", |map: &ConfigMap| Ok(vec![map.name().into()]))
        .unwrap();
    indexer.replace(snapshot(&["a@1", "b@1"], "1"), true);
    let before = indexer.snapshot();
    apply(&indexer, Delta::Updated(map("a@2")));
    let after = indexer.snapshot();
    assert!(Arc::ptr_eq(&before.0.indexes[0], &after.0.indexes[0]));
    assert!(before.0.namespaces.is_shared_with(&after.0.namespaces));
    apply(&indexer, Delta::Added(map("c@3")));
    assert!(!Arc::ptr_eq(
        &after.0.indexes[0],
        &indexer.snapshot().0.indexes[0]
    ));
    assert_eq!((before.len(), after.len(), indexer.len()), (2, 2, 3));
}

proptest! {
    #![proptest_config(cases(500))]

    /// Whatever is done, an index holds exactly what a scan finds.
    #[test]
    fn indexes_always_agree_with_a_scan(
        steps in proptest::collection::vec((0..3_u8, 0..6_u8, 0..4_u8), 0..60),
        late in 0..60_usize,
    ) {
        let indexer = Indexer::<ConfigMap>::new();
        // Two values an object, one of which depends on its version.
        let values = |map: &ConfigMap| -> Vec<String> {
            let version: u64 = map.resource_version().parse().unwrap();
            vec![map.name().to_owned(), format!("mod{}", version % 3)]
        };
        let function = move |map: &ConfigMap| -> IndexValues {
            if map.resource_version().ends_with('7') {
                return Err("sevens fail".to_owned());
            }
            Ok(values(map).into_iter().map(Arc::from).collect())
        };
        indexer.add_index("early", function).unwrap();
        let mut version = 0;
        for (number, (what, object, recreated)) in steps.iter().enumerate() {
            if number == late {
                indexer.add_index("late", function).unwrap();
            }
            if number == late + 5 {
                prop_assert!(indexer.remove_index("early") && indexer.remove_index("late"));
                indexer.add_index("late", function).unwrap();
            }
            version += 1;
            let object = format!("o{object}@{version}/{recreated}");
            match what {
                0 => { apply(&indexer, Delta::Updated(map(&object))); }
                1 => { apply(&indexer, Delta::Deleted(Deletion::FinalStateUnknown { key: map(&object).key(), last: None })); }
                _ => {
                    let mut objects: Vec<_> = indexer.list();
                    objects.truncate(3);
                    objects.push(map(&object));
                    let state = Snapshot { objects, retained: vec![], new_epoch: false, reread: Arc::default(), resource_version: version.to_string().into() };
                    indexer.replace(state, false);
                }
            }
            for name in indexer.index_names() {
                let mut indexed = Vec::new();
                for value in indexer.index_values(&name).unwrap() {
                    let objects = indexer.by_index(&name, &value).unwrap();
                    prop_assert!(!objects.is_empty(), "an empty set stays for {}", value);
                    prop_assert_eq!(objects.len(), indexer.index_keys(&name, &value).unwrap().len());
                    indexed.extend(objects.iter().map(|map| format!("{value}:{}", text(map))));
                }
                let mut scanned = Vec::new();
                for map in indexer.list() {
                    if &*name == NAMESPACE_INDEX {
                        scanned.push(format!("n:{}", text(&map)));
                    } else if let Ok(values) = function(&map) {
                        scanned.extend(values.iter().map(|value| format!("{value}:{}", text(&map))));
                    }
                }
                indexed.sort();
                scanned.sort();
                prop_assert_eq!(indexed, scanned);
            }
        }
    }

    /// Applying the events of a replace to the old state gives the new one.
    #[test]
    fn the_events_of_a_replace_lead_from_the_old_state_to_the_new(
        before in proptest::collection::btree_map(0..8_u8, (0..5_u8, 0..2_u8), 0..8),
        after in proptest::collection::btree_map(0..8_u8, (0..5_u8, 0..2_u8), 0..8),
    ) {
        let state = |objects: &std::collections::BTreeMap<u8, (u8, u8)>| Snapshot {
            objects: objects.iter().map(|(name, (version, uid))| map(&format!("o{name}@{version}/{uid}"))).collect(),
            retained: vec![], new_epoch: false, reread: Arc::default(),
            resource_version: "9".into(),
        };
        let indexer = Indexer::new();
        indexer.replace(state(&before), true);
        let mut known: std::collections::BTreeMap<_, _> =
            indexer.list().into_iter().map(|map| (map.key(), map)).collect();
        for event in indexer.replace(state(&after), false) {
            match event {
                Event::Added { object, .. } => prop_assert!(known.insert(object.key(), object).is_none()),
                Event::Updated { old, new, .. } => {
                    let was = known.insert(new.key(), new);
                    prop_assert!(was.is_some_and(|was| Arc::ptr_eq(&was, &old)));
                }
                Event::Deleted { key, .. } => prop_assert!(known.remove(&key).is_some()),
            }
        }
        let known: Vec<_> = known.values().map(|map| text(map)).collect();
        prop_assert_eq!(known, contents(&indexer));
    }
}
