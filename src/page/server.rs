//! The paths of the page, and its listener.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, LOCATION, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, StatusCode};
use reeve_serve::certificates::{self, Certificates};
use reeve_serve::debug;
use reeve_serve::http::{Answer, Handler, Limits, Request, RouteError, Router, Server};
use sha2::{Digest as _, Sha256};

use super::guard::Guard;
use super::reader::Reader;
use crate::inbound;

/// The page's markup below the head.
const BODY: &str = include_str!("page.html");
/// Its script.
const SCRIPT: &str = include_str!("page.js");

/// The path of the page. Its documents are below it.
const PAGE: &str = "/blocks";

/// How the page is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where it is served. Port 0 takes a free one.
    pub address: SocketAddr,
    /// A file with tokens, one a line.
    pub token_file: Option<PathBuf>,
    /// A directory with `tls.crt` and `tls.key`: HTTPS.
    pub certificates: Option<PathBuf>,
}

/// Why the page cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address cannot be bound.
    #[error("the page cannot listen at {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The certificate cannot be used.
    #[error("the certificate of the page: {0}")]
    Certificate(#[from] certificates::Error),
    /// Two parts of it have one path.
    #[error(transparent)]
    Route(#[from] RouteError),
}

/// Binds the address of the page.
///
/// # Errors
/// See [`Error`].
///
/// # Panics
/// Outside a tokio runtime.
pub async fn bind(settings: &Settings, guard: &Guard, reader: Reader) -> Result<Server, Error> {
    let address = settings.address;
    if settings.certificates.is_none() && !address.ip().is_loopback() {
        tracing::warn!(
            "the page takes tokens over plain HTTP: every client on the way can read and use them; set --page-cert-path"
        );
    }
    let handler = router(guard, &reader)?.into_handler();
    let server = Server::bind("page", address, handler).await;
    let server = server.map_err(|source| Error::Bind { address, source })?;
    let server = match &settings.certificates {
        Some(folder) => {
            let (chain, key) = (folder.join("tls.crt"), folder.join("tls.key"));
            server.tls(Certificates::from_files(chain, key).await?, false)?
        }
        None => server,
    };
    Ok(server.limits(limits()))
}

/// Limits of a listener for a few people.
fn limits() -> Limits {
    Limits::default()
        .header_timeout(Duration::from_secs(5))
        .idle(Duration::from_secs(30))
        .header_bytes(32 * 1024)
        .headers(64)
        .answer_timeout(Duration::from_secs(30))
        .connections(64)
        .drain(Duration::from_secs(1))
}

fn router(guard: &Guard, reader: &Reader) -> Result<Router, RouteError> {
    let page: Arc<str> = page().into();
    let policy = policy();
    let read = |handler: Handler| guard.protect(reading(handler));
    let shown = move |_: Request| {
        let mut answer = inbound::typed(
            StatusCode::OK,
            "text/html; charset=utf-8",
            page.as_bytes().to_vec(),
        );
        answer
            .headers_mut()
            .insert(CONTENT_SECURITY_POLICY, policy.clone());
        std::future::ready(answer)
    };
    let for_state = reader.clone();
    let state = move |_: Request| {
        let reader = for_state.clone();
        async move {
            match reader.state().await {
                Ok(state) => document(&*state),
                Err(why) => unavailable(&why),
            }
        }
    };
    let for_why = reader.clone();
    let why = move |request: Request| {
        let reader = for_why.clone();
        async move {
            let target = match address(&request).parse() {
                Ok(target) => target,
                Err(error) => {
                    let document = serde_json::json!({ "error": format!("{error}") });
                    return inbound::json(StatusCode::BAD_REQUEST, &document);
                }
            };
            match reader.why(target).await {
                Ok(answer) => document(&answer),
                Err(why) => unavailable(&why),
            }
        }
    };
    let home = |_: Request| {
        let mut answer = inbound::text(StatusCode::FOUND, "see /blocks");
        let page = HeaderValue::from_static(PAGE);
        answer.headers_mut().insert(LOCATION, page);
        std::future::ready(answer)
    };
    Router::new()
        .with(PAGE, read(boxed(shown)))?
        .with(format!("{PAGE}/state"), read(boxed(state)))?
        .with(format!("{PAGE}/why"), read(boxed(why)))?
        .route("/", home)
}

fn boxed<F>(handler: impl Fn(Request) -> F + Send + Sync + 'static) -> Handler
where
    F: Future<Output = Answer> + Send + 'static,
{
    Arc::new(move |request| Box::pin(handler(request)))
}

/// Has `handler` answer GET and HEAD only, with headers that keep its answers where they are.
fn reading(handler: Handler) -> Handler {
    Arc::new(move |request| {
        let handler = Arc::clone(&handler);
        Box::pin(async move {
            let mut answer = if matches!(*request.method(), Method::GET | Method::HEAD) {
                handler(request).await
            } else {
                inbound::text(StatusCode::METHOD_NOT_ALLOWED, "the page is read-only")
            };
            for (name, value) in [
                (CACHE_CONTROL, "no-store"),
                (X_CONTENT_TYPE_OPTIONS, "nosniff"),
                (REFERRER_POLICY, "no-referrer"),
                (
                    HeaderName::from_static("cross-origin-resource-policy"),
                    "same-origin",
                ),
            ] {
                answer
                    .headers_mut()
                    .insert(name, HeaderValue::from_static(value));
            }
            answer
        })
    })
}

/// The page: the frame of the debug pages, and a script.
#[must_use]
pub fn page() -> String {
    let body = format!("{BODY}<script>{SCRIPT}</script>\n");
    let links = [
        debug::Link::new("blocks", "blocks").current(true),
        debug::Link::new("as JSON", "blocks/state"),
    ];
    debug::document("IPBlock operator", &links, None, &body)
}

/// The policy of the debug pages, which also allows the page's script and its requests.
pub(super) fn policy() -> HeaderValue {
    let hash = STANDARD.encode(Sha256::digest(SCRIPT));
    let more = format!("default-src 'none'; script-src 'sha256-{hash}'; connect-src 'self';");
    let text = debug::POLICY.replacen("default-src 'none';", &more, 1);
    // A policy of visible letters, as the one it is made of.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(debug::POLICY))
}

/// The parameter `address` of a request.
fn address(request: &Request) -> String {
    let query = request.uri().query().unwrap_or_default();
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    let found = pairs.find(|(name, _)| name == "address");
    found
        .map(|(_, value)| value.trim().to_owned())
        .unwrap_or_default()
}

fn document(value: &impl serde::Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(text) => inbound::typed(StatusCode::OK, "application/json", text),
        Err(error) => unavailable(&error.to_string()),
    }
}

fn unavailable(why: &str) -> Answer {
    let document = serde_json::json!({ "error": why });
    inbound::json(StatusCode::SERVICE_UNAVAILABLE, &document)
}
