//! Metrics of informers and their reflectors through `prometheus-client`, behind the feature `prometheus`. Each has
//! the labels `name`, `group`, `version` and `resource`, as client-go's.
//!
//! | metric | type | from |
//! |---|---|---|
//! | `informer_queued_items` | gauge | client-go |
//! | `informer_processing_latency_seconds` | histogram | client-go |
//! | `informer_store_resource_version` | gauge, the last 15 digits | client-go |
//! | `reflector_lists_total` | counter | client-go, until 1.10 |
//! | `reflector_list_duration_seconds` | histogram | client-go, until 1.10 |
//! | `reflector_items_per_list` | histogram | client-go, until 1.10 |
//! | `reflector_watches_total`, `reflector_short_watches_total` | counter | client-go, until 1.10 |
//! | `reflector_watch_duration_seconds`, `reflector_items_per_watch` | histogram | client-go, until 1.10 |
//! | `reflector_last_resource_version` | gauge, the last 15 digits; the newest of several watches | client-go, until 1.10 |
//! | `reflector_failures_total` | counter; `reason`: `list`, `watch`, `stalled`, `stale_list`, `stale_event`, `new_epoch` | |
//! | `informer_activity` | gauge, 1 for what it is doing; `activity` | |
//! | `informer_synced` | gauge, 1 once everything is in the store | |
//! | `informer_last_heard_timestamp_seconds` | gauge, when the API server was heard last | |
//! | `informer_objects`, `informer_store_bytes` | gauge | the bytes of typed objects are a lower bound: see [`StoreBytes`](crate::StoreBytes) |
//! | `informer_quarantined_objects`, `informer_unreadable_objects_total` | gauge, counter | |
//! | `informer_handler_backlog` | gauge; `handler` | |
//! | `informer_handler_events_total` | counter; `handler`, `result`: `delivered`, `dropped`, `panicked` | |
//!
//! The gauges, and what handlers count, are read from the informers at each scrape; an informer that is gone has none.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::health::{Activity, CacheHealth};
use crate::metrics::{Gauges, InformerIdentity, InformerMetrics, Measurement, MetricsProvider};
use crate::version::ResourceVersion;

