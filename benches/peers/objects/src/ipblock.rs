//! A custom resource: `ops.example.io/v1`, `IPBlock`.

use std::borrow::Cow;

use k8s_openapi::NamespaceResourceScope;
use kube_core::{ObjectMeta, Resource};
use serde::{Deserialize, Serialize};

/// An address to be blocked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpBlock {
    /// Always `ops.example.io/v1`.
    pub api_version: String,
    /// Always `IPBlock`.
    pub kind: String,
    /// Name, version and annotations.
    pub metadata: ObjectMeta,
    /// The desired state.
    pub spec: IpBlockSpec,
    /// The present state.
    pub status: Option<IpBlockStatus>,
}

/// The desired state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpBlockSpec {
    /// Address or network.
    pub ip: String,
    /// For how long.
    pub duration: String,
    /// The reason for the block.
    pub reason: String,
    /// The author of the block.
    pub source: String,
    /// Words for a search.
    pub tags: Vec<String>,
    /// When the server wrote it.
    pub ts: String,
}

/// The present state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpBlockStatus {
    /// The phase of the block.
    pub phase: String,
    /// The gateway that enforces it.
    pub engine: String,
    /// An explanation for people.
    pub message: String,
    /// The generation that this status describes.
    pub observed_generation: i64,
    /// The begin of the ban.
    pub blocked_at: Option<String>,
    /// The end of the ban.
    pub expires_at: Option<String>,
}

// === impl IpBlock ===

impl Resource for IpBlock {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "IPBlock".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "ops.example.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "ipblocks".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
