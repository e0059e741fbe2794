//! The answer of a write.

use std::sync::Arc;

use serde_json::Value;

use crate::store::Object;

/// The answer of a write.
#[derive(Debug)]
pub(crate) struct Written {
    /// 200 or 201.
    pub(crate) code: u16,
    /// The answer's content.
    pub(crate) content: Content,
}

/// The content of a write's answer.
#[derive(Debug)]
pub(crate) enum Content {
    /// An object of the resource.
    Object(Arc<Object>),
    /// Some other document, complete with `apiVersion` and `kind`.
    Document(Value),
}

// === impl Written ===

impl Written {
    pub(crate) fn object(code: u16, object: Arc<Object>) -> Self {
        Self {
            code,
            content: Content::Object(object),
        }
    }

    pub(crate) fn document(code: u16, document: Value) -> Self {
        Self {
            code,
            content: Content::Document(document),
        }
    }
}
