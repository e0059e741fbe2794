//! Handlers and predicates that panic.

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::cache::View;
use crate::controller::panics::PAUSES;

/// A handler that panics at the first `panics` events of the object "a", and counts those events.
fn panicking(calls: &Arc<AtomicUsize>, panics: usize) -> impl handler::Handler<ConfigMap> {
    let calls = Arc::clone(calls);
    handler::map(move |map: &ConfigMap| {
        let name = map.metadata.name.clone().unwrap_or_default();
        if name == "a" {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            assert!(call >= panics, "not yet");
        }
        [Request::namespaced("ns", &*name)]
    })
}

fn panics_of(running: &Running) -> f64 {
    running.metric("reeve_controller_watch_panics_total{controller=\"test\"}")
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_gets_its_event_again() {
    let (fake, seen, calls) = (Fake::default(), Seen::default(), Arc::default());
    for name in ["a", "b"] {
        fake.put(&path(name), map("1"));
    }
    let controller = Controller::builder("test")
        .watches::<ConfigMap>(panicking(&calls, 2))
        .complete(done(&seen));
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("another object", || *seen.lock() == ["ns/b"]).await;
    assert_eq!(panics_of(&running), 1.0);
    let begin = Instant::now();
    eventually("it does not panic any more", || seen.lock().len() == 2).await;
    assert_eq!(seen.lock()[1], "ns/a");
    assert!(begin.elapsed() <= PAUSES[0] + PAUSES[1] + Duration::from_secs(1));
    assert_eq!(
        (calls.load(Ordering::Relaxed), panics_of(&running)),
        (3, 2.0)
    );
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_at_which_a_handler_always_panics_is_given_up() {
    let (fake, seen, calls) = (Fake::default(), Seen::default(), Arc::default());
    fake.put(&path("a"), map("1"));
    let controller = Controller::builder("test")
        .watches::<ConfigMap>(panicking(&calls, usize::MAX))
        .complete(done(&seen));
    let running = start(&fake, [controller.unwrap()]).await;
    let last: Duration = PAUSES.iter().sum();
    sleep(last - Duration::from_secs(1)).await;
    assert_eq!(calls.load(Ordering::Relaxed), PAUSES.len());
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(calls.load(Ordering::Relaxed), PAUSES.len() + 1);
    assert_eq!(panics_of(&running), 6.0);
    assert!(seen.lock().is_empty());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_was_removed_gets_no_event_again() {
    let (fake, seen, calls) = (Fake::default(), Seen::default(), Arc::default());
    fake.put(&path("a"), map("1"));
    let controller = Controller::builder("test")
        .for_kind::<Secret>()
        .complete(done(&seen));
    let running = start(&fake, []).await;
    let handle = running.manager.add_controller(controller.unwrap()).unwrap();
    let watch = Watch::<ConfigMap>::new(View::typed(), panicking(&calls, 1));
    let watch = handle.watch(watch).unwrap();
    eventually("it panics", || calls.load(Ordering::Relaxed) == 1).await;
    watch.remove().await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_predicate_that_panics_is_counted_and_lets_its_event_through() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let watch = Watch::<ConfigMap>::new(View::typed(), handler::for_object());
    let watch = watch.with_predicate(predicate::function(
        |_: &reeve_informer::Event<ConfigMap>| panic!("no"),
    ));
    let controller = Controller::builder("test")
        .for_kind::<Secret>()
        .complete(done(&seen));
    let running = start(&fake, []).await;
    let handle = running.manager.add_controller(controller.unwrap()).unwrap();
    handle.watch(watch).unwrap();
    eventually("it is handled", || *seen.lock() == ["ns/a"]).await;
    assert_eq!(panics_of(&running), 1.0);
    running.end().await;
}
