//! Managers against a small API server, under paused time.

mod grace;
mod stop;

use std::convert::Infallible;

use crate::fake::Managed as _;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::*;
use crate::fake::{Fake, Fate, Running, clock, eventually};
use crate::leader_election::Options as Election;

type Log = Arc<Mutex<Vec<String>>>;

/// A runnable that logs its start and its end; the end takes `ending`.
fn logged(log: &Log, name: &str, ending: Duration) -> Runnable {
    let (log, name) = (Arc::clone(log), name.to_owned());
    Runnable::new(name.clone(), move |stop: CancellationToken| async move {
        log.lock().push(format!("+{name}"));
        stop.cancelled().await;
        sleep(ending).await;
        log.lock().push(format!("-{name}"));
        Ok::<_, Infallible>(())
    })
}

fn failing(after: Duration) -> Runnable {
    Runnable::new("broken", move |_| async move {
        sleep(after).await;
        Err::<(), _>("it broke")
    })
}

async fn manager(fake: &Fake) -> Manager {
    fake.manager().build().await.unwrap()
}

fn spawn(manager: &Manager) -> (CancellationToken, JoinHandle<Result<(), Error>>) {
    let Running { stop, run, .. } = Running::start(manager.clone());
    (stop, run)
}

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lock";

/// Records starts and ends, their seconds after the stop, and the lease's holder at an end.
#[derive(Clone, Default)]
struct Journal {
    fake: Fake,
    log: Log,
    stopped: Arc<OnceLock<Instant>>,
}

impl Journal {
    fn stop(&self, stop: &CancellationToken) {
        self.stopped.set(Instant::now()).unwrap();
        stop.cancel();
    }

    fn note(&self, text: &str) {
        let after = self
            .stopped
            .get()
            .map(|stopped| stopped.elapsed().as_secs());
        let after = after.map(|after| format!(" after {after} s"));
        self.log
            .lock()
            .push(text.to_owned() + &after.unwrap_or_default());
    }

    /// A runnable that ends so many seconds after its stop.
    fn ending(&self, name: &str, seconds: u64) -> Runnable {
        let (journal, name) = (self.clone(), name.to_owned());
        Runnable::new(name.clone(), move |stop: CancellationToken| async move {
            journal.note(&format!("+{name}"));
            stop.cancelled().await;
            sleep(Duration::from_secs(seconds)).await;
            let lease = journal.fake.object(LEASE).unwrap();
            let holder = &lease["spec"]["holderIdentity"];
            journal.note(&format!("-{name} under {holder}"));
            Ok::<_, Infallible>(())
        })
    }

