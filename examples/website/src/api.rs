//! The kind: what users write, and what the controller reports.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A web site: one page under a host name.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(group = "web.example.com", version = "v1", kind = "Website")]
#[kube(namespaced, crates(kube_core = "::reeve_controller::kube_core"))]
#[kube(shortname = "web", status = "WebsiteStatus", derive = "PartialEq")]
#[kube(printcolumn = r#"{"name": "Host", "type": "string", "jsonPath": ".spec.host"}"#)]
#[kube(
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"}"#
)]
#[kube(printcolumn = r#"{"name": "Pods", "type": "integer", "jsonPath": ".status.readyReplicas"}"#)]
pub struct WebsiteSpec {
    /// The host name: labels of lower-case letters, digits and hyphens.
    #[schemars(length(max = 253), regex(pattern = r"^[a-z0-9-]+(\.[a-z0-9-]+)*$"))]
    pub host: String,

    /// The page, in HTML.
    #[schemars(length(max = 100_000))]
    pub page: String,

    /// The number of Pods.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 20))]
    pub replicas: i32,
}

/// The state that the controller observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebsiteStatus {
    /// The number of Pods that answer.
    #[serde(default)]
    pub ready_replicas: i32,

    /// `Ready`: all Pods answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

fn one() -> i32 {
    1
}
