//! Gives a Service its load balancer.
//!
//! The order of effects of a creation, and what a crash after each leaves:
//!
//! 1. the finalizer and the note "creating" are stored: nothing exists, a deletion waits until the search would show it;
//! 2. the cloud creates the load balancer: the next process sends the same token and gets the same id, or finds the tags;
//! 3. the id is stored;
//! 4. the plan is carried out: the next process compares in full, since no hash is stored;
//! 5. the status and the hash are stored.

use k8s_openapi::api::core::v1::LoadBalancerIngress;
use reeve_controller::{Outcome, finalizer, reconcile};
use serde_json::json;
use std::ops::ControlFlow::{self, Break, Continue};

use crate::annotations::{Annotations, Problem};
use crate::applier::{Failures, apply};
use crate::backends::Sources;
use crate::context::{Marks, RequestContext};
use crate::controller::{LoadBalancers, POLL};
use crate::desired::Wanted;
use crate::diff::{Remote, diff, taken};
use crate::find::{self, Found, Reused};
use crate::hash;
use crate::identity::{FINALIZER, Note, PREFIX};
use crate::model::{Address, LbId, LoadBalancer, Protocol, State};
use crate::provider::Kind;
use crate::surplus;

/// The load balancer, or the outcome of this run.
type Step = Result<ControlFlow<Outcome, Box<LoadBalancer>>, reconcile::Error>;

// === impl LoadBalancers ===

impl LoadBalancers {
    pub(crate) async fn ensure(
        &self,
        request: &mut RequestContext,
        sources: Sources<'_>,
    ) -> Result<Outcome, reconcile::Error> {
        let readiness = self.settings.readiness;
        let wanted = Wanted::of(&request.owner, &request.service, sources, readiness, None)
            .fit(&request.service, self.provider.abilities());
        let step = match &wanted.reuse {
            Some(id) => {
                let found = find::reused(&*self.provider, id).await;
                match found.map_err(Failures::into_error)? {
                    Reused::Usable(balancer) => {
                        let obstacle = self.obstacle(request, &wanted, &balancer).await?;
                        if let Some((message, error)) = obstacle {
                            return self.not_reused(request, sources, message, error).await;
                        }
                        self.reused(request, balancer).await?
                    }
                    Reused::Missing => {
                        let message = format!("there is no load balancer {id} to reuse");
                        let error = reconcile::Error::message(message.clone());
                        return self.not_reused(request, sources, message, error).await;
                    }
                    Reused::Managed => {
                        let message = format!(
                            "can not reuse load balancer {id}: a controller created it for a Service"
                        );
                        let error = reconcile::Error::terminal(message.clone());
                        return self.not_reused(request, sources, message, error).await;
                    }
                }
            }
            None => self.own(request, &wanted).await?,
        };
        match step {
            Break(outcome) => Ok(outcome),
            Continue(balancer) => match self.waits_for(request, &balancer) {
                Some(wait) => Ok(Outcome::requeue_after(wait)),
                None => self.compare(request, &balancer, sources, None).await,
            },
        }
    }

    /// Why the Service does not come to `balancer`, which it reuses from now on: it would not be served there, or not at all
    /// of its ports, and the load balancer that serves it now would be removed afterwards.
    async fn obstacle(
        &self,
        request: &RequestContext,
        wanted: &Wanted,
        balancer: &LoadBalancer,
    ) -> Result<Option<(String, reconcile::Error)>, reconcile::Error> {
        let (id, recorded) = (&balancer.id, request.recorded());
        if recorded.as_ref() == Some(id) {
            return Ok(None);
        }
        if !wanted.problems.is_empty() {
            let texts: Vec<_> = wanted.problems.iter().map(ToString::to_string).collect();
            let message = format!("load balancer {id} is not reused: {}", texts.join("; "));
            let error = reconcile::Error::terminal(message.clone());
            return Ok(Some((message, error)));
        }
        if recorded.is_none() {
            return Ok(None);
        }
        let listeners = self.provider.listeners(id).await;
        let listeners =
            listeners.map_err(|error| Failures::one("listeners", error).into_error())?;
        let taken = taken(wanted, &listeners);
        if taken.is_empty() {
            return Ok(None);
        }
        let taken: Vec<_> = taken.iter().map(ToString::to_string).collect();
        let message = format!(
            "load balancer {id} is not reused: it has listeners of others at {}",
            taken.join(", ")
        );
        let error = reconcile::Error::message(message.clone());
        Ok(Some((message, error)))
    }

