//! The seven workqueue metrics of client-go, with controller-runtime's labels and buckets, through
//! `prometheus-client`. Behind the feature `prometheus`.
//!
//! | metric | type | labels |
//! |---|---|---|
//! | `workqueue_depth` | gauge | `name`, `controller`, `priority` |
//! | `workqueue_adds_total` | counter | `name`, `controller` |
//! | `workqueue_queue_duration_seconds` | histogram | `name`, `controller` |
//! | `workqueue_work_duration_seconds` | histogram | `name`, `controller` |
//! | `workqueue_unfinished_work_seconds` | gauge | `name`, `controller` |
//! | `workqueue_longest_running_processor_seconds` | gauge | `name`, `controller` |
//! | `workqueue_retries_total` | counter | `name`, `controller` |
//!
//! The gauges are read from the queues at each scrape.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::metrics::{Gauges, MetricsProvider, QueueMetrics};

/// Beyond so many priorities of one queue the others share a label, as in controller-runtime.
const PRIORITIES_TOLD_APART: usize = 25;
const TOO_MANY_PRIORITIES: &str = "exceeded_cardinality_limit";

type Labels = [(&'static str, String); 2];

/// Gives queues metrics in a registry. One is enough for all queues of a process.
///
/// ```
/// use std::sync::Arc;
/// let mut registry = prometheus_client::registry::Registry::default();
/// let metrics = Arc::new(reeve_workqueue::prometheus::Metrics::register(&mut registry));
/// let queue: reeve_workqueue::Queue<u32> =
///     reeve_workqueue::Queue::builder().name("pods").metrics(metrics).build();
/// queue.add(1);
/// let mut text = String::new();
/// prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
/// assert!(text.contains(r#"workqueue_adds_total{name="pods",controller="pods"} 1"#));
/// ```
#[derive(Debug)]
pub struct Metrics {
    adds: Family<Labels, Counter>,
    retries: Family<Labels, Counter>,
    queue_duration: Family<Labels, Histogram, fn() -> Histogram>,
    work_duration: Family<Labels, Histogram, fn() -> Histogram>,
    read: Arc<Read>,
}

#[derive(Debug)]
struct Pushed {
    adds: Counter,
    retries: Counter,
    queue_duration: Histogram,
    work_duration: Histogram,
}

/// What is read at a scrape.
#[derive(Default)]
struct Read(Mutex<BTreeMap<Labels, Source>>);

#[derive(Default)]
struct Source {
    /// More than one if queues share their labels: then their sum is told.
    queues: Vec<Weak<dyn Gauges>>,
    /// Priorities with a label of their own; they stay, so that a series does not come and go.
    priorities: BTreeSet<i32>,
}

/// The gauges of the queues of one source, summed up.
#[derive(Default)]
struct Sums {
    depth: BTreeMap<String, i64>,
    unfinished: Duration,
    longest_running: Duration,
}

// === impl Metrics ===

impl Metrics {
    /// Registers the metrics; the registry must have no prefix for the names to be client-go's.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(exponential_buckets(10e-9, 10.0, 12));
        let metrics = Self {
            adds: Family::default(),
            retries: Family::default(),
            queue_duration: Family::new_with_constructor(histogram),
            work_duration: Family::new_with_constructor(histogram),
            read: Arc::default(),
        };
        registry.register(
            "workqueue_adds",
            "Total number of adds handled by workqueue",
            metrics.adds.clone(),
        );
        registry.register(
            "workqueue_retries",
            "Total number of retries handled by workqueue",
            metrics.retries.clone(),
        );
        registry.register(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested",
            metrics.queue_duration.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes",
            metrics.work_duration.clone(),
        );
        registry.register_collector(Box::new(Arc::clone(&metrics.read)));
        metrics
    }
}

impl MetricsProvider for Metrics {
    fn queue(
        &self,
        name: &str,
        controller: &str,
        gauges: Weak<dyn Gauges>,
    ) -> Box<dyn QueueMetrics> {
        let labels = [
            ("name", name.to_owned()),
            ("controller", controller.to_owned()),
        ];
        let pushed = Pushed {
            adds: self.adds.get_or_create_owned(&labels),
            retries: self.retries.get_or_create_owned(&labels),
            queue_duration: self.queue_duration.get_or_create_owned(&labels),
            work_duration: self.work_duration.get_or_create_owned(&labels),
        };
        let mut sources = self.read.0.lock();
        sources.entry(labels).or_default().queues.push(gauges);
        Box::new(pushed)
    }
}

// === impl Pushed ===

impl QueueMetrics for Pushed {
    fn added(&self, items: u64) {
        self.adds.inc_by(items);
    }

    fn retried(&self, adds: u64) {
        self.retries.inc_by(adds);
    }

    fn started(&self, waited: Duration) {
        self.queue_duration.observe(waited.as_secs_f64());
    }

    fn finished(&self, worked: Duration) {
        self.work_duration.observe(worked.as_secs_f64());
    }
}

// === impl Source ===

impl Source {
    fn sums(&mut self) -> Sums {
        self.queues.retain(|queue| queue.strong_count() > 0);
        let mut sums = Sums::default();
        for queue in self.queues.iter().filter_map(Weak::upgrade) {
            let readings = queue.read();
            sums.unfinished += readings.unfinished;
            sums.longest_running = sums.longest_running.max(readings.longest_running);
            for (priority, depth) in readings.depth {
                let known = self.priorities.contains(&priority);
                let label = if known || self.priorities.len() < PRIORITIES_TOLD_APART {
                    self.priorities.insert(priority);
                    priority.to_string()
                } else {
                    TOO_MANY_PRIORITIES.to_owned()
                };
                *sums.depth.entry(label).or_default() += i64::try_from(depth).unwrap_or(i64::MAX);
            }
        }
        for priority in self.priorities.iter().chain([&0]) {
            sums.depth.entry(priority.to_string()).or_default();
        }
        sums
    }
}

// === impl Read ===

impl Collector for Read {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let sums: Vec<(Labels, Sums)> = {
            let mut sources = self.0.lock();
            sources.retain(|_, source| source.queues.iter().any(|q| q.strong_count() > 0));
            sources
                .iter_mut()
                .map(|(labels, source)| (labels.clone(), source.sums()))
                .collect()
        };
        let depth = sums.iter().flat_map(|(labels, sums)| {
            sums.depth.iter().map(|(priority, &depth)| {
                let [name, controller] = labels.clone();
                ([name, controller, ("priority", priority.clone())], depth)
            })
        });
        gauge(
            &mut encoder,
            "workqueue_depth",
            "Current depth of workqueue by workqueue and priority",
            depth.map(|(labels, depth)| (labels, ConstGauge::new(depth))),
        )?;
        gauge(
            &mut encoder,
            "workqueue_unfinished_work_seconds",
            "How many seconds of work has been done that is in progress and hasn't been observed \
             by work_duration. Large values indicate stuck workers",
            sums.iter().map(|(labels, sums)| {
                let seconds = sums.unfinished.as_secs_f64();
                (labels.clone(), ConstGauge::new(seconds))
            }),
        )?;
        gauge(
            &mut encoder,
            "workqueue_longest_running_processor_seconds",
            "How many seconds has the longest running processor for workqueue been running",
            sums.iter().map(|(labels, sums)| {
                let seconds = sums.longest_running.as_secs_f64();
                (labels.clone(), ConstGauge::new(seconds))
            }),
        )
    }
}

fn gauge<S: EncodeLabelSet, M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl Iterator<Item = (S, M)>,
) -> fmt::Result {
    let mut series = series.peekable();
    if series.peek().is_none() {
        return Ok(());
    }
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, gauge) in series {
        gauge.encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

impl fmt::Debug for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Read")
            .field("sources", &self.0.lock().len())
            .finish_non_exhaustive()
    }
}