    async fn candidate(&self, identity: &str) -> Manager {
        let election = Election::new("ns", "lock").identity(identity);
        let manager = self.fake.manager().leader_election(election);
        manager.build().await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn groups_start_in_order_and_stop_in_the_reverse() {
    let journal = Journal::default();
    let manager = journal.candidate("me").await;
    manager.add(journal.ending("worker", 3)).unwrap();
    let other = journal.ending("other", 4).without_leader_election();
    manager.add(other).unwrap();
    manager
        .add(journal.ending("server", 2).as_server())
        .unwrap();
    let (stop, run) = spawn(&manager);
    eventually("started", || journal.log.lock().len() == 3).await;
    journal.stop(&stop);
    run.await.unwrap().unwrap();
    assert_eq!(
        *journal.log.lock(),
        [
            "+server",
            "+other",
            "+worker",
            "-worker under \"me\" after 3 s",
            "-other under \"\" after 7 s",
            "-server under \"\" after 9 s"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_standby_runs_all_but_what_needs_the_lease() {
    let fake = Fake::default();
    let log = Log::default();
    let mut runs = Vec::new();
    for name in ["one", "two"] {
        let manager = fake
            .manager()
            .leader_election(Election::new("ns", "lock").identity(name))
            .build()
            .await
            .unwrap();
        manager
            .add(logged(&log, &format!("worker {name}"), Duration::ZERO))
            .unwrap();
        let other = logged(&log, &format!("other {name}"), Duration::ZERO);
        manager.add(other.without_leader_election()).unwrap();
        runs.push(spawn(&manager));
        sleep(Duration::from_secs(30)).await;
    }
    assert_eq!(*log.lock(), ["+other one", "+worker one", "+other two"]);
    let (stop, run) = runs.remove(0);
    stop.cancel();
    run.await.unwrap().unwrap();
    eventually("fail-over", || {
        log.lock().contains(&"+worker two".to_owned())
    })
    .await;
    let (stop, run) = runs.remove(0);
    stop.cancel();
    run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failing_runnable_brings_the_manager_down_with_its_error() {
    let log = Log::default();
    let manager = manager(&Fake::default()).await;
    manager
        .add(logged(&log, "other", Duration::from_secs(1)).without_leader_election())
        .unwrap();
    manager.add(failing(Duration::from_secs(5))).unwrap();
    let (_stop, run) = spawn(&manager);
    let error = run.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "broken failed: it broke");
    assert_eq!(
        *log.lock(),
        ["+other", "-other"],
        "the rest stopped in order"
    );
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_runnable_is_a_failure() {
    let manager = manager(&Fake::default()).await;
    let runnable = Runnable::new("wild", |_| async {
        assert!(clock().now().as_second() < 0, "boom");
        Ok::<_, Infallible>(())
    });
    manager.add(runnable).unwrap();
    let (_stop, run) = spawn(&manager);
    let error = run.await.unwrap().unwrap_err();
    assert!(error.to_string().starts_with("wild failed: "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_runnable_that_ends_well_is_let_go() {
    let manager = manager(&Fake::default()).await;
    manager
        .add(Runnable::new("short", |_| async {
            Ok::<_, Infallible>(())
        }))
        .unwrap();
    let (stop, run) = spawn(&manager);
    sleep(Duration::from_secs(60)).await;
    assert!(!run.is_finished());
    stop.cancel();
    run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_manager_runs_once_and_takes_nothing_after() {
    let manager = manager(&Fake::default()).await;
    let (stop, run) = spawn(&manager);
    sleep(Duration::from_secs(1)).await;
    let again = manager.run(CancellationToken::new()).await;
    assert!(matches!(again, Err(Error::AlreadyRun)));
    stop.cancel();
    run.await.unwrap().unwrap();
    let late = manager.add(failing(Duration::ZERO));
    assert!(matches!(late, Err(Error::Stopping(name)) if name == "broken"));
}

#[tokio::test(start_paused = true)]
async fn a_runnable_added_while_running_starts_at_once() {
    let log = Log::default();
    let manager = manager(&Fake::default()).await;
    let (stop, run) = spawn(&manager);
    sleep(Duration::from_secs(5)).await;
    manager.add(logged(&log, "late", Duration::ZERO)).unwrap();
    eventually("started", || log.lock().len() == 1).await;
    stop.cancel();
    run.await.unwrap().unwrap();
    assert_eq!(*log.lock(), ["+late", "-late"]);
}

#[tokio::test(start_paused = true)]
async fn one_runnable_is_stopped_and_the_others_go_on() {
    let log = Log::default();
    let manager = manager(&Fake::default()).await;
    manager.add(logged(&log, "stays", Duration::ZERO)).unwrap();
    let goes = manager
        .add(logged(&log, "goes", Duration::from_secs(3)))
        .unwrap();
    assert_eq!((goes.name(), goes.state()), ("goes", State::Waiting));
    let (stop, run) = spawn(&manager);
    eventually("started", || log.lock().len() == 2).await;
    assert_eq!(goes.state(), State::Running);
    let begin = Instant::now();
    goes.stop().await;
    assert_eq!(begin.elapsed(), Duration::from_secs(3));
    assert_eq!(goes.state(), State::Stopped);
    sleep(Duration::from_secs(60)).await;
    assert!(!run.is_finished());
    assert_eq!(*log.lock(), ["+stays", "+goes", "-goes"]);
    stop.cancel();
    run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_stopped_before_its_time_never_runs() {
    let fake = Fake::default();
    let log = Log::default();
    fake.hook(|_, path| path.contains("leases").then_some(Fate::Refuse(500)));
    let manager = fake
        .manager()
        .leader_election(Election::new("ns", "lock").identity("me"))
        .build()
        .await
        .unwrap();
    let early = manager.add(logged(&log, "early", Duration::ZERO)).unwrap();
    early.stop().await;
    assert_eq!(early.state(), State::Stopped);
    let standby = manager
        .add(logged(&log, "standby", Duration::ZERO))
        .unwrap();
    let (stop, run) = spawn(&manager);
    eventually("a standby", || standby.state() == State::Standby).await;
    standby.stop().await;
    fake.no_hook();
    sleep(Duration::from_secs(60)).await;
    assert!(*manager.leading().borrow());
    assert!(log.lock().is_empty());
    stop.cancel();
    run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_stops_starts_nothing_for_the_leader_and_leaves_the_lease_alone() {
    let (fake, log) = (Fake::default(), Log::default());
    let lease = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lock";
    let held = serde_json::json!({"metadata": {}, "spec": {
        "holderIdentity": "another", "leaseDurationSeconds": 3600,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z"}});
    fake.put(lease, held);
    let manager = fake
        .manager()
        .leader_election(Election::new("ns", "lock").identity("me"))
        .build()
        .await
        .unwrap();
    let worker = manager.add(logged(&log, "worker", Duration::ZERO)).unwrap();
    let (stop, run) = spawn(&manager);
    eventually("a standby", || worker.state() == State::Standby).await;
    sleep(Duration::from_secs(60)).await;
    let stopped = Instant::now();
    stop.cancel();
    run.await.unwrap().unwrap();
    assert_eq!(stopped.elapsed(), Duration::ZERO, "nothing is waited for");
    assert!(log.lock().is_empty());
    assert_eq!(worker.state(), State::Stopped);
    let holder = fake.object(lease).unwrap()["spec"]["holderIdentity"].clone();
    assert_eq!(holder, "another");
}

#[tokio::test(start_paused = true)]
async fn health_names_the_state_of_each_runnable() {
    let fake = Fake::default();
    let log = Log::default();
    fake.hook(|_, path| path.contains("leases").then_some(Fate::Refuse(500)));
    let manager = fake
        .manager()
        .leader_election(Election::new("ns", "lock").identity("me"))
        .build()
        .await
        .unwrap();
    manager
        .add(logged(&log, "worker", Duration::from_secs(5)))
        .unwrap();
    let other = logged(&log, "other", Duration::from_secs(5)).without_leader_election();
    manager.add(other).unwrap();
    let states = || -> Vec<(String, State)> {
        let runnables = manager.runnables();
        runnables
            .into_iter()
            .map(|health| (health.name, health.state))
            .collect()
    };
    let expected = |worker, other| {
        [
            ("events".to_owned(), State::Running),
            ("worker".to_owned(), worker),
            ("other".to_owned(), other),
        ]
    };
    assert_eq!(states()[1..], expected(State::Waiting, State::Waiting)[1..]);
    let (stop, run) = spawn(&manager);
    eventually("a standby", || log.lock().len() == 1).await;
    assert_eq!(states(), expected(State::Standby, State::Running));
    fake.no_hook();
    eventually("leading", || log.lock().len() == 2).await;
    assert_eq!(states(), expected(State::Running, State::Running));
    stop.cancel();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(states(), expected(State::Stopping, State::Running));
    run.await.unwrap().unwrap();
    assert!(states().is_empty(), "what has ended well is not named");
}

#[tokio::test(start_paused = true)]
async fn two_managers_in_one_process_share_nothing() {
    let log = Log::default();
    let (one, two) = (Fake::default(), Fake::default());
    let (one, two) = (manager(&one).await, manager(&two).await);
    one.add(logged(&log, "one", Duration::ZERO)).unwrap();
    two.add(logged(&log, "two", Duration::ZERO)).unwrap();
    let (first, second) = (spawn(&one), spawn(&two));
    eventually("both run", || log.lock().len() == 2).await;
    first.0.cancel();
    first.1.await.unwrap().unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(*log.lock(), ["+one", "+two", "-one"]);
    assert!(one.runnables().is_empty());
    assert_eq!(two.runnables().len(), 2);
    second.0.cancel();
    second.1.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn readiness_fails_while_stopping() {
    let log = Log::default();
    let manager = manager(&Fake::default()).await;
    manager
        .add(logged(&log, "slow", Duration::from_secs(10)))
        .unwrap();
    let (stop, run) = spawn(&manager);
    eventually("started", || log.lock().len() == 1).await;
    assert!(manager.health().ready().failures().is_empty());
    stop.cancel();
    sleep(Duration::from_secs(1)).await;
    let failures = manager.health().ready().failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_caches_of_a_manager_are_measured() {
    let manager = manager(&Fake::default()).await;
    let _maps = manager
        .caches()
        .informer::<k8s_openapi::api::core::v1::ConfigMap>();
    let (stop, run) = spawn(&manager);
    let labels = r#"name="configmaps",group="",version="v1",resource="configmaps""#;
    for line in [
        format!("informer_synced{{{labels}}} 1.0"),
        format!("reflector_lists_total{{{labels}}} 1"),
    ] {
        eventually(&line, || manager.metrics().encode().contains(&line)).await;
    }
    stop.cancel();
    run.await.unwrap().unwrap();
}

#[tokio::test]
async fn health_and_metrics_are_served_on_free_ports_until_the_stop() {
    let fake = Fake::default();
    let manager = Manager::builder(fake.client())
        .health_address(([127, 0, 0, 1], 0).into())
        .metrics_address(([127, 0, 0, 1], 0).into())
        .build()
        .await
        .unwrap();
    let this = "this_manager";
    manager.health().live().add(this, || Ok(()));
    manager.metrics().register(|registry| {
        let gauge = prometheus_client::metrics::gauge::Gauge::<i64>::default();
        registry.register(this, "To tell it from others", gauge);
    });
    let (stop, run) = spawn(&manager);
    for (address, path, expected) in [
        (manager.health_address(), "/healthz?verbose", this),
        (manager.health_address(), "/readyz/informers", "ok"),
        (manager.metrics_address(), "/metrics", this),
    ] {
        let answer = ask(address.unwrap(), path).await.unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains(expected),
            "{path}: {answer}"
        );
    }
    stop.cancel();
    run.await.unwrap().unwrap();
    for (address, path) in [
        (manager.health_address(), "/healthz?verbose"),
        (manager.metrics_address(), "/metrics"),
    ] {
        // Another test may have bound the port since.
        let answer = ask(address.unwrap(), path).await.unwrap_or_default();
        assert!(!answer.contains(this), "{path}: {answer}");
    }
}

/// The answer at `address`; an error without a listener.
async fn ask(address: SocketAddr, path: &str) -> std::io::Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    // Another process at this port may be slow.
    let read = stream.read_to_end(&mut answer);
    timeout(Duration::from_secs(10), read).await??;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test(start_paused = true)]
async fn what_is_added_while_the_caches_fill_starts_when_its_group_may() {
    let (fake, log) = (Fake::default(), Log::default());
    fake.hook(|_, path| path.contains("configmaps").then_some(Fate::Hang));
    let manager = manager(&fake).await;
    let _maps = manager
        .caches()
        .informer::<k8s_openapi::api::core::v1::ConfigMap>();
    let early = manager.add(logged(&log, "early", Duration::ZERO)).unwrap();
    let (stop, run) = spawn(&manager);
    sleep(Duration::from_secs(1)).await;
    let server = logged(&log, "server", Duration::ZERO).as_server();
    manager.add(server).unwrap();
    let _worker = manager.add(logged(&log, "worker", Duration::ZERO)).unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(*log.lock(), ["+server"]);
    let stopping = Instant::now();
    early.stop().await;
    assert_eq!(stopping.elapsed(), Duration::ZERO);
    sleep(Duration::from_secs(180)).await;
    assert_eq!(*log.lock(), ["+server", "+worker"]);
    stop.cancel();
    run.await.unwrap().unwrap();
}
