//! The listeners of set engines that are read over HTTP, kept in step with the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::StatusCode;
use http::header::{CONNECTION, HeaderValue, RETRY_AFTER};
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Frame;
use parking_lot::{Mutex, RwLock};
use reeve_serve::http::{Body, ClientCertificate};

use super::definition::Serve;
use super::metrics::Metrics;
use crate::inbound::{self, Answer, Limits, Request, Running, text};
use crate::outbound::BoxFuture;
use crate::sampled::Sampled;
use crate::trigger::{Tls, is_named, no_ipv6};

/// The longest wait that a reader may ask for.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Connections beyond the readers of an address: those that are refused, and those that idle.
const SPARE: usize = 256;

/// How often a refusal is logged.
const FULL: Duration = Duration::from_secs(60);

/// Answers the requests at and below one path.
pub(super) trait Surface: Send + Sync + fmt::Debug {
    /// `rest` is the part of the path behind the surface's own: empty, or beginning with a slash.
    fn answer(self: Arc<Self>, request: Request, rest: String) -> BoxFuture<'static, Answer>;
}

/// A surface, and where it is served.
#[derive(Debug)]
pub(super) struct Site {
    /// The engine, for metrics.
    pub(super) name: String,
    pub(super) surface: Arc<dyn Surface>,
    pub(super) serve: Serve,
}

/// A surface at its path.
#[derive(Debug)]
struct Route {
    surface: Arc<dyn Surface>,
    client_names: Vec<String>,
    gate: Arc<Gate>,
}

/// Bounds the requests in work.
#[derive(Debug)]
struct Gate {
    engine: String,
    most: usize,
    open: AtomicUsize,
    full: Sampled,
    /// `None`: its engine is gone, and with it its gauge.
    metrics: Mutex<Option<Metrics>>,
}

/// A request in work.
struct Reader(Arc<Gate>);

/// Surfaces by path, exchanged under the running listener.
#[derive(Debug, Default)]
struct Routes(RwLock<BTreeMap<String, Arc<Route>>>);

/// All listeners.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    running: BTreeMap<SocketAddr, Listener>,
    metrics: Metrics,
}

#[derive(Debug)]
struct Listener {
    running: Running,
    routes: Arc<Routes>,
    tls: Option<Tls>,
    connections: usize,
}

// === impl Site ===

#[cfg(test)]
impl Site {
    /// For every client, without certificates.
    pub(super) fn open(address: SocketAddr, path: &str, surface: Arc<dyn Surface>) -> Self {
        Self {
            name: "edge".into(),
            surface,
            serve: Serve {
                address,
                path: path.into(),
                access: super::access::Access::Insecure,
                tls: None,
                client_names: Vec::new(),
                readers: super::definition::READERS,
            },
        }
    }
}

// === impl Gate ===

impl Gate {
    /// `None`: there are as many requests in work as may be.
    fn enter(self: &Arc<Self>) -> Option<Reader> {
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        let reader = Reader(Arc::clone(self));
        self.show(open);
        if open <= self.most {
            return Some(reader);
        }
        if let Some(metrics) = &*self.metrics.lock() {
            metrics.refused(&self.engine);
        }
        if let Some(unlogged) = self.full.pass() {
            tracing::warn!(engine = %self.engine, most = self.most, unlogged,
                "set engine refuses readers: raise `readers`");
        }
        None
    }

    fn show(&self, open: usize) {
        if let Some(metrics) = &*self.metrics.lock() {
            metrics.readers(&self.engine, open.min(self.most));
        }
    }

    /// Requests that are in work still count no more.
    fn retire(&self) {
        *self.metrics.lock() = None;
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let open = self.0.open.fetch_sub(1, Ordering::Relaxed) - 1;
        self.0.show(open);
    }
}

// === impl Listeners ===

