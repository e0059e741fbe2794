//! Kinds that act on the whole cluster.

use reeve_webhook::admission::Operation;

use crate::target::Target;

/// Whether the request changes what holds for the whole cluster.
pub(super) fn is_cluster_wide(target: &Target) -> bool {
    match target.kind() {
        ("scheduling.k8s.io", "priorityclasses")
        | ("apiregistration.k8s.io", "apiservices")
        | ("rbac.authorization.k8s.io", "clusterroles" | "clusterrolebindings")
        | ("storage.k8s.io", "storageclasses" | "volumeattachments" | "csidrivers")
        | ("networking.k8s.io", "ingressclasses")
        | ("node.k8s.io", "runtimeclasses")
        | ("flowcontrol.apiserver.k8s.io", "flowschemas" | "prioritylevelconfigurations") => true,
        ("certificates.k8s.io", "certificatesigningrequests") => {
            target.operation == Operation::Update
                && target.subresource.as_deref() == Some("approval")
        }
        _ => false,
    }
}
