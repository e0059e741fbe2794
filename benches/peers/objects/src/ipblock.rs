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
    /// Who it is.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: IpBlockSpec,
    /// What is.
    pub status: Option<IpBlockStatus>,
}

/// What is wanted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpBlockSpec {
    /// Address or network.
    pub ip: String,
    /// For how long.
    pub duration: String,
    /// Why.
    pub reason: String,
    /// Who asked.
    pub source: String,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// When the server wrote it.
    pub ts: String,
}

/// What is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpBlockStatus {
    /// Where in its life it is.
    pub phase: String,
    /// Which gateway enforces it.
    pub engine: String,
    /// For people.
    pub message: String,
    /// Of which generation this is the status.
    pub observed_generation: i64,
    /// Since when.
    pub blocked_at: Option<String>,
    /// Until when.
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
