//! The selection in one scope, where scopes differ: [`Within`].

use std::sync::Arc;

use crate::object::SkipPath;
use reeve_client::transport::{Scope, Selection};

/// The selection in one namespace of a set, or in all that are watched as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Within {
    /// A label selector, as kubectl writes it; empty for all.
    pub labels: String,
    /// A field selector, as kubectl writes it; empty for all.
    pub fields: String,
    /// Paths left out of each object, beside those of the builder. When an object comes from one scope to another that
    /// leaves out other paths, it is read again, with an update of an unchanged version; with
    /// [`delta_fifo`](crate::Builder::delta_fifo) only when it changes.
    pub skip: Vec<SkipPath>,
}

/// The function that selects from each scope, if there is one.
#[derive(Clone, Default)]
pub(super) struct SelectByScope(pub(super) Option<Select>);

/// Returns what is selected from a scope.
pub(super) type Select = Arc<dyn Fn(&Scope) -> Within + Send + Sync>;

// === impl SelectByScope ===

impl SelectByScope {
    /// The selection from `scope`: that of the function, or else `selection`.
    pub(super) fn within(&self, selection: &Selection, scope: &Scope) -> Within {
        match &self.0 {
            Some(select) => select(scope),
            None => Within {
                labels: selection.labels.clone(),
                fields: selection.fields.clone(),
                skip: Vec::new(),
            },
        }
    }
}
