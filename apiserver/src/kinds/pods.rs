//! Pods: their rules, and the defaults of the templates that they are made from.
//!
//! (kubernetes: `pkg/apis/core/v1/defaults.go`.)

use k8s_openapi::api::core::v1;
use serde_json::{Map, Value, json};

use super::entry::Entry;
use super::strategy::{Context, Paths, Strategy};
use super::{immutable, pod_spec};
use crate::field::{Errors, FieldError, Path};
use crate::meta;
use crate::resource::{Column, Generation, ResourceInfo, SelectableField, StatusUpdate};
use crate::store::wanted::Wanted;
use crate::table::cells::{self, aged, or_none, string, together, wide};
use crate::table::pods::{READ, readiness_gates, shown};

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[Entry::of::<v1::Pod>("", "pods", &Pods)];

/// Pods.
#[derive(Debug)]
pub(super) struct Pods;

// === impl Pods ===

impl Strategy for Pods {
    fn describe(&self, info: &mut ResourceInfo) {
        info.delete_returns_object = true;
        // Old kubelets send these incorrectly. (kubernetes: `pkg/registry/core/pod/strategy.go`.)
        info.status_update = StatusUpdate::Metadata {
            except: &["ownerReferences"],
        };
        info.generation = Generation::Spec;
        info.selectable_fields = [
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ]
        .map(SelectableField::at)
        .into();
        info.selectable_fields
            .push(SelectableField::computed("spec.hostNetwork", |pod| {
                let network = pod["spec"]["hostNetwork"].as_bool();
                network.unwrap_or(false).to_string()
            }));
    }

    fn columns(&self) -> Vec<Column> {
        let rest = [
            aged(),
            wide("IP", |pod, _| or_none(&pod["status"]["podIPs"][0]["ip"])),
            wide("Node", |pod, _| or_none(&pod["spec"]["nodeName"])),
            wide("Nominated Node", |pod, _| {
                or_none(&pod["status"]["nominatedNodeName"])
            }),
            wide("Readiness Gates", readiness_gates),
        ];
        together(["Ready", "Status", "Restarts"], shown)
            .chain(rest)
            .collect()
    }

    fn read_by_columns(&self) -> Wanted {
        READ
    }

    fn prepare_create(&self, _: &Context<'_>, pod: &mut Value) {
        pod["status"] = json!({"phase": "Pending", "qosClass": qos_class(pod)});
    }

    fn prepare_update(&self, context: &Context<'_>, old: &Value, new: &mut Value) {
        let spec = match context.subresource {
            "ephemeralcontainers" => {
                let mut spec = old["spec"].clone();
                let added = new["spec"]["ephemeralContainers"].clone();
                meta::object_mut(&mut spec).insert("ephemeralContainers".to_owned(), added);
                spec
            }
            "resize" => resized(&old["spec"], &new["spec"]),
            _ => return,
        };
        new["spec"] = spec;
        for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
            meta::copy(old, new, field);
        }
    }

    fn default(&self, _: &ResourceInfo, pod: &mut Value) {
        default_pod(pod);
    }

    fn checks_spec(&self) -> bool {
        true
    }

    fn validate(
        &self,
        context: &Context<'_>,
        pod: &Value,
        old: Option<&Value>,
        errors: &mut Errors,
    ) {
        let path = Path::new("spec");
        pod_spec::validate(&pod["spec"], &path, errors);
        tokens_have_an_account(&pod["spec"], &path, errors);
        match (old, context.subresource) {
            (None, _) if !cells::items(&pod["spec"]["ephemeralContainers"]).is_empty() => {
                let path = path.child("ephemeralContainers");
                errors.push(FieldError::forbidden(&path, "cannot be set on create"));
            }
            (Some(old), "") => immutable::pod(pod, old, errors),
            (Some(old), "ephemeralcontainers") => {
                immutable::ephemeral_containers(pod, old, errors);
            }
            (Some(old), "resize") => {
                let class = qos_class(pod);
                if class != qos_class(old) {
                    let text = "Pod QOS Class may not change as a result of resizing";
                    errors.push(FieldError::invalid(&path, class, text));
                }
                immutable::resize(pod, old, errors);
            }
            _ => {}
        }
    }

    fn ends_gracefully(&self) -> bool {
        true
    }

    /// More than 0 only for a Pod that runs on a node.
    fn grace_period(&self, pod: &Value, requested: Option<i64>) -> i64 {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let phase = pod["status"]["phase"].as_str();
        if node.is_empty() || matches!(phase, Some("Failed" | "Succeeded")) {
            return 0;
        }
        let period = requested
            .or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64())
            .unwrap_or(30);
        if period < 0 { 1 } else { period }
    }

    fn set_later(&self) -> &'static [&'static str] {
        &[
            "/spec/preemptionPolicy",
            "/spec/priority",
            "/spec/tolerations",
        ]
    }

    fn reset_fields(&self, subresource: &str) -> Option<Paths> {
        let paths: Paths = &[
            &["spec"],
            &["metadata", "deletionTimestamp"],
            &["metadata", "ownerReferences"],
        ];
        (subresource == "status").then_some(paths)
    }
}

