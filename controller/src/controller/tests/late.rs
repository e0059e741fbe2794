//! Watches and sources that are added to a controller that was added to a manager.

use reeve_workqueue::Queue;

use super::*;
use crate::cache::View;
use crate::controller::figures::Figures;
use crate::controller::watching::Watching;
use crate::lifecycle::Inspect;
use crate::manager::Handle;
use crate::predicate::MetaEvent;

const OTHERS: &str = "/api/v1/namespaces/ns/secrets";

/// A controller for ConfigMaps that runs and has seen `a`, and its handle.
async fn running(fake: &Fake, seen: &Seen, change: impl Change) -> (Running, Handle) {
    fake.put(&path("a"), map("1"));
    let controller = change(Controller::builder("test").for_kind::<ConfigMap>());
    let running = start(fake, []).await;
    let handle = running
        .manager
        .add_controller(controller.complete(done(seen)).unwrap());
    eventually("it runs", || *seen.lock() == ["ns/a"]).await;
    (running, handle.unwrap())
}

type Configured = Builder<Request, ConfigMap, OneKind>;

trait Change: FnOnce(Configured) -> Configured {}

impl<T: FnOnce(Configured) -> Configured> Change for T {}

fn secrets() -> Watch<Secret> {
    Watch::new(View::typed(), handler::for_object())
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_added_while_a_controller_runs_is_like_its_others() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&format!("{OTHERS}/s"), json!({"metadata": {}}));
    fake.put(&format!("{OTHERS}/hidden"), json!({"metadata": {}}));
    fake.put(&format!("{OTHERS}/filtered"), json!({"metadata": {}}));
    let (running, handle) = running(&fake, &seen, |builder: Configured| {
        builder.with_event_filter(|event: &MetaEvent<'_>| {
            event.any(|meta| meta.name.as_deref() != Some("filtered"))
        })
    })
    .await;
    let named =
        predicate::object(|secret: &Secret| secret.metadata.name.as_deref() != Some("hidden"));
    handle.watch(secrets().with_predicate(named)).unwrap();
    eventually("what is there", || seen.lock().len() == 2).await;
    fake.put(&format!("{OTHERS}/t"), json!({"metadata": {}}));
    eventually("what comes", || seen.lock().len() == 3).await;
    assert_eq!(*seen.lock(), ["ns/a", "ns/s", "ns/t"]);
    handle.stop().await;
    fake.put(&format!("{OTHERS}/u"), json!({"metadata": {}}));
    sleep(Duration::from_secs(600)).await;
    assert_eq!(seen.lock().len(), 3, "it goes with the controller");
    let health = running.manager.caches().health();
    assert!(health.is_empty(), "no watch is left: {health:?}");
    let late = handle.watch(secrets());
    assert!(matches!(late, Err(WatchError::NoController(_))), "{late:?}");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_late_watch_for_owners_names_them_as_the_reason() {
    let (fake, reasons) = (Fake::default(), Seen::default());
    let noted = Arc::clone(&reasons);
    let reconciler = reconcile::function(move |ctx: Context, _: Request| {
        noted.lock().push(format!("{:?}", ctx.reasons()));
        async { Ok::<_, reconcile::Error>(Outcome::done()) }
    });
    fake.put(&path("a"), map("1"));
    let controller = Controller::builder("test").for_kind::<ConfigMap>();
    let running = start(&fake, []).await;
    let handle = running
        .manager
        .add_controller(controller.complete(reconciler).unwrap());
    eventually("it runs", || reasons.lock().len() == 1).await;
    let owned = Watch::<Secret, _>::new(View::typed(), handler::for_owner::<ConfigMap>());
    handle.unwrap().watch(owned).unwrap();
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u", "controller": true}]);
    let secret = json!({"metadata": {"ownerReferences": owner}});
    fake.put(&format!("{OTHERS}/s"), secret);
    eventually("it runs again", || reasons.lock().len() == 2).await;
    assert_eq!(*reasons.lock(), ["[Added]", "[Owner]"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_late_watch_that_cannot_be_followed_is_named_and_the_others_go_on() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let (running, handle) = running(&fake, &seen, |builder| builder).await;
    fake.hook(|_, path| path.ends_with("/secrets").then_some(Fate::Refuse(403)));
    fake.put(&format!("{OTHERS}/s"), json!({"metadata": {}}));
    handle.watch(secrets()).unwrap();
    sleep(Duration::from_secs(60)).await;
    fake.put(&path("b"), map("1"));
    eventually("the others go on", || seen.lock().len() == 2).await;
    assert_eq!(handle.state(), State::Running);
    let ready = || running.manager.health().ready().failures();
    let why = ready().remove(0).1;
    assert!(
        why.starts_with("test lacks secrets: failing") && why.ends_with("(forbidden)"),
        "{why}"
    );
    let shown = "reeve_controller_informer_unavailable{controller=\"test\",informer=\"secrets\",cause=\"forbidden\"}";
    assert_eq!(running.metric(shown) as u32, 1);
    fake.no_hook();
    eventually_within(Duration::from_secs(60), "it is attached", || {
        seen.lock().last().unwrap() == "ns/s"
    })
    .await;
    eventually("ready", || ready().is_empty()).await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_late_watch_may_take_as_long_as_the_controllers_caches_may() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let (running, handle) = running(&fake, &seen, |builder: Configured| {
        builder.cache_sync_timeout(Duration::from_secs(30))
    })
    .await;
    sleep(Duration::from_secs(100)).await;
    fake.hook(|_, path| path.ends_with("/secrets").then_some(Fate::Refuse(403)));
    let begin = Instant::now();
    handle.watch(secrets()).unwrap();
    let error = running.run.await.unwrap().unwrap_err().to_string();
    let took = begin.elapsed().as_secs();
    assert!((30..32).contains(&took), "{took}");
    let start = "test failed: its watches and sources were not ready within 30s: secrets: failing";
    assert!(error.starts_with(start), "{error}");
}

#[tokio::test(start_paused = true)]
async fn no_worker_starts_before_a_watch_is_filled_that_came_while_it_waited() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    fake.hook(|_, path| (!path.contains("leases")).then_some(Fate::Refuse(403)));
    let controller = Controller::builder("test").for_kind::<ConfigMap>();
    let running = start(&fake, []).await;
    let handle = running
        .manager
        .add_controller(controller.complete(done(&seen)).unwrap());
    let handle = handle.unwrap();
    eventually("it waits", || handle.state() == State::Syncing).await;
    handle.watch(secrets()).unwrap();
    fake.hook(|_, path| path.ends_with("/secrets").then_some(Fate::Refuse(403)));
    sleep(Duration::from_secs(300)).await;
    assert!(seen.lock().is_empty());
    fake.no_hook();
    let soon = Duration::from_secs(60);
    eventually_within(soon, "it runs", || !seen.lock().is_empty()).await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_added_to_a_standby_is_registered_when_it_leads() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&format!("{OTHERS}/s"), json!({"metadata": {}}));
    fake.hook(|_, path| path.contains("leases").then_some(Fate::Refuse(500)));
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .lease(Election::new("ns", "lock").identity("me"))
        .complete(done(&seen));
    let running = start(&fake, []).await;
    let handle = running.manager.add_controller(controller.unwrap()).unwrap();
    eventually("it stands by", || handle.state() == State::Standby).await;
    handle.watch(secrets()).unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(running.metric("workqueue_depth{name=\"test\""), 0.0);
    assert!(
        fake.log().iter().any(|line| line.contains("/secrets")),
        "its cache fills"
    );
    fake.no_hook();
    eventually("it leads", || *seen.lock() == ["ns/s"]).await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_not_added() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let (running, handle) = running(&fake, &seen, |builder| builder).await;
    let texts = Watch::<Secret, String>::new(
        View::typed(),
        handler::map(|_: &Secret| vec!["text".to_owned()]),
    );
    let late = handle.watch(texts);
    assert!(
        matches!(late, Err(WatchError::OtherRequests(_))),
        "{late:?}"
    );
    let runnable = crate::Runnable::new("runnable", |stop| async move {
        stop.cancelled().await;
        Ok::<_, std::convert::Infallible>(())
    });
    let runnable = running.manager.add(runnable).unwrap();
    let late = runnable.watch(secrets());
    assert!(matches!(late, Err(WatchError::NoController(_))), "{late:?}");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_added_is_read_at_once() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let (running, handle) = running(&fake, &seen, |builder| builder).await;
    let (sender, requests) = source::channel::<Request>(1);
    handle.watch_source::<Request>(requests).unwrap();
    sender
        .send(Request::namespaced("ns", "asked"))
        .await
        .unwrap();
    eventually("it is read", || seen.lock().len() == 2).await;
    handle.stop().await;
    let late = sender.send(Request::namespaced("ns", "late")).await;
    assert_eq!(late, Err(source::SendError::Stopped));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_removed_by_its_handle_or_its_guard_and_stays_without() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let (running, handle) = running(&fake, &seen, |builder| builder).await;
    let secret = |name: &str| fake.put(&format!("{OTHERS}/{name}"), json!({"metadata": {}}));
    let names = || {
        let health = running.manager.caches().health();
        health
            .iter()
            .map(|one| one.name.to_string())
            .collect::<Vec<_>>()
    };
    secret("s");
    drop(handle.watch(secrets()).unwrap());
    eventually("it stays", || seen.lock().len() == 2).await;
    handle.stop().await;
    let controller = Controller::builder("test").for_kind::<ConfigMap>();
    let controller = controller.complete(done(&seen)).unwrap();
    let handle = running.manager.add_controller(controller).unwrap();
    eventually("it runs again", || seen.lock().len() == 3).await;

    for (number, case) in ["removed", "removed and not waited for", "guarded"]
        .iter()
        .enumerate()
    {
        let before = seen.lock().len();
        let watch = handle.watch(secrets()).unwrap();
        eventually("what is there", || seen.lock().len() > before + number).await;
        match *case {
            "removed" => watch.remove().await,
            "guarded" => {
                let kept = watch.remove_on_drop().keep();
                secret(&format!("kept-{number}"));
                eventually("it is kept", || seen.lock().len() > before + number + 1).await;
                drop(kept.clone().remove_on_drop());
                drop(kept.remove());
            }
            _ => drop(watch.remove()),
        }
        sleep(Duration::from_secs(1)).await;
        let before = seen.lock().len();
        secret(&format!("t{number}"));
        sleep(Duration::from_secs(10)).await;
        assert_eq!(seen.lock().len(), before, "{case}");
        watch_is_of_no_use_any_more(&running, &handle);
    }
    // After the linger.
    eventually("its cache stops", || names() == ["configmaps"]).await;
    running.end().await;
}

