//! Certificates of further domains of an HTTPS listener.

use serde_json::{Map, Value, json};

use super::listeners::{claim, named_listener};
use super::settings::Protocol;
use super::state::{Domain, Listener, State};
use super::{Answered, Context, Refusal, fields};
use crate::parameters::Parameters;

/// A name of DNS, whose first part may be `*`.
fn domain(call: &Parameters) -> Result<String, Refusal> {
    let domain = call.required("Domain")?.to_ascii_lowercase();
    let name = domain.strip_prefix("*.").unwrap_or(&domain);
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let label = |label: &str| !label.is_empty() && label.chars().all(allowed);
    if domain.len() > 80 || !name.split('.').all(label) {
        return Err(Refusal::invalid("Domain"));
    }
    Ok(domain)
}

pub(super) fn create(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let domain = domain(call)?;
    let certificate = call.required("ServerCertificateId")?.to_owned();
    state.certificate(&certificate)?;
    let id = state.new_id("de");
    let most = context.rules.domains;
    let (balancer, index) = claim(state, context, call, Some(Protocol::Https))?;
    let listener = &mut balancer.listeners[index];
    if listener.domains.values().any(|one| one.domain == domain) {
        let message = format!("The listener has a certificate for {domain}.");
        return Err(Refusal::new(400, "DomainAlreadyExists", message));
    }
    if listener.domains.len() >= most {
        let code = "DomainExtensionNumberOverLimit";
        return Err(Refusal::quota(code, "domains of a listener", most));
    }
    let port = listener.port;
    let added = Domain {
        domain,
        certificate,
    };
    listener.domains.insert(id.clone(), added);
    Ok(fields(
        json!({ "DomainExtensionId": id, "ListenerPort": port }),
    ))
}

/// The listener that has the domain of the call, ready for an edit.
fn listener_of<'a>(
    state: &'a mut State,
    context: Context<'_>,
    id: &str,
) -> Result<&'a mut Listener, Refusal> {
    let found = state
        .listeners()
        .find(|(_, listener)| listener.domains.contains_key(id))
        .map(|(balancer, listener)| (balancer.id.clone(), listener.port));
    let (balancer, port) = found.ok_or_else(|| {
        let message = format!("The domain extension {id} does not exist.");
        Refusal::new(404, "DomainExtensionId.NotFound", message)
    })?;
    let call = Parameters::default()
        .with("LoadBalancerId", balancer)
        .with("ListenerPort", port);
    let (balancer, index) = claim(state, context, &call, Some(Protocol::Https))?;
    Ok(&mut balancer.listeners[index])
}

pub(super) fn set(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let id = call.required("DomainExtensionId")?;
    let certificate = call.required("ServerCertificateId")?.to_owned();
    state.certificate(&certificate)?;
    if let Some(domain) = listener_of(state, context, id)?.domains.get_mut(id) {
        domain.certificate = certificate;
    }
    Ok(Map::new())
}

pub(super) fn delete(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let id = call.required("DomainExtensionId")?;
    listener_of(state, context, id)?.domains.remove(id);
    Ok(Map::new())
}

pub(super) fn list(state: &State, _: Context<'_>, call: &Parameters) -> Answered {
    let listener = named_listener(state, call, Protocol::Https)?;
    let id = call.text("DomainExtensionId");
    let domains = listener.domains.iter();
    let domains = domains.filter(|(one, _)| id.is_none_or(|id| *one == id));
    let domains: Vec<Value> = domains
        .map(|(id, one)| {
            json!({
                "DomainExtensionId": id,
                "Domain": one.domain,
                "ServerCertificateId": one.certificate,
            })
        })
        .collect();
    Ok(fields(
        json!({ "DomainExtensions": { "DomainExtension": domains } }),
    ))
}
