use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;

use super::*;
use crate::event::Event;
use crate::event::UpdateReason::{Changed, Relist, Resync};
use crate::object::Stored;
use crate::processor::Policy;
use crate::sample::{added, cases, deleted, initial, line, map, text, updated};
use reeve_client::ObjectKey;

fn drain(queue: &mut EventQueue<ConfigMap>) -> Vec<String> {
    std::iter::from_fn(|| queue.pop())
        .map(|event| line(&event))
        .collect()
}

/// A queue that merges from the second event on, with `events` after one of another object.
fn merged(events: Vec<Event<ConfigMap>>) -> Vec<String> {
    let mut queue = EventQueue::new(Policy::Coalesce { bound: 1 });
    queue.push(added("other@1"));
    for event in events {
        queue.push(event);
    }
    let mut lines = drain(&mut queue);
    assert_eq!(lines.remove(0), "+other@1");
    assert_eq!(queue.len(), 0);
    lines
}

#[test]
fn the_merge_table_is_as_promised() {
    type Case = (&'static str, Vec<Event<ConfigMap>>, &'static [&'static str]);
    let cases: Vec<Case> = vec![
        (
            "an addition and updates are the addition of the last",
            vec![
                initial("a@1"),
                updated("a@1", "a@2", Changed),
                updated("a@2", "a@3", Relist),
            ],
            &["+a@3*"],
        ),
        (
            "updates are one from the first old to the last new, for the weightiest reason",
            vec![
                updated("a@1", "a@1", Resync),
                updated("a@1", "a@2", Changed),
                updated("a@2", "a@3", Relist),
            ],
            &["~a@1-3"],
        ),
        (
            "resyncs stay one",
            vec![updated("a@1", "a@1", Resync), updated("a@1", "a@1", Resync)],
            &["~a@1-1s"],
        ),
        (
            "an update and a deletion are the deletion of the state before the update",
            vec![updated("a@1", "a@2", Changed), deleted("a@3")],
            &["-a@3<1"],
        ),
        (
            "an update, a deletion and an addition of the same are an update",
            vec![updated("a@1", "a@2", Changed), deleted("a@3"), added("a@4")],
            &["~a@1-4"],
        ),
        (
            "an object that was never seen and is gone is nothing",
            vec![added("a@1"), updated("a@1", "a@2", Changed), deleted("a@3")],
            &[],
        ),
        (
            "a deletion and an addition of another are both kept",
            vec![deleted("a@1/x"), added("a@2/y")],
            &["-a@1", "+a@2"],
        ),
        (
            "a deletion and an addition of the same are an update",
            vec![deleted("a@1"), added("a@2")],
            &["~a@1-2"],
        ),
        (
            "another that came and went leaves the deletion of the first",
            vec![deleted("a@1/x"), added("a@2/y"), deleted("a@3/y")],
            &["-a@1"],
        ),
        (
            "after that the next is an addition again",
            vec![
                deleted("a@1/x"),
                added("a@2/y"),
                deleted("a@3/y"),
                added("a@4/z"),
            ],
            &["-a@1", "+a@4"],
        ),
    ];
    for (case, events, expected) in cases {
        assert_eq!(merged(events), expected, "{case}");
    }
}

#[test]
fn nothing_is_merged_below_the_bound() {
    let mut queue = EventQueue::new(Policy::Coalesce { bound: 3 });
    for version in 1..=3 {
        queue.push(updated("a@0", &format!("a@{version}"), Changed));
    }
    assert_eq!(queue.len(), 3);
    queue.push(updated("a@3", "a@4", Changed));
    assert_eq!(drain(&mut queue), ["~a@0-1", "~a@0-2", "~a@0-4"]);
}

#[test]
fn an_object_that_comes_and_goes_without_end_takes_no_room() {
    let mut queue = EventQueue::new(Policy::Coalesce { bound: 1 });
    queue.push(added("other@1"));
    for _ in 0..10_000 {
        queue.push(added("a@1"));
        queue.push(deleted("a@2"));
    }
    assert_eq!(queue.len(), 1);
    assert!(queue.events.len() < 200, "{} slots", queue.events.len());
    queue.push(added("a@3"));
    assert_eq!(drain(&mut queue), ["+other@1", "+a@3"]);
}

#[test]
fn objects_that_come_and_go_without_end_take_no_room_where_events_are_dropped() {
    let mut queue = EventQueue::new(Policy::DropToResync { bound: 1 });
    queue.push(added("first@1"));
    for number in 0..10_000 {
        queue.push(initial(&format!("o{number}@1")));
        let gone = queue.push(deleted(&format!("o{number}@2")));
        assert_eq!((gone.initial_gone, gone.dropped), (1, 1));
    }
    assert_eq!(queue.len(), 1);
}

#[test]
fn a_resync_of_more_objects_than_may_wait_delivers_them_all() {
    let mut queue = EventQueue::new(Policy::DropToResync { bound: 10 });
    let names: Vec<_> = (0..100).map(|number| format!("o{number}@1")).collect();
    let mut dropped = 0;
    for name in &names {
        dropped += queue.push(updated(name, name, Resync)).dropped;
    }
    let mut lines = drain(&mut queue);
    while queue.has_missed() {
        queue.catch_up(|key| Some(map(&format!("{}@1", key.name))));
        assert!(queue.live <= 10);
        lines.extend(drain(&mut queue));
    }
    let expected: Vec<_> = names.iter().map(|name| format!("~{name}-1s")).collect();
    assert_eq!((lines, dropped), (expected, 0));
}

#[test]
fn initial_additions_that_are_merged_away_are_reported() {
    let mut queue = EventQueue::new(Policy::Coalesce { bound: 1 });
    queue.push(initial("a@1"));
    assert_eq!(queue.push(deleted("a@2")).initial_gone, 1);
    queue.push(added("other@1"));
    queue.push(deleted("b@1"));
    assert_eq!(
        queue.push(initial("b@2")).initial_gone,
        1,
        "it became an update"
    );
}

#[test]
fn dropped_events_are_compensated_by_the_difference() {
    let mut queue = EventQueue::new(Policy::DropToResync { bound: 1 });
    queue.push(added("first@1"));
    let (mut dropped, mut gone) = (0, 0);
    for event in [
        added("new@2"),
        initial("gone@2"),
        deleted("gone@3"),
        updated("changed@1", "changed@4", Changed),
        updated("changed@4", "changed@5", Changed),
        updated("same@1", "same@1", Resync),
        deleted("lost@6"),
        deleted("again@1/x"),
        added("again@7/y"),
    ] {
        let pushed = queue.push(event);
        dropped += pushed.dropped;
        gone += pushed.initial_gone;
    }
    assert_eq!(dropped, 8, "the event of a resync is not counted");
    assert!(!queue.has_missed(), "not before the queue is empty");
    assert_eq!(drain(&mut queue), ["+first@1"]);
    let now = |key: &ObjectKey| match &*key.name {
        "new" => Some(map("new@2")),
        "changed" => Some(map("changed@5")),
        "same" => Some(map("same@1")),
        "again" => Some(map("again@7/y")),
        _ => None,
    };
    let mut lines = Vec::new();
    while queue.has_missed() {
        gone += queue.catch_up(now).initial_gone;
        lines.extend(drain(&mut queue));
    }
    assert_eq!(
        lines,
        [
            "+new@2",
            "~changed@1-5r",
            "~same@1-1s",
            "-lost@6!",
            "-again@1!",
            "+again@7"
        ]
    );
    assert_eq!(gone, 1);
}

/// One step of a history: an object changes, or the handler takes an event.
#[derive(Clone, Debug)]
enum Step {
    Change {
        object: u8,
        delete: bool,
        recreate: bool,
    },
    Resync {
        object: u8,
    },
    Take,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..4_u8, any::<bool>(), any::<bool>())
            .prop_map(|(object, delete, recreate)| Step::Change { object, delete, recreate }),
        1 => (0..4_u8).prop_map(|object| Step::Resync { object }),
        2 => Just(Step::Take),
    ];
    proptest::collection::vec(step, 0..80)
}

