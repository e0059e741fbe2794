//! Listeners of load balancers.

use serde_json::{Map, Value, json};

use super::settings::{self, Protocol};
use super::state::{Balancer, Listener, State};
use super::{Answered, Context, Refusal, fields};
use crate::parameters::Parameters;

fn port(call: &Parameters, name: &str) -> Result<Option<u16>, Refusal> {
    let port = call.integer(name, 1..=65_535)?;
    Ok(port.and_then(|port| u16::try_from(port).ok()))
}

fn required_port(call: &Parameters) -> Result<u16, Refusal> {
    port(call, "ListenerPort")?.ok_or_else(|| Refusal::missing("ListenerPort"))
}

pub(super) fn create(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let id = call.required("LoadBalancerId")?;
    let protocol = Protocol::of_action(context.action);
    let port = required_port(call)?;
    let mut listener = Listener {
        port,
        protocol,
        running: false,
        group: None,
        backend_port: None,
        settings: settings::defaults(protocol),
        domains: Default::default(),
        settled_at: context.now + context.rules.settle,
    };
    change(state, &mut listener, id, call)?;
    let balancer = state.balancer_mut(context, id)?;
    if listener.group.is_none() && listener.backend_port.is_none() {
        return Err(Refusal::missing("BackendServerPort"));
    }
    let taken =
        |one: &Listener| one.port == port && one.protocol.shares_ports_with(listener.protocol);
    if balancer.listeners.iter().any(taken) {
        let message = format!("A listener of the load balancer has the port {port}.");
        return Err(Refusal::new(400, "ListenerAlreadyExists", message));
    }
    if balancer.listeners.len() >= context.rules.listeners {
        let code = "ListenerNumberOverLimit";
        return Err(Refusal::quota(code, "listeners", context.rules.listeners));
    }
    balancer.listeners.push(listener);
    balancer
        .listeners
        .sort_by_key(|listener| (listener.port, listener.protocol));
    Ok(Map::new())
}

/// Takes the settings of the call into `listener`, and checks what they refer to.
fn change(
    state: &State,
    listener: &mut Listener,
    balancer: &str,
    call: &Parameters,
) -> Result<(), Refusal> {
    settings::apply(&mut listener.settings, listener.protocol, call)?;
    if let Some(id) = listener.settings.get("AclId")
        && !state.access_lists.contains_key(id)
    {
        return Err(Refusal::no_access_list(id));
    }
    if listener.protocol == Protocol::Https {
        let name = settings::CERTIFICATE;
        let id = listener.settings.get(name);
        state.certificate(id.ok_or_else(|| Refusal::missing(name))?)?;
    }
    if let Some(port) = port(call, "BackendServerPort")? {
        listener.backend_port = Some(port);
    }
    let switch = call.switch("VServerGroup")?;
    if switch == Some(false) {
        listener.group = None;
    } else if let Some(id) = call.text("VServerGroupId") {
        if state.group(id)?.balancer != balancer {
            return Err(Refusal::no_group());
        }
        listener.group = Some(id.to_owned());
    } else if switch == Some(true) && listener.group.is_none() {
        return Err(Refusal::missing("VServerGroupId"));
    }
    Ok(())
}

/// The index of the listener that the call names. `protocol` decides between a TCP and a UDP listener of one port.
fn find(balancer: &Balancer, port: u16, protocol: Option<Protocol>) -> Result<usize, Refusal> {
    let named = |listener: &Listener| {
        listener.port == port && protocol.is_none_or(|protocol| listener.protocol == protocol)
    };
    let found = balancer.listeners.iter().position(named);
    found.ok_or_else(Refusal::no_listener)
}

/// The listener of the call, if it accepts edits; it is busy from now on.
pub(super) fn claim<'a>(
    state: &'a mut State,
    context: Context<'_>,
    call: &Parameters,
    protocol: Option<Protocol>,
) -> Result<(&'a mut Balancer, usize), Refusal> {
    let port = required_port(call)?;
    let balancer = state.balancer_mut(context, call.required("LoadBalancerId")?)?;
    let index = find(balancer, port, protocol)?;
    let listener = &mut balancer.listeners[index];
    if context.now < listener.settled_at {
        return Err(Refusal::busy_listener());
    }
    listener.settled_at = context.now + context.rules.settle;
    Ok((balancer, index))
}

fn named_protocol(call: &Parameters) -> Result<Option<Protocol>, Refusal> {
    let name = call.text("ListenerProtocol");
    let protocol =
        name.map(|name| Protocol::named(name).ok_or_else(|| Refusal::invalid("ListenerProtocol")));
    protocol.transpose()
}

