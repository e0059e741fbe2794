//! Fields that Go leaves out when they are false, zero or empty: `omitempty` on non-pointers.
//!
//! `"hostNetwork": false` and a missing field are equivalent, and a real server stores the same. The rows come from
//! the types of Kubernetes 1.36 (`k8s.io/api`), for the kinds of this server.

use serde_json::Value;

/// Whether the field `name` of the Go type `of` is left out with this value.
pub(crate) fn is_left_out(of: &str, name: &str, value: &Value) -> bool {
    let zero = match value {
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_i64() == Some(0),
        Value::String(value) => value.is_empty(),
        _ => false,
    };
    zero && LEFT_OUT
        .binary_search_by_key(&of, |(of, _)| of)
        .is_ok_and(|at| LEFT_OUT[at].1.contains(&name))
}

/// Types in order, with their fields.
const LEFT_OUT: &[(&str, &[&str])] = &[
    (
        "v1.AWSElasticBlockStoreVolumeSource",
        &["fsType", "partition", "readOnly"],
    ),
    ("v1.AzureFileVolumeSource", &["readOnly"]),
    (
        "v1.CephFSVolumeSource",
        &["path", "user", "secretFile", "readOnly"],
    ),
    ("v1.CinderVolumeSource", &["fsType", "readOnly"]),
    ("v1.Condition", &["observedGeneration"]),
    ("v1.ConfigMapEnvSource", &["name"]),
    ("v1.ConfigMapKeySelector", &["name"]),
    ("v1.ConfigMapNodeConfigSource", &["uid", "resourceVersion"]),
    ("v1.ConfigMapProjection", &["name"]),
    ("v1.ConfigMapVolumeSource", &["name"]),
    (
        "v1.Container",
        &[
            "image",
            "workingDir",
            "terminationMessagePath",
            "terminationMessagePolicy",
            "imagePullPolicy",
            "stdin",
            "stdinOnce",
            "tty",
        ],
    ),
    ("v1.ContainerImage", &["sizeBytes"]),
    (
        "v1.ContainerPort",
        &["name", "hostPort", "protocol", "hostIP"],
    ),
    ("v1.ContainerRestartRule", &["action"]),
    ("v1.ContainerRestartRuleOnExitCodes", &["operator"]),
    (
        "v1.ContainerStateTerminated",
        &["signal", "reason", "message", "containerID"],
    ),
    ("v1.ContainerStateWaiting", &["reason", "message"]),
    ("v1.ContainerStatus", &["containerID"]),
    ("v1.DaemonSetCondition", &["reason", "message"]),
    ("v1.DaemonSetSpec", &["minReadySeconds"]),
    (
        "v1.DaemonSetStatus",
        &[
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
        ],
    ),
    ("v1.DaemonSetUpdateStrategy", &["type"]),
    ("v1.DeploymentCondition", &["reason", "message"]),
    ("v1.DeploymentSpec", &["minReadySeconds", "paused"]),
    (
        "v1.DeploymentStatus",
        &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
        ],
    ),
    ("v1.DeploymentStrategy", &["type"]),
    ("v1.EmptyDirVolumeSource", &["medium"]),
    ("v1.EndpointAddress", &["hostname"]),
    ("v1.EndpointPort", &["name", "protocol"]),
    ("v1.EnvFromSource", &["prefix"]),
    ("v1.EnvVar", &["value"]),
    (
        "v1.EphemeralContainer",
        &[
            "image",
            "workingDir",
            "terminationMessagePath",
            "terminationMessagePolicy",
            "imagePullPolicy",
            "stdin",
            "stdinOnce",
            "tty",
            "targetContainerName",
        ],
    ),
    ("v1.EventSource", &["component", "host"]),
    ("v1.FCVolumeSource", &["fsType", "readOnly"]),
    ("v1.FlexVolumeSource", &["fsType", "readOnly"]),
    ("v1.FlockerVolumeSource", &["datasetName", "datasetUUID"]),
    (
        "v1.GCEPersistentDiskVolumeSource",
        &["fsType", "partition", "readOnly"],
    ),
    ("v1.GitRepoVolumeSource", &["revision", "directory"]),
    ("v1.GlusterfsVolumeSource", &["readOnly"]),
    ("v1.HTTPGetAction", &["path", "host", "scheme"]),
    ("v1.HTTPIngressPath", &["path"]),
    (
        "v1.ISCSIVolumeSource",
        &[
            "iscsiInterface",
            "fsType",
            "readOnly",
            "chapAuthDiscovery",
            "chapAuthSession",
        ],
    ),
    ("v1.ImageVolumeSource", &["reference", "pullPolicy"]),
    ("v1.ImageVolumeStatus", &["imageRef"]),
    ("v1.IngressClassSpec", &["controller"]),
    ("v1.IngressLoadBalancerIngress", &["ip", "hostname"]),
    ("v1.IngressRule", &["host"]),
    ("v1.IngressTLS", &["secretName"]),
    ("v1.JobCondition", &["reason", "message"]),
    (
        "v1.JobStatus",
        &["active", "succeeded", "failed", "completedIndexes"],
    ),
    ("v1.LoadBalancerIngress", &["ip", "hostname"]),
    ("v1.LocalObjectReference", &["name"]),
    (
        "v1.ModifyVolumeStatus",
        &["targetVolumeAttributesClassName"],
    ),
    ("v1.NFSVolumeSource", &["readOnly"]),
    ("v1.NamespaceCondition", &["reason", "message"]),
    ("v1.NamespaceStatus", &["phase"]),
    ("v1.NodeCondition", &["reason", "message"]),
    ("v1.NodeConfigStatus", &["error"]),
    (
        "v1.NodeSpec",
        &["podCIDR", "providerID", "unschedulable", "externalID"],
    ),
    ("v1.NodeStatus", &["phase"]),
    ("v1.ObjectFieldSelector", &["apiVersion"]),
    (
        "v1.ObjectReference",
        &[
            "kind",
            "namespace",
            "name",
            "uid",
            "apiVersion",
            "resourceVersion",
            "fieldPath",
        ],
    ),
    ("v1.PersistentVolumeClaimCondition", &["reason", "message"]),
    ("v1.PersistentVolumeClaimSpec", &["volumeName"]),
    ("v1.PersistentVolumeClaimStatus", &["phase"]),
    ("v1.PersistentVolumeClaimVolumeSource", &["readOnly"]),
    ("v1.PhotonPersistentDiskVolumeSource", &["fsType"]),
    (
        "v1.PodCertificateProjection",
        &[
            "signerName",
            "keyType",
            "credentialBundlePath",
            "keyPath",
            "certificateChainPath",
        ],
    ),
    (
        "v1.PodCondition",
        &["observedGeneration", "reason", "message"],
    ),
    ("v1.PodDNSConfigOption", &["name"]),
    (
        "v1.PodSpec",
        &[
            "restartPolicy",
            "dnsPolicy",
            "serviceAccountName",
            "serviceAccount",
            "nodeName",
            "hostNetwork",
            "hostPID",
            "hostIPC",
            "hostname",
            "subdomain",
            "schedulerName",
            "priorityClassName",
        ],
    ),
    (
        "v1.PodStatus",
        &[
            "observedGeneration",
            "phase",
            "message",
            "reason",
            "nominatedNodeName",
            "hostIP",
            "podIP",
            "qosClass",
            "resize",
        ],
    ),
    ("v1.PortworxVolumeSource", &["fsType", "readOnly"]),
    (
        "v1.Probe",
        &[
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ],
    ),
    (
        "v1.QuobyteVolumeSource",
        &["readOnly", "user", "group", "tenant"],
    ),
    (
        "v1.RBDVolumeSource",
        &["fsType", "pool", "user", "keyring", "readOnly"],
    ),
    ("v1.ReplicaSetCondition", &["reason", "message"]),
    ("v1.ReplicaSetSpec", &["minReadySeconds"]),
    (
        "v1.ReplicaSetStatus",
        &[
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "observedGeneration",
        ],
    ),
    ("v1.ResourceClaim", &["request"]),
    ("v1.ResourceFieldSelector", &["containerName"]),
    ("v1.ResourceHealth", &["health"]),
    ("v1.SELinuxOptions", &["user", "role", "type", "level"]),
    (
        "v1.ScaleIOVolumeSource",
        &[
            "sslEnabled",
            "protectionDomain",
            "storagePool",
            "storageMode",
            "volumeName",
            "fsType",
            "readOnly",
        ],
    ),
    ("v1.Secret", &["type"]),
    ("v1.SecretEnvSource", &["name"]),
    ("v1.SecretKeySelector", &["name"]),
    ("v1.SecretProjection", &["name"]),
    ("v1.SecretVolumeSource", &["secretName"]),
    ("v1.ServiceAccountTokenProjection", &["audience"]),
    ("v1.ServiceBackendPort", &["name", "number"]),
    ("v1.ServicePort", &["name", "protocol", "nodePort"]),
    (
        "v1.ServiceSpec",
        &[
            "clusterIP",
            "type",
            "sessionAffinity",
            "loadBalancerIP",
            "externalName",
            "externalTrafficPolicy",
            "healthCheckNodePort",
            "publishNotReadyAddresses",
        ],
    ),
    ("v1.StatefulSetCondition", &["reason", "message"]),
    (
        "v1.StatefulSetPersistentVolumeClaimRetentionPolicy",
        &["whenDeleted", "whenScaled"],
    ),
    (
        "v1.StatefulSetSpec",
        &["podManagementPolicy", "minReadySeconds"],
    ),
    (
        "v1.StatefulSetStatus",
        &[
            "observedGeneration",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "currentRevision",
            "updateRevision",
        ],
    ),
    ("v1.StatefulSetUpdateStrategy", &["type"]),
    (
        "v1.StorageOSVolumeSource",
        &["volumeName", "volumeNamespace", "fsType", "readOnly"],
    ),
    ("v1.Subject", &["apiGroup", "namespace"]),
    ("v1.TCPSocketAction", &["host"]),
    ("v1.Taint", &["value"]),
    ("v1.Toleration", &["key", "operator", "value", "effect"]),
    ("v1.VolumeMount", &["readOnly", "subPath", "subPathExpr"]),
    ("v1.VolumeMountStatus", &["readOnly"]),
    (
        "v1.VsphereVirtualDiskVolumeSource",
        &["fsType", "storagePolicyName", "storagePolicyID"],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_types_stand_in_order() {
        assert!(LEFT_OUT.is_sorted_by_key(|(of, _)| of));
    }

    #[test]
    fn a_pointer_keeps_its_zero() {
        assert!(is_left_out("v1.PodSpec", "hostNetwork", &json!(false)));
        assert!(!is_left_out("v1.PodSpec", "hostNetwork", &json!(true)));
        assert!(!is_left_out("v1.DeploymentSpec", "replicas", &json!(0)));
    }
}
