//! One small API server, its candidates, and writes under their lease.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use reeve_client::{Client, Gated};
use reeve_clock::Clock;
use reeve_fake::{Fake, clock};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::{ElectionMetrics, Elector, Fence, Options};

pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";
pub(crate) const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lock";
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/ns/configmaps";

/// A server, and the clock of its candidates.
pub(crate) struct Fixture {
    pub(crate) fake: Fake,
    pub(crate) clock: Clock,
}

/// An elector with what outlives it.
pub(crate) struct Candidate {
    pub(crate) elector: Elector,
    pub(crate) fence: Fence,
    pub(crate) metrics: ElectionMetrics,
}

// === impl Fixture ===

impl Fixture {
    pub(crate) fn new() -> Self {
        Self {
            fake: Fake::default(),
            clock: clock(),
        }
    }

    pub(crate) fn candidate(&self, identity: &str) -> Candidate {
        self.candidate_with(&self.clock, Options::new("ns", "lock").identity(identity))
    }

    pub(crate) fn candidate_with(&self, clock: &Clock, options: Options) -> Candidate {
        let fence = Fence::closed(clock.clone());
        let metrics = ElectionMetrics::default();
        let client = Client::new(self.fake.client());
        let elector = Elector::with_fence(client, options, clock.clone(), fence.clone());
        Candidate {
            elector: elector.unwrap().with_metrics(metrics.clone()),
            fence,
            metrics,
        }
    }

    /// A candidate that has taken the lease.
    pub(crate) async fn leader(&self, identity: &str) -> Candidate {
        let mut candidate = self.candidate(identity);
        candidate.elector.acquire().await;
        candidate
    }

    /// The spec of the lease.
    pub(crate) fn spec(&self) -> Value {
        self.fake.object(LEASE).expect("a lease")["spec"].clone()
    }

    /// Another client writes the lease, held by `holder`.
    pub(crate) fn put_held_by(&self, holder: &str) {
        self.fake.put(LEASE, held_by(holder));
    }

    /// Another client adds a label to the lease.
    pub(crate) fn put_label(&self) {
        let mut lease = self.fake.object(LEASE).unwrap();
        lease["metadata"]["labels"] = json!({"added": "by another"});
        self.fake.put(LEASE, lease);
    }

    /// The verbs of all requests.
    pub(crate) fn verbs(&self) -> Vec<String> {
        let log = self.fake.log();
        let verb = |line: &String| line.split(' ').next().unwrap().to_owned();
        log.iter().map(verb).collect()
    }

    /// A kube client that checks the gate before the connection, after all other layers, as one of `connect` does.
    /// Requests wait for `delay` before that.
    pub(crate) fn checking_client(&self, delay: Duration) -> kube_client::Client {
        let server = self.fake.client();
        let service = tower::service_fn(move |request| {
            let server = server.clone();
            async move {
                tokio::time::sleep(delay).await;
                let (parts, body) = Gated::request(request)?.into_parts();
                let bytes = http_body_util::BodyExt::collect(body).await?.to_bytes();
                let request = http::Request::from_parts(parts, bytes.into());
                server.send(request).await.map_err(tower::BoxError::from)
            }
        });
        kube_client::Client::new(service, "ns")
    }
}

// === impl Candidate ===

impl Candidate {
    /// Whether it leads for `duration` from now on.
    pub(crate) async fn keeps(&mut self, duration: Duration) -> bool {
        timeout(duration, self.elector.keep()).await.is_err()
    }

    /// Time from now until it leads.
    pub(crate) async fn time_to_lead(mut self) -> Duration {
        let start = Instant::now();
        self.elector.acquire().await;
        start.elapsed()
    }

    /// A client that writes under the lease.
    pub(crate) fn client(&self, kube: kube_client::Client) -> Client {
        Client::new(kube).gated(self.fence.gate())
    }
}

/// A lease of `holder` with old times, and with metadata to keep.
pub(crate) fn held_by(holder: &str) -> Value {
    json!({"metadata": {"annotations": {"kept": "yes"}}, "spec": {"holderIdentity": holder,
        "leaseDurationSeconds": 15, "leaseTransitions": 3,
        "acquireTime": "2020-01-01T00:00:00.000000Z", "renewTime": "2020-01-01T00:00:00.000000Z"}})
}

/// The object of a write under the lease.
pub(crate) fn config_map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.namespace = Some("ns".into());
    map.metadata.name = Some(name.into());
    map
}

/// Creates `map` with the kube client underneath `client`.
pub(crate) async fn create_through_kube(
    client: &Client,
    map: &ConfigMap,
) -> Result<ConfigMap, kube_client::Error> {
    let body = serde_json::to_vec(map).unwrap();
    let request = kube_core::Request::new(CONFIG_MAPS).create(&Default::default(), body);
    client.kube().request(request.unwrap()).await
}
