//! What a builder puts together.

use std::fmt;

use kube_core::{Expression, PartialObjectMeta};

use super::*;
use crate::cache::View;
use crate::cluster::Cluster;
use crate::predicate::MetaEvent;

fn secret(name: &str) -> String {
    format!("/api/v1/namespaces/ns/secrets/{name}")
}

/// A manager of its own making with one controller, running.
async fn run(fake: &Fake, manager: Manager, controller: Controller) -> Running {
    manager.add_controller(controller).unwrap();
    let stop = CancellationToken::new();
    let (running, token) = (manager.clone(), stop.clone());
    let run = tokio::spawn(async move { running.run(token).await });
    Running {
        fake: fake.clone(),
        manager,
        stop,
        run,
    }
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
    eventually("both kinds", || sorted() == ["ns/mine", "ns/mine-too"]).await;
    let never = json!({"metadata": {"labels": {"app": "shop"}}});
    fake.put(&secret("never"), never);
    sender.send(Request::cluster("asked")).await.unwrap();
    eventually("a source", || seen.lock().len() == 3).await;
    assert_eq!(seen.lock()[2], "asked");
    // Leaving the selector is the last that is heard of it.
    fake.put(&path("mine"), map("2"));
    eventually("it leaves", || seen.lock().len() == 4).await;
    assert_eq!(seen.lock()[3], "ns/mine");
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
        eventually("owners", || *seen.lock() == expected).await;
        running.end().await;
    }
}

/// A request that names a cluster, too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Far {
    cluster: &'static str,
    name: String,
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster, self.name)
    }
}

fn far(cluster: &'static str) -> impl handler::Handler<ConfigMap, Far> {
    handler::map(move |map: &ConfigMap| {
        let name = map.metadata.name.clone().unwrap_or_default();
        [Far { cluster, name }]
    })
}

