//! A kube client that detects dead peers, uses the proxy only for clusters that need it, and does not retry by itself.
//!
//! Differences from `kube_client::Client::try_from(config)`:
//! * no retries inside (`default_retry = false`). kube-client repeats a request that was answered with 429, 503
//!   or 504 up to 15 times before its caller gets the answer: an informer then sends several times the requests that
//!   its reflector allows, and waits for a minute where it should react at once. Back-off belongs to the reflector and
//!   the queue, which have the context of a retry;
//! * connecting is bounded (10 s, with TLS 15 s), TCP keepalive and, on Linux, `TCP_USER_TIMEOUT` find a peer that is gone
//!   within 45 s;
//! * `NO_PROXY` is matched against the cluster's address. kube-client 5.0 matches it against the proxy's own;
//! * a credential plugin (`exec`) runs once for all requests, at the first one and before its credentials end. A run that
//!   asks nothing ends after three minutes. kube-client runs it while the client is made, and a plugin that hangs keeps a
//!   thread and a process for each request that was given up;
//! * a client certificate in files is read again each minute, and one of a plugin is renewed before its end. New
//!   connections use the new one, and requests under way end on theirs. kube-client reads a certificate once;
//! * each request carries the program's `User-Agent`;
//! * a program in which two providers of cryptography are compiled does not panic: the provider of the feature
//!   `aws-lc-rs` or `ring` is installed for the process, unless the program has installed one;
//! * undelivered data of a closed connection is discarded, so that a write does not arrive minutes after its process
//!   has ended.
//!
//! ```no_run
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! use reeve_client::connect;
//! let client = connect::infer(&connect::Options::new().user_agent("greeter/1.2")).await?;
//! # Ok(()) }
//! ```
//!
//! # Spans
//! Each request has a span of the crate `tracing`, with the names of OpenTelemetry's conventions for HTTP clients, so that a
//! program can export them (`examples/traced`):
//!
//! | field | value |
//! |---|---|
//! | `otel.name`, `otel.kind` | `GET /api/v1/namespaces/{namespace}/pods/{name}`, `client` |
//! | `http.request.method`, `url.template`, `url.path` | the method, the path without names, the path; never the query or a header |
//! | `server.address`, `server.port` | the cluster's |
//! | `http.response.status_code` | the status of the answer |
//! | `error.type`, `otel.status_code` | for a status of 400 and more: that status, and `ERROR`; without an answer: `timeout`, `not_leader`, the kind of an I/O error, `cancelled` for a request that was dropped, or `_OTHER` |
//!
//! The span ends with the head of the answer, also that of a watch. Its level is debug, and its parent is the span of the
//! caller, such as a reconcile. A request outside of every span (a lease, the lists and watches of informers) is a root
//! at level trace: otherwise the renewals of a lease alone would be 40,000 traces a day. The level of a log is usually
//! info, which costs one comparison for a request; an exporter has a filter of its own: `info,reeve_client=debug`.
//!
//! kube-client's trace layer is not part of a client of this module. It logs each answer of 500 and more as an error,
//! which the caller logs again with its context, and it records the whole URL, with the query.
//!
//! A client of this module also checks the gate of a [gated](crate::Client::gated) write again when the write is sent,
//! and counts its requests (`rest_client_requests_total`) if [`Options::metrics`] is set.

mod credentials;
mod cryptography;
mod error;
mod files;
mod identity;
pub mod location;
mod options;
mod pair;
mod plugin;
mod proxy;
mod service;
mod template;
#[cfg(all(test, unix))]
mod tests;
mod trace;

use kube_client::Config;

pub use error::Error;
pub use location::Location;
pub use options::Options;
pub(crate) use service::Unsent;
pub use service::{CONNECT_TIMEOUT, DEAD_PEER_TIMEOUT, HANDSHAKE_TIMEOUT};

use crate::gate::Gated;
use crate::measure::counting;

/// A client for the cluster of the environment: see [`location`].
///
/// # Errors
/// When there is none, or the configuration is invalid.
pub async fn infer(options: &Options) -> Result<kube_client::Client, Error> {
    locate(&Location::new(), options).await
}

/// A client for the cluster of `location`.
///
/// # Errors
/// When there is none, or the configuration is invalid.
pub async fn locate(location: &Location, options: &Options) -> Result<kube_client::Client, Error> {
    connect(location.load().await?, options)
}

/// A client for `config`. Must be called inside a tokio runtime; nothing is sent yet. Installs a provider of cryptography
/// for the process, unless there is one.
///
/// # Errors
/// When the certificates, the credentials or the proxy are invalid, or TLS has no provider of cryptography.
pub fn connect(config: Config, options: &Options) -> Result<kube_client::Client, Error> {
    let (host, namespace) = (
        config.cluster_url.authority().map(ToString::to_string),
        config.default_namespace.clone(),
    );
    let cluster = config.cluster_url.clone();
    // Made, authenticated and about to be sent: a write checks its gate here.
    let service = service::service(config, options, Gated::request)?;
    let counted = counting(service, options.metrics.clone(), host.unwrap_or_default());
    let traced = trace::traced(counted, &cluster);
    Ok(kube_client::Client::new(traced, namespace))
}
