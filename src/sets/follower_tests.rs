use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::super::desired::{Group, Source};
use super::super::kind::Capabilities;
use super::super::set::Until;
use super::*;
use crate::outbound::BoxFuture;
use crate::target::Target;

/// An engine of tests: its set, its calls, and whether it answers.
#[derive(Debug, Default)]
struct Scripted {
    set: Mutex<TargetSet>,
    batches: AtomicUsize,
    down: Mutex<bool>,
    hangs: Mutex<bool>,
    /// How long its list takes.
    lists_in: Mutex<Duration>,
    most: Option<usize>,
}

impl SetEngine for Scripted {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            v6: false,
            ranges: true,
            ttl: true,
            most: self.most,
        }
    }

    fn apply<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.batches.fetch_add(1, Ordering::SeqCst);
            if *self.hangs.lock() {
                std::future::pending::<()>().await;
            }
            let mut set = self.set.lock();
            if *self.down.lock() {
                // Half of a batch may have arrived.
                set.insert(target("198.51.100.99"), Until::NEVER);
                return Err(Error("is down".into()));
            }
            for difference in change.differences() {
                match difference.after {
                    Some(until) => set.insert(difference.target, until),
                    None => set.remove(&difference.target),
                };
            }
            Ok(())
        })
    }

    fn snapshot(&self) -> BoxFuture<'_, Result<Option<TargetSet>, Error>> {
        Box::pin(async move {
            if *self.down.lock() {
                return Err(Error("is down".into()));
            }
            let lists_in = *self.lists_in.lock();
            tokio::time::sleep(lists_in).await;
            Ok(Some(self.set.lock().clone()))
        })
    }

    fn clear(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }
}

struct Case {
    desired: Desired,
    engine: Arc<Scripted>,
    follower: Follower,
    registry: prometheus_client::registry::Registry,
}

const RESYNC: Duration = Duration::from_secs(300);

impl Case {
    fn new(engine: Scripted) -> Self {
        Self::following(engine, Desired::new([]), None)
    }

    fn following(
        engine: Scripted,
        desired: Desired,
        leading: Option<watch::Receiver<bool>>,
    ) -> Self {
        let engine = Arc::new(engine);
        let mut registry = prometheus_client::registry::Registry::default();
        let metrics = Metrics::default();
        metrics.register(&mut registry);
        let counts = crate::metrics::Metrics::new();
        counts.register(&mut registry, &Arc::default());
        let parts = Parts {
            desired: desired.clone(),
            metrics,
            counts,
            leading,
        };
        let driven = Arc::clone(&engine) as Arc<dyn SetEngine>;
        Self {
            desired,
            follower: Follower::start("edge", driven, parts, RESYNC),
            engine,
            registry,
        }
    }

    fn ban(&self, text: &str) -> Changed {
        self.desired.insert(&source(), target(text), Until::NEVER)
    }

    fn lift(&self, text: &str) -> Changed {
        self.desired.remove(&source(), target(text))
    }

    fn has(&self, text: &str) -> bool {
        self.engine.set.lock().get(&target(text)).is_some()
    }

    fn batches(&self) -> usize {
        self.engine.batches.load(Ordering::SeqCst)
    }

    fn metric(&self, line: &str) -> bool {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let found = text.lines().any(|it| it == line);
        if !found {
            eprintln!("{text}");
        }
        found
    }
}

fn source() -> Source {
    Source::List("test".into())
}