type Labels = Vec<(&'static str, String)>;
/// The informers of one identity.
type Informers = (Labels, Vec<CacheHealth>);
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// Gives informers metrics in a registry. One is enough for all informers of a process.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # async fn example(client: kube_client::Client) {
/// use std::sync::Arc;
/// let mut registry = prometheus_client::registry::Registry::default();
/// let metrics = Arc::new(reeve_informer::prometheus::Metrics::register(&mut registry));
/// let factory = reeve_informer::InformerFactory::builder(client).metrics(metrics).build();
/// # let informer = factory.informer::<ConfigMap>(reeve_informer::Selection::default());
/// # }
/// ```
#[derive(Debug)]
pub struct Metrics {
    processing: Histograms,
    lists: Family<Labels, Counter>,
    list_duration: Histograms,
    list_items: Histograms,
    watches: Family<Labels, Counter>,
    short_watches: Family<Labels, Counter>,
    watch_duration: Histograms,
    watch_items: Histograms,
    failures: Family<Labels, Counter>,
    read: Arc<Read>,
}

/// What one informer measures into.
struct Pushed {
    processing: Histogram,
    lists: Counter,
    list_duration: Histogram,
    list_items: Histogram,
    watches: Counter,
    short_watches: Counter,
    watch_duration: Histogram,
    watch_items: Histogram,
    failures: [Counter; REASONS.len()],
}

/// The labels `reason`, in the order of [`Reason`].
const REASONS: [&str; 6] = [
    "list",
    "watch",
    "stalled",
    "stale_list",
    "stale_event",
    "new_epoch",
];

#[derive(Clone, Copy)]
enum Reason {
    List,
    Watch,
    Stalled,
    StaleList,
    StaleEvent,
    NewEpoch,
}

/// What the label `activity` may be.
const ACTIVITIES: [Activity; 6] = [
    Activity::Idle,
    Activity::Listing,
    Activity::Watching,
    Activity::BackingOff,
    Activity::Missing,
    Activity::Stopped,
];

/// What is read at a scrape.
#[derive(Default)]
struct Read(Mutex<BTreeMap<InformerIdentity, Vec<Weak<dyn Gauges>>>>);

// === impl Metrics ===

impl Metrics {
    /// Registers the metrics; the registry must have no prefix for the names to be client-go's.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 2.5, 12));
        let minutes: fn() -> Histogram = || Histogram::new(exponential_buckets(0.1, 3.0, 9));
        let items: fn() -> Histogram = || Histogram::new(exponential_buckets(1.0, 10.0, 7));
        let metrics = Self {
            processing: Family::new_with_constructor(seconds),
            lists: Family::default(),
            list_duration: Family::new_with_constructor(seconds),
            list_items: Family::new_with_constructor(items),
            watches: Family::default(),
            short_watches: Family::default(),
            watch_duration: Family::new_with_constructor(minutes),
            watch_items: Family::new_with_constructor(items),
            failures: Family::default(),
            read: Arc::default(),
        };
        for (name, help, family) in [
            (
                "informer_processing_latency_seconds",
                "Time to put a batch of changes into the store and to handlers' queues",
                &metrics.processing,
            ),
            (
                "reflector_list_duration_seconds",
                "How long an API list takes to return and decode",
                &metrics.list_duration,
            ),
            (
                "reflector_items_per_list",
                "How many items an API list returns",
                &metrics.list_items,
            ),
            (
                "reflector_watch_duration_seconds",
                "How long an API watch takes to return and decode",
                &metrics.watch_duration,
            ),
            (
                "reflector_items_per_watch",
                "How many items an API watch returns",
                &metrics.watch_items,
            ),
        ] {
            registry.register(name, help, family.clone());
        }
        for (name, help, family) in [
            (
                "reflector_lists",
                "Total number of API lists done by the reflectors",
                &metrics.lists,
            ),
            (
                "reflector_watches",
                "Total number of API watches done by the reflectors",
                &metrics.watches,
            ),
            (
                "reflector_short_watches",
                "Total number of short API watches done by the reflectors",
                &metrics.short_watches,
            ),
            (
                "reflector_failures",
                "Total number of lists, watches and events that were of no use, by reason",
                &metrics.failures,
            ),
        ] {
            registry.register(name, help, family.clone());
        }
        registry.register_collector(Box::new(Arc::clone(&metrics.read)));
        metrics
    }
}

impl MetricsProvider for Metrics {
    fn informer(
        &self,
        informer: &InformerIdentity,
        gauges: Weak<dyn Gauges>,
    ) -> Box<dyn InformerMetrics> {
        let labels = labels(informer);
        let pushed = Pushed {
            processing: self.processing.get_or_create_owned(&labels),
            lists: self.lists.get_or_create_owned(&labels),
            list_duration: self.list_duration.get_or_create_owned(&labels),
            list_items: self.list_items.get_or_create_owned(&labels),
            watches: self.watches.get_or_create_owned(&labels),
            short_watches: self.short_watches.get_or_create_owned(&labels),
            watch_duration: self.watch_duration.get_or_create_owned(&labels),
            watch_items: self.watch_items.get_or_create_owned(&labels),
            failures: REASONS.map(|reason| {
                let labels = with(&labels, "reason", reason);
                self.failures.get_or_create_owned(&labels)
            }),
        };
        let mut sources = self.read.0.lock();
        sources.entry(informer.clone()).or_default().push(gauges);
        Box::new(pushed)
    }
}

// === impl Pushed ===

