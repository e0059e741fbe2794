//! The writes of a plan that are not the status: the finalizer, the intent, flags that are set back.

use serde_json::{Map, Value, json};

use crate::api::{FINALIZER, INTENT, IPBlock, Intent};

/// A change of metadata and of the two flags in the spec, one merge patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Adds (`true`) or removes the finalizer.
    pub finalizer: Option<bool>,
    /// Sets or removes the intent.
    pub intent: Option<Option<Intent>>,
    /// Sets `spec.unblock` back.
    pub clear_unblock: bool,
    /// Sets `spec.trigger` back.
    pub clear_trigger: bool,
}

// === impl Patch ===

impl Patch {
    /// The JSON merge patch for `block`, bound to the version that was decided upon.
    #[must_use]
    pub fn to_merge_patch(&self, block: &IPBlock) -> Value {
        let mut metadata = Map::new();
        if let Some(version) = &block.metadata.resource_version {
            metadata.insert("resourceVersion".into(), json!(version));
        }
        if let Some(uid) = &block.metadata.uid {
            metadata.insert("uid".into(), json!(uid));
        }
        if let Some(hold) = self.finalizer {
            let mut all: Vec<&str> = block
                .metadata
                .finalizers
                .iter()
                .flatten()
                .map(String::as_str)
                .filter(|finalizer| *finalizer != FINALIZER)
                .collect();
            if hold {
                all.push(FINALIZER);
            }
            metadata.insert("finalizers".into(), json!(all));
        }
        if let Some(intent) = &self.intent {
            let text = intent.as_ref().map(ToString::to_string);
            metadata.insert("annotations".into(), json!({ INTENT: text }));
        }
        let mut patch = Map::new();
        patch.insert("metadata".into(), Value::Object(metadata));
        let mut spec = Map::new();
        if self.clear_unblock {
            spec.insert("unblock".into(), json!(false));
        }
        if self.clear_trigger {
            spec.insert("trigger".into(), json!(false));
        }
        if !spec.is_empty() {
            patch.insert("spec".into(), Value::Object(spec));
        }
        Value::Object(patch)
    }

    pub(super) fn some(self) -> Option<Self> {
        (self != Self::default()).then_some(self)
    }
}
