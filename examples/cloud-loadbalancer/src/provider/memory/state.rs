//! The state of the cloud, and the rules of its changes. Nothing here waits.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::{Logged, Settings, address};
use crate::model::{
    Address, AddressType, Backend, Create, Group, GroupId, InstanceCharge, Internet, LbId,
    Listener, ListenerKey, ListenerSettings, LoadBalancer, Probe, Protocol, State as LbState, Tags,
    TrafficCharge,
};
use crate::provider::{Error, Kind, Token};

/// The time that the cloud remembers a token.
const TOKEN_LIFE: Duration = Duration::from_secs(24 * 3600);

/// A load balancer with its listeners and groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The load balancer.
    pub about: LoadBalancer,
    /// Its listeners.
    pub listeners: Vec<Listener>,
    /// Its groups.
    pub groups: Vec<Group>,
}

#[derive(Debug)]
struct Entry {
    is: Snapshot,
    created: Instant,
    /// The end of the present state, if it ends.
    until: Option<Instant>,
}

#[derive(Debug)]
struct Used {
    wanted: Create,
    id: LbId,
    at: Instant,
}

#[derive(Debug, Default)]
pub(super) struct State {
    balancers: BTreeMap<LbId, Entry>,
    tokens: HashMap<Token, Used>,
    numbers: u32,
    groups: u32,
    requests: u64,
    second: Option<(Instant, u32)>,
    pub(super) log: VecDeque<Logged>,
    pub(super) fail_deletion: bool,
    pub(super) refused: HashMap<&'static str, Error>,
    /// Instances that do not exist.
    pub(super) unknown: HashSet<String>,
}

// === impl State ===

impl State {
    /// Ends the states whose time is over.
    pub(super) fn advance(&mut self) {
        let now = Instant::now();
        self.balancers.retain(|_, entry| {
            if entry.until.is_none_or(|until| until > now) {
                return true;
            }
            entry.until = None;
            let deleted = entry.is.about.state == LbState::Deleting;
            entry.is.about.state = LbState::Active;
            !deleted
        });
        self.tokens.retain(|_, used| now - used.at < TOKEN_LIFE);
    }

    pub(super) fn next_request(&mut self) -> String {
        self.requests += 1;
        format!("req-{}", self.requests)
    }

    /// Refuses what faults and throttling refuse.
    pub(super) fn admit(&mut self, name: &str, settings: &Settings) -> Result<(), Error> {
        if let Some(limit) = settings.calls_per_second {
            let now = Instant::now();
            let second = self.second.get_or_insert((now, 0));
            if now - second.0 >= Duration::from_secs(1) {
                *second = (now, 0);
            }
            if second.1 >= limit {
                let message = "Request was denied due to user flow control";
                let error = Error::new(Kind::Throttled, "Throttling.User", message);
                return Err(error.with_retry_after(Duration::from_secs(1)));
            }
            second.1 += 1;
        }
        self.refused
            .get(name)
            .map_or(Ok(()), |error| Err(error.clone()))
    }

    pub(super) fn all(&mut self) -> Vec<Snapshot> {
        self.advance();
        self.balancers
            .values()
            .map(|entry| entry.is.clone())
            .collect()
    }

    pub(super) fn created(&self) -> usize {
        self.numbers as usize
    }

    pub(super) fn find(&self, tags: &Tags, settings: &Settings) -> Vec<LoadBalancer> {
        let now = Instant::now();
        let shown = self
            .balancers
            .values()
            .filter(|entry| now - entry.created >= settings.lag);
        let balancers = shown.map(|entry| &entry.is.about);
        let carries = |balancer: &&LoadBalancer| {
            tags.iter()
                .all(|(key, value)| balancer.tags.get(key) == Some(value))
        };
        balancers.filter(carries).cloned().collect()
    }

    pub(super) fn describe(&self, id: &LbId) -> Option<LoadBalancer> {
        self.balancers.get(id).map(|entry| entry.is.about.clone())
    }