    /// The Service asks for a load balancer that it cannot have. The one that it has goes on serving, with the backends of the
    /// day.
    async fn not_reused(
        &self,
        request: &mut RequestContext,
        sources: Sources<'_>,
        message: String,
        error: reconcile::Error,
    ) -> Result<Outcome, reconcile::Error> {
        if let Some(id) = request.recorded() {
            let described = find::describe(&*self.provider, &id).await;
            let its = |one: &LoadBalancer| {
                let its = request.owner.owns(one) || request.note.reused.contains(&one.id);
                its && matches!(one.state, State::Active | State::Locked)
            };
            if let Some(balancer) = described.map_err(Failures::into_error)?.filter(its) {
                let problem = Problem::new(format!("{PREFIX}reuse"), message);
                let compared = self.compare(request, &balancer, sources, Some(problem));
                compared.await.map(drop)?;
            }
        }
        Err(error)
    }

    /// The load balancer that this Service reuses. It is in the note before anything on it changes.
    async fn reused(&self, request: &mut RequestContext, balancer: Box<LoadBalancer>) -> Step {
        let id = &balancer.id;
        let recorded = request.recorded();
        let mut note = request.note.clone();
        if !note.reused.contains(id) {
            note.reused.push(id.clone());
        }
        if let Some(former) = recorded.clone().filter(|former| former != id)
            && !note.reused.contains(&former)
            && !note.retired.contains(&former)
        {
            note.retired.push(former);
        }
        if note != request.note || !finalizer::contains(&request.service, FINALIZER) {
            request.claim(note.clone()).await?;
        }
        if recorded.as_ref() != Some(id) {
            let marks = Marks {
                id: Some(id),
                hash: None,
            };
            request.mark(marks, note).await?;
        }
        Ok(Continue(balancer))
    }

    /// The load balancer of this Service alone: found, or created.
    async fn own(&self, request: &mut RequestContext, wanted: &Wanted) -> Step {
        let recorded = request.recorded();
        let found = find::own(&*self.provider, &request.owner, recorded.as_ref()).await;
        let balancer = match found.map_err(Failures::into_error)? {
            Found::One(balancer) => balancer,
            Found::Deleting(balancer) => {
                let wait = self.waits_for(request, &balancer);
                return Ok(Break(Outcome::requeue_after(wait.unwrap_or(POLL))));
            }
            Found::Many(ids) if !self.provider.abilities().tokens => {
                let Some(id) = surplus::keep(&ids) else {
                    return Ok(Break(Outcome::requeue_after(POLL)));
                };
                let described = find::describe(&*self.provider, id).await;
                match described.map_err(Failures::into_error)? {
                    Some(balancer) => Box::new(balancer),
                    None => return Ok(Break(Outcome::requeue_after(POLL))),
                }
            }
            Found::Many(ids) => {
                let ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
                let message = format!(
                    "the load balancers {} carry the tags of this Service; delete all but one",
                    ids.join(", ")
                );
                return Err(reconcile::Error::message(message));
            }
            Found::None { lost } => return self.create(request, wanted, lost).await,
        };
        if !finalizer::contains(&request.service, FINALIZER) {
            request.claim(request.note.clone()).await?;
        }
        let note = Note {
            creating: self.still_creating(request),
            mismatched: None,
            ..request.note.clone()
        };
        if recorded.as_ref() != Some(&balancer.id) || note != request.note {
            // A hash that was applied to another load balancer says nothing about this one.
            let hash = request.hash().map(str::to_owned);
            let marks = Marks {
                id: Some(&balancer.id),
                hash: hash
                    .as_deref()
                    .filter(|_| recorded.as_ref() == Some(&balancer.id)),
            };
            request.mark(marks, note).await?;
        }
        Ok(Continue(balancer))
    }

