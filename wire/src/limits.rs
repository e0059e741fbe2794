//! Limits of one decoded object.

/// Limits of one decoded object. The bytes come from another program, and two of them can stand for a whole object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub(crate) depth: usize,
    pub(crate) values: usize,
}

// === impl Limits ===

impl Limits {
    /// Maximum depth of the equivalent JSON: objects and lists within each other. Default: 126, which parsers of JSON
    /// accept.
    #[must_use]
    pub fn depth(mut self, depth: usize) -> Self {
        self.depth = depth;
        self
    }

    /// Maximum number of values: members, items and entries, at all depths. Default: no limit besides the length of the
    /// bytes, where two bytes can stand for an object with some empty members.
    #[must_use]
    pub fn values(mut self, values: usize) -> Self {
        self.values = values;
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            depth: 126,
            values: usize::MAX,
        }
    }
}
