//! The provider of a second wire protocol: the Query API of Elastic Load Balancing, version 2015-12-01, for network load
//! balancers.
//!
//! This cloud differs from the first one in its ideas, and [`ABILITIES`] declares the differences:
//!
//! | idea | here |
//! |---|---|
//! | tokens | none. A creation first searches the name, which is a function of cluster and uid, and its tags; the controller deletes what a late creation makes too many |
//! | address | a host name |
//! | id | the end of the ARN: `net.NAME.HEX` |
//! | groups | target groups of the account, for one kind of servers, found by the beginning of their names and by their tags |
//! | settings of a listener | health check, draining, affinity and PROXY protocol are those of its target group |
//! | weights, sizes, charges, bandwidths, modification protection | none |
//! | states of listeners | none: a listener serves from its creation on |
//! | HTTPS | a TLS listener with one certificate; requests are not read |
//! | health checks of UDP ports | HTTP at `/healthz` of kube-proxy, port 10256, unless the Service names a port |
//!
//! A deletion removes listeners, then target groups, then the load balancer: with the load balancer gone, nothing would lead to
//! the rest. The cloud may need a moment to notice that a target group has no listener any more; the deletion then fails with
//! [`Kind::InUse`] and goes on at the next attempt.
//!
//! The account in ARNs is not known at the start. The first answer with a load balancer shows it; an account without load
//! balancers has none to describe.

mod balancers;
mod groups;
mod keys;
mod listeners;
mod names;
mod options;
mod query;
mod signature;
mod wire;
mod xml;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reeve_clock::Clock;

pub use keys::{Keys, Source};
pub use options::Options;

use super::{Abilities, Answer, Error, Kind, Lack, Provider, Token, Turns};
use crate::model::{
    Backend, Create, Group, GroupId, HealthCheck, InstanceCharge, Internet, LbId, Listener,
    ListenerKey, ListenerSettings, LoadBalancer, NewGroup, Probe, Protocol, Tags,
};
use query::{Call, Client};

/// What this cloud can do.
pub const ABILITIES: Abilities = Abilities {
    tokens: false,
    default_name: names::balancer,
    renames: false,
    protocols: &[Protocol::Tcp, Protocol::Udp, Protocol::Https],
    sources: false,
    ipv6_sources: false,
    udp_checks: false,
    weights: false,
    longest_affinity: Abilities::ALL.longest_affinity,
    affinity: Some(listeners::AFFINITY),
    health_check,
    drains: Abilities::ALL.drains,
    proxy_protocol: Abilities::ALL.proxy_protocol,
    lacks: &[
        lack("zone", "the subnets select the zones"),
        lack("resource-group", "there are no resource groups"),
        lack("spec", "load balancers have no size"),
        lack("instance-charge", "load balancers are charged by use"),
        lack("traffic-charge", "traffic is charged by use"),
        lack("bandwidth", "there is no limit to set"),
        lack(
            "modification-protection",
            "there is no protection of attributes",
        ),
        lack("scheduler", "connections are spread by a hash"),
        lack(
            "domain-certificates",
            "the provider sets one certificate a listener",
        ),
        lack("ip-mode", "the address is a host name"),
    ],
};

/// The most backends that one call may name.
const BACKENDS_PER_CALL: usize = 100;
/// The most load balancers, and target groups, of a page.
const PAGE: u16 = 400;
/// The most resources whose tags one call may ask for.
const TAGS_PER_CALL: usize = 20;
/// The most pages of a list. An account has far fewer, and a cloud that repeats its marker does not keep a worker.
const MOST_PAGES: usize = 1000;

/// Where load balancers are made.
#[derive(Clone, Debug)]
pub struct Place {
    /// The address of the API.
    pub endpoint: String,
    /// The region.
    pub region: String,
    /// The private network of the target groups.
    pub vpc: String,
    /// The subnets of a load balancer whose Service names none.
    pub subnets: Vec<String>,
}

/// The cloud behind an endpoint.
#[derive(Debug)]
pub struct Elbv2 {
    client: Client,
    vpc: String,
    subnets: Vec<String>,
    visible_within: Duration,
    page: u16,
    /// The beginning of all ARNs, once it is known.
    account: OnceLock<String>,
}

const fn lack(annotation: &'static str, reason: &'static str) -> Lack {
    Lack { annotation, reason }
}

