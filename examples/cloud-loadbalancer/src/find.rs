//! The search for the load balancer of a Service.
//!
//! The recorded id is asked first: reads by id are current. The search by tags finds a load balancer whose id was not
//! recorded, after a crash or when someone removed the label. A name is never evidence.

use crate::applier::Failures;
use crate::identity::{Owner, is_managed};
use crate::model::{LbId, LoadBalancer, State};
use crate::provider::Provider;

/// The load balancer of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// There is none that a read shows.
    None {
        /// Whether the recorded one existed: the cloud has no load balancer with the recorded id.
        lost: bool,
    },
    /// This one.
    One(Box<LoadBalancer>),
    /// It is being deleted.
    Deleting(Box<LoadBalancer>),
    /// More than one, none of them recorded.
    Many(Vec<LbId>),
}

/// The load balancer of `owner` with its own tags.
pub(crate) async fn own(
    provider: &dyn Provider,
    owner: &Owner,
    recorded: Option<&LbId>,
) -> Result<Found, Failures> {
    let mut lost = false;
    if let Some(id) = recorded {
        match describe(provider, id).await? {
            Some(balancer) if owner.owns(&balancer) => return Ok(one(balancer)),
            // It is another's. The label was copied with the Service.
            Some(_) => {}
            None => lost = true,
        }
    }
    let mut all = all_of(provider, owner).await?;
    Ok(match (all.pop(), all.is_empty()) {
        (None, _) => Found::None { lost },
        (Some(balancer), true) => one(balancer),
        (Some(last), false) => {
            all.push(last);
            Found::Many(all.into_iter().map(|balancer| balancer.id).collect())
        }
    })
}

fn one(balancer: LoadBalancer) -> Found {
    let balancer = Box::new(balancer);
    if balancer.state == State::Deleting {
        Found::Deleting(balancer)
    } else {
        Found::One(balancer)
    }
}

/// All load balancers that carry the tags of `owner`, each read by its id.
pub(crate) async fn all_of(
    provider: &dyn Provider,
    owner: &Owner,
) -> Result<Vec<LoadBalancer>, Failures> {
    let tags = owner.identity();
    let found = provider.find(&tags).await;
    let mut all = Vec::new();
    for shown in found.map_err(|error| Failures::one("find", error))? {
        let balancer = describe(provider, &shown.id).await?;
        all.extend(balancer.filter(|balancer| owner.owns(balancer)));
    }
    Ok(all)
}

/// The load balancer to reuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reused {
    /// It may be used.
    Usable(Box<LoadBalancer>),
    /// There is none with this id.
    Missing,
    /// A controller created it for a Service, and would delete it with that.
    Managed,
}

/// The load balancer `id`, for reuse.
pub(crate) async fn reused(provider: &dyn Provider, id: &LbId) -> Result<Reused, Failures> {
    Ok(match describe(provider, id).await? {
        None => Reused::Missing,
        Some(balancer) if balancer.state == State::Deleting => Reused::Missing,
        Some(balancer) if is_managed(&balancer) => Reused::Managed,
        Some(balancer) => Reused::Usable(Box::new(balancer)),
    })
}

pub(crate) async fn describe(
    provider: &dyn Provider,
    id: &LbId,
) -> Result<Option<LoadBalancer>, Failures> {
    let described = provider.describe(id).await;
    described.map_err(|error| Failures::one("describe", error))
}
