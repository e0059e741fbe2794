//! Requests of objects and their changes, and their order.

use reeve_workqueue::Tenant;

use super::*;

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
    let health = running.manager.runnables().remove(1);
    assert_eq!(health.state, State::Running);
    assert!(health.unavailable[0].optional && health.unavailable[0].cause == "not found");
    let failures = running.manager.health().ready().failures();
    assert!(failures.is_empty(), "it is not needed: {failures:?}");
    fake.no_hook();
    eventually("it is attached", || seen.lock().len() == 2).await;
    assert_eq!(seen.lock()[1], "ns/s");
    assert!(running.manager.runnables()[1].unavailable.is_empty());
    running.end().await;
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

/// Requests objects, the one of this name before the others.
struct First(&'static str);

impl handler::Handler<ConfigMap> for First {
    fn requests(&self, event: &crate::Event<ConfigMap>, request: &mut dyn FnMut(Request)) {
        handler::for_object().requests(event, request);
    }

    fn priority(&self, event: &crate::Event<ConfigMap>) -> Option<i32> {
        let name = event.object().and_then(|map| map.metadata.name.as_deref());
        if name == Some(self.0) {
            return Some(7);
        }
        handler::Handler::<ConfigMap>::priority(&handler::for_object(), event)
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_says_what_goes_first() {
    let (fake, seen) = (Fake::default(), Seen::default());
    for name in ["a", "b", "urgent"] {
        fake.put(&path(name), map("1"));
    }
    let priorities: Arc<Mutex<Vec<i32>>> = Arc::default();
    let noted = Arc::clone(&priorities);
    let reconciler = noting(&seen, move |ctx, _| {
        noted.lock().push(ctx.priority());
        Ok(Outcome::done())
    });
    let controller = Controller::builder("test")
        .watches::<ConfigMap>(First("urgent"))
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("all", || seen.lock().len() == 3).await;
    assert_eq!(*seen.lock(), ["ns/urgent", "ns/a", "ns/b"]);
    assert_eq!(*priorities.lock(), [7, -100, -100]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn changes_of_a_prioritized_watch_go_first_and_its_first_list_does_not() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let secret = "/api/v1/namespaces/ns/secrets/s";
    let data = |value: &str| json!({"metadata": {}, "stringData": {"key": value}});
    fake.put(secret, data("1"));
    fake.put(&path("a"), map("1"));
    let priorities: Arc<Mutex<Vec<i32>>> = Arc::default();
    let noted = Arc::clone(&priorities);
    let reconciler = noting(&seen, move |ctx, _| {
        noted.lock().push(ctx.priority());
        Ok(Outcome::done())
    });
    // The two changes arrive at the same time, and the request with the higher priority goes first.
    let delay = Duration::from_secs(1);
    let controller = Controller::builder("test")
        .watches::<ConfigMap>(handler::delayed(delay, handler::for_object()))
        .watches::<Secret>(handler::delayed(
            delay,
            handler::prioritized(10, handler::for_object()),
        ))
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("first list", || seen.lock().len() == 2).await;
    assert_eq!(*priorities.lock(), [-100, -100]);
    fake.put(&path("a"), map("2"));
    fake.put(secret, data("2"));
    eventually("changes", || seen.lock().len() == 4).await;
    assert_eq!(seen.lock()[2..], ["ns/s", "ns/a"]);
    assert_eq!(priorities.lock()[2..], [10, 0]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_delay_are_one_request() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let delay = Duration::from_secs(5);
    let controller = Controller::builder("test")
        .watches::<ConfigMap>(handler::delayed(delay, handler::for_object()))
        .complete(done(&seen));
    let begin = Instant::now();
    let running = start(&fake, [controller.unwrap()]).await;
    for version in ["2", "3", "4"] {
        sleep(Duration::from_secs(1)).await;
        fake.put(&path("a"), map(version));
    }
    assert!(seen.lock().is_empty());
    eventually("one", || seen.lock().len() == 1).await;
    assert_eq!(begin.elapsed().as_secs(), 5);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(seen.lock().len(), 1);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn tenants_of_a_controller_take_turns() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let tenant = |request: &Request| {
        let (tenant, _) = request.name.split_once('-').unwrap();
        Tenant::of(tenant)
    };
    for name in ["noisy-1", "noisy-2", "noisy-3", "quiet-1"] {
        fake.put(&path(name), map("1"));
    }
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .fair_by(tenant)
        .ageing(None)
        .complete(done(&seen));
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("all", || seen.lock().len() == 4).await;
    let order = ["ns/noisy-1", "ns/quiet-1", "ns/noisy-2", "ns/noisy-3"];
    assert_eq!(*seen.lock(), order);
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
