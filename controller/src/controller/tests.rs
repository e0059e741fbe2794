//! Controllers in a manager against a small API server, under paused time.

mod builder;
mod late;
mod lease;
mod outcomes;
mod own_writes;
mod sources;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_core::params::{Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::context::Context;
use crate::fake::{Fake, Fate, clock, eventually};
use crate::leader_election::Options as Election;
use crate::manager::{Error as ManagerError, Manager, State};
use crate::reconcile::{self, Outcome};
use crate::{handler, predicate, source};

type Seen = Arc<Mutex<Vec<String>>>;

struct Running {
    fake: Fake,
    manager: Manager,
    stop: CancellationToken,
    run: JoinHandle<Result<(), ManagerError>>,
}

impl Running {
    async fn end(self) {
        self.stop.cancel();
        self.run.await.unwrap().unwrap();
    }

    /// The value of a metric line that starts with `name`.
    fn metric(&self, name: &str) -> f64 {
        let text = self.manager.metrics().encode();
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit(' ').next());
        value
            .unwrap_or_else(|| panic!("no {name} in {text}"))
            .parse()
            .unwrap()
    }
}

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/ns/configmaps/{name}")
}

fn map(value: &str) -> serde_json::Value {
    json!({"metadata": {}, "data": {"key": value}})
}

