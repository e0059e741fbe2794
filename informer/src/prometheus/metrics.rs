//! The families of metrics, and the receiver of measurements: [`Metrics`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::scrape::Scrape;
use crate::informer::{Gauges, InformerIdentity, MetricsProvider};
use crate::metrics::{InformerMetrics, Measurement};

pub(super) type Labels = Vec<(&'static str, String)>;
/// The informers of one identity, by number.
type Alive = (Labels, Vec<(u64, Arc<dyn Gauges>)>);
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
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    families: Families,
    /// The present informers. Series are made and removed under this lock.
    sources: Mutex<Sources>,
}

/// The families whose values are counted as events happen.
struct Families {
    processing: Histograms,
    lists: Family<Labels, Counter>,
    list_duration: Histograms,
    list_items: Histograms,
    watches: Family<Labels, Counter>,
    short_watches: Family<Labels, Counter>,
    watch_duration: Histograms,
    watch_items: Histograms,
    failures: Family<Labels, Counter>,
}

#[derive(Default)]
struct Sources {
    /// The number of the next informer.
    next: u64,
    informers: BTreeMap<InformerIdentity, BTreeMap<u64, Source>>,
}

struct Source {
    gauges: Weak<dyn Gauges>,
    /// It was readable once. An informer that is being built is not readable yet.
    built: bool,
}

/// The receiver of one informer's measurements. When it is dropped, the informer is gone.
struct Pushed {
    shared: Arc<Shared>,
    identity: InformerIdentity,
    number: u64,
    series: Series,
}

/// The series of one identity.
struct Series {
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
const REASONS: [&str; 7] = [
    "list",
    "watch",
    "stalled",
    "stale_list",
    "stale_event",
    "new_epoch",
    "protobuf",
];

#[derive(Clone, Copy)]
enum Reason {
    List,
    Watch,
    Stalled,
    StaleList,
    StaleEvent,
    NewEpoch,
    Protobuf,
}

// === impl Metrics ===

impl Metrics {
    /// Registers the metrics; the registry must have no prefix for the names to be client-go's.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let families = Families::new();
        families.register(registry);
        let shared = Arc::new(Shared {
            families,
            sources: Mutex::default(),
        });
        registry.register_collector(Box::new(Scrape::new(Arc::clone(&shared))));
        Self { shared }
    }
}

impl MetricsProvider for Metrics {
    fn informer(
        &self,
        informer: &InformerIdentity,
        gauges: Weak<dyn Gauges>,
    ) -> Box<dyn InformerMetrics> {
        let mut sources = self.shared.sources.lock();
        Box::new(Pushed {
            shared: Arc::clone(&self.shared),
            identity: informer.clone(),
            number: sources.add(informer, gauges),
            series: self.shared.families.series(informer),
        })
    }
}

// === impl Families ===