#[tokio::test(start_paused = true)]
async fn a_controller_watches_two_clusters_with_requests_that_tell_them_apart() {
    let (here, there, seen) = (Fake::default(), Fake::default(), Seen::default());
    here.put(&path("a"), map("1"));
    there.put(&path("a"), map("1"));
    let manager = Manager::builder(here.client())
        .clock(clock())
        .build()
        .await
        .unwrap();
    let cluster = manager
        .add_cluster(Cluster::builder("edge", there.client()))
        .unwrap();
    let twice = manager.add_cluster(Cluster::builder("edge", there.client()));
    assert!(matches!(twice, Err(ManagerError::DuplicateCluster(name)) if name == "edge"));
    let noted = Arc::clone(&seen);
    let edge = cluster.clone();
    let reconciler = reconcile::function(move |ctx: Context, request: Far| {
        let (seen, edge) = (Arc::clone(&noted), edge.clone());
        async move {
            let lister = match request.cluster {
                "edge" => edge.caches().lister::<ConfigMap>()?,
                _ => ctx.lister::<ConfigMap>()?,
            };
            let key = Request::namespaced("ns", &*request.name);
            let value = lister.get(&key)?.and_then(|map| map.data.clone());
            let value = value.unwrap_or_default().remove("key");
            seen.lock()
                .push(format!("{request} {}", value.unwrap_or_default()));
            if request.cluster == "here" {
                let mirror = Patch::Merge(json!({"data": {"key": "mirrored"}}));
                let params = PatchParams::default();
                ctx.client_of(&edge)
                    .patch::<ConfigMap, _>(&key, &params, &mirror)
                    .await?;
            }
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let controller = Controller::typed::<Far>("mirror")
        .watches::<ConfigMap>(far("here"))
        .watches_in(&cluster, View::<ConfigMap>::typed(), far("edge"))
        .complete(reconciler)
        .unwrap();
    let running = run(&here, manager, controller).await;
    eventually("mirrored", || seen.lock().len() >= 3).await;
    let mut all = seen.lock().clone();
    all.sort();
    assert_eq!(all, ["edge/a 1", "edge/a mirrored", "here/a 1"]);
    // Its informers are measured under a name of their own, and checked on their own.
    let metrics = running.manager.metrics().encode();
    for name in ["configmaps", "edge/configmaps"] {
        let line = format!(
            "informer_synced{{name=\"{name}\",group=\"\",version=\"v1\",resource=\"configmaps\"}} 1.0"
        );
        assert!(metrics.contains(&line), "{metrics}");
    }
    let page = running.manager.health().respond("/readyz", Some("verbose"));
    assert_eq!(page.await.status(), 200);
    // Gone, it asks the server for nothing more.
    running.manager.remove_cluster(cluster).await;
    there.put(&path("b"), map("1"));
    sleep(Duration::from_secs(600)).await;
    assert_eq!(seen.lock().len(), 3);
    running.end().await;
    let late = Manager::builder(here.client()).build().await.unwrap();
    let stopped = CancellationToken::new();
    stopped.cancel();
    late.run(stopped).await.unwrap();
    let refused = late.add_cluster(Cluster::builder("edge", there.client()));
    assert!(matches!(refused, Err(ManagerError::Stopping(name)) if name == "edge"));
}

#[tokio::test(start_paused = true)]
async fn events_of_another_cluster_are_written_there_the_last_ones_too() {
    const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/ns/events";
    for removed in [false, true] {
        let (here, there) = (Fake::default(), Fake::default());
        here.put(&path("a"), map("1"));
        let manager = Manager::builder(here.client())
            .clock(clock())
            .instance("pod-0")
            .build()
            .await
            .unwrap();
        let edge = manager.add_cluster(Cluster::builder("edge", there.client()));
        let edge = edge.unwrap();
        let far = edge.clone();
        let reconciler = noting(&Seen::default(), move |ctx, request| {
            let object = k8s_openapi::api::core::v1::ObjectReference {
                namespace: request.namespace.as_deref().map(str::to_owned),
                name: Some(request.name.to_string()),
                ..Default::default()
            };
            let normal = crate::events::EventType::Normal;
            let recorder = ctx.events_of(&far);
            recorder.event_for(&object, None, normal, "Seen", "Look", "from afar");
            Ok(Outcome::done())
        });
        // Each takes a while, so the last are in the queue at the stop.
        there.hook(|_, path| {
            let event = path.starts_with(EVENTS);
            event.then_some(Fate::Slow(Duration::from_millis(200)))
        });
        let controller = Controller::builder("test")
            .for_kind::<ConfigMap>()
            .complete(reconciler);
        let running = run(&here, manager, controller.unwrap()).await;
        eventually("one", || !there.objects(EVENTS).is_empty()).await;
        let first = there.objects(EVENTS).remove(0);
        assert_eq!(first["reportingController"], "test");
        assert_eq!(first["reportingInstance"], "pod-0");
        for name in ["b", "c", "d"] {
            here.put(&path(name), map("1"));
        }
        sleep(Duration::from_millis(50)).await;
        assert_eq!(there.objects(EVENTS).len(), 1);
        if removed {
            running.manager.remove_cluster(edge).await;
            assert_eq!(there.objects(EVENTS).len(), 4, "before it is gone");
            let runnables = running.manager.health().runnables();
            assert!(runnables.iter().all(|it| it.name != "events of edge"));
        }
        running.end().await;
        assert_eq!(there.objects(EVENTS).len(), 4, "removed {removed}");
        assert!(here.objects(EVENTS).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_of_a_running_manager_fails_alone() {
    let (here, there, seen) = (Fake::default(), Fake::default(), Seen::default());
    here.put(&path("a"), map("1"));
    let controller = Controller::builder("here").for_kind::<ConfigMap>();
    let running = start(&here, [controller.complete(done(&seen)).unwrap()]).await;
    eventually("it works", || seen.lock().len() == 1).await;
    there.hook(|_, _| Some(Fate::Refuse(403)));
    let manager = &running.manager;
    let edge = manager
        .add_cluster(Cluster::builder("edge", there.client()))
        .unwrap();
    let far = Controller::builder("far")
        .watches_in(&edge, View::<ConfigMap>::typed(), handler::for_object())
        .complete(done(&seen))
        .unwrap();
    let far = manager.add_controller(far).unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(far.state(), State::Syncing);
    let failures = manager.health().ready().failures();
    let names: Vec<&str> = failures.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["controllers", "informers-edge"], "{failures:?}");
    here.put(&path("b"), map("1"));
    eventually("here goes on", || seen.lock().len() == 2).await;
    there.no_hook();
    there.put(&path("c"), map("1"));
    eventually("there, too", || seen.lock().len() == 3).await;
    running.end().await;
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

/// A controller for ConfigMaps, as it is put together.
type ForMaps = Builder<Request, ConfigMap, OneKind>;

/// A controller of this name that says `say` for itself.
fn saying(name: &str, seen: &Seen, say: impl FnOnce(ForMaps) -> ForMaps) -> Controller {
    let builder = Controller::builder(name).for_kind::<ConfigMap>();
    say(builder).complete(done(seen)).unwrap()
}

/// What each of the two says of one thing: the manager for all, and one controller for itself.
async fn said(
    defaults: Defaults,
    controller: Controller,
    fake: &Fake,
    election: Option<Election>,
) -> Running {
    let mut manager = Manager::builder(fake.client())
        .clock(clock())
        .controllers(defaults);
    if let Some(election) = election {
        manager = manager.leader_election(election);
    }
    run(fake, manager.build().await.unwrap(), controller).await
}

#[tokio::test(start_paused = true)]
async fn what_the_manager_says_of_workers_counts_unless_the_kind_or_the_controller_says_otherwise()
{
    let defaults = Defaults::new()
        .workers(2)
        .group_kind_concurrency("ConfigMap", 3);
    let (_sender, stream) = source::channel::<Request>(1);
    let seen = Seen::default();
    let of_none = Controller::builder("by the manager").watches_source(stream);
    for (name, controller, expected) in [
        ("by kind", saying("by kind", &seen, |it| it), 3),
        (
            "by itself",
            saying("by itself", &seen, |it| it.workers(5)),
            5,
        ),
        ("by the manager", of_none.complete(done(&seen)).unwrap(), 2),
    ] {
        let running = said(defaults.clone(), controller, &Fake::default(), None).await;
        let labels = format!("{{controller=\"{name}\"}}");
        let workers = format!("controller_runtime_max_concurrent_reconciles{labels}");
        assert_eq!(running.metric(&workers) as u32, expected, "{name}");
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_manager_says_counts_unless_the_controller_says_otherwise() {
    let second = Duration::from_secs(1);
    for own in [None, Some(false), Some(true)] {
        for by_manager in [false, true] {
            let case = format!("manager {by_manager}, controller {own:?}");
            let expected = own.unwrap_or(by_manager);

            let (fake, limit) = (Fake::default(), Arc::new(Mutex::new(None)));
            fake.put(&path("a"), map("1"));
            let noted = Arc::clone(&limit);
            let seen = Seen::default();
            let noting = noting(&seen, move |ctx, _| {
                *noted.lock() = ctx.deadline().map(|deadline| deadline - Instant::now());
                Ok(Outcome::done())
            });
            let mut defaults = Defaults::new();
            if by_manager {
                defaults = defaults.reconcile_timeout(second * 7);
            }
            let mut builder = Controller::builder("test").for_kind::<ConfigMap>();
            if let Some(own) = own {
                builder = builder.reconcile_timeout(if own { second * 7 } else { second * 9 });
            }
            let controller = builder.complete(noting).unwrap();
            let running = said(defaults, controller, &fake, None).await;
            eventually("a run", || !seen.lock().is_empty()).await;
            let timeout = match own {
                Some(false) => Some(second * 9),
                _ => expected.then_some(second * 7),
            };
            assert_eq!(*limit.lock(), timeout, "time-out of a reconcile: {case}");
            running.end().await;

            // A kind that cannot be listed.
            let (fake, seen) = (Fake::default(), Seen::default());
            fake.hook(|_, path| path.ends_with("/configmaps").then_some(Fate::Refuse(403)));
            let mut defaults = Defaults::new();
            if by_manager {
                defaults = defaults.cache_sync_timeout(second * 30);
            }
            let controller = saying("test", &seen, |it| match own {
                None => it,
                Some(true) => it.cache_sync_timeout(second * 30),
                Some(false) => it.cache_sync_timeout(Duration::MAX),
            });
            let running = said(defaults, controller, &fake, None).await;
            sleep(second * 300).await;
            assert_eq!(
                running.run.is_finished(),
                expected,
                "time-out of caches: {case}"
            );
            running.stop.cancel();

            // A standby.
            let (fake, seen) = (Fake::default(), Seen::default());
            fake.put(&path("a"), map("1"));
            fake.hook(|_, path| path.contains("leases").then_some(Fate::Refuse(500)));
            let defaults = Defaults::new().warm_up(by_manager);
            let controller = saying("test", &seen, |it| match own {
                None => it,
                Some(own) => it.warm_up(own),
            });
            let election = Some(Election::new("ns", "lock", "me"));
            let running = said(defaults, controller, &fake, election).await;
            sleep(second * 60).await;
            let waiting = running.manager.queues().report(10)[0].items.len();
            assert_eq!(waiting, usize::from(expected), "warm-up: {case}");
            running.end().await;

            let fake = Fake::default();
            fake.put(&path("a"), map("1"));
            let mut builder: ForMaps = Controller::builder("test").for_kind::<ConfigMap>();
            if let Some(own) = own {
                builder = builder.propagate_panics(own);
            }
            let panicking = super::noting(&Seen::default(), |_, _| panic!("boom"));
            let controller = builder.complete(panicking).unwrap();
            let defaults = Defaults::new().propagate_panics(by_manager);
            let running = said(defaults, controller, &fake, None).await;
            sleep(second * 60).await;
            assert_eq!(running.run.is_finished(), expected, "panics: {case}");
            running.stop.cancel();

            // Whether it runs on a standby.
            let (fake, seen) = (Fake::default(), Seen::default());
            fake.put(&path("a"), map("1"));
            fake.hook(|_, path| path.contains("leases").then_some(Fate::Refuse(500)));
            let mut defaults = Defaults::new();
            if by_manager {
                defaults = defaults.without_leader_election();
            }
            let controller = saying("test", &seen, |it| match own {
                None => it,
                Some(true) => it.without_leader_election(),
                Some(false) => it.with_leader_election(),
            });
            let election = Some(Election::new("ns", "lock", "me"));
            let running = said(defaults, controller, &fake, election).await;
            sleep(second * 60).await;
            assert_eq!(!seen.lock().is_empty(), expected, "every replica: {case}");
            running.end().await;
        }
    }
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
    eventually("three sweeps", || seen.lock().len() == 4).await;
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
                        let params = PatchParams::default();
                        let written = ctx
                            .client()
                            .patch::<ConfigMap, _>(&request, &params, &patch);
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
    assert_eq!(
        running.manager.health().runnables()[1].state,
        State::Syncing
    );
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
    eventually("it starts", || {
        running.manager.health().runnables()[1].state == State::Running
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
        eventually("each again", || seen.lock().len() == 2 * KEYS).await;
        let took = first.elapsed();
        // 100 tokens, and ten more a second.
        let expected = if shared { 9..12 } else { 0..1 };
        assert!(expected.contains(&took.as_secs()), "{shared}: {took:?}");
        running.end().await;
    }
}
