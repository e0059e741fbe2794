//! A cloud in memory, with the rules that make clouds hard. `ccm dev` and the tests use it.
//!
//! | rule | here |
//! |---|---|
//! | idempotency tokens | for a day a token answers with its first load balancer, though that be gone; other settings are [`Kind::TokenReused`](super::Kind::TokenReused) |
//! | names are unique, unless set otherwise | `DuplicateLoadBalancerName` |
//! | slow states | a new load balancer is pending, a deleted one is deleting; both refuse changes with [`Kind::Busy`](super::Kind::Busy) |
//! | [`Cloud::switch`] | one that is switched off accepts changes, a locked one refuses them and its deletion |
//! | eventual consistency | [`Provider::find`] shows a new load balancer late; reads by id are current |
//! | protections | of deletion, and of name, charges, size and bandwidth |
//! | quotas | backends in a call, load balancers of the account |
//! | throttling | calls in a second, with the time to wait |
//! | stopped listeners | a new listener does not serve before it is started |
//! | groups in use | are not deleted |
//! | probes | of UDP at UDP listeners only, and no other there |
//! | partial deletion | a deletion may remove the listeners and then fail: [`Cloud::fail_next_deletion`] |
//! | request ids | in every error and in [`Cloud::calls`] |
//!
//! An answer that gets lost is a matter of the network: see [`layer`](super::layer).

mod state;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;

use super::{Abilities, Answer, Error, Provider, Token};
use crate::model::{
    Backend, Create, Group, GroupId, InstanceCharge, Internet, LbId, Listener, ListenerKey,
    ListenerSettings, LoadBalancer, NewGroup, Tags,
};
pub use state::Snapshot;
use state::State;

/// The behaviour of the cloud.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The time of each call until it takes effect; with zero a call takes effect at its first poll.
    pub latency: Duration,
    /// The time that a load balancer is pending, and deleting.
    pub provisioning: Duration,
    /// The time until [`Provider::find`] shows a new load balancer.
    pub lag: Duration,
    /// Whether two load balancers may not have one name.
    pub unique_names: bool,
    /// The largest number of backends in a call.
    pub backends_per_call: usize,
    /// The largest number of load balancers.
    pub balancers: usize,
    /// The largest number of calls in a second; unset, no limit.
    pub calls_per_second: Option<u32>,
    /// What it can do. Only [`Abilities::longest_affinity`] and [`Abilities::tokens`] are enforced: without tokens a creation is
    /// known by its name and identity.
    pub abilities: &'static Abilities,
    /// The first public address: a load balancer with the number n has the n-th after it.
    pub first_address: Ipv4Addr,
}

/// The log keeps the last calls.
const LOGGED: usize = 10_000;

/// A call that reached the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The id of the request.
    pub request_id: String,
    /// The name of the method.
    pub name: &'static str,
    /// The load balancer, or the name of one to create.
    pub target: String,
    /// The code of the error; `None` for a success.
    pub error: Option<String>,
}

/// A cloud in memory. Clones are the same cloud.
#[derive(Clone, Debug)]
pub struct Cloud(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Settings,
    state: Mutex<State>,
}

// === impl Settings ===

impl Settings {
    /// 20 ms a call, 3 s for a load balancer, 10 s until a search shows it, unique names, 40 backends a call, 1,000 load
    /// balancers, no limit of calls, all abilities.
    pub const DEFAULT: Self = Self {
        latency: Duration::from_millis(20),
        provisioning: Duration::from_secs(3),
        lag: Duration::from_secs(10),
        unique_names: true,
        backends_per_call: 40,
        balancers: 1000,
        calls_per_second: None,
        abilities: &Abilities::ALL,
        first_address: Ipv4Addr::new(203, 0, 113, 0),
    };
}

impl Default for Settings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

// === impl Cloud ===

