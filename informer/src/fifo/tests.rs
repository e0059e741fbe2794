//! The FIFO cases of client-go, for both types.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;

use super::*;
use crate::object::Stored;
use crate::sample::{map, text};
use reeve_client::{KeyRef, ObjectKey};

/// The objects that the consumer of the queue holds.
#[derive(Default)]
struct Known(parking_lot::Mutex<Vec<Arc<ConfigMap>>>);

impl Known {
    fn of(objects: &[&str]) -> Arc<Self> {
        let known = Self::default();
        known
            .0
            .lock()
            .extend(objects.iter().map(|object| map(object)));
        Arc::new(known)
    }
}

impl KnownObjects<ConfigMap> for Known {
    fn known(&self, key: KeyRef<'_>) -> Option<Arc<ConfigMap>> {
        self.0
            .lock()
            .iter()
            .find(|object| object.key_ref() == key)
            .cloned()
    }
    fn known_objects(&self) -> Vec<Arc<ConfigMap>> {
        self.0.lock().clone()
    }
}

fn delta_fifo(known: &[&str]) -> DeltaFifo<ConfigMap> {
    DeltaFifo::new(Known::of(known), 10)
}

fn add(object: &str) -> Delta<ConfigMap> {
    Delta::Added(map(object))
}

fn update(object: &str) -> Delta<ConfigMap> {
    Delta::Updated(map(object))
}

fn delete(object: &str) -> Delta<ConfigMap> {
    Delta::Deleted(Deletion::Seen(map(object)))
}

fn all(objects: &[&str], version: &str) -> Snapshot<ConfigMap> {
    Snapshot {
        objects: objects.iter().map(|object| map(object)).collect(),
        retained: Vec::new(),
        new_epoch: false,
        reread: Arc::default(),
        resource_version: version.into(),
    }
}

fn short(delta: &Delta<ConfigMap>) -> String {
    match delta {
        Delta::Added(object) => format!("added {}", text(object)),
        Delta::Updated(object) => format!("updated {}", text(object)),
        Delta::Replaced(object) => format!("replaced {}", text(object)),
        Delta::Sync(object) => format!("sync {}", text(object)),
        Delta::Deleted(Deletion::Seen(object)) => format!("deleted {}", text(object)),
        Delta::Deleted(Deletion::FinalStateUnknown { key, last }) => {
            format!(
                "lost {} {}",
                key.name,
                last.as_ref().map_or("?", |last| last.resource_version())
            )
        }
        Delta::Deleted(Deletion::Unreadable { key, .. }) => format!("unreadable {}", key.name),
        Delta::ReplacedAll(snapshot) => {
            format!(
                "all {:?}@{}",
                snapshot
                    .objects
                    .iter()
                    .map(|map| text(map))
                    .collect::<Vec<_>>(),
                snapshot.resource_version
            )
        }
        Delta::SyncAll => "sync all".to_owned(),
        Delta::Bookmark(version) => format!("bookmark {version}"),
    }
}

/// One batch: its deltas, and `*` in front if it is initial.
fn next(fifo: &dyn Fifo<ConfigMap>) -> Option<Vec<String>> {
    let mut popped = None;
    fifo.process(&mut |batch| {
        let mut deltas: Vec<_> = batch.deltas.iter().map(short).collect();
        if batch.initial {
            deltas[0].insert(0, '*');
        }
        popped = Some(deltas);
    });
    popped
}

fn drain(fifo: &dyn Fifo<ConfigMap>) -> Vec<Vec<String>> {
    std::iter::from_fn(|| next(fifo)).collect()
}

// === Both ===