/// Refuses tokens of a Pod without a service account. The template of a workload gets one later.
fn tokens_have_an_account(spec: &Value, path: &Path, errors: &mut Errors) {
    if !string(&spec["serviceAccountName"]).is_empty() {
        return;
    }
    for (at, volume) in cells::items(&spec["volumes"]).iter().enumerate() {
        let sources = cells::items(&volume["projected"]["sources"]);
        for (index, source) in sources.iter().enumerate() {
            if !source["serviceAccountToken"].is_null() {
                let path = path.child("volumes").index(at).child("projected");
                let path = path.child("sources").index(index);
                let text = "must not be specified when serviceAccountName is not set";
                errors.push(FieldError::forbidden(
                    &path.child("serviceAccountToken"),
                    text,
                ));
            }
        }
    }
}

/// The spec with the resources of the containers of another one.
fn resized(old: &Value, new: &Value) -> Value {
    let mut spec = old.clone();
    for list in ["containers", "initContainers"] {
        for container in items(meta::object_mut(&mut spec), list) {
            let wanted = new[list].as_array().into_iter().flatten();
            let mut wanted = wanted.filter(|one| Some(&one["name"]) == container.get("name"));
            let Some(wanted) = wanted.next() else {
                continue;
            };
            for field in ["resources", "resizePolicy"] {
                if let Some(value) = wanted.get(field) {
                    container.insert(field.to_owned(), value.clone());
                }
            }
        }
    }
    spec
}

/// Sets defaults of a Pod's own fields, besides those it shares with templates.
fn default_pod(object: &mut Value) {
    let spec = meta::map_at(meta::object_mut(object), "spec");
    default_spec(spec);
    // Not in templates, whose Pods get it.
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        for list in ["containers", "initContainers"] {
            for port in items(spec, list).flat_map(|container| items(container, "ports")) {
                if let Some(number) = port.get("containerPort").cloned() {
                    put(port, "hostPort", number);
                }
            }
        }
    }
    put(spec, "enableServiceLinks", true);
    put(spec, "preemptionPolicy", "PreemptLowerPriority");
    put(spec, "priority", 0);
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            requests_from_limits(container);
        }
    }
    let tolerations = meta::list_at(spec, "tolerations");
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        if !tolerations
            .iter()
            .any(|toleration| toleration["key"] == key)
        {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
}

/// Sets defaults of the template of a workload.
pub(crate) fn default_template(template: &mut Value) {
    default_spec(meta::map_at(meta::object_mut(template), "spec"));
}

