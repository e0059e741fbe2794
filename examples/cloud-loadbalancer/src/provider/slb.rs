//! The provider of a real wire protocol: Alibaba's RPC API for classic load balancers, version 2014-05-15.
//!
//! Nearly every method is one request. The exceptions: a search and the lists have pages; the groups of a load balancer are
//! described one by one; and sources are an access control list of their own, which has
//! exactly these sources before a listener uses it, and is deleted after the listener. The name of the list is made of load
//! balancer and listener, so a list whose creation was not answered is found again, and [`Provider::delete`] finds all of
//! them. Those that an interrupted call leaves without a listener are the [`Provider::leftovers`].
//!
//! What this API cannot express is refused as [`Kind::Invalid`]: HTTPS, IPv6, connection draining and the PROXY protocol at HTTP
//! listeners. An affinity is at most an hour at TCP and UDP listeners.

mod listener;
mod wire;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::RwLock;
use serde::Deserialize;
use slbd::client::{self, BoxError, Client};
use slbd::parameters::Parameters;

use super::{Abilities, Answer, Error, Kind, Provider, Token, Turns};
use crate::model::{
    AddressType, Backend, Create, Group, GroupId, InstanceCharge, Internet, IpVersion, LbId,
    Listener, ListenerKey, ListenerSettings, LoadBalancer, NewGroup, Protocol, Tags,
};

/// What this cloud can do. What else it has not is refused by the calls.
const ABILITIES: Abilities = Abilities {
    longest_affinity: |protocol| {
        Duration::from_secs(match protocol {
            Protocol::Tcp | Protocol::Udp => 3600,
            Protocol::Http | Protocol::Https => 86_400,
        })
    },
    protocols: &[Protocol::Tcp, Protocol::Udp, Protocol::Http],
    ipv6_sources: false,
    drains: |protocol| protocol != Protocol::Http,
    proxy_protocol: |protocol| protocol != Protocol::Http,
    ..Abilities::ALL
};

/// The most backends that one call may name.
const BACKENDS_PER_CALL: usize = 40;

/// The size that a load balancer gets when it is paid by its size again. The controller sets the wanted one.
const SMALLEST: &str = "slb.s1.small";

/// The cloud behind a [`Client`].
#[derive(Debug)]
pub struct Slb {
    client: Client,
    requests: Arc<Requests>,
    visible_within: Duration,
}

/// The turns of the requests, once there are any.
#[derive(Debug, Default)]
struct Requests(RwLock<Option<Arc<dyn Turns>>>);

/// Reads an access key, `ID=SECRET`, from a file such as a mounted Secret.
///
/// # Errors
/// When the file cannot be read or holds something else. The error does not show its text.
pub fn read_key(file: &Path) -> io::Result<(String, String)> {
    let named = |kind, text: &str| io::Error::new(kind, format!("{}: {text}", file.display()));
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| named(error.kind(), &error.to_string()))?;
    let key = text.trim().split_once('=');
    let key = key.filter(|(id, secret)| !id.is_empty() && !secret.is_empty());
    let (id, secret) = key.ok_or_else(|| {
        let text = "not an access key of the form ID=SECRET";
        named(io::ErrorKind::InvalidData, text)
    })?;
    Ok((id.to_owned(), secret.to_owned()))
}

// === impl Slb ===

impl Slb {
    /// The cloud behind `client`. `visible_within`: see [`Provider::visible_within`]; it covers the time-out of a call and the
    /// lag of searches.
    #[must_use]
    pub fn new(client: Client, visible_within: Duration) -> Self {
        let requests = Arc::<Requests>::default();
        Self {
            client: client.turns(Arc::<Requests>::clone(&requests)),
            requests,
            visible_within,
        }
    }

    async fn run(&self, call: Parameters) -> Result<(), Error> {
        self.client.run(call).await.map_err(wire::error)
    }

    async fn attributes(&self, id: &LbId) -> Result<Option<LoadBalancer>, Error> {
        match self.client.attributes(&id.0).await {
            Ok(attributes) => wire::balancer(attributes).map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(wire::error(error)),
        }
    }

    async fn find_all(&self, tags: &Tags) -> Result<Vec<LoadBalancer>, Error> {
        let mut search = Parameters::default();
        search.set_tags(
            tags.iter()
                .map(|(key, value)| (key.as_str(), value.as_str())),
        );
        let found = self.client.search(search).await.map_err(wire::error)?;
        found.into_iter().map(wire::balancer).collect()
    }