#[test]
fn nothing_is_synced_before_the_first_list_was_processed() {
    for fifo in [&RealFifo::new(10) as &dyn Fifo<ConfigMap>, &delta_fifo(&[])] {
        assert!(!fifo.has_synced());
        fifo.replace(all(&["a@1"], "5"));
        assert!(!fifo.has_synced());
        let mut during = None;
        assert!(fifo.process(&mut |_| during = Some(fifo.has_synced())));
        assert_eq!(
            during,
            Some(false),
            "not before the last object was delivered"
        );
        assert!(fifo.has_synced());
        fifo.replace(all(&["b@6"], "7"));
        assert!(fifo.has_synced(), "it stays so");
    }
}

#[test]
fn a_change_before_any_list_counts_as_synced() {
    for fifo in [&RealFifo::new(10) as &dyn Fifo<ConfigMap>, &delta_fifo(&[])] {
        fifo.push(add("a@1"));
        assert!(fifo.has_synced());
    }
}

#[test]
fn producers_wait_at_the_capacity_and_continue_when_there_is_room() {
    for fifo in [
        &RealFifo::new(2) as &dyn Fifo<ConfigMap>,
        &DeltaFifo::new(Known::of(&[]), 2),
    ] {
        fifo.push(add("a@1"));
        assert!(fifo.has_room());
        fifo.push(add("b@2"));
        assert!(!fifo.has_room());
        next(fifo);
        assert!(fifo.has_room());
    }
}

#[test]
fn a_list_that_waits_holds_another_whatever_its_size_and_changes_only_at_the_capacity() {
    let fifo = RealFifo::<ConfigMap>::new(3);
    fifo.replace(all(&["a@1"], "1"));
    assert!(fifo.has_room() && !fifo.has_room_for_list());
    fifo.push(add("b@2"));
    assert!(fifo.has_room() && !fifo.has_room_for_list());
    fifo.push(add("c@3"));
    assert!(!fifo.has_room());
    next(&fifo);
    assert!(fifo.has_room_for_list(), "the list was processed");
    fifo.push(add("d@4"));
    assert!(!fifo.has_room() && !fifo.has_room_for_list());
}

#[tokio::test(start_paused = true)]
async fn waits_for_data_and_for_room_are_woken() {
    let limit = std::time::Duration::from_secs(1);
    for fifo in [
        &RealFifo::new(1) as &dyn Fifo<ConfigMap>,
        &DeltaFifo::new(Known::of(&[]), 1),
    ] {
        fifo.push(add("a@1"));
        let woken = tokio::time::timeout(limit, fifo.readable().notified());
        woken.await.expect("there is data");
        next(fifo);
        let woken = tokio::time::timeout(limit, fifo.writable().notified());
        woken.await.expect("there is room");
    }
}

// === RealFifo ===

#[test]
fn the_ordered_stream_keeps_every_delta_in_order() {
    let fifo = RealFifo::new(10);
    for delta in [
        add("a@1"),
        add("b@2"),
        update("a@3"),
        delete("b@4"),
        add("b@5"),
    ] {
        fifo.push(delta);
    }
    assert_eq!(
        drain(&fifo),
        [[
            "added a@1",
            "added b@2",
            "updated a@3",
            "deleted b@4",
            "added b@5"
        ]]
    );
}

#[test]
fn a_list_is_one_delta_and_a_batch_of_its_own() {
    let fifo = RealFifo::new(10);
    fifo.replace(all(&["a@1", "b@2"], "5"));
    fifo.push(update("a@6"));
    fifo.replace(all(&["a@6"], "7"));
    fifo.push(update("a@8"));
    let batches: Vec<_> = drain(&fifo).into_iter().flatten().collect();
    assert_eq!(
        batches,
        [
            "*all [\"a@1\", \"b@2\"]@5",
            "updated a@6",
            "all [\"a@6\"]@7",
            "updated a@8"
        ]
    );
}

#[test]
fn an_empty_list_is_synced_only_after_it_was_processed() {
    let fifo = RealFifo::new(10);
    fifo.replace(all(&[], "5"));
    assert!(!fifo.has_synced());
    next(&fifo);
    assert!(fifo.has_synced());
}

