//! The plan for a Service as text: `ccm plan`, and the Event of a dry run. It only reads.

use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use reeve_controller::finalizer;

use crate::annotations::Annotations;
use crate::applier::Failures;
use crate::backends::Sources;
use crate::desired::Wanted;
use crate::diff::{Remote, creation, diff, removal};
use crate::find::{self, Found, Reused};
use crate::identity::{Note, Owner, recorded};
use crate::intent::{Intent, intent};
use crate::model::{
    Address, Create, InstanceCharge, Internet, LbId, LoadBalancer, State, TrafficCharge,
};
use crate::plan::{Notice, Plan};
use crate::provider::Provider;
use crate::settings::Settings;
use crate::surplus;

/// What the controller would do for `service`, as text.
///
/// # Errors
/// If a read of the cloud fails.
pub async fn explain(
    provider: &dyn Provider,
    settings: &Settings,
    service: &Service,
    sources: Sources<'_>,
) -> Result<String, Failures> {
    let owner = Owner::of(&settings.cluster, service);
    let mut text = format!("Service {}: ", owner.name);
    match intent(service, settings.default_class) {
        Intent::Ignore => text.push_str("not this controller's\n"),
        Intent::Ensure => {
            let wanted = Wanted::of(&owner, service, sources, settings.readiness, None)
                .fit(service, provider.abilities());
            let plan = ensure(provider, &wanted, service, sources, settings).await?;
            text.push_str(&plan);
        }
        Intent::Remove(_) => text.push_str(&remove(provider, &owner, service).await?),
    }
    Ok(text)
}

async fn ensure(
    provider: &dyn Provider,
    wanted: &Wanted,
    service: &Service,
    sources: Sources<'_>,
    settings: &Settings,
) -> Result<String, Failures> {
    let per_call = provider.backends_per_call();
    let balancer = match &wanted.reuse {
        Some(id) => match find::reused(provider, id).await? {
            Reused::Usable(balancer)
                if wanted.problems.is_empty() || recorded(service).as_ref() == Some(id) =>
            {
                balancer
            }
            Reused::Usable(_) => {
                let notices = wanted.problems.iter().cloned().map(Notice::Problem);
                let plan = Plan {
                    actions: Vec::new(),
                    notices: notices.collect(),
                };
                return Ok(format!("does not come to load balancer {id}\n{plan}"));
            }
            Reused::Missing => return Ok(format!("there is no load balancer {id} to reuse\n")),
            Reused::Managed => return Ok(format!("load balancer {id} is another Service's\n")),
        },
        None => {
            let recorded = recorded(service);
            match find::own(provider, &wanted.owner, recorded.as_ref()).await? {
                Found::One(balancer) => balancer,
                Found::Deleting(balancer) => {
                    return Ok(format!("load balancer {} is being deleted\n", balancer.id));
                }
                Found::Many(ids) if !provider.abilities().tokens => {
                    let described = match surplus::keep(&ids) {
                        Some(id) => find::describe(provider, id).await?,
                        None => None,
                    };
                    match described {
                        Some(balancer) => Box::new(balancer),
                        None => return Ok("has load balancers that are being deleted\n".to_owned()),
                    }
                }
                Found::Many(ids) => {
                    let ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
                    return Ok(format!("has several load balancers: {}\n", ids.join(", ")));
                }
                Found::None { .. } => {
                    let create = wanted.creation();
                    let plan = creation(wanted, &fresh(&create), per_call);
                    if !wanted.problems.is_empty() {
                        return Ok(format!("nothing is created\n{plan}"));
                    }
                    let former = former(provider, &wanted.owner, service, None).await?;
                    return Ok(format!(
                        "has no load balancer\ncreate {}\n{plan}{former}",
                        described(&create)
                    ));
                }
            }
        }
    };
    let id = &balancer.id;
    let failed = |call| move |error| Failures::one(call, error);
    let remote = Remote {
        groups: provider.groups(id).await.map_err(failed("groups"))?,
        listeners: Some(provider.listeners(id).await.map_err(failed("listeners"))?),
        balancer: (*balancer).clone(),
    };
    let readiness = settings.readiness;
    let wanted = Wanted::of(&wanted.owner, service, sources, readiness, Some(&balancer))
        .fit(service, provider.abilities());
    let plan = diff(&wanted, &remote, per_call);
    let moves = recorded(service).is_some_and(|recorded| recorded != *id);
    if moves && wanted.reuse.is_some() && plan.has_conflict() {
        return Ok(format!(
            "does not come to load balancer {id}, which has listeners of others\n{plan}"
        ));
    }
    let former = former(provider, &wanted.owner, service, Some(id)).await?;
    Ok(format!(
        "load balancer {id}, {}\n{plan}{former}",
        balancer.address
    ))
}