impl Cloud {
    /// An empty cloud.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(Inner {
            settings,
            state: Mutex::default(),
        }))
    }

    /// All load balancers, also those that a search does not show yet.
    #[must_use]
    pub fn all(&self) -> Vec<Snapshot> {
        self.0.state.lock().all()
    }

    /// The number of load balancers that were created since the start.
    #[must_use]
    pub fn created(&self) -> usize {
        self.0.state.lock().created()
    }

    /// The calls that reached the cloud, the last 10,000.
    #[must_use]
    pub fn calls(&self) -> Vec<Logged> {
        self.0.state.lock().log.iter().cloned().collect()
    }

    /// Forgets the calls.
    pub fn clear_calls(&self) {
        self.0.state.lock().log.clear();
    }

    /// The next deletion of a load balancer removes its listeners and fails.
    pub fn fail_next_deletion(&self) {
        self.0.state.lock().fail_deletion = true;
    }

    /// Switches a load balancer off or on, or locks it, as people and the cloud do.
    pub fn switch(&self, id: &LbId, state: crate::model::State) {
        if let Ok(balancer) = self.0.state.lock().there(id) {
            balancer.about.state = state;
        }
    }

    /// Refuses, or allows again, every call of this name with this error.
    pub fn refuse(&self, name: &'static str, error: Option<Error>) {
        let mut state = self.0.state.lock();
        match error {
            Some(error) => state.refused.insert(name, error),
            None => state.refused.remove(name),
        };
    }

    /// Refuses backends that are this instance: it is none of the cloud's.
    pub fn forget_instance(&self, id: &str) {
        self.0.state.lock().unknown.insert(id.to_owned());
    }

    fn run<'a, T: Send + 'a>(
        &'a self,
        name: &'static str,
        target: &'a str,
        effect: impl FnOnce(&mut State, &Settings) -> Result<T, Error> + Send + 'a,
    ) -> Answer<'a, T> {
        Box::pin(async move {
            if !self.0.settings.latency.is_zero() {
                sleep(self.0.settings.latency).await;
            }
            let mut state = self.0.state.lock();
            state.advance();
            let request_id = state.next_request();
            let settings = &self.0.settings;
            let admitted = state.admit(name, settings);
            let answer = admitted.and_then(|()| effect(&mut state, settings));
            let answer = answer.map_err(|error| error.with_request_id(request_id.clone()));
            if state.log.len() == LOGGED {
                state.log.pop_front();
            }
            state.log.push_back(Logged {
                request_id,
                name,
                target: target.to_owned(),
                error: answer.as_ref().err().map(|error| error.code.clone()),
            });
            answer
        })
    }
}

impl Default for Cloud {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

/// The `number`-th address after `first`.
fn address(first: Ipv4Addr, number: u32) -> IpAddr {
    Ipv4Addr::from(u32::from(first).wrapping_add(number)).into()
}

impl Provider for Cloud {
    fn visible_within(&self) -> Duration {
        // The lag, and the time that a call may be on its way.
        self.0.settings.lag + Duration::from_secs(30)
    }

    fn abilities(&self) -> &'static Abilities {
        self.0.settings.abilities
    }

    fn backends_per_call(&self) -> usize {
        self.0.settings.backends_per_call
    }

    fn find<'a>(&'a self, tags: &'a Tags) -> Answer<'a, Vec<LoadBalancer>> {
        self.run("find", "", |state, settings| Ok(state.find(tags, settings)))
    }

    fn describe<'a>(&'a self, id: &'a LbId) -> Answer<'a, Option<LoadBalancer>> {
        self.run("describe", &id.0, |state, _| Ok(state.describe(id)))
    }

