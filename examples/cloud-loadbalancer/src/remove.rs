//! Removes the load balancer of a Service that is deleted, or does not ask for one any more.
//!
//! This is a path of its own, and never an update to an empty state: a load balancer that is preserved keeps its
//! listeners, one that is reused loses those of this Service only, and the values of attributes do not matter. The
//! finalizer goes last, when a read by id shows that nothing is left.

use std::time::Duration;

use reeve_controller::{Outcome, finalizer, reconcile};

use crate::annotations::Annotations;
use crate::applier::{Failures, apply};
use crate::context::RequestContext;
use crate::controller::{LoadBalancers, POLL};
use crate::diff::removal;
use crate::find;
use crate::identity::{CLUSTER_TAG, Note, SERVICE_TAG, UID_TAG};
use crate::intent::Rest;
use crate::model::{LbId, LoadBalancer};
use crate::provider::Error;

// === impl LoadBalancers ===

impl LoadBalancers {
    pub(crate) async fn remove(
        &self,
        request: &mut RequestContext,
        rest: Rest,
    ) -> Result<Outcome, reconcile::Error> {
        let (annotations, _) = Annotations::parse(&request.service);
        let recorded = request.recorded();
        let mut reused = request.note.reused.clone();
        let own = self
            .owned(
                request,
                recorded.iter().chain(&request.note.retired),
                &reused,
            )
            .await?;
        // An annotation does not make an own load balancer one of others.
        reused.extend(annotations.reuse.filter(|id| {
            !request.note.reused.contains(id) && !own.iter().any(|own| own.id == *id)
        }));
        if rest == Rest::FinalizerIfFound && own.is_empty() {
            return Ok(Outcome::done());
        }
        for id in &reused {
            self.clear(request, id).await?;
        }
        let mut waits = None;
        for balancer in &own {
            let wait = self
                .remove_own(request, balancer, annotations.preserve_on_delete)
                .await?;
            waits = waits.into_iter().chain(wait).min();
        }
        if let Some(wait) = waits {
            return Ok(Outcome::requeue_after(wait));
        }
        if let Some(left) = self.unsettled(request, &request.note) {
            return Ok(Outcome::requeue_after(left));
        }
        let theirs = matches!(rest, Rest::Marks | Rest::OtherClass);
        if !theirs && !finalizer::is_deleting(&request.service) {
            request.publish(&[]).await?;
        }
        request.release(rest != Rest::Marks).await?;
        self.recall.forget(&request.key);
        request.normal("DeletedLoadBalancer", "Delete", "Deleted load balancer");
        Ok(Outcome::done())
    }

    /// The own load balancers: those with the tags, and of `ids` those that a search does not show. Those of `reused` stay,
    /// whatever tags people gave them.
    async fn owned(
        &self,
        request: &RequestContext,
        ids: impl Iterator<Item = &LbId>,
        reused: &[LbId],
    ) -> Result<Vec<LoadBalancer>, reconcile::Error> {
        let provider = &*self.provider;
        let found = find::all_of(provider, &request.owner).await;
        let mut own = found.map_err(Failures::into_error)?;
        for id in ids {
            if own.iter().any(|one| one.id == *id) {
                continue;
            }
            let described = find::describe(provider, id).await;
            let described = described.map_err(Failures::into_error)?;
            own.extend(described.filter(|one| request.owner.owns(one)));
        }
        own.retain(|one| !reused.contains(&one.id));
        Ok(own)
    }

    /// The time until a search would show the load balancer of a creation of `note` whose result is not known.
    pub(crate) fn unsettled(&self, request: &RequestContext, note: &Note) -> Option<Duration> {
        let window = self.provider.visible_within();
        self.recall.unsettled(&request.key, note, window)
    }

    /// Takes the listeners and groups of this Service off a load balancer that stays.
    async fn clear(&self, request: &RequestContext, id: &LbId) -> Result<(), reconcile::Error> {
        let provider = &*self.provider;
        let described = find::describe(provider, id).await;
        if described.map_err(Failures::into_error)?.is_none() {
            return Ok(());
        }
        let failed = |call| move |error| Failures::one(call, error).into_error();
        let listeners = provider.listeners(id).await.map_err(failed("listeners"))?;
        let groups = provider.groups(id).await.map_err(failed("groups"))?;
        let plan = removal(&request.owner, &groups, &listeners);
        let applied = apply(provider, id, &plan).await;
        applied.map_err(Failures::into_error)
    }

    /// Begins the deletion of an own load balancer, or gives it up. Returns the time until the next look at one that will be
    /// gone later.
    pub(crate) async fn remove_own(
        &self,
        request: &RequestContext,
        balancer: &LoadBalancer,
        preserve: bool,
    ) -> Result<Option<Duration>, reconcile::Error> {
        if let Some(wait) = self.waits_for(request, balancer) {
            return Ok(Some(wait));
        }
        let (provider, id) = (&*self.provider, &balancer.id);
        let failed =
            |call: &'static str| move |error: Error| Failures::one(call, error).into_error();
        if balancer.delete_protection {
            let set = provider.set_delete_protection(id, false).await;
            set.map_err(failed("set_delete_protection"))?;
        }
        if !preserve {
            request.normal(
                "DeletingLoadBalancer",
                "Delete",
                format!("Deleting load balancer [{id}]"),
            );
            provider.delete(id).await.map_err(failed("delete"))?;
            return Ok(Some(POLL));
        }
        if balancer.modification_protection {
            let set = provider.set_modification_protection(id, false).await;
            set.map_err(failed("set_modification_protection"))?;
        }
        // The tags go last: without them it is not this Service's, whatever else is left to do.
        let keys = [SERVICE_TAG, UID_TAG, CLUSTER_TAG].map(str::to_owned);
        provider.untag(id, &keys).await.map_err(failed("untag"))?;
        let text =
            format!("Load balancer [{id}] stays, with its listeners, and is not managed any more");
        request.warning("PreservedOnDelete", "Delete", text);
        Ok(None)
    }

    /// After a change between an own and a reused load balancer: removes what the Service left behind. Returns the note
    /// without it, and the time until the rest is due. With `search` an own load balancer that the note does not name is
    /// found by its tags.
    pub(crate) async fn retire(
        &self,
        request: &RequestContext,
        reuse: Option<&LbId>,
        search: bool,
    ) -> Result<(Note, Option<Duration>), reconcile::Error> {
        let mut note = request.note.clone();
        for id in note.reused.iter().filter(|id| Some(*id) != reuse) {
            self.clear(request, id).await?;
        }
        note.reused.retain(|id| Some(id) == reuse);
        let known = !note.retired.is_empty() || note.creating.is_some();
        if reuse.is_none() || !(search || known) {
            return Ok((note, None));
        }
        let (annotations, _) = Annotations::parse(&request.service);
        let stay = &request.note.reused;
        let own = self.owned(request, note.retired.iter(), stay).await?;
        note.retired.clear();
        let mut waits = None;
        for balancer in &own {
            let wait = self
                .remove_own(request, balancer, annotations.preserve_on_delete)
                .await?;
            if wait.is_some() {
                note.retired.push(balancer.id.clone());
            }
            waits = waits.into_iter().chain(wait).min();
        }
        if waits.is_none() {
            self.recall.waits_for_none(&request.key);
        }
        let unsettled = self.unsettled(request, &note);
        if unsettled.is_none() {
            note.creating = None;
        }
        Ok((note, waits.or(unsettled)))
    }
}
