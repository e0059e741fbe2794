//! The metrics of requests to the API server, under client-go's names.
//!
//! [`Client::measured`](crate::Client::measured) counts every request that passes through it, whatever kube client it
//! wraps. A kube client of [`connect`](crate::connect) has a host, and counts into the metrics of its options; if both
//! are the same metrics, each request counts once.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use kube_client::client::Body;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt};

/// Bounds of `rest_client_request_duration_seconds` (client-go: `k8s.io/component-base/metrics/prometheus/restclient`).
const DURATION_BUCKETS: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];

/// Bounds of the sizes, in bytes: 64 B to 16 MiB (client-go: as above).
const SIZE_BUCKETS: [f64; 11] = [
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    code: String,
    method: String,
    host: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    verb: String,
    host: String,
}

type Measures = Family<Labels, Histogram, fn() -> Histogram>;

/// The metrics of requests: `rest_client_requests_total`, and histograms once [`RequestMetrics::measure`] was called. Clones
/// share them.
#[derive(Clone, Debug, Default)]
pub struct RequestMetrics(Arc<Families>);

#[derive(Debug, Default)]
struct Families {
    requests: Family<RequestLabels, Counter>,
    histograms: OnceLock<Histograms>,
}

/// Durations and sizes of requests.
#[derive(Clone, Debug)]
struct Histograms {
    duration: Measures,
    sent: Measures,
    received: Measures,
}

// === impl RequestMetrics ===

impl RequestMetrics {
    /// Registers `rest_client_requests_total` (the encoder adds `_total`).
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "rest_client_requests",
            "Requests to the API server per status code, method and host",
            self.0.requests.clone(),
        );
    }

    /// Measures requests from now on, beside counting them: durations (`rest_client_request_duration_seconds`) and sizes
    /// (`rest_client_request_size_bytes`, `…_response_size_bytes`), per verb and host. Off by default: it is three
    /// histograms for each verb (controller-runtime: opt-in, too).
    pub fn measure(&self, registry: &mut Registry) {
        self.0
            .histograms
            .get_or_init(|| Histograms::register(registry));
    }

    fn histograms(&self) -> Option<&Histograms> {
        self.0.histograms.get()
    }

    /// Whether both are the same set.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Counts one request, answered with the status `code`, or `<error>` for none.
    pub fn count(&self, code: &str, method: &str, host: &str) {
        let labels = RequestLabels {
            code: code.to_owned(),
            method: method.to_owned(),
            host: host.to_owned(),
        };
        self.0.requests.get_or_create(&labels).inc();
    }
}

impl AsRef<Self> for RequestMetrics {
    fn as_ref(&self) -> &Self {
        self
    }
}

// === impl Histograms ===

impl Histograms {
    fn register(registry: &mut Registry) -> Self {
        let sizes = || Family::new_with_constructor((|| Histogram::new(SIZE_BUCKETS)) as fn() -> _);
        let histograms = Self {
            duration: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            sent: sizes(),
            received: sizes(),
        };
        registry.register(
            "rest_client_request_duration_seconds",
            "How long a request to the API server took until the head of its answer came, per verb and host",
            histograms.duration.clone(),
        );
        registry.register(
            "rest_client_request_size_bytes",
            "The size of a request's body, per verb and host",
            histograms.sent.clone(),
        );
        registry.register(
            "rest_client_response_size_bytes",
            "The size of an answer's body, watches excepted, per verb and host",
            histograms.received.clone(),
        );
        histograms
    }
}

/// Extension of a request that is being counted, in which a later layer sets the host.
#[derive(Clone)]
struct Claim {
    metrics: RequestMetrics,
    host: Arc<OnceLock<Arc<str>>>,
}

/// A request in flight.
struct Observed {
    metrics: RequestMetrics,
    method: Method,
    watch: bool,
    began: Instant,
    sent: f64,
}

// === impl Observed ===

impl Observed {
    fn new(metrics: RequestMetrics, request: &Request<Body>) -> Self {
        let query = request.uri().query().unwrap_or_default();
        Self {
            metrics,
            method: request.method().clone(),
            watch: query.split('&').any(|part| part == "watch=true"),
            began: Instant::now(),
            sent: request.body().size_hint().exact().unwrap_or(0) as f64,
        }
    }

    /// Counts the answer; the result counts its body.
    fn answered<B, E>(&self, host: &str, answer: &Result<Response<B>, E>) -> Option<Size> {
        let code = answer.as_ref().ok().map(Response::status);
        let code = code.as_ref().map_or("<error>", StatusCode::as_str);
        self.metrics.count(code, self.method.as_str(), host);
        let histograms = self.metrics.histograms()?;
        let labels = Labels {
            verb: self.method.to_string(),
            host: host.to_owned(),
        };
        let took = self.began.elapsed().as_secs_f64();
        histograms.duration.get_or_create(&labels).observe(took);
        histograms.sent.get_or_create(&labels).observe(self.sent);
        (!self.watch).then(|| Size {
            bytes: 0,
            histogram: histograms.received.get_or_create_owned(&labels),
        })
    }
}

