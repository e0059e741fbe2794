//! The metrics of informers that come and go.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use prometheus_client::registry::Registry;
use reeve_informer::prometheus::Metrics;
use reeve_informer::{Compact, Endpoint, HandlerOptions, SharedInformer};
use tokio_util::sync::CancellationToken;

use crate::harness::{Running, builder, clock, run, seconds};
use crate::script::*;

fn scrape(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

/// The value of a series that has these labels.
fn value(registry: &Registry, metric: &str, labels: &str) -> Option<String> {
    let text = scrape(registry);
    let mut lines = text.lines();
    let start = format!("{metric}{{");
    let line = lines.find(|line| line.starts_with(&start) && line.contains(labels))?;
    Some(line.rsplit_once(' ')?.1.to_owned())
}

fn script(names: &[&str]) -> Script {
    let objects: Vec<_> = names.iter().map(|name| object(name, "1")).collect();
    Script::new([no_streaming(), list("10", &objects)]).otherwise(|_| watch([]))
}

async fn running(metrics: &Arc<Metrics>, objects: &[&str]) -> Running {
    let metrics = Arc::clone(metrics) as _;
    let informer = builder(&script(objects)).metrics(metrics).build();
    let named = HandlerOptions::new().name("counted");
    let _counted = informer.add_handler(|_| {}, named).unwrap();
    let running = run(informer);
    seconds(1).await;
    running
}

#[tokio::test(start_paused = true)]
async fn no_counter_runs_back_when_one_of_two_informers_of_one_identity_goes() {
    let mut registry = Registry::default();
    let metrics = Arc::new(Metrics::register(&mut registry));
    let delivered = |registry: &Registry| {
        let labels = r#"handler="counted",result="delivered""#;
        value(registry, "informer_handler_events_total", labels)
    };
    let lists = |registry: &Registry| value(registry, "reflector_lists_total", "");
    let first = running(&metrics, &["a", "b", "c"]).await;
    let second = running(&metrics, &["d"]).await;
    assert_eq!(delivered(&registry).as_deref(), Some("4"));
    first.stop().await;
    seconds(1).await;
    assert_eq!(delivered(&registry).as_deref(), Some("4"));
    assert_eq!(lists(&registry).as_deref(), Some("2"));
    let third = running(&metrics, &["e", "f"]).await;
    assert_eq!(delivered(&registry).as_deref(), Some("6"));
    second.stop().await;
    third.stop().await;
    seconds(1).await;
    assert_eq!((delivered(&registry), lists(&registry)), (None, None));
    let _last = running(&metrics, &["g"]).await;
    assert_eq!(delivered(&registry).as_deref(), Some("1"), "from zero");
    assert_eq!(lists(&registry).as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn informers_that_come_and_go_leave_no_series() {
    let mut registry = Registry::default();
    let metrics = Arc::new(Metrics::register(&mut registry));
    for _ in 0..3 {
        running(&metrics, &["a"]).await.stop().await;
        seconds(1).await;
        // Also without a scrape.
    }
    let text = scrape(&registry);
    assert!(!text.contains('{'), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_held_holds_no_series() {
    let mut registry = Registry::default();
    let metrics = Arc::new(Metrics::register(&mut registry));
    let script = script(&["a"]);
    let informer = SharedInformer::<Compact<ConfigMap>>::builder_for(
        script.client(),
        Endpoint::of::<ConfigMap>(),
    )
    .clock(clock())
    .metrics(metrics)
    .build();
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await.unwrap() }
    });
    seconds(1).await;
    let held = informer.lister().list();
    assert_eq!(held.len(), 1);
    assert!(scrape(&registry).contains("informer_objects{"));
    stop.cancel();
    task.await.unwrap();
    drop(informer);
    scrape(&registry);
    let text = scrape(&registry);
    assert!(!text.contains('{'), "{text}");
    drop(held);
}
