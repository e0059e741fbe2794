//! States and indexes that are built beside the store, in turns, while it changes.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::poll;

use super::*;
use crate::turns::{PIECE, Turns, at_once};

/// Several turns of objects.
const MANY: usize = 3 * PIECE;

fn of(namespace: &str, name: &str, version: u64) -> Arc<ConfigMap> {
    let mut map = ConfigMap::default();
    map.metadata.namespace = Some(namespace.to_owned());
    map.metadata.name = Some(name.to_owned());
    map.metadata.uid = Some("u".to_owned());
    map.metadata.resource_version = Some(version.to_string());
    Arc::new(map)
}

fn many(namespace: &str, version: u64) -> impl Iterator<Item = Arc<ConfigMap>> {
    (0..MANY).map(move |number| of(namespace, &format!("o{number:04}"), version))
}

fn list(objects: impl IntoIterator<Item = Arc<ConfigMap>>, version: &str) -> Snapshot<ConfigMap> {
    Snapshot {
        objects: objects.into_iter().collect(),
        ..snapshot(&[], version)
    }
}

fn lost(namespace: &str, name: &str) -> Delta<ConfigMap> {
    Delta::Deleted(Deletion::FinalStateUnknown {
        key: ObjectKey::namespaced(namespace, name),
        last: None,
    })
}

/// Two values: one of few objects, and one of many. Counts its calls.
#[derive(Clone, Default)]
struct Function(Arc<AtomicUsize>);

impl Function {
    fn values(map: &ConfigMap) -> Vec<String> {
        let version = map.resource_version();
        vec![format!("{}@{version}", map.name()), version.to_owned()]
    }

