//! The objects that every cluster has, besides its namespaces.

use serde_json::{Value, json};

use super::internal::{Part, internal_request};
use crate::core::Core;
use crate::kinds::{flow, policy};
use crate::ownership::API_SERVER;
use crate::rbac;
use crate::request::Request;
use crate::store::Key;
use crate::verbs::create::create;
use crate::verbs::update;

/// Creates the roles and bindings of a server that checks rights.
pub(super) async fn roles(core: &Core) {
    for object in rbac::bootstrap_objects() {
        create_missing(core, &object).await;
    }
}

/// Creates the PriorityClasses of the system, the levels and schemas of flow control, the range of cluster addresses, and
/// the Service of the server.
pub(super) async fn objects(core: &Core) {
    let range = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16"]},
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "", "message": "Kubernetes default Service CIDR is ready"},
        ]},
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "clusterIP": "10.96.0.1",
            "ports": [{"name": "https", "port": 443, "targetPort": 6443}],
        },
    });
    let system = policy::system_classes().chain(flow::initial());
    for object in system.chain([range, service]) {
        create_missing(core, &object).await;
    }
}

async fn create_missing(core: &Core, object: &Value) {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let api_version = text("apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let served = core.registry.served();
    let Some(info) = served.of_kind(group, version, text("kind")) else {
        return;
    };
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let key = Key::new(metadata["namespace"].as_str(), name);
    if core.store.get(&info.storage, key.as_str()).is_some() {
        return;
    }
    let request = Request {
        agent: API_SERVER.to_owned(),
        ..internal_request(core, info, &key, Part::ApiServer)
    };
    let mut made = create(core, &request, object.clone()).await;
    if let (Ok(_), Some(status)) = (&made, object.get("status")) {
        let mut status = status.clone();
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"] = request.time().into();
        }
        let of_status = Request {
            subresource: "status".to_owned(),
            ..request
        };
        made = update::modify(core, &of_status, &|old| {
            let mut new = old.clone();
            new["status"] = status.clone();
            Ok(new)
        })
        .await;
    }
    if let Err(status) = made {
        let kind = text("kind");
        tracing::warn!(%status, kind, name, "could not create an initial object");
    }
}
