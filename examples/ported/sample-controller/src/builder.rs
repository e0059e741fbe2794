//! The same controller with the builder: the framework has the factory, the handlers, the queue and the workers.

use k8s_openapi::api::apps::v1::Deployment;
use kube_core::ResourceExt;
use reeve_controller::{Context, Controller, Manager, Outcome, Request, reconcile};

use crate::sync::sync;
use crate::{Error, Foo, NAME};

/// Adds the controller to `manager`.
pub(crate) fn add(manager: &Manager) -> Result<(), Error> {
    let controller = Controller::builder(NAME)
        .for_kind::<Foo>()
        .owns::<Deployment>()
        .workers(2)
        .complete(reconcile::function(reconcile_foo))?;
    manager.add_controller(controller)?;
    Ok(())
}

async fn reconcile_foo(ctx: Context, request: Request) -> Result<Outcome, reconcile::Error> {
    let Some(foo) = ctx.lister::<Foo>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    let deployments = ctx.lister::<Deployment>()?;
    let name = &foo.spec.deployment_name;
    let deployment = deployments.get_named(foo.namespace().as_deref(), name)?;
    sync(ctx.client(), ctx.events(), &foo, deployment.as_deref()).await?;
    Ok(Outcome::done())
}
