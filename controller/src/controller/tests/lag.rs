//! Keys whose caches lag behind what they wrote.

use super::*;

/// A reconciler that increments the cached `data.key` of its object once, and records the values that it read.
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
                ctx.client().patch::<ConfigMap>(&request, &patch).await?;
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
    let asked = fake
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
