//! The metrics of a scrape: controller-runtime's names and labels.

use std::sync::{Arc, Weak};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use reeve_workqueue::prometheus::Metrics;
use reeve_workqueue::{AddOptions, Gauges, MetricsProvider, Queue, Readings};
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
    queue.add_with("three", AddOptions::new().priority(7));
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
}

/// Every series of a scrape.
fn series(registry: &Registry) -> Vec<String> {
    let text = scrape(registry);
    let series = text.lines().filter(|line| line.contains('{'));
    series.map(str::to_owned).collect()
}

#[test]
fn a_queue_that_is_gone_leaves_no_series_unless_another_has_its_labels() {
    let mut registry = Registry::default();
    let metrics = Arc::new(Metrics::register(&mut registry));
    let queue = || {
        let builder = Queue::builder().name("pods");
        builder.metrics(metrics.clone()).build()
    };
    let (first, second) = (queue(), queue());
    first.add(1);
    second.add(1);
    drop(first);
    let adds =
        |number| format!(r#"workqueue_adds_total{{name="pods",controller="pods"}} {number}"#);
    assert!(series(&registry).contains(&adds(2)), "the other counts on");
    second.add(2);
    assert!(series(&registry).contains(&adds(3)));
    drop(second);
    assert_eq!(series(&registry), Vec::<String>::new());
    let third = queue();
    third.add(1);
    assert!(series(&registry).contains(&adds(1)), "it begins at zero");
}

#[test]
fn a_scrape_while_a_queue_is_built_does_not_lose_it() {
    struct Depth;
    impl Gauges for Depth {
        fn read(&self) -> Readings {
            Readings {
                depth: vec![(0, 5)],
                ..Readings::default()
            }
        }
    }
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let mut counting = None;
    let _queue = Arc::new_cyclic(|building: &Weak<Depth>| {
        counting = Some(metrics.queue("pods", "pods", building.clone()));
        assert!(!scrape(&registry).contains("workqueue_depth{"));
        Depth
    });
    let text = scrape(&registry);
    assert!(text.contains(r#"priority="0"} 5"#), "{text}");
}

#[test]
fn the_highest_twenty_five_priorities_have_labels_of_their_own() {
    let mut registry = Registry::default();
    let metrics = Arc::new(Metrics::register(&mut registry));
    let queue = Queue::builder().name("pods").metrics(metrics).build();
    let add = |number: i32| {
        queue.add_with(number, AddOptions::new().priority(number));
        let text = scrape(&registry);
        let depths = text
            .lines()
            .filter_map(|line| line.split_once(r#"priority=""#)?.1.split_once('"'));
        depths
            .map(|(label, depth)| format!("{label}:{}", depth.trim_start_matches("} ")))
            .collect::<Vec<_>>()
    };
    assert_eq!(add(7), ["0:0", "7:1"], "0 is always there");
    for number in (0..40).filter(|number| *number != 7) {
        add(number);
    }
    let labels = add(40);
    assert_eq!(labels.len(), 26, "25 of their own, and the shared one");
    for label in ["16:1", "40:1", "exceeded_cardinality_limit:16"] {
        assert!(labels.contains(&label.to_owned()), "{label} in {labels:?}");
    }
}
