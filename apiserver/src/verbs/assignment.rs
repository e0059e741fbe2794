//! The subresources of a Pod that a scheduler and a drain use: `binding` and `eviction`.

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::yield_now;

use super::delete::{self, Options};
use super::pipeline::{Changed, Save, Target, admit, write};
use super::{Content, Written, update};
use crate::admission::Operation;
use crate::core::Core;
use crate::field::{FieldError, Path, aggregate, quote};
use crate::meta;
use crate::ownership::Writer;
use crate::request::Request;
use crate::selector::LabelSelector;
use crate::status::{GroupResource, Status};

/// The reason of a cause in the refusal of an eviction.
const BUDGET: &str = "DisruptionBudget";
const BUDGETS: &str = "poddisruptionbudgets.policy";
/// How often an eviction follows a Pod that changes meanwhile. (kubernetes: `EvictionsRetry`.)
const EVICTION_TRIES: usize = 20;

/// Assigns a Pod to the node that the binding names. (kubernetes: `BindingREST.assignPod`.)
///
/// # Errors
/// 400 for a binding of another name; 404; 409 for a Pod that has a node or is being deleted; 500 for a target that is
/// not a node, as on a real server.
pub(crate) async fn bind(
    core: &Core,
    request: &Request,
    mut binding: Value,
) -> Result<Written, Status> {
    complete(request, &mut binding, "v1", "Binding");
    let check = |binding: &Value| {
        check_name(request, binding, "Binding")?;
        check_target(&binding["target"])
    };
    admit(core, request, Operation::Create, &mut binding, check).await?;
    let writer = Writer::new(core, request);
    let assign = |old: Option<&Value>| {
        let old = old.unwrap_or(&Value::Null);
        assigned(request, &binding, old).map(Changed::Object)
    };
    let save = Save::new(&writer, Target::Present, &assign).admitted();
    write(core, request, &save).await?;
    Ok(Written::document(201, succeeded()))
}

/// A Pod on the node of a binding.
fn assigned(request: &Request, binding: &Value, old: &Value) -> Result<Value, Status> {
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    let refuse = |why: String| {
        let resource = GroupResource {
            group: "",
            resource: "pods/binding",
        };
        Err(Status::conflict(resource, &request.name, why))
    };
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
    for field in ["annotations", "labels"] {
        if let Some(more) = binding["metadata"][field].as_object() {
            let map = meta::map_at(meta::metadata_mut(&mut new), field);
            map.extend(more.clone());
        }
    }
    let status = meta::map_at(meta::object_mut(&mut new), "status");
    status.remove("nominatedNodeName");
    let scheduled = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null});
    set_condition(meta::list_at(status, "conditions"), scheduled, request.now);
    Ok(new)
}

/// Checks that a binding names a node. (kubernetes: `ValidatePodBinding`.)
fn check_target(target: &Value) -> Result<(), Status> {
    let path = Path::new("target");
    let text = |field: &str| target[field].as_str().unwrap_or_default();
    let mut errors = Vec::new();
    if !matches!(text("kind"), "" | "Node") {
        let path = path.child("kind");
        errors.push(FieldError::not_supported(
            &path,
            text("kind"),
            &["Node", "<empty>"],
        ));
    }
    if text("name").is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::internal_text(aggregate(&errors)))
}

/// Sets a condition in its place, or at the end. Its time changes with its status. (kubernetes: `UpdatePodCondition`.)
fn set_condition(conditions: &mut Vec<Value>, mut condition: Value, now: Timestamp) {
    let mut all = conditions.iter_mut();
    let former = all.find(|one| one["type"] == condition["type"]);
    condition["lastTransitionTime"] = match &former {
        Some(former) if former["status"] == condition["status"] => {
            former["lastTransitionTime"].clone()
        }
        _ => meta::time(now).into(),
    };
    match former {
        Some(former) => *former = condition,
        None => conditions.push(condition),
    }
}

