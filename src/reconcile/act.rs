//! The performer of a [`Run`]: each step at the API server, the gateways or in this process.

use std::pin::Pin;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::params::{DeleteParams, Preconditions};
use reeve_controller::client::patch::difference;
use reeve_controller::client::{Error as ClientError, Patch as ClientPatch};
use reeve_controller::events::EventType;
use reeve_controller::{Context, Request};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::block::{BlockReconciler, RESYNC};
use super::engines::Answered;
use super::record::is_forbidden;
use crate::api::{IPBlock, IPBlockStatus};
use crate::config::{CONFIG_MAP, Config};
use crate::decide::{Call, ClaimChange, Failure, Operation, Outcome, Run, Step, Wake};
use crate::engine::Ban;
use crate::guard::source_of;
use crate::sets::Until;

/// The status shows an engine call that takes longer.
const SLOW: Duration = Duration::from_secs(1);

/// Performs the steps of one run.
pub(super) struct Act<'a> {
    reconciler: &'a BlockReconciler,
    ctx: &'a Context,
    request: &'a Request,
    key: &'a str,
    config: Option<&'a Config>,
    in_flight: Option<InFlight<'a>>,
}

/// An engine call without an answer yet.
struct InFlight<'a> {
    answer: Pin<Box<dyn Future<Output = Result<Answered, Failure>> + Send + 'a>>,
    /// When this process had asserted the ban before the call.
    asserted: Option<Instant>,
    /// No call for the block at this place has taken effect before this one.
    untouched: bool,
}

// === impl Act ===

impl<'a> Act<'a> {
    pub(super) fn new(
        reconciler: &'a BlockReconciler,
        ctx: &'a Context,
        request: &'a Request,
        key: &'a str,
        config: Option<&'a Config>,
    ) -> Self {
        Self {
            reconciler,
            ctx,
            request,
            key,
            config,
            in_flight: None,
        }
    }

    /// Performs `run` to its end.
    pub(super) async fn perform(mut self, mut run: Run) -> Result<Wake, ClientError> {
        loop {
            let outcome = match run.step() {
                Step::End(wake) => return Ok(*wake),
                step => self.step(step, run.block()).await,
            };
            run.advance(outcome, self.reconciler.parts.time.now())?;
        }
    }

    async fn step(&mut self, step: &Step, block: &IPBlock) -> Result<Outcome, ClientError> {
        let parts = &self.reconciler.parts;
        match step {
            Step::Delete => return self.delete(block).await,
            Step::RecordIntent(patch) | Step::Finish(patch) => {
                let client = self.ctx.client();
                let body = ClientPatch::merge(patch.to_merge_patch(block));
                let patched = outcome(client.patch(self.request, body).await)?;
                let taken = matches!(patched, Outcome::Object(_) | Outcome::Gone);
                if taken && patch.finalizer == Some(false) {
                    self.reconciler.released.add(self.request, block);
                }
                return Ok(patched);
            }
            Step::WriteStatus(status) => return self.write_status(status, block).await,
            Step::ShowProgress(status) => {
                return self.write_status(status, block).await.inspect_err(
                    |error| tracing::debug!(%error, "could not show that the engine takes long"),
                );
            }
            Step::Read => return outcome(self.ctx.client().get(self.request).await),
            Step::Call(call) => {
                self.in_flight = Some(self.begin(call));
                return Ok(self.answer(call, Some(SLOW)).await);
            }
            Step::Await(call) => return Ok(self.answer(call, None).await),
            Step::CheckFence => self.ctx.check_fence("engine call")?,
            Step::Claim(change) => {
                let removed = {
                    let mut coverage = parts.coverage.lock();
                    let removed = coverage.apply(self.key, change, Instant::now());
                    if let ClaimChange::Confirm { standing, until } = change {
                        // Of several blocks with one standing the latest end counts.
                        let others = coverage.neighbours(&[standing.target], self.key);
                        let others = others.iter().filter(|other| other.standing == *standing);
                        let ends = others.map(|other| Until::new(other.until));
                        let end = ends.chain([Until::new(*until)]).max();
                        parts.sets.set_end(standing, end.unwrap_or(Until::NEVER));
                    }
                    if !matches!(change, ClaimChange::Lift) {
                        coverage.attribute(self.key, source_of(block));
                    }
                    removed
                };
                if let Some(claim) = removed {
                    self.reconciler.freed(self.key, &claim);
                    if *change == ClaimChange::Remove {
                        self.reconciler.leave(&claim.target);
                    }
                }
            }
            Step::Recheck(target) => {
                let overlapping = parts.coverage.lock().recheck(target, self.key);
                self.reconciler.request(overlapping);
            }
            Step::RecheckAt(standing) => {
                let overlapping = parts.coverage.lock().recheck_at(standing, self.key);
                self.reconciler.request(overlapping);
            }
            Step::Report(report) => self.reconciler.report(self.ctx, block, report),
            Step::End(_) => {}
        }
        Ok(Outcome::Done)
    }