/// Counts a body, and records its size when it is dropped.
struct Size {
    bytes: u64,
    histogram: Histogram,
}

impl Drop for Size {
    fn drop(&mut self) {
        self.histogram.observe(self.bytes as f64);
    }
}

/// A body whose size is measured if `size` is set.
pub(crate) struct Weighed<B> {
    body: B,
    size: Option<Size>,
}

impl<B: http_body::Body<Data = Bytes> + Unpin> http_body::Body for Weighed<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let (Poll::Ready(Some(Ok(frame))), Some(size)) = (&polled, &mut self.size) {
            size.bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A kube client whose requests are counted, each once, also if it counts by itself.
#[derive(Clone)]
pub(crate) struct Counted {
    client: kube_client::Client,
    metrics: Option<RequestMetrics>,
}

// === impl Counted ===

impl Counted {
    /// Counts into `metrics`, if set.
    pub(crate) fn new(client: kube_client::Client, metrics: Option<RequestMetrics>) -> Self {
        Self { client, metrics }
    }

    /// As a kube client. Every kube client passes each request through a task of its own, so this adds one more:
    /// [`Counted::send`] is shorter.
    pub(crate) fn kube(&self) -> kube_client::Client {
        if self.metrics.is_none() {
            return self.client.clone();
        }
        let (namespace, until) = (
            self.client.default_namespace().to_owned(),
            *self.client.valid_until(),
        );
        let counted = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let counted = counted.clone();
            async move { counted.send(request).await }
        });
        kube_client::Client::new(service, namespace).with_valid_until(until)
    }

    /// Sends `request`, and counts it when it is answered.
    pub(crate) async fn send(
        &self,
        mut request: Request<Body>,
    ) -> Result<Response<Weighed<Body>>, kube_client::Error> {
        let counting = self.metrics.as_ref().map(|metrics| {
            let claim = Claim {
                metrics: metrics.clone(),
                host: Arc::default(),
            };
            let observed = Observed::new(metrics.clone(), &request);
            request.extensions_mut().insert(claim.clone());
            (claim, observed)
        });
        let answer = self.client.send(request).await;
        let size = counting.and_then(|(claim, observed)| {
            let host = claim.host.get().map_or("", |host| host);
            observed.answered(host, &answer)
        });
        answer.map(|response| response.map(|body| Weighed { body, size }))
    }
}