/// Deletes a Pod if its disruption budget allows it. (kubernetes: `EvictionREST.Create`.)
///
/// The budget is decremented before the Pod is deleted, as on a real server: its controller gives back a disruption
/// that no deletion followed.
///
/// # Errors
/// 400 for an eviction of another name; 404; 429 when the budget does not allow it; 500 for a Pod with two budgets.
pub(crate) async fn evict(
    core: &Core,
    request: &Request,
    mut eviction: Value,
) -> Result<Written, Status> {
    complete(request, &mut eviction, "policy/v1", "Eviction");
    let check = |eviction: &Value| check_name(request, eviction, "Eviction");
    admit(core, request, Operation::Create, &mut eviction, check).await?;
    let mut options = eviction_options(request, &eviction["deleteOptions"])?;
    let main = Request {
        subresource: String::new(),
        dry_run: options.dry_run,
        ..request.clone()
    };
    let is_versioned = options.version.is_some();
    for tries in 1.. {
        let pod = core.store.get("pods", request.key().as_str());
        let pod = pod.ok_or_else(|| request.not_found())?;
        let value = pod.value();
        let phase = value["status"]["phase"].as_str().unwrap_or_default();
        let is_over = matches!(phase, "Succeeded" | "Failed") || pod.is_terminating();
        let budget = if is_over || phase == "Pending" {
            Budget::Ignored
        } else {
            disrupt(core, &main, &value).await?
        };
        // A Pod that becomes ready in between is guarded by its budget again.
        if !is_versioned && !is_over && budget != Budget::Taken {
            options.version = Some(pod.version().to_string());
        }
        let marked = if options.dry_run {
            Ok(())
        } else {
            mark_disrupted(core, &main, &mut options).await
        };
        let removed = match marked {
            Ok(()) => delete::remove(core, &main, &options, false).await.map(drop),
            Err(status) => Err(status),
        };
        match (removed, budget) {
            (Err(status), Budget::Ignored)
                if status.code == 409 && !is_versioned && tries < EVICTION_TRIES =>
            {
                yield_now().await;
            }
            (Err(status), Budget::Spared(name)) if status.code == 409 && !is_versioned => {
                return Err(being_processed(&name));
            }
            (result, _) => {
                result?;
                break;
            }
        }
    }
    Ok(Written::document(201, succeeded()))
}

/// Records in the Pod why it goes, if the preconditions hold. The version among them becomes that of the changed Pod.
async fn mark_disrupted(
    core: &Core,
    request: &Request,
    options: &mut Options,
) -> Result<(), Status> {
    let of_status = Request {
        subresource: "status".to_owned(),
        ..request.clone()
    };
    let mark = |old: Option<&Value>| {
        let old = old.unwrap_or(&Value::Null);
        for (field, name, wanted) in [
            ("uid", "UID", &options.uid),
            ("resourceVersion", "ResourceVersion", &options.version),
        ] {
            let found = meta::text(old, field);
            if let Some(wanted) = wanted
                .as_deref()
                .filter(|wanted| !wanted.is_empty() && *wanted != found)
            {
                let resource = GroupResource {
                    group: "",
                    resource: "Pod",
                };
                let fate = if field == "uid" {
                    "deleted and then recreated"
                } else {
                    "modified"
                };
                let why = format!(
                    "the {name} in the precondition ({wanted}) does not match the {name} in record ({found}). The object might have been {fate}"
                );
                return Err(Status::conflict(resource, &request.name, why));
            }
        }
        let mut new = old.clone();
        let status = meta::map_at(meta::object_mut(&mut new), "status");
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "lastProbeTime": null,
            "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
        });
        set_condition(meta::list_at(status, "conditions"), condition, request.now);
        Ok(Changed::Owned(new))
    };
    let writer = Writer::new(core, &of_status);
    let save = Save::new(&writer, Target::Present, &mark).admitted();
    let written = write(core, &of_status, &save).await?;
    let has_version = options
        .version
        .as_deref()
        .is_some_and(|version| !version.is_empty());
    if let Content::Object(pod) = written.content
        && has_version
    {
        options.version = Some(pod.version().to_string());
    }
    Ok(())
}

/// The options of the deletion; a dry run is requested in the query, in the options, or equally in both.
fn eviction_options(request: &Request, options: &Value) -> Result<Options, Status> {
    let mut read = Options::from_value(options)?;
    let of_query = request.query.all("dryRun");
    let of_options = options["dryRun"].as_array().map_or(&[][..], Vec::as_slice);
    if read.dry_run && request.dry_run && of_query.len() != of_options.len() {
        let shown: Vec<&str> = of_options.iter().filter_map(Value::as_str).collect();
        return Err(Status::internal_text(format!(
            "Non-matching dry-run options in request and content: [{}] and [{}]",
            of_query.join(" "),
            shown.join(" ")
        )));
    }
    read.dry_run |= request.dry_run;
    Ok(read)
}

