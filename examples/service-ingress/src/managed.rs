//! The same controller with the builder: the framework does what `raw` does by hand.

use std::convert::Infallible;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use reeve_controller::controller::BuildError;
use reeve_controller::{
    Context, Controller, Manager, Outcome, Reconciler, Request, Runnable, handler, reconcile,
};

use crate::act::{Acted, STALE, act, give_up};
use crate::desired::Defaults;
use crate::plan::plan;
use crate::{Error, NAME, Settings};

struct ServiceIngress {
    defaults: Defaults,
}

impl Reconciler for ServiceIngress {
    type Error = reconcile::Error;

    async fn reconcile(&self, ctx: Context, request: Request) -> Result<Outcome, Self::Error> {
        let service = ctx.lister::<Service>()?.get(&request)?;
        let ingress = ctx.lister::<Ingress>()?.get(&request)?;
        let step = plan(service.as_deref(), ingress.as_deref(), &self.defaults);
        let (client, events) = (ctx.client(), ctx.events());
        match act(client, events, &request, service.as_deref(), step).await? {
            Acted::Done | Acted::Wrote(_) => Ok(Outcome::done()),
            Acted::Stale => Ok(Outcome::requeue_after(STALE)),
        }
    }
}

fn controller(manager: &Manager, settings: &Settings) -> Result<Controller, BuildError> {
    let (events, caches) = (manager.recorder(NAME), manager.caches().clone());
    let report = move |request: &Request, error: &reconcile::Error| {
        let services = caches.lister::<Service>().ok();
        let service = services.and_then(|services| services.get(request).ok().flatten());
        give_up(&events, service.as_deref(), error);
    };
    Controller::builder(NAME)
        .for_kind::<Service>()
        .owns::<Ingress>()
        // An Ingress with another owner may block the Service's name. Its deletion requests the Service again.
        .watches::<Ingress>(handler::for_object())
        .workers(settings.workers)
        // The original program counts from the second attempt.
        .max_retries(settings.max_retry.saturating_add(1), report)
        .complete(ServiceIngress {
            defaults: settings.defaults.clone(),
        })
}

/// Adds the controller, and a runnable that logs when the caches are filled.
pub(crate) fn add(manager: &Manager, settings: &Settings) -> Result<(), Error> {
    manager.add_controller(controller(manager, settings)?)?;
    let services = manager.caches().informer::<Service>()?;
    let ingresses = manager.caches().informer::<Ingress>()?;
    let announce = Runnable::new("start", async move |stop| {
        let synced = async {
            if services.wait_synced().await.is_ok() && ingresses.wait_synced().await.is_ok() {
                tracing::info!("start success");
            }
        };
        let _ = stop.run_until_cancelled(synced).await;
        Ok::<_, Infallible>(())
    });
    manager.add(announce.without_leader_election())?;
    Ok(())
}