impl Listeners {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self {
            running: BTreeMap::new(),
            metrics,
        }
    }

    /// Serves exactly `wanted` from now on. Returns what cannot be served; the next call tries it again.
    pub(super) async fn apply(&mut self, wanted: impl IntoIterator<Item = Site>) -> Vec<String> {
        let mut sites: BTreeMap<SocketAddr, Vec<Site>> = BTreeMap::new();
        for site in wanted {
            sites.entry(site.serve.address).or_default().push(site);
        }
        let settings = |sites: &[Site]| {
            let tls = sites.first().and_then(|site| site.serve.tls.clone());
            let readers: usize = sites.iter().map(|site| site.serve.readers).sum();
            (tls, readers + SPARE)
        };
        let mut failed = Vec::new();
        // The files may be mounted later than the edit that names them. Until then they are served as before, unless that asks
        // readers for less.
        let mut unread = BTreeSet::new();
        for (address, listener) in &self.running {
            let wanted = sites.get(address).and_then(|sites| settings(sites).0);
            if let (Some(former), Some(tls)) = (&listener.tls, wanted)
                && *former != tls
                && (former.clients.is_some() || tls.clients.is_none())
                && let Err(error) = tls.load().await
            {
                failed.push(format!(
                    "engines at {address} are served as before: {error}"
                ));
                unread.insert(*address);
            }
        }
        // First those that end: another address may need their port.
        let is_other = |(address, listener): (&SocketAddr, &Listener)| {
            let wanted = sites.get(address).map(|sites| settings(sites));
            let kept = wanted == Some((listener.tls.clone(), listener.connections))
                || unread.contains(address);
            (!kept).then_some(*address)
        };
        let gone: Vec<SocketAddr> = self.running.iter().filter_map(is_other).collect();
        let gone: Vec<Listener> = gone
            .iter()
            .filter_map(|address| self.running.remove(address))
            .collect();
        for route in gone.iter().flat_map(|it| it.routes.all()) {
            route.gate.retire();
        }
        let ending = gone.into_iter().map(|listener| listener.running.stop());
        let ending: Vec<_> = ending.collect();
        futures::future::join_all(ending).await;
        for (address, sites) in sites {
            let (tls, connections) = settings(&sites);
            let listener = self.running.get(&address);
            let before = listener.map(|listener| listener.routes.0.read().clone());
            let before = before.unwrap_or_default();
            let surfaces = sites.into_iter().map(|site| {
                let path = site.serve.path.clone();
                let route = self.route(before.get(&path), site);
                (path, Arc::new(route))
            });
            let surfaces: BTreeMap<String, Arc<Route>> = surfaces.collect();
            if let Some(listener) = listener {
                let kept =
                    |gate: &Arc<Gate>| surfaces.values().any(|it| Arc::ptr_eq(&it.gate, gate));
                for route in before.values().filter(|route| !kept(&route.gate)) {
                    route.gate.retire();
                }
                *listener.routes.0.write() = surfaces;
                continue;
            }
            let routes = Arc::new(Routes(RwLock::new(surfaces)));
            match listen(address, tls.as_ref(), connections, &routes).await {
                Ok(running) => {
                    tracing::info!(address = %running.local_addr(), https = tls.is_some(), "set engines are served");
                    let listener = Listener {
                        running,
                        routes,
                        tls,
                        connections,
                    };
                    self.running.insert(address, listener);
                }
                Err(error) => {
                    failed.push(format!("cannot listen at {address} for engines: {error}"));
                }
            }
        }
        failed
    }

    /// The requests in work count on while the engine stays.
    fn route(&self, before: Option<&Arc<Route>>, site: Site) -> Route {
        let same = |gate: &&Arc<Gate>| gate.engine == site.name && gate.most == site.serve.readers;
        let gate = before.map(|route| &route.gate).filter(same).cloned();
        let gate = gate.unwrap_or_else(|| {
            let gate = Gate {
                engine: site.name.clone(),
                most: site.serve.readers,
                open: AtomicUsize::new(0),
                full: Sampled::every(FULL),
                metrics: Mutex::new(Some(self.metrics.clone())),
            };
            gate.show(0);
            Arc::new(gate)
        });
        Route {
            surface: site.surface,
            client_names: site.serve.client_names,
            gate,
        }
    }

    /// Where they listen, with the ports that were taken.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let running = self.running.values();
        running
            .map(|listener| listener.running.local_addr())
            .collect()
    }
}

// === impl Routes ===

impl Routes {
    fn all(&self) -> Vec<Arc<Route>> {
        self.0.read().values().cloned().collect()
    }

    /// The surface at the longest path that `path` begins with, and the rest.
    fn find(&self, path: &str) -> Option<(Arc<Route>, String)> {
        let routes = self.0.read();
        let fits = |own: &&String| {
            let rest = path.strip_prefix(own.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let own = routes.keys().rev().find(fits)?;
        let route = Arc::clone(routes.get(own)?);
        Some((route, path.get(own.len()..)?.to_owned()))
    }
}

// === impl Route ===

impl Route {
    async fn answer(&self, request: Request, rest: String) -> Answer {
        let certificate = request.extensions().get::<ClientCertificate>();
        if !self.client_names.is_empty() && !is_named(certificate, &self.client_names) {
            let why = "the certificate has none of the expected names";
            return text(StatusCode::FORBIDDEN, why);
        }
        let Some(_reader) = self.gate.enter() else {
            let mut answer = text(
                StatusCode::SERVICE_UNAVAILABLE,
                "there are too many readers",
            );
            let headers = answer.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
            return answer;
        };
        let mut answer = Arc::clone(&self.surface).answer(request, rest).await;
        if refuses(answer.status()) {
            // A client without credentials does not hold a connection. One that this replica has no list for does not
            // stay at it: a new connection to the Service may reach another.
            let headers = answer.headers_mut();
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }
}

fn refuses(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::SERVICE_UNAVAILABLE
    )
}

/// A body of texts that are made when the client reads them.
pub(super) fn in_pieces(pieces: impl Iterator<Item = String> + Send + 'static) -> Body {
    let pieces = stream::iter(pieces.map(|piece| Ok(Frame::data(Bytes::from(piece)))));
    Body::pieces(UnsyncBoxBody::<Bytes, io::Error>::new(StreamBody::new(
        pieces,
    )))
}

fn limits(connections: usize) -> Limits {
    inbound::limits()
        .answer_timeout(LONGEST_WAIT + Duration::from_secs(10))
        .connections(connections)
}

async fn listen(
    address: SocketAddr,
    tls: Option<&Tls>,
    connections: usize,
    routes: &Arc<Routes>,
) -> io::Result<Running> {
    let certificates = match tls {
        Some(tls) => Some(tls.load().await?),
        None => None,
    };
    let serve = |address| {
        let routes = Arc::clone(routes);
        let handler = move |request: Request| {
            let found = routes.find(request.uri().path());
            async move {
                match found {
                    Some((route, rest)) => route.answer(request, rest).await,
                    None => text(StatusCode::NOT_FOUND, "no engine has this path"),
                }
            }
        };
        inbound::serve_tls(address, certificates.clone(), limits(connections), handler)
    };
    match serve(address) {
        // A machine without IPv6 still has the other addresses.
        Err(error) if address.is_ipv6() && address.ip().is_unspecified() && no_ipv6(&error) => {
            let v4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), address.port());
            serve(v4)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests;