/// The part of a disruption budget in an eviction.
#[derive(Debug, PartialEq, Eq)]
enum Budget {
    /// The Pod does not run any more, or not yet.
    Ignored,
    /// There is none, or one disruption was taken from it.
    Taken,
    /// The Pod of the budget of this name is not ready: its deletion disrupts nothing.
    Spared(String),
}

/// Takes one disruption from the budget of a Pod.
async fn disrupt(core: &Core, request: &Request, pod: &Value) -> Result<Budget, Status> {
    let prefix = format!("{}/", request.namespace);
    let budgets = core.store.list(BUDGETS, &prefix).1;
    let mut matching = budgets.iter().filter(|budget| {
        let value = budget.value();
        let selector = &value["spec"]["selector"];
        // A budget without one guards no Pod.
        !selector.is_null()
            && LabelSelector::from_value(selector)
                .is_ok_and(|selector| selector.matches_object(pod))
    });
    let Some(budget) = matching.next() else {
        return Ok(Budget::Taken);
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
    let value = budget.value();
    let status = &value["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    let (healthy, wanted) = (number("currentHealthy"), number("desiredHealthy"));
    let always = value["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
    let name = budget.name();
    if !is_ready && (always || (healthy >= wanted && wanted > 0)) {
        return Ok(Budget::Spared(name.to_owned()));
    }
    let Some(info) = core.registry.of_storage(BUDGETS) else {
        return Ok(Budget::Taken);
    };
    let of_budget = Request {
        info,
        name: name.to_owned(),
        subresource: "status".to_owned(),
        ..request.clone()
    };
    let decrement = |old: Option<&Value>| {
        // Another eviction may have taken the last disruption in between.
        let old = old.unwrap_or(&Value::Null);
        allows(old, name)?;
        let mut new = old.clone();
        let status = meta::map_at(meta::object_mut(&mut new), "status");
        let left = status["disruptionsAllowed"].as_i64().unwrap_or_default() - 1;
        status.insert("disruptionsAllowed".to_owned(), left.into());
        let disrupted = meta::map_at(status, "disruptedPods");
        disrupted.insert(request.name.clone(), request.time().into());
        Ok(Changed::Owned(new))
    };
    update::change(core, &of_budget, Target::Present, &decrement).await?;
    Ok(Budget::Taken)
}

/// Whether a budget allows a disruption now. (kubernetes: `checkAndDecrement`.)
///
/// # Errors
/// 429 when it allows none.
fn allows(budget: &Value, name: &str) -> Result<(), Status> {
    let status = &budget["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    if number("observedGeneration") < meta::generation(budget) {
        return Err(being_processed(name));
    }
    if number("disruptionsAllowed") > 0 {
        return Ok(());
    }
    let (healthy, wanted) = (number("currentHealthy"), number("desiredHealthy"));
    let why = if healthy <= wanted {
        format!(
            "The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
        )
    } else {
        format!("The disruption budget {name} does not allow evicting pods currently")
    };
    Err(violates(0, why))
}

/// 429: the budget is not up to date.
fn being_processed(name: &str) -> Status {
    let why = format!("The disruption budget {name} is still being processed by the server.");
    violates(10, why)
}

fn violates(seconds: u32, why: String) -> Status {
    let text = "Cannot evict pod as it would violate the pod's disruption budget.";
    Status::new(429, "TooManyRequests", text)
        .with_retry_after(seconds)
        .with_cause(BUDGET, "", why)
}

/// The object names its Pod; its type may be left out.
fn check_name(request: &Request, object: &Value, kind: &str) -> Result<(), Status> {
    if meta::text(object, "name") != request.name {
        return Err(Status::bad_request(format!(
            "name in URL does not match name in {kind} object"
        )));
    }
    Ok(())
}

/// Sets the version, the kind and the namespace of a body that may leave them out.
fn complete(request: &Request, object: &mut Value, api_version: &str, kind: &str) {
    let map = meta::object_mut(object);
    map.entry("apiVersion")
        .or_insert_with(|| api_version.into());
    map.entry("kind").or_insert_with(|| kind.into());
    if meta::text(object, "namespace").is_empty() {
        meta::metadata_mut(object).insert("namespace".to_owned(), request.namespace.clone().into());
    }
}

fn succeeded() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}
