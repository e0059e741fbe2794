//! `/debug/queues` and `/debug/informers`: what a program is at, for people who wonder why nothing happens.
//!
//! | query | means |
//! |---|---|
//! | `format=json`, `text` or `html` | how it looks; else what `Accept` prefers: JSON, a page for browsers, or plain text |
//! | `limit=N` | at most so many keys of a queue, and so many objects in quarantine of an informer: 100 unless said, at most 1000 |
//! | `name=X` | only the queue, or the informer, of this name; of an informer of [another cluster](crate::cluster), with that or without: `edge/pods`, `pods` |
//!
//! The pages name objects and show errors, so they are served behind the filter of the metrics server, and without one
//! only to who asks from the same network namespace: `kubectl port-forward` does. See [`Pages`].
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

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use parking_lot::Mutex;
use reeve_clock::Clock;

pub use informers::{
    FailureReport, HandlerReport, InformerReport, QuarantinedReport, WatchReport, informer_reports,
};
pub use queues::{ErrorReport, ItemReport, ItemState, QueueReport, Queues, Registration};

use crate::cache::Caches;
use crate::cluster::Cluster;
use crate::server::{Answer, Handler, Peer, text};
use page::Wish;

/// Who may see the pages on a metrics server without a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pages {
    /// Nobody; nor with a filter.
    Off,
    /// Who connects from 127.0.0.1 or ::1 and asks for a host of such a name: `kubectl port-forward`, or a shell in
    /// the Pod.
    #[default]
    Local,
    /// Everybody who reaches the server.
    Everybody,
}

/// What the pages show.
#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) queues: Queues,
    pub(crate) caches: Caches,
    pub(crate) clusters: Arc<Mutex<Vec<Cluster>>>,
    pub(crate) clock: Clock,
}

// === impl Sources ===

impl Sources {
    /// The handlers of the pages, by path. `filtered`: who comes here was let in by a filter.
    pub(crate) fn handlers(&self, pages: Pages, filtered: bool) -> Vec<(&'static str, Handler)> {
        if pages == Pages::Off {
            return Vec::new();
        }
        let open = filtered || pages == Pages::Everybody;
        let queues = self.clone();
        let informers = self.clone();
        vec![
            (
                "/debug/queues",
                handler(open, move |wish| {
                    let mut reports = queues.queues.report(wish.limit);
                    reports.retain(|report| wish.is_for(&report.name));
                    page::queues(&reports, wish, queues.clock.now())
                }),
            ),
            (
                "/debug/informers",
                handler(open, move |wish| {
                    let mut reports = informers.informers(wish.limit);
                    let named = |report: &InformerReport| {
                        wish.is_for(&report.name) || wish.is_for(&report.full_name())
                    };
                    reports.retain(named);
                    page::informers(&reports, wish, informers.clock.now())
                }),
            ),
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

fn handler(open: bool, page: impl Fn(&Wish) -> Answer + Send + Sync + 'static) -> Handler {
    Arc::new(move |request| {
        let answer = if *request.method() != Method::GET && *request.method() != Method::HEAD {
            text(StatusCode::METHOD_NOT_ALLOWED, "405 method not allowed\n")
        } else if !open && !is_local(&request) {
            text(
                StatusCode::FORBIDDEN,
                "this page names objects: ask for it by kubectl port-forward, or protect the metrics server\n",
            )
        } else {
            match Wish::of(&request) {
                Ok(wish) => page(&wish),
                Err(problem) => text(StatusCode::BAD_REQUEST, format!("{problem}\n")),
            }
        };
        Box::pin(std::future::ready(answer))
    })
}

/// From this machine, and not by a browser that was told that this machine has another name.
fn is_local(request: &Request<Incoming>) -> bool {
    let peer = request.extensions().get::<Peer>();
    let named = request.headers().get(http::header::HOST);
    let named = named.and_then(|host| host.to_str().ok()?.parse::<http::uri::Authority>().ok());
    // HTTP/2 names it beside the path.
    let host = named.as_ref().or_else(|| request.uri().authority());
    peer.is_some_and(|peer| is_loopback(&peer.0.ip().to_string()))
        && host.is_some_and(|host| is_loopback(host.host().trim_matches(['[', ']'])))
}

/// Not the whole of 127/8: proxies of service meshes come from there with the requests of others.
fn is_loopback(host: &str) -> bool {
    ["127.0.0.1", "::1", "::ffff:127.0.0.1", "localhost"].contains(&host)
}