    pub(super) fn create(
        &mut self,
        token: &Token,
        wanted: &Create,
        settings: &Settings,
    ) -> Result<LbId, Error> {
        let known = self.tokens.get(token);
        if let Some(used) = known.filter(|_| settings.abilities.tokens) {
            if used.wanted == *wanted {
                return Ok(used.id.clone());
            }
            let message = "The token was used with other parameters";
            return Err(Error::new(
                Kind::TokenReused,
                "IdempotentParameterMismatch",
                message,
            ));
        }
        if !settings.abilities.tokens {
            let mut named = self.balancers.values().map(|entry| &entry.is.about);
            let earlier = named.find(|one| {
                let mut identity = wanted.identity.iter();
                one.name == wanted.name
                    && identity.all(|(key, value)| one.tags.get(key) == Some(value))
            });
            if let Some(earlier) = earlier {
                return Ok(earlier.id.clone());
            }
        }
        self.check_name(&wanted.name, None, settings)?;
        if self.balancers.len() >= settings.balancers {
            let message = "The quota of load balancers is exhausted";
            return Err(Error::new(
                Kind::Quota,
                "QuotaExceeded.LoadBalancer",
                message,
            ));
        }
        self.numbers += 1;
        let id = LbId(format!("lb-{}", self.numbers));
        let first = match wanted.fixed.address_type {
            AddressType::Internet => settings.first_address,
            AddressType::Intranet => [10, 255, 0, 0].into(),
        };
        let about = LoadBalancer {
            id: id.clone(),
            name: wanted.name.clone(),
            state: LbState::Pending,
            address: Address::Ip(address(first, self.numbers)),
            fixed: wanted.fixed.clone(),
            internet: wanted.internet.unwrap_or(Internet {
                charge: TrafficCharge::PayByTraffic,
                bandwidth: 0,
            }),
            instance_charge: wanted.instance_charge.unwrap_or(InstanceCharge::PayByUse),
            spec: wanted
                .spec
                .clone()
                .unwrap_or_else(|| "slb.s1.small".to_owned()),
            delete_protection: false,
            modification_protection: false,
            tags: wanted.tags.clone(),
        };
        let is = Snapshot {
            about,
            listeners: Vec::new(),
            groups: Vec::new(),
        };
        let now = Instant::now();
        let entry = Entry {
            is,
            created: now,
            until: Some(now + settings.provisioning),
        };
        self.balancers.insert(id.clone(), entry);
        let used = Used {
            wanted: wanted.clone(),
            id: id.clone(),
            at: now,
        };
        self.tokens.insert(token.clone(), used);
        Ok(id)
    }

    pub(super) fn delete(&mut self, id: &LbId, settings: &Settings) -> Result<(), Error> {
        let fails = std::mem::take(&mut self.fail_deletion);
        let Some(entry) = self.balancers.get_mut(id) else {
            return Ok(());
        };
        match entry.is.about.state {
            LbState::Deleting => return Ok(()),
            LbState::Pending | LbState::Locked => return Err(refusing(&entry.is.about)),
            LbState::Active | LbState::Inactive => {}
        }
        if entry.is.about.delete_protection {
            let message = "The delete protection is on";
            let code = "OperationDenied.DeleteProtectionIsOn";
            return Err(Error::new(Kind::Protected, code, message));
        }
        entry.is.listeners.clear();
        if fails {
            let message = "The service is unavailable";
            return Err(Error::new(Kind::Unavailable, "ServiceUnavailable", message));
        }
        entry.is.groups.clear();
        entry.is.about.state = LbState::Deleting;
        entry.until = Some(Instant::now() + settings.provisioning);
        Ok(())
    }

    pub(super) fn check_name(
        &self,
        name: &str,
        own: Option<&LbId>,
        settings: &Settings,
    ) -> Result<(), Error> {
        let mut others = self.balancers.values().map(|entry| &entry.is.about);
        let taken = others.any(|other| other.name == name && Some(&other.id) != own);
        if settings.unique_names && taken {
            let message = format!("There is a load balancer with the name {name}");
            return Err(Error::new(
                Kind::Duplicate,
                "DuplicateLoadBalancerName",
                message,
            ));
        }
        Ok(())
    }

    /// The load balancer, in any state.
    pub(super) fn there(&mut self, id: &LbId) -> Result<&mut Snapshot, Error> {
        match self.balancers.get_mut(id) {
            Some(entry) => Ok(&mut entry.is),
            None => Err(missing("LoadBalancer", id)),
        }
    }

    /// The load balancer, if it accepts changes.
    pub(super) fn active(&mut self, id: &LbId) -> Result<&mut Snapshot, Error> {
        let balancer = self.there(id)?;
        match balancer.about.state {
            LbState::Active | LbState::Inactive => Ok(balancer),
            _ => Err(refusing(&balancer.about)),
        }
    }

    /// The load balancer, if it accepts changes of its attributes.
    pub(super) fn attribute(&mut self, id: &LbId) -> Result<&mut LoadBalancer, Error> {
        let balancer = &mut self.active(id)?.about;
        if balancer.modification_protection {
            let message = "The modification protection is on";
            let code = "OperationDenied.ModificationProtectionIsOn";
            return Err(Error::new(Kind::Protected, code, message));
        }
        Ok(balancer)
    }