/// The next health check that the cloud accepts: 5 to 300 s apart, 2 to 120 s long, and a check ends before the next begins.
fn health_check(wanted: &HealthCheck) -> HealthCheck {
    let seconds = Duration::from_secs;
    let timeout = wanted.timeout.clamp(seconds(2), seconds(120));
    // The port of kube-proxy is the one without another.
    let proxy = wanted.probe == Probe::Udp && wanted.port == Some(listeners::PROXY_PORT);
    HealthCheck {
        port: wanted.port.filter(|_| !proxy),
        timeout,
        interval: wanted.interval.clamp(seconds(5), seconds(300)).max(timeout),
        healthy: wanted.healthy.clamp(2, 10),
        unhealthy: wanted.unhealthy.clamp(2, 10),
        ..wanted.clone()
    }
}

/// The absence of what was to be deleted is success.
fn gone(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(error) if error.kind == Kind::NotFound => Ok(()),
        result => result,
    }
}

/// The absence of what was asked for.
fn present<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

// === impl Elbv2 ===

impl Elbv2 {
    /// The cloud at `place`, with keys from `keys`. It trusts the authorities of the machine, or only those of the PEM text
    /// `authorities`. `visible_within`: see [`Provider::visible_within`]; it covers the time-out of a call (10 s) and the lag of
    /// searches.
    ///
    /// # Errors
    /// When the endpoint is not a URL of HTTP or HTTPS, the authorities cannot be read, or no HTTP client can be made.
    pub fn new(
        place: Place,
        keys: Source,
        authorities: Option<&[u8]>,
        visible_within: Duration,
        clock: Clock,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let Place {
            endpoint,
            region,
            vpc,
            subnets,
        } = place;
        Ok(Self {
            client: Client::new(&endpoint, &region, keys, authorities, clock)?,
            vpc,
            subnets,
            visible_within,
            page: PAGE,
            account: OnceLock::new(),
        })
    }

    /// Asks for at most `page` load balancers at once, 1 to 400. Default: 400.
    #[must_use]
    pub fn page(mut self, page: u16) -> Self {
        self.page = page.clamp(1, PAGE);
        self
    }

    /// All items of a list that comes in pages. The size of a page is set for lists of the whole account only.
    async fn pages<T>(
        &self,
        call: Call,
        list: &str,
        read: impl Fn(xml::Element<'_>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        let mut marker = String::new();
        for _ in 0..MOST_PAGES {
            let mut page = call.clone();
            if call.is_plain() {
                page = page.with("PageSize", self.page);
            }
            if !marker.is_empty() {
                page = page.with("Marker", &marker);
            }
            let (items, next) = self
                .client
                .call(page, |result| {
                    let items: Result<Vec<T>, Error> = result.members(list).map(&read).collect();
                    Ok((items?, result.text("NextMarker").to_owned()))
                })
                .await?;
            all.extend(items);
            if next.is_empty() {
                return Ok(all);
            }
            marker = next;
        }
        let reason = format!("it has more than {MOST_PAGES} pages");
        Err(wire::unreadable("list", reason))
    }

    /// The tags of resources, by ARN. One that is gone has none.
    async fn tags<'a>(
        &self,
        arns: impl IntoIterator<Item = &'a str>,
    ) -> Result<HashMap<String, Tags>, Error> {
        let arns: Vec<&str> = arns.into_iter().collect();
        let mut all = HashMap::new();
        for some in arns.chunks(TAGS_PER_CALL) {
            match present(self.some_tags(some).await)? {
                Some(tags) => all.extend(tags),
                // One of them is gone: the call does not say which.
                None => {
                    for one in some {
                        let tags = present(self.some_tags(std::slice::from_ref(one)).await)?;
                        all.extend(tags.into_iter().flatten());
                    }
                }
            }
        }
        Ok(all)
    }

    async fn some_tags(&self, arns: &[&str]) -> Result<Vec<(String, Tags)>, Error> {
        let call = Call::new("DescribeTags").with_all("ResourceArns", arns);
        let read = |result: xml::Element<'_>| {
            let members = result.members("TagDescriptions");
            let read = members.map(|one| {
                let arn = one.needed("ResourceArn")?.to_owned();
                Ok((arn, wire::pairs(one, "Tags")?))
            });
            read.collect()
        };
        self.client.call(call, read).await
    }
}

