//! Objects that a reconcile created and that are deleted before any watch shows them.

use kube_core::ObjectMeta;
use reeve_workqueue::Reason;

use super::waiting_writes::{asking, changed, held};
use super::*;
use crate::cache::View;
use crate::cluster::Cluster;
use crate::fake::Managed as _;
use crate::own_writes::effect::{Effect, Write};
use crate::own_writes::tracker::{Hold, OwnWrites, Place};
use crate::reconcile::Reconciler;

pub(super) fn secret(name: &str) -> String {
    format!("/api/v1/namespaces/ns/secrets/{name}")
}

/// Creates the Secret of its request's name when the cache has none, and records its reasons.
pub(super) fn making(seen: &Seen) -> impl Reconciler {
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
async fn a_lost_write_without_a_limit_is_asked_for_until_the_server_answers() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let away = Arc::new(AtomicBool::new(true));
    let server = Arc::clone(&away);
    fake.hook(move |_, path| {
        let lost = path.ends_with("/configmaps/a") && server.load(Ordering::Relaxed);
        lost.then_some(Fate::Lose)
    });
    let builder = Controller::builder("test").for_kind::<ConfigMap>();
    let builder = builder.own_writes_timeout(Duration::MAX);
    let controller = builder.complete(patching(&seen)).unwrap();
    let running = start(&fake, [controller]).await;
    sleep(Duration::from_secs(600)).await;
    let before = asked(&fake);
    assert!((1..600).contains(&before), "{before}");
    let runs = seen.lock().len();
    away.store(false, Ordering::Relaxed);
    eventually("it goes on", || seen.lock().len() > runs).await;
    running.end().await;
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
