//! The objects that every cluster has.
//!
//! Each one is a chore at the start of the server, so one that admission refuses is tried again.
//! (kubernetes: `PostStartHook` of the storage providers, `pkg/controlplane/controller`, which try again too.)

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::internal::{Part, internal_request};
use super::work::Work;
use crate::core::Core;
use crate::kinds::{ServiceRange, flow, policy};
use crate::meta;
use crate::ownership::API_SERVER;
use crate::rbac;
use crate::request::Request;
use crate::status::Status;
use crate::store::{Chore, Key};
use crate::verbs::create::create;
use crate::verbs::update;

/// Namespaces every cluster has.
const NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

static OBJECTS: LazyLock<Objects> = LazyLock::new(Objects::new);

struct Objects {
    all: Vec<Value>,
    /// The place of the first role or binding of a server that checks rights.
    roles: usize,
    /// The place of the first role or binding of a controller; they are last.
    controller_roles: usize,
}

// === impl Objects ===

impl Objects {
    /// The namespaces, the PriorityClasses of the system, the levels and schemas of flow control, the range of cluster
    /// addresses, the Service of the server, the roles and their bindings.
    fn new() -> Self {
        let namespaces = NAMESPACES.iter().map(
            |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        );
        let range = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": "kubernetes"},
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
                "ports": [{"name": "https", "port": 443, "targetPort": 6443}],
            },
        });
        let system = policy::system_classes().chain(flow::initial());
        let mut all: Vec<Value> = namespaces.chain(system).chain([range, service]).collect();
        let roles = all.len();
        all.extend(rbac::bootstrap_objects());
        let controller_roles = all.len();
        all.extend(rbac::of_controllers());
        Self {
            all,
            roles,
            controller_roles,
        }
    }
}

/// The chores that create the objects, in their order.
pub(super) fn chores(core: &Core) -> Vec<Chore> {
    let end = match (core.options.rbac, core.options.controller_roles) {
        (false, _) => OBJECTS.roles,
        (true, false) => OBJECTS.controller_roles,
        (true, true) => OBJECTS.all.len(),
    };
    (0..end).map(Chore::Initial).collect()
}

/// Creates the object at `place`, unless there is one of its name. Returns `false` if a write was refused.
pub(super) async fn create_missing(work: &Work<'_>, place: usize) -> bool {
    let Some(object) = OBJECTS.all.get(place) else {
        return true;
    };
    let (kind, name) = (meta::string(&object["kind"]), meta::text(object, "name"));
    match try_create(work, object).await {
        Ok(()) => true,
        Err(status) => {
            tracing::warn!(%status, kind, name, "could not create an initial object: it is retried");
            false
        }
    }
}

async fn try_create(work: &Work<'_>, object: &Value) -> Result<(), Status> {
    let api_version = meta::string(&object["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let served = work.registry.served();
    let Some(info) = served.of_kind(group, version, meta::string(&object["kind"])) else {
        return Ok(());
    };
    let object = &in_range(object.clone(), work.options.service_range);
    let key = Key::new(
        object["metadata"]["namespace"].as_str(),
        meta::text(object, "name"),
    );
    let request = Request {
        agent: API_SERVER.to_owned(),
        ..internal_request(work, info, &key, Part::ApiServer)
    };
    let stored = work.store.get(&info.storage, key.as_str());
    if stored.is_none() {
        create(work, &request, object.clone()).await?;
    }
    // The status is a write of its own, which may have been refused.
    let has_status = stored.is_some_and(|stored| stored.value()["status"]["conditions"].is_array());
    let Some(status) = object.get("status").filter(|_| !has_status) else {
        return Ok(());
    };
    let mut status = status.clone();
    for condition in meta::list_at(meta::object_mut(&mut status), "conditions") {
        condition["lastTransitionTime"] = request.time().into();
    }
    let of_status = Request {
        subresource: "status".to_owned(),
        ..request
    };
    update::modify(work, &of_status, &|old| {
        let mut new = old.clone();
        new["status"] = status.clone();
        Ok(new)
    })
    .await
    .map(|_| ())
}

/// The object with the range of cluster addresses, if it depends on that: the ServiceCIDR, and the Service of the server.
fn in_range(mut object: Value, range: ServiceRange) -> Value {
    match object["kind"].as_str() {
        Some("ServiceCIDR") => object["spec"]["cidrs"] = json!([range.to_string()]),
        Some("Service") => object["spec"]["clusterIP"] = range.first().to_string().into(),
        _ => {}
    }
    object
}
