//! A span for each request, with the names of OpenTelemetry's conventions for HTTP clients.
//!
//! The span begins when the request is passed on and ends with the head of the answer, as the duration in
//! `rest_client_request_duration_seconds` does: a watch does not keep its span open. A request that is dropped before its
//! answer ends with the error type `cancelled`.

use std::error::Error;
use std::fmt::{self, Display};
use std::io;
use std::sync::Arc;

use http::{Request, Response, Uri};
use kube_client::client::Body;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt};
use tracing::field::Empty;
use tracing::level_filters::LevelFilter;
use tracing::{Instrument, Span};

use super::template::Template;
use crate::chain::error_chain;
use crate::gate::Closed;

/// The server of the requests.
struct Server {
    address: String,
    port: u16,
}

// === impl Server ===

impl Server {
    fn of(cluster: &Uri) -> Self {
        let plain = cluster.scheme_str() == Some("http");
        Self {
            address: cluster.host().unwrap_or_default().to_owned(),
            port: cluster.port_u16().unwrap_or(if plain { 80 } else { 443 }),
        }
    }

    /// The span of `request`: a child of the current span at level debug. Without a current span it is a root, at level
    /// trace: leases and informers make many such requests.
    fn span<B>(&self, request: &Request<B>) -> Span {
        macro_rules! span {
            ($level:ident) => {{
                let path = request.uri().path();
                let (method, template) = (request.method(), Template::of(path));
                tracing::span!(
                    tracing::Level::$level,
                    "request",
                    otel.name = %Name(method.as_str(), &template),
                    otel.kind = "client",
                    otel.status_code = Empty,
                    otel.status_description = Empty,
                    http.request.method = method.as_str(),
                    url.template = %template,
                    url.path = path,
                    server.address = &*self.address,
                    server.port = self.port,
                    http.response.status_code = Empty,
                    error.type = Empty,
                )
            }};
        }
        let most = LevelFilter::current();
        if most < LevelFilter::DEBUG {
            Span::none()
        } else if !Span::current().is_none() {
            span!(DEBUG)
        } else if most < LevelFilter::TRACE {
            Span::none()
        } else {
            span!(TRACE)
        }
    }
}

/// The name of a span: `GET /api/v1/nodes/{name}`.
struct Name<'a>(&'a str, &'a Template<'a>);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.1)
    }
}

/// A request without an answer.
struct Pending(Option<Span>);

// === impl Pending ===

impl Pending {
    /// Records the answer. A status of 400 and more is an error of the span, as the conventions define for clients.
    fn answered<B>(mut self, answer: &Result<Response<B>, BoxError>) {
        let Some(span) = self.0.take() else {
            return;
        };
        match answer {
            Ok(response) => {
                let status = response.status();
                span.record("http.response.status_code", status.as_u16());
                if status.is_client_error() || status.is_server_error() {
                    tracing::record_all!(span, error.type = status.as_str(), otel.status_code = "ERROR");
                }
            }
            Err(error) => {
                tracing::record_all!(
                    span,
                    error.type = %type_of(&**error),
                    otel.status_code = "ERROR",
                    otel.status_description = %error_chain(&**error),
                );
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(span) = &self.0 {
            tracing::record_all!(span, error.type = "cancelled", otel.status_code = "ERROR");
        }
    }
}

/// The cause of a request without an answer, from a small set of words.
fn type_of(error: &(dyn Error + 'static)) -> String {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<Closed>() {
            return "not_leader".to_owned();
        }
        if error.is::<tower::timeout::error::Elapsed>() {
            return "timeout".to_owned();
        }
        next = match error.downcast_ref::<io::Error>() {
            Some(error) if error.kind() != io::ErrorKind::Other => {
                return format!("{:?}", error.kind());
            }
            // Its source is that of the error inside.
            Some(error) => error.get_ref().map(|inside| inside as _),
            None => error.source(),
        };
    }
    // The conventions' word for any other.
    "_OTHER".to_owned()
}

/// Makes a span for each request to `cluster`.
pub(super) fn traced<S, B>(
    service: S,
    cluster: &Uri,
) -> BoxCloneSyncService<Request<Body>, Response<B>, BoxError>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
    B: 'static,
{
    let server = Arc::new(Server::of(cluster));
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
        // Here, and not in the future: the buffer of a kube client enters the span of its caller only for this call.
        let span = server.span(&request);
        let answer = service.clone().oneshot(request);
        async move {
            if span.is_disabled() {
                return answer.await;
            }
            let pending = Pending(Some(span.clone()));
            let answer = answer.instrument(span).await;
            pending.answered(&answer);
            answer
        }
    }))
}

#[cfg(test)]
mod tests;
