//! The span of a reconcile, as a trace shows it.

use tracing::level_filters::LevelFilter;

use super::*;
use crate::fake::Spans;
use crate::reconcile::Error;

#[tokio::test(start_paused = true)]
async fn a_span_ends_with_the_outcome_of_its_reconcile() {
    let (spans, _guard) = Spans::record(LevelFilter::INFO);
    let (fake, runs) = (Fake::default(), Arc::new(AtomicU32::new(0)));
    fake.put(&path("a"), map("1"));
    let counted = Arc::clone(&runs);
    let reconciler = reconcile::function(move |_: Context, _: Request| {
        let run = counted.fetch_add(1, Ordering::Relaxed);
        async move {
            let busy = Duration::from_secs(2);
            match run {
                0 => Err(Error::message("the disk is full")),
                1 => Err(Error::rate_limited("too many", busy)),
                2 => Err(Error::outage("away")),
                3 => Ok(Outcome::retry()),
                4 => Ok(Outcome::requeue_after(busy)),
                5 => Ok(Outcome::terminal(Error::message("it cannot work"))),
                _ => Ok(Outcome::done()),
            }
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually_within(Duration::from_secs(60), "six runs", || {
        runs.load(Ordering::Relaxed) == 6
    })
    .await;
    fake.put(&path("a"), map("2"));
    eventually("the last run", || runs.load(Ordering::Relaxed) == 7).await;
    running.end().await;
    let found: Vec<_> = spans
        .named("reconcile")
        .iter()
        .map(|span| {
            assert_eq!(
                (span.field("controller"), span.field("key"), span.closed),
                ("test", "ns/a", true)
            );
            let fields = [
                "attempt",
                "reasons",
                "outcome",
                "error.type",
                "otel.status_code",
                "otel.status_description",
            ];
            fields.map(|name| span.field(name).to_owned()).join(" ")
        })
        .collect();
    assert_eq!(
        found,
        [
            "0 added error transient ERROR the disk is full",
            "1 retry error rate_limited ERROR too many",
            "2 retry error outage ERROR away",
            "3 retry requeue   ",
            "4 retry requeue_after   ",
            "0 timer error terminal ERROR it cannot work",
            "0 changed success   ",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_is_dropped_says_so_in_its_span() {
    let (spans, _guard) = Spans::record(LevelFilter::INFO);
    let (fake, runs) = (Fake::default(), Arc::new(AtomicU32::new(0)));
    fake.put(&path("a"), map("1"));
    let counted = Arc::clone(&runs);
    let reconciler = reconcile::function(move |_: Context, _: Request| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<Result<Outcome, Error>>()
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("a run", || runs.load(Ordering::Relaxed) == 1).await;
    running.stop.cancel();
    assert!(running.run.await.unwrap().is_err(), "it outlives its grace");
    let all = spans.named("reconcile");
    assert_eq!(all[0].field("outcome"), "dropped");
    assert!(all[0].closed && all[0].field("otel.status_code").is_empty());
}