    async fn create_one(&self, token: &Token, wanted: &Create) -> Result<LbId, Error> {
        if wanted.fixed.ip_version != IpVersion::Ipv4 {
            return Err(wire::unsupported("IPv6"));
        }
        let mut call = Parameters::action("CreateLoadBalancer")
            .with("ClientToken", token)
            .with("LoadBalancerName", &wanted.name);
        let internet = wanted.fixed.address_type == AddressType::Internet;
        call.set(
            "AddressType",
            if internet { "internet" } else { "intranet" },
        );
        for (name, value) in [
            ("VSwitchId", &wanted.fixed.subnet),
            ("MasterZoneId", &wanted.fixed.zone),
            ("ResourceGroupId", &wanted.fixed.resource_group),
            ("LoadBalancerSpec", &wanted.spec),
        ] {
            if let Some(value) = value {
                call.set(name, value);
            }
        }
        if let Some(charge) = wanted.instance_charge {
            call.set("InstanceChargeType", wire::instance_charge(charge));
        }
        if let Some(internet) = wanted.internet {
            wire::set_internet(&mut call, internet);
        }
        call.set_tags(
            wanted
                .tags
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str())),
        );
        let created: client::Created = self.client.call(call).await.map_err(wire::error)?;
        Ok(LbId(created.load_balancer_id))
    }

    /// The access control lists go first: with the load balancer gone, no later call would look for them.
    async fn delete_all(&self, id: &LbId) -> Result<(), Error> {
        let Some(balancer) = self.attributes(id).await? else {
            return Ok(());
        };
        if balancer.delete_protection {
            let message = "the load balancer has deletion protection";
            return Err(Error::new(Kind::Protected, wire::PROTECTED, message));
        }
        self.delete_access_lists(id).await?;
        gone(self.run(on("DeleteLoadBalancer", id)).await)
    }

    async fn groups_of(&self, id: &LbId) -> Result<Vec<Group>, Error> {
        let summaries = self.client.groups(&id.0).await.map_err(wire::error)?;
        let mut groups = Vec::new();
        for summary in summaries {
            match self.client.group(&summary.id).await {
                Ok(group) => groups.push(wire::group(group)?),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(wire::error(error)),
            }
        }
        Ok(groups)
    }

    async fn create_one_group(&self, id: &LbId, name: &str) -> Result<GroupId, Error> {
        #[derive(Deserialize)]
        struct Made {
            #[serde(rename = "VServerGroupId")]
            id: String,
        }
        let call = on("CreateVServerGroup", id).with("VServerGroupName", name);
        let made: Made = self.client.call(call).await.map_err(wire::error)?;
        Ok(GroupId(made.id))
    }

    fn change_backends<'a>(
        &'a self,
        action: &'a str,
        group: &'a GroupId,
        backends: &'a [Backend],
    ) -> Answer<'a, ()> {
        let call = Parameters::action(action)
            .with("VServerGroupId", group)
            .with("BackendServers", wire::backends(backends));
        Box::pin(self.run(call))
    }
}

// === impl Requests ===

impl Requests {
    fn turns(&self) -> Option<Arc<dyn Turns>> {
        self.0.read().clone()
    }
}

impl client::Turns for Requests {
    fn take<'a>(&'a self, action: &'a str) -> BoxFuture<'a, Result<(), BoxError>> {
        async move {
            let reads = action.starts_with("Describe") || action.starts_with("List");
            match self.turns() {
                Some(turns) => Ok(turns.take(!reads).await?),
                None => Ok(()),
            }
        }
        .boxed()
    }

    fn ended(&self, error: Option<&client::Error>) {
        match self.turns() {
            Some(turns) if error.is_some_and(client::Error::is_throttled) => turns.throttled(None),
            Some(turns) => turns.accepted(),
            None => {}
        }
    }
}

/// A call about a load balancer.
fn on(action: &str, id: &LbId) -> Parameters {
    Parameters::action(action).with("LoadBalancerId", id)
}

fn resource(action: &str, id: &LbId) -> Parameters {
    Parameters::action(action)
        .with("ResourceType", "instance")
        .with("ResourceId.1", id)
}

/// The absence of what was to be deleted is success.
fn gone(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(error) if error.kind == Kind::NotFound => Ok(()),
        result => result,
    }
}

impl Provider for Slb {
    fn take_turns(&self, turns: Arc<dyn Turns>) -> bool {
        *self.requests.0.write() = Some(turns);
        true
    }

    fn visible_within(&self) -> Duration {
        self.visible_within
    }

