//! The lists that a strategic merge patch merges, by type, and their keys.
//!
//! The rows are the `x-kubernetes-patch-strategy` and `-merge-key` marks of a real server's OpenAPI
//! documents for the kinds of this server (1.36; they have not changed in years).

/// A type for patches; lists of any other type are replaced as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// Nothing below has a list that merges.
    Plain,
    /// An object with metadata, and the type of its other fields.
    Object(Kind),
    ObjectMeta,
    Conditions,
    PodSpec,
    PodStatus,
    PodTemplate,
    Container,
    ContainerStatus,
    Workload,
    CronJobSpec,
    ServiceSpec,
    NodeSpec,
    NodeStatus,
    DisruptionBudgetSpec,
    Webhook,
    AdmissionPolicySpec,
    CrdSpec,
    CrdVersion,
    CrdSchema,
    JsonSchema,
    JsonSchemaMap,
}

/// The kinds with rows of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Other,
    Pod,
    PodTemplate,
    Workload,
    CronJob,
    Service,
    ServiceAccount,
    Node,
    WithConditions,
    DisruptionBudget,
    WebhookConfiguration,
    AdmissionPolicy,
    CustomResourceDefinition,
}

/// The merge strategy of a field, and the type below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) strategy: Strategy,
    pub(super) of: Type,
}

/// The merge strategy of a list or map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// Maps merge, lists are replaced.
    Default,
    /// A map is replaced, too.
    Replace,
    /// A list of objects merges by this key.
    MergeBy(&'static str),
    /// A list of plain values merges as a set.
    MergeSet,
}

/// The type of a whole object.
pub(super) fn of_kind(group: &str, kind: &str) -> Type {
    Type::Object(match (group, kind) {
        ("", "Pod") => Kind::Pod,
        ("", "PodTemplate") => Kind::PodTemplate,
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | ("batch", "Job")
        | ("", "ReplicationController") => Kind::Workload,
        ("batch", "CronJob") => Kind::CronJob,
        ("", "Service") => Kind::Service,
        ("", "ServiceAccount") => Kind::ServiceAccount,
        ("", "Node") => Kind::Node,
        ("", "Namespace" | "PersistentVolumeClaim")
        | ("networking.k8s.io", "ServiceCIDR")
        | ("autoscaling", "HorizontalPodAutoscaler") => Kind::WithConditions,
        ("policy", "PodDisruptionBudget") => Kind::DisruptionBudget,
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => Kind::WebhookConfiguration,
        (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy",
        ) => Kind::AdmissionPolicy,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => Kind::CustomResourceDefinition,
        _ => Kind::Other,
    })
}

// === impl Type ===

impl Type {
    /// The rule for the field `name` of this type.
    pub(super) fn field(self, name: &str) -> Field {
        use Strategy::{MergeBy, MergeSet, Replace};
        let plain = |strategy| Field {
            strategy,
            of: Type::Plain,
        };
        let below = |of| Field {
            strategy: Strategy::Default,
            of,
        };
        let merged = |key, of| Field {
            strategy: MergeBy(key),
            of,
        };
        match (self, name) {
            (Type::Object(_) | Type::PodTemplate, "metadata") => below(Type::ObjectMeta),
            (Type::Object(kind), name) => kind.field(name),
            (Type::ObjectMeta, "finalizers") => plain(MergeSet),
            (Type::ObjectMeta, "ownerReferences") => plain(MergeBy("uid")),
            (Type::Conditions | Type::PodStatus | Type::NodeStatus, "conditions") => {
                plain(MergeBy("type"))
            }
            (Type::NodeStatus, "addresses") => plain(MergeBy("type")),
            (Type::NodeSpec, "podCIDRs") => plain(MergeSet),

            (Type::PodTemplate, "spec") => below(Type::PodSpec),
            (Type::Workload, "template") => below(Type::PodTemplate),
            (Type::CronJobSpec, "jobTemplate") => below(Type::Object(Kind::Workload)),

            (Type::PodSpec, "containers" | "initContainers" | "ephemeralContainers") => {
                merged("name", Type::Container)
            }
            (
                Type::PodSpec,
                "volumes" | "imagePullSecrets" | "resourceClaims" | "schedulingGates",
            ) => plain(MergeBy("name")),
            (Type::PodSpec, "hostAliases") | (Type::PodStatus, "podIPs" | "hostIPs") => {
                plain(MergeBy("ip"))
            }
            (Type::PodSpec, "topologySpreadConstraints") => plain(MergeBy("topologyKey")),
            (Type::PodStatus, "resourceClaimStatuses") => plain(MergeBy("name")),
            (
                Type::PodStatus,
                "containerStatuses" | "initContainerStatuses" | "ephemeralContainerStatuses",
            ) => below(Type::ContainerStatus),
            (Type::Container, "ports") => plain(MergeBy("containerPort")),
            (Type::Container, "env") => plain(MergeBy("name")),
            (Type::Container | Type::ContainerStatus, "volumeMounts") => {
                plain(MergeBy("mountPath"))
            }
            (Type::Container, "volumeDevices") => plain(MergeBy("devicePath")),
            (Type::ContainerStatus, "allocatedResourcesStatus") => plain(MergeBy("name")),

            (Type::ServiceSpec, "ports") => plain(MergeBy("port")),
            (Type::DisruptionBudgetSpec, "selector") => plain(Replace),
            (Type::Webhook | Type::AdmissionPolicySpec, "matchConditions")
            | (Type::AdmissionPolicySpec, "variables") => plain(MergeBy("name")),

            (Type::CrdSpec, "versions") => below(Type::CrdVersion),
            (Type::CrdVersion, "schema") => below(Type::CrdSchema),
            (Type::CrdSchema, "openAPIV3Schema") => below(Type::JsonSchema),
            (Type::JsonSchema, "x-kubernetes-validations") => plain(MergeBy("rule")),
            (Type::JsonSchema, "properties" | "patternProperties" | "definitions") => {
                below(Type::JsonSchemaMap)
            }
            (
                Type::JsonSchema,
                "items" | "additionalProperties" | "not" | "allOf" | "anyOf" | "oneOf",
            )
            | (Type::JsonSchemaMap, _) => below(Type::JsonSchema),
            _ => below(Type::Plain),
        }
    }
}

