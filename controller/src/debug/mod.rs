//! `/debug`: the state of a program on one page, for finding the cause of a standstill; problems come first. Each part has a
//! page of its own.
//!
//! | page | JSON field | shows |
//! |---|---|---|
//! | `/debug` | those of [`Overview`] | all parts, and the problems in them |
//! | `/debug/controllers` | `controllers`: [`ControllerReport`] | state, workers, results, watches and sources |
//! | `/debug/queues` | `queues`: [`QueueReport`] | each key: in flight, ready or waiting, failures, the last error |
//! | `/debug/informers` | `informers`: [`InformerReport`] | state, failures, handlers, objects that cannot be read |
//! | `/debug/election` | `election`: [`ElectionReport`] | the state of this candidate, the holder, the last error |
//! | `/debug/writes` | `writes`: [`WritesReport`] | own writes that the caches do not show yet |
//!
//! | query | means |
//! |---|---|
//! | `format=json`, `text` or `html` | the format; else the one that `Accept` prefers: JSON, a page for browsers, or plain text |
//! | `limit=N` | the maximum number of keys of a queue, and of objects in quarantine of an informer: by default 100, at most 1000 |
//! | `refresh=N` | a browser loads the page again every N seconds |
//! | `name=X` | only the controller, queue, informer or lease of this name; of an informer of [another cluster](crate::cluster), with that or without: `edge/pods`, `pods` |
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

mod controllers;
mod election;
mod html;
mod informers;
mod overview;
mod page;
mod problems;
mod queues;
#[cfg(test)]
mod tests;
mod times;
mod writes;

use std::sync::Arc;

use parking_lot::Mutex;
use reeve_clock::Clock;

pub use controllers::{ControllerReport, ReconcileCounts, RunReport, SourceReport, SourceState};
pub(crate) use election::{Candidate, Elections};
pub use election::{ElectionError, ElectionReport};
pub use informers::{
    FailureReport, HandlerReport, InformerReport, QuarantinedReport, WatchReport, informer_reports,
};
pub use overview::Overview;
pub use problems::{Problem, Section, Severity};
pub use queues::{ErrorReport, ItemReport, ItemState, QueueReport, Queues, Registration};
pub(crate) use times::before;
pub use writes::{KindReport, WritesReport};

pub use reeve_serve::debug::Pages;
use reeve_serve::debug::{Format, Page, Query, Shown};

use crate::cache::Caches;
use crate::cluster::Cluster;
use crate::lifecycle::Board;

/// The sources of the pages.
#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) queues: Queues,
    pub(crate) caches: Caches,
    pub(crate) clusters: Arc<Mutex<Vec<Cluster>>>,
    pub(crate) board: Board,
    pub(crate) elections: Elections,
    /// The name of this replica.
    pub(crate) instance: String,
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
        let controllers = self.clone();
        let controllers = move |query: &Query| {
            let mut reports = controllers.board.controllers();
            reports.retain(|report| query.is_for(&report.name));
            let text = || page::controllers(&reports, controllers.clock.now());
            query.show("controllers", &reports, text)
        };
        let election = self.clone();
        let election = move |query: &Query| {
            let mut reports = election.elections.report();
            reports.retain(|report| query.is_for(&report.lease));
            let text = || page::election(&reports, election.clock.now());
            query.show("election", &reports, text)
        };
        let writes = self.clone();
        let writes = move |query: &Query| {
            let mut reports = writes.board.own_writes();
            reports.retain(|report| query.is_for(&report.controller));
            let text = || page::writes(&reports, writes.clock.now());
            query.show("writes", &reports, text)
        };
        let all = self.clone();
        vec![
            Page::overview(move |query| all.show(query)),
            Page::new("controllers", controllers),
            Page::new("queues", queues),
            Page::new("informers", informers),
            Page::new("election", election),
            Page::new("writes", writes),
        ]
    }

    fn show(&self, query: &Query) -> Shown {
        let mut all = self.overview(query.limit);
        all.keep(|name| query.is_for(name));
        let all = all.with_problems();
        match query.format {
            // The reports have text keys only, so this does not fail.
            Format::Json => Shown::Json(serde_json::to_value(&all).unwrap_or_default()),
            Format::Html => Shown::Html(all.html()),
            _ => Shown::Text(all.text()),
        }
    }

    /// All reports without their problems, with at most `limit` keys of each queue and objects in quarantine of each informer.
    fn overview(&self, limit: usize) -> Overview {
        Overview {
            instance: self.instance.clone(),
            reeve: env!("CARGO_PKG_VERSION").to_owned(),
            time: self.clock.now(),
            problems: Vec::new(),
            controllers: self.board.controllers(),
            queues: self.queues.report(limit),
            informers: self.informers(limit),
            election: self.elections.report(),
            writes: self.board.own_writes(),
        }
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
