//! The exporter: OTLP, protobuf over HTTP.

use std::error::Error;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Subscriber};
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::filter::{Filtered, Targets};
use tracing_subscriber::layer::Layer as _;
use tracing_subscriber::registry::LookupSpan;

/// Sends spans in batches, from a thread of its own.
#[derive(Debug)]
pub struct Exporter {
    provider: SdkTracerProvider,
}

// === impl Exporter ===

impl Exporter {
    /// An exporter of the program `service` to `endpoint`, such as `http://localhost:4318/v1/traces`. Unset, it is that of the
    /// variables `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` and `OTEL_EXPORTER_OTLP_ENDPOINT`, or localhost.
    ///
    /// # Errors
    /// When the endpoint is not a URL.
    pub fn start(service: &'static str, endpoint: Option<&str>) -> Result<Self, Box<dyn Error>> {
        // The HTTP client needs one, also for plain HTTP. An error means that the process has one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let exporter = SpanExporter::builder().with_http();
        let exporter = match endpoint {
            Some(endpoint) => exporter.with_endpoint(endpoint),
            None => exporter,
        };
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter.build()?)
            .with_resource(Resource::builder().with_service_name(service).build())
            .build();
        Ok(Self { provider })
    }

    /// The layer that makes OpenTelemetry's spans of those of `tracing`, with the filter of [`spans`].
    #[must_use]
    pub fn layer<S>(&self) -> Filtered<OpenTelemetryLayer<S, SdkTracer>, Targets, S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let tracer = self.provider.tracer("traced");
        tracing_opentelemetry::layer()
            .with_tracer(tracer)
            // Attributes for the source file and the thread of each span would double its size.
            .with_location(false)
            .with_threads(false)
            .with_filter(spans())
    }

    /// Sends the spans that are left, and ends the thread. Call it at the end of `main`, not inside of the runtime's tasks: it
    /// blocks for at most 5 s.
    ///
    /// # Errors
    /// When the collector did not take them.
    pub fn stop(self) -> Result<(), Box<dyn Error>> {
        Ok(self.provider.shutdown()?)
    }
}

/// The spans that are exported: those of the program and of reconciles, and the requests of reconciles. Neither the HTTP
/// client of the exporter nor other libraries: their spans would be exported by the exporter's own requests.
#[must_use]
pub fn spans() -> Targets {
    Targets::new()
        .with_default(LevelFilter::OFF)
        .with_target("traced", Level::INFO)
        .with_target("reeve_controller", Level::INFO)
        .with_target("reeve_client", Level::DEBUG)
}
