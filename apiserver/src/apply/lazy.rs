//! A schema that is made on first use.

use std::sync::{Arc, OnceLock};

use super::schema::Schema;

/// A schema that is made on first use and shared by all clones.
#[derive(Clone, Debug, Default)]
pub(crate) struct LazySchema(Arc<OnceLock<Arc<Schema>>>);

// === impl LazySchema ===

impl LazySchema {
    /// The schema; `make` makes it the first time.
    pub(crate) fn get(&self, make: impl FnOnce() -> Schema) -> Arc<Schema> {
        self.0.get_or_init(|| Arc::new(make())).clone()
    }
}