impl Families {
    fn new() -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 2.5, 12));
        let minutes: fn() -> Histogram = || Histogram::new(exponential_buckets(0.1, 3.0, 9));
        let items: fn() -> Histogram = || Histogram::new(exponential_buckets(1.0, 10.0, 7));
        Self {
            processing: Family::new_with_constructor(seconds),
            lists: Family::default(),
            list_duration: Family::new_with_constructor(seconds),
            list_items: Family::new_with_constructor(items),
            watches: Family::default(),
            short_watches: Family::default(),
            watch_duration: Family::new_with_constructor(minutes),
            watch_items: Family::new_with_constructor(items),
            failures: Family::default(),
        }
    }

    fn register(&self, registry: &mut Registry) {
        for (name, help, family) in [
            (
                "informer_processing_latency_seconds",
                "Time to put a batch of changes into the store and to handlers' queues",
                &self.processing,
            ),
            (
                "reflector_list_duration_seconds",
                "How long an API list takes to return and decode",
                &self.list_duration,
            ),
            (
                "reflector_items_per_list",
                "How many items an API list returns",
                &self.list_items,
            ),
            (
                "reflector_watch_duration_seconds",
                "How long an API watch takes to return and decode",
                &self.watch_duration,
            ),
            (
                "reflector_items_per_watch",
                "How many items an API watch returns",
                &self.watch_items,
            ),
        ] {
            registry.register(name, help, family.clone());
        }
        for (name, help, family) in [
            (
                "reflector_lists",
                "Total number of API lists done by the reflectors",
                &self.lists,
            ),
            (
                "reflector_watches",
                "Total number of API watches done by the reflectors",
                &self.watches,
            ),
            (
                "reflector_short_watches",
                "Total number of short API watches done by the reflectors",
                &self.short_watches,
            ),
            (
                "reflector_failures",
                "Total number of lists, watches and events that failed or were dropped, by reason",
                &self.failures,
            ),
        ] {
            registry.register(name, help, family.clone());
        }
    }

    fn series(&self, informer: &InformerIdentity) -> Series {
        let labels = labels(informer);
        Series {
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
        }
    }

    fn remove(&self, informer: &InformerIdentity) {
        let labels = labels(informer);
        for family in [&self.lists, &self.watches, &self.short_watches] {
            family.remove(&labels);
        }
        for family in [
            &self.processing,
            &self.list_duration,
            &self.list_items,
            &self.watch_duration,
            &self.watch_items,
        ] {
            family.remove(&labels);
        }
        for reason in REASONS {
            self.failures.remove(&with(&labels, "reason", reason));
        }
    }
}

// === impl Sources ===

impl Sources {
    fn add(&mut self, informer: &InformerIdentity, gauges: Weak<dyn Gauges>) -> u64 {
        let number = self.next;
        self.next += 1;
        let source = Source {
            gauges,
            built: false,
        };
        let sources = self.informers.entry(informer.clone()).or_default();
        sources.insert(number, source);
        number
    }
}

// === impl Shared ===

impl Shared {
    /// Forgets an informer, and with the last of its identity the series.
    fn forget(&self, informer: &InformerIdentity, number: u64) {
        let mut sources = self.sources.lock();
        let Some(of_identity) = sources.informers.get_mut(informer) else {
            return;
        };
        // It may have been forgotten before, and a later informer may have its identity.
        of_identity.remove(&number);
        if of_identity.is_empty() {
            sources.informers.remove(informer);
            self.families.remove(informer);
        }
    }

    /// The present informers, with their numbers. Those that are gone are forgotten.
    pub(super) fn informers(&self) -> Vec<Alive> {
        let mut alive = Vec::new();
        self.sources.lock().informers.retain(|identity, sources| {
            let mut informers = Vec::new();
            sources.retain(|number, source| match source.gauges.upgrade() {
                Some(informer) => {
                    source.built = true;
                    informers.push((*number, informer));
                    true
                }
                None => !source.built,
            });
            if sources.is_empty() {
                self.families.remove(identity);
            }
            if !informers.is_empty() {
                alive.push((labels(identity), informers));
            }
            !sources.is_empty()
        });
        alive
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sources = self.sources.lock();
        f.debug_struct("Shared")
            .field("informers", &sources.informers.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

// === impl Series ===

impl Series {
    fn failed(&self, reason: Reason) {
        self.failures[reason as usize].inc();
    }

    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
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
            Measurement::FellBackToJson => self.failed(Reason::Protobuf),
            // These are read at a scrape.
            Measurement::Quarantined
            | Measurement::Unreadable
            | Measurement::HandlerPanicked
            | Measurement::HandlerDropped { .. } => {}
        }
    }
}

// === impl Pushed ===

impl InformerMetrics for Pushed {
    fn record(&self, measurement: Measurement) {
        self.series.record(measurement);
    }
}

impl Drop for Pushed {
    fn drop(&mut self) {
        self.shared.forget(&self.identity, self.number);
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

pub(super) fn with(labels: &Labels, name: &'static str, value: &str) -> Labels {
    let mut labels = labels.clone();
    labels.push((name, value.to_owned()));
    labels
}
