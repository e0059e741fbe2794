//! The events that reconcile a Service: its own, those of nodes, and those of EndpointSlices.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube_core::ResourceExt;
use reeve_controller::{Caches, Event, ObjectKey};
use serde_json::Value;

use crate::annotations::Annotations;
use crate::backends::{self, Mode, Readiness, eligible};
use crate::hash;
use crate::intent::{Intent, intent};

/// Whether an event of a Service is worth a reconcile: not the writes of this controller.
pub(crate) fn service_changed(event: &Event<Service>) -> bool {
    let Event::Updated { old, new, .. } = event else {
        return true;
    };
    let status = |service: &Service| {
        let status = service.status.as_ref()?;
        status.load_balancer.as_ref()?.ingress.clone()
    };
    // The status counts: another client may clear it. Writing it again is not a loop, since it is then as wanted.
    hash::of(old, &Value::Null) != hash::of(new, &Value::Null)
        || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        || old.metadata.finalizers != new.metadata.finalizers
        || (status(new) != status(old) && status(new).is_none())
}

/// Whether an event of a node may change the backends of a Service.
pub(crate) fn node_changed(event: &Event<Node>, readiness: Readiness) -> bool {
    let Event::Updated { old, new, .. } = event else {
        return true;
    };
    let instance = |node: &Node| eligible(node, readiness, &std::collections::BTreeMap::new());
    instance(old) != instance(new) || old.metadata.labels != new.metadata.labels
}

/// Whether an event of an EndpointSlice may change the backends of its Service.
pub(crate) fn slice_changed(event: &Event<EndpointSlice>) -> bool {
    let Event::Updated { old, new, .. } = event else {
        return true;
    };
    old.endpoints != new.endpoints
        || old.ports != new.ports
        || old.metadata.labels != new.metadata.labels
}

/// The Services whose backends are nodes.
pub(crate) fn services_on_nodes(caches: &Caches, default_class: bool) -> Vec<ObjectKey> {
    services(caches, |service| {
        intent(service, default_class) == Intent::Ensure
            && backends::mode(service, &Annotations::parse(service).0) != Mode::Pod
    })
}

fn services(caches: &Caches, wanted: impl Fn(&Service) -> bool) -> Vec<ObjectKey> {
    // Until the cache is filled there is nothing to select: its first list reconciles every Service.
    let lister = caches.lister::<Service>().ok();
    let all: Vec<Arc<Service>> = lister
        .and_then(|lister| lister.list_where(wanted).ok())
        .unwrap_or_default();
    let key = |service: &Arc<Service>| {
        ObjectKey::namespaced(service.namespace().unwrap_or_default(), service.name_any())
    };
    all.iter().map(key).collect()
}

/// The Service `key`, if its backends come from EndpointSlices.
pub(crate) fn reads_slices(caches: &Caches, key: &ObjectKey, default_class: bool) -> bool {
    let Ok(lister) = caches.lister::<Service>() else {
        return false;
    };
    let service = lister.get(key).ok().flatten();
    service.is_some_and(|service| {
        intent(&service, default_class) == Intent::Ensure
            && backends::mode(&service, &Annotations::parse(&service).0) != Mode::Cluster
    })
}
