//! The reconciler: it reads a Service from the cache, decides what to do ([`intent`](crate::intent)), and does it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use reeve_controller::{Context, ObjectKey, Outcome, Reconciler, Request, client, reconcile};

use crate::annotations::Annotations;
use crate::applier::Failures;
use crate::backends::{self, Mode, SERVICE_LABEL, Sources};
use crate::context::RequestContext;
use crate::explain;
use crate::guard::NOT_LEADER;
use crate::identity::{Note, Owner};
use crate::intent::{Intent, intent};
use crate::metrics::Metrics;
use crate::provider::Provider;
use crate::recall::Recall;
use crate::settings::Settings;

/// The name of the index of EndpointSlices by their Service.
pub(crate) const BY_SERVICE: &str = "service";
/// The wait for a state of the cloud.
pub(crate) const POLL: Duration = Duration::from_secs(2);

/// Gives Services their load balancers.
pub(crate) struct LoadBalancers {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics,
    pub(crate) recall: Recall,
}

/// The nodes and EndpointSlices of a Service.
#[derive(Debug, Default)]
pub(crate) struct Found {
    nodes: Vec<Arc<Node>>,
    slices: Vec<Arc<EndpointSlice>>,
}

// === impl Found ===

impl Found {
    pub(crate) fn sources(&self) -> Sources<'_> {
        Sources {
            nodes: &self.nodes,
            slices: &self.slices,
        }
    }
}

/// The value of the index: the namespace and name of a slice's Service.
pub(crate) fn service_of(slice: &EndpointSlice) -> Option<ObjectKey> {
    let meta = &slice.metadata;
    let name = meta.labels.as_ref()?.get(SERVICE_LABEL)?;
    let namespace = meta.namespace.as_deref()?;
    Some(ObjectKey::namespaced(namespace, name.as_str()))
}

// === impl LoadBalancers ===

impl LoadBalancers {
    /// The objects that the backends of the Service come from; no more than its mode reads.
    fn found(&self, request: &RequestContext) -> Result<Found, reconcile::Error> {
        let (annotations, _) = Annotations::parse(&request.service);
        let mode = backends::mode(&request.service, &annotations);
        let mut found = Found::default();
        if mode != Mode::Pod {
            found.nodes = request.ctx.lister::<Node>()?.list()?;
        }
        if mode != Mode::Cluster {
            let slices = request.ctx.lister::<EndpointSlice>()?;
            found.slices = slices.by_index(BY_SERVICE, &request.key.to_string())?;
        }
        Ok(found)
    }

    async fn act(
        &self,
        request: &mut RequestContext,
        intent: Intent,
    ) -> Result<Outcome, reconcile::Error> {
        if self.settings.dry_run {
            return self.report(request).await;
        }
        match intent {
            Intent::Ignore => Ok(Outcome::done()),
            Intent::Ensure => {
                let found = self.found(request)?;
                self.ensure(request, found.sources()).await
            }
            Intent::Remove(rest) => self.remove(request, rest).await,
        }
    }

    /// Reports the plan of a dry run.
    async fn report(&self, request: &RequestContext) -> Result<Outcome, reconcile::Error> {
        let found = self.found(request)?;
        let explained = explain::explain(
            &*self.provider,
            &self.settings,
            &request.service,
            found.sources(),
        );
        let text = explained.await.map_err(Failures::into_error)?;
        tracing::info!(service = %request.key, plan = text, "dry run");
        request.normal("DryRun", "Plan", text);
        Ok(Outcome::requeue_after(self.period(request)))
    }

    /// The time until the next full comparison, at random within a tenth so that Services do not all come at once.
    pub(crate) fn period(&self, request: &RequestContext) -> Duration {
        let random = request.ctx.clock().random();
        random.jitter(self.settings.drift_period, 0.1)
    }
}

impl Reconciler for LoadBalancers {
    type Error = reconcile::Error;

    async fn reconcile(&self, ctx: Context, key: Request) -> Result<Outcome, reconcile::Error> {
        self.recall.begin();
        let Some(service) = ctx.lister::<Service>()?.get(&key)? else {
            self.recall.forget(&key);
            return Ok(Outcome::done());
        };
        let intent = intent(&service, self.settings.default_class);
        if intent == Intent::Ignore {
            self.recall.forget(&key);
            return Ok(Outcome::done());
        }
        let note = Note::of(&service, ctx.clock().now());
        let owner = Owner::of(&self.settings.cluster, &service);
        let mut request = RequestContext {
            ctx,
            key,
            service,
            owner,
            note,
        };
        let result = self.act(&mut request, intent).await;
        let Err(error) = result else {
            return result;
        };
        let written = error.source().downcast_ref::<client::Error>();
        // A conflict is an outdated cache: the event with the new state comes, and if it does not, the wait between the attempts
        // grows.
        if written.is_some_and(client::Error::is_not_found) {
            // The Service is gone, as it may be without a finalizer.
            return Ok(Outcome::done());
        }
        let failures = error.source().downcast_ref::<Failures>();
        for failure in failures.iter().flat_map(|all| &all.failed) {
            self.metrics.failed(failure.call);
        }
        let deposed = failures.is_some_and(|all| all.failed[0].error.code == NOT_LEADER);
        if written.is_none() && !deposed {
            let (reason, action) = match intent {
                Intent::Remove(_) => ("DeleteLoadBalancerFailed", "Delete"),
                _ => ("SyncLoadBalancerFailed", "Ensure"),
            };
            request.warning(
                reason,
                action,
                format!("Error syncing load balancer: {error}"),
            );
        }
        Err(error)
    }
}