#[test]
fn batches_end_at_a_piece_of_deltas() {
    let fifo = RealFifo::new(10_000);
    for version in 1..=2500 {
        fifo.push(update(&format!("a@{version}")));
    }
    let sizes: Vec<_> = drain(&fifo).iter().map(Vec::len).collect();
    assert_eq!(sizes, [256, 256, 256, 256, 256, 256, 256, 256, 256, 196]);
}

#[test]
fn a_batch_bears_the_version_of_its_last_delta() {
    let fifo = RealFifo::new(10);
    fifo.push(add("a@1"));
    fifo.push(delete("a@7"));
    let mut version = None;
    fifo.process(&mut |batch| version = batch.resource_version.map(|version| version.to_string()));
    assert_eq!(version.as_deref(), Some("7"));
}

#[test]
fn bookmarks_and_resyncs_keep_their_place_and_bookmarks_in_a_row_are_one() {
    let fifo = RealFifo::new(10);
    fifo.replace(all(&["a@1"], "5"));
    fifo.bookmark("6".into());
    fifo.bookmark("7".into());
    fifo.push(update("a@8"));
    fifo.resync();
    fifo.bookmark("9".into());
    let batches: Vec<_> = drain(&fifo).into_iter().flatten().collect();
    assert_eq!(
        batches[1..],
        ["bookmark 7", "updated a@8", "sync all", "bookmark 9"]
    );
}

// === DeltaFifo ===

#[test]
fn deltas_of_a_key_are_handed_out_together_in_the_order_of_keys() {
    let fifo = delta_fifo(&[]);
    for delta in [add("a@1"), add("b@2"), update("a@3"), delete("a@4")] {
        fifo.push(delta);
    }
    assert_eq!(
        drain(&fifo),
        [
            vec!["added a@1", "updated a@3", "deleted a@4"],
            vec!["added b@2"],
            vec!["bookmark 4"]
        ]
    );
}

#[test]
fn no_key_jumps_the_line() {
    let fifo = delta_fifo(&[]);
    fifo.push(add("a@1"));
    fifo.push(add("b@2"));
    next(&fifo);
    fifo.push(add("a@3"));
    fifo.push(update("b@4"));
    assert_eq!(next(&fifo).unwrap(), ["added b@2", "updated b@4"]);
    assert_eq!(next(&fifo).unwrap(), ["added a@3"]);
}

#[test]
fn of_two_deletions_in_a_row_the_one_with_more_information_stays() {
    let fifo = delta_fifo(&["a@1"]);
    let lost = || {
        Delta::Deleted(Deletion::FinalStateUnknown {
            key: ObjectKey::namespaced("n", "a"),
            last: None,
        })
    };
    fifo.push(delete("a@2"));
    fifo.push(lost());
    assert_eq!(next(&fifo).unwrap(), ["deleted a@2"]);
    fifo.push(lost());
    fifo.push(delete("a@2"));
    assert_eq!(next(&fifo).unwrap(), ["deleted a@2"]);
}

#[test]
fn the_deletion_of_an_unknown_object_is_dropped() {
    let fifo = delta_fifo(&["b@1"]);
    fifo.push(delete("a@2"));
    fifo.push(delete("b@3"));
    assert_eq!(drain(&fifo), [vec!["deleted b@3"], vec!["bookmark 3"]]);
}

#[test]
fn a_list_makes_tombstones_of_known_and_of_queued_objects_that_it_lacks() {
    let fifo = delta_fifo(&["known@1", "stays@1"]);
    fifo.push(add("queued@2"));
    fifo.push(update("queued@3"));
    fifo.replace(all(&["stays@4", "new@5"], "6"));
    assert_eq!(
        drain(&fifo),
        [
            vec!["added queued@2", "updated queued@3", "lost queued 3"],
            vec!["replaced stays@4"],
            vec!["replaced new@5"],
            vec!["lost known 1"],
            vec!["bookmark 6"],
        ]
    );
}

