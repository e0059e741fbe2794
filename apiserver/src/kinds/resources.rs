//! The built-in resources: their names, verbs and selectable fields.

use serde_json::Value;

use crate::resource::{ALL_VERBS, Generation, ResourceInfo, Scale, SelectableField, StatusUpdate};
use crate::table::built_in_columns;

/// Verbs of the resources that only answer a review.
const REVIEW_VERBS: &[&str] = &["create"];

/// All built-in resources.
pub(crate) fn builtin() -> Vec<ResourceInfo> {
    let mut all = core();
    all.extend(apps());
    all.extend(others());
    all.extend(reviews());
    for info in &mut all {
        info.selectable_fields = selectable(&info.group, &info.plural);
        info.columns = built_in_columns(&info.group, &info.kind);
    }
    all
}

fn core() -> Vec<ResourceInfo> {
    let core =
        |kind: &str, plural: &str, short: &[&str]| builtin_kind("", "v1", kind, plural, short);
    vec![
        ResourceInfo {
            namespaced: false,
            status: true,
            verbs: &[
                "create", "delete", "get", "list", "patch", "update", "watch",
            ],
            delete_returns_object: true,
            ..core("Namespace", "namespaces", &["ns"])
        },
        core("ConfigMap", "configmaps", &["cm"]),
        core("Secret", "secrets", &[]),
        ResourceInfo {
            status: true,
            delete_returns_object: true,
            create_on_update: true,
            categories: vec!["all".to_owned()],
            ..core("Service", "services", &["svc"])
        },
        ResourceInfo {
            delete_returns_object: true,
            ..core("ServiceAccount", "serviceaccounts", &["sa"])
        },
        ResourceInfo {
            create_on_update: true,
            ..core("Event", "events", &["ev"])
        },
        ResourceInfo {
            status: true,
            delete_returns_object: true,
            // Old kubelets send these incorrectly. (kubernetes: `pkg/registry/core/pod/strategy.go`.)
            status_update: StatusUpdate::Metadata {
                except: &["ownerReferences"],
            },
            generation: Generation::Spec,
            categories: vec!["all".to_owned()],
            ..core("Pod", "pods", &["po"])
        },
        ResourceInfo {
            namespaced: false,
            status: true,
            ..core("Node", "nodes", &["no"])
        },
        ResourceInfo {
            create_on_update: true,
            ..core("Endpoints", "endpoints", &["ep"])
        },
    ]
}

fn apps() -> Vec<ResourceInfo> {
    let scale = || {
        Some(Scale {
            spec_replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            label_selector: Some(".spec.selector".to_owned()),
        })
    };
    let workload = |kind: &str, plural: &str, short: &str| ResourceInfo {
        status: true,
        generation: Generation::Spec,
        categories: vec!["all".to_owned()],
        ..builtin_kind("apps", "v1", kind, plural, &[short])
    };
    vec![
        ResourceInfo {
            scale: scale(),
            status_update: StatusUpdate::Metadata {
                except: &["labels"],
            },
            generation: Generation::SpecAndAnnotations,
            ..workload("Deployment", "deployments", "deploy")
        },
        ResourceInfo {
            scale: scale(),
            ..workload("ReplicaSet", "replicasets", "rs")
        },
        ResourceInfo {
            scale: scale(),
            ..workload("StatefulSet", "statefulsets", "sts")
        },
        workload("DaemonSet", "daemonsets", "ds"),
    ]
}

fn others() -> Vec<ResourceInfo> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let rbac = |kind: &str, plural: &str, namespaced: bool| ResourceInfo {
        namespaced,
        create_on_update: true,
        ..builtin_kind(RBAC, "v1", kind, plural, &[])
    };
    vec![
        ResourceInfo {
            status: true,
            generation: Generation::Spec,
            orphans_by_default: true,
            categories: vec!["all".to_owned()],
            ..builtin_kind("batch", "v1", "Job", "jobs", &[])
        },
        ResourceInfo {
            status: true,
            generation: Generation::Spec,
            ..builtin_kind("networking.k8s.io", "v1", "Ingress", "ingresses", &["ing"])
        },
        ResourceInfo {
            namespaced: false,
            generation: Generation::Spec,
            ..builtin_kind(
                "networking.k8s.io",
                "v1",
                "IngressClass",
                "ingressclasses",
                &[],
            )
        },
        rbac("Role", "roles", true),
        rbac("RoleBinding", "rolebindings", true),
        rbac("ClusterRole", "clusterroles", false),
        rbac("ClusterRoleBinding", "clusterrolebindings", false),
        ResourceInfo {
            create_on_update: true,
            unconditional_update: false,
            ..builtin_kind("coordination.k8s.io", "v1", "Lease", "leases", &[])
        },
        ResourceInfo {
            storage: "events".to_owned(),
            create_on_update: true,
            ..builtin_kind("events.k8s.io", "v1", "Event", "events", &["ev"])
        },
        ResourceInfo {
            namespaced: false,
            status: true,
            unconditional_update: false,
            generation: Generation::Spec,
            categories: vec!["api-extensions".to_owned()],
            ..builtin_kind(
                "apiextensions.k8s.io",
                "v1",
                "CustomResourceDefinition",
                "customresourcedefinitions",
                &["crd", "crds"],
            )
        },
    ]
}