async fn start(fake: &Fake, controllers: impl IntoIterator<Item = Controller>) -> Running {
    let manager = Manager::builder(fake.client())
        .clock(clock())
        .build()
        .await
        .unwrap();
    for controller in controllers {
        manager.add_controller(controller).unwrap();
    }
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

/// A reconciler that notes its request and answers what `answer` says.
fn noting<F>(seen: &Seen, answer: F) -> impl reconcile::Reconciler
where
    F: Fn(&Context, &Request) -> Result<Outcome, reconcile::Error> + Send + Sync + 'static,
{
    let seen = Arc::clone(seen);
    reconcile::function(move |ctx: Context, request: Request| {
        seen.lock().push(request.to_string());
        let answer = answer(&ctx, &request);
        async move { answer }
    })
}

fn done(seen: &Seen) -> impl reconcile::Reconciler {
    noting(seen, |_, _| Ok(Outcome::done()))
}

#[test]
fn a_controller_without_name_watch_or_worker_is_refused() {
    let seen = Seen::default();
    let nameless = Controller::builder("")
        .for_kind::<ConfigMap>()
        .complete(done(&seen));
    assert_eq!(nameless.unwrap_err(), BuildError::NoName);
    let blind = Controller::builder("blind").complete(done(&seen));
    assert_eq!(blind.unwrap_err(), BuildError::NoWatch("blind".into()));
    let idle = Controller::builder("idle")
        .for_kind::<ConfigMap>()
        .workers(0);
    let idle = idle.complete(done(&seen));
    assert_eq!(idle.unwrap_err(), BuildError::NoWorkers("idle".into()));
    let leased = || {
        let lease = crate::leader_election::Options::new("ns", "lock", "me");
        Controller::builder("both")
            .for_kind::<ConfigMap>()
            .lease(lease)
            .without_leader_election()
    };
    let both = leased().complete(done(&seen));
    let contradiction = BuildError::LeaseWithoutElection("both".into());
    assert_eq!(both.unwrap_err(), contradiction);
    assert!(
        leased()
            .with_leader_election()
            .complete(done(&seen))
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn names_of_controllers_are_unique_in_a_manager() {
    let seen = Seen::default();
    let manager = Manager::builder(Fake::default().client())
        .build()
        .await
        .unwrap();
    let one = || {
        Controller::builder("one")
            .for_kind::<ConfigMap>()
            .complete(done(&seen))
            .unwrap()
    };
    manager.add_controller(one()).unwrap();
    assert!(matches!(
        manager.add_controller(one()),
        Err(ManagerError::DuplicateController(name)) if name == "one"
    ));
}

#[tokio::test(start_paused = true)]
async fn a_controller_is_removed_with_its_handlers_and_added_again() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let one = |seen: &Seen| {
        Controller::builder("one")
            .for_kind::<ConfigMap>()
            .complete(done(seen))
            .unwrap()
    };
    let others = Seen::default();
    let other = Controller::builder("other").for_kind::<ConfigMap>();
    let running = start(&fake, [other.complete(done(&others)).unwrap()]).await;
    let manager = &running.manager;
    let handlers = || -> Vec<String> {
        let health = manager.caches().health();
        let names = health[0]
            .handlers
            .iter()
            .map(|handler| handler.name.to_string());
        names.collect()
    };
    eventually("the other one works", || others.lock().len() == 1).await;
    for round in 1..=3 {
        let handle = manager.add_controller(one(&seen)).unwrap();
        assert!(
            manager.add_controller(one(&seen)).is_err(),
            "its name is taken"
        );
        eventually("it works", || seen.lock().len() == round).await;
        assert_eq!(handlers(), ["other", "one"]);
        handle.stop().await;
        eventually("its handlers are gone", || handlers() == ["other"]).await;
        fake.put(&path("a"), map(&format!("round {round}")));
        sleep(Duration::from_secs(60)).await;
        assert_eq!(seen.lock().len(), round, "nobody works for it");
    }
    assert_eq!(others.lock().len(), 4);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_controller_ends_what_it_is_at() {
    let fake = Fake::default();
    for name in ["a", "b"] {
        fake.put(&path(name), map("1"));
    }
    let log = Seen::default();
    let noted = Arc::clone(&log);
    let reconciler = reconcile::function(move |_: Context, request: Request| {
        let log = Arc::clone(&noted);
        async move {
            log.lock().push(format!("+{request}"));
            sleep(Duration::from_secs(5)).await;
            log.lock().push(format!("-{request}"));
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let running = start(&fake, []).await;
    let controller = Controller::builder("test").for_kind::<ConfigMap>();
    let controller = controller.complete(reconciler).unwrap();
    let handle = running.manager.add_controller(controller).unwrap();
    eventually("started", || log.lock().len() == 1).await;
    let at_work = handle.health().at_work;
    assert_eq!(at_work, ["ns/a for 0 s"]);
    handle.request_stop();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(handle.state(), State::Stopping);
    handle.ended().await;
    assert_eq!(*log.lock(), ["+ns/a", "-ns/a"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_hangs_is_named_when_the_grace_period_ends() {
    let fake = Fake::default();
    fake.put(&path("a"), map("1"));
    let reconciler = reconcile::function(|_: Context, _: Request| {
        std::future::pending::<Result<Outcome, reconcile::Error>>()
    });
    let controller = Controller::builder("test").for_kind::<ConfigMap>();
    let running = start(&fake, [controller.complete(reconciler).unwrap()]).await;
    sleep(Duration::from_secs(60)).await;
    running.stop.cancel();
    let error = running.run.await.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "still running when the grace period of 30s ended: test (reconciling ns/a for 80 s)"
    );
}

#[tokio::test(start_paused = true)]
async fn an_optional_kind_is_attached_when_it_appears() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    fake.put("/api/v1/namespaces/ns/secrets/s", json!({"metadata": {}}));
    fake.hook(|_, path| path.ends_with("/secrets").then_some(Fate::Refuse(404)));
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .watches::<Secret>(handler::for_object())
        .optional()
        .complete(done(&seen));
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("it starts without", || *seen.lock() == ["ns/a"]).await;
    let health = running.manager.health().runnables().remove(1);
    assert_eq!(health.state, State::Running);
    assert!(health.unavailable[0].optional && health.unavailable[0].cause == "not found");
    let failures = running.manager.health().ready().failures();
    assert!(failures.is_empty(), "it is not needed: {failures:?}");
    fake.no_hook();
    eventually("it is attached", || seen.lock().len() == 2).await;
    assert_eq!(seen.lock()[1], "ns/s");
    assert!(
        running.manager.health().runnables()[1]
            .unavailable
            .is_empty()
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_warm_standby_has_its_queue_filled_and_reconciles_nothing() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    fake.hook(|_, path| path.contains("leases").then_some(Fate::Refuse(500)));
    let manager = Manager::builder(fake.client())
        .clock(clock())
        .leader_election(Election::new("ns", "lock", "me"))
        .build()
        .await
        .unwrap();
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .warm_up(true)
        .complete(done(&seen));
    let handle = manager.add_controller(controller.unwrap()).unwrap();
    let stop = CancellationToken::new();
    let (running, token) = (manager.clone(), stop.clone());
    let run = tokio::spawn(async move { running.run(token).await });
    let depth = "workqueue_depth{name=\"test\",controller=\"test\",priority=\"-100\"} 1";
    eventually("queued", || manager.metrics().encode().contains(depth)).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(handle.state(), State::Standby);
    assert!(seen.lock().is_empty());
    fake.no_hook();
    eventually("it leads", || *seen.lock() == ["ns/a"]).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(seen.lock().len(), 1, "and nothing comes twice");
    stop.cancel();
    run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn objects_are_reconciled_at_the_start_and_when_they_change() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("old"), map("1"));
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(done(&seen));
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("first", || *seen.lock() == ["ns/old"]).await;
    fake.put(&path("new"), map("1"));
    eventually("second", || seen.lock().last().unwrap() == "ns/new").await;
    fake.remove(&path("old"));
    eventually("third", || seen.lock().len() == 3).await;
    assert_eq!(seen.lock()[2], "ns/old");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_result_decides_when_the_key_comes_back() {
    let second = Duration::from_secs(1);
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let noted = Arc::clone(&times);
    let reconciler = noting(&seen, move |ctx, _| {
        let mut times = noted.lock();
        times.push(Instant::now());
        match times.len() {
            1 => Err(reconcile::Error::message("first")),
            2 => {
                assert_eq!(ctx.attempt(), 1);
                Err(reconcile::Error::message("second"))
            }
            3 => Ok(Outcome::retry()),
            4 => {
                assert_eq!(ctx.attempt(), 3, "retry counts as a failure");
                Ok(Outcome::requeue_after(Duration::from_secs(60)))
            }
            5 => {
                assert_eq!(ctx.attempt(), 0, "requeue_after forgets the failures");
                Err(reconcile::Error::message("again from the start"))
            }
            _ => Ok(Outcome::terminal(reconcile::Error::message("for good"))),
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("six runs", || times.lock().len() == 6).await;
    sleep(second * 600).await;
    let times = times.lock().clone();
    assert_eq!(times.len(), 6, "a terminal outcome is not tried again");
    let gaps: Vec<u128> = times
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_millis())
        .collect();
    assert_eq!(gaps, [5, 10, 20, 60_000, 5]);
    let total = |result: &str| {
        running.metric(&format!(
            "controller_runtime_reconcile_total{{controller=\"test\",result=\"{result}\"}}"
        ))
    };
    assert_eq!(total("error") as u32, 4);
    assert_eq!(total("requeue") as u32, 1);
    assert_eq!(total("requeue_after") as u32, 1);
    assert_eq!(total("success") as u32, 0);
    let label = "{controller=\"test\"}";
    let metric = |name: &str| running.metric(&format!("controller_runtime_{name}{label}")) as u32;
    assert_eq!(metric("reconcile_errors_total"), 4);
    assert_eq!(metric("terminal_reconcile_errors_total"), 1);
    assert_eq!(metric("max_concurrent_reconciles"), 1);
    assert_eq!(metric("active_workers"), 0);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_key_one_try() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("bad"), map("1"));
    fake.put(&path("good"), map("1"));
    let first = AtomicBool::new(true);
    let reconciler = noting(&seen, move |_, request| {
        assert!(
            &*request.name != "bad" || !first.swap(false, Ordering::Relaxed),
            "boom"
        );
        Ok(Outcome::done())
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("all", || seen.lock().len() == 3).await;
    assert_eq!(*seen.lock(), ["ns/bad", "ns/good", "ns/bad"]);
    let panics = running.metric("controller_runtime_reconcile_panics_total");
    assert_eq!(panics as u32, 1);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_is_cut_off_at_the_timeout_and_tried_again() {
    let fake = Fake::default();
    fake.put(&path("a"), map("1"));
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let reconciler = reconcile::function(move |_: Context, _: Request| {
        let run = counted.fetch_add(1, Ordering::Relaxed);
        async move {
            if run == 0 {
                sleep(Duration::from_secs(3600)).await;
            }
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .reconcile_timeout(Duration::from_secs(7))
        .complete(reconciler);
    let begin = Instant::now();
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("tried again", || runs.load(Ordering::Relaxed) == 2).await;
    assert!(begin.elapsed() < Duration::from_secs(8));
    let timeouts = running.metric("controller_runtime_reconcile_timeouts_total");
    assert_eq!(timeouts as u32, 1);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn no_reconcile_before_every_handler_has_seen_its_first_list() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    fake.hook(|_, path| path.ends_with("/secrets").then_some(Fate::Refuse(403)));
    let both = Controller::builder("both")
        .for_kind::<ConfigMap>()
        .watches::<Secret>(handler::for_object())
        .complete(done(&seen));
    let others = Seen::default();
    let one = Controller::builder("one")
        .for_kind::<ConfigMap>()
        .complete(done(&others));
    let running = start(&fake, [both.unwrap(), one.unwrap()]).await;
    eventually("the other controller works", || others.lock().len() == 1).await;
    sleep(Duration::from_secs(120)).await;
    assert!(seen.lock().is_empty(), "secrets are forbidden: it waits");
    let why = running.manager.health().ready().failures();
    let why: Vec<&str> = why.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(why, ["controllers", "informers"]);
    let why = running.manager.health().ready().failures().remove(0).1;
    assert!(
        why.starts_with("both lacks secrets: failing") && why.ends_with("(forbidden)"),
        "readiness names the controller, the kind and the cause: {why}"
    );
    let states: Vec<(String, State)> = running
        .manager
        .health()
        .runnables()
        .into_iter()
        .map(|health| (health.name, health.state))
        .collect();
    assert_eq!(states[1], ("both".to_owned(), State::Syncing));
    assert_eq!(states[2], ("one".to_owned(), State::Running));
    fake.no_hook();
    eventually("it goes on", || !seen.lock().is_empty()).await;
    eventually("ready", || {
        running.manager.health().ready().failures().is_empty()
    })
    .await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_learns_at_the_end_of_the_lease_that_it_may_no_longer_act() {
    let fake = Fake::default();
    fake.put(&path("a"), map("1"));
    let manager = Manager::builder(fake.client())
        .clock(clock())
        .leader_election(Election::new("ns", "lock", "me"))
        .build()
        .await
        .unwrap();
    let answers: Arc<Mutex<Vec<bool>>> = Arc::default();
    let noted = Arc::clone(&answers);
    let reconciler = reconcile::function(move |ctx: Context, _: Request| {
        let noted = Arc::clone(&noted);
        async move {
            noted.lock().push(ctx.check_fence("call").is_ok());
            // Suspended past the lease.
            tokio::time::advance(Duration::from_secs(60)).await;
            let refused = ctx
                .check_fence("call another system")
                .map_err(|why| why.to_string());
            noted.lock().push(refused.is_ok());
            assert!(
                refused
                    .unwrap_err()
                    .starts_with("call another system: not sent")
            );
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(reconciler);
    manager.add_controller(controller.unwrap()).unwrap();
    let stop = CancellationToken::new();
    let (running, token) = (manager.clone(), stop.clone());
    let run = tokio::spawn(async move { running.run(token).await });
    eventually("asked twice", || answers.lock().len() == 2).await;
    assert_eq!(*answers.lock(), [true, false]);
    stop.cancel();
    let _ = run.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_standby_queues_nothing_and_finds_every_object_when_it_leads() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("goes"), map("1"));
    fake.put(&path("stays"), map("1"));
    let lease = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lock";
    fake.hook(move |_, path| path.starts_with(lease).then_some(Fate::Refuse(500)));
    let manager = Manager::builder(fake.client())
        .clock(clock())
        .leader_election(Election::new("ns", "lock", "me"))
        .build()
        .await
        .unwrap();
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(done(&seen));
    manager.add_controller(controller.unwrap()).unwrap();
    let stop = CancellationToken::new();
    let (running, token) = (manager.clone(), stop.clone());
    let run = tokio::spawn(async move { running.run(token).await });
    let running = Running {
        fake: fake.clone(),
        manager: manager.clone(),
        stop,
        run,
    };
    let cached = || {
        manager
            .caches()
            .lister::<ConfigMap>()
            .is_ok_and(|lister| lister.list().is_ok_and(|list| list.len() == 2))
    };
    eventually("the cache of the standby is filled", cached).await;
    fake.remove(&path("goes"));
    sleep(Duration::from_secs(5)).await;
    let metrics = manager.metrics().encode();
    let waiting = metrics
        .lines()
        .find(|line| line.starts_with("workqueue_depth{") && !line.ends_with(" 0"));
    assert_eq!(waiting, None, "nothing waits where nobody takes");
    assert!(seen.lock().is_empty());
    fake.no_hook();
    eventually("it leads", || !seen.lock().is_empty()).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(*seen.lock(), ["ns/stays"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_no_news_waits_behind_changes() {
    let (fake, seen) = (Fake::default(), Seen::default());
    for name in ["a", "b", "c"] {
        fake.put(&path(name), map("1"));
    }
    let (sender, stream) = source::channel::<Request>(10);
    sender
        .send(Request::namespaced("ns", "urgent"))
        .await
        .unwrap();
    let lower = source::Wanted::with_priority(Request::namespaced("ns", "idle"), LOW_PRIORITY - 1);
    sender.send(lower).await.unwrap();
    let priorities: Arc<Mutex<Vec<i32>>> = Arc::default();
    let noted = Arc::clone(&priorities);
    let reconciler = noting(&seen, move |ctx, _| {
        noted.lock().push(ctx.priority());
        Ok(Outcome::done())
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .watches_source(stream)
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("all", || seen.lock().len() == 5).await;
    assert_eq!(
        *seen.lock(),
        ["ns/urgent", "ns/a", "ns/b", "ns/c", "ns/idle"]
    );
    assert_eq!(*priorities.lock(), [0, -100, -100, -100, -101]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn predicates_apply_to_the_kind_named_before_them() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    fake.put("/api/v1/namespaces/ns/secrets/s", json!({"metadata": {}}));
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .with_predicate(predicate::labels_changed())
        .watches::<Secret>(handler::for_object())
        .complete(done(&seen));
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("first list", || seen.lock().len() == 2).await;
    fake.put(&path("a"), map("2"));
    fake.put(
        "/api/v1/namespaces/ns/secrets/s",
        json!({"metadata": {}, "type": "x"}),
    );
    sleep(Duration::from_secs(5)).await;
    assert_eq!(seen.lock()[2..], ["ns/s"]);
    fake.put(&path("a"), json!({"metadata": {"labels": {"a": "b"}}}));
    eventually("labels", || seen.lock().len() == 4).await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn owned_objects_request_their_owner() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .owns::<Secret>()
        .complete(done(&seen));
    let running = start(&fake, [controller.unwrap()]).await;
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "boss", "uid": "u", "controller": true}]);
    sleep(Duration::from_secs(1)).await;
    let owned = json!({"metadata": {"ownerReferences": owner}});
    fake.put("/api/v1/namespaces/ns/secrets/s", owned);
    eventually("owner", || *seen.lock() == ["ns/boss"]).await;
    running.end().await;
}

/// A reconciler that counts up `data.key` in its object once, by what the cache shows, and notes what it saw.
fn counting(seen: &Seen, again: Duration) -> impl reconcile::Reconciler {
    let seen = Arc::clone(seen);
    reconcile::function(move |ctx: Context, request: Request| {
        let seen = Arc::clone(&seen);
        async move {
            let object = ctx.lister::<ConfigMap>()?.get(&request)?;
            let data = object
                .and_then(|object| object.data.clone())
                .unwrap_or_default();
            let value = data.get("key").cloned().unwrap_or_default();
            seen.lock().push(value.clone());
            if value == "1" {
                let patch = Patch::Merge(json!({"data": {"key": "2"}}));
                ctx.client()
                    .patch::<ConfigMap, _>(&request, &PatchParams::default(), &patch)
                    .await?;
            }
            Ok::<_, reconcile::Error>(Outcome::requeue_after(again))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_until_the_cache_shows_what_it_wrote() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(counting(&seen, Duration::from_millis(10)));
    // The first list shows the object; events do not come.
    fake.hold_watches(true);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("first", || !seen.lock().is_empty()).await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(*seen.lock(), ["1"], "the cache is behind: the key is held");
    fake.hold_watches(false);
    let released = Instant::now();
    eventually("goes on", || seen.lock().len() >= 2).await;
    assert!(released.elapsed() <= Duration::from_millis(300));
    assert_eq!(seen.lock()[1], "2", "and it sees its own write");
    assert!(running.metric("reeve_read_your_writes_waits_total") >= 1.0);
    let timeouts = running.metric("reeve_read_your_writes_timeouts_total");
    assert_eq!(timeouts as u32, 0);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn past_the_timeout_a_key_runs_anyway_and_that_is_counted() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .own_writes_timeout(Duration::from_secs(2))
        .complete(counting(&seen, Duration::from_secs(1)));
    fake.hold_watches(true);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("first", || seen.lock().len() == 1).await;
    let begin = Instant::now();
    eventually("second", || seen.lock().len() == 2).await;
    assert!(begin.elapsed() >= Duration::from_secs(2) - Duration::from_millis(20));
    assert_eq!(seen.lock()[1], "1", "the cache is still behind");
    let timeouts = running.metric("reeve_read_your_writes_timeouts_total");
    assert_eq!(timeouts as u32, 1);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_was_lost_is_looked_up_before_the_next_run() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(counting(&seen, Duration::from_secs(1)));
    let lost = AtomicBool::new(false);
    fake.hook(move |method, _| {
        let patch = *method == Method::PATCH;
        (patch && !lost.swap(true, Ordering::Relaxed)).then_some(Fate::Lose)
    });
    fake.hold_watches(true);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("first", || seen.lock().len() == 1).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(
        seen.lock().len(),
        1,
        "it happened, and the cache does not show it: held"
    );
    let asked = running
        .fake
        .log()
        .iter()
        .filter(|line| line.starts_with("GET "))
        .count();
    assert_eq!(asked, 1, "one read settled it");
    fake.hold_watches(false);
    eventually("second", || seen.lock().len() == 2).await;
    assert_eq!(seen.lock()[1], "2");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_the_running_reconcile_end_and_starts_no_other() {
    let fake = Fake::default();
    for name in ["a", "b"] {
        fake.put(&path(name), map("1"));
    }
    let log = Seen::default();
    let noted = Arc::clone(&log);
    let reconciler = reconcile::function(move |ctx: Context, request: Request| {
        let log = Arc::clone(&noted);
        async move {
            log.lock().push(format!("+{request}"));
            ctx.stopping().cancelled().await;
            sleep(Duration::from_secs(5)).await;
            log.lock().push(format!("-{request}"));
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("started", || log.lock().len() == 1).await;
    running.end().await;
    assert_eq!(*log.lock(), ["+ns/a", "-ns/a"]);
}

#[tokio::test(start_paused = true)]
async fn one_key_is_never_reconciled_twice_at_once() {
    let fake = Fake::default();
    fake.put(&path("a"), map("1"));
    let (active, most, runs) = (
        AtomicU32::new(0),
        Arc::new(AtomicU32::new(0)),
        Arc::new(AtomicU32::new(0)),
    );
    let (active, peak, count) = (Arc::new(active), Arc::clone(&most), Arc::clone(&runs));
    let reconciler = reconcile::function(move |_: Context, _: Request| {
        let (active, peak, count) = (Arc::clone(&active), Arc::clone(&peak), Arc::clone(&count));
        async move {
            peak.fetch_max(
                active.fetch_add(1, Ordering::Relaxed) + 1,
                Ordering::Relaxed,
            );
            sleep(Duration::from_millis(100)).await;
            active.fetch_sub(1, Ordering::Relaxed);
            count.fetch_add(1, Ordering::Relaxed);
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .workers(8)
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    for value in 0..50 {
        fake.put(&path("a"), map(&value.to_string()));
        sleep(Duration::from_millis(20)).await;
    }
    eventually("many runs", || runs.load(Ordering::Relaxed) >= 5).await;
    assert_eq!(most.load(Ordering::Relaxed), 1);
    running.end().await;
}

/// A place for log lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn every_line_of_a_reconcile_bears_its_id_and_key() {
    // Or tracing would note for good, when the thread of another test comes to a line first, that nobody wants it.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let ids: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&ids);
    let reconciler = noting(&seen, move |ctx, _| {
        noted.lock().push(ctx.reconcile_id().to_string());
        tracing::info!("said by the reconciler");
        Ok(Outcome::terminal(reconcile::Error::message(
            "said by the crate",
        )))
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("a run", || seen.lock().len() == 1).await;
    fake.put(&path("a"), map("2"));
    eventually("another", || seen.lock().len() == 2).await;
    running.end().await;
    let ids = ids.lock().clone();
    assert_ne!(ids[0], ids[1]);
    let text = String::from_utf8(lines.0.lock().clone()).unwrap();
    for id in ids {
        let marks = format!("reconcile{{controller=test key=ns/a reconcile_id={id}}}");
        let found = text.lines().filter(|line| line.contains(&marks)).count();
        assert_eq!(found, 2, "{text}");
    }
    let said = text
        .lines()
        .filter(|line| line.contains("said by the"))
        .count();
    assert_eq!(said, 4, "and no such line without");
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_removed_takes_its_series_with_it_and_begins_anew() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let running = start(&fake, []).await;
    for round in 1..=2 {
        let controller = Controller::builder("test")
            .for_kind::<ConfigMap>()
            .complete(done(&seen));
        let handle = running.manager.add_controller(controller.unwrap()).unwrap();
        let series = "controller_runtime_reconcile_total{controller=\"test\",result=\"success\"} 1";
        eventually("reconciled", || {
            running.manager.metrics().encode().contains(series)
        })
        .await;
        assert_eq!(seen.lock().len(), round);
        handle.stop().await;
        let text = running.manager.metrics().encode();
        let left: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("\"test\""))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
    running.end().await;
}