    fn called(&self) -> impl Fn(&ConfigMap) -> IndexValues + Send + Sync + 'static {
        let calls = Arc::clone(&self.0);
        move |map| {
            calls.fetch_add(1, Ordering::Relaxed);
            Ok(Self::values(map).into_iter().map(Arc::from).collect())
        }
    }

    /// The number of calls since the last call of this.
    fn calls(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// The index has what a scan finds, under each value in the order of the keys.
fn check(indexer: &Indexer<ConfigMap>, index: &str) {
    let mut wanted: BTreeSet<(String, ObjectKey)> = BTreeSet::new();
    for map in indexer.list() {
        let values = Function::values(&map).into_iter();
        wanted.extend(values.map(|value| (value, map.key())));
    }
    let mut found = Vec::new();
    for value in indexer.index_values(index).unwrap() {
        let keys = indexer.index_keys(index, &value).unwrap();
        found.extend(keys.into_iter().map(|key| (value.to_string(), key)));
    }
    assert!(found.into_iter().eq(wanted), "{index} differs from a scan");
}

#[tokio::test]
async fn an_index_that_is_added_in_turns_follows_what_changes_meanwhile() {
    for late in 1.. {
        let (indexer, function) = (Indexer::new(), Function::default());
        indexer.replace(list(many("n", 1), "1"), true);
        let mut adding = pin!(indexer.add_index_in_turns("late", function.called()));
        for turn in 0.. {
            if turn == late {
                indexer.change(|change| {
                    change.apply(Delta::Updated(of("n", "o0000", 5)), false);
                    // Its slot gets another key.
                    change.apply(lost("n", "o0001"), false);
                    change.apply(Delta::Added(of("m", "new", 5)), false);
                    change.apply(lost("n", "o0002"), false);
                    for number in 0..2 * CHUNK {
                        change.apply(Delta::Added(of("z", &format!("{number}"), 5)), false);
                    }
                });
            }
            if poll!(&mut adding).is_ready() {
                check(&indexer, "late");
                let calls = function.calls();
                if turn < late {
                    assert!(late > 3 && calls == MANY, "{calls} calls in {turn} turns");
                    return;
                }
                assert_eq!(calls, MANY + 2 + 2 * CHUNK);
                break;
            }
        }
    }
}

/// A list of everything, and one of a namespace that is small beside the others.
#[test]
fn a_replacement_has_the_indexes_that_were_added_and_removed_while_it_was_built() {
    for whole in [true, false] {
        let functions = [(); 3].map(|()| Function::default());
        let [early, gone, late] = &functions;
        let indexer = Indexer::new();
        indexer.add_index("early", early.called()).unwrap();
        indexer.add_index("gone", gone.called()).unwrap();
        let others = || many("a", 1).chain(many("z", 1));
        indexer.replace(list(others().chain(many("n", 1)), "1"), true);
        let held = |namespace| indexer.by_index(NAMESPACE_INDEX, namespace).unwrap();
        let listed = held("n")
            .into_iter()
            .skip(10)
            .chain((0..5).map(|number| of("n", &format!("p{number}"), 7)));
        let listed: Vec<_> = if whole {
            let all = held("a").into_iter().chain(listed).chain(held("z"));
            all.collect()
        } else {
            listed.collect()
        };
        let calls = || functions.each_ref().map(Function::calls);
        calls();

        let mut turns = Turns::endless();
        let replaces = |namespace: Option<&str>| whole || namespace == Some("n");
        let replacement =
            at_once(indexer.replacement(list(listed, "9"), false, replaces, &mut turns));
        assert_eq!(calls(), [5, 5, 0], "known objects have known values");
        assert!(indexer.remove_index("gone"));
        indexer.add_index("late", late.called()).unwrap();
        assert_eq!(calls(), [0, 0, 3 * MANY]);
        let mut unfinished = indexer.swap(replacement, |_| {}).err().unwrap();
        check(&indexer, "late");
        at_once(unfinished.follow(&indexer, &mut turns));
        assert_eq!(calls(), [0, 0, 5]);
        let replaced = indexer.swap(*unfinished, |_| {}).ok().unwrap();

        let mut lines: Vec<_> = replaced.into_parts().0.map(|event| line(&event)).collect();
        assert_eq!(lines.len(), 15);
        assert!(lines[..10].iter().all(|line| line.starts_with('-')));
        assert_eq!(
            lines.split_off(10),
            ["+p0@7", "+p1@7", "+p2@7", "+p3@7", "+p4@7"]
        );
        assert_eq!(indexer.len(), 3 * MANY - 5);
        assert!(indexer.list().is_sorted_by_key(|map| map.key()));
        assert_eq!(indexer.index_names().len(), 3);
        check(&indexer, "early");
        check(&indexer, "late");
    }
}

/// What two hundred namespaces of one informer do at their first list, and again after a 410.
#[test]
fn the_list_of_a_namespace_costs_no_call_for_the_objects_of_the_others() {
    let (indexer, function) = (Indexer::new(), Function::default());
    indexer.add_index("index", function.called()).unwrap();
    let replace = |namespace: &str, objects: Vec<_>| {
        let mut turns = Turns::endless();
        let replaces = |other: Option<&str>| other == Some(namespace);
        let replacement =
            at_once(indexer.replacement(list(objects, "9"), true, replaces, &mut turns));
        let replaced = indexer.swap(replacement, |_| {}).ok().unwrap();
        (replaced.len(), function.calls())
    };
    let namespaces: Vec<_> = (0..10).map(|number| format!("n{number}")).collect();
    for namespace in namespaces.iter().rev() {
        assert_eq!(
            replace(namespace, many(namespace, 1).collect()),
            (MANY, MANY)
        );
    }
    for namespace in &namespaces {
        let held = indexer.by_index(NAMESPACE_INDEX, namespace).unwrap();
        assert_eq!(replace(namespace, held), (0, 0));
    }
    assert!(indexer.list().is_sorted_by_key(|map| map.key()));
    check(&indexer, "index");
    // What a list of a small part does not change is shared.
    let before = indexer.snapshot();
    let mut held = indexer.by_index(NAMESPACE_INDEX, "n3").unwrap();
    held[7] = of("n3", "o0007", 2);
    assert_eq!(replace("n3", held), (1, 1));
    let (before, after) = (&before.0.objects, &indexer.snapshot().0.objects);
    let mut turns = Turns::endless();
    assert_eq!(at_once(before.changed(after, &mut turns)).len(), 1);
    assert_eq!(before.shared_chunks(after), 10 * MANY / CHUNK - 1);
}

#[tokio::test]
async fn a_snapshot_of_the_present_state_is_freed_without_a_task() {
    let indexer = Indexer::new();
    indexer.replace(list(many("n", 1), "1"), true);
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = indexer.snapshot();
    indexer.snapshot().free();
    assert_eq!(tasks(), 0);
    indexer.replace(list(many("n", 2), "2"), false);
    let former = tasks();
    before.free();
    assert_eq!(tasks(), former + 1, "the last reference");
}