fn reviews() -> Vec<ResourceInfo> {
    let review = |group: &str, kind: &str, plural: &str, namespaced: bool| ResourceInfo {
        namespaced,
        verbs: REVIEW_VERBS,
        storage: String::new(),
        ..builtin_kind(group, "v1", kind, plural, &[])
    };
    const AUTHENTICATION: &str = "authentication.k8s.io";
    const AUTHORIZATION: &str = "authorization.k8s.io";
    vec![
        review(AUTHENTICATION, "TokenReview", "tokenreviews", false),
        review(
            AUTHENTICATION,
            "SelfSubjectReview",
            "selfsubjectreviews",
            false,
        ),
        review(
            AUTHORIZATION,
            "SubjectAccessReview",
            "subjectaccessreviews",
            false,
        ),
        review(
            AUTHORIZATION,
            "SelfSubjectAccessReview",
            "selfsubjectaccessreviews",
            false,
        ),
        review(
            AUTHORIZATION,
            "SelfSubjectRulesReview",
            "selfsubjectrulesreviews",
            false,
        ),
        review(
            AUTHORIZATION,
            "LocalSubjectAccessReview",
            "localsubjectaccessreviews",
            true,
        ),
    ]
}

/// An ordinary namespaced built-in.
fn builtin_kind(
    group: &str,
    version: &str,
    kind: &str,
    plural: &str,
    short: &[&str],
) -> ResourceInfo {
    let storage = if group.is_empty() {
        plural.to_owned()
    } else {
        format!("{plural}.{group}")
    };
    ResourceInfo {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        plural: plural.to_owned(),
        singular: kind.to_lowercase(),
        short_names: short.iter().map(|&name| name.to_owned()).collect(),
        categories: Vec::new(),
        namespaced: true,
        verbs: ALL_VERBS,
        status: false,
        status_update: StatusUpdate::Metadata { except: &[] },
        scale: None,
        generation: Generation::None,
        unconditional_update: true,
        orphans_by_default: false,
        create_on_update: false,
        delete_returns_object: false,
        columns: Vec::new(),
        selectable_fields: Vec::new(),
        schema: None,
        structural: None,
        storage_version: true,
        stored: None,
        converted_up_to: 0,
        unconvertible_up_to: 0,
        served: true,
        deprecation: None,
        custom: false,
        storage,
    }
}

/// Fields of field selectors besides name and namespace.
fn selectable(group: &str, plural: &str) -> Vec<SelectableField> {
    let plain = |names: &[&str]| {
        names
            .iter()
            .map(|&name| SelectableField {
                name: name.to_owned(),
                extract: None,
            })
            .collect()
    };
    match (group, plural) {
        ("", "namespaces") => plain(&["status.phase"]),
        ("", "secrets") => plain(&["type"]),
        ("", "services") => plain(&["spec.clusterIP", "spec.type"]),
        ("", "nodes") => plain(&["spec.unschedulable"]),
        ("", "pods") => {
            let mut fields: Vec<SelectableField> = plain(&[
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "status.phase",
                "status.podIP",
                "status.nominatedNodeName",
            ]);
            fields.push(SelectableField {
                name: "spec.hostNetwork".to_owned(),
                extract: Some(|value| {
                    value["spec"]["hostNetwork"]
                        .as_bool()
                        .unwrap_or(false)
                        .to_string()
                }),
            });
            fields
        }
        ("" | "events.k8s.io", "events") => event_fields(group.is_empty()),
        ("apps", "replicasets") => vec![SelectableField {
            name: "status.replicas".to_owned(),
            extract: Some(|value| {
                value["status"]["replicas"]
                    .as_i64()
                    .unwrap_or(0)
                    .to_string()
            }),
        }],
        ("batch", "jobs") => vec![SelectableField {
            name: "status.successful".to_owned(),
            extract: Some(|value| {
                value["status"]["succeeded"]
                    .as_i64()
                    .unwrap_or(0)
                    .to_string()
            }),
        }],
        _ => Vec::new(),
    }
}

/// Selectable fields of Events. Both groups store them in the form of core.
fn event_fields(core: bool) -> Vec<SelectableField> {
    fn at<'a>(value: &'a Value, path: &[&str]) -> &'a str {
        path.iter()
            .fold(value, |value, field| &value[*field])
            .as_str()
            .unwrap_or_default()
    }
    macro_rules! object_field {
        ($core:literal, $new:literal, $field:literal) => {
            SelectableField {
                name: (if core { $core } else { $new }).to_owned(),
                extract: Some(|value| at(value, &["involvedObject", $field]).to_owned()),
            }
        };
    }
    let mut fields = vec![
        object_field!("involvedObject.kind", "regarding.kind", "kind"),
        object_field!(
            "involvedObject.namespace",
            "regarding.namespace",
            "namespace"
        ),
        object_field!("involvedObject.name", "regarding.name", "name"),
        object_field!("involvedObject.uid", "regarding.uid", "uid"),
        object_field!(
            "involvedObject.apiVersion",
            "regarding.apiVersion",
            "apiVersion"
        ),
        object_field!(
            "involvedObject.resourceVersion",
            "regarding.resourceVersion",
            "resourceVersion"
        ),
        object_field!(
            "involvedObject.fieldPath",
            "regarding.fieldPath",
            "fieldPath"
        ),
        SelectableField {
            name: "reason".to_owned(),
            extract: None,
        },
        SelectableField {
            name: "type".to_owned(),
            extract: None,
        },
    ];
    if core {
        fields.push(SelectableField {
            name: "reportingComponent".to_owned(),
            extract: None,
        });
        fields.push(SelectableField {
            name: "source".to_owned(),
            extract: Some(|value| {
                let component = at(value, &["source", "component"]);
                if component.is_empty() {
                    at(value, &["reportingComponent"]).to_owned()
                } else {
                    component.to_owned()
                }
            }),
        });
    } else {
        fields.push(SelectableField {
            name: "reportingController".to_owned(),
            extract: Some(|value| at(value, &["reportingComponent"]).to_owned()),
        });
    }
    fields
}