    /// Deletes the object as it was when its end was seen: one that was triggered since stays.
    async fn delete(&mut self, block: &IPBlock) -> Result<Outcome, ClientError> {
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: block.metadata.uid.clone(),
            resource_version: block.metadata.resource_version.clone(),
        });
        let client = self.ctx.client();
        let metrics = &self.reconciler.parts.metrics;
        match client.delete::<IPBlock>(self.request, &params).await {
            Ok(()) => {
                metrics.collected();
                tracing::info!("deleted the block: its ban ended long ago");
                Ok(Outcome::Done)
            }
            Err(error) if is_forbidden(&error) => {
                metrics.collection_refused();
                if let Some(unlogged) = self.reconciler.refusals.pass() {
                    tracing::warn!(%error, unlogged, "could not delete a block whose ban ended long ago; grant delete on ipblocks or set retention to never");
                }
                Ok(Outcome::Forbidden)
            }
            Err(error) => failed(error),
        }
    }

    async fn write_status(
        &mut self,
        status: &IPBlockStatus,
        block: &IPBlock,
    ) -> Result<Outcome, ClientError> {
        let body = ClientPatch::merge(status_patch(block, status));
        let client = self.ctx.client();
        let patched = client.patch_status(self.request, body).await;
        let written = outcome(patched)?;
        if matches!(written, Outcome::Object(_)) {
            let coverage = &self.reconciler.parts.coverage;
            coverage.lock().report(self.key, status.shows_ban());
        }
        Ok(written)
    }

    fn begin(&self, call: &Call) -> InFlight<'a> {
        let (parts, call) = (&self.reconciler.parts, call.clone());
        let configured = self.config.and_then(|config| config.engine.as_ref().ok());
        let mut coverage = parts.coverage.lock();
        let untouched = coverage.touch(self.key, &call.standing.place);
        let claim = coverage.claim(self.key);
        InFlight {
            asserted: claim.and_then(|claim| claim.asserted),
            untouched,
            answer: Box::pin(async move { parts.engines.call(&call, configured).await }),
        }
    }

    /// Waits for the answer to the call in flight, for as long as `limit`.
    async fn answer(&mut self, call: &Call, limit: Option<Duration>) -> Outcome {
        let Some(mut in_flight) = self.in_flight.take() else {
            return Outcome::Done;
        };
        let answered = match limit {
            Some(limit) => match tokio::time::timeout(limit, &mut in_flight.answer).await {
                Ok(answered) => answered,
                Err(_) => {
                    self.in_flight = Some(in_flight);
                    return Outcome::Slow;
                }
            },
            None => in_flight.answer.await,
        };
        let target = &call.standing.target;
        match answered {
            Ok(answered) => {
                if answered.ban == Some(Ban::Added)
                    && let Some(asserted) = in_flight.asserted
                {
                    tracing::info!(%target, "gateway had lost the ban and took it again");
                    let parts = &self.reconciler.parts;
                    let place = &call.standing.place;
                    parts.metrics.drift_repaired(&place.engine, 1);
                    let longest = self.config.map_or(RESYNC, |config| config.resync_interval);
                    let coverage = &parts.coverage;
                    if let Some(note) = parts.losses.found(place, asserted, longest, coverage) {
                        self.report_loss(note);
                    }
                }
                if call.operation == Operation::Unban {
                    let parts = &self.reconciler.parts;
                    let place = &call.standing.place;
                    parts.losses.lifted(place, self.key, &parts.coverage);
                }
                Outcome::Confirmed(answered.engines)
            }
            Err(failure) => {
                if in_flight.untouched && !failure.may_have_happened {
                    let mut coverage = self.reconciler.parts.coverage.lock();
                    coverage.untouched(self.key, &call.standing.place);
                }
                if !call.required {
                    let parts = &self.reconciler.parts;
                    parts.losses.left(&call.standing.place, self.key);
                    tracing::warn!(%target, place = %call.standing.place, reason = failure.reason,
                        "could not lift an earlier ban: {}", failure.message);
                }
                Outcome::Failed(failure)
            }
        }
    }
}

impl Act<'_> {
    /// One Event of the ConfigMap, whose gateway it is, for all bans that it lost.
    fn report_loss(&self, note: String) {
        let namespace = self.reconciler.parts.record.key().namespace.as_deref();
        let key = Request::namespaced(namespace.unwrap_or_default(), CONFIG_MAP);
        let maps = self.ctx.lister::<ConfigMap>().ok();
        if let Some(Ok(Some(map))) = maps.map(|maps| maps.get(&key)) {
            let events = self.ctx.events();
            events.event(&*map, EventType::Warning, "BansLost", "Reconcile", note);
        }
    }
}

/// The merge patch from the status of `block` to `status`, bound to the version of `block`.
pub(crate) fn status_patch(block: &IPBlock, status: &IPBlockStatus) -> Value {
    let from = block.status.clone().unwrap_or_default();
    json!({
        "metadata": {
            "uid": block.metadata.uid,
            "resourceVersion": block.metadata.resource_version,
        },
        "status": difference(&json!(from), &json!(status)),
    })
}

fn outcome(answer: Result<IPBlock, ClientError>) -> Result<Outcome, ClientError> {
    match answer {
        Ok(block) => Ok(Outcome::Object(block.into())),
        Err(error) => failed(error),
    }
}

fn failed(error: ClientError) -> Result<Outcome, ClientError> {
    if error.is_conflict() {
        Ok(Outcome::Conflict)
    } else if error.is_not_found() {
        Ok(Outcome::Gone)
    } else {
        Err(error)
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
        let mut block = IPBlock {
            status: Some(from),
            ..IPBlock::default()
        };
        assert_eq!(
            status_patch(&block, &to)["status"],
            json!({"phase": "expired", "expiresAt": null})
        );
        block.status = Some(to.clone());
        assert_eq!(status_patch(&block, &to)["status"], json!({}));
    }
}