fn policies() -> impl Strategy<Value = Policy> {
    (1..4_usize, 0..3).prop_map(|(bound, kind)| match kind {
        0 => Policy::Coalesce { bound },
        1 => Policy::Block { bound },
        _ => Policy::DropToResync { bound },
    })
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn a_handler_sees_a_legal_story_with_the_right_end_under_every_policy(policy in policies(), steps in steps()) {
        let mut queue = EventQueue::new(policy);
        let mut server: BTreeMap<ObjectKey, Arc<ConfigMap>> = BTreeMap::new();
        let mut believed: BTreeMap<ObjectKey, Arc<ConfigMap>> = BTreeMap::new();
        let mut version = 0;
        let mut uid = 0;
        let mut take = |queue: &mut EventQueue<ConfigMap>, server: &BTreeMap<ObjectKey, Arc<ConfigMap>>| {
            if queue.has_missed() {
                queue.catch_up(|key| server.get(key).cloned());
            }
            let Some(event) = queue.pop() else { return Ok(false) };
            let before = believed.get(&event.key());
            match &event {
                Event::Added { object, .. } => {
                    prop_assert!(before.is_none(), "{} twice", line(&event));
                    believed.insert(event.key(), Arc::clone(object));
                }
                Event::Updated { old, new, .. } => {
                    prop_assert_eq!(before.map(|map| text(map)), Some(text(old)));
                    prop_assert_eq!(old.uid(), new.uid());
                    believed.insert(event.key(), Arc::clone(new));
                }
                Event::Deleted { seen, .. } => {
                    prop_assert_eq!(before.map(|map| text(map)), seen.as_ref().map(|map| text(map)));
                    believed.remove(&event.key());
                }
            }
            Ok(true)
        };
        for step in steps {
            match step {
                Step::Take => { take(&mut queue, &server)?; }
                Step::Resync { object } => {
                    let key = ObjectKey::namespaced("n", format!("o{object}"));
                    if let Some(known) = server.get(&key) {
                        queue.push(Event::Updated { old: Arc::clone(known), new: Arc::clone(known), reason: Resync });
                    }
                }
                Step::Change { object, delete, recreate } => {
                    version += 1;
                    let key = ObjectKey::namespaced("n", format!("o{object}"));
                    let known = server.remove(&key);
                    if known.is_none() || recreate { uid += 1; }
                    let now_uid = match &known {
                        Some(known) if !recreate => known.uid().to_owned(),
                        _ => uid.to_string(),
                    };
                    let new = map(&format!("o{object}@{version}/{now_uid}"));
                    match known {
                        Some(last) if delete => {
                            queue.push(Event::Deleted { key, last: Some(new), seen: Some(last), tombstone: false });
                        }
                        Some(last) if recreate => {
                            queue.push(Event::Deleted { key: key.clone(), last: Some(Arc::clone(&last)), seen: Some(last), tombstone: true });
                            queue.push(Event::Added { object: Arc::clone(&new), initial: false });
                            server.insert(key, new);
                        }
                        Some(old) => {
                            queue.push(Event::Updated { old, new: Arc::clone(&new), reason: Changed });
                            server.insert(key, new);
                        }
                        None => {
                            queue.push(Event::Added { object: Arc::clone(&new), initial: false });
                            server.insert(key, new);
                        }
                    }
                }
            }
        }
        while take(&mut queue, &server)? || queue.has_missed() {}
        let texts = |state: &BTreeMap<ObjectKey, Arc<ConfigMap>>| state.values().map(|map| text(map)).collect::<Vec<_>>();
        prop_assert_eq!(texts(&believed), texts(&server));
        prop_assert_eq!(queue.len(), 0);
    }
}