    fn abilities(&self) -> &'static Abilities {
        &ABILITIES
    }

    fn backends_per_call(&self) -> usize {
        BACKENDS_PER_CALL
    }

    fn find<'a>(&'a self, tags: &'a Tags) -> Answer<'a, Vec<LoadBalancer>> {
        Box::pin(self.find_all(tags))
    }

    fn describe<'a>(&'a self, id: &'a LbId) -> Answer<'a, Option<LoadBalancer>> {
        Box::pin(self.attributes(id))
    }

    fn create<'a>(&'a self, token: &'a Token, wanted: &'a Create) -> Answer<'a, LbId> {
        Box::pin(self.create_one(token, wanted))
    }

    fn delete<'a>(&'a self, id: &'a LbId) -> Answer<'a, ()> {
        Box::pin(self.delete_all(id))
    }

    fn set_name<'a>(&'a self, id: &'a LbId, name: &'a str) -> Answer<'a, ()> {
        let call = on("SetLoadBalancerName", id).with("LoadBalancerName", name);
        Box::pin(self.run(call))
    }

    fn set_spec<'a>(&'a self, id: &'a LbId, spec: &'a str) -> Answer<'a, ()> {
        let call = on("ModifyLoadBalancerInstanceSpec", id).with("LoadBalancerSpec", spec);
        Box::pin(self.run(call))
    }

    fn set_instance_charge<'a>(&'a self, id: &'a LbId, charge: InstanceCharge) -> Answer<'a, ()> {
        let mut call = on("ModifyLoadBalancerInstanceChargeType", id)
            .with("InstanceChargeType", wire::instance_charge(charge));
        if charge == InstanceCharge::PayBySpec {
            call.set("LoadBalancerSpec", SMALLEST);
        }
        Box::pin(self.run(call))
    }

    fn set_internet<'a>(&'a self, id: &'a LbId, internet: Internet) -> Answer<'a, ()> {
        let mut call = on("ModifyLoadBalancerInternetSpec", id);
        wire::set_internet(&mut call, internet);
        Box::pin(self.run(call))
    }

    fn set_delete_protection<'a>(&'a self, id: &'a LbId, on: bool) -> Answer<'a, ()> {
        let call = self::on("SetLoadBalancerDeleteProtection", id);
        Box::pin(self.run(call.with("DeleteProtection", wire::switch(on))))
    }

    fn set_modification_protection<'a>(&'a self, id: &'a LbId, on: bool) -> Answer<'a, ()> {
        let status = wire::modification_protection(on);
        let call = self::on("SetLoadBalancerModificationProtection", id);
        Box::pin(self.run(call.with("ModificationProtectionStatus", status)))
    }

    fn tag<'a>(&'a self, id: &'a LbId, tags: &'a Tags) -> Answer<'a, ()> {
        let mut call = resource("TagResources", id);
        call.set_tags(
            tags.iter()
                .map(|(key, value)| (key.as_str(), value.as_str())),
        );
        Box::pin(self.run(call))
    }

    fn untag<'a>(&'a self, id: &'a LbId, keys: &'a [String]) -> Answer<'a, ()> {
        let mut call = resource("UntagResources", id);
        for (index, key) in keys.iter().enumerate() {
            call.set(&format!("TagKey.{}", index + 1), key);
        }
        Box::pin(self.run(call))
    }

    fn groups<'a>(&'a self, id: &'a LbId) -> Answer<'a, Vec<Group>> {
        Box::pin(self.groups_of(id))
    }

    fn create_group<'a>(&'a self, id: &'a LbId, group: &'a NewGroup) -> Answer<'a, GroupId> {
        Box::pin(self.create_one_group(id, &group.name))
    }

    fn delete_group<'a>(&'a self, _: &'a LbId, group: &'a GroupId) -> Answer<'a, ()> {
        let call = Parameters::action("DeleteVServerGroup").with("VServerGroupId", group);
        Box::pin(async move { gone(self.run(call).await) })
    }

    fn add_backends<'a>(
        &'a self,
        _: &'a LbId,
        group: &'a GroupId,
        backends: &'a [Backend],
    ) -> Answer<'a, ()> {
        self.change_backends("AddVServerGroupBackendServers", group, backends)
    }

    fn remove_backends<'a>(
        &'a self,
        _: &'a LbId,
        group: &'a GroupId,
        backends: &'a [Backend],
    ) -> Answer<'a, ()> {
        self.change_backends("RemoveVServerGroupBackendServers", group, backends)
    }

    fn set_weights<'a>(
        &'a self,
        _: &'a LbId,
        group: &'a GroupId,
        backends: &'a [Backend],
    ) -> Answer<'a, ()> {
        self.change_backends("SetVServerGroupAttribute", group, backends)
    }

    fn listeners<'a>(&'a self, id: &'a LbId) -> Answer<'a, Vec<Listener>> {
        Box::pin(self.listeners_of(id))
    }

    fn create_listener<'a>(
        &'a self,
        id: &'a LbId,
        key: ListenerKey,
        settings: &'a ListenerSettings,
    ) -> Answer<'a, ()> {
        Box::pin(self.create_one_listener(id, key, settings))
    }

    fn set_listener<'a>(
        &'a self,
        id: &'a LbId,
        key: ListenerKey,
        settings: &'a ListenerSettings,
    ) -> Answer<'a, ()> {
        Box::pin(self.set_one_listener(id, key, settings))
    }

    fn start_listener<'a>(&'a self, id: &'a LbId, key: ListenerKey) -> Answer<'a, ()> {
        Box::pin(self.run(listener::about("StartLoadBalancerListener", id, key)))
    }

    fn delete_listener<'a>(&'a self, id: &'a LbId, key: ListenerKey) -> Answer<'a, ()> {
        Box::pin(self.delete_one_listener(id, key))
    }

    fn leftovers(&self) -> Answer<'_, Vec<String>> {
        Box::pin(self.unused_lists())
    }

    fn delete_leftover<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        Box::pin(self.delete_unused_list(id))
    }

    fn set_domain<'a>(
        &'a self,
        _: &'a LbId,
        _: ListenerKey,
        _: &'a str,
        _: Option<&'a str>,
    ) -> Answer<'a, ()> {
        Box::pin(async { Err(wire::unsupported("a certificate")) })
    }
}
