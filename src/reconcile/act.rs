//! One plan, run step by step.

use std::sync::Arc;
use std::time::Duration;

use kube_core::params::{DeleteParams, Preconditions};
use reeve_controller::client::patch::difference;
use reeve_controller::client::{self, Error as ClientError, Patch as ClientPatch, WriteOptions};
use reeve_controller::{Context, Request};
use serde_json::json;
use tokio::time::Instant;

use super::block::BlockReconciler;
use crate::api::{IPBlock, IPBlockStatus, Standing};
use crate::config::Config;
use crate::decide::{Call, Failure, Operation, Patch, Plan, Settled};
use crate::engine::{Ban, Remaining};

/// An engine call that takes longer is shown in the status.
const SLOW: Duration = Duration::from_secs(1);

/// Conflicts in a row after which a status write is left to the next run.
const CONFLICTS: usize = 5;

/// A plan at work.
pub(super) struct Act<'a> {
    pub(super) reconciler: &'a BlockReconciler,
    pub(super) ctx: &'a Context,
    pub(super) request: &'a Request,
    pub(super) key: &'a str,
    pub(super) block: &'a Arc<IPBlock>,
    pub(super) plan: &'a Plan,
    pub(super) config: Option<&'a Config>,
}

/// How a plan ended.
pub(super) enum Done {
    /// As planned.
    Settled(Settled),
    /// A required engine call failed, and that is written.
    Failed(Settled),
    /// The operator may not delete the object.
    Refused,
    /// Somebody else changed the object: look again.
    Again,
    /// The object is gone.
    Gone,
}

/// What a write came to.
enum Written {
    Done,
    Conflict,
    Gone,
}

// === impl Act ===

