//! The effects of a process on the cloud and on Services, its crash at one of them, and failures of the cloud.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cloud_loadbalancer::identity::{FINALIZER, SERVICE_TAG, UID_TAG};
use cloud_loadbalancer::provider::layer::{Call, Layer};
use cloud_loadbalancer::provider::{Error, Kind};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Service;
use kube_client::client::Body;
use kube_core::ResourceExt;
use parking_lot::Mutex;
use reeve_controller::ObjectKey;
use reeve_controller::client::optional;
use tokio::sync::Notify;

/// The side of an effect at which a process crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It did not happen.
    Before,
    /// It happened, and the process never sees the answer.
    After,
}

/// The calls of the cloud and the writes of Services, counted, and the one at which the process crashes.
#[derive(Clone, Default)]
pub(crate) struct Effects(Arc<Counted>);

#[derive(Default)]
struct Counted {
    count: AtomicUsize,
    crash: Mutex<Option<(usize, Phase)>>,
    crashed: Notify,
    names: Mutex<Vec<String>>,
    /// Load balancers that were created for a Service without a finalizer.
    violations: Mutex<Vec<String>>,
}

/// Failures of the cloud: before the call, and after it took effect.
#[derive(Clone)]
pub(crate) struct Faults {
    pub(crate) random: Arc<reeve_clock::Clock>,
    /// The percentage of each.
    pub(crate) percent: u64,
}

/// The layer of a process.
pub(crate) struct Watched {
    pub(crate) effects: Effects,
    pub(crate) client: reeve_controller::Client,
    pub(crate) faults: Option<Faults>,
}

// === impl Effects ===

impl Effects {
    /// Crashes the process at the `number`-th effect from now.
    pub(crate) fn arm(&self, number: usize, phase: Phase) {
        self.0.names.lock().clear();
        self.0.count.store(0, Ordering::Relaxed);
        *self.0.crash.lock() = Some((number, phase));
    }

    /// Whether the process was crashed.
    pub(crate) fn fired(&self) -> bool {
        self.0.crash.lock().is_none()
    }

    /// Waits for the crash.
    pub(crate) async fn crashed(&self) {
        self.0.crashed.notified().await;
    }

    /// The effects since [`Effects::arm`].
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.names.lock().clone()
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.0.violations.lock().clone()
    }

    async fn before(&self, name: &str) -> usize {
        let number = self.0.count.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.names.lock().push(name.to_owned());
        self.crash_at(number, Phase::Before).await;
        number
    }

    async fn crash_at(&self, number: usize, phase: Phase) {
        let hit = self
            .0
            .crash
            .lock()
            .take_if(|at| *at == (number, phase))
            .is_some();
        if hit {
            self.0.crashed.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// A client whose writes of Services count.
    pub(crate) fn counting(&self, kube: kube_client::Client) -> kube_client::Client {
        let namespace = kube.default_namespace().to_owned();
        let effects = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (kube, effects) = (kube.clone(), effects.clone());
            async move {
                let path = request.uri().path();
                if request.method() == http::Method::GET || !path.contains("/services/") {
                    return kube.send(request).await;
                }
                let name = if path.ends_with("/status") {
                    "write status"
                } else {
                    "write Service"
                };
                let number = effects.before(name).await;
                let answer = kube.send(request).await;
                effects.crash_at(number, Phase::After).await;
                answer
            }
        });
        kube_client::Client::new(service, namespace)
    }
}

// === impl Watched ===

impl Watched {
    /// Before a creation: the Service exists, and has its finalizer.
    async fn check(&self, call: &Call<'_>) {
        let Some(create) = call.create else { return };
        let name = create.tags[SERVICE_TAG].split_once('/').unwrap();
        let key = ObjectKey::namespaced(name.0, name.1);
        let service = optional(self.client.get::<Service>(&key).await).unwrap();
        let held = service.is_some_and(|service| {
            service.finalizers().contains(&FINALIZER.to_owned())
                && service.metadata.deletion_timestamp.is_none()
                && service.metadata.uid.as_ref() == create.tags.get(UID_TAG)
        });
        if !held {
            self.effects.0.violations.lock().push(key.to_string());
        }
    }

    fn fault(&self) -> Option<Error> {
        let faults = self.faults.as_ref()?;
        let hit = faults.random.random().below(100) < faults.percent;
        hit.then(|| Error::new(Kind::Unavailable, "ServiceUnavailable", "no answer"))
    }
}

impl Layer for Watched {
    type Started = usize;

    fn before<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, Result<usize, Error>> {
        async move {
            let number = self.effects.before(call.name).await;
            self.check(call).await;
            self.fault().map_or(Ok(number), Err)
        }
        .boxed()
    }

    fn after<'a>(
        &'a self,
        _: &'a Call<'a>,
        number: usize,
        _: Result<(), &'a Error>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        async move {
            self.effects.crash_at(number, Phase::After).await;
            self.fault().map_or(Ok(()), Err)
        }
        .boxed()
    }
}
