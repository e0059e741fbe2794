// The three versions of the page `versions.md`, for its later examples.
use kube_core::{CustomResourceExt, ObjectMeta};
use kube_derive::CustomResource;
use reeve_webhook::Conversion;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
mod v1alpha1 {
    use super::*;
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1alpha1", kind = "Site", namespaced, crates(kube_core = "::kube_core"))]
    pub struct SiteSpec { pub host: String }
}
mod v1beta1 {
    use super::*;
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1beta1", kind = "Site", namespaced, crates(kube_core = "::kube_core"))]
    pub struct SiteSpec { pub hosts: Vec<String> }
}
mod v1 {
    use super::*;
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Site", namespaced, crates(kube_core = "::kube_core"))]
    pub struct SiteSpec { pub hosts: Vec<String>, pub color: Option<String> }
}
