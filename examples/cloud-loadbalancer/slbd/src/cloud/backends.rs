//! The default server group of a load balancer.

use serde_json::json;

use super::instances::{self, Ports};
use super::state::{Balancer, State};
use super::{Answered, Context, Refusal, fields};
use crate::parameters::Parameters;

const NAME: &str = "BackendServers";

/// The load balancer, if its default group accepts edits; the group is busy from now on.
fn claim<'a>(
    state: &'a mut State,
    context: Context<'_>,
    call: &Parameters,
) -> Result<&'a mut Balancer, Refusal> {
    let balancer = state.balancer_mut(context, call.required("LoadBalancerId")?)?;
    if context.now < balancer.settled_at {
        return Err(Refusal::busy_group());
    }
    balancer.settled_at = context.now + context.rules.settle;
    Ok(balancer)
}

fn answer(balancer: &Balancer) -> Answered {
    Ok(fields(json!({
        "LoadBalancerId": balancer.id,
        "BackendServers": instances::listed(&balancer.backends),
    })))
}

pub(super) fn add(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let sent = instances::parse(state, context, call, NAME, Ports::Listener)?;
    let balancer = claim(state, context, call)?;
    instances::merge(&mut balancer.backends, sent, true, context.rules.backends)?;
    answer(balancer)
}

/// Weights of backends that are there.
pub(super) fn set(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let sent = instances::parse(state, context, call, NAME, Ports::Listener)?;
    let balancer = claim(state, context, call)?;
    if let Some(missing) = sent
        .iter()
        .find(|one| !balancer.backends.iter().any(|other| other.same_place(one)))
    {
        let message = format!("The backend server {} does not exist.", missing.server);
        return Err(Refusal::new(400, "InvalidBackendServers.NotFound", message));
    }
    instances::merge(&mut balancer.backends, sent, false, context.rules.backends)?;
    answer(balancer)
}

/// Backends that are absent are skipped, as at the vendor.
pub(super) fn remove(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let keys = instances::parse_keys(context, call, NAME, Ports::Listener)?;
    let balancer = claim(state, context, call)?;
    balancer
        .backends
        .retain(|backend| !keys.iter().any(|key| key.names(backend)));
    answer(balancer)
}
