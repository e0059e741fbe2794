//! Watches of a namespace or of one object.

use super::*;

const SCOPES: [&str; 6] = ["", "a/", "b/", "a/x", "c", "nothing/"];

fn scoped(store: &Store, scope: &str, cursor: u64) -> Result<Vec<u64>, HistoryError> {
    let (mut found, mut cursor) = (Vec::new(), cursor);
    loop {
        let (events, seen) = store.events_in(STORAGE, scope, cursor, 3)?;
        found.extend(events.iter().map(|event| event.version));
        cursor = seen;
        if events.len() < 3 {
            assert_eq!(seen, store.revision());
            return Ok(found);
        }
    }
}

proptest! {
    #[test]
    fn the_events_of_a_scope_are_those_of_its_objects(operations in operations(), follow_at in 0_usize..40) {
        let keys = ["a/x", "a/y", "b/x", "a-b/z", "c", "b/y"];
        let store = store(History { min_events: 1, max_events: 20, age: Duration::from_secs(75), ..History::default() });
        let mut follows = Vec::new();
        let mut all: Vec<(u64, &str)> = Vec::new();
        for (at, (key, content)) in operations.into_iter().enumerate() {
            if at == follow_at {
                let oldest = store.oldest(STORAGE).unwrap();
                follows = SCOPES.map(|scope| (scope, oldest, store.follow(STORAGE, scope).unwrap())).into();
            }
            for (_, _, follow) in &mut follows {
                follow.borrow_and_update();
            }
            let Some(version) = write(&store, keys[key], content) else { continue };
            all.push((version, keys[key]));
            for (scope, _, follow) in &follows {
                let is_inside = keys[key] == *scope || ((scope.ends_with('/') || scope.is_empty()) && keys[key].starts_with(scope));
                prop_assert_eq!(follow.has_changed().unwrap(), is_inside, "{} {}", scope, keys[key]);
            }
        }
        let kept = all.len().saturating_sub(20);
        for (scope, oldest, _) in &follows {
            let is_inside = |key: &str| key == *scope || ((scope.ends_with('/') || scope.is_empty()) && key.starts_with(scope));
            let lost = all[..kept].iter().filter(|(_, key)| is_inside(key)).map(|(version, _)| *version).max();
            // From each version that a watch may have seen: only a dropped event of the scope itself is missed.
            for (cursor, _) in all.iter().filter(|(version, _)| version >= oldest) {
                let expected: Vec<u64> = all.iter().filter(|(version, key)| version > cursor && is_inside(key)).map(|(version, _)| *version).collect();
                match scoped(&store, scope, *cursor) {
                    Ok(found) => prop_assert_eq!(found, expected),
                    Err(_) => prop_assert!(lost.is_some_and(|lost| lost > *cursor), "{}", scope),
                }
            }
        }
    }
}

#[test]
fn a_watch_of_a_quiet_namespace_misses_nothing_however_much_others_write() {
    let history = History {
        max_events: 10,
        ..History::default()
    };
    let store = store(history);
    let mut follow = store.follow(STORAGE, "quiet/").unwrap();
    let seen = write(&store, "quiet/x", Some(1)).unwrap();
    follow.borrow_and_update();
    for n in 0..100 {
        write(&store, "loud/x", Some(n));
    }
    assert!(!follow.has_changed().unwrap());
    assert!(scoped(&store, "", seen).is_err());
    assert!(scoped(&store, "quiet/", seen).unwrap().is_empty());
    let version = write(&store, "quiet/y", Some(1)).unwrap();
    assert!(follow.has_changed().unwrap());
    assert_eq!(scoped(&store, "quiet/", seen).unwrap(), [version]);
}

#[test]
fn scopes_without_a_watch_are_removed() {
    let store = store(History::default());
    let kept: Vec<_> = (0..5)
        .map(|n| store.follow(STORAGE, &format!("kept-{n}/")))
        .collect();
    for n in 0..1_000 {
        store.follow(STORAGE, &format!("n{n}/")).unwrap();
    }
    let scopes = store.state.read().tables[STORAGE].scopes();
    assert!((5..=16).contains(&scopes), "{scopes}");
    write(&store, "kept-3/x", Some(1));
    let woken = kept.iter().flatten().map(|one| one.has_changed().unwrap());
    assert_eq!(
        woken.collect::<Vec<_>>(),
        [false, false, false, true, false]
    );
}

#[test]
fn the_end_of_a_resource_wakes_the_watches_of_all_scopes() {
    let store = store(History::default());
    let follow = store.follow(STORAGE, "a/").unwrap();
    write(&store, "b/x", Some(1));
    assert!(!follow.has_changed().unwrap());
    store.drop_table(STORAGE);
    assert!(follow.has_changed().unwrap());
    assert!(matches!(
        store.events_in(STORAGE, "a/", store.revision(), 9),
        Err(HistoryError::NoTable)
    ));
}