    fn create<'a>(&'a self, token: &'a Token, wanted: &'a Create) -> Answer<'a, LbId> {
        self.run("create", &wanted.name, |state, settings| {
            state.create(token, wanted, settings)
        })
    }

    fn delete<'a>(&'a self, id: &'a LbId) -> Answer<'a, ()> {
        self.run("delete", &id.0, |state, settings| {
            state.delete(id, settings)
        })
    }

    fn set_name<'a>(&'a self, id: &'a LbId, name: &'a str) -> Answer<'a, ()> {
        self.run("set_name", &id.0, |state, settings| {
            state.check_name(name, Some(id), settings)?;
            state.attribute(id)?.name = name.to_owned();
            Ok(())
        })
    }

    fn set_spec<'a>(&'a self, id: &'a LbId, spec: &'a str) -> Answer<'a, ()> {
        self.run("set_spec", &id.0, |state, _| {
            state.attribute(id)?.spec = spec.to_owned();
            Ok(())
        })
    }

    fn set_instance_charge<'a>(&'a self, id: &'a LbId, charge: InstanceCharge) -> Answer<'a, ()> {
        self.run("set_instance_charge", &id.0, move |state, _| {
            state.attribute(id)?.instance_charge = charge;
            Ok(())
        })
    }

    fn set_internet<'a>(&'a self, id: &'a LbId, internet: Internet) -> Answer<'a, ()> {
        self.run("set_internet", &id.0, move |state, _| {
            state.attribute(id)?.internet = internet;
            Ok(())
        })
    }

    fn set_delete_protection<'a>(&'a self, id: &'a LbId, on: bool) -> Answer<'a, ()> {
        self.run("set_delete_protection", &id.0, move |state, _| {
            state.active(id)?.about.delete_protection = on;
            Ok(())
        })
    }

    fn set_modification_protection<'a>(&'a self, id: &'a LbId, on: bool) -> Answer<'a, ()> {
        self.run("set_modification_protection", &id.0, move |state, _| {
            state.active(id)?.about.modification_protection = on;
            Ok(())
        })
    }

    fn tag<'a>(&'a self, id: &'a LbId, tags: &'a Tags) -> Answer<'a, ()> {
        self.run("tag", &id.0, |state, _| {
            let all = &mut state.there(id)?.about.tags;
            all.extend(tags.iter().map(|(key, value)| (key.clone(), value.clone())));
            Ok(())
        })
    }

    fn untag<'a>(&'a self, id: &'a LbId, keys: &'a [String]) -> Answer<'a, ()> {
        self.run("untag", &id.0, |state, _| {
            let all = &mut state.there(id)?.about.tags;
            all.retain(|key, _| !keys.contains(key));
            Ok(())
        })
    }

    fn groups<'a>(&'a self, id: &'a LbId) -> Answer<'a, Vec<Group>> {
        self.run("groups", &id.0, |state, _| {
            Ok(state.there(id)?.groups.clone())
        })
    }

    fn create_group<'a>(&'a self, id: &'a LbId, group: &'a NewGroup) -> Answer<'a, GroupId> {
        self.run("create_group", &id.0, |state, _| {
            state.create_group(id, &group.name)
        })
    }

    fn delete_group<'a>(&'a self, id: &'a LbId, group: &'a GroupId) -> Answer<'a, ()> {
        self.run("delete_group", &id.0, |state, _| {
            state.delete_group(id, group)
        })
    }

    fn add_backends<'a>(
        &'a self,
        id: &'a LbId,
        group: &'a GroupId,
        backends: &'a [Backend],
    ) -> Answer<'a, ()> {
        self.run("add_backends", &id.0, |state, settings| {
            let unknown = |one: &&Backend| matches!(&one.server, crate::model::Server::Instance(id) if state.unknown.contains(id));
            if let Some(unknown) = backends.iter().find(unknown) {
                let message = format!("there is no instance {unknown}");
                return Err(Error::new(super::Kind::Invalid, "ObtainIpFail", message));
            }
            state.change_backends(id, group, backends, settings, |all, backend, at| {
                if at.is_none() {
                    all.push(backend.clone());
                }
            })
        })
    }

    fn remove_backends<'a>(
        &'a self,
        id: &'a LbId,
        group: &'a GroupId,
        backends: &'a [Backend],
    ) -> Answer<'a, ()> {
        self.run("remove_backends", &id.0, |state, settings| {
            state.change_backends(id, group, backends, settings, |all, _, at| {
                if let Some(at) = at {
                    all.remove(at);
                }
            })
        })
    }

    fn set_weights<'a>(
        &'a self,
        id: &'a LbId,
        group: &'a GroupId,
        backends: &'a [Backend],
    ) -> Answer<'a, ()> {
        self.run("set_weights", &id.0, |state, settings| {
            state.change_backends(id, group, backends, settings, |all, backend, at| {
                if let Some(at) = at {
                    all[at].weight = backend.weight;
                }
            })
        })
    }

    fn listeners<'a>(&'a self, id: &'a LbId) -> Answer<'a, Vec<Listener>> {
        self.run("listeners", &id.0, |state, _| {
            Ok(state.there(id)?.listeners.clone())
        })
    }

    fn create_listener<'a>(
        &'a self,
        id: &'a LbId,
        key: ListenerKey,
        settings: &'a ListenerSettings,
    ) -> Answer<'a, ()> {
        self.run("create_listener", &id.0, move |state, cloud| {
            State::check_listener(key, settings, cloud)?;
            state.create_listener(id, key, settings)
        })
    }

    fn set_listener<'a>(
        &'a self,
        id: &'a LbId,
        key: ListenerKey,
        settings: &'a ListenerSettings,
    ) -> Answer<'a, ()> {
        self.run("set_listener", &id.0, move |state, cloud| {
            State::check_listener(key, settings, cloud)?;
            state.check_group(id, &settings.group)?;
            state.listener(id, key)?.settings = settings.clone();
            Ok(())
        })
    }

    fn start_listener<'a>(&'a self, id: &'a LbId, key: ListenerKey) -> Answer<'a, ()> {
        self.run("start_listener", &id.0, move |state, _| {
            state.listener(id, key)?.running = true;
            Ok(())
        })
    }

    fn delete_listener<'a>(&'a self, id: &'a LbId, key: ListenerKey) -> Answer<'a, ()> {
        self.run("delete_listener", &id.0, move |state, _| {
            let listeners = &mut state.active(id)?.listeners;
            listeners.retain(|listener| listener.key != key);
            Ok(())
        })
    }

    fn set_domain<'a>(
        &'a self,
        id: &'a LbId,
        key: ListenerKey,
        domain: &'a str,
        certificate: Option<&'a str>,
    ) -> Answer<'a, ()> {
        self.run("set_domain", &id.0, move |state, _| {
            let domains = &mut state.listener(id, key)?.domains;
            match certificate {
                Some(certificate) => domains.insert(domain.to_owned(), certificate.to_owned()),
                None => domains.remove(domain),
            };
            Ok(())
        })
    }
}
