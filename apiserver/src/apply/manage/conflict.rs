//! Conflicts of an apply with other managers.

use super::super::path::{Element, PathText};
use super::super::set::Set;
use super::entry::Entry;

/// A field that the applied object changes, and another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The manager, as texts name it.
    pub(crate) manager: String,
    /// The identity of its entry.
    id: String,
    path: Vec<Element>,
}

// === impl Conflict ===

impl Conflict {
    /// The conflicts over `fields` of an entry.
    pub(super) fn all(entry: &Entry, fields: &Set) -> Vec<Self> {
        let conflicts = fields.paths().into_iter().map(|path| Self {
            manager: entry.shown(),
            id: entry.id(),
            path,
        });
        conflicts.collect()
    }

    /// Whether the field is one of `fields`.
    pub(super) fn is_in(&self, fields: &Set) -> bool {
        fields.has(&self.path)
    }

    /// The text of the path.
    pub(crate) fn field(&self) -> String {
        PathText(&self.path).to_string()
    }

    /// The text of the cause in a Status.
    pub(crate) fn cause(&self) -> String {
        format!("conflict with {}", self.manager)
    }
}

/// The message of all conflicts. They are sorted by manager.
pub(crate) fn message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            one.manager,
            one.field()
        );
    }
    let mut lines = Vec::new();
    let mut last = None;
    for conflict in conflicts {
        if last != Some(&conflict.id) {
            lines.push(format!("conflicts with {}:", conflict.manager));
            last = Some(&conflict.id);
        }
        lines.push(format!("- {}", conflict.field()));
    }
    format!(
        "Apply failed with {} conflicts: {}",
        conflicts.len(),
        lines.join("\n")
    )
}
