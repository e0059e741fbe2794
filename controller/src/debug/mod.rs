//! `/debug/queues` and `/debug/informers`: the state of a program, for finding the cause of a standstill.
//!
//! | query | means |
//! |---|---|
//! | `format=json`, `text` or `html` | the format; else the one that `Accept` prefers: JSON, a page for browsers, or plain text |
//! | `limit=N` | the maximum number of keys of a queue, and of objects in quarantine of an informer: by default 100, at most 1000 |
//! | `name=X` | only the queue, or the informer, of this name; of an informer of [another cluster](crate::cluster), with that or without: `edge/pods`, `pods` |
//!
//! The pages name objects and show errors. They are served behind the filter of the metrics server, and without a filter
//! only to clients of the same network namespace, which `kubectl port-forward` is one of. See [`Pages`].
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use reeve_controller::debug::Queues;
//! use reeve_workqueue::Queue;
//! let queues = Queues::default();
//! let queue = Queue::builder().name("mine").build();
//! let _shown = queues.add(&queue);
//! queue.add("a".to_owned());
//! let reports = queues.report(100);
//! assert_eq!((reports[0].name.as_str(), reports[0].items[0].key.as_str()), ("mine", "a"));
//! # });
//! ```

mod informers;
mod page;
mod queues;

use std::sync::Arc;

use parking_lot::Mutex;
use reeve_clock::Clock;

pub use informers::{
    FailureReport, HandlerReport, InformerReport, QuarantinedReport, WatchReport, informer_reports,
};
pub use queues::{ErrorReport, ItemReport, ItemState, QueueReport, Queues, Registration};

pub use reeve_serve::debug::Pages;
use reeve_serve::debug::{Page, Query};

use crate::cache::Caches;
use crate::cluster::Cluster;

/// The sources of the pages.
#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) queues: Queues,
    pub(crate) caches: Caches,
    pub(crate) clusters: Arc<Mutex<Vec<Cluster>>>,
    pub(crate) clock: Clock,
}

// === impl Sources ===

impl Sources {
    pub(crate) fn pages(&self) -> Vec<Page> {
        let queues = self.clone();
        let queues = move |query: &Query| {
            let mut reports = queues.queues.report(query.limit);
            reports.retain(|report| query.is_for(&report.name));
            let text = || page::queues(&reports, queues.clock.now());
            query.show("queues", &reports, text)
        };
        let informers = self.clone();
        let informers = move |query: &Query| {
            let mut reports = informers.informers(query.limit);
            let named = |report: &InformerReport| {
                query.is_for(&report.name) || query.is_for(&report.full_name())
            };
            reports.retain(named);
            let text = || page::informers(&reports, informers.clock.now());
            query.show("informers", &reports, text)
        };
        vec![
            Page::new("queues", queues),
            Page::new("informers", informers),
        ]
    }

    /// The informers of the manager's cluster, and then those of the others, by name.
    fn informers(&self, limit: usize) -> Vec<InformerReport> {
        let mut reports = informer_reports(&self.caches.health(), limit);
        let mut clusters = self.clusters.lock().clone();
        clusters.sort_by(|a, b| a.name().cmp(b.name()));
        for cluster in clusters {
            let of_cluster = informer_reports(&cluster.caches().health(), limit);
            let named = of_cluster.into_iter();
            reports.extend(named.map(|report| report.of_cluster(cluster.name())));
        }
        reports
    }
}
