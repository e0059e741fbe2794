//! The rules of the cloud: [`Cloud::call`] is a function of state, time and call.
//!
//! * A call that is refused changes nothing.
//! * A creation with a client token is answered the same for 24 hours, and refused with other parameters.
//! * A load balancer is created at once and ready later: until then its edits are refused. Listeners and server groups can be
//!   busy for a while after each edit ([`Rules::settle`]).
//! * Lists and searches lag behind creations and tags ([`Rules::lag`]); a description by id does not.
//! * Quotas count per call and per object; objects in use and protected load balancers are not deleted.

mod access;
mod backends;
mod balancers;
mod certificates;
mod context;
mod domains;
mod groups;
mod instances;
mod listeners;
mod refusal;
mod rules;
mod settings;
mod state;
mod tags;
#[cfg(test)]
mod tests;
mod tokens;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::parameters::Parameters;

pub use refusal::Refusal;
pub use rules::Rules;
pub use settings::Protocol;
pub use state::{Backend, Balancer, Certificate, Domain, Group, Kind, Listener, PrivateKey, State};

use context::{Answered, Context, fields};
use rules::Bucket;

/// The version of the API.
pub const VERSION: &str = "2014-05-15";

/// A cloud: its rules, its state, and the calls that its throttle still grants.
#[derive(Debug)]
pub struct Cloud {
    rules: Rules,
    state: State,
    bucket: Bucket,
}

#[derive(Clone, Copy)]
enum Action {
    Read(fn(&State, Context<'_>, &Parameters) -> Answered),
    Write(fn(&mut State, Context<'_>, &Parameters) -> Answered),
}

fn action(name: &str) -> Option<Action> {
    use Action::{Read, Write};
    Some(match name {
        "CreateLoadBalancer" => Write(balancers::create),
        "DeleteLoadBalancer" => Write(balancers::delete),
        "DescribeLoadBalancers" => Read(balancers::list),
        "DescribeLoadBalancerAttribute" => Read(balancers::describe),
        "SetLoadBalancerName" => Write(balancers::set_name),
        "SetLoadBalancerStatus" => Write(balancers::set_status),
        "SetLoadBalancerDeleteProtection" => Write(balancers::set_delete_protection),
        "SetLoadBalancerModificationProtection" => Write(balancers::set_modification_protection),
        "ModifyLoadBalancerInstanceSpec" => Write(balancers::modify_spec),
        "ModifyLoadBalancerInternetSpec" => Write(balancers::modify_internet_spec),
        "ModifyLoadBalancerInstanceChargeType" => Write(balancers::modify_charge_type),
        "CreateLoadBalancerTCPListener"
        | "CreateLoadBalancerUDPListener"
        | "CreateLoadBalancerHTTPListener"
        | "CreateLoadBalancerHTTPSListener" => Write(listeners::create),
        "SetLoadBalancerTCPListenerAttribute"
        | "SetLoadBalancerUDPListenerAttribute"
        | "SetLoadBalancerHTTPListenerAttribute"
        | "SetLoadBalancerHTTPSListenerAttribute" => Write(listeners::set),
        "DescribeLoadBalancerTCPListenerAttribute"
        | "DescribeLoadBalancerUDPListenerAttribute"
        | "DescribeLoadBalancerHTTPListenerAttribute"
        | "DescribeLoadBalancerHTTPSListenerAttribute" => Read(listeners::describe),
        "DescribeLoadBalancerListeners" => Read(listeners::list),
        "StartLoadBalancerListener" => Write(listeners::start),
        "StopLoadBalancerListener" => Write(listeners::stop),
        "DeleteLoadBalancerListener" => Write(listeners::delete),
        "AddBackendServers" => Write(backends::add),
        "RemoveBackendServers" => Write(backends::remove),
        "SetBackendServers" => Write(backends::set),
        "CreateVServerGroup" => Write(groups::create),
        "DeleteVServerGroup" => Write(groups::delete),
        "DescribeVServerGroups" => Read(groups::list),
        "DescribeVServerGroupAttribute" => Read(groups::describe),
        "SetVServerGroupAttribute" => Write(groups::set),
        "AddVServerGroupBackendServers" => Write(groups::add),
        "RemoveVServerGroupBackendServers" => Write(groups::remove),
        "ModifyVServerGroupBackendServers" => Write(groups::modify),
        "UploadServerCertificate" => Write(certificates::upload),
        "DeleteServerCertificate" => Write(certificates::delete),
        "SetServerCertificateName" => Write(certificates::set_name),
        "DescribeServerCertificates" => Read(certificates::list),
        "CreateDomainExtension" => Write(domains::create),
        "DeleteDomainExtension" => Write(domains::delete),
        "SetDomainExtensionAttribute" => Write(domains::set),
        "DescribeDomainExtensions" => Read(domains::list),
        "TagResources" => Write(tags::tag),
        "UntagResources" => Write(tags::untag),
        "ListTagResources" => Read(tags::list),
        "CreateAccessControlList" => Write(access::create),
        "DeleteAccessControlList" => Write(access::delete),
        "SetAccessControlListAttribute" => Write(access::set),
        "AddAccessControlListEntry" => Write(access::add),
        "RemoveAccessControlListEntry" => Write(access::remove),
        "DescribeAccessControlListAttribute" => Read(access::describe),
        "DescribeAccessControlLists" => Read(access::list),
        _ => return None,
    })
}

// === impl Cloud ===

impl Cloud {
    /// A cloud with `state`, which may come from an earlier process.
    #[must_use]
    pub fn new(rules: Rules, state: State) -> Self {
        let bucket = Bucket::default();
        Self {
            rules,
            state,
            bucket,
        }
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Carries out a call at `now`, and returns the fields of its answer.
    ///
    /// # Errors
    /// The refusal, which is what the caller receives. The state has not changed then.
    pub fn call(
        &mut self,
        now: Timestamp,
        parameters: &Parameters,
    ) -> Result<Map<String, Value>, Refusal> {
        let name = parameters.required("Action")?;
        let action = action(name).ok_or_else(|| Refusal::unknown_action(name))?;
        self.bucket.take(&self.rules, now)?;
        let context = Context {
            rules: &self.rules,
            now,
            action: name,
        };
        match action {
            Action::Read(read) => read(&self.state, context, parameters),
            Action::Write(write) => {
                let mut next = self.state.clone();
                let answer = tokens::once(&mut next, context, parameters, write)?;
                self.state = next;
                Ok(answer)
            }
        }
    }

    /// Whether a call of `action` can change the state.
    #[must_use]
    pub fn writes(name: &str) -> bool {
        matches!(action(name), Some(Action::Write(_)))
    }

    /// Deletes the listeners of a load balancer and leaves the rest: a deletion that stopped halfway.
    pub fn delete_partially(&mut self, id: &str) {
        if let Some(balancer) = self.state.balancers.get_mut(id) {
            balancer.listeners.clear();
        }
    }

    /// Gives an instance an address, which its backends are reached at.
    pub fn set_instance(&mut self, id: &str, address: std::net::Ipv4Addr) {
        self.state.instances.insert(id.to_owned(), address);
    }

    /// The number of instances with an address.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.state.instances.len()
    }

    /// Puts an earlier state back, when the new one could not be stored.
    pub(crate) fn restore(&mut self, state: State) {
        self.state = state;
    }
}
