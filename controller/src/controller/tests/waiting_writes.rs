//! Keys that wait for their own writes, one by one: how long, and what is forgotten.

use super::own_writes::{asked, making, secret};
use super::*;
use crate::cache::View;
use crate::client::GroupKind;
use crate::own_writes::effect::{self, Effect, LAST_LOOK, Write};
use crate::own_writes::tracker::{Hold, Own, OwnWrites, Place};

/// The writes of keys, beside the reader of lost writes.
pub(super) fn asking(limit: Duration) -> Arc<OwnWrites<u32>> {
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
