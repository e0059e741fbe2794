//! The series of a controller with a lease of its own.

use super::*;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lock";

fn lease() -> Election {
    Election::new("ns", "lock").identity("me")
}

/// The depth of the queue over all priorities.
fn depth(running: &Running) -> f64 {
    let text = running.manager.metrics().encode();
    let depths = text
        .lines()
        .filter(|line| line.starts_with("workqueue_depth{name=\"test\""));
    let depths = depths.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    depths.sum()
}

#[tokio::test(start_paused = true)]
async fn the_queue_of_a_process_that_lost_its_lease_counts_what_it_would_begin_with() {
    let (fake, seen) = (Fake::default(), Seen::default());
    for name in ["a", "b", "c"] {
        fake.put(&path(name), map("1"));
    }
    let well = Arc::new(AtomicBool::new(false));
    let (is_well, noted) = (Arc::clone(&well), Arc::clone(&seen));
    let reconciler = reconcile::function(move |_: Context, request: Request| {
        let well = is_well.load(Ordering::Relaxed);
        noted.lock().push(request.to_string());
        async move {
            if !well {
                std::future::pending::<()>().await;
            }
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .lease(lease())
        .complete(reconciler);
    let running = start(&fake, []).await;
    let handle = running.manager.add_controller(controller.unwrap()).unwrap();
    eventually("one is at work", || seen.lock().len() == 1).await;
    assert_eq!(depth(&running), 2.0);
    let mut stolen = fake.object(LEASE).unwrap();
    stolen["spec"]["holderIdentity"] = json!("thief");
    stolen["spec"]["leaseDurationSeconds"] = json!(600);
    fake.put(LEASE, stolen);
    eventually("it stands by", || handle.state() == State::Standby).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(depth(&running), 3.0, "what was dropped, too");
    let unfinished = "workqueue_unfinished_work_seconds{name=\"test\"";
    assert_eq!(running.metric(unfinished), 0.0);
    fake.put(&path("d"), map("1"));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(depth(&running), 3.0, "a standby gets no events");
    well.store(true, Ordering::Relaxed);
    let lease = Duration::from_secs(610);
    eventually_within(lease, "it leads again", || seen.lock().len() == 5).await;
    assert_eq!(depth(&running), 0.0);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_is_dropped_with_the_lease_is_no_failure_of_its_key() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let noted = Arc::clone(&seen);
    let reconciler = reconcile::function(move |ctx: Context, _: Request| {
        let runs = {
            let mut seen = noted.lock();
            seen.push(format!("attempt {}", ctx.attempt()));
            seen.len()
        };
        async move {
            match runs {
                1 => std::future::pending().await,
                2 => Err(reconcile::Error::message("the first error")),
                _ => Ok(Outcome::done()),
            }
        }
    });
    let gave_up = Arc::new(AtomicBool::new(false));
    let gives_up = Arc::clone(&gave_up);
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .lease(lease())
        .max_retries(1, move |_, _| gives_up.store(true, Ordering::Relaxed))
        .complete(reconciler);
    let running = start(&fake, []).await;
    let handle = running.manager.add_controller(controller.unwrap()).unwrap();
    eventually("it is at work", || seen.lock().len() == 1).await;
    let mut stolen = fake.object(LEASE).unwrap();
    stolen["spec"]["holderIdentity"] = json!("thief");
    stolen["spec"]["leaseDurationSeconds"] = json!(30);
    fake.put(LEASE, stolen);
    eventually("it stands by", || handle.state() == State::Standby).await;
    let lease = Duration::from_secs(60);
    eventually_within(lease, "it ends", || seen.lock().len() == 3).await;
    assert_eq!(*seen.lock(), ["attempt 0", "attempt 0", "attempt 1"]);
    assert!(!gave_up.load(Ordering::Relaxed));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_key_wrote_before_its_lease_was_lost_it_waits_for_when_it_leads_again() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let noted = Arc::clone(&seen);
    let reconciler = reconcile::function(move |ctx: Context, request: Request| {
        let noted = Arc::clone(&noted);
        async move {
            let made = ctx.lister::<Secret>()?.get(&request)?.is_some();
            noted.lock().push(format!("made {made}"));
            if !made {
                let metadata = kube_core::ObjectMeta {
                    name: Some(request.name.to_string()),
                    namespace: Some("ns".into()),
                    ..Default::default()
                };
                let secret = Secret {
                    metadata,
                    ..Secret::default()
                };
                ctx.client().create(&secret).await?;
                std::future::pending::<()>().await;
            }
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .owns::<Secret>()
        .own_writes_timeout(Duration::from_secs(45))
        .lease(lease())
        .complete(reconciler);
    let running = start(&fake, []).await;
    fake.hold_watches(true);
    let handle = running.manager.add_controller(controller.unwrap()).unwrap();
    let secret = "/api/v1/namespaces/ns/secrets/a";
    eventually("it wrote", || fake.object(secret).is_some()).await;
    let mut stolen = fake.object(LEASE).unwrap();
    stolen["spec"]["holderIdentity"] = json!("thief");
    stolen["spec"]["leaseDurationSeconds"] = json!(30);
    fake.put(LEASE, stolen);
    eventually("it stands by", || handle.state() == State::Standby).await;
    let lease = Duration::from_secs(40);
    let leads = || handle.state() == State::Running;
    eventually_within(lease, "it leads again", leads).await;
    // More than its time from when it wrote, and less than from when it leads.
    sleep(Duration::from_secs(30)).await;
    assert_eq!(*seen.lock(), ["made false"], "its cache is behind");
    fake.hold_watches(false);
    eventually("it runs again", || seen.lock().len() == 2).await;
    assert_eq!(*seen.lock(), ["made false", "made true"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_gone_leaves_no_series() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let running = start(&fake, []).await;
    let metrics = running.manager.metrics().clone();
    let text = || metrics.encode();
    let add = || {
        let controller = Controller::builder("test")
            .for_kind::<ConfigMap>()
            .lease(lease())
            .complete(done(&seen));
        running.manager.add_controller(controller.unwrap()).unwrap()
    };
    let leads = "leader_election_master_status{name=\"lock\"} 1";
    let handle = add();
    eventually("it leads", || text().contains(leads)).await;
    handle.stop().await;
    assert!(!text().contains("{name=\"lock\"}"), "{}", text());
    add();
    eventually("it leads again", || text().contains(leads)).await;
    running.end().await;
    assert!(text().contains("leader_election_master_status{name=\"lock\"} 0"));
}

/// The log lines of a runtime's threads.
fn logged(runtime: &mut tokio::runtime::Builder) -> (crate::fake::Lines, impl Drop + use<>) {
    let (lines, guard) = crate::fake::Lines::capture();
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    runtime.on_thread_start(move || {
        // For as long as the thread lives.
        std::mem::forget(tracing::dispatcher::set_default(&dispatch));
    });
    (lines, guard)
}

#[test]
fn a_worker_that_blocks_its_thread_keeps_no_source_read_when_its_lease_is_lost() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let (lines, _guard) = logged(&mut runtime);
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    // Held by the stream while the source is read.
    let read = Arc::new(());
    let given = Arc::clone(&read);
    let is_read = || Arc::strong_count(&read) > 2;
    let source = source::Source::starting(move || {
        let given = Arc::clone(&given);
        async move {
            let stream = futures::stream::pending::<Result<Request, std::convert::Infallible>>();
            Ok(futures::StreamExt::inspect(stream, move |_| {
                let _ = &given;
            }))
        }
    });
    let reconciler = reconcile::function(move |_: Context, _: Request| {
        let blocked = Arc::clone(&blocked);
        async move {
            // It ends when `unblock` is dropped.
            let _ = tokio::task::block_in_place(|| blocked.lock().recv());
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .watches_source(source)
        .lease(lease().retry_period(Duration::from_millis(100)))
        .complete(reconciler);
    runtime.block_on(async {
        let fake = Fake::default();
        fake.put(&path("a"), map("1"));
        let running = start(&fake, []).await;
        let handle = running.manager.add_controller(controller.unwrap()).unwrap();
        let at_work = || !handle.health().at_work.is_empty();
        let limit = Duration::from_secs(60);
        eventually_within(limit, "it works and reads", || at_work() && is_read()).await;
        let mut stolen = fake.object(LEASE).unwrap();
        stolen["spec"]["holderIdentity"] = json!("thief");
        stolen["spec"]["leaseDurationSeconds"] = json!(600);
        fake.put(LEASE, stolen);
        eventually_within(limit, "it reads nothing", || !is_read()).await;
        let stands_by = || handle.state() == State::Standby;
        eventually_within(limit, "it stands by", stands_by).await;
        assert!(at_work(), "it could not be dropped");
        let is_logged = || lines.text().contains("workers cannot be dropped");
        eventually_within(limit, "it is is_logged", is_logged).await;
        drop(unblock);
        running.end().await;
    });
}
