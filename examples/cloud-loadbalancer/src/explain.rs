//! The plan for a Service as text: `ccm plan`, and the Event of a dry run. It only reads.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Service;
use reeve_controller::finalizer;

use crate::applier::Failures;
use crate::backends::Sources;
use crate::desired::Wanted;
use crate::diff::{Remote, creation, diff, removal};
use crate::find::{self, Found, Reused};
use crate::identity::{Owner, recorded};
use crate::intent::{Intent, intent};
use crate::model::{
    Address, Create, InstanceCharge, Internet, LbId, LoadBalancer, State, TrafficCharge,
};
use crate::provider::Provider;
use crate::settings::Settings;

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
            text.push_str(&ensure(provider, &wanted, service, sources, settings).await?);
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
            Reused::Usable(balancer) => balancer,
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
                    return Ok(format!(
                        "has no load balancer\ncreate {}\n{plan}",
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
    Ok(format!("load balancer {id}, {}\n{plan}", balancer.address))
}

async fn remove(
    provider: &dyn Provider,
    owner: &Owner,
    service: &Service,
) -> Result<String, Failures> {
    let (annotations, _) = crate::annotations::Annotations::parse(service);
    let mut text = if finalizer::is_deleting(service) {
        "is being deleted\n".to_owned()
    } else {
        "asks for no load balancer of this controller any more\n".to_owned()
    };
    if let Some(id) = &annotations.reuse {
        let failed = |call| move |error| Failures::one(call, error);
        let groups = provider.groups(id).await.map_err(failed("groups"))?;
        let listeners = provider.listeners(id).await.map_err(failed("listeners"))?;
        let plan = removal(owner, &groups, &listeners);
        let _ = write!(text, "load balancer {id} stays\n{plan}");
    }
    let mut own = find::all_of(provider, owner).await?;
    if let Some(id) = recorded(service).filter(|id| !own.iter().any(|one| one.id == *id)) {
        let described = find::describe(provider, &id).await?;
        own.extend(described.filter(|one| owner.owns(one)));
    }
    own.retain(|one| Some(&one.id) != annotations.reuse.as_ref());
    for balancer in own {
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