/// Sets the host of requests that are being counted, and counts them into `metrics` if those are others.
pub(crate) fn counting<S, B>(
    service: S,
    metrics: Option<RequestMetrics>,
    host: String,
) -> BoxCloneSyncService<Request<Body>, Response<Weighed<B>>, BoxError>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send,
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    let host: Arc<str> = host.into();
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
        let claim = request.extensions().get::<Claim>();
        if let Some(claim) = claim {
            let _ = claim.host.set(Arc::clone(&host));
        }
        let other = metrics
            .as_ref()
            .filter(|ours| claim.is_none_or(|claim| !claim.metrics.is(ours)));
        let observed = other.map(|metrics| Observed::new(metrics.clone(), &request));
        let host = Arc::clone(&host);
        service.clone().oneshot(request).map(move |answer| {
            let answer = answer.map_err(Into::into);
            let size = observed.and_then(|observed| observed.answered(&host, &answer));
            answer.map(|response| response.map(|body| Weighed { body, size }))
        })
    }))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube_core::params::ListParams;
    use reeve_apiserver::ApiServer;

    use super::*;
    use crate::client::Client;
    use crate::key::ObjectKey;

    /// A set of metrics in a registry of its own.
    #[derive(Default)]
    struct Metrics {
        requests: RequestMetrics,
        registry: Registry,
    }

    impl Metrics {
        fn new() -> Self {
            let mut metrics = Self::default();
            metrics.requests.register(&mut metrics.registry);
            metrics
        }
    }

    fn measured(client: kube_client::Client, metrics: &Metrics) -> kube_client::Client {
        Counted::new(client, Some(metrics.requests.clone())).kube()
    }

    fn lines(metrics: &Metrics, start: &str) -> Vec<String> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &metrics.registry).unwrap();
        let found = text.lines().filter(|line| line.starts_with(start));
        found.map(str::to_owned).collect()
    }

    /// A client like those of `connect`, with a host, that counts into `metrics` by itself.
    fn connected(server: &ApiServer, metrics: Option<&Metrics>) -> kube_client::Client {
        let kube = server.client();
        let service = tower::service_fn(move |request: Request<Body>| {
            let kube = kube.clone();
            async move { kube.send(request).await }
        });
        let service = counting(
            service,
            metrics.map(|metrics| metrics.requests.clone()),
            "cluster:6443".to_owned(),
        );
        kube_client::Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_counts_once_wherever_it_is_counted() {
        let server = ApiServer::builder().start().await.unwrap();
        let (ours, theirs) = (Metrics::new(), Metrics::new());
        for (case, client, counted, elsewhere, host) in [
            (
                "unknown to connect",
                measured(server.client(), &ours),
                1,
                0,
                "",
            ),
            (
                "connect alone",
                connected(&server, Some(&ours)),
                1,
                0,
                "cluster:6443",
            ),
            (
                "both the same",
                measured(connected(&server, Some(&ours)), &ours),
                1,
                0,
                "cluster:6443",
            ),
            (
                "the manager alone",
                measured(connected(&server, None), &ours),
                1,
                0,
                "cluster:6443",
            ),
            (
                "two sets",
                measured(connected(&server, Some(&theirs)), &ours),
                1,
                1,
                "cluster:6443",
            ),
        ] {
            let count = |metrics: &Metrics, host: &str| {
                let line = format!(
                    "rest_client_requests_total{{code=\"404\",method=\"GET\",host=\"{host}\"}} "
                );
                let found = lines(metrics, &line);
                found
                    .first()
                    .map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
            };
            let before = (count(&ours, host), count(&theirs, "cluster:6443"));
            let client = Client::new(client);
            let key = ObjectKey::namespaced("default", "none");
            assert!(
                client
                    .get::<ConfigMap>(&key)
                    .await
                    .unwrap_err()
                    .is_not_found()
            );
            let after = (count(&ours, host), count(&theirs, "cluster:6443"));
            assert_eq!(
                (after.0 - before.0, after.1 - before.1),
                (counted, elsewhere),
                "{case}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_is_counted_as_an_error() {
        let server = ApiServer::builder().start().await.unwrap();
        server
            .faults()
            .add(reeve_apiserver::faults::Rule::new().reset());
        let metrics = Metrics::new();
        let client = Client::new(measured(server.client(), &metrics));
        let listed = client.list::<ConfigMap>(None, &ListParams::default()).await;
        listed.unwrap_err();
        assert_eq!(
            lines(&metrics, "rest_client_requests_total"),
            ["rest_client_requests_total{code=\"<error>\",method=\"GET\",host=\"\"} 1"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn durations_and_sizes_are_measured_where_asked_for() {
        let server = ApiServer::builder().start().await.unwrap();
        let slow = reeve_apiserver::faults::Rule::new().verb("create");
        server
            .faults()
            .add(slow.delay(std::time::Duration::from_secs(3)));
        let mut metrics = Metrics::new();
        let client = Client::new(measured(connected(&server, None), &metrics));
        let mut map = ConfigMap::default();
        map.metadata.namespace = Some("default".into());
        map.metadata.name = Some("a".into());
        map.data = Some([("key".to_owned(), "v".repeat(100_000))].into());
        client.create(&map).await.unwrap();
        assert!(lines(&metrics, "rest_client_request_duration").is_empty());
        assert_eq!(
            lines(&metrics, "rest_client_requests_total").len(),
            1,
            "always"
        );

        metrics.requests.measure(&mut metrics.registry);
        metrics.requests.measure(&mut metrics.registry);
        map.metadata.name = Some("b".into());
        client.create(&map).await.unwrap();
        let labels = "{verb=\"POST\",host=\"cluster:6443\"";
        for (name, bound, above) in [
            ("request_duration_seconds", "2.0", 0),
            ("request_duration_seconds", "4.0", 1),
            ("request_size_bytes", "65536.0", 0),
            ("request_size_bytes", "262144.0", 1),
            ("response_size_bytes", "65536.0", 0),
            ("response_size_bytes", "262144.0", 1),
            ("response_size_bytes", "16777216.0", 1),
        ] {
            let line = format!(
                "rest_client_{name}_bucket{{le=\"{bound}\",verb=\"POST\",host=\"cluster:6443\"}} {above}"
            );
            let found = lines(&metrics, &format!("rest_client_{name}_bucket"));
            assert!(found.contains(&line), "{line} in {found:?}");
        }
        let sum = lines(
            &metrics,
            &format!("rest_client_request_duration_seconds_sum{labels}}}"),
        );
        assert_eq!(sum.len(), 1);
        assert!(sum[0].ends_with(" 3.0"), "{sum:?}");
    }
}
