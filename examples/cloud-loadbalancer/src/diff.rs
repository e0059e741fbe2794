//! The difference between the wanted load balancer and the one in the cloud: a pure function.
//!
//! The order of a plan: modification protection off, attributes, groups and their new backends, listeners, obsolete
//! backends, listeners and groups, protections on. So a listener never forwards to a group that does not have its
//! backends yet, and a group that goes has no listener.

use crate::desired::{Wanted, WantedPort};
use crate::model::{
    AddressType, Backend, Group, GroupId, Internet, IpVersion, Listener, ListenerKey,
    ListenerSettings, LoadBalancer, NewGroup, State,
};
use crate::plan::{Action, GroupRef, Notice, Plan};

/// The load balancer in the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its attributes.
    pub balancer: LoadBalancer,
    /// Its groups.
    pub groups: Vec<Group>,
    /// Its listeners; `None` if only backends are compared.
    pub listeners: Option<Vec<Listener>>,
}

/// The plan that brings `remote` to `wanted`, with at most `per_call` backends in a call.
///
/// A Service with problems gets its backends compared and nothing else, and not even them if the mistake is in what selects
/// them.
#[must_use]
pub fn diff(wanted: &Wanted, remote: &Remote, per_call: usize) -> Plan {
    let mut plan = Plan::default();
    let problems = wanted.problems.iter().cloned();
    plan.notices.extend(problems.map(Notice::Problem));
    let unsupported = wanted.unsupported.iter().cloned();
    plan.notices.extend(unsupported.map(Notice::Unsupported));
    if let state @ (State::Inactive | State::Locked) = remote.balancer.state {
        plan.notices.push(Notice::NotServing(state));
    }
    let listeners = remote.listeners.as_ref();
    let Some(listeners) = listeners.filter(|_| wanted.problems.is_empty()) else {
        for port in wanted.ports.iter().filter(|_| wanted.knows_backends()) {
            if let Some(group) = group_of(&remote.groups, port, &[]) {
                let changes = Changes::of(&group.backends, &port.backends);
                let group = GroupRef::Id(group.id.clone());
                changes.arrive(&group, per_call, &mut plan.actions);
                changes.leave(&group, per_call, &mut plan.actions);
            }
            notice_empty(port, &mut plan);
        }
        return plan;
    };
    attributes(wanted, &remote.balancer, &mut plan);
    ports(wanted, &remote.groups, listeners, per_call, &mut plan);
    protect(wanted, &remote.balancer, &mut plan);
    plan
}

/// The plan of the creation: everything, on a load balancer that has nothing yet.
#[must_use]
pub fn creation(wanted: &Wanted, fresh: &LoadBalancer, per_call: usize) -> Plan {
    let remote = Remote {
        balancer: fresh.clone(),
        groups: Vec::new(),
        listeners: Some(Vec::new()),
    };
    diff(wanted, &remote, per_call)
}

/// The plan that removes what `owner`'s Service has on a load balancer that stays: a reused one.
#[must_use]
pub fn removal(owner: &crate::identity::Owner, groups: &[Group], listeners: &[Listener]) -> Plan {
    let own = listeners
        .iter()
        .filter(|one| owner.named(&one.settings.name));
    let mut actions: Vec<_> = own.map(|one| Action::DeleteListener(one.key)).collect();
    let own = groups.iter().filter(|one| owner.named(&one.name));
    actions.extend(own.map(|one| Action::DeleteGroup(one.id.clone(), one.name.clone())));
    Plan {
        actions,
        notices: Vec::new(),
    }
}

fn attributes(wanted: &Wanted, remote: &LoadBalancer, plan: &mut Plan) {
    immutable(wanted, remote, plan);
    let mut set = |action: Option<Action>| plan.actions.extend(action);
    let charge = wanted
        .instance_charge
        .filter(|charge| *charge != remote.instance_charge);
    set(charge.map(Action::SetInstanceCharge));
    let internet = Internet {
        charge: wanted.traffic_charge.unwrap_or(remote.internet.charge),
        bandwidth: wanted.bandwidth.unwrap_or(remote.internet.bandwidth),
    };
    set((internet != remote.internet).then_some(Action::SetInternet(internet)));
    let spec = wanted.spec.clone().filter(|spec| *spec != remote.spec);
    set(spec.map(Action::SetSpec));
    let renamed = |name: &String| wanted.renames && *name != remote.name;
    let name = wanted.name.clone().filter(renamed);
    set(name.map(Action::SetName));
    let tags = wanted
        .tags
        .iter()
        .filter(|(key, value)| remote.tags.get(*key) != Some(value));
    let tags: crate::model::Tags = tags
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    set((!tags.is_empty()).then_some(Action::Tag(tags)));
}