async fn remove(
    provider: &dyn Provider,
    owner: &Owner,
    service: &Service,
) -> Result<String, Failures> {
    let text = if finalizer::is_deleting(service) {
        "is being deleted"
    } else {
        "asks for no load balancer of this controller any more"
    };
    let former = former(provider, owner, service, None).await?;
    Ok(format!("{text}\n{former}"))
}

/// What happens to the load balancers that the Service has or uses, other than `kept`.
async fn former(
    provider: &dyn Provider,
    owner: &Owner,
    service: &Service,
    kept: Option<&LbId>,
) -> Result<String, Failures> {
    let (annotations, _) = Annotations::parse(service);
    let note = Note::of(service, Timestamp::UNIX_EPOCH);
    let mut own = find::all_of(provider, owner).await?;
    for id in recorded(service).iter().chain(&note.retired) {
        if !own.iter().any(|one| one.id == *id) {
            let described = find::describe(provider, id).await?;
            own.extend(described.filter(|one| owner.owns(one)));
        }
    }
    let mut reused = note.reused;
    own.retain(|one| !reused.contains(&one.id));
    // An annotation does not make an own load balancer one of others.
    let named = annotations.reuse;
    reused.extend(named.filter(|id| !own.iter().any(|one| one.id == *id)));
    reused.sort();
    reused.dedup();
    let failed = |call| move |error| Failures::one(call, error);
    let mut text = String::new();
    for id in reused.iter().filter(|id| Some(*id) != kept) {
        if find::describe(provider, id).await?.is_none() {
            continue;
        }
        let groups = provider.groups(id).await.map_err(failed("groups"))?;
        let listeners = provider.listeners(id).await.map_err(failed("listeners"))?;
        let plan = removal(owner, &groups, &listeners);
        let _ = write!(text, "load balancer {id} stays\n{plan}");
    }
    for balancer in own.iter().filter(|one| Some(&one.id) != kept) {
        let verb = if annotations.preserve_on_delete {
            "untag"
        } else {
            "delete"
        };
        let _ = writeln!(text, "{verb} load balancer {}", balancer.id);
    }
    Ok(text)
}

fn described(create: &Create) -> String {
    let (network, version) = (create.fixed.address_type, create.fixed.ip_version);
    let spec = create.spec.as_deref().map(|spec| format!(", {spec}"));
    format!(
        "load balancer {} ({network}, {version}{})",
        create.name,
        spec.unwrap_or_default()
    )
}

/// The load balancer right after the creation.
fn fresh(create: &Create) -> LoadBalancer {
    LoadBalancer {
        id: LbId(String::new()),
        name: create.name.clone(),
        state: State::Active,
        address: Address::Ip([0, 0, 0, 0].into()),
        fixed: create.fixed.clone(),
        internet: create.internet.unwrap_or(Internet {
            charge: TrafficCharge::PayByTraffic,
            bandwidth: 0,
        }),
        instance_charge: create.instance_charge.unwrap_or(InstanceCharge::PayByUse),
        spec: create.spec.clone().unwrap_or_default(),
        delete_protection: false,
        modification_protection: false,
        tags: create.tags.clone(),
    }
}
