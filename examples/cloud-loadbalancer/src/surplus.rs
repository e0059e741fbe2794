//! Load balancers too many, in a cloud without tokens.
//!
//! A creation that a process sent before it ended can reach such a cloud after its successor searched, found nothing and created
//! as well. The controller keeps the recorded one, or if none is recorded the one with the least id, and deletes the others.
//! They carry the tags of the Service, so no one else made them.
//!
//! A creation stays in the note for [`visible_within`](crate::provider::Provider::visible_within), in which a late one turns up.
//! Until then a deletion of the Service waits, and at the end everything is compared. Later ones show at the next full comparison.

use jiff::Timestamp;
use reeve_controller::reconcile;

use crate::applier::Failures;
use crate::context::RequestContext;
use crate::controller::LoadBalancers;
use crate::find;
use crate::model::{LbId, LoadBalancer};

/// The one of `ids` to keep, where none is recorded. It depends on the ids alone, not on their order.
pub(crate) fn keep(ids: &[LbId]) -> Option<&LbId> {
    ids.iter().min()
}

// === impl LoadBalancers ===

impl LoadBalancers {
    /// The time of a creation that a late one may follow. When that time is over, the next comparison is a full one.
    pub(crate) fn still_creating(&self, request: &RequestContext) -> Option<Timestamp> {
        let creating = request.note.creating?;
        if self.provider.abilities().tokens {
            return None;
        }
        if self.unsettled(request, &request.note).is_none() {
            self.recall.compares(&request.key);
            return None;
        }
        Some(creating)
    }

    /// Deletes all own load balancers of the Service but `kept`, whose id is recorded. With tokens there are none. Returns
    /// whether some are still there.
    pub(crate) async fn remove_surplus(
        &self,
        request: &RequestContext,
        kept: &LoadBalancer,
    ) -> Result<bool, reconcile::Error> {
        let reused = !request.owner.owns(kept);
        if self.provider.abilities().tokens || reused {
            return Ok(false);
        }
        let mut left = false;
        let all = find::all_of(&*self.provider, &request.owner).await;
        for other in all.map_err(Failures::into_error)? {
            if other.id != kept.id {
                // It has no address that anyone knows: the status never had another than that of the recorded one.
                let wait = self.remove_own(request, &other, false).await?;
                left |= wait.is_some();
            }
        }
        Ok(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_to_keep_depends_on_the_ids_alone() {
        let ids = ["net.web.2", "net.web.1", "net.web.3"].map(LbId::from);
        let mut other = ids.clone();
        other.reverse();
        assert_eq!(keep(&ids), Some(&"net.web.1".into()));
        assert_eq!(keep(&other), keep(&ids));
        assert_eq!(keep(&[]), None);
    }
}
