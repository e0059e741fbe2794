//! Memory: what is bounded, by what, and when it is let go.

use super::*;
use tokio::time::advance;

fn ring(store: &Store) -> (usize, usize) {
    store.state.read().tables[STORAGE].ring()
}

/// The first upkeep that is due, and whatever follows within a second.
async fn upkeep(store: &Store) {
    while let Some(at) = store.upkeep_at() {
        tokio::time::sleep_until(at).await;
        store.upkeep();
    }
}

#[tokio::test(start_paused = true)]
async fn a_ring_lets_go_of_what_is_too_old_without_another_write() {
    let store = store(History::default());
    for n in 0..5_000 {
        write(&store, &format!("a/{n}"), Some(n));
        write(&store, &format!("a/{n}"), None);
    }
    assert_eq!(ring(&store).0, 10_000);
    let start = tokio::time::Instant::now();
    upkeep(&store).await;
    assert_eq!(ring(&store).0, History::default().min_events);
    assert!(
        start.elapsed() < Duration::from_secs(80),
        "{:?}",
        start.elapsed()
    );
    assert!(store.upkeep_at().is_none(), "nothing is left to do by time");
}

#[tokio::test(start_paused = true)]
async fn a_ring_is_bounded_in_bytes() {
    let history = History {
        max_bytes: 1024 * 1024,
        ..History::default()
    };
    let store = store(history);
    let large = |n: u32| json!({"metadata": {"name": "x"}, "text": "x".repeat(10_000), "n": n});
    let mut version = store
        .commit(STORAGE, "x", Expected::Absent, Some(large(0)))
        .unwrap()
        .version();
    for n in 1..1_000 {
        let expected = Expected::Version(version);
        let object = store.commit(STORAGE, "x", expected, Some(large(n)));
        version = object.unwrap().version();
        let (_, held) = ring(&store);
        assert!(held <= history.max_bytes, "{held}");
    }
    let (events, held) = ring(&store);
    assert!(held > history.max_bytes - 20_000, "{held}");
    assert!((90..=105).contains(&events), "{events}");
    store.forget(u64::MAX);
    assert_eq!(ring(&store), (0, 0));
}

#[test]
fn a_removal_copies_nothing_until_it_is_read() {
    let store = store(History::default());
    write(&store, "a/x", Some(1));
    let before = store.get(STORAGE, "a/x").unwrap();
    let version = write(&store, "a/x", None).unwrap();
    let (events, _) = store.events_after(STORAGE, before.version(), 9).unwrap();
    let removed = &events[0].object;
    assert_eq!(removed.uid(), Some("a/x"));
    assert!(!removed.is_copied());
    let mut expected = before.to_value();
    expected["metadata"]["resourceVersion"] = json!(version.to_string());
    let encoded: Value = serde_json::from_slice(removed.encoded()).unwrap();
    assert_eq!(encoded, expected);
    assert_eq!(*removed.value(), expected);
    let metadata: Value = serde_json::from_slice(removed.metadata().unwrap()).unwrap();
    assert_eq!(metadata, expected["metadata"]);
}

#[test]
fn a_removal_at_a_version_with_more_digits_has_the_same_content() {
    let store = Store::new(90, 7, History::default());
    store.create_table(STORAGE);
    let labels = json!({"app": "x", "say": "\"\\"});
    let object = json!({"metadata": {"labels": labels, "name": "x", "uid": "u"}, "spec": {"a": 1}});
    let stored = store
        .commit(STORAGE, "x", Expected::Absent, Some(object))
        .unwrap();
    let expected = Expected::Version(stored.version());
    let removed = store.commit(STORAGE, "x", expected, None).unwrap();
    assert_eq!((stored.version(), removed.version()), (97, 104));
    let mut expected = stored.to_value();
    expected["metadata"]["resourceVersion"] = json!("104");
    assert_eq!(*removed.value(), expected);
    let metadata: Value = serde_json::from_slice(removed.metadata().unwrap()).unwrap();
    assert_eq!(metadata, expected["metadata"]);
    assert_eq!(removed.label("say").unwrap(), "\"\\");
    assert_eq!(removed.field("spec.a"), 1);
}

#[tokio::test(start_paused = true)]
async fn resources_that_are_gone_are_forgotten() {
    let store = store(History::default());
    for n in 0..500 {
        let storage = format!("things-{n}");
        store.create_table(&storage);
        let object = json!({"metadata": {"name": "x"}});
        let object = store
            .commit(&storage, "x", Expected::Absent, Some(object))
            .unwrap();
        let expected = Expected::Version(object.version());
        store.commit(&storage, "x", expected, None).unwrap();
        store.drop_table(&storage);
    }
    let retired = || store.state.read().retired.len();
    assert_eq!(retired(), 100);
    upkeep(&store).await;
    assert_eq!(retired(), 0);
}

fn event(n: u32) -> Value {
    json!({"metadata": {"name": format!("e{n}"), "namespace": "a"}})
}