impl Pushed {
    fn failed(&self, reason: Reason) {
        self.failures[reason as usize].inc();
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
impl InformerMetrics for Pushed {
    fn record(&self, measurement: Measurement) {
        match measurement {
            Measurement::Listed {
                items, duration, ..
            } => {
                self.lists.inc();
                self.list_duration.observe(duration.as_secs_f64());
                self.list_items.observe(items as f64);
            }
            Measurement::Watched {
                events,
                duration,
                short,
            } => {
                self.watches.inc();
                self.short_watches.inc_by(u64::from(short));
                self.watch_duration.observe(duration.as_secs_f64());
                self.watch_items.observe(events as f64);
            }
            Measurement::Processed { duration, .. } => {
                self.processing.observe(duration.as_secs_f64());
            }
            Measurement::ListFailed => self.failed(Reason::List),
            Measurement::WatchFailed => self.failed(Reason::Watch),
            Measurement::WatchStalled => self.failed(Reason::Stalled),
            Measurement::StaleList => self.failed(Reason::StaleList),
            Measurement::StaleEvent => self.failed(Reason::StaleEvent),
            Measurement::NewEpoch => self.failed(Reason::NewEpoch),
            // These are read at a scrape.
            Measurement::Quarantined
            | Measurement::Unreadable
            | Measurement::HandlerPanicked
            | Measurement::HandlerDropped { .. } => {}
        }
    }
}

// === impl Read ===

impl Read {
    /// The informers that still are. Their locks are not taken under ours.
    fn informers(&self) -> Vec<Informers> {
        let mut sources = self.0.lock();
        sources.retain(|_, informers| {
            informers.retain(|informer| informer.strong_count() > 0);
            !informers.is_empty()
        });
        let sources: Vec<_> = sources
            .iter()
            .map(|(identity, informers)| (labels(identity), informers.clone()))
            .collect();
        sources
            .into_iter()
            .map(|(labels, informers)| {
                let alive = informers.iter().filter_map(Weak::upgrade);
                (labels, alive.map(|informer| informer.read()).collect())
            })
            .collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
impl Collector for Read {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let informers = self.informers();
        // Informers of one identity are told as their sum.
        let sum = |read: fn(&CacheHealth) -> f64| {
            move |(labels, informers): &Informers| {
                (labels.clone(), informers.iter().map(read).sum::<f64>())
            }
        };
        let latest = |read: fn(&CacheHealth) -> f64| {
            move |(labels, informers): &Informers| {
                let latest = informers.iter().map(read).fold(0.0, f64::max);
                (labels.clone(), latest)
            }
        };
        let mut each = |name, help, read: &dyn Fn(&Informers) -> (Labels, f64)| {
            gauge(&mut encoder, name, help, informers.iter().map(read))
        };
        each(
            "informer_queued_items",
            "Number of changes that wait between the reflector and the store",
            &sum(|health| health.queued as f64),
        )?;
        each(
            "informer_store_resource_version",
            "The last 15 digits of the resource version of the store's content",
            &latest(|health| last_digits(&health.resource_version)),
        )?;
        each(
            "reflector_last_resource_version",
            "The last 15 digits of the newest resource version that any watch has brought",
            &latest(|health| {
                let versions = health.watches.iter().map(|watch| &watch.resource_version);
                versions.map(last_digits).fold(0.0, f64::max)
            }),
        )?;
        each(
            "informer_synced",
            "1 once everything that is asked for is in the store",
            &|(labels, informers)| {
                let synced = informers.iter().all(|health| health.synced);
                (labels.clone(), f64::from(u8::from(synced)))
            },
        )?;
        each(
            "informer_last_heard_timestamp_seconds",
            "When the API server was heard last, in seconds since 1970; of several watches the longest ago",
            &|(labels, informers)| {
                let heard = informers.iter().filter_map(|health| health.last_heard);
                let heard = heard
                    .min()
                    .map_or(0.0, |heard| heard.as_millisecond() as f64);
                (labels.clone(), heard / 1000.0)
            },
        )?;
        each(
            "informer_objects",
            "Number of objects in the store",
            &sum(|health| health.objects as f64),
        )?;
        each(
            "informer_store_bytes",
            "Bytes that the store takes",
            &sum(|health| health.bytes.total() as f64),
        )?;
        each(
            "informer_quarantined_objects",
            "Number of objects that the server holds and that cannot be read",
            &sum(|health| health.quarantined_count as f64),
        )?;
        let activities = informers.iter().flat_map(|(labels, informers)| {
            ACTIVITIES.into_iter().map(move |activity| {
                let busy = informers
                    .iter()
                    .filter(|health| health.activity == activity);
                let name = activity.to_string().replace(' ', "_");
                (with(labels, "activity", &name), busy.count() as f64)
            })
        });
        gauge(
            &mut encoder,
            "informer_activity",
            "What the informer is doing: 1 for that, 0 for all else",
            activities,
        )?;
        let handlers = || {
            informers.iter().flat_map(|(labels, informers)| {
                let handlers = informers.iter().flat_map(|health| &health.handlers);
                handlers.map(|handler| (with(labels, "handler", &handler.name), handler))
            })
        };
        let mut backlogs: BTreeMap<Labels, f64> = BTreeMap::new();
        let mut events: BTreeMap<Labels, u64> = BTreeMap::new();
        for (labels, handler) in handlers() {
            for (result, count) in [
                ("delivered", handler.delivered),
                ("dropped", handler.dropped),
                ("panicked", handler.panics),
            ] {
                *events.entry(with(&labels, "result", result)).or_default() += count;
            }
            *backlogs.entry(labels).or_default() += handler.backlog as f64;
        }
        gauge(
            &mut encoder,
            "informer_handler_backlog",
            "Number of events that wait for the handler",
            backlogs.into_iter(),
        )?;
        counter(
            &mut encoder,
            "informer_handler_events",
            "Total number of events by what became of them; those that panicked were delivered",
            events.into_iter(),
        )?;
        let unreadable = informers.iter().map(|(labels, informers)| {
            let count = informers.iter().map(|health| health.unreadable).sum();
            (labels.clone(), count)
        });
        counter(
            &mut encoder,
            "informer_unreadable_objects",
            "Total number of versions of objects that did not decode when somebody read them",
            unreadable,
        )
    }
}

impl fmt::Debug for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Read")
            .field("informers", &self.0.lock().keys().collect::<Vec<_>>())
            .finish()
    }
}

fn labels(informer: &InformerIdentity) -> Labels {
    vec![
        ("name", informer.name.to_string()),
        ("group", informer.group.clone()),
        ("version", informer.version.clone()),
        ("resource", informer.resource.clone()),
    ]
}

fn with(labels: &Labels, name: &'static str, value: &str) -> Labels {
    let mut labels = labels.clone();
    labels.push((name, value.to_owned()));
    labels
}

/// As many digits as a float holds exactly; 0 for what is no number (client-go: the same).
#[expect(clippy::cast_precision_loss, reason = "15 digits are below 2^52")]
fn last_digits(version: &ResourceVersion) -> f64 {
    let text = version.as_str();
    let last = text
        .get(text.len().saturating_sub(15)..)
        .unwrap_or_default();
    last.parse::<u64>().map_or(0.0, |digits| digits as f64)
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl Iterator<Item = (Labels, f64)>,
) -> fmt::Result {
    let series = series.map(|(labels, value)| (labels, ConstGauge::new(value)));
    encode(encoder, name, help, MetricType::Gauge, series)
}

fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl Iterator<Item = (Labels, u64)>,
) -> fmt::Result {
    let series = series.map(|(labels, value)| (labels, ConstCounter::new(value)));
    encode(encoder, name, help, MetricType::Counter, series)
}

fn encode<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    series: impl Iterator<Item = (Labels, M)>,
) -> fmt::Result {
    let mut series = series.peekable();
    if series.peek().is_none() {
        return Ok(());
    }
    let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in series {
        value.encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}
