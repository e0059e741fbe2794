//! All cached blocks, some at a time.
//!
//! The cache keeps blocks as their JSON, a third of the size. All of them decoded at once would take the difference.

use std::sync::Arc;

use reeve_controller::Request;
use reeve_controller::cache::{Lister, ReadError};

use super::block::request_of;
use crate::api::IPBlock;

/// Blocks that are decoded at the same time.
const PAGE: usize = 256;

/// Goes over the blocks of a cache in the order of their keys.
pub(crate) struct Pages {
    lister: Lister<IPBlock>,
    after: Option<Request>,
}

// === impl Pages ===

impl Pages {
    /// From the first block on.
    pub(crate) fn new(lister: Lister<IPBlock>) -> Self {
        Self {
            lister,
            after: None,
        }
    }

    /// The next blocks; none at the end.
    pub(crate) fn next(&mut self) -> Result<Vec<Arc<IPBlock>>, ReadError> {
        let after = self.after.as_ref().map(Request::as_ref);
        let page = self.lister.list_range(None, after, PAGE)?;
        if let Some(last) = page.last() {
            self.after = Some(request_of(last));
        }
        Ok(page)
    }
}
