//! `/metrics`: a registry in the OpenMetrics text format.
//!
//! ```
//! use parking_lot::Mutex;
//! use prometheus_client::registry::Registry;
//! use reeve_serve::certificates;
//! use reeve_serve::http::Router;
//! use reeve_serve::metrics::{encode, handler};
//!
//! let mut registry = Registry::default();
//! let reads = certificates::Metrics::register(&mut registry);
//! let registry = Mutex::new(registry);
//! let router = Router::new().with("/metrics", handler(move || encode(&registry.lock())))?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;

use http::{Method, StatusCode};
use prometheus_client::registry::Registry;

use crate::http::{Handler, answer, text};

/// The content type of [`encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Everything in `registry`, in the OpenMetrics text format ([`CONTENT_TYPE`]).
#[must_use]
pub fn encode(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a String does not fail. A collector that fails leaves the text without its end, which scrapers report.
    if prometheus_client::encoding::text::encode(&mut text, registry).is_err() {
        tracing::warn!("a metrics collector failed; the scrape is incomplete");
    }
    text
}

/// Answers each GET with the text that `encode` returns.
pub fn handler(encode: impl Fn() -> String + Send + Sync + 'static) -> Handler {
    Arc::new(move |request| {
        let response = match *request.method() {
            Method::GET | Method::HEAD => answer(StatusCode::OK, CONTENT_TYPE, encode()),
            _ => text(StatusCode::METHOD_NOT_ALLOWED, "405 method not allowed\n"),
        };
        Box::pin(std::future::ready(response))
    })
}
