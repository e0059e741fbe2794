//! The listeners of set engines that are read over HTTP, kept in step with the configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::StatusCode;
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Frame;
use parking_lot::RwLock;
use reeve_serve::certificates::Certificates;
use reeve_serve::http::{Body, Handler, Server};

use crate::inbound::{self, Answer, Limits, Request, Running, text};
use crate::mounted::MountedFile;
use crate::outbound::BoxFuture;

/// The longest wait that a reader may ask for.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Readers wait on their connections for changes, so there are more of them at once than senders of alerts.
const CONNECTIONS: usize = 1024;

/// Answers the requests at and below one path.
pub(super) trait Surface: Send + Sync + fmt::Debug {
    /// `rest` is the part of the path behind the surface's own: empty, or beginning with a slash.
    fn answer(self: Arc<Self>, request: Request, rest: String) -> BoxFuture<'static, Answer>;
}

/// The certificate of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate with its chain, in PEM.
    pub certificate: MountedFile,
    /// Its key.
    pub key: MountedFile,
}

/// One surface, and where it is served.
pub(super) struct Served {
    pub(super) address: SocketAddr,
    /// `None`: plain HTTP. Surfaces of one address have the same.
    pub(super) tls: Option<Tls>,
    pub(super) path: String,
    pub(super) surface: Arc<dyn Surface>,
}

/// A listener at work.
#[derive(Debug)]
struct Listening {
    running: Running,
    routes: Arc<Routes>,
    tls: Option<Tls>,
}

/// Surfaces by path, exchanged under the running listener.
#[derive(Debug, Default)]
struct Routes(RwLock<BTreeMap<String, Arc<dyn Surface>>>);

/// All listeners.
#[derive(Debug, Default)]
pub(super) struct Listeners(BTreeMap<SocketAddr, Listening>);

// === impl Listeners ===

impl Listeners {
    /// Serves exactly `wanted` from now on. Returns what cannot be served; the next call tries it again.
    pub(super) async fn apply(&mut self, wanted: impl IntoIterator<Item = Served>) -> Vec<String> {
        type Surfaces = BTreeMap<String, Arc<dyn Surface>>;
        let mut all: BTreeMap<SocketAddr, (Option<Tls>, Surfaces)> = BTreeMap::new();
        for served in wanted {
            let (tls, surfaces) = all.entry(served.address).or_default();
            *tls = served.tls;
            surfaces.insert(served.path, served.surface);
        }
        // First those that end: another address may need their port.
        let stays = |address, tls| all.get(address).is_some_and(|(wanted, _)| wanted == tls);
        let gone = self.0.iter().filter(|(at, it)| !stays(*at, &it.tls));
        let gone: Vec<SocketAddr> = gone.map(|(address, _)| *address).collect();
        let ending = gone.iter().filter_map(|address| self.0.remove(address));
        let ending: Vec<_> = ending.map(|it| it.running.stop()).collect();
        futures::future::join_all(ending).await;
        let mut failed = Vec::new();
        for (address, (tls, surfaces)) in all {
            if let Some(present) = self.0.get(&address) {
                *present.routes.0.write() = surfaces;
                continue;
            }
            let routes = Arc::new(Routes(RwLock::new(surfaces)));
            match listen(address, tls.as_ref(), &routes).await {
                Ok(running) => {
                    tracing::info!(address = %running.local_addr(), "set engines are served");
                    let listening = Listening {
                        running,
                        routes,
                        tls,
                    };
                    self.0.insert(address, listening);
                }
                Err(error) => {
                    failed.push(format!("cannot listen at {address} for engines: {error}"));
                }
            }
        }
        failed
    }

    /// Where they listen, with the ports that were taken.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let running = self.0.values();
        running.map(|it| it.running.local_addr()).collect()
    }
}

// === impl Routes ===

impl Routes {
    /// The surface at the longest path that `path` begins with, and the rest.
    fn find(&self, path: &str) -> Option<(Arc<dyn Surface>, String)> {
        let routes = self.0.read();
        let fits = |own: &&String| {
            let rest = path.strip_prefix(own.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let own = routes.keys().rev().find(fits)?;
        let surface = Arc::clone(routes.get(own)?);
        Some((surface, path.get(own.len()..)?.to_owned()))
    }
}

/// A body of texts that are made when the client reads them.
pub(super) fn in_pieces(pieces: impl Iterator<Item = String> + Send + 'static) -> Body {
    let pieces = stream::iter(pieces.map(|piece| Ok(Frame::data(Bytes::from(piece)))));
    Body::pieces(UnsyncBoxBody::<Bytes, io::Error>::new(StreamBody::new(
        pieces,
    )))
}

fn limits() -> Limits {
    inbound::limits()
        .answer_timeout(LONGEST_WAIT + Duration::from_secs(10))
        .connections(CONNECTIONS)
}

async fn listen(
    address: SocketAddr,
    tls: Option<&Tls>,
    routes: &Arc<Routes>,
) -> io::Result<Running> {
    let certificates = match tls {
        Some(tls) => {
            let pair = Certificates::from_files(tls.certificate.path(), tls.key.path());
            Some(pair.await.map_err(io::Error::other)?)
        }
        None => None,
    };
    let serve = |address| {
        let routes = Arc::clone(routes);
        let handler: Handler = Arc::new(move |request: Request| {
            let found = routes.find(request.uri().path());
            Box::pin(async move {
                match found {
                    Some((surface, rest)) => surface.answer(request, rest).await,
                    None => text(StatusCode::NOT_FOUND, "no engine has this path"),
                }
            })
        });
        let socket = reeve_serve::http::listen(address)?;
        let mut server = Server::on(format!("engines {address}"), socket, handler);
        if let Some(certificates) = certificates.clone() {
            server = server.tls(certificates, false).map_err(io::Error::other)?;
        }
        server.limits(limits()).start()
    };
    match serve(address) {
        // A machine without IPv6 still has the other addresses.
        Err(_) if address.is_ipv6() && address.ip().is_unspecified() => serve(SocketAddr::new(
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            address.port(),
        )),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Named(&'static str);

    impl Surface for Named {
        fn answer(self: Arc<Self>, _: Request, rest: String) -> BoxFuture<'static, Answer> {
            Box::pin(async move { text(StatusCode::OK, format!("{} {rest}", self.0)) })
        }
    }

    #[test]
    fn a_request_goes_to_the_longest_path_that_fits_whole_segments() {
        let surface = |name| Arc::new(Named(name)) as Arc<dyn Surface>;
        let routes = [("/bans", "bans"), ("/bans/v6", "v6"), ("", "root")];
        let routes = routes.map(|(path, name)| (path.to_owned(), surface(name)));
        let routes = Routes(RwLock::new(routes.into()));
        let found = |path: &str| {
            let (surface, rest) = routes.find(path).unwrap();
            (format!("{surface:?}"), rest)
        };
        for (path, name, rest) in [
            ("/bans", "bans", ""),
            ("/bans/agents/a", "bans", "/agents/a"),
            ("/bans/v6", "v6", ""),
            ("/bansx", "root", "/bansx"),
            ("/v1/decisions", "root", "/v1/decisions"),
        ] {
            let expected = (format!("Named({name:?})"), rest.to_owned());
            assert_eq!(found(path), expected, "{path}");
        }
    }
}