// === impl Kind ===

impl Kind {
    fn field(self, name: &str) -> Field {
        let of = match (self, name) {
            (Kind::Pod, "spec") => Type::PodSpec,
            (Kind::Pod, "status") => Type::PodStatus,
            (Kind::PodTemplate, "template") => Type::PodTemplate,
            (Kind::Workload, "spec") => Type::Workload,
            (Kind::CronJob, "spec") => Type::CronJobSpec,
            (Kind::Service, "spec") => Type::ServiceSpec,
            (Kind::Node, "spec") => Type::NodeSpec,
            (Kind::Node, "status") => Type::NodeStatus,
            (Kind::DisruptionBudget, "spec") => Type::DisruptionBudgetSpec,
            (Kind::AdmissionPolicy, "spec") => Type::AdmissionPolicySpec,
            (Kind::CustomResourceDefinition, "spec") => Type::CrdSpec,
            (
                Kind::Workload | Kind::Service | Kind::WithConditions | Kind::DisruptionBudget,
                "status",
            ) => Type::Conditions,
            (Kind::ServiceAccount, "secrets") => {
                return Field {
                    strategy: Strategy::MergeBy("name"),
                    of: Type::Plain,
                };
            }
            (Kind::WebhookConfiguration, "webhooks") => {
                return Field {
                    strategy: Strategy::MergeBy("name"),
                    of: Type::Webhook,
                };
            }
            _ => Type::Plain,
        };
        Field {
            strategy: Strategy::Default,
            of,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_merge_by_the_keys_of_a_real_server() {
        let cases = [
            ("", "Pod", "spec.containers", "name"),
            ("", "Pod", "spec.containers.env", "name"),
            ("", "Pod", "spec.initContainers.ports", "containerPort"),
            ("", "Pod", "spec.containers.volumeMounts", "mountPath"),
            ("", "Pod", "spec.hostAliases", "ip"),
            ("", "Pod", "spec.topologySpreadConstraints", "topologyKey"),
            ("", "Pod", "status.conditions", "type"),
            ("", "Pod", "status.podIPs", "ip"),
            ("apps", "Deployment", "spec.template.spec.volumes", "name"),
            (
                "apps",
                "Deployment",
                "spec.template.metadata.ownerReferences",
                "uid",
            ),
            ("apps", "ReplicaSet", "status.conditions", "type"),
            (
                "batch",
                "CronJob",
                "spec.jobTemplate.spec.template.spec.containers",
                "name",
            ),
            ("", "Service", "spec.ports", "port"),
            ("", "Service", "status.conditions", "type"),
            ("", "ServiceAccount", "secrets", "name"),
            ("", "ConfigMap", "metadata.ownerReferences", "uid"),
            ("", "Namespace", "status.conditions", "type"),
            (
                "admissionregistration.k8s.io",
                "ValidatingWebhookConfiguration",
                "webhooks.matchConditions",
                "name",
            ),
        ];
        for (group, kind, path, key) in cases {
            assert_eq!(
                strategy(group, kind, path),
                Strategy::MergeBy(key),
                "{kind} {path}"
            );
        }
    }

    #[test]
    fn other_lists_are_replaced() {
        let cases = [
            ("", "Pod", "spec.tolerations"),
            ("", "Pod", "spec.containers.envFrom"),
            ("", "ServiceAccount", "imagePullSecrets"),
            ("networking.k8s.io", "Ingress", "spec.rules"),
            ("rbac.authorization.k8s.io", "Role", "rules"),
            (
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                "spec.versions",
            ),
            (
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                "status.conditions",
            ),
        ];
        for (group, kind, path) in cases {
            assert_eq!(
                strategy(group, kind, path),
                Strategy::Default,
                "{kind} {path}"
            );
        }
        assert_eq!(
            strategy("", "ConfigMap", "metadata.finalizers"),
            Strategy::MergeSet
        );
    }

    fn strategy(group: &str, kind: &str, path: &str) -> Strategy {
        let mut field = Field {
            strategy: Strategy::Default,
            of: of_kind(group, kind),
        };
        for name in path.split('.') {
            field = field.of.field(name);
        }
        field.strategy
    }
}