fn default_spec(spec: &mut Map<String, Value>) {
    put(spec, "dnsPolicy", "ClusterFirst");
    put(spec, "restartPolicy", "Always");
    put(spec, "schedulerName", "default-scheduler");
    put(spec, "securityContext", json!({}));
    service_account(spec);
    put(spec, "terminationGracePeriodSeconds", 30);
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in items(spec, list) {
            default_container(container);
        }
    }
    for volume in items(spec, "volumes") {
        if volume.keys().all(|field| field == "name") {
            volume.insert("emptyDir".to_owned(), json!({}));
        }
        for source in ["configMap", "secret", "downwardAPI", "projected"] {
            if let Some(source) = volume.get_mut(source).and_then(Value::as_object_mut) {
                put(source, "defaultMode", 420);
            }
        }
        if let Some(source) = volume.get_mut("hostPath").and_then(Value::as_object_mut) {
            put(source, "type", "");
        }
        if let Some(files) = volume.get_mut("downwardAPI").and_then(Value::as_object_mut) {
            default_downward_files(files);
        }
        if let Some(sources) = volume.get_mut("projected").and_then(Value::as_object_mut) {
            for source in items(sources, "sources") {
                let token = source.get_mut("serviceAccountToken");
                if let Some(token) = token.and_then(Value::as_object_mut) {
                    put(token, "expirationSeconds", 3600);
                }
                if let Some(files) = source.get_mut("downwardAPI").and_then(Value::as_object_mut) {
                    default_downward_files(files);
                }
            }
        }
        let claim = volume
            .get_mut("ephemeral")
            .and_then(|source| source.get_mut("volumeClaimTemplate"))
            .and_then(Value::as_object_mut);
        if let Some(claim) = claim {
            default_claim(claim);
        }
    }
}

fn default_downward_files(files: &mut Map<String, Value>) {
    for file in items(files, "items") {
        default_references(file);
    }
}

/// Sets defaults of references to fields and resources, of a variable or a file.
fn default_references(holder: &mut Map<String, Value>) {
    if let Some(field) = holder.get_mut("fieldRef").and_then(Value::as_object_mut) {
        put(field, "apiVersion", "v1");
    }
    if let Some(resource) = holder
        .get_mut("resourceFieldRef")
        .and_then(Value::as_object_mut)
    {
        put(resource, "divisor", "0");
    }
}

/// Sets defaults of a claim in a template.
pub(crate) fn default_claim(claim: &mut Map<String, Value>) {
    put(claim, "metadata", json!({}));
    let spec = meta::map_at(claim, "spec");
    put(spec, "resources", json!({}));
    set(spec, "volumeMode", "Filesystem");
}

fn default_container(container: &mut Map<String, Value>) {
    let image = container
        .get("image")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let policy = if is_latest(image) {
        "Always"
    } else {
        "IfNotPresent"
    };
    put(container, "imagePullPolicy", policy);
    put(container, "resources", json!({}));
    put(container, "terminationMessagePath", "/dev/termination-log");
    put(container, "terminationMessagePolicy", "File");
    for port in items(container, "ports") {
        put(port, "protocol", "TCP");
    }
    for variable in items(container, "env") {
        if let Some(from) = variable.get_mut("valueFrom").and_then(Value::as_object_mut) {
            default_references(from);
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe).and_then(Value::as_object_mut) {
            default_probe(probe);
        }
    }
    if let Some(hooks) = container
        .get_mut("lifecycle")
        .and_then(Value::as_object_mut)
    {
        hooks
            .values_mut()
            .filter_map(Value::as_object_mut)
            .for_each(default_http);
    }
}

fn default_probe(probe: &mut Map<String, Value>) {
    put(probe, "timeoutSeconds", 1);
    put(probe, "periodSeconds", 10);
    put(probe, "successThreshold", 1);
    put(probe, "failureThreshold", 3);
    if let Some(grpc) = probe.get_mut("grpc").and_then(Value::as_object_mut) {
        put(grpc, "service", "");
    }
    default_http(probe);
}

/// Sets defaults of the request of a probe or a hook.
fn default_http(handler: &mut Map<String, Value>) {
    if let Some(get) = handler.get_mut("httpGet").and_then(Value::as_object_mut) {
        put(get, "path", "/");
        put(get, "scheme", "HTTP");
    }
}