    pub(super) fn create_group(&mut self, id: &LbId, name: &str) -> Result<GroupId, Error> {
        let group = GroupId(format!("group-{}", self.groups + 1));
        self.active(id)?.groups.push(Group {
            id: group.clone(),
            name: name.to_owned(),
            targets: None,
            backends: Vec::new(),
        });
        self.groups += 1;
        Ok(group)
    }

    pub(super) fn delete_group(&mut self, id: &LbId, group: &GroupId) -> Result<(), Error> {
        let balancer = self.active(id)?;
        let mut listeners = balancer.listeners.iter();
        if listeners.any(|listener| listener.settings.group == *group) {
            let message = format!("A listener forwards to {group}");
            return Err(Error::new(Kind::InUse, "RspoolVipExist", message));
        }
        balancer.groups.retain(|one| one.id != *group);
        Ok(())
    }

    pub(super) fn check_group(&mut self, id: &LbId, group: &GroupId) -> Result<(), Error> {
        let groups = &self.active(id)?.groups;
        if groups.iter().any(|one| one.id == *group) {
            Ok(())
        } else {
            Err(missing("Group", group))
        }
    }

    /// Refuses settings that a listener of this key cannot have.
    pub(super) fn check_listener(
        key: ListenerKey,
        wanted: &ListenerSettings,
        settings: &Settings,
    ) -> Result<(), Error> {
        let udp = key.protocol == Protocol::Udp;
        if udp != (wanted.health_check.probe == Probe::Udp) {
            let message = format!("{key} cannot have {:?}", wanted.health_check.probe);
            return Err(Error::new(Kind::Invalid, "InvalidHealthCheck", message));
        }
        let longest = (settings.abilities.longest_affinity)(key.protocol);
        if wanted.affinity > Some(longest) {
            let message = format!("The affinity is longer than {longest:?}");
            return Err(Error::new(Kind::Invalid, "InvalidAffinity", message));
        }
        Ok(())
    }

    pub(super) fn change_backends(
        &mut self,
        id: &LbId,
        group: &GroupId,
        backends: &[Backend],
        settings: &Settings,
        change: impl Fn(&mut Vec<Backend>, &Backend, Option<usize>),
    ) -> Result<(), Error> {
        if backends.len() > settings.backends_per_call {
            let message = format!("{} backends in one call", backends.len());
            let code = "InstanceBackendServerNumberOverLimit";
            return Err(Error::new(Kind::Quota, code, message));
        }
        let balancer = self.active(id)?;
        let Some(found) = balancer.groups.iter_mut().find(|one| one.id == *group) else {
            return Err(missing("Group", group));
        };
        for backend in backends {
            let at = found
                .backends
                .iter()
                .position(|one| one.key() == backend.key());
            change(&mut found.backends, backend, at);
        }
        Ok(())
    }

    pub(super) fn create_listener(
        &mut self,
        id: &LbId,
        key: ListenerKey,
        settings: &ListenerSettings,
    ) -> Result<(), Error> {
        self.check_group(id, &settings.group)?;
        let listeners = &mut self.active(id)?.listeners;
        let taken = |one: &Listener| {
            one.key.port == key.port && one.key.protocol.shares_ports_with(key.protocol)
        };
        if listeners.iter().any(taken) {
            let message = format!("There is a listener at port {}", key.port);
            return Err(Error::new(
                Kind::Duplicate,
                "ListenerAlreadyExists",
                message,
            ));
        }
        listeners.push(Listener {
            key,
            settings: settings.clone(),
            domains: BTreeMap::new(),
            running: false,
        });
        Ok(())
    }

    pub(super) fn listener(&mut self, id: &LbId, key: ListenerKey) -> Result<&mut Listener, Error> {
        let mut listeners = self.active(id)?.listeners.iter_mut();
        let found = listeners.find(|listener| listener.key == key);
        found.ok_or_else(|| missing("Listener", &key))
    }
}

fn missing(kind: &str, id: &dyn std::fmt::Display) -> Error {
    let code = format!("Invalid{kind}Id.NotFound");
    Error::new(Kind::NotFound, code, format!("There is no {kind} {id}"))
}

fn refusing(balancer: &LoadBalancer) -> Error {
    let kind = match balancer.state {
        LbState::Locked => Kind::Denied,
        _ => Kind::Busy,
    };
    let message = format!("The load balancer is {}", balancer.state);
    Error::new(kind, "IncorrectStatus.LoadBalancer", message)
}
