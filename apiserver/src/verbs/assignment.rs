//! The subresources of a Pod that a scheduler and a drain use: `binding` and `eviction`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Written;
use super::delete::{self, Options};
use super::update::{self, Changed};
use crate::core::Core;
use crate::field::quote;
use crate::meta;
use crate::request::Request;
use crate::selector::LabelSelector;
use crate::status::{GroupResource, Status};

/// The reason of a cause in the refusal of an eviction.
const BUDGET: &str = "DisruptionBudget";
const BUDGETS: &str = "poddisruptionbudgets.policy";

/// Assigns a Pod to the node that the binding names. (kubernetes: `BindingREST.assignPod`.)
///
/// # Errors
/// 400 for a binding of another name; 404; 409 for a Pod that has a node or is being deleted.
pub(crate) fn bind(core: &Core, request: &Request, binding: &Value) -> Result<Written, Status> {
    check_name(request, binding, "Binding")?;
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    let refuse = |why: String| {
        let resource = GroupResource {
            group: "",
            resource: "pods/binding",
        };
        Err(Status::conflict(resource, &request.name, why))
    };
    update::change(core, request, &|old| {
        let name = meta::text(old, "name");
        if old["metadata"]["deletionTimestamp"].is_string() {
            return refuse(format!(
                "pod {name} is being deleted, cannot be assigned to a host"
            ));
        }
        if let Some(node) = old["spec"]["nodeName"]
            .as_str()
            .filter(|node| !node.is_empty())
        {
            return refuse(format!(
                "pod {name} is already assigned to node {}",
                quote(node)
            ));
        }
        let gates = old["spec"]["schedulingGates"].as_array();
        if gates.is_some_and(|gates| !gates.is_empty()) {
            return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        let mut new = old.clone();
        new["spec"]["nodeName"] = node.into();
        for field in ["uid", "resourceVersion"] {
            let wanted = meta::text(binding, field);
            if !wanted.is_empty() {
                meta::metadata_mut(&mut new).insert(field.to_owned(), wanted.into());
            }
        }
        if let Some(more) = binding["metadata"]["annotations"].as_object() {
            let annotations = meta::map_at(meta::metadata_mut(&mut new), "annotations");
            annotations.extend(more.clone());
        }
        let status = meta::map_at(meta::object_mut(&mut new), "status");
        status.remove("nominatedNodeName");
        set_scheduled(meta::list_at(status, "conditions"), request.now);
        Ok(Changed::Owned(new))
    })?;
    Ok(Written::document(201, succeeded()))
}

fn set_scheduled(conditions: &mut Vec<Value>, now: Timestamp) {
    conditions.retain(|condition| condition["type"] != "PodScheduled");
    conditions.push(json!({
        "type": "PodScheduled", "status": "True",
        "lastProbeTime": null, "lastTransitionTime": meta::time(now),
    }));
}

/// Deletes a Pod if its disruption budget allows it. (kubernetes: `EvictionREST.Create`.)
///
/// # Errors
/// 400 for an eviction of another name; 404; 429 when the budget does not allow it; 500 for a Pod with two budgets.
pub(crate) fn evict(core: &Core, request: &Request, eviction: &Value) -> Result<Written, Status> {
    check_name(request, eviction, "Eviction")?;
    let mut options = Options::from_value(&eviction["deleteOptions"])?;
    options.dry_run |= request.dry_run;
    let main = Request {
        subresource: String::new(),
        ..request.clone()
    };
    let pod = core
        .store
        .get("pods", request.key().as_str())
        .ok_or_else(|| request.not_found())?;
    let phase = pod.value()["status"]["phase"].as_str().unwrap_or_default();
    let is_over = matches!(phase, "Succeeded" | "Failed" | "Pending") || pod.is_terminating();
    if !is_over {
        disrupt(core, &main, pod.value(), options.dry_run)?;
    }
    delete::delete(core, &main, &options)?;
    Ok(Written::document(201, succeeded()))
}

/// Takes one disruption from the budget of a Pod.
fn disrupt(core: &Core, request: &Request, pod: &Value, dry_run: bool) -> Result<(), Status> {
    let prefix = format!("{}/", request.namespace);
    let budgets = core.store.list(BUDGETS, &prefix).1;
    let mut matching = budgets.iter().filter(|budget| {
        let selector = &budget.value()["spec"]["selector"];
        // A budget without one guards no Pod.
        !selector.is_null()
            && LabelSelector::from_value(selector)
                .is_ok_and(|selector| selector.matches_object(pod))
    });
    let Some(budget) = matching.next() else {
        return Ok(());
    };
    if matching.next().is_some() {
        return Err(Status::internal_text(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        ));
    }
    let conditions = pod["status"]["conditions"].as_array();
    let is_ready = conditions
        .into_iter()
        .flatten()
        .any(|one| one["type"] == "Ready" && one["status"] == "True");
    let status = &budget.value()["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    let (healthy, wanted) = (number("currentHealthy"), number("desiredHealthy"));
    let always = budget.value()["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
    if !is_ready && (always || (healthy >= wanted && wanted > 0)) {
        return Ok(());
    }
    let name = budget.name();
    allows(budget.value(), name)?;
    if dry_run {
        return Ok(());
    }
    let Some(info) = core.registry.of_storage(BUDGETS) else {
        return Ok(());
    };
    let of_budget = Request {
        info,
        name: name.to_owned(),
        subresource: "status".to_owned(),
        ..request.clone()
    };
    update::change(core, &of_budget, &|old| {
        // Another eviction may have taken the last disruption in between.
        allows(old, name)?;
        let mut new = old.clone();
        let status = meta::map_at(meta::object_mut(&mut new), "status");
        let left = status["disruptionsAllowed"].as_i64().unwrap_or_default() - 1;
        status.insert("disruptionsAllowed".to_owned(), left.into());
        let disrupted = meta::map_at(status, "disruptedPods");
        disrupted.insert(request.name.clone(), request.time().into());
        Ok(Changed::Owned(new))
    })?;
    Ok(())
}

/// Whether a budget allows a disruption now. (kubernetes: `checkAndDecrement`.)
///
/// # Errors
/// 429 when it allows none.
fn allows(budget: &Value, name: &str) -> Result<(), Status> {
    let status = &budget["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    let refuse = |seconds: u32, why: String| {
        Err(Status::new(
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
        )
        .with_retry_after(seconds)
        .with_cause(BUDGET, "", why))
    };
    if number("observedGeneration") < meta::generation(budget) {
        return refuse(
            10,
            format!("The disruption budget {name} is still being processed by the server."),
        );
    }
    if number("disruptionsAllowed") > 0 {
        return Ok(());
    }
    let (healthy, wanted) = (number("currentHealthy"), number("desiredHealthy"));
    refuse(
        0,
        if healthy <= wanted {
            format!(
                "The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
            )
        } else {
            format!("The disruption budget {name} does not allow evicting pods currently")
        },
    )
}

fn check_name(request: &Request, object: &Value, kind: &str) -> Result<(), Status> {
    if meta::text(object, "name") == request.name {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "name in URL does not match name in {kind} object"
    )))
}

fn succeeded() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
}