fn target(text: &str) -> Target {
    text.parse().unwrap()
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn a_ban_and_a_lift_are_confirmed_once_the_engine_has_them() {
    let case = Case::new(Scripted::default());
    let banned = case.ban("192.0.2.7");
    let status = case.follower.confirm(&banned).await.unwrap();
    assert!(status.enforced && status.name == "edge" && case.has("192.0.2.7"));
    let lifted = case.lift("192.0.2.7");
    let status = case.follower.confirm(&lifted).await.unwrap();
    assert!(!status.enforced && !case.has("192.0.2.7"));
}

#[tokio::test(start_paused = true)]
async fn a_ban_that_stands_already_is_confirmed_without_a_batch() {
    let case = Case::new(Scripted::default());
    let banned = case.ban("192.0.2.7");
    case.follower.confirm(&banned).await.unwrap();
    let (before, began) = (case.batches(), Instant::now());
    let again = case.ban("192.0.2.7");
    assert!(case.follower.confirm(&again).await.unwrap().enforced);
    assert_eq!((case.batches(), began.elapsed()), (before, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_burst_costs_few_batches() {
    let case = Case::new(Scripted::default());
    pass(Duration::from_secs(1)).await;
    for number in 0..1000 {
        let octets = [
            u8::try_from(number / 250).unwrap(),
            u8::try_from(number % 250).unwrap(),
        ];
        case.ban(&format!("192.0.{}.{}", octets[0], octets[1]));
        pass(Duration::from_millis(1)).await;
    }
    pass(Duration::from_secs(1)).await;
    assert_eq!(case.engine.set.lock().len(), 1000);
    assert!(case.batches() <= 12, "{}", case.batches());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_done_before_every_block_was_read() {
    let strays = Scripted::default();
    strays.set.lock().insert(target("192.0.2.7"), Until::NEVER);
    let case = Case::following(strays, Desired::new([Group::Blocks]), None);
    case.ban("192.0.2.8");
    pass(Duration::from_secs(60)).await;
    assert!(case.batches() == 0 && case.has("192.0.2.7"));
    case.desired.read(Group::Blocks);
    pass(Duration::from_secs(1)).await;
    assert!(
        !case.has("192.0.2.7"),
        "what an earlier run left is removed"
    );
    assert!(case.has("192.0.2.8"));
}

#[tokio::test(start_paused = true)]
async fn an_engine_of_the_leader_waits_for_the_lead() {
    let (lead, leading) = watch::channel(false);
    let case = Case::following(Scripted::default(), Desired::new([]), Some(leading));
    case.ban("192.0.2.7");
    pass(Duration::from_secs(60)).await;
    assert_eq!(case.batches(), 0);
    lead.send_replace(true);
    pass(Duration::from_secs(1)).await;
    assert!(case.has("192.0.2.7"));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_reported_at_once_and_repaired_from_the_engines_own_list() {
    let case = Case::new(Scripted::default());
    pass(Duration::from_secs(1)).await;
    *case.engine.down.lock() = true;
    let banned = case.ban("192.0.2.7");
    let error = case.follower.confirm(&banned).await.unwrap_err();
    assert_eq!(error.to_string(), "is down");
    let problem = case.follower.problem();
    assert_eq!(problem.as_deref(), Some("set engine edge: is down"));
    let began = Instant::now();
    assert!(case.follower.confirm(&banned).await.is_err());
    assert_eq!(
        began.elapsed(),
        Duration::ZERO,
        "the next caller does not wait"
    );
    pass(Duration::from_secs(600)).await;
    *case.engine.down.lock() = false;
    pass(LONGEST_RETRY).await;
    assert!(case.follower.confirm(&banned).await.unwrap().enforced);
    assert!(!case.has("198.51.100.99"), "half a batch is taken back");
    assert_eq!(case.follower.problem(), None);
    assert!(!case.metric("ipblock_drift_repaired_total{engine=\"edge\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn a_batch_without_an_answer_fails() {
    let case = Case::new(Scripted::default());
    pass(Duration::from_secs(1)).await;
    *case.engine.hangs.lock() = true;
    let banned = case.ban("192.0.2.7");
    let error = case.follower.confirm(&banned).await.unwrap_err();
    assert_eq!(error.to_string(), "no answer in time");
    *case.engine.hangs.lock() = false;
    pass(LONGEST_RETRY).await;
    assert!(case.has("192.0.2.7"));
}

#[tokio::test(start_paused = true)]
async fn drift_is_found_each_resync_interval_repaired_and_counted() {
    let case = Case::new(Scripted::default());
    let banned = case.ban("192.0.2.7");
    case.follower.confirm(&banned).await.unwrap();
    {
        let mut set = case.engine.set.lock();
        set.remove(&target("192.0.2.7"));
        set.insert(target("203.0.113.9"), Until::NEVER);
    }
    pass(RESYNC - Duration::from_secs(2)).await;
    assert!(!case.has("192.0.2.7"));
    pass(Duration::from_secs(4)).await;
    assert!(case.has("192.0.2.7") && !case.has("203.0.113.9"));
    assert!(case.metric("ipblock_drift_repaired_total{engine=\"edge\"} 2"));
}

#[tokio::test(start_paused = true)]
async fn what_the_engine_cannot_express_or_hold_is_said_and_not_waited_for() {
    let case = Case::new(Scripted {
        most: Some(1),
        ..Scripted::default()
    });
    let v6 = case.ban("2001:db8::7");
    let status = case.follower.confirm(&v6).await.unwrap();
    assert_eq!(
        status.message.as_deref(),
        Some("edge does not support IPv6")
    );
    let first = case.ban("192.0.2.1");
    assert!(case.follower.confirm(&first).await.unwrap().enforced);
    let second = case.ban("192.0.2.2");
    let status = case.follower.confirm(&second).await.unwrap();
    assert!(!status.enforced);
    assert_eq!(
        status.message.as_deref(),
        Some("beyond the limit of 1 targets")
    );
    for line in [
        "ipblock_engine_desired{engine=\"edge\"} 3",
        "ipblock_engine_enforced{engine=\"edge\"} 1",
        "ipblock_engine_unsupported{engine=\"edge\"} 1",
        "ipblock_engine_overflow{engine=\"edge\"} 1",
        "ipblock_engine_batches_total{engine=\"edge\",outcome=\"ok\"} 1",
    ] {
        assert!(case.metric(line), "{line}");
    }
    case.lift("192.0.2.1");
    let again = case.ban("192.0.2.2");
    pass(Duration::from_secs(1)).await;
    assert!(
        case.follower.confirm(&again).await.unwrap().enforced,
        "there is room again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_ban_is_not_confirmed_by_a_set_that_a_batch_in_work_is_about_to_take_it_out_of() {
    let case = Case::new(Scripted::default());
    let banned = case.ban("192.0.2.7");
    case.follower.confirm(&banned).await.unwrap();
    // The comparison begins with the lift, and its list takes long.
    *case.engine.lists_in.lock() = Duration::from_secs(5);
    pass(RESYNC).await;
    pass(Duration::from_secs(6)).await;
    case.lift("192.0.2.7");
    case.follower.set_resync(Duration::from_secs(1));
    pass(Duration::from_secs(1)).await;
    let again = case.ban("192.0.2.7");
    let began = Instant::now();
    assert!(case.follower.confirm(&again).await.unwrap().enforced);
    assert!(began.elapsed() > Duration::from_secs(3), "after the batch");
    assert!(case.has("192.0.2.7"));
}

#[tokio::test(start_paused = true)]
async fn an_ended_follower_counts_nothing_any_more() {
    let case = Case::new(Scripted::default());
    case.ban("192.0.2.7");
    case.follower.end().await;
    case.follower.end().await;
    pass(Duration::from_secs(600)).await;
    assert_eq!(case.batches(), 0);
}