/// Reports requested values of attributes that cannot change.
fn immutable(wanted: &Wanted, remote: &LoadBalancer, plan: &mut Plan) {
    let fixed = &remote.fixed;
    let mut compare = |field, is: Option<&str>, wanted: Option<&str>| {
        if let Some(wanted) = wanted.filter(|wanted| Some(*wanted) != is) {
            plan.notices.push(Notice::Immutable {
                field,
                is: is.unwrap_or("not set").to_owned(),
                wanted: wanted.to_owned(),
            });
        }
    };
    let name = wanted.name.as_deref().filter(|_| !wanted.renames);
    compare("name", Some(&remote.name), name);
    compare(
        "address-type",
        Some(fixed.address_type.as_str()),
        wanted.address_type.map(AddressType::as_str),
    );
    compare(
        "ip-version",
        Some(fixed.ip_version.as_str()),
        wanted.ip_version.map(IpVersion::as_str),
    );
    compare("subnet", fixed.subnet.as_deref(), wanted.subnet.as_deref());
    compare("zone", fixed.zone.as_deref(), wanted.zone.as_deref());
    let group = fixed.resource_group.as_deref();
    compare("resource-group", group, wanted.resource_group.as_deref());
}

/// Puts the changes of protections around the others.
fn protect(wanted: &Wanted, remote: &LoadBalancer, plan: &mut Plan) {
    let requested = wanted.modification_protection;
    let changes = plan.actions.iter().any(Action::is_attribute);
    // Of a reused load balancer the protection is only lifted if the Service says so.
    let lifts = remote.modification_protection
        && (requested == Some(false) || (changes && requested.is_some()));
    if lifts {
        plan.actions
            .insert(0, Action::SetModificationProtection(false));
    }
    let is = remote.modification_protection && !lifts;
    if requested == Some(true) && !is {
        plan.actions.push(Action::SetModificationProtection(true));
    }
    let requested = wanted.delete_protection;
    if let Some(requested) = requested.filter(|one| *one != remote.delete_protection) {
        plan.actions.push(Action::SetDeleteProtection(requested));
    }
}

/// The ports of `wanted` that have a listener of others, which is left alone.
pub(crate) fn taken(wanted: &Wanted, listeners: &[Listener]) -> Vec<ListenerKey> {
    let ports = wanted.ports.iter();
    let taken = ports.filter(|port| is_foreign(wanted, listener_at(listeners, port)));
    taken.map(|port| port.key).collect()
}

/// The listener at `port`.
fn listener_at<'a>(listeners: &'a [Listener], port: &WantedPort) -> Option<&'a Listener> {
    listeners.iter().find(|one| {
        one.key.port == port.key.port && one.key.protocol.shares_ports_with(port.key.protocol)
    })
}

/// Whether a listener is of others, and `wanted` does not take it over.
fn is_foreign(wanted: &Wanted, listener: Option<&Listener>) -> bool {
    let foreign = listener.is_some_and(|one| !wanted.owner.named(&one.settings.name));
    foreign && !wanted.override_listeners
}

fn ports(
    wanted: &Wanted,
    groups: &[Group],
    listeners: &[Listener],
    per_call: usize,
    plan: &mut Plan,
) {
    let owner = &wanted.owner;
    let mut later = Vec::new();
    let mut kept_groups: Vec<&GroupId> = Vec::new();
    let mut first = Vec::new();
    let mut changed = Vec::new();
    for port in &wanted.ports {
        let there = listener_at(listeners, port);
        if is_foreign(wanted, there) {
            plan.notices.push(Notice::Conflict(port.key));
            let own = groups.iter().filter(|one| one.name == port.settings.name);
            kept_groups.extend(own.map(|one| &one.id));
            continue;
        }
        let group = group_of(groups, port, listeners);
        let reference = match group {
            Some(group) => {
                kept_groups.push(&group.id);
                GroupRef::Id(group.id.clone())
            }
            None => {
                let name = port.settings.name.clone();
                first.push(Action::CreateGroup(NewGroup {
                    name: name.clone(),
                    protocol: port.key.protocol,
                    targets: port.targets,
                }));
                GroupRef::New(name)
            }
        };
        let backends = group.map_or(&[] as &[Backend], |group| &group.backends);
        let changes = Changes::of(backends, &port.backends);
        changes.arrive(&reference, per_call, &mut first);
        changes.leave(&reference, per_call, &mut later);
        listener(port, there, reference, &mut changed);
        notice_empty(port, plan);
    }
    let obsolete = |one: &&Listener| {
        owner.named(&one.settings.name)
            && !wanted.ports.iter().any(|port| {
                port.key.port == one.key.port
                    && port.key.protocol.shares_ports_with(one.key.protocol)
            })
    };
    let obsolete = listeners.iter().filter(obsolete);
    later.extend(obsolete.map(|one| Action::DeleteListener(one.key)));
    let kept = |one: &Group| kept_groups.contains(&&one.id);
    let obsolete = groups
        .iter()
        .filter(|one| owner.named(&one.name) && !kept(one));
    later.extend(obsolete.map(|one| Action::DeleteGroup(one.id.clone(), one.name.clone())));
    plan.actions.extend(first);
    plan.actions.extend(changed);
    plan.actions.extend(later);
}

