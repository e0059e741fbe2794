//! Writes whose answer is lost or bad: the server is asked whether they happened.

use http::Method;

use super::*;
use crate::client::Interceptor;

#[tokio::test(start_paused = true)]
async fn a_delete_of_many_whose_answer_is_lost_or_bad_is_waited_for() {
    for (case, fate, left) in [
        ("lost", Fate::Lose, 0),
        ("refused, before any", Fate::Refuse(500), 2),
        ("refused, after one", Fate::Refuse(403), 1),
    ] {
        let world = World::start().await;
        // Held and not held: this client created the first, and no cache has shown it.
        let mut map = ConfigMap::default();
        map.metadata.name = Some("c".into());
        map.metadata.namespace = Some("ns".into());
        if case == "lost" {
            world.client.create(&map).await.unwrap();
        }
        world
            .fake
            .hook(move |method, _| (*method == Method::DELETE).then_some(fate.clone()));
        let params = (ListParams::default(), DeleteParams::default());
        let deleted = world
            .client
            .delete_all_of::<ConfigMap>(Some("ns"), &params.0, &params.1)
            .await;
        deleted.unwrap_err();
        world.fake.no_hook();
        if case == "refused, after one" {
            world.fake.remove(&path("b"));
        }
        if left == 2 {
            assert_eq!(
                took(world.maps().list(None)).await.1,
                Duration::ZERO,
                "{case}"
            );
        } else {
            let maps = world.maps();
            let mut reading = pin!(maps.list(Some("ns")));
            assert!(
                timeout(Duration::from_secs(5), &mut reading).await.is_err(),
                "{case}"
            );
            // A read of one object waits as well as a read of all.
            let mut one = pin!(world.read("b"));
            assert!(
                timeout(Duration::from_secs(1), &mut one).await.is_err(),
                "{case}"
            );
            world.fake.hold_watches(false);
            assert_eq!(reading.await.unwrap().len(), left, "{case}");
            assert_eq!(one.await, None, "{case}");
        }
        let lists = world.fake.log();
        let lists = lists
            .iter()
            .filter(|line| *line == "LIST /api/v1/namespaces/ns/configmaps");
        // Each of the two reads may list.
        assert!((1..=2).contains(&lists.count()), "{case}");
        assert!(!world.counted("timeouts"), "{case}");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_of_many_that_is_refused_before_any_is_neither_waited_for_nor_asked_about() {
    for code in [401, 404, 405, 415, 429] {
        let world = World::start().await;
        world
            .fake
            .hook(move |method, _| (*method == Method::DELETE).then_some(Fate::Refuse(code)));
        let params = (ListParams::default(), DeleteParams::default());
        let deleted = world
            .client
            .delete_all_of::<ConfigMap>(Some("ns"), &params.0, &params.1)
            .await;
        deleted.unwrap_err();
        world.fake.no_hook();
        let (left, waited) = took(world.maps().list(None)).await;
        assert_eq!((left.unwrap().len(), waited), (2, Duration::ZERO), "{code}");
        let asked = "LIST /api/v1/namespaces/ns/configmaps";
        assert!(!world.fake.log().iter().any(|line| line == asked), "{code}");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_delete_of_many_left_waiting_for_a_finalizer_is_waited_for() {
    let world = World::start().await;
    world
        .fake
        .hook(|method, _| (*method == Method::DELETE).then_some(Fate::Refuse(504)));
    let params = (ListParams::default(), DeleteParams::default());
    let deleted = world
        .client
        .delete_all_of::<ConfigMap>(Some("ns"), &params.0, &params.1)
        .await;
    deleted.unwrap_err();
    world.fake.no_hook();
    let marked =
        json!({"metadata": {"finalizers": ["a/b"], "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    world.fake.put(&path("a"), marked);
    let maps = world.maps();
    let mut reading = pin!(maps.list(Some("ns")));
    assert!(timeout(Duration::from_secs(5), &mut reading).await.is_err());
    world.fake.hold_watches(false);
    let read = reading.await.unwrap();
    let marked = read
        .iter()
        .filter(|map| map.metadata.deletion_timestamp.is_some());
    assert_eq!((read.len(), marked.count()), (2, 1));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_did_not_happen_is_not_waited_for() {
    let world = World::start().await;
    world.fake.hook(|_, _| Some(Fate::Refuse(422)));
    world.write("a", "1").await.unwrap_err();
    world.fake.no_hook();
    assert_eq!(
        took(world.read("a")).await,
        (Some("0".into()), Duration::ZERO)
    );
    // Neither is a dry run, nor a write to a kind without a cache.
    let dry = world.client.clone().dry_run();
    let patch = Patch::merge(json!({"data": {"n": "0"}}));
    dry.patch::<ConfigMap>(&key("a"), patch).await.unwrap();
    world
        .fake
        .put("/api/v1/namespaces/ns/secrets/a", json!({"metadata": {}}));
    let patch = Patch::merge(json!({"type": "x"}));
    world
        .client
        .patch::<Secret>(&key("a"), patch)
        .await
        .unwrap();
    let notes = world.client.notes().unwrap();
    assert!(notes.take().is_empty());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn of_a_write_whose_answer_was_lost_the_server_is_asked() {
    for (fate, written) in [(Fate::Lose, "1"), (Fate::Refuse(500), "0")] {
        let world = World::start().await;
        let fated = fate.clone();
        world
            .fake
            .hook(move |method, _| (*method == http::Method::PATCH).then(|| fated.clone()));
        world.write("a", "1").await.unwrap_err();
        world.fake.no_hook();
        if written == "0" {
            assert_eq!(
                took(world.read("a")).await,
                (Some("0".into()), Duration::ZERO),
                "{fate:?}"
            );
        } else {
            assert_eq!(
                read_held(&world, "a").await.0.as_deref(),
                Some("1"),
                "{fate:?}"
            );
        }
        let asked = world
            .fake
            .log()
            .iter()
            .filter(|line| line.starts_with("GET"))
            .count();
        assert_eq!(asked, 1, "{fate:?}: once");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_of_a_lost_write_is_no_call_of_the_program() {
    let world = World::start().await;
    world
        .fake
        .hook(|method, _| (*method == http::Method::PATCH).then_some(Fate::Refuse(500)));
    world.write("a", "1").await.unwrap_err();
    world.fake.no_hook();
    // A clone for another namespace reads, too, and no interceptor sees it.
    let refusing = Interceptor::new()
        .get(|_, call| async move { Err(Error::refused(&call, 403, "Forbidden", "not today")) });
    let other = world.client.clone().in_namespace("other");
    let maps = other.intercepted(refusing).cached::<ConfigMap>().unwrap();
    assert_eq!(took(maps.list(None)).await.1, Duration::ZERO);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_cancelled_is_asked_for_too() {
    let world = World::start().await;
    world
        .fake
        .hook(|_, _| Some(Fate::Slow(Duration::from_secs(2))));
    let cancelled = timeout(Duration::from_secs(1), world.write("a", "1")).await;
    assert!(cancelled.is_err());
    world.fake.no_hook();
    world.fake.hold_watches(false);
    let before = world.fake.log().len();
    assert_eq!(world.read("a").await.as_deref(), Some("0"));
    assert_eq!(world.fake.log()[before..], [format!("GET {}", path("a"))]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_delete_of_what_was_just_made_waits_for_both() {
    let world = World::start().await;
    let mut map = ConfigMap::default();
    map.metadata.namespace = Some("ns".into());
    map.metadata.name = Some("new".into());
    world.client.create(&map).await.unwrap();
    world
        .fake
        .hook(|method, _| (*method == http::Method::DELETE).then_some(Fate::Lose));
    let (new, params) = (key("new"), DeleteParams::default());
    let deleted = world.client.delete::<ConfigMap>(&new, &params).await;
    assert!(deleted.is_err());
    let maps = world.maps().wait_at_most(Duration::from_secs(60));
    let mut reading = pin!(maps.get(&new));
    for shown in ["nothing", "what is gone"] {
        let early = timeout(Duration::from_secs(1), &mut reading).await;
        assert!(early.is_err(), "{shown}: {early:?}");
        world.fake.let_one_go();
    }
    assert!(reading.await.unwrap().is_none());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_read_of_a_lost_write_asks_ever_more_rarely() {
    let world = World::start().await;
    world.fake.hook(|_, _| Some(Fate::Refuse(503)));
    world.write("a", "1").await.unwrap_err();
    let maps = world.maps().wait_at_most(Duration::from_secs(60));
    assert_eq!(took(maps.get(&key("a"))).await.1, Duration::from_secs(60));
    let log = world.fake.log();
    let asked = log.iter().filter(|line| line.starts_with("GET")).count();
    // After 0, 0.25, 0.75, 1.75, 3.75, 7.75, 15.75 and 31.75 s.
    assert_eq!(asked, 8);
    world.end().await;
}
