//! Server groups, which listeners share.

use serde_json::{Map, Value, json};

use super::instances::{self, Ports};
use super::state::{Group, State};
use super::{Answered, Context, Refusal, fields};
use crate::parameters::Parameters;

const BACKENDS: &str = "BackendServers";
const LONGEST_NAME: usize = 80;

fn name(name: &str) -> Result<String, Refusal> {
    if name.chars().count() > LONGEST_NAME {
        return Err(Refusal::invalid("VServerGroupName"));
    }
    Ok(name.to_owned())
}

pub(super) fn create(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let balancer = call.required("LoadBalancerId")?;
    state.balancer_mut(context, balancer)?;
    let of_balancer = state.groups.values().filter(|one| one.balancer == balancer);
    if of_balancer.count() >= context.rules.groups {
        let code = "QuotaExceeded.VServerGroups";
        return Err(Refusal::quota(code, "server groups", context.rules.groups));
    }
    let backends = match call.text(BACKENDS) {
        Some(_) => instances::parse(state, context, call, BACKENDS, Ports::Own)?,
        None => Vec::new(),
    };
    let name = call.text("VServerGroupName").map(name).transpose()?;
    let id = state.new_id("rsp");
    let group = Group {
        balancer: balancer.to_owned(),
        name: name.unwrap_or_else(|| format!("auto-{id}")),
        backends,
        created_at: context.now,
        settled_at: context.now + context.rules.settle,
        id: id.clone(),
    };
    let answer = answer(&group);
    state.groups.insert(id, group);
    answer
}

fn answer(group: &Group) -> Answered {
    Ok(fields(json!({
        "VServerGroupId": group.id,
        "VServerGroupName": group.name,
        "LoadBalancerId": group.balancer,
        "BackendServers": instances::listed(&group.backends),
    })))
}

/// The group of the call, if it accepts edits; it is busy from now on.
fn claim<'a>(
    state: &'a mut State,
    context: Context<'_>,
    call: &Parameters,
) -> Result<&'a mut Group, Refusal> {
    let id = call.required("VServerGroupId")?;
    let group = state.groups.get_mut(id).ok_or_else(Refusal::no_group)?;
    if context.now < group.settled_at {
        return Err(Refusal::busy_group());
    }
    group.settled_at = context.now + context.rules.settle;
    Ok(group)
}

pub(super) fn delete(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let id = call.required("VServerGroupId")?;
    claim(state, context, call)?;
    if state.users_of(id).next().is_some() {
        let message = "A listener forwards to the server group.";
        return Err(Refusal::new(400, "RspoolVipExist", message));
    }
    state.groups.remove(id);
    Ok(Map::new())
}

pub(super) fn list(state: &State, _: Context<'_>, call: &Parameters) -> Answered {
    let balancer = state.balancer(call.required("LoadBalancerId")?)?;
    let groups = state.groups.values();
    let groups: Vec<Value> = groups
        .filter(|group| group.balancer == balancer.id)
        .map(|group| {
            let listeners: Vec<Value> = state
                .users_of(&group.id)
                .map(|(_, one)| json!({ "Port": one.port, "Protocol": one.protocol.name() }))
                .collect();
            json!({
                "VServerGroupId": group.id,
                "VServerGroupName": group.name,
                "ServerCount": group.backends.len(),
                "AssociatedObjects": {
                    "Listeners": { "Listener": listeners },
                    "Rules": { "Rule": [] },
                },
            })
        })
        .collect();
    Ok(fields(
        json!({ "VServerGroups": { "VServerGroup": groups } }),
    ))
}

pub(super) fn describe(state: &State, _: Context<'_>, call: &Parameters) -> Answered {
    answer(state.group(call.required("VServerGroupId")?)?)
}

/// The name, and backends: those that are there take the sent weight, the others are added.
pub(super) fn set(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let sent = match call.text(BACKENDS) {
        Some(_) => instances::parse(state, context, call, BACKENDS, Ports::Own)?,
        None => Vec::new(),
    };
    let new_name = call.text("VServerGroupName").map(name).transpose()?;
    let group = claim(state, context, call)?;
    if let Some(name) = new_name {
        group.name = name;
    }
    instances::merge(&mut group.backends, sent, false, context.rules.backends)?;
    answer(group)
}

pub(super) fn add(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let sent = instances::parse(state, context, call, BACKENDS, Ports::Own)?;
    let group = claim(state, context, call)?;
    instances::merge(&mut group.backends, sent, true, context.rules.backends)?;
    answer(group)
}

/// Backends that are absent are skipped.
pub(super) fn remove(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let keys = instances::parse_keys(context, call, BACKENDS, Ports::Own)?;
    let group = claim(state, context, call)?;
    let named = |backend: &super::Backend| keys.iter().any(|key| key.names(backend));
    group.backends.retain(|backend| !named(backend));
    answer(group)
}

/// Removes the old backends and adds the new ones, in one step.
pub(super) fn modify(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let old = instances::parse_keys(context, call, "OldBackendServers", Ports::Own)?;
    let new = instances::parse(state, context, call, "NewBackendServers", Ports::Own)?;
    let group = claim(state, context, call)?;
    let named = |backend: &super::Backend| old.iter().any(|key| key.names(backend));
    group.backends.retain(|backend| !named(backend));
    instances::merge(&mut group.backends, new, true, context.rules.backends)?;
    answer(group)
}
