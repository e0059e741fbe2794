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
use reeve_serve::http::Body;

use crate::inbound::{self, Answer, Limits, Request, Running, text};
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

/// Surfaces by path, exchanged under the running listener.
#[derive(Debug, Default)]
struct Routes(RwLock<BTreeMap<String, Arc<dyn Surface>>>);

/// All listeners.
#[derive(Debug, Default)]
pub(super) struct Listeners(BTreeMap<SocketAddr, (Running, Arc<Routes>)>);

// === impl Listeners ===

impl Listeners {
    /// Serves exactly `wanted` from now on. Returns what cannot be served; the next call tries it again.
    pub(super) async fn apply(
        &mut self,
        wanted: impl IntoIterator<Item = (SocketAddr, String, Arc<dyn Surface>)>,
    ) -> Vec<String> {
        let mut routes: BTreeMap<SocketAddr, BTreeMap<String, Arc<dyn Surface>>> = BTreeMap::new();
        for (address, path, surface) in wanted {
            routes.entry(address).or_default().insert(path, surface);
        }
        // First those that end: another address may need their port.
        let gone = self.0.keys().filter(|it| !routes.contains_key(it));
        let gone: Vec<SocketAddr> = gone.copied().collect();
        let ending = gone.iter().filter_map(|address| self.0.remove(address));
        let ending: Vec<_> = ending.map(|(running, _)| running.stop()).collect();
        futures::future::join_all(ending).await;
        let mut failed = Vec::new();
        for (address, surfaces) in routes {
            if let Some((_, routes)) = self.0.get(&address) {
                *routes.0.write() = surfaces;
                continue;
            }
            let routes = Arc::new(Routes(RwLock::new(surfaces)));
            match listen(address, &routes) {
                Ok(running) => {
                    tracing::info!(address = %running.local_addr(), "set engines are served");
                    self.0.insert(address, (running, routes));
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
        running.map(|(running, _)| running.local_addr()).collect()
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

fn listen(address: SocketAddr, routes: &Arc<Routes>) -> io::Result<Running> {
    let handler = |routes: &Arc<Routes>| {
        let routes = Arc::clone(routes);
        move |request: Request| {
            let found = routes.find(request.uri().path());
            async move {
                match found {
                    Some((surface, rest)) => surface.answer(request, rest).await,
                    None => text(StatusCode::NOT_FOUND, "no engine has this path"),
                }
            }
        }
    };
    match inbound::serve(address, limits(), handler(routes)) {
        // A machine without IPv6 still has the other addresses.
        Err(_) if address.is_ipv6() && address.ip().is_unspecified() => {
            let v4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), address.port());
            inbound::serve(v4, limits(), handler(routes))
        }
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