/// The group with the name of `port` that takes its servers. Of several, which only a lost answer leaves, the one that a
/// listener uses, else the first.
fn group_of<'a>(
    groups: &'a [Group],
    port: &WantedPort,
    listeners: &[Listener],
) -> Option<&'a Group> {
    let fits = |group: &&Group| {
        let takes = group.targets.is_none_or(|targets| targets == port.targets);
        takes && group.name == port.settings.name
    };
    let named = || groups.iter().filter(fits);
    let used = |group: &&Group| listeners.iter().any(|one| one.settings.group == group.id);
    named()
        .find(used)
        .or_else(|| named().min_by(|one, other| one.id.cmp(&other.id)))
}

fn listener(
    port: &WantedPort,
    there: Option<&Listener>,
    group: GroupRef,
    actions: &mut Vec<Action>,
) {
    let key = port.key;
    let same = there.filter(|one| one.key == key);
    if let (Some(other), None) = (there, same) {
        actions.push(Action::DeleteListener(other.key));
    }
    let settings = |group: &GroupRef| {
        let mut settings = port.settings.clone();
        if let GroupRef::Id(id) = group {
            settings.group = id.clone();
        }
        settings
    };
    match same {
        None => {
            let settings = Box::new(settings(&group));
            actions.push(Action::CreateListener(key, settings, group));
        }
        Some(is) => {
            let settings = settings(&group);
            let fields = differing(&is.settings, &settings);
            if !fields.is_empty() {
                actions.push(Action::SetListener(key, Box::new(settings), group, fields));
            }
        }
    }
    for (domain, certificate) in &port.domains {
        let is = same.and_then(|is| is.domains.get(domain));
        if is != Some(certificate) {
            actions.push(Action::SetDomain(
                key,
                domain.clone(),
                Some(certificate.clone()),
            ));
        }
    }
    for domain in same.iter().flat_map(|is| is.domains.keys()) {
        if !port.domains.contains_key(domain) {
            actions.push(Action::SetDomain(key, domain.clone(), None));
        }
    }
    if !same.is_some_and(|is| is.running) {
        actions.push(Action::StartListener(key));
    }
}

/// The names of the settings that differ.
fn differing(is: &ListenerSettings, wanted: &ListenerSettings) -> Vec<&'static str> {
    let all = [
        ("name", is.name != wanted.name),
        ("group", is.group != wanted.group),
        ("scheduler", is.scheduler != wanted.scheduler),
        ("affinity", is.affinity != wanted.affinity),
        ("sources", is.sources != wanted.sources),
        ("health check", is.health_check != wanted.health_check),
        ("drain", is.drain != wanted.drain),
        ("proxy protocol", is.proxy_protocol != wanted.proxy_protocol),
        ("certificate", is.certificate != wanted.certificate),
    ];
    all.into_iter()
        .filter_map(|(name, differs)| differs.then_some(name))
        .collect()
}

fn notice_empty(port: &WantedPort, plan: &mut Plan) {
    if port.backends.is_empty() {
        plan.notices.push(Notice::NoBackends(port.key));
    }
}

/// The changes of a group. A backend is its server and its port, so one whose port changes is another one: it is added
/// and the former is removed, and neither is in the changes of weights.
struct Changes {
    add: Vec<Backend>,
    weigh: Vec<Backend>,
    remove: Vec<Backend>,
    /// None of the former backends stays.
    replaces: bool,
}

// === impl Changes ===

impl Changes {
    fn of(is: &[Backend], wanted: &[Backend]) -> Self {
        let find = |all: &[Backend], key| all.iter().find(|one| one.key() == key).cloned();
        let mut changes = Self {
            add: Vec::new(),
            weigh: Vec::new(),
            remove: Vec::new(),
            replaces: false,
        };
        for backend in wanted {
            match find(is, backend.key()) {
                None => changes.add.push(backend.clone()),
                Some(is) if is.weight != backend.weight => changes.weigh.push(backend.clone()),
                Some(_) => {}
            }
        }
        let gone = is.iter().filter(|one| find(wanted, one.key()).is_none());
        changes.remove.extend(gone.cloned());
        changes.replaces = changes.remove.len() == is.len();
        changes
    }

    /// The new backends and weights.
    fn arrive(&self, group: &GroupRef, per_call: usize, actions: &mut Vec<Action>) {
        let per_call = per_call.max(1);
        let adds = self.add.chunks(per_call);
        actions.extend(
            adds.map(|chunk| Action::AddBackends(group.clone(), chunk.to_vec(), !self.replaces)),
        );
        let weights = self.weigh.chunks(per_call);
        actions.extend(weights.map(|chunk| Action::SetWeights(group.clone(), chunk.to_vec())));
    }

    /// The obsolete backends.
    fn leave(&self, group: &GroupRef, per_call: usize, actions: &mut Vec<Action>) {
        let chunks = self.remove.chunks(per_call.max(1));
        actions.extend(
            chunks
                .map(|chunk| Action::RemoveBackends(group.clone(), chunk.to_vec(), self.replaces)),
        );
    }
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