impl Provider for Elbv2 {
    fn take_turns(&self, turns: Arc<dyn Turns>) -> bool {
        self.client.take_turns(turns);
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
        Box::pin(self.describe_one(id))
    }

    fn create<'a>(&'a self, _: &'a Token, wanted: &'a Create) -> Answer<'a, LbId> {
        Box::pin(self.create_one(wanted))
    }

    fn delete<'a>(&'a self, id: &'a LbId) -> Answer<'a, ()> {
        Box::pin(self.delete_all(id))
    }

    fn set_name<'a>(&'a self, _: &'a LbId, _: &'a str) -> Answer<'a, ()> {
        Box::pin(async { Err(wire::unsupported("a change of the name")) })
    }

    fn set_spec<'a>(&'a self, _: &'a LbId, _: &'a str) -> Answer<'a, ()> {
        Box::pin(async { Err(wire::unsupported("a size")) })
    }

    fn set_instance_charge<'a>(&'a self, _: &'a LbId, _: InstanceCharge) -> Answer<'a, ()> {
        Box::pin(async { Err(wire::unsupported("a choice of the charge")) })
    }

    fn set_internet<'a>(&'a self, _: &'a LbId, _: Internet) -> Answer<'a, ()> {
        Box::pin(async { Err(wire::unsupported("a bandwidth")) })
    }

    fn set_delete_protection<'a>(&'a self, id: &'a LbId, on: bool) -> Answer<'a, ()> {
        Box::pin(self.protect(id, on))
    }

    fn set_modification_protection<'a>(&'a self, _: &'a LbId, _: bool) -> Answer<'a, ()> {
        Box::pin(async { Err(wire::unsupported("modification protection")) })
    }

    fn tag<'a>(&'a self, id: &'a LbId, tags: &'a Tags) -> Answer<'a, ()> {
        Box::pin(self.add_tags(id, tags))
    }

    fn untag<'a>(&'a self, id: &'a LbId, keys: &'a [String]) -> Answer<'a, ()> {
        Box::pin(self.remove_tags(id, keys))
    }

    fn groups<'a>(&'a self, id: &'a LbId) -> Answer<'a, Vec<Group>> {
        Box::pin(self.groups_of(id))
    }

    fn create_group<'a>(&'a self, id: &'a LbId, group: &'a NewGroup) -> Answer<'a, GroupId> {
        Box::pin(self.create_one_group(id, group))
    }

    fn delete_group<'a>(&'a self, _: &'a LbId, group: &'a GroupId) -> Answer<'a, ()> {
        Box::pin(self.delete_one_group(group))
    }

    fn add_backends<'a>(
        &'a self,
        _: &'a LbId,
        group: &'a GroupId,
        backends: &'a [Backend],
    ) -> Answer<'a, ()> {
        Box::pin(self.register(group, backends))
    }

    fn remove_backends<'a>(
        &'a self,
        _: &'a LbId,
        group: &'a GroupId,
        backends: &'a [Backend],
    ) -> Answer<'a, ()> {
        Box::pin(self.deregister(group, backends))
    }

    fn set_weights<'a>(&'a self, _: &'a LbId, _: &'a GroupId, _: &'a [Backend]) -> Answer<'a, ()> {
        Box::pin(async { Err(wire::unsupported("a weight")) })
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

    /// Every listener runs.
    fn start_listener<'a>(&'a self, _: &'a LbId, _: ListenerKey) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn delete_listener<'a>(&'a self, id: &'a LbId, key: ListenerKey) -> Answer<'a, ()> {
        Box::pin(self.delete_listeners_at(id, key))
    }

    fn leftovers(&self) -> Answer<'_, Vec<String>> {
        Box::pin(self.abandoned_groups())
    }

    fn delete_leftover<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        let group = GroupId(id.to_owned());
        Box::pin(async move { self.delete_one_group(&group).await })
    }

    fn set_domain<'a>(
        &'a self,
        _: &'a LbId,
        _: ListenerKey,
        _: &'a str,
        _: Option<&'a str>,
    ) -> Answer<'a, ()> {
        Box::pin(async { Err(wire::unsupported("a certificate of a further domain")) })
    }
}
