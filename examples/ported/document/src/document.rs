//! The kind `Document`.

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The text, and whether to hide it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kube.rs",
    version = "v1",
    kind = "Document",
    namespaced,
    status = "DocumentStatus",
    shortname = "doc",
    derive = "PartialEq",
    doc = "A text that can be hidden.",
    crates(kube_core = "::kube_core")
)]
pub struct DocumentSpec {
    /// The title. `illegal` is not allowed.
    pub title: String,
    /// Whether to hide the document.
    pub hide: bool,
    /// The text.
    pub content: String,
}

/// The state of the document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DocumentStatus {
    /// Whether it is hidden.
    pub hidden: bool,
}

// === impl Document ===

impl Document {
    /// Whether the status shows that it is hidden.
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        let status = self.status.as_ref();
        status.is_some_and(|status| status.hidden)
    }
}