    async fn create(&self, request: &mut RequestContext, wanted: &Wanted, lost: bool) -> Step {
        if !wanted.problems.is_empty() {
            let texts: Vec<_> = wanted.problems.iter().map(ToString::to_string).collect();
            let message = format!("nothing is created from this Service: {}", texts.join("; "));
            return Err(reconcile::Error::terminal(message));
        }
        let now = request.ctx.clock().now();
        let window = self.provider.visible_within();
        let mut note = request.note.clone();
        if note.mismatched.is_some() {
            if self.recall.since_refusal(&request.key) < window {
                return Ok(Break(Outcome::requeue_after(POLL)));
            }
            // The load balancer of the earlier creation is gone or given up: a search would show it.
            note.mismatched = None;
            note.generation += 1;
        } else if lost && note.creating.is_none() {
            let id = request.recorded().map(|id| id.0).unwrap_or_default();
            let text = format!("Load balancer {id} is gone from the cloud; a new one is created");
            request.warning("LoadBalancerLost", "Create", text);
            note.generation += 1;
        }
        note.creating = Some(now);
        self.recall.waits_for_none(&request.key);
        request.claim(note.clone()).await?;
        request.normal("EnsuringLoadBalancer", "Create", "Ensuring load balancer");
        let token = request.owner.token(note.generation);
        let created = {
            let _sent = self.recall.creates(&request.key);
            self.provider.create(&token, &wanted.creation()).await
        };
        let id = match created {
            Ok(id) => Some(id),
            Err(error) if error.kind == Kind::TokenReused => None,
            Err(error) => return Err(Failures::one("create", error).into_error()),
        };
        let described = match &id {
            Some(id) => {
                let described = find::describe(&*self.provider, id).await;
                described.map_err(Failures::into_error)?
            }
            None => None,
        };
        // The token may name a load balancer that was given up since: preserved, so it has no tags. One whose label is still
        // here lost its tags by hand, and gets them back.
        let given_up = |id: &LbId| {
            let described = described.as_ref();
            described.is_some_and(|one| !request.owner.owns(one))
                && request.recorded().as_ref() != Some(id)
        };
        let Some(id) = id.filter(|id| !given_up(id)) else {
            note.mismatched = Some(now);
            self.recall.refused(&request.key);
            request.claim(note).await?;
            return Ok(Break(Outcome::requeue_after(POLL)));
        };
        note.creating = self.still_creating(request);
        let marks = Marks {
            id: Some(&id),
            hash: None,
        };
        request.mark(marks, note).await?;
        Ok(match described {
            Some(balancer) => Continue(Box::new(balancer)),
            None => Break(Outcome::requeue_after(POLL)),
        })
    }

