//! Blocks whose finalizer was removed, and that the cache still has.
//!
//! While the watch fails, the cache shows a block that is gone: in deletion, with the finalizer. Each run for it would
//! lift its ban and report that again.

use std::collections::HashMap;

use parking_lot::Mutex;
use reeve_controller::Request;

use crate::api::IPBlock;

/// The blocks whose finalizer this process removed, by UID. An entry stays until the cache has the deletion.
#[derive(Debug, Default)]
pub(super) struct Released(Mutex<HashMap<Request, String>>);

// === impl Released ===

impl Released {
    /// The finalizer of `block` is gone.
    pub(super) fn add(&self, request: &Request, block: &IPBlock) {
        if let Some(uid) = block.metadata.uid.clone() {
            self.0.lock().insert(request.clone(), uid);
        }
    }

    /// Whether the cache is behind: it has `present`, whose finalizer is gone. Forgets a block that it does not have any
    /// more.
    pub(super) fn is_behind(&self, request: &Request, present: Option<&IPBlock>) -> bool {
        let mut released = self.0.lock();
        let Some(uid) = released.get(request) else {
            return false;
        };
        let behind = present.is_some_and(|block| block.metadata.uid.as_ref() == Some(uid));
        if !behind {
            released.remove(request);
        }
        behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::IPBlockSpec;

    fn block(uid: &str) -> IPBlock {
        let mut block = IPBlock::new("a", IPBlockSpec::default());
        block.metadata.uid = Some(uid.to_owned());
        block
    }

    #[test]
    fn a_released_block_counts_as_gone_until_the_cache_has_its_deletion_or_another_block() {
        let request = Request::namespaced("default", "a");
        for next in [None, Some(block("2"))] {
            let released = Released::default();
            assert!(!released.is_behind(&request, Some(&block("1"))));
            released.add(&request, &block("1"));
            for _ in 0..2 {
                assert!(released.is_behind(&request, Some(&block("1"))));
            }
            assert!(!released.is_behind(&request, next.as_ref()));
            assert!(released.0.lock().is_empty(), "{next:?}");
        }
    }
}
