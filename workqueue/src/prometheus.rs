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
//! The gauges are read from the queues at each scrape. Queues with equal labels are reported as their sum. When the last
//! of them is dropped, their series are removed, so that any number of queues may come and go; a later queue with the
//! same labels counts from zero (client-go keeps the counts of a queue).
//!
//! A queue may have more priorities than a dashboard can show: the highest 25 have labels of their own, the others are
//! summed up under `exceeded_cardinality_limit` (controller-runtime#3419 keeps the first 25).

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

use crate::metrics::{Gauges, MetricsProvider, QueueMetrics, Readings};

/// Number of priorities of one queue with labels of their own, as in controller-runtime.
const LABELLED_PRIORITIES: usize = 25;
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
    shared: Arc<Shared>,
}

struct Shared {
    adds: Family<Labels, Counter>,
    retries: Family<Labels, Counter>,
    queue_duration: Family<Labels, Histogram, fn() -> Histogram>,
    work_duration: Family<Labels, Histogram, fn() -> Histogram>,
    /// The live queues, by their labels. Series are made and removed under this lock.
    sources: Mutex<BTreeMap<Labels, Source>>,
}

/// The series of one queue. Dropped with the queue.
struct Pushed {
    shared: Arc<Shared>,
    labels: Labels,
    number: u64,
    adds: Counter,
    retries: Counter,
    queue_duration: Histogram,
    work_duration: Histogram,
}

/// The queues of the same labels.
#[derive(Default)]
struct Source {
    /// Queues by number; a queue that is being built cannot be upgraded yet.
    queues: BTreeMap<u64, Weak<dyn Gauges>>,
    next: u64,
    /// Priorities with a label of their own. They are kept, so that a series does not come and go.
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
        let shared = Shared {
            adds: Family::default(),
            retries: Family::default(),
            queue_duration: Family::new_with_constructor(histogram),
            work_duration: Family::new_with_constructor(histogram),
            sources: Mutex::default(),
        };
        registry.register(
            "workqueue_adds",
            "Total number of adds handled by workqueue",
            shared.adds.clone(),
        );
        registry.register(
            "workqueue_retries",
            "Total number of retries handled by workqueue",
            shared.retries.clone(),
        );
        registry.register(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested",
            shared.queue_duration.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes",
            shared.work_duration.clone(),
        );
        let shared = Arc::new(shared);
        registry.register_collector(Box::new(Arc::clone(&shared)));
        Self { shared }
    }
}

impl MetricsProvider for Metrics {
    fn queue(
        &self,
        name: &str,
        controller: &str,
        gauges: Weak<dyn Gauges>,
    ) -> Box<dyn QueueMetrics> {
        let shared = &self.shared;
        let labels = [
            ("name", name.to_owned()),
            ("controller", controller.to_owned()),
        ];
        let mut sources = shared.sources.lock();
        let number = sources.entry(labels.clone()).or_default().add(gauges);
        Box::new(Pushed {
            shared: Arc::clone(shared),
            number,
            adds: shared.adds.get_or_create_owned(&labels),
            retries: shared.retries.get_or_create_owned(&labels),
            queue_duration: shared.queue_duration.get_or_create_owned(&labels),
            work_duration: shared.work_duration.get_or_create_owned(&labels),
            labels,
        })
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

impl Drop for Pushed {
    fn drop(&mut self) {
        self.shared.forget(&self.labels, self.number);
    }
}

// === impl Source ===

impl Source {
    fn add(&mut self, gauges: Weak<dyn Gauges>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.queues.insert(number, gauges);
        number
    }

    fn sums(&mut self, readings: Vec<Readings>) -> Sums {
        let depths = || readings.iter().flat_map(|readings| &readings.depth);
        // A queue without priorities uses 0, which is there from the beginning.
        self.priorities.insert(0);
        self.priorities
            .extend(depths().map(|&(priority, _)| priority));
        while self.priorities.len() > LABELLED_PRIORITIES {
            // The highest keep their labels.
            self.priorities.pop_first();
        }
        let mut sums = Sums::default();
        for priority in &self.priorities {
            sums.depth.insert(priority.to_string(), 0);
        }
        for &(priority, depth) in depths() {
            let label = if self.priorities.contains(&priority) {
                priority.to_string()
            } else {
                TOO_MANY_PRIORITIES.to_owned()
            };
            *sums.depth.entry(label).or_default() += i64::try_from(depth).unwrap_or(i64::MAX);
        }
        for readings in &readings {
            sums.unfinished += readings.unfinished;
            sums.longest_running = sums.longest_running.max(readings.longest_running);
        }
        sums
    }
}

// === impl Shared ===

impl Shared {
    /// Removes a queue, and the series of its labels when it was the last.
    fn forget(&self, labels: &Labels, number: u64) {
        let mut sources = self.sources.lock();
        let Some(source) = sources.get_mut(labels) else {
            return;
        };
        source.queues.remove(&number);
        if !source.queues.is_empty() {
            return;
        }
        sources.remove(labels);
        self.adds.remove(labels);
        self.retries.remove(labels);
        self.queue_duration.remove(labels);
        self.work_duration.remove(labels);
    }

    /// Reads the queues. Without our lock: this may drop the last handle of a queue, which takes the lock.
    fn sums(&self) -> Vec<(Labels, Sums)> {
        let queues: Vec<(Labels, Vec<Arc<dyn Gauges>>)> = {
            let sources = self.sources.lock();
            let sources = sources.iter();
            sources
                .map(|(labels, source)| {
                    let queues = source.queues.values().filter_map(Weak::upgrade);
                    (labels.clone(), queues.collect())
                })
                .collect()
        };
        let read = queues.iter().filter(|(_, queues)| !queues.is_empty());
        read.filter_map(|(labels, queues)| {
            let readings = queues.iter().map(|queue| queue.read()).collect();
            let mut sources = self.sources.lock();
            let source = sources.get_mut(labels)?;
            Some((labels.clone(), source.sums(readings)))
        })
        .collect()
    }
}

impl Collector for Shared {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let sums = self.sums();
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

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("sources", &self.sources.lock().len())
            .finish_non_exhaustive()
    }
}
