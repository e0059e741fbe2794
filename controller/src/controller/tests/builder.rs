//! Controllers with the settings of a builder.

use kube_core::{Expression, PartialObjectMeta};

use super::*;
use crate::cache::View;
use crate::predicate::MetaEvent;

fn secret(name: &str) -> String {
    format!("/api/v1/namespaces/ns/secrets/{name}")
}

#[tokio::test(start_paused = true)]
async fn an_event_filter_is_of_every_kind_and_not_of_sources() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let shop = json!({"metadata": {"labels": {"app": "shop"}}});
    fake.put(&path("mine"), shop.clone());
    fake.put(&path("other"), map("1"));
    fake.put(&secret("mine-too"), shop);
    fake.put(&secret("other-too"), json!({"metadata": {}}));
    let (sender, stream) = source::channel::<Request>(10);
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .with_event_filter(predicate::labels(Expression::Equal(
            "app".into(),
            "shop".into(),
        )))
        .watches::<Secret>(handler::for_object())
        .with_predicate(predicate::object(|secret: &Secret| {
            secret.metadata.name.as_deref() != Some("never")
        }))
        .watches_source(stream)
        .complete(done(&seen));
    let running = start(&fake, [controller.unwrap()]).await;
    let sorted = || {
        let mut seen = seen.lock().clone();
        seen.sort();
        seen
    };
    sleep(Duration::from_secs(60)).await;
    assert_eq!(sorted(), ["ns/mine", "ns/mine-too"]);
    let never = json!({"metadata": {"labels": {"app": "shop"}}});
    fake.put(&secret("never"), never);
    sender.send(Request::cluster("asked")).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(seen.lock()[2..], ["asked"]);
    // The object leaves the selector, which is its last event.
    fake.put(&path("mine"), map("2"));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(seen.lock()[3..], ["ns/mine"]);
    fake.put(&path("mine"), map("3"));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(seen.lock().len(), 4);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn filters_and_predicates_must_all_allow_an_event() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let asked: Seen = Seen::default();
    let (first, second) = (Arc::clone(&asked), Arc::clone(&asked));
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .with_predicate(move |event: &reeve_informer::Event<ConfigMap>| {
            second.lock().push("predicate".into());
            !matches!(event, reeve_informer::Event::Deleted { .. })
        })
        .with_event_filter(move |event: &MetaEvent<'_>| {
            first.lock().push("filter".into());
            !matches!(event, MetaEvent::Updated { .. })
        })
        .complete(done(&seen));
    let running = start(&fake, [controller.unwrap()]).await;
    sleep(Duration::from_secs(1)).await;
    for (change, expected) in [
        ("add", vec!["filter", "predicate"]),
        ("update", vec!["filter"]),
        ("delete", vec!["filter", "predicate"]),
    ] {
        match change {
            "delete" => fake.remove(&path("a")),
            change => drop(fake.put(&path("a"), map(change))),
        }
        sleep(Duration::from_secs(1)).await;
        assert_eq!(std::mem::take(&mut *asked.lock()), expected, "{change}");
    }
    assert_eq!(*seen.lock(), ["ns/a"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_filter_may_be_a_combination() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let has = |label: &str| predicate::labels(Expression::Exists(label.into()));
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .with_event_filter(predicate::and(
            predicate::or(has("a"), has("b")),
            predicate::not(has("c")),
        ))
        .complete(done(&seen));
    for name in ["a", "a-b", "a-c", "b", "b-c", "c", "d"] {
        let labels: std::collections::BTreeMap<_, _> =
            name.split('-').map(|label| (label, "")).collect();
        fake.put(&path(name), json!({"metadata": {"labels": labels}}));
    }
    let running = start(&fake, [controller.unwrap()]).await;
    sleep(Duration::from_secs(60)).await;
    let mut all = seen.lock().clone();
    all.sort();
    assert_eq!(all, ["ns/a", "ns/a-b", "ns/b"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_at_which_a_filter_or_predicate_panics_is_handled() {
    for of_all in [false, true] {
        let (fake, seen) = (Fake::default(), Seen::default());
        let panics = |name: Option<&str>| assert_ne!(name, Some("odd"), "on purpose");
        let controller = Controller::builder("test").for_kind::<ConfigMap>();
        let controller = if of_all {
            controller.with_event_filter(move |event: &MetaEvent<'_>| {
                if let MetaEvent::Added { object, .. } = event {
                    panics(object.name.as_deref());
                }
                false
            })
        } else {
            controller.with_predicate(predicate::object(move |map: &ConfigMap| {
                panics(map.metadata.name.as_deref());
                false
            }))
        };
        fake.put(&path("a"), map("1"));
        fake.put(&path("odd"), map("1"));
        let running = start(&fake, [controller.complete(done(&seen)).unwrap()]).await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(*seen.lock(), ["ns/odd"], "{of_all}");
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_controlling_owner_or_every_owner_is_requested() {
    let owner = |kind: &str, name: &str, controller: bool| json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": name, "controller": controller});
    let owners = json!([
        owner("ConfigMap", "boss", true),
        owner("ConfigMap", "friend", false),
        owner("Secret", "other", false),
    ]);
    for (every, expected) in [
        (false, vec!["ns/boss"]),
        (true, vec!["ns/boss", "ns/friend"]),
    ] {
        let (fake, seen) = (Fake::default(), Seen::default());
        let controller = Controller::builder("test").for_kind::<ConfigMap>();
        let controller = if every {
            controller.owns_every::<Secret>()
        } else {
            controller.owns::<Secret>()
        };
        let running = start(&fake, [controller.complete(done(&seen)).unwrap()]).await;
        sleep(Duration::from_secs(1)).await;
        fake.put(
            &secret("s"),
            json!({"metadata": {"ownerReferences": owners}}),
        );
        // All requests, not the first ones only.
        sleep(Duration::from_secs(60)).await;
        assert_eq!(*seen.lock(), expected);
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_than_metadata_is_watched() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let controller = Controller::builder("test")
        .for_view(View::<PartialObjectMeta<ConfigMap>>::metadata())
        .owns_view(View::<PartialObjectMeta<Secret>>::metadata())
        .with_predicate(predicate::labels_changed())
        .complete(noting(&seen, |ctx, request| {
            let typed = ctx.lister::<ConfigMap>().is_ok();
            assert!(!typed, "the type is not stored");
            assert!(request.namespace.is_some());
            Ok(Outcome::done())
        }));
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("the object", || *seen.lock() == ["ns/a"]).await;
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "boss", "uid": "u", "controller": true}]);
    fake.put(
        &secret("s"),
        json!({"metadata": {"ownerReferences": owner}}),
    );
    eventually("the owner", || seen.lock().len() == 2).await;
    assert_eq!(seen.lock()[1], "ns/boss");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn two_controllers_may_be_for_one_kind() {
    let (fake, one, two) = (Fake::default(), Seen::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let named = |name: &str, seen: &Seen| {
        Controller::builder(name)
            .for_kind::<ConfigMap>()
            .complete(done(seen))
            .unwrap()
    };
    let running = start(&fake, [named("one", &one), named("two", &two)]).await;
    eventually("both", || one.lock().len() == 1 && two.lock().len() == 1).await;
    let lists = fake.log();
    let lists = lists.iter().filter(|line| line.contains("configmaps"));
    assert_eq!(lists.count(), 1, "one watch serves both");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_timer_requests_every_period() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let period = Duration::from_secs(60);
    let controller = Controller::builder("test")
        .watches_source(source::every(period, Request::cluster("sweep")))
        .watches_source(futures::stream::iter([Request::cluster("once")]))
        .complete(done(&seen));
    let begin = Instant::now();
    let running = start(&fake, [controller.unwrap()]).await;
    eventually_within(Duration::from_secs(200), "three sweeps", || {
        seen.lock().len() == 4
    })
    .await;
    let took = begin.elapsed();
    assert!(took >= period * 3 && took < period * 3 + Duration::from_secs(1));
    assert_eq!(*seen.lock(), ["once", "sweep", "sweep", "sweep"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waited_for_its_own_write_waits_no_interval_for_it() {
    let fake = Fake::default();
    fake.put(&path("a"), map("1"));
    let runs: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let (noted, begin) = (Arc::clone(&runs), Instant::now());
    let (sender, requests) = source::channel::<Request>(1);
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .watches_source(requests)
        .min_interval(Duration::from_secs(30))
        .complete(reconcile::function(
            move |ctx: Context, request: Request| {
                noted.lock().push(begin.elapsed());
                let first = noted.lock().len() == 1;
                async move {
                    if first {
                        sleep(Duration::from_secs(40)).await;
                        let patch = Patch::Merge(json!({"data": {"key": "2"}}));
                        let written = ctx.client().patch::<ConfigMap>(&request, &patch);
                        written.await?;
                    }
                    Ok::<_, reconcile::Error>(Outcome::done())
                }
            },
        ));
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("at work", || runs.lock().len() == 1).await;
    fake.hold_watches(true);
    sender.send(Request::namespaced("ns", "a")).await.unwrap();
    sleep(Duration::from_secs(42)).await;
    assert_eq!(runs.lock().len(), 1, "it is held back");
    fake.hold_watches(false);
    eventually("again", || runs.lock().len() == 2).await;
    let runs = runs.lock().clone();
    let waited = runs[1] - runs[0];
    assert!(waited < Duration::from_secs(45), "{waited:?}");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn one_request_is_reconciled_no_more_often_than_its_interval_allows() {
    let fake = Fake::default();
    let runs: Arc<Mutex<Vec<(String, Duration)>>> = Arc::default();
    let (noted, begin) = (Arc::clone(&runs), Instant::now());
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .min_interval(Duration::from_secs(30))
        .complete(reconcile::function(move |_: Context, request: Request| {
            let run = (request.to_string(), begin.elapsed());
            noted.lock().push(run);
            async { Ok::<_, reconcile::Error>(Outcome::done()) }
        }));
    let running = start(&fake, [controller.unwrap()]).await;
    sleep(Duration::from_secs(1)).await;
    for value in 0..50 {
        fake.put(&path("busy"), map(&value.to_string()));
        if value == 20 {
            fake.put(&path("other"), map("1"));
        }
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(300)).await;
    let of = |name: &str| -> Vec<u64> {
        let runs = runs.lock();
        let of = runs.iter().filter(|(request, _)| request == name);
        of.map(|(_, at)| at.as_secs()).collect()
    };
    assert_eq!(of("ns/busy"), [1, 31, 61], "at once, and then together");
    assert_eq!(of("ns/other"), [21], "each has its own");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn as_long_as_it_takes_may_be_said_of_every_time() {
    let (fake, deadlines) = (Fake::default(), Arc::new(Mutex::new(Vec::new())));
    fake.put(&path("a"), map("1"));
    let noted = Arc::clone(&deadlines);
    let reconciler = noting(&Seen::default(), move |ctx, _| {
        noted.lock().push(ctx.deadline());
        Ok(Outcome::done())
    });
    let never = Request::cluster("never");
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .reconcile_timeout(Duration::MAX)
        .own_writes_timeout(Duration::MAX)
        .cache_sync_timeout(Duration::MAX)
        .watches_source(source::every(Duration::MAX, never))
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("a reconcile", || !deadlines.lock().is_empty()).await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(*deadlines.lock(), [None]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_timer_without_a_period_does_not_spin() {
    use futures::StreamExt;
    let mut timer = source::every(Duration::ZERO, Request::cluster("sweep"));
    let begin = Instant::now();
    for _ in 0..10 {
        timer.next().await.unwrap();
    }
    assert_eq!(begin.elapsed(), Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn a_panic_brings_the_manager_down_if_that_is_wanted() {
    let fake = Fake::default();
    fake.put(&path("a"), map("1"));
    let reconciler = noting(&Seen::default(), |_, _| panic!("boom"));
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .propagate_panics(true)
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    let panics = running.manager.metrics().clone();
    let error = running.run.await.unwrap().unwrap_err().to_string();
    assert!(
        error.starts_with("test failed: a worker panicked"),
        "{error}"
    );
    let line = "controller_runtime_reconcile_panics_total{controller=\"test\"} 1";
    assert!(panics.encode().contains(line));
}

#[tokio::test(start_paused = true)]
async fn a_controller_may_fail_when_its_caches_are_not_filled_in_time() {
    let fake = Fake::default();
    fake.hook(|_, path| path.ends_with("/secrets").then_some(Fate::Refuse(403)));
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .watches::<Secret>(handler::for_object())
        .cache_sync_timeout(Duration::from_secs(30))
        .complete(done(&Seen::default()));
    let running = start(&fake, [controller.unwrap()]).await;
    let begin = Instant::now();
    let error = running.run.await.unwrap().unwrap_err().to_string();
    let took = begin.elapsed().as_secs();
    assert!((30..32).contains(&took), "{took}");
    let start = "test failed: its watches and sources were not ready within 30s: secrets: failing";
    assert!(
        error.starts_with(start) && error.ends_with("(forbidden)"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_the_caches_fill_is_no_error() {
    let fake = Fake::default();
    fake.hook(|_, path| path.ends_with("/configmaps").then_some(Fate::Hang));
    let seen = Seen::default();
    let controller = Controller::builder("test").for_kind::<ConfigMap>();
    let running = start(&fake, [controller.complete(done(&seen)).unwrap()]).await;
    sleep(Duration::from_secs(300)).await;
    assert_eq!(running.manager.runnables()[1].state, State::Syncing);
    running.end().await;
    assert!(seen.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_keeps_a_controller_waiting_is_in_its_metric() {
    let fake = Fake::default();
    fake.hook(|_, path| path.ends_with("/secrets").then_some(Fate::Refuse(403)));
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .watches::<Secret>(handler::for_object())
        .complete(done(&Seen::default()));
    let running = start(&fake, [controller.unwrap()]).await;
    sleep(Duration::from_secs(60)).await;
    let text = running.manager.metrics().encode();
    let line = "reeve_controller_informer_unavailable{controller=\"test\",informer=\"secrets\",cause=\"forbidden\"} 1";
    assert!(text.contains(line), "{text}");
    fake.no_hook();
    eventually_within(Duration::from_secs(60), "it starts", || {
        running.manager.runnables()[1].state == State::Running
    })
    .await;
    let text = running.manager.metrics().encode();
    assert!(!text.contains("reeve_controller_informer_unavailable{"));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn keys_that_fail_together_wait_for_each_other_only_if_that_is_said() {
    const KEYS: usize = 200;
    for shared in [false, true] {
        let (fake, seen) = (Fake::default(), Seen::default());
        for key in 0..KEYS {
            fake.put(&path(&format!("map-{key}")), map("1"));
        }
        let mut builder = Controller::builder("test").for_kind::<ConfigMap>();
        if shared {
            builder = builder.rate_limiter(reeve_workqueue::default_controller_rate_limiter());
        }
        let failing = noting(&seen, |ctx, _| match ctx.attempt() {
            0 => Err(fmt::Error.into()),
            _ => Ok(Outcome::done()),
        });
        let controller = builder.complete(failing).unwrap();
        let running = start(&fake, [controller]).await;
        eventually("each once", || seen.lock().len() >= KEYS).await;
        let first = tokio::time::Instant::now();
        eventually_within(Duration::from_secs(15), "each again", || {
            seen.lock().len() == 2 * KEYS
        })
        .await;
        let took = first.elapsed();
        // 100 tokens, and ten more a second.
        let expected = if shared { 9..12 } else { 0..1 };
        assert!(expected.contains(&took.as_secs()), "{shared}: {took:?}");
        running.end().await;
    }
}