#[test]
fn an_object_that_is_queued_as_deleted_and_listed_is_deleted_and_then_replaced() {
    let fifo = delta_fifo(&["a@1"]);
    fifo.push(delete("a@2"));
    fifo.replace(all(&["a@3"], "5"));
    assert_eq!(next(&fifo).unwrap(), ["deleted a@2", "replaced a@3"]);
}

#[test]
fn an_object_that_is_queued_as_deleted_gets_no_tombstone() {
    let fifo = delta_fifo(&["a@1"]);
    fifo.push(delete("a@2"));
    fifo.replace(all(&[], "5"));
    assert_eq!(next(&fifo).unwrap(), ["deleted a@2"]);
}

#[test]
fn retained_objects_get_no_tombstone() {
    let fifo = delta_fifo(&["a@1"]);
    let mut snapshot = all(&[], "5");
    snapshot.retained = vec![ObjectKey::namespaced("n", "a")];
    fifo.replace(snapshot);
    assert_eq!(drain(&fifo), [["bookmark 5"]]);
    assert!(fifo.has_synced());
}

#[test]
fn lists_become_replaced_or_sync_deltas_by_option() {
    let fifo = delta_fifo(&[]).emit_replaced(false);
    fifo.replace(all(&["a@1"], "5"));
    assert_eq!(next(&fifo).unwrap(), ["*sync a@1"]);
}

#[test]
fn all_of_the_first_list_and_its_tombstones_are_counted_for_sync() {
    let fifo = delta_fifo(&["gone@1"]);
    fifo.replace(all(&["a@1", "b@2"], "5"));
    for _ in 0..3 {
        assert!(!fifo.has_synced());
        assert!(next(&fifo).unwrap()[0].starts_with('*'));
    }
    assert!(fifo.has_synced());
    let empty = delta_fifo(&[]);
    empty.replace(all(&[], "5"));
    assert!(empty.has_synced(), "an empty list is synced at once");
}

#[test]
fn a_resync_delivers_known_objects_that_are_not_queued() {
    let fifo = delta_fifo(&["a@1", "b@1"]);
    fifo.push(delete("a@2"));
    fifo.resync();
    assert_eq!(
        drain(&fifo),
        [vec!["deleted a@2"], vec!["sync b@1"], vec!["bookmark 2"]]
    );
}

#[test]
fn the_version_is_passed_on_only_when_the_queue_is_empty() {
    let fifo = delta_fifo(&[]);
    fifo.push(add("a@1"));
    fifo.push(add("b@2"));
    fifo.bookmark("9".into());
    assert_eq!(drain(&fifo).pop().unwrap(), ["bookmark 9"]);
    assert_eq!(next(&fifo), None);
    fifo.replace(all(&[], "3"));
    assert_eq!(
        next(&fifo).unwrap(),
        ["bookmark 3"],
        "a list sets the version again"
    );
}

#[test]
fn failed_deltas_are_put_back_at_the_end_and_before_later_deltas_of_their_object() {
    let fifo = delta_fifo(&[]);
    for delta in [add("a@1"), add("b@2"), add("c@3")] {
        fifo.push(delta);
    }
    let failed = fifo.pop(|_, _| Err("no"));
    assert_eq!(failed, Some(Err("no")));
    let failed = fifo.pop(|deltas, _| {
        assert_eq!(short(&deltas[0]), "added b@2");
        // From inside, as from any other task.
        fifo.push(update("b@4"));
        Err("no")
    });
    assert_eq!(failed, Some(Err("no")));
    let mut order = Vec::new();
    while let Some(popped) = fifo.pop(|deltas, _| {
        order.push(deltas.iter().map(short).collect::<Vec<_>>());
        Ok::<_, ()>(())
    }) {
        popped.unwrap();
    }
    let expected = [
        vec!["added c@3"],
        vec!["added a@1"],
        vec!["added b@2", "updated b@4"],
    ];
    assert_eq!(order, expected);
    assert_eq!(
        drain(&fifo),
        [["bookmark 4"]],
        "the version comes last of all"
    );
}