#[tokio::test(start_paused = true)]
async fn events_expire_an_hour_after_their_last_write() {
    let hour = Duration::from_secs(3600);
    let store = Store::new(1000, 7, History::default()).with_event_ttl(Some(hour));
    store.create_table("events");
    store.create_table(STORAGE);
    write(&store, "a/x", Some(1));
    let start = tokio::time::Instant::now();
    for n in 0..3 {
        let key = format!("a/e{n}");
        store
            .commit("events", &key, Expected::Absent, Some(event(n)))
            .unwrap();
    }
    advance(hour / 2).await;
    let current = store.get("events", "a/e1").unwrap();
    let expected = Expected::Version(current.version());
    let again = store.commit("events", "a/e1", expected, Some(event(1)));
    again.unwrap();
    let before = store.revision();
    tokio::time::sleep_until(start + hour - Duration::from_secs(1)).await;
    store.upkeep();
    assert_eq!(store.count("events"), 3);
    tokio::time::sleep_until(start + hour + Duration::from_secs(1)).await;
    store.upkeep();
    let (events, _) = store.events_after("events", before, 9).unwrap();
    let removed: Vec<&str> = events.iter().map(|event| event.key.name()).collect();
    assert_eq!(removed, ["e0", "e2"]);
    upkeep(&store).await;
    assert_eq!(store.count("events"), 0);
    assert_eq!(start.elapsed(), hour + hour / 2);
    assert_eq!(store.count(STORAGE), 1);
}

#[tokio::test(start_paused = true)]
async fn events_of_a_copy_expire_without_another_write() {
    let first = Store::new(1000, 7, History::default());
    first.create_table("events");
    let stored = first.commit("events", "a/e0", Expected::Absent, Some(event(0)));
    stored.unwrap();
    let ttl = Duration::from_secs(60);
    let store = Store::of(&first.copy(), 7, History::default()).with_event_ttl(Some(ttl));
    let start = tokio::time::Instant::now();
    upkeep(&store).await;
    assert_eq!((store.count("events"), first.count("events")), (0, 1));
    assert_eq!(start.elapsed(), ttl);
}

#[test]
fn the_objects_of_a_bounded_number_of_lists_are_kept_for_their_next_pages() {
    let store = store(History::default());
    for n in 0..10 {
        write(&store, &format!("a/{n}"), Some(n));
    }
    let page = |at: Option<u64>, after: Option<&str>| {
        let query = Query {
            prefix: "a/",
            after,
            at,
            limit: Some(4),
            accept: &|_| true,
        };
        store.page(STORAGE, &query).unwrap()
    };
    let roots = || store.state.read().tables[STORAGE].roots();
    let mut lists = Vec::new();
    for n in 0..100 {
        lists.push(page(None, None));
        write(&store, "a/0", Some(n));
        write(&store, &format!("a/x{n}"), Some(n));
    }
    assert_eq!(roots(), 64);
    // Those that are kept, and those whose events are undone.
    for (n, list) in lists.iter().enumerate() {
        let next = page(Some(list.version), list.last.as_ref().map(Key::as_str));
        let names: Vec<&str> = next.objects.iter().map(|object| object.name()).collect();
        assert_eq!(names, ["4", "5", "6", "7"]);
        assert_eq!(next.remaining, 2 + n);
        assert_eq!(list.remaining, 6 + n);
    }
    assert_eq!(roots(), 64);
    store.compact(lists[97].version);
    assert_eq!(roots(), 3);
    store.forget(u64::MAX);
    assert_eq!(roots(), 0);
}

#[tokio::test(start_paused = true)]
async fn more_events_than_expire_at_once_expire_too() {
    let store =
        Store::new(1000, 7, History::default()).with_event_ttl(Some(Duration::from_secs(60)));
    store.create_table("events");
    for n in 0..2_500 {
        let key = format!("a/e{n}");
        let stored = store.commit("events", &key, Expected::Absent, Some(event(n)));
        stored.unwrap();
    }
    upkeep(&store).await;
    assert_eq!(store.count("events"), 0);
    assert_eq!(store.state.read().ages.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_long_churn_leaves_nothing_behind() {
    let store = store(History::default());
    let (mut events, mut held) = (0, 0);
    // Twenty a second, for half an hour: within 75 s, 3,000 events.
    for n in 0..40_000_u32 {
        let key = format!("n{}/x{n}", n % 50);
        let owner = json!([{"uid": format!("owner-{}", n % 1_000)}]);
        let object = json!({"metadata": {"name": format!("x{n}"), "namespace": format!("n{}", n % 50), "uid": n.to_string(), "ownerReferences": owner}});
        let stored = store.commit(STORAGE, &key, Expected::Absent, Some(object));
        let expected = Expected::Version(stored.unwrap().version());
        store.commit(STORAGE, &key, expected, None).unwrap();
        if n % 20 == 19 {
            advance(Duration::from_secs(1)).await;
            let now = ring(&store);
            (events, held) = (now.0.max(events), now.1.max(held));
            store.take_chores();
            store.finish_chores(std::iter::empty());
        }
    }
    assert!(events <= 3_100, "{events}");
    assert!(held <= 8 * 1024 * 1024, "{held}");
    upkeep(&store).await;
    assert_eq!(ring(&store).0, History::default().min_events);
    assert_eq!(store.count(STORAGE), 0);
    let state = store.state.read();
    let indexes = (state.owned.len(), state.waiting.len(), state.chores.len());
    assert_eq!(indexes, (0, 0, 0));
    assert!(state.unfinished.is_empty());
}
