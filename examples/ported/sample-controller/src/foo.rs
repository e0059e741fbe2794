//! The kind `Foo`.

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The requested Deployment.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "samplecontroller.k8s.io",
    version = "v1alpha1",
    kind = "Foo",
    namespaced,
    status = "FooStatus",
    derive = "PartialEq",
    doc = "A request for a Deployment.",
    // A group of k8s.io needs it.
    annotation("api-approved.kubernetes.io", "unapproved, experimental-only"),
    crates(kube_core = "::kube_core")
)]
pub struct FooSpec {
    /// The name of the Deployment, in the namespace of the Foo.
    #[serde(default)]
    pub deployment_name: String,
    /// The number of its replicas. Without it, the Deployment's own number stays.
    #[schemars(range(min = 1, max = 10))]
    pub replicas: Option<i32>,
}

/// The state of the Deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FooStatus {
    /// The number of available replicas.
    #[serde(default)]
    pub available_replicas: i32,
}
