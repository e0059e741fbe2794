//! The fields that a write through a resource or a subresource cannot change, and so does not come to own.
//!
//! (kubernetes: `GetResetFields` of the strategies.)

use crate::apply::Set;
use crate::resource::ResourceInfo;

/// The fields that a write to `subresource` cannot change.
pub(super) fn ignored(info: &ResourceInfo, subresource: &str) -> Set {
    if let Some(paths) = info.strategy.reset_fields(subresource) {
        return Set::of(paths);
    }
    match subresource {
        "" if !info.status => Set::default(),
        "" | "finalize" => Set::of(&[&["status"]]),
        "status" if info.custom => Set::of(&[&["metadata"], &["spec"]]),
        "status" => Set::of(&[&["spec"]]),
        _ => Set::default(),
    }
}