#[test]
fn a_deletion_during_the_processing_is_reported_even_of_an_object_that_the_consumer_does_not_hold()
{
    let deletion: fn(&DeltaFifo<ConfigMap>) = |fifo| fifo.push(delete("b@4"));
    let list: fn(&DeltaFifo<ConfigMap>) = |fifo| fifo.replace(all(&["c@3"], "9"));
    for (meanwhile, gone) in [(deletion, "deleted b@4"), (list, "lost b 2")] {
        for result in [Ok(()), Err("no")] {
            let fifo = delta_fifo(&[]);
            fifo.push(add("b@2"));
            let popped = fifo.pop(|_, _| {
                meanwhile(&fifo);
                result
            });
            assert_eq!(popped, Some(result));
            let deltas: Vec<_> = drain(&fifo).concat();
            let place = deltas.iter().position(|delta| delta == gone);
            let added = deltas.iter().position(|delta| delta == "added b@2");
            assert!(place.is_some(), "{deltas:?}");
            assert_eq!(added.is_some(), result.is_err(), "{deltas:?}");
            assert!(added < place, "{deltas:?}");
        }
    }
    let fifo = delta_fifo(&["b@2"]);
    fifo.push(delete("b@4"));
    let popped = fifo.pop(|deltas, _| {
        assert_eq!(short(&deltas[0]), "deleted b@4");
        fifo.push(add("b@5"));
        fifo.push(delete("b@6"));
        Ok::<_, ()>(())
    });
    assert_eq!(popped, Some(Ok(())));
    assert_eq!(drain(&fifo)[0], ["added b@5", "deleted b@6"]);
}

#[test]
fn an_object_that_is_processed_is_not_delivered_again_meanwhile() {
    let known = Known::of(&["a@1", "b@1"]);
    let fifo = DeltaFifo::new(Arc::clone(&known) as _, 10);
    fifo.push(delete("a@2"));
    fifo.push(update("b@3"));
    for gone in ["a", "b"] {
        let popped = fifo.pop(|_, _| {
            // The consumer that processes it does not hold it yet.
            fifo.resync();
            let mut known = known.0.lock();
            known.retain(|object| object.name() != gone);
            Ok::<_, ()>(())
        });
        assert_eq!(popped, Some(Ok(())));
    }
    assert_eq!(drain(&fifo), [["bookmark 3"]], "nothing runs back");
    let fifo = delta_fifo(&["a@1"]);
    fifo.push(delete("a@2"));
    let popped = fifo.pop(|_, _| {
        fifo.replace(all(&[], "9"));
        Ok::<_, ()>(())
    });
    assert_eq!(popped, Some(Ok(())));
    assert_eq!(drain(&fifo), [["bookmark 9"]], "it is gone once");
}

#[test]
fn two_consumers_of_one_object_are_distinguished() {
    let fifo = delta_fifo(&[]);
    let done = |_: &[Delta<ConfigMap>], _| Ok::<_, ()>(());
    fifo.push(add("a@1"));
    let popped = fifo.pop(|_, _| {
        fifo.push(delete("a@2"));
        assert_eq!(fifo.pop(done), Some(Ok(())), "as another consumer does");
        // This consumer is about to hold the object.
        fifo.push(delete("a@3"));
        Ok::<_, ()>(())
    });
    assert_eq!(popped, Some(Ok(())));
    assert_eq!(drain(&fifo)[0], ["deleted a@3"]);
}

#[test]
fn deltas_are_put_back_after_a_panic() {
    let fifo = delta_fifo(&[]);
    fifo.push(add("a@1"));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        fifo.pop(|_, _| -> Result<(), ()> { panic!("no") })
    }));
    assert!(panicked.is_err());
    fifo.push(delete("a@2"));
    assert_eq!(drain(&fifo)[0], ["added a@1", "deleted a@2"]);
}

