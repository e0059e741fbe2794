//! Conversion between the versions of a custom resource: one version is the hub, the others convert to it and from it.
//!
//! ```
//! use kube_derive::CustomResource;
//! use reeve_webhook::Conversion;
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! mod v1 {
//! #   use super::*;
//!     #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//!     #[kube(group = "example.com", version = "v1", kind = "Website", namespaced, crates(kube_core = "::kube_core"))]
//!     pub struct WebsiteSpec { pub size: i32 }
//! }
//! mod v2 {
//! #   use super::*;
//!     #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//!     #[kube(group = "example.com", version = "v2", kind = "Website", namespaced, crates(kube_core = "::kube_core"))]
//!     pub struct WebsiteSpec { pub replicas: i32 }
//! }
//!
//! impl From<v1::Website> for v2::Website {
//!     fn from(old: v1::Website) -> Self {
//!         let spec = v2::WebsiteSpec { replicas: old.spec.size };
//!         Self { metadata: old.metadata, spec }
//!     }
//! }
//! impl From<v2::Website> for v1::Website {
//!     fn from(new: v2::Website) -> Self {
//!         let spec = v1::WebsiteSpec { size: new.spec.replicas };
//!         Self { metadata: new.metadata, spec }
//!     }
//! }
//!
//! # fn main() {
//! let conversion = Conversion::hub::<v2::Website>().spoke::<v1::Website>();
//! assert_eq!(conversion.versions(), ["v1", "v2"]);
//! # }
//! ```
//!
//! A field that only one version has is lost on the way through the others. `testing::RoundTrips`, with the feature
//! `testing`, finds such fields for each pair of versions.

mod convert;
mod review;
mod versions;

pub use convert::Conversion;
pub use versions::{Convertible, Problem};
