//! The kinds that the webhooks are called for, and those that informers watch.

use kube_core::ApiResource;
use reeve_client::Kind;

use crate::config::Config;
use crate::target::word;

/// What informers keep of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// Nothing: the rules read its objects from requests only.
    No,
    /// Labels, owners and times.
    Metadata,
    /// Also nodes, templates, selectors and the objects that Pods and Ingresses use.
    Whole,
}

/// A guarded kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarded {
    /// The kind and its path.
    pub resource: ApiResource,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// What informers keep of it.
    pub watched: Watched,
    /// The guarded subresources that are written.
    pub subresources: Vec<&'static str>,
    /// The guarded subresources that are connected to.
    pub connections: Vec<&'static str>,
    /// The first label of its webhook's name.
    pub word: String,
}

type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    bool,
    Watched,
    &'static [&'static str],
    &'static [&'static str],
);

/// Group, version, kind, plural, whether it has namespaces, what is watched, subresources, connections.
#[rustfmt::skip]
const BUILT_IN: [Row; 42] = [
    ("", "v1", "Pod", "pods", true, Watched::Whole, &["eviction", "binding", "ephemeralcontainers", "resize", "status"], &["exec", "attach", "portforward", "proxy"]),
    // The older form of `pods/binding`.
    ("", "v1", "Binding", "bindings", true, Watched::No, &[], &[]),
    ("", "v1", "Namespace", "namespaces", false, Watched::Metadata, &["finalize", "status"], &[]),
    ("", "v1", "Node", "nodes", false, Watched::No, &["status"], &["proxy"]),
    ("", "v1", "Service", "services", true, Watched::Metadata, &["status"], &["proxy"]),
    ("", "v1", "ConfigMap", "configmaps", true, Watched::Metadata, &[], &[]),
    ("", "v1", "Secret", "secrets", true, Watched::No, &[], &[]),
    ("", "v1", "ServiceAccount", "serviceaccounts", true, Watched::Metadata, &["token"], &[]),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true, Watched::Metadata, &["status"], &[]),
    ("", "v1", "ReplicationController", "replicationcontrollers", true, Watched::Whole, &["scale", "status"], &[]),
    ("", "v1", "ResourceQuota", "resourcequotas", true, Watched::No, &["status"], &[]),
    ("", "v1", "LimitRange", "limitranges", true, Watched::No, &[], &[]),
    ("apps", "v1", "Deployment", "deployments", true, Watched::Whole, &["scale", "status"], &[]),
    ("apps", "v1", "StatefulSet", "statefulsets", true, Watched::Whole, &["scale", "status"], &[]),
    ("apps", "v1", "ReplicaSet", "replicasets", true, Watched::Whole, &["scale", "status"], &[]),
    ("apps", "v1", "DaemonSet", "daemonsets", true, Watched::Whole, &["status"], &[]),
    ("batch", "v1", "Job", "jobs", true, Watched::Whole, &["status"], &[]),
    ("batch", "v1", "CronJob", "cronjobs", true, Watched::Whole, &["status"], &[]),
    ("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true, Watched::No, &["status"], &[]),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true, Watched::Metadata, &["status"], &[]),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", true, Watched::Metadata, &[], &[]),
    ("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", true, Watched::No, &["status"], &[]),
    ("networking.k8s.io", "v1", "Ingress", "ingresses", true, Watched::Whole, &["status"], &[]),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true, Watched::No, &[], &[]),
    ("", "v1", "Endpoints", "endpoints", true, Watched::No, &[], &[]),
    ("", "v1", "PersistentVolume", "persistentvolumes", false, Watched::No, &["status"], &[]),
    ("apps", "v1", "ControllerRevision", "controllerrevisions", true, Watched::No, &[], &[]),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", true, Watched::No, &[], &[]),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", true, Watched::No, &[], &[]),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false, Watched::No, &[], &[]),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", false, Watched::No, &[], &[]),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", false, Watched::No, &[], &[]),
    ("storage.k8s.io", "v1", "StorageClass", "storageclasses", false, Watched::No, &[], &[]),
    ("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", false, Watched::No, &[], &[]),
    ("storage.k8s.io", "v1", "CSIDriver", "csidrivers", false, Watched::No, &[], &[]),
    ("networking.k8s.io", "v1", "IngressClass", "ingressclasses", false, Watched::No, &[], &[]),
    ("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", false, Watched::No, &[], &[]),
    ("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", "flowschemas", false, Watched::No, &[], &[]),
    ("flowcontrol.apiserver.k8s.io", "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", false, Watched::No, &[], &[]),
    ("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests", false, Watched::No, &["approval"], &[]),
    ("apiregistration.k8s.io", "v1", "APIService", "apiservices", false, Watched::No, &["status"], &[]),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false, Watched::No, &["status"], &[]),
];

/// The guarded kinds: the built-in ones, and those of the configuration.
#[must_use]
pub fn all(config: &Config) -> Vec<Guarded> {
    let mut kinds: Vec<Guarded> = BUILT_IN.into_iter().map(Guarded::of).collect();
    for custom in &config.kinds {
        let found = kinds.iter_mut().find(|known| {
            (&known.resource.group, &known.resource.plural) == (&custom.group, &custom.plural)
        });
        if let Some(known) = found {
            known.watched = Watched::Whole;
            continue;
        }
        kinds.push(Guarded {
            resource: resource(&custom.group, &custom.version, &custom.kind, &custom.plural),
            namespaced: custom.namespaced,
            watched: Watched::Whole,
            subresources: vec!["scale", "status"],
            connections: Vec::new(),
            // A name that ends with a dot is invalid: the core group has none.
            word: format!("{}.{}", custom.plural, custom.group)
                .trim_end_matches('.')
                .to_owned(),
        });
    }
    kinds
}

/// The plural of a guarded kind.
#[must_use]
pub fn plural(config: &Config, group: &str, kind: &str) -> Option<String> {
    let built_in = BUILT_IN.iter().map(|row| (row.0, row.2, row.3));
    let custom = config.kinds.iter();
    let custom = custom.map(|kind| (&*kind.group, &*kind.kind, &*kind.plural));
    let mut all = built_in.chain(custom);
    let found = all.find(|(of, name, _)| *of == group && *name == kind);
    found.map(|(_, _, plural)| plural.to_owned())
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let gvk = kube_core::GroupVersionKind::gvk(group, version, kind);
    ApiResource::from_gvk_with_plural(&gvk, plural)
}

// === impl Guarded ===

impl Guarded {
    fn of(row: Row) -> Self {
        let (group, version, kind, plural, namespaced, watched, subresources, connections) = row;
        Self {
            resource: resource(group, version, kind, plural),
            namespaced,
            watched,
            subresources: subresources.to_vec(),
            connections: connections.to_vec(),
            word: word(plural).to_owned(),
        }
    }

    /// The kind for informers and reads.
    #[must_use]
    pub fn kind(&self) -> Kind {
        if self.namespaced {
            Kind::namespaced(self.resource.clone())
        } else {
            Kind::cluster_scoped(self.resource.clone())
        }
    }
}
