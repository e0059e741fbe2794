//! Namespaces: where objects can be created, and which cannot be deleted.

use futures::future::{FutureExt, ready};

use super::request::{AdmissionRequest, Operation};
use super::server::Server;
use super::step::{Admission, Answer};
use crate::status::{GroupResource, Status};
use crate::store::Store;

/// Namespaces that cannot be deleted.
const IMMORTAL: &[&str] = &["default", "kube-system", "kube-public"];
const NAMESPACES: GroupResource<'static> = GroupResource {
    group: "",
    resource: "namespaces",
};

/// Refuses objects in a namespace that is absent or terminating, and the deletion of a namespace that every cluster has.
/// (apiserver: admission plugin `NamespaceLifecycle`.)
#[derive(Debug)]
pub(super) struct NamespaceLifecycle;

// === impl NamespaceLifecycle ===

impl Admission for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        let info = &request.request.info;
        match request.operation {
            Operation::Create => info.namespaced,
            Operation::Update | Operation::Connect => false,
            Operation::Delete => info.storage == NAMESPACES.resource,
        }
    }

    fn mutate<'a>(
        &'a self,
        server: &'a Server<'_>,
        request: &'a mut AdmissionRequest<'_>,
    ) -> Answer<'a> {
        let checked = match request.operation {
            Operation::Delete => may_be_deleted(&request.request.name),
            _ => accepts_objects(server.store, request),
        };
        ready(checked).boxed()
    }
}

fn may_be_deleted(namespace: &str) -> Result<(), Status> {
    if !IMMORTAL.contains(&namespace) {
        return Ok(());
    }
    let why = "this namespace may not be deleted";
    Err(Status::forbidden(NAMESPACES, namespace, why))
}

fn accepts_objects(store: &Store, request: &AdmissionRequest<'_>) -> Result<(), Status> {
    let namespace = request.request.namespace.as_str();
    let Some(found) = store.get(NAMESPACES.resource, namespace) else {
        return Err(Status::not_found(NAMESPACES, namespace));
    };
    if !found.is_terminating() {
        return Ok(());
    }
    Err(Status::forbidden(
        request.request.resource(),
        request.name(),
        format_args!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        ),
    )
    .with_cause(
        "NamespaceTerminating",
        "metadata.namespace",
        format!("namespace {namespace} is being terminated"),
    ))
}