    /// Brings an active load balancer to the wanted state, and stores the result. With `misfit` the Service asks for another
    /// load balancer, which it cannot have.
    async fn compare(
        &self,
        request: &mut RequestContext,
        balancer: &LoadBalancer,
        sources: Sources<'_>,
        misfit: Option<Problem>,
    ) -> Result<Outcome, reconcile::Error> {
        let (provider, id) = (&*self.provider, &balancer.id);
        let readiness = self.settings.readiness;
        let cluster = json!({"cluster": self.settings.cluster.as_str()});
        let hash = hash::of(&request.service, &cluster);
        let mut wanted = Wanted::of(
            &request.owner,
            &request.service,
            sources,
            readiness,
            Some(balancer),
        )
        .fit(&request.service, provider.abilities());
        let stays = misfit.is_some();
        wanted.problems.extend(misfit);
        let failed = |call| move |error| Failures::one(call, error).into_error();
        let groups = provider.groups(id).await.map_err(failed("groups"))?;
        let group_missing = wanted
            .ports
            .iter()
            .any(|port| !groups.iter().any(|group| group.name == port.settings.name));
        let applied = request.hash() == Some(&hash);
        let due = self.recall.is_due(&request.key, self.settings.drift_period);
        let full = !applied || group_missing || due;
        let surplus = full && !stays && self.remove_surplus(request, balancer).await?;
        let listeners = if full {
            Some(provider.listeners(id).await.map_err(failed("listeners"))?)
        } else {
            None
        };
        let remote = Remote {
            balancer: balancer.clone(),
            groups,
            listeners,
        };
        let plan = diff(&wanted, &remote, provider.backends_per_call());
        if full {
            for notice in &plan.notices {
                request.warning(notice.reason(), "Ensure", notice.to_string());
            }
            // Also if the Service is changed back to what was applied last: a part of this plan may be made by then.
            self.recall.compares(&request.key);
        }
        let result = apply(provider, id, &plan).await;
        let serves = result.as_ref().err().is_none_or(Failures::leaves_listeners);
        let published = if serves {
            let ingress = ingress(request, &wanted, balancer);
            request.publish(&ingress).await?
        } else {
            false
        };
        result.map_err(Failures::into_error)?;
        let valid = wanted.problems.is_empty();
        // What served before goes once all ports are served here.
        let served = valid && !plan.has_conflict();
        let stored = request.hash().map(str::to_owned);
        // Until it is gone, everything is compared: a conflict shows in no other comparison.
        let retires = !request.note.retired.is_empty()
            || request.note.reused.iter().any(|id| *id != balancer.id);
        let next = if served || (valid && !retires) {
            Some(hash.clone())
        } else {
            stored.clone()
        };
        let (note, wait) = if stays || !served {
            (request.note.clone(), None)
        } else {
            self.retire(request, wanted.reuse.as_ref(), full).await?
        };
        if next != stored || note != request.note {
            let marks = Marks {
                id: Some(id),
                hash: next.as_deref(),
            };
            request.mark(marks, note).await?;
        }
        // With a surplus, the next comparison is a full one too.
        if full && !surplus {
            self.recall.compared(&request.key);
        }
        if published || (!applied && valid) {
            let text = format!("Ensured load balancer [{id}]");
            request.normal("EnsuredLoadBalancer", "Ensure", text);
        } else if !plan.is_empty() {
            let text = format!("Updated load balancer [{id}]");
            request.normal("UpdatedLoadBalancer", "Ensure", text);
        }
        let period = if surplus { POLL } else { self.period(request) };
        let waits = [wait, self.unsettled(request, &request.note)]
            .into_iter()
            .flatten();
        Ok(Outcome::requeue_after(waits.fold(period, Ord::min)))
    }
}

/// The entry of the status.
fn ingress(
    request: &RequestContext,
    wanted: &Wanted,
    balancer: &LoadBalancer,
) -> [LoadBalancerIngress; 1] {
    let (annotations, _) = Annotations::parse(&request.service);
    if let Some(hostname) = annotations.hostname {
        return [LoadBalancerIngress {
            hostname: Some(hostname),
            ..LoadBalancerIngress::default()
        }];
    }
    let address = match &balancer.address {
        Address::Ip(address) => address.to_string(),
        Address::Host(name) => {
            return [LoadBalancerIngress {
                hostname: Some(name.clone()),
                ..LoadBalancerIngress::default()
            }];
        }
    };
    let reads = |protocol| matches!(protocol, Protocol::Http | Protocol::Https);
    let proxy =
        annotations.proxy_protocol || wanted.ports.iter().any(|port| reads(port.key.protocol));
    let mode = annotations.ip_mode;
    let mode = mode.unwrap_or_else(|| if proxy { "Proxy" } else { "VIP" }.to_owned());
    [LoadBalancerIngress {
        ip: Some(address),
        ip_mode: Some(mode),
        ..LoadBalancerIngress::default()
    }]
}
