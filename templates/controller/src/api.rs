//! The kind `{{kind}}`. `manifests/crd.yaml` is made of it: `cargo run -- crd > manifests/crd.yaml`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::CustomResource;
use reeve_controller::kube_core::CustomResourceExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The type of the condition that says whether the object has what it asks for.
pub const READY: &str = "Ready";

/// What an object asks for.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "{{group}}",
    version = "v1alpha1",
    kind = "{{kind}}",
    plural = "{{plural}}",{% if namespaced %}
    namespaced,{% endif %}
    status = "{{kind}}Status",
    doc = "A text that is kept in a ConfigMap.",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    crates(kube_core = "::reeve_controller::kube_core", serde_json = "::reeve_controller::serde_json")
)]
#[serde(rename_all = "camelCase")]
pub struct {{kind}}Spec {
    /// The text that the ConfigMap of the object holds.
    #[schemars(length(min = 1, max = 1000))]
    pub message: String,
}

/// What the controller found and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct {{kind}}Status {
    /// `Ready` is true when the ConfigMap holds the text.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The definition of the kind, as YAML.
///
/// # Errors
/// When it cannot be written as YAML, which a test rules out.
pub fn crd() -> Result<String, serde_saphyr::ser::Error> {
    let definition: CustomResourceDefinition = {{kind}}::crd();
    let text = serde_saphyr::to_string(&definition)?;
    Ok(format!("# Made by: cargo run -- crd > manifests/crd.yaml\n{text}"))
}
