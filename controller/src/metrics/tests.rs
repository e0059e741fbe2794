//! The content of a scrape.

use reeve_workqueue::Queue;

use super::*;

/// All of a scrape but values and help, sorted: the contract with dashboards.
fn shape(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.starts_with("# HELP"));
    let mut shape: Vec<String> = lines
        .map(|line| match line.rsplit_once(' ') {
            Some((series, _)) if !line.starts_with('#') => series.to_owned(),
            _ => line.to_owned(),
        })
        .filter(|line| !line.contains("_bucket{"))
        .collect();
    shape.sort();
    shape
}

#[tokio::test(start_paused = true)]
#[cfg(target_os = "linux")]
async fn names_and_labels_are_controller_runtimes() {
    let metrics = Metrics::new();
    let controller = metrics.controller("web");
    controller.time.observe(0.5);
    metrics.requests().count("200", "GET", "cluster:6443");
    metrics.election("lock").leads.set(1);
    metrics.events_dropped("web");
    let queue = Queue::<u32>::builder()
        .name("web")
        .metrics(metrics.queues())
        .build();
    queue.add(1);
    queue.add_with(2, reeve_workqueue::AddOptions::new().priority(-100));
    let unavailable = UnavailableLabels {
        controller: "web".to_owned(),
        informer: "pods".to_owned(),
        cause: "forbidden",
    };
    // Encoded as it is: a scrape reads the controllers first.
    let families = &metrics.families;
    families.unavailable.get_or_create(&unavailable).set(1);
    let text = encode(&metrics.registry.lock());
    let expected = include_str!("../../testdata/metrics.txt");
    let found = shape(&text).join("\n") + "\n";
    assert_eq!(found, expected, "found:\n{found}");
}

/// The upper bounds of a histogram, the last of which is no limit.
fn bounds(text: &str, name: &str) -> Vec<f64> {
    let start = format!("{name}_bucket{{le=\"");
    let bounds = text.lines().filter_map(|line| line.strip_prefix(&start));
    let bounds = bounds.filter_map(|bound| bound.split_once('"'));
    bounds
        .map(|(bound, _)| bound.parse().unwrap_or(f64::INFINITY))
        .collect()
}

#[test]
fn buckets_are_controller_runtimes() {
    let metrics = Metrics::new();
    let controller = metrics.controller("web");
    let queue = Queue::<u32>::builder()
        .name("web")
        .metrics(metrics.queues())
        .build();
    let text = metrics.encode();
    let mut expected = vec![
        0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8,
        0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0,
        15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
    ];
    expected.push(f64::INFINITY);
    let found = bounds(&text, "controller_runtime_reconcile_time_seconds");
    assert_eq!(found, expected);
    for name in [
        "workqueue_queue_duration_seconds",
        "workqueue_work_duration_seconds",
    ] {
        // 10 ns to 1000 s by tens, with the rounding of twelve multiplications.
        let found = bounds(&text, name);
        let powers: Vec<f64> = found.iter().map(|bound| bound.log10()).collect();
        let rounded: Vec<f64> = powers.iter().map(|power| power.round()).collect();
        let mut tens: Vec<f64> = (-8..=3).map(f64::from).collect();
        tens.push(f64::INFINITY);
        assert_eq!(rounded, tens, "{name}: {found:?}");
        let off = powers.iter().zip(&rounded).take(12);
        assert!(
            off.into_iter()
                .all(|(power, round)| (power - round).abs() < 1e-9)
        );
    }
    drop((controller, queue));
}

#[test]
fn scrapes_at_once_each_show_every_queue_once() {
    const QUEUES: usize = 30;
    let metrics = Metrics::new();
    let queue = |number: usize| {
        let queue = Queue::<usize>::builder()
            .name(format!("queue-{number}"))
            .metrics(metrics.queues())
            .build();
        queue.add(1);
        queue.add(2);
        queue
    };
    let _queues: Vec<Queue<usize>> = (0..QUEUES).map(queue).collect();
    let together = std::sync::Barrier::new(2);
    let scrape = || {
        let mut wrong = 0;
        for _ in 0..200 {
            together.wait();
            let text = metrics.encode();
            let depths = text
                .lines()
                .filter(|line| line.starts_with("workqueue_depth{") && line.ends_with(" 2"));
            wrong += usize::from(depths.count() != QUEUES);
        }
        wrong
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(scrape);
        assert_eq!((scrape(), other.join().unwrap()), (0, 0));
    });
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_gone_leaves_no_series() {
    let metrics = Metrics::new();
    let labelled = || {
        let text = metrics.encode();
        let lines = text.lines().filter(|line| line.contains('{'));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let queue = Queue::<u32>::builder()
        .name("web")
        .metrics(metrics.queues())
        .build();
    assert!(!labelled().is_empty());
    drop(queue);
    assert_eq!(labelled(), Vec::<String>::new());
}
