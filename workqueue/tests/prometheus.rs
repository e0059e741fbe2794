//! The metrics as a scrape sees them: controller-runtime's names and labels.
#![cfg(feature = "prometheus")]

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use reeve_workqueue::prometheus::Metrics;
use reeve_workqueue::{AddOptions, Queue};
use tokio::time::advance;

fn scrape(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text
}

#[tokio::test(start_paused = true)]
async fn a_scrape_has_the_seven_metrics_with_the_labels_of_controller_runtime() {
    let mut registry = Registry::default();
    let metrics = Arc::new(Metrics::register(&mut registry));
    let queue = Queue::builder()
        .name("pods")
        .controller("pod-controller")
        .metrics(metrics)
        .build();
    queue.add("one");
    queue.add("two");
    let high = AddOptions {
        priority: Some(7),
        ..AddOptions::default()
    };
    queue.add_with("three", high);
    advance(Duration::from_millis(2)).await;
    let in_flight = queue.get().await.unwrap();
    queue.get().await.unwrap().retry();
    advance(Duration::from_millis(3)).await;
    let text = scrape(&registry);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains("_bucket"))
        .collect();
    let of_queue = r#"{name="pods",controller="pod-controller"}"#;
    let expected = [
        format!("workqueue_adds_total{of_queue} 3"),
        format!("workqueue_retries_total{of_queue} 1"),
        format!("workqueue_queue_duration_seconds_sum{of_queue} 0.004"),
        format!("workqueue_queue_duration_seconds_count{of_queue} 2"),
        format!("workqueue_work_duration_seconds_sum{of_queue} 0.0"),
        format!("workqueue_work_duration_seconds_count{of_queue} 1"),
        r#"workqueue_depth{name="pods",controller="pod-controller",priority="0"} 1"#.to_owned(),
        r#"workqueue_depth{name="pods",controller="pod-controller",priority="7"} 0"#.to_owned(),
        format!("workqueue_unfinished_work_seconds{of_queue} 0.003"),
        format!("workqueue_longest_running_processor_seconds{of_queue} 0.003"),
    ];
    assert_eq!(lines, expected);
    let buckets: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("workqueue_work_duration_seconds_bucket{le=\""))
        .filter_map(|line| line.split('"').next())
        .collect();
    assert_eq!(buckets.len(), 13, "{buckets:?}");
    in_flight.done();
    drop(queue);
    assert!(
        !scrape(&registry).contains("workqueue_depth{"),
        "gone with its queue"
    );
}

#[test]
fn priorities_beyond_twenty_five_share_a_label() {
    let mut registry = Registry::default();
    let metrics = Arc::new(Metrics::register(&mut registry));
    let queue = Queue::builder().name("pods").metrics(metrics).build();
    for number in 0..40 {
        let options = AddOptions {
            priority: Some(number),
            ..AddOptions::default()
        };
        queue.add_with(number, options);
    }
    let text = scrape(&registry);
    let series: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("workqueue_depth{"))
        .collect();
    // 25 of their own, the shared one, and 0, which is always told.
    assert_eq!(series.len(), 27, "{series:#?}");
    assert!(
        text.contains(r#"priority="exceeded_cardinality_limit"} 15"#),
        "{text}"
    );
}