/// Readiness is well: the controller lacks no member.
fn watch_is_of_no_use_any_more(running: &Running, handle: &Handle) {
    assert!(handle.health().unavailable.is_empty());
    let failures = running.manager.health().ready().failures();
    assert!(failures.is_empty(), "{failures:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_cannot_be_followed_is_no_longer_waited_for_when_it_is_removed() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let (running, handle) = running(&fake, &seen, |builder: Configured| {
        builder.cache_sync_timeout(Duration::from_secs(30))
    })
    .await;
    fake.hook(|_, path| path.ends_with("/secrets").then_some(Fate::Refuse(403)));
    let watch = handle.watch(secrets()).unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(handle.health().unavailable.len(), 1);
    watch.remove().await;
    assert!(handle.health().unavailable.is_empty());
    sleep(Duration::from_secs(100)).await;
    assert_eq!(handle.state(), State::Running);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_removed_is_gone_at_once_despite_a_waiter() {
    let fake = Fake::default();
    let running = start(&fake, []).await;
    let queue = Queue::<Request>::builder().build();
    let caches = running.manager.caches();
    let filters: Arc<[Box<dyn crate::predicate::Filter>]> = Arc::new([]);
    let figures = Figures::of_test();
    let watching = Watching::new("test", queue.clone(), caches.clone(), filters, figures);
    let id = watching.add(secrets().close()).unwrap().unwrap();
    watching.attach();
    watching.synced().await;
    let _waiting = watching.all();
    drop(watching.remove(id));
    fake.put(&format!("{OTHERS}/s"), json!({"metadata": {}}));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(queue.len(), 0);
    // A source that was not started yet.
    let (sender, requests) = source::channel::<Request>(1);
    let id = watching.add_source(requests.into()).unwrap();
    drop(watching.remove(id));
    let late = sender.try_send(Request::namespaced("ns", "late"));
    assert_eq!(late, Err(source::SendError::Stopped));
    // With all others.
    let id = watching.add(secrets().close()).unwrap().unwrap();
    watching.synced().await;
    let _waiting = watching.all();
    drop(watching.detach());
    fake.put(&format!("{OTHERS}/t"), json!({"metadata": {}}));
    sleep(Duration::from_secs(1)).await;
    let named: Vec<String> = queue
        .snapshot_of(10)
        .items
        .iter()
        .map(|item| item.item.to_string())
        .collect();
    assert_eq!(named, ["ns/s"], "t came later");
    drop(watching.remove(id));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_removed_is_dropped() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let (running, handle) = running(&fake, &seen, |builder| builder).await;
    let (sender, requests) = source::channel::<Request>(1);
    let source = handle.watch_source::<Request>(requests).unwrap();
    sender.send(Request::namespaced("ns", "b")).await.unwrap();
    eventually("it is read", || seen.lock().len() == 2).await;
    source.remove().await;
    sleep(Duration::from_millis(1)).await;
    let late = sender.send(Request::namespaced("ns", "late")).await;
    assert_eq!(late, Err(source::SendError::Stopped));
    // A removed source that had failed is not named any more.
    let ended = handle.watch_source::<Request>(futures::stream::empty::<Request>());
    eventually("it is named", || handle.health().unavailable.len() == 1).await;
    ended.unwrap().remove().await;
    assert!(handle.health().unavailable.is_empty());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_comes_and_goes_behind_many_others_wakes_what_it_maps_to() {
    let (fake, seen, others) = (Fake::default(), Seen::default(), Seen::default());
    for number in 0..20_000 {
        fake.put(&format!("{OTHERS}/{number}"), json!({"metadata": {}}));
    }
    let owned = |owner: &str| json!({"metadata": {"labels": {"owner": owner}}});
    let (short, moving) = (format!("{OTHERS}/short"), format!("{OTHERS}/moving"));
    let (running, handle) = running(&fake, &seen, |builder: Configured| builder).await;
    let filled = Controller::builder("filled")
        .watches::<Secret>(handler::for_object())
        .complete(done(&others));
    running.manager.add_controller(filled.unwrap()).unwrap();
    eventually("the cache is filled", || others.lock().len() == 20_000).await;
    seen.lock().clear();
    let owner = handler::map(|object: &Secret| {
        let labels = object.metadata.labels.as_ref();
        let owner = labels.and_then(|labels| labels.get("owner"));
        owner.map(|owner| Request::namespaced("ns", owner.as_str()))
    });
    handle.watch(Watch::new(View::typed(), owner)).unwrap();
    // The cache is ahead of the new handler, which receives the first objects. A reconcile may read it.
    for number in 0..3_000 {
        fake.put(&format!("{OTHERS}/later-{number}"), json!({"metadata": {}}));
    }
    fake.put(&short, owned("of-short"));
    fake.remove(&short);
    fake.put(&moving, owned("first"));
    fake.put(&moving, owned("second"));
    eventually("the owners", || seen.lock().len() == 3).await;
    assert_eq!(*seen.lock(), ["ns/of-short", "ns/first", "ns/second"]);
    running.end().await;
}