pub(super) fn set(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let id = call.required("LoadBalancerId")?;
    let protocol = Protocol::of_action(context.action);
    let (balancer, index) = claim(state, context, call, Some(protocol))?;
    let mut listener = balancer.listeners[index].clone();
    change(state, &mut listener, id, call)?;
    if listener.group.is_none() && listener.backend_port.is_none() {
        return Err(Refusal::missing("BackendServerPort"));
    }
    state.balancer_mut(context, id)?.listeners[index] = listener;
    Ok(Map::new())
}

pub(super) fn start(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let (balancer, index) = claim(state, context, call, named_protocol(call)?)?;
    balancer.listeners[index].running = true;
    Ok(Map::new())
}

pub(super) fn stop(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let (balancer, index) = claim(state, context, call, named_protocol(call)?)?;
    balancer.listeners[index].running = false;
    Ok(Map::new())
}

pub(super) fn delete(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let (balancer, index) = claim(state, context, call, named_protocol(call)?)?;
    balancer.listeners.remove(index);
    Ok(Map::new())
}

fn status(context: Context<'_>, listener: &Listener) -> &'static str {
    if context.now < listener.settled_at {
        "configuring"
    } else if listener.running {
        "running"
    } else {
        "stopped"
    }
}

/// What every description of a listener shows.
fn shown(context: Context<'_>, listener: &Listener) -> Map<String, Value> {
    let mut shown = fields(json!({
        "ListenerPort": listener.port,
        "Status": status(context, listener),
        "VServerGroupId": listener.group,
        "BackendServerPort": listener.backend_port,
    }));
    shown.retain(|_, value| !value.is_null());
    shown
}

/// The listener of the call, for a read.
pub(super) fn named_listener<'a>(
    state: &'a State,
    call: &Parameters,
    protocol: Protocol,
) -> Result<&'a Listener, Refusal> {
    let balancer = state.balancer(call.required("LoadBalancerId")?)?;
    let index = find(balancer, required_port(call)?, Some(protocol))?;
    Ok(&balancer.listeners[index])
}

pub(super) fn describe(state: &State, context: Context<'_>, call: &Parameters) -> Answered {
    let listener = named_listener(state, call, Protocol::of_action(context.action))?;
    let mut shown = shown(context, listener);
    shown.extend(settings::shown(&listener.settings));
    Ok(shown)
}

/// The settings that the list of listeners shows beside the protocol's own.
const GENERAL: &[&str] = &[
    "Description",
    "Bandwidth",
    "Scheduler",
    "AclStatus",
    "AclType",
    "AclId",
];

pub(super) fn list(state: &State, context: Context<'_>, call: &Parameters) -> Answered {
    let mut ids = call.numbered("LoadBalancerId");
    ids.extend(call.text("LoadBalancerId"));
    for id in &ids {
        state.balancer(id)?;
    }
    let size = call.integer("MaxResults", 1..=100)?.unwrap_or(20);
    let skipped = call
        .integer("NextToken", 0..=i64::from(i32::MAX))?
        .unwrap_or(0);
    let protocol = named_protocol(call)?;
    let port = port(call, "ListenerPort")?;
    let matching = |(balancer, listener): &(&Balancer, &Listener)| {
        (ids.is_empty() || ids.contains(&balancer.id.as_str()))
            && protocol.is_none_or(|protocol| listener.protocol == protocol)
            && port.is_none_or(|port| listener.port == port)
    };
    let found: Vec<(&Balancer, &Listener)> = state.listeners().filter(matching).collect();
    let skipped = usize::try_from(skipped).unwrap_or(0);
    let page = found
        .iter()
        .skip(skipped)
        .take(usize::try_from(size).unwrap_or(0));
    let page: Vec<Value> = page
        .map(|&(balancer, one)| listed(context, balancer, one))
        .collect();
    let read = skipped + page.len();
    let next = (read < found.len()).then(|| read.to_string());
    let mut answer = fields(json!({
        "Listeners": page,
        "MaxResults": size,
        "TotalCount": found.len(),
    }));
    if let Some(next) = next {
        answer.insert("NextToken".to_owned(), next.into());
    }
    Ok(answer)
}

fn listed(context: Context<'_>, balancer: &Balancer, listener: &Listener) -> Value {
    let mut shown = shown(context, listener);
    shown.extend(fields(json!({
        "LoadBalancerId": balancer.id,
        "ListenerProtocol": listener.protocol.name(),
    })));
    let mut own = settings::shown(&listener.settings);
    for name in GENERAL {
        if let Some(value) = own.remove(*name) {
            shown.insert((*name).to_owned(), value);
        }
    }
    let name = format!("{}ListenerConfig", listener.protocol.name().to_uppercase());
    shown.insert(name, Value::Object(own));
    Value::Object(shown)
}