impl Act<'_> {
    pub(super) async fn run(&self) -> Result<Done, ClientError> {
        if self.plan.collects() {
            return self.collect().await;
        }
        let mut current: IPBlock = self.block.as_ref().clone();
        if let Some(before) = self.plan.before() {
            match self.patch(&mut current, before).await? {
                Written::Done => {}
                Written::Conflict => return Ok(Done::Again),
                Written::Gone => return Ok(Done::Gone),
            }
        }
        self.claim();
        let mut left_behind = Vec::new();
        let mut failed = None;
        for call in self.plan.calls() {
            // Only API writes are fenced by themselves; after a suspend another may lead, and ban what is due here.
            self.ctx.check_fence("engine call")?;
            let Err(failure) = self.call(&mut current, call).await else {
                continue;
            };
            if !call.required {
                tracing::warn!(target = %call.standing.target, place = %call.standing.place, reason = failure.reason,
                    "an earlier ban could not be lifted: {}", failure.message);
                left_behind.push(call.standing.clone());
                continue;
            }
            failed.get_or_insert((call, failure));
            if !self.plan.lifts() {
                break;
            }
        }
        if let Some((call, failure)) = failed {
            return self.failed(current, call, &failure).await;
        }
        self.finish(current, &left_behind).await
    }

    /// Deletes the object as it was when its end was seen: one that was triggered since stays.
    async fn collect(&self) -> Result<Done, ClientError> {
        let metadata = &self.block.metadata;
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
        });
        let client = self.ctx.client();
        match client.delete::<IPBlock>(self.request, &params).await {
            Ok(()) => {
                self.reconciler.parts.metrics.collected();
                tracing::info!("deleted the block: its ban ended long ago");
                Ok(Done::Gone)
            }
            Err(error) if error.is_not_found() => Ok(Done::Gone),
            Err(error) if error.is_conflict() => Ok(Done::Again),
            Err(error) if error.status().is_some_and(|status| status.code == 403) => {
                self.reconciler.parts.metrics.collection_refused();
                if let Some(unlogged) = self.reconciler.refusals.pass() {
                    tracing::warn!(%error, unlogged, "could not delete a block whose ban ended long ago; grant delete on ipblocks or set retention to never");
                }
                Ok(Done::Refused)
            }
            Err(error) => Err(error),
        }
    }

    async fn failed(
        &self,
        mut current: IPBlock,
        call: &Call,
        failure: &Failure,
    ) -> Result<Done, ClientError> {
        let at = self.reconciler.parts.time.now();
        let settled = self
            .plan
            .fail(call, failure, current.metadata.generation, at);
        if let Some(status) = &settled.status {
            match self.status(&mut current, status).await? {
                Written::Done => {}
                Written::Conflict => return Ok(Done::Again),
                Written::Gone => return Ok(Done::Gone),
            }
        }
        self.reconciler.announce(self.ctx, &current, &settled);
        Ok(Done::Failed(settled))
    }

    async fn finish(
        &self,
        mut current: IPBlock,
        left_behind: &[Standing],
    ) -> Result<Done, ClientError> {
        let at = self.reconciler.parts.time.now();
        let settled = self
            .plan
            .settle(at, current.metadata.generation, left_behind);
        self.release_claim(&current, &settled);
        if let Some(status) = &settled.status {
            match self.status(&mut current, status).await? {
                Written::Done => {}
                Written::Conflict => return Ok(Done::Again),
                Written::Gone => return Ok(Done::Gone),
            }
            // The status is the transition: the next run does not see it again, whatever becomes of the patch.
            self.reconciler.announce(self.ctx, &current, &settled);
        }
        if let Some(after) = self.plan.after(left_behind) {
            match self.patch(&mut current, &after).await? {
                Written::Done => {}
                // The status is written and says it all; the next run does the rest.
                Written::Conflict => return Ok(Done::Again),
                Written::Gone if after.finalizer == Some(false) => {}
                Written::Gone => return Ok(Done::Gone),
            }
        }
        if settled.status.is_none() {
            self.reconciler.announce(self.ctx, &current, &settled);
        }
        Ok(Done::Settled(settled))
    }

    /// From now on this block may enforce what is planned.
    fn claim(&self) {
        let mut coverage = self.reconciler.parts.coverage.lock();
        if let Some((standing, until)) = self.plan.claim() {
            coverage.set(self.key, standing, until);
        } else if !self.plan.calls().is_empty() {
            coverage.lifting(self.key);
        }
    }

    fn release_claim(&self, current: &IPBlock, settled: &Settled) {
        let mut coverage = self.reconciler.parts.coverage.lock();
        let status = settled.status.as_ref().or(current.status.as_ref());
        let active = status.is_some_and(|status| status.is(&crate::api::Phase::Active));
        // It stays active where it cannot be lifted, and is lifted here.
        let lifted = self.plan.claim().is_none() && !self.plan.calls().is_empty();
        if !active || lifted || (current.is_deleting() && !self.plan.is_rest()) {
            coverage.remove(self.key);
        } else if let Some((standing, _)) = self.plan.claim() {
            // The end is known exactly only now.
            let until = status.and_then(IPBlockStatus::expires_at);
            coverage.set(self.key, standing, until);
            coverage.asserted(self.key, Instant::now());
        }
    }

    /// Calls an engine. While the first call for a new ban takes long, the status says so.
    async fn call(&self, current: &mut IPBlock, call: &Call) -> Result<(), Failure> {
        let asserted_before = self
            .reconciler
            .parts
            .coverage
            .lock()
            .claim(self.key)
            .is_some_and(|claim| claim.asserted.is_some());
        let calling = self.reconciler.call(call, self.config);
        tokio::pin!(calling);
        let answered = match tokio::time::timeout(SLOW, &mut calling).await {
            Ok(answered) => answered,
            Err(_) => {
                let at = self.reconciler.parts.time.now();
                if let Some(status) = self.plan.in_progress(current.metadata.generation, at) {
                    // Only news; what matters is written when the call has ended.
                    if let Err(error) = self.status(current, &status).await {
                        tracing::debug!(%error, "could not show that the engine takes long");
                    }
                }
                calling.await
            }
        };
        let outcome = answered?;
        if outcome == Some(Ban::Added) && asserted_before {
            tracing::info!(target = %call.standing.target, "the gateway had lost the ban and took it again");
            self.reconciler.parts.metrics.drift_repaired();
        }
        if call.operation == Operation::Unban {
            self.reconciler.doubt(&call.standing.target, self.key);
        }
        Ok(())
    }

    async fn patch(&self, current: &mut IPBlock, patch: &Patch) -> Result<Written, ClientError> {
        let body = ClientPatch::merge(patch.to_merge_patch(current));
        let answer = self
            .ctx
            .client()
            .patch(self.request, WriteOptions::new(), body)
            .await;
        Self::written(current, answer)
    }

    /// Writes the status against the version that was last seen; on a conflict against the newest one, as long
    /// as nobody else wrote the status.
    async fn status(
        &self,
        current: &mut IPBlock,
        status: &IPBlockStatus,
    ) -> Result<Written, ClientError> {
        for _ in 0..CONFLICTS {
            let from = current.status.clone().unwrap_or_default();
            let body = ClientPatch::merge(json!({
                "metadata": {
                    "uid": current.metadata.uid,
                    "resourceVersion": current.metadata.resource_version,
                },
                "status": difference(&json!(from), &json!(status)),
            }));
            let answer = self
                .ctx
                .client()
                .patch_status(self.request, WriteOptions::new(), body)
                .await;
            match Self::written(current, answer)? {
                Written::Conflict => {}
                done => return Ok(done),
            }
            let Some(live) =
                client::optional(self.ctx.client().get::<IPBlock>(self.request).await)?
            else {
                return Ok(Written::Gone);
            };
            if live.metadata.uid != current.metadata.uid
                || live.status.clone().unwrap_or_default() != from
                // An end that was moved meanwhile counts.
                || (self.plan.ends() && live.metadata.generation != current.metadata.generation)
            {
                return Ok(Written::Conflict);
            }
            *current = live;
        }
        Ok(Written::Conflict)
    }

    fn written(
        current: &mut IPBlock,
        answer: Result<IPBlock, ClientError>,
    ) -> Result<Written, ClientError> {
        match answer {
            Ok(fresh) => {
                *current = fresh;
                Ok(Written::Done)
            }
            Err(error) if error.is_conflict() => Ok(Written::Conflict),
            Err(error) if error.is_not_found() => Ok(Written::Gone),
            Err(error) => Err(error),
        }
    }
}

