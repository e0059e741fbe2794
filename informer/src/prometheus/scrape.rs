//! The metrics that are read from the informers at each scrape: [`Scrape`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::metrics::{Labels, Shared, with};
use crate::health::{Activity, CacheHealth};
use reeve_client::ResourceVersion;

/// The informers of one identity, by number.
type Informers = (Labels, BTreeMap<u64, CacheHealth>);
/// Counts, by the labels of the series.
type Counts = BTreeMap<Labels, Count>;

/// The values of the label `activity`.
const ACTIVITIES: [Activity; 6] = [
    Activity::Idle,
    Activity::Listing,
    Activity::Watching,
    Activity::BackingOff,
    Activity::Missing,
    Activity::Stopped,
];

/// Reads the informers at each scrape.
#[derive(Debug)]
pub(super) struct Scrape {
    shared: Arc<Shared>,
    counts: Mutex<Counted>,
}

/// The counters at the last scrape, so that none decreases when an informer or a handler is gone.
#[derive(Debug, Default)]
struct Counted {
    events: Counts,
    unreadable: Counts,
}

#[derive(Debug, Default)]
struct Count {
    /// The last count of each informer.
    last: BTreeMap<u64, u64>,
    /// The sum of informers and handlers that are gone.
    gone: u64,
}

// === impl Count ===

impl Count {
    /// The sum, with the present counts `now` of the informers. A count decreases if a handler is gone.
    fn total(&mut self, now: BTreeMap<u64, u64>) -> u64 {
        for (informer, last) in &self.last {
            let still = now.get(informer).copied().unwrap_or_default();
            self.gone += last.saturating_sub(still);
        }
        self.last = now;
        self.gone + self.last.values().sum::<u64>()
    }
}

/// The sums of all present series. The others are forgotten.
fn total(counts: &mut Counts, now: BTreeMap<Labels, BTreeMap<u64, u64>>) -> Vec<(Labels, u64)> {
    counts.retain(|labels, _| now.contains_key(labels));
    now.into_iter()
        .map(|(labels, now)| {
            let total = counts.entry(labels.clone()).or_default().total(now);
            (labels, total)
        })
        .collect()
}

// === impl Scrape ===

impl Scrape {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            counts: Mutex::default(),
        }
    }

    /// The state of each informer. Their locks are not taken under the lock of their list.
    fn read(&self) -> Vec<Informers> {
        let informers = self.shared.informers().into_iter();
        informers
            .map(|(labels, informers)| {
                let read = informers.iter();
                let read = read.map(|(number, informer)| (*number, informer.read()));
                (labels, read.collect())
            })
            .collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        // Held to the end: a second scrape continues from the counts of this one.
        let mut counts = self.counts.lock();
        let informers = self.read();
        // Informers of one identity are reported as their sum.
        let sum = |read: fn(&CacheHealth) -> f64| {
            move |(labels, informers): &Informers| {
                (labels.clone(), informers.values().map(read).sum::<f64>())
            }
        };
        let latest = |read: fn(&CacheHealth) -> f64| {
            move |(labels, informers): &Informers| {
                let latest = informers.values().map(read).fold(0.0, f64::max);
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
            "1 once all selected objects are in the store",
            &|(labels, informers)| {
                let synced = informers.values().all(|health| health.synced);
                (labels.clone(), f64::from(u8::from(synced)))
            },
        )?;
        each(
            "informer_last_heard_timestamp_seconds",
            "Time of the last answer of the API server, in seconds since 1970; of several watches the longest ago",
            &|(labels, informers)| {
                let heard = informers.values().filter_map(|health| health.last_heard);
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
                    .values()
                    .filter(|health| health.activity == activity);
                let name = activity.to_string().replace(' ', "_");
                (with(labels, "activity", &name), busy.count() as f64)
            })
        });
        gauge(
            &mut encoder,
            "informer_activity",
            "1 for the present activity of the informer, 0 for all others",
            activities,
        )?;
        let mut backlogs: BTreeMap<Labels, f64> = BTreeMap::new();
        let mut events: BTreeMap<Labels, BTreeMap<u64, u64>> = BTreeMap::new();
        let mut unreadable: BTreeMap<Labels, BTreeMap<u64, u64>> = BTreeMap::new();
        for (labels, informers) in &informers {
            for (&number, health) in informers {
                let of_identity = unreadable.entry(labels.clone()).or_default();
                of_identity.insert(number, health.unreadable);
                for handler in &health.handlers {
                    let labels = with(labels, "handler", &handler.name);
                    for (result, count) in [
                        ("delivered", handler.delivered),
                        ("dropped", handler.dropped),
                        ("panicked", handler.panics),
                    ] {
                        let counts = events.entry(with(&labels, "result", result)).or_default();
                        *counts.entry(number).or_default() += count;
                    }
                    *backlogs.entry(labels).or_default() += handler.backlog as f64;
                }
            }
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
            "Total number of events by result; those whose handler panicked were delivered",
            total(&mut counts.events, events).into_iter(),
        )?;
        counter(
            &mut encoder,
            "informer_unreadable_objects",
            "Total number of versions of objects that did not decode when they were read",
            total(&mut counts.unreadable, unreadable).into_iter(),
        )
    }
}

/// As many last digits as a float holds exactly; 0 for a version that is not a number (client-go: the same).
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
