//! The controller: a ConfigMap, a Deployment and a Service for each Website, and its line in a directory.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use reeve_controller::client::Patch;
use reeve_controller::conditions::Observation;
use reeve_controller::controller::BuildError;
use reeve_controller::prelude::*;
use serde_json::{from_value, json};

use crate::api::Website;

/// Keeps a deleted Website until its line is out of the directory.
pub const FINALIZER: &str = "web.example.com/directory";

/// Namespace and name of the ConfigMap that lists all sites. An owner reference cannot delete a line of it.
pub const DIRECTORY: (&str, &str) = ("website-system", "directory");

/// The controller, for `Manager::add_controller`.
pub fn websites() -> Result<Controller, BuildError> {
    Controller::builder("website")
        .for_kind::<Website>()
        .owns::<ConfigMap>()
        .owns::<Deployment>()
        .owns::<Service>()
        .workers(4)
        .complete(reconcile::object(reconcile))
}

async fn reconcile(ctx: Context, site: Arc<Website>) -> reconcile::Result {
    let work = async |event| match event {
        finalizer::Event::Apply(site) => apply(&ctx, &site).await,
        finalizer::Event::Cleanup(site) => Ok(list(&ctx, &site, None).await?.into()),
    };
    finalizer::apply_or_cleanup(&ctx, FINALIZER, site, work).await
}

async fn apply(ctx: &Context, site: &Website) -> reconcile::Result {
    let (client, name) = (ctx.client(), site.name_any());
    let labels = json!({"app": name});
    let page: ConfigMap = from_value(json!({"data": {"index.html": site.spec.page}}))?;
    child::create_or_patch(client, site, page, |is, wanted| is.data = wanted.data).await?;
    let ports = json!([{"port": 80}]);
    let service: Service = from_value(json!({"spec": {"selector": labels, "ports": ports}}))?;
    child::create_or_patch(client, site, service, |_, _| {}).await?;
    let deployment: Deployment = from_value(json!({"spec": {
        "replicas": site.spec.replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {
            "containers": [{"name": "web", "image": "nginx:1.29",
                "volumeMounts": [{"name": "page", "mountPath": "/usr/share/nginx/html"}]}],
            "volumes": [{"name": "page", "configMap": {"name": name}}],
        }},
    }}))?;
    let set = |is: &mut Deployment, wanted: Deployment| is.spec = wanted.spec;
    let (deployment, _) = child::create_or_patch(client, site, deployment, set).await?;
    list(ctx, site, Some(&site.spec.host)).await?;
    report(ctx, site, deployment).await
}

/// Sets the line of the site in the directory, or removes it.
async fn list(ctx: &Context, site: &Website, host: Option<&str>) -> reconcile::Result<()> {
    let directory = ObjectKey::namespaced(DIRECTORY.0, DIRECTORY.1);
    let line = ObjectKey::of(site).to_string().replace('/', ".");
    let map = ctx.lister::<ConfigMap>()?.get(&directory)?;
    let is = map.as_ref().and_then(|map| map.data.as_ref()?.get(&line));
    if is.map(String::as_str) != host {
        let patch = Patch::merge(json!({"data": {line: host}}));
        ctx.client().patch::<ConfigMap>(&directory, patch).await?;
    }
    Ok(())
}

/// Writes the status if it changed, and an Event when the site becomes ready.
async fn report(ctx: &Context, site: &Website, deployment: Deployment) -> reconcile::Result {
    let mut status = site.status.clone().unwrap_or_default();
    let was_ready = conditions::is_true(&status.conditions, "Ready");
    let pods = deployment.status.unwrap_or_default();
    status.ready_replicas = pods.ready_replicas.unwrap_or(0);
    let is_ready = status.ready_replicas >= site.spec.replicas
        && pods.observed_generation == deployment.metadata.generation;
    let observed = if is_ready {
        Observation::is_true("Ready", "Serving")
    } else {
        let pods = format!("{} of {} Pods", status.ready_replicas, site.spec.replicas);
        Observation::is_false("Ready", "Starting").message(pods)
    };
    let observed = observed.generation(site.metadata.generation);
    conditions::set(&mut status.conditions, observed, ctx.clock().now());
    let set = |site: &mut Website| site.status = Some(status.clone());
    ctx.client().mutate(site, set).await?;
    if is_ready && !was_ready {
        ctx.events()
            .event(site, EventType::Normal, "Serving", "Reconcile", "is online");
    }
    Ok(Outcome::done())
}