fn is_latest(image: &str) -> bool {
    let (name, digest) = image
        .split_once('@')
        .map_or((image, false), |(name, _)| (name, true));
    let last = name.rsplit('/').next().unwrap_or_default();
    if !is_repository(last.split(':').next().unwrap_or_default()) {
        // A name that is none has no tag.
        return false;
    }
    match last.rsplit_once(':') {
        Some((_, tag)) => tag == "latest",
        None => !digest,
    }
}

/// Whether the last part of a name has its form: lower case letters and digits with single separators.
fn is_repository(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.starts_with(is_part)
        && name.ends_with(is_part)
        && name.chars().all(|c| is_part(c) || "._-".contains(c))
}

fn requests_from_limits(container: &mut Map<String, Value>) {
    let resources = meta::map_at(container, "resources");
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else {
        return;
    };
    let requests = meta::map_at(resources, "requests");
    for (name, amount) in limits {
        requests.entry(name).or_insert(amount);
    }
}

/// `status.qosClass` of a Pod.
fn qos_class(object: &Value) -> &'static str {
    let containers = ["containers", "initContainers"]
        .into_iter()
        .filter_map(|list| object["spec"][list].as_array())
        .flatten();
    let (mut guaranteed, mut any) = (true, false);
    for container in containers {
        let amounts = |kind: &str| container["resources"][kind].as_object();
        let named = |kind: &str| {
            amounts(kind).is_some_and(|amounts| {
                amounts.contains_key("cpu") || amounts.contains_key("memory")
            })
        };
        any |= named("requests") || named("limits");
        guaranteed &= ["cpu", "memory"].into_iter().all(|name| {
            let limit = amounts("limits").and_then(|limits| limits.get(name));
            let request = amounts("requests").and_then(|requests| requests.get(name));
            limit.is_some() && (request.is_none() || request == limit)
        });
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn items<'a>(
    map: &'a mut Map<String, Value>,
    field: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    map.get_mut(field)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

/// Sets a field that is absent, of a type for which an empty text is not the same.
pub(crate) fn set(map: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    map.entry(field).or_insert_with(|| value.into());
}

/// Sets a field that is absent, null or an empty text.
pub(crate) fn put(map: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    let absent = map
        .get(field)
        .is_none_or(|found| found.is_null() || found.as_str().is_some_and(str::is_empty));
    if absent {
        map.insert(field.to_owned(), value.into());
    }
}

/// The deprecated `serviceAccount` is the same field as `serviceAccountName`, which wins.
fn service_account(spec: &mut Map<String, Value>) {
    let mut named = ["serviceAccountName", "serviceAccount"]
        .iter()
        .filter_map(|field| spec.get(*field).and_then(Value::as_str))
        .filter(|name| !name.is_empty());
    let Some(name) = named.next().map(str::to_owned) else {
        return;
    };
    for field in ["serviceAccountName", "serviceAccount"] {
        spec.insert(field.to_owned(), name.clone().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_without_a_tag_and_the_latest_are_always_pulled() {
        for (image, latest) in [
            ("nginx", true),
            ("nginx:latest", true),
            ("nginx:1.27", false),
            ("localhost:5000/nginx", true),
            ("nginx@sha256:00", false),
            ("NGINX", false),
            ("-nginx", false),
        ] {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }

    #[test]
    fn a_pod_with_equal_limits_and_requests_is_guaranteed() {
        let pod = |resources: Value| json!({"spec": {"containers": [{"resources": resources}]}});
        assert_eq!(qos_class(&pod(json!({}))), "BestEffort");
        assert_eq!(
            qos_class(&pod(json!({"limits": {"cpu": "1"}}))),
            "Burstable"
        );
        let both =
            json!({"limits": {"cpu": "1", "memory": "1"}, "requests": {"cpu": "1", "memory": "1"}});
        assert_eq!(qos_class(&pod(both)), "Guaranteed");
    }
}