#[test]
fn failed_deltas_of_the_first_list_are_waited_for() {
    let fifo = delta_fifo(&[]);
    fifo.replace(all(&["a@1", "b@2"], "5"));
    assert_eq!(fifo.pop(|_, _| Err(())), Some(Err(())));
    fifo.push(add("c@6"));
    let done = |_: &[Delta<ConfigMap>], _| Ok::<_, ()>(());
    assert_eq!(fifo.pop(done), Some(Ok(())));
    let again = fifo.pop(|deltas, initial| {
        assert_eq!(
            (short(&deltas[0]).as_str(), initial),
            ("replaced a@1", true)
        );
        assert!(!fifo.has_synced());
        Ok::<_, ()>(())
    });
    assert_eq!(again, Some(Ok(())));
    assert!(fifo.has_synced());
    let later = fifo.pop(|_, initial| if initial { Err(()) } else { Ok(()) });
    assert_eq!(later, Some(Ok(())), "it came after the first list");
}

#[test]
fn deltas_are_added_only_if_none_wait_for_the_object() {
    let fifo = delta_fifo(&[]);
    assert!(fifo.add_if_not_present(vec![add("a@1"), update("a@2")]));
    assert!(!fifo.add_if_not_present(vec![add("a@3")]));
    assert!(!fifo.add_if_not_present(Vec::new()));
    assert!(
        fifo.has_synced(),
        "as with any change before the first list"
    );
    assert_eq!(drain(&fifo), [["added a@1", "updated a@2"]]);
    assert!(fifo.add_if_not_present(vec![add("a@4")]));
}

#[test]
fn objects_are_distinguished_by_the_key_function() {
    let fifo = delta_fifo(&[]).key_function(|map| ObjectKey::cluster(map.uid()));
    fifo.push(add("a@1/x"));
    fifo.push(add("a@2/y"));
    fifo.push(update("b@3/x"));
    fifo.replace(all(&["c@4/x"], "5"));
    assert_eq!(
        drain(&fifo),
        [
            vec!["added a@1", "updated b@3", "replaced c@4"],
            vec!["added a@2", "lost y 2"],
            vec!["bookmark 5"]
        ]
    );
}

#[test]
fn without_known_objects_only_queued_ones_can_be_deleted() {
    let fifo = DeltaFifo::new(Arc::new(()), 10);
    fifo.push(delete("a@1"));
    fifo.push(add("b@2"));
    fifo.push(delete("b@3"));
    fifo.push(add("c@4"));
    fifo.resync();
    fifo.replace(all(&[], "5"));
    assert_eq!(
        drain(&fifo),
        [
            vec!["added b@2", "deleted b@3"],
            vec!["added c@4", "lost c 4"],
            vec!["bookmark 5"]
        ]
    );
}

#[test]
fn an_object_that_is_listed_twice_is_waited_for_once() {
    let fifo = delta_fifo(&[]);
    fifo.replace(all(&["a@1", "a@2"], "5"));
    assert_eq!(next(&fifo).unwrap(), ["*replaced a@1", "replaced a@2"]);
    assert!(fifo.has_synced());
}

#[test]
fn one_object_that_changes_all_the_time_fills_the_queue_too() {
    let fifo = DeltaFifo::new(Known::of(&["a@1"]), 3);
    for version in 2..5 {
        assert!(fifo.has_room());
        fifo.push(update(&format!("a@{version}")));
    }
    assert!(!fifo.has_room());
    fifo.push(delete("a@5"));
    fifo.push(delete("a@5"));
    assert_eq!(fifo.len(), 4, "of two deletions one counts");
    next(&fifo);
    assert_eq!(fifo.len(), 0);
    assert!(fifo.has_room());
}
