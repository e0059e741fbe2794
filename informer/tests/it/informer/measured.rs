//! Measurements.

use super::*;

#[derive(Clone, Default)]
struct Counted(Arc<Mutex<Vec<Measurement>>>);

impl MetricsProvider for Counted {
    fn informer(
        &self,
        informer: &InformerIdentity,
        _: Weak<dyn Gauges>,
    ) -> Box<dyn InformerMetrics> {
        assert_eq!(
            (&*informer.name, &*informer.resource),
            ("configmaps", "configmaps")
        );
        Box::new(self.clone())
    }
}

impl InformerMetrics for Counted {
    fn record(&self, measurement: Measurement) {
        self.0.lock().push(measurement);
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_stays_undecodable_is_counted_once_a_version() {
    let script = Script::new([
        no_streaming(),
        list("10", &[broken("a", "2")]),
        ending([
            wait(2),
            event("MODIFIED", &broken("a", "11")),
            error(410, "Expired"),
        ]),
        list("20", &[broken("a", "11")]),
    ])
    .otherwise(|_| watch([]));
    let counted = Arc::new(Counted::default());
    let running = run(builder(&script).metrics(Arc::clone(&counted) as _).build());
    seconds(10).await;
    let sightings = counted
        .0
        .lock()
        .iter()
        .filter(|found| matches!(found, Measurement::Quarantined))
        .count();
    assert_eq!(sightings, 2);
    assert_eq!(running.informer.health().quarantined_count, 1);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_list_is_without_the_turns_of_other_tasks() {
    let objects: Vec<_> = (0..1000)
        .map(|number| object(&format!("o{number:03}"), "1"))
        .collect();
    let script = Script::new([no_streaming(), list("10", &objects)]).otherwise(|_| Answer::Hang);
    let counted = Arc::new(Counted::default());
    let running = run(builder(&script).metrics(Arc::clone(&counted) as _).build());
    let begin = tokio::time::Instant::now();
    while !running.informer.has_synced() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        // Time passes in the turns of this task alone.
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let measured = counted.0.lock();
    let processed = measured.iter().filter_map(|found| match found {
        Measurement::Processed { deltas, duration } => Some((*deltas, *duration)),
        _ => None,
    });
    assert_eq!(processed.collect::<Vec<_>>(), [(1, Duration::ZERO)]);
}

/// Counts its events, and panics.
#[derive(Clone, Default)]
struct Fragile(Arc<AtomicUsize>);

impl MetricsProvider for Fragile {
    fn informer(&self, _: &InformerIdentity, _: Weak<dyn Gauges>) -> Box<dyn InformerMetrics> {
        Box::new(self.clone())
    }
}

impl InformerMetrics for Fragile {
    fn record(&self, _: Measurement) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("no place for measurements");
    }
}

#[tokio::test(start_paused = true)]
async fn a_metrics_provider_may_panic_and_the_informer_goes_on() {
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "1")]),
        watch([wait(1), added("b", "11")]),
    ]);
    let fragile = Fragile::default();
    let informer = builder(&script).metrics(Arc::new(fragile.clone())).build();
    let received = Received::default();
    let inline = HandlerOptions::new().inline();
    let handle = informer.add_handler(received.handler(), inline).unwrap();
    let running = run(informer);
    seconds(5).await;
    assert_eq!(received.take(), ["+a@1*", "+b@11"]);
    assert_eq!(running.received.take(), ["+a@1*", "+b@11"]);
    assert!(handle.has_synced() && running.handle.has_synced());
    assert_eq!(fragile.0.load(Ordering::Relaxed), 1, "received once");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lists_watches_and_batches_are_measured() {
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "1"), broken("b", "2")]),
        ending([added("c", "11")]),
        Answer::Refuse,
    ])
    .otherwise(|_| watch([]));
    let counted = Arc::new(Counted::default());
    let running = run(builder(&script).metrics(Arc::clone(&counted) as _).build());
    seconds(10).await;
    running.stop().await;
    let measured = counted.0.lock();
    let count =
        |wanted: fn(&Measurement) -> bool| measured.iter().filter(|found| wanted(found)).count();
    assert_eq!(
        count(|found| matches!(
            found,
            Measurement::Listed {
                items: 1,
                streamed: false,
                ..
            }
        )),
        1
    );
    assert_eq!(count(|found| matches!(found, Measurement::Quarantined)), 1);
    assert_eq!(
        count(|found| matches!(
            found,
            Measurement::Watched {
                events: 1,
                short: false,
                ..
            }
        )),
        1
    );
    assert_eq!(count(|found| matches!(found, Measurement::WatchFailed)), 1);
    assert!(count(|found| matches!(found, Measurement::Processed { .. })) >= 2);
}

#[tokio::test(start_paused = true)]
async fn times_that_never_pass_are_never_and_no_error() {
    let never = Duration::MAX;
    let options = ReflectorOptions::new()
        .streaming_idle(never)
        .streaming_deadline(never)
        .streaming_retry(never)
        .watch_timeout(never)
        .watch_idle(never)
        .backoff(BackoffOptions::new().cap(never))
        .reconnect_spread(never)
        .request_interval(never)
        .limits(Limits::new().deadline(never));
    let (script, say) = three();
    let informer = builder(&script).reflector(options).resync(never).build();
    let mutations = MutationCache::new(informer.lister()).ttl(never);
    let running = run(informer);
    running.handle.wait_synced().await.unwrap();
    say(modified("a", "11"));
    seconds(100_000).await;
    assert_eq!(running.received.last().unwrap(), "~a@1-11");
    let held = running.informer.lister().list().swap_remove(0);
    let mut ahead = ConfigMap::clone(&held);
    ahead.metadata.resource_version = Some("12".to_owned());
    mutations.mutated(Arc::new(ahead));
    running.stop().await;
}