impl BlockReconciler {
    /// Calls the engine of `call`. What a ban came to is known, of a lift it does not matter.
    pub(super) async fn call(
        &self,
        call: &Call,
        config: Option<&Config>,
    ) -> Result<Option<Ban>, Failure> {
        let configured = config.and_then(|config| config.engine.as_ref().ok());
        let engine = self
            .parts
            .engines
            .get(&call.standing.place, configured)
            .map_err(|error| Failure {
                reason: "EngineUnusable".into(),
                message: error.to_string(),
            })?;
        let target = &call.standing.target;
        let answer = match call.operation {
            Operation::Ban(left) => engine.ban(target, left.map(Remaining::new)).await.map(Some),
            Operation::Unban => engine.unban(target).await.map(|_| None),
        };
        answer.map_err(|error| Failure {
            reason: error.reason().into(),
            message: error.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Phase;

    #[test]
    fn a_status_patch_holds_only_what_changes_and_nulls_what_is_gone() {
        let from = IPBlockStatus {
            phase: Some(Phase::Active),
            expires_at: Some("2026-01-01T00:00:00Z".into()),
            ban_count: Some(1),
            ..IPBlockStatus::default()
        };
        let to = IPBlockStatus {
            phase: Some(Phase::Expired),
            ban_count: Some(1),
            ..IPBlockStatus::default()
        };
        assert_eq!(
            difference(&json!(from), &json!(to)),
            json!({"phase": "expired", "expiresAt": null})
        );
        assert_eq!(difference(&json!(to), &json!(to)), json!({}));
    }
}
