//! Objects that a reconcile created and that are deleted before any watch shows them.

use kube_core::ObjectMeta;
use reeve_workqueue::Reason;

use super::*;
use crate::cache::View;
use crate::client::GroupKind;
use crate::cluster::Cluster;
use crate::fake::Managed as _;
use crate::own_writes::effect::{self, Effect, LAST_LOOK, Write};
use crate::own_writes::tracker::{Hold, Own, OwnWrites, Place};
use crate::reconcile::Reconciler;

pub(super) fn secret(name: &str) -> String {
    format!("/api/v1/namespaces/ns/secrets/{name}")
}

/// Creates the Secret of its request's name when the cache has none, and records its reasons.
fn making(seen: &Seen) -> impl Reconciler {
    let seen = Arc::clone(seen);
    reconcile::function(move |ctx: Context, request: Request| {
        let seen = Arc::clone(&seen);
        async move {
            let reasons: Vec<String> = ctx.reasons().iter().map(Reason::to_string).collect();
            seen.lock().push(reasons.join(" and "));
            if ctx.lister::<Secret>()?.get(&request)?.is_none() {
                let metadata = ObjectMeta {
                    name: Some(request.name.to_string()),
                    namespace: Some("ns".into()),
                    ..ObjectMeta::default()
                };
                let made = Secret {
                    metadata,
                    ..Secret::default()
                };
                let made = ctx.client().create(&made).await;
                if let Err(error) = made
                    && !error.is_already_exists()
                {
                    return Err(error.into());
                }
            }
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    })
}

pub(super) fn asked(fake: &Fake) -> usize {
    let log = fake.log();
    log.iter().filter(|line| line.starts_with("GET ")).count()
}

/// A controller for ConfigMaps that made the Secrets of `names`, the events of which do not come.
async fn made(fake: &Fake, seen: &Seen, names: &[&str]) -> Running {
    for name in names {
        fake.put(&path(name), map("1"));
    }
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .owns::<Secret>()
        .complete(making(seen));
    fake.hold_watches(true);
    let running = start(fake, [controller.unwrap()]).await;
    eventually("made", || seen.lock().len() == names.len()).await;
    eventually("answered", || {
        fake.objects("/api/v1/secrets").len() == names.len()
    })
    .await;
    running
}

/// Lets the watch go past all that was held back, and shows none of `names`.
fn pass(fake: &Fake, names: &[&str]) {
    for name in names {
        fake.drop_held(&secret(name));
    }
    fake.hold_watches(false);
    fake.put(&secret("without-owner"), json!({"metadata": {}}));
}

#[tokio::test(start_paused = true)]
async fn an_own_object_that_is_gone_before_any_watch_showed_it_brings_its_key_back() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let running = made(&fake, &seen, &["a"]).await;
    fake.remove(&secret("a"));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(seen.lock().len(), 1, "the store has not come so far");
    assert_eq!(asked(&fake), 0);
    pass(&fake, &["a"]);
    eventually("made again", || fake.object(&secret("a")).is_some()).await;
    assert_eq!(seen.lock()[1], "own object gone");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(asked(&fake), 1);
    assert_eq!(seen.lock().len(), 2);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_own_object_that_no_cache_selects_is_asked_for_once() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let running = made(&fake, &seen, &["a"]).await;
    pass(&fake, &["a"]);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(asked(&fake), 1);
    assert_eq!(seen.lock().len(), 1, "it is there");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_own_object_that_the_cache_shows_is_not_asked_for() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let running = made(&fake, &seen, &["a"]).await;
    fake.hold_watches(false);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(asked(&fake), 0);
    fake.remove(&secret("a"));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(
        seen.lock().len(),
        1,
        "it has no owner, so its event adds no key"
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_own_object_whose_place_another_has_taken_brings_its_key_back() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let running = made(&fake, &seen, &["a"]).await;
    fake.remove(&secret("a"));
    fake.drop_held(&secret("a"));
    fake.hold_watches(false);
    fake.put(&secret("a"), json!({"metadata": {}}));
    eventually("again", || seen.lock().len() == 2).await;
    assert_eq!(seen.lock()[1], "own object gone");
    assert_eq!(asked(&fake), 0, "the cache says it");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_asked_again_and_one_that_refuses_is_not() {
    for (code, again, asks) in [(503, 2, 11..70), (403, 1, 1..2)] {
        let (fake, seen) = (Fake::default(), Seen::default());
        let running = made(&fake, &seen, &["a"]).await;
        fake.remove(&secret("a"));
        fake.hook(move |method, path| {
            let get = *method == Method::GET && path.ends_with("/secrets/a");
            get.then_some(Fate::Refuse(code))
        });
        pass(&fake, &["a"]);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(seen.lock().len(), 1, "{code}: its state is unknown");
        fake.no_hook();
        sleep(Duration::from_secs(10)).await;
        assert_eq!(seen.lock().len(), again, "{code}");
        assert!(asks.contains(&asked(&fake)), "{code}: {}", asked(&fake));
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_than_eight_are_asked_for_in_a_second() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let names: Vec<String> = (0..20).map(|number| format!("a{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let running = made(&fake, &seen, &names).await;
    for name in &names {
        fake.remove(&secret(name));
    }
    pass(&fake, &names);
    let mut before = 0;
    for _ in 0..4 {
        sleep(Duration::from_secs(1)).await;
        assert!(asked(&fake) - before <= 8, "{before} and {}", asked(&fake));
        before = asked(&fake);
    }
    eventually("all come back", || seen.lock().len() == 40).await;
    assert_eq!(asked(&fake), 20);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_for_what_it_wrote_in_another_cluster() {
    let (here, there, seen) = (Fake::default(), Fake::default(), Seen::default());
    here.put(&path("a"), map("1"));
    there.put(&path("a"), map("1"));
    let manager = here.manager().build().await;
    let manager = manager.unwrap();
    let edge = manager.add_cluster(Cluster::builder("edge", there.client()));
    let edge = edge.unwrap();
    let _kept = edge.caches().keep(&View::<ConfigMap>::typed()).unwrap();
    let (noted, far) = (Arc::clone(&seen), edge.clone());
    let reconciler = reconcile::function(move |ctx: Context, request: Request| {
        let (seen, edge) = (Arc::clone(&noted), far.clone());
        async move {
            let map = edge.caches().lister::<ConfigMap>()?.get(&request)?;
            let data = map.and_then(|map| map.data.clone()).unwrap_or_default();
            let value = data.get("key").cloned().unwrap_or_default();
            seen.lock().push(value.clone());
            if value == "1" {
                let patch = Patch::Merge(json!({"data": {"key": "2"}}));
                let client = ctx.client_of(&edge);
                let patched = client.patch::<ConfigMap>(&request, &patch);
                patched.await?;
                // Another object of the same name in this cluster.
                let patched = ctx.client().patch::<ConfigMap>(&request, &patch);
                patched.await?;
            }
            Ok::<_, reconcile::Error>(Outcome::requeue_after(Duration::from_millis(10)))
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(reconciler);
    manager.add_controller(controller.unwrap()).unwrap();
    there.hold_watches(true);
    let running = Running::start(manager.clone());
    eventually("first", || !seen.lock().is_empty()).await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(*seen.lock(), ["1"], "the other cluster's cache is behind");
    there.hold_watches(false);
    let released = Instant::now();
    eventually("goes on", || seen.lock().len() >= 2).await;
    assert!(released.elapsed() <= Duration::from_millis(300));
    assert_eq!(seen.lock()[1], "2", "and it sees its own write");
    running.end().await;
}

/// The writes of keys, beside the reader of lost writes.
fn asking(limit: Duration) -> Arc<OwnWrites<u32>> {
    let own = Arc::new(OwnWrites::new(limit));
    let asker = Arc::clone(&own);
    tokio::spawn(async move { asker.ask_for_lost(|_| {}).await });
    own
}

/// The last hold of a key that is put back until it may run.
pub(super) async fn held(own: &OwnWrites<u32>, key: u32) -> Hold {
    loop {
        match own.hold(&key, 0) {
            // An answer wakes it.
            Hold::Wait(pause) => sleep(pause.min(LAST_LOOK)).await,
            hold => return hold,
        }
    }
}

pub(super) fn changed(name: &str, uid: &str, version: &str) -> Write {
    Write {
        kind: GroupKind::new("", "Secret"),
        key: Request::namespaced("ns", name),
        effect: Effect::Version {
            uid: Some(uid.into()),
            state: effect::State {
                version: version.into(),
                labels: None,
            },
        },
    }
}

#[tokio::test(start_paused = true)]
async fn what_keys_that_never_come_back_wrote_is_forgotten_after_the_time_out() {
    let fake = Fake::default();
    let stored = fake.put(&secret("a"), json!({"metadata": {}}));
    let uid = stored["metadata"]["uid"].as_str().unwrap().to_owned();
    let running = start(&fake, []).await;
    let caches = running.manager.caches();
    let _kept = caches.keep(&View::<Secret>::typed()).unwrap();
    eventually("filled", || {
        let health = caches.health();
        health.len() == 1 && health[0].synced
    })
    .await;
    let limit = Duration::from_secs(10);
    let own = Arc::new(OwnWrites::<u32>::new(limit));
    let place = Place::new(caches, running.manager.client());
    let swept = Arc::clone(&own);
    let sweep = tokio::spawn(async move { swept.sweep(|_| {}).await });
    // The store holds the objects, in an older state.
    for key in 0..5000 {
        own.remember(&key, place.own(vec![changed("a", &uid, "100")]));
    }
    assert_eq!(own.hold(&0, 0), Hold::Wait(Duration::from_millis(2)));
    sleep(limit - Duration::from_secs(1)).await;
    assert!(!own.is_empty());
    sleep(Duration::from_secs(3)).await;
    let late = Hold::Late(Request::namespaced("ns", "a"));
    assert_eq!(own.hold(&0, 0), late, "a key that was put back will come");
    assert!(own.is_empty());
    // An object that no cache shows is followed for as long as the store is behind; ten minutes, if the server has it.
    let written = vec![changed("a", &uid, "100"), changed("b", "other", "101")];
    own.remember(&1, place.own(written));
    fake.put(&path("traffic"), map("1"));
    sleep(Duration::from_secs(590)).await;
    assert!(!own.is_empty());
    sleep(Duration::from_secs(30)).await;
    assert!(own.is_empty());
    sweep.abort();
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_held_keeps_why_it_is_wanted() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let (sender, stream) = source::channel::<Request>(10);
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .owns::<Secret>()
        .watches_source(stream)
        .complete(making(&seen));
    fake.hold_watches(true);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("made", || !fake.objects("/api/v1/secrets").is_empty()).await;
    sender.send(Request::namespaced("ns", "a")).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(seen.lock().len(), 1, "its own write is not seen");
    fake.hold_watches(false);
    eventually("another", || seen.lock().len() == 2).await;
    assert_eq!(*seen.lock(), ["added", "source"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn lost_writes_are_asked_for_together_and_no_longer_than_the_key_waits() {
    let fake = Fake::default();
    let running = start(&fake, []).await;
    let caches = running.manager.caches();
    let _kept = caches.keep(&View::<Secret>::typed()).unwrap();
    eventually("filled", || {
        let health = caches.health();
        health.len() == 1 && health[0].synced
    })
    .await;
    let limit = Duration::from_secs(10);
    let place = Place::new(caches, running.manager.client());
    let own = asking(limit);
    let lost = |count: usize| -> Vec<Own> {
        let names = (0..count).map(|number| format!("s{number}"));
        let writes = names.map(|name| Write {
            effect: Effect::UNKNOWN,
            ..changed(&name, "u", "1")
        });
        place.own(writes.collect())
    };
    // A slow server gets eight reads at once.
    fake.hook(|method, _| {
        let get = *method == Method::GET;
        get.then_some(Fate::Slow(Duration::from_secs(1)))
    });
    own.remember(&1, lost(40));
    let begin = Instant::now();
    assert_eq!(held(&own, 1).await, Hold::Go);
    let took = begin.elapsed().as_millis();
    assert!((5000..6500).contains(&took), "{took}");
    assert_eq!(asked(&fake), 40);
    // One that hangs does not make it longer.
    fake.hook(|method, _| (*method == Method::GET).then_some(Fate::Hang));
    own.remember(&2, lost(40));
    let begin = Instant::now();
    let hold = held(&own, 2).await;
    assert!(matches!(hold, Hold::Late(_)), "{hold:?}");
    assert_eq!(begin.elapsed(), limit);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_write_is_not_forgotten_when_the_lease_is_lost_while_it_is_asked_for() {
    let fake = Fake::default();
    let running = start(&fake, []).await;
    let caches = running.manager.caches();
    let _kept = caches.keep(&View::<Secret>::typed()).unwrap();
    eventually("filled", || caches.check().is_ok()).await;
    let place = Place::new(caches, running.manager.client());
    let own = OwnWrites::<u32>::new(Duration::from_secs(60));
    fake.hold_watches(true);
    fake.put(&secret("a"), json!({"metadata": {}}));
    fake.hook(|method, _| (*method == Method::GET).then_some(Fate::Hang));
    let lost = Write {
        effect: Effect::UNKNOWN,
        ..changed("a", "u", "1")
    };
    own.remember(&1, place.own(vec![lost]));
    assert!(matches!(own.hold(&1, 0), Hold::Wait(_)));
    let second = Duration::from_secs(1);
    let cut = tokio::time::timeout(second, own.ask_for_lost(|_| {})).await;
    assert!(cut.is_err() && asked(&fake) == 1);
    fake.no_hook();
    own.begin();
    assert!(matches!(own.hold(&1, 0), Hold::Wait(_)));
    let again = tokio::time::timeout(second, own.ask_for_lost(|_| {})).await;
    assert!(again.is_err());
    assert_eq!(asked(&fake), 2);
    assert!(
        matches!(own.hold(&1, 0), Hold::Wait(_)),
        "the cache has it not"
    );
    fake.hold_watches(false);
    sleep(second).await;
    assert_eq!(own.hold(&1, 0), Hold::Go);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_has_its_whole_time_for_its_own_writes_when_its_workers_begin_again() {
    let fake = Fake::default();
    let running = start(&fake, []).await;
    let caches = running.manager.caches();
    let _kept = caches.keep(&View::<Secret>::typed()).unwrap();
    eventually("filled", || caches.check().is_ok()).await;
    let place = Place::new(caches, running.manager.client());
    let own = OwnWrites::<u32>::new(Duration::from_secs(10));
    fake.hold_watches(true);
    let stored = fake.put(&secret("a"), json!({"metadata": {}}));
    let uid = stored["metadata"]["uid"].as_str().unwrap();
    own.remember(&1, place.own(vec![changed("a", uid, "100")]));
    assert!(matches!(own.hold(&1, 0), Hold::Wait(_)));
    sleep(Duration::from_secs(30)).await;
    own.begin();
    let begin = Instant::now();
    let hold = held(&own, 1).await;
    assert!(matches!(hold, Hold::Late(_)), "{hold:?}");
    assert_eq!(begin.elapsed(), Duration::from_secs(10));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_write_waits_ten_minutes_for_its_key_and_no_longer() {
    let fake = Fake::default();
    let stored = fake.put(&secret("a"), json!({"metadata": {}}));
    let uid = stored["metadata"]["uid"].as_str().unwrap();
    let running = start(&fake, []).await;
    let caches = running.manager.caches();
    let _kept = caches.keep(&View::<Secret>::typed()).unwrap();
    eventually("filled", || caches.check().is_ok()).await;
    let place = Place::new(caches, running.manager.client());
    let own = Arc::new(OwnWrites::<u32>::new(Duration::from_secs(10)));
    let swept = Arc::clone(&own);
    let sweep = tokio::spawn(async move { swept.sweep(|_| {}).await });
    let written = |name: &str| {
        let lost = Write {
            effect: Effect::UNKNOWN,
            ..changed(name, uid, "1")
        };
        place.own(vec![changed("a", uid, "100"), lost])
    };
    own.remember(&1, written("b"));
    own.remember(&2, written("c"));
    sleep(Duration::from_secs(590)).await;
    // The time of the write that is not lost has passed.
    let hold = own.hold(&1, 9);
    assert!(matches!(hold, Hold::Wait(_)), "{hold:?}");
    let lost = Hold::Late(Request::namespaced("ns", "b"));
    assert_eq!(held(&own, 1).await, lost, "it is asked once all the same");
    assert!(!own.is_empty());
    sleep(Duration::from_secs(20)).await;
    assert!(own.is_empty());
    sweep.abort();
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_sweep_that_begins_again_finds_what_was_noted_before() {
    let fake = Fake::default();
    let running = start(&fake, []).await;
    let caches = running.manager.caches();
    let _kept = caches.keep(&View::<Secret>::typed()).unwrap();
    eventually("filled", || caches.check().is_ok()).await;
    let place = Place::new(caches, running.manager.client());
    let own = OwnWrites::<u32>::new(Duration::from_secs(10));
    let gone = Mutex::new(Vec::new());
    let sweep = async |seconds: u64| {
        let sweep = own.sweep(|key| gone.lock().push(key));
        tokio::time::timeout(Duration::from_secs(seconds), sweep).await
    };
    // The store is behind.
    own.remember(&1, place.own(vec![changed("a", "u", "100")]));
    assert_eq!(own.hold(&1, 0), Hold::Wait(Duration::from_millis(2)));
    assert!(sweep(2).await.is_err(), "its workers are cut off");
    for _ in 0..200 {
        fake.put(&secret("traffic"), json!({"metadata": {}}));
    }
    assert!(sweep(30).await.is_err());
    assert_eq!(*gone.lock(), [1], "its object is gone without an event");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_asked_for_is_held_though_nothing_is_noted_meanwhile() {
    let fake = Fake::default();
    let running = start(&fake, []).await;
    let caches = running.manager.caches();
    let _kept = caches.keep(&View::<Secret>::typed()).unwrap();
    eventually("filled", || {
        let health = caches.health();
        health.len() == 1 && health[0].synced
    })
    .await;
    let place = Place::new(caches, running.manager.client());
    let own = asking(Duration::from_secs(60));
    assert_eq!(own.hold(&1, 0), Hold::Go, "nothing was noted yet");
    fake.hold_watches(true);
    fake.put(&secret("a"), json!({"metadata": {}}));
    fake.hook(|method, _| {
        let get = *method == Method::GET;
        get.then_some(Fate::Slow(Duration::from_secs(1)))
    });
    let lost = Write {
        effect: Effect::UNKNOWN,
        ..changed("a", "u", "1")
    };
    own.remember(&1, place.own(vec![lost]));
    let hold = own.hold(&1, 0);
    assert!(matches!(hold, Hold::Wait(_)), "{hold:?}");
    sleep(Duration::from_millis(500)).await;
    assert!(
        !own.is_empty(),
        "it may be cut off while the server is asked"
    );
    sleep(Duration::from_secs(1)).await;
    let hold = own.hold(&1, 0);
    assert!(matches!(hold, Hold::Wait(_)), "{hold:?}");
    fake.hold_watches(false);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(own.hold(&1, 0), Hold::Go);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_write_to_what_is_gone_and_made_again_is_not_waited_for_any_longer() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    fake.put(&secret("a"), json!({"metadata": {}}));
    let noted = Arc::clone(&seen);
    let reconciler = reconcile::function(move |ctx: Context, request: Request| {
        let seen = Arc::clone(&noted);
        async move {
            let shown = ctx.lister::<Secret>()?.get(&request)?;
            let uid = shown.and_then(|shown| shown.metadata.uid.clone());
            let first = seen.lock().is_empty();
            seen.lock().push(uid.unwrap_or_default());
            if first {
                let params = kube_core::params::DeleteParams::default();
                ctx.client().delete::<Secret>(&request, &params).await?;
            }
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .owns::<Secret>()
        .own_writes_timeout(Duration::from_secs(3600))
        .complete(reconciler);
    fake.hook(|method, _| (*method == Method::DELETE).then_some(Fate::Lose));
    fake.hold_watches(true);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("the server was asked", || asked(&fake) == 1).await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(seen.lock().len(), 1, "the cache shows what is gone: held");
    let again = fake.put(&secret("a"), json!({"metadata": {}}));
    fake.hold_watches(false);
    let released = Instant::now();
    eventually("goes on", || seen.lock().len() == 2).await;
    assert!(released.elapsed() <= Duration::from_secs(1));
    assert_eq!(json!(seen.lock()[1]), again["metadata"]["uid"]);
    running.end().await;
}

/// A reconciler that patches the ConfigMap of its request, and records the times of its runs.
pub(super) fn patching(seen: &Seen) -> impl Reconciler {
    let (seen, begin) = (Arc::clone(seen), Instant::now());
    reconcile::function(move |ctx: Context, request: Request| {
        let at = begin.elapsed().as_secs();
        seen.lock().push(format!("{} at {at} s", request.name));
        async move {
            let patch = Patch::Merge(json!({"data": {"key": "2"}}));
            let patched = ctx.client().patch::<ConfigMap>(&request, &patch);
            patched.await?;
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    })
}

fn requests_of(fake: &Fake, method: &str, name: &str) -> usize {
    let wanted = format!("{method} {}", path(name));
    fake.log().iter().filter(|line| **line == wanted).count()
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_writes_and_reads_fail_costs_few_requests() {
    for (case, fate) in [("unavailable", Fate::Refuse(503)), ("hanging", Fate::Hang)] {
        let (fake, seen) = (Fake::default(), Seen::default());
        fake.put(&path("a"), map("1"));
        fake.hook(move |method, path| {
            let all = path.ends_with("/configmaps/a");
            let fate = match *method {
                Method::GET => fate.clone(),
                _ => Fate::Refuse(503),
            };
            all.then_some(fate)
        });
        let controller = Controller::builder("test")
            .for_kind::<ConfigMap>()
            .complete(patching(&seen));
        let running = start(&fake, [controller.unwrap()]).await;
        eventually("it is asked", || requests_of(&fake, "GET", "a") == 1).await;
        // The one worker is free meanwhile.
        fake.put(&path("b"), map("1"));
        let begin = Instant::now();
        eventually("another", || requests_of(&fake, "PATCH", "b") >= 1).await;
        assert!(begin.elapsed() <= Duration::from_millis(20), "{case}");
        sleep(Duration::from_secs(60)).await;
        let (writes, reads) = (
            requests_of(&fake, "PATCH", "a"),
            requests_of(&fake, "GET", "a"),
        );
        assert!((5..=8).contains(&writes), "{case}: {writes}");
        assert!((writes - 1..=20).contains(&reads), "{case}: {reads}");
        // Once its back-off exceeds its wait for its writes, it writes once a minute, and reads once before.
        sleep(Duration::from_secs(600)).await;
        let count = || ["PATCH", "GET"].map(|method| requests_of(&fake, method, "a"));
        let before = count();
        sleep(Duration::from_secs(600)).await;
        let [writes, reads] = count();
        let (writes, reads) = (writes - before[0], reads - before[1]);
        assert!((8..=11).contains(&writes), "{case}: {writes}");
        assert!(reads.abs_diff(writes) <= 1, "{case}: {reads} of {writes}");
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_rest_is_not_asked_about_lost_writes() {
    for reader in [false, true] {
        let (fake, seen) = (Fake::default(), Seen::default());
        fake.put(&path("a"), map("1"));
        fake.hook(|method, path| {
            let one = path.ends_with("/configmaps/a");
            one.then_some(match *method {
                Method::GET => Fate::Busy(429, 30),
                _ => Fate::Lose,
            })
        });
        let builder = Controller::builder("test").for_kind::<ConfigMap>();
        let limit = Duration::from_secs(3600);
        let running = if reader {
            let running = start(&fake, []).await;
            let manager = &running.manager;
            let _kept = manager.caches().keep(&View::<ConfigMap>::typed()).unwrap();
            let client = manager.client().clone();
            let a = Request::namespaced("ns", "a");
            let maps = client.cached::<ConfigMap>().unwrap().wait_at_most(limit);
            tokio::spawn(async move {
                let patch = Patch::Merge(json!({"data": {"key": "2"}}));
                let patched = client.patch::<ConfigMap>(&a, &patch);
                patched.await.unwrap_err();
                maps.get(&a).await
            });
            running
        } else {
            let controller = builder.own_writes_timeout(limit).complete(patching(&seen));
            start(&fake, [controller.unwrap()]).await
        };
        eventually("it is asked", || asked(&fake) == 1).await;
        sleep(Duration::from_secs(29)).await;
        assert_eq!(asked(&fake), 1, "reader: {reader}");
        sleep(Duration::from_secs(2)).await;
        assert_eq!(asked(&fake), 2, "reader: {reader}");
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_write_in_a_cluster_that_is_removed_is_not_asked_for_again_and_again() {
    let (here, there) = (Fake::default(), Fake::default());
    let running = start(&here, []).await;
    let edge = Cluster::builder("edge", there.client());
    let edge = running.manager.add_cluster(edge).unwrap();
    let _far = edge.caches().keep(&View::<Secret>::typed()).unwrap();
    let caches = running.manager.caches();
    let _near = caches.keep(&View::<Secret>::typed()).unwrap();
    eventually("filled", || {
        caches.check().is_ok() && edge.caches().check().is_ok()
    })
    .await;
    here.hold_watches(true);
    let own = OwnWrites::<u32>::new(Duration::from_secs(10));
    let lost = Write {
        effect: Effect::UNKNOWN,
        ..changed("a", "u", "1")
    };
    let mut writes = Place::new(edge.caches(), edge.client()).own(vec![lost]);
    let place = Place::new(caches, running.manager.client());
    writes.extend(place.own(vec![changed("b", "v", "100")]));
    own.remember(&1, writes);
    assert!(matches!(own.hold(&1, 0), Hold::Wait(_)));
    running.manager.remove_cluster(edge).await;
    let wakes = std::cell::Cell::new(0);
    let asking = own.ask_for_lost(|key| {
        wakes.set(wakes.get() + 1);
        assert!(wakes.get() < 100, "it asks without a pause");
        let _ = own.hold(&key, 0);
    });
    let asked = tokio::time::timeout(Duration::from_secs(5), asking).await;
    assert!(asked.is_err() && wakes.get() <= 1, "{}", wakes.get());
    let hold = held(&own, 1).await;
    assert!(
        matches!(hold, Hold::Late(_)),
        "it waits for the other write: {hold:?}"
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_with_many_lost_writes_does_not_take_the_line_for_itself() {
    let fake = Fake::default();
    let running = start(&fake, []).await;
    let caches = running.manager.caches();
    let _kept = caches.keep(&View::<Secret>::typed()).unwrap();
    eventually("filled", || caches.check().is_ok()).await;
    let place = Place::new(caches, running.manager.client());
    let own = asking(Duration::from_secs(60));
    let lost = |name: String| Write {
        effect: Effect::UNKNOWN,
        ..changed(&name, "u", "1")
    };
    let many = (0..100).map(|number| lost(format!("many-{number}")));
    own.remember(&1, place.own(many.collect()));
    own.remember(&2, place.own(vec![lost("one".to_owned())]));
    assert!(matches!(own.hold(&1, 0), Hold::Wait(_)));
    assert!(matches!(own.hold(&2, 0), Hold::Wait(_)));
    sleep(Duration::from_secs(3)).await;
    let log = fake.log();
    let asked: Vec<_> = log
        .iter()
        .filter(|line| line.contains("/secrets/"))
        .collect();
    let place = asked.iter().position(|line| line.ends_with("/secrets/one"));
    assert_eq!(place, Some(8), "{asked:?}");
    running.end().await;
}
