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

use jiff::Timestamp;
use parking_lot::Mutex;
use reeve_clock::Clock;
use serde::Serialize;

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
        let all = self.clone();
        vec![
            Page::overview(move |query| all.show(query)),
            self.part("controllers", page::controllers, |all, query| {
                only(all.board.controllers(), |one| query.is_for(&one.name))
            }),
            self.part("queues", page::queues, |all, query| {
                let reports = all.queues.report(query.limit);
                only(reports, |one| query.is_for(&one.name))
            }),
            self.part("informers", page::informers, |all, query| {
                let is_for = |one: &InformerReport| {
                    query.is_for(&one.name) || query.is_for(&one.full_name())
                };
                only(all.informers(query.limit), is_for)
            }),
            self.part("election", page::election, |all, query| {
                only(all.elections.report(), |one| query.is_for(&one.lease))
            }),
            self.part("writes", page::writes, |all, query| {
                only(all.board.own_writes(), |one| query.is_for(&one.controller))
            }),
        ]
    }

    /// The page of one part: its reports, and their text.
    fn part<R: Serialize + 'static>(
        &self,
        name: &'static str,
        text: fn(&[R], Timestamp) -> String,
        reports: fn(&Self, &Query) -> Vec<R>,
    ) -> Page {
        let all = self.clone();
        Page::new(name, move |query| {
            let reports = reports(&all, query);
            query.show(name, &reports, || text(&reports, all.clock.now()))
        })
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

fn only<R>(mut reports: Vec<R>, is_for: impl Fn(&R) -> bool) -> Vec<R> {
    reports.retain(is_for);
    reports
}
