//! The defaults of built-in kinds.

use serde_json::Value;

use super::canonical;
use crate::resource::ResourceInfo;

/// Sets the defaults of an object before it is checked and stored, and brings a built-in one to the form of its type.
pub(crate) fn set(info: &ResourceInfo, object: &mut Value) {
    if let Some(of) = info.of {
        canonical::leave_out(of, object);
        info.strategy.default(info, object);
        canonical::write(of, object);
    }
}
