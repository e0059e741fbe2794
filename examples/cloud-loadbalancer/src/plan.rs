//! The ordered calls that bring a load balancer to the wanted state, and how they print.

use std::fmt;

use crate::annotations::Problem;
use crate::model::{
    Backend, GroupId, InstanceCharge, Internet, ListenerKey, ListenerSettings, NewGroup, Protocol,
    State, Tags,
};

/// A group: one that exists, or one that the plan creates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupRef {
    /// It exists.
    Id(GroupId),
    /// An earlier action creates it, with this name.
    New(String),
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the call of this name, see Provider")]
pub enum Action {
    SetModificationProtection(bool),
    SetName(String),
    SetInstanceCharge(InstanceCharge),
    SetInternet(Internet),
    SetSpec(String),
    Tag(Tags),
    CreateGroup(NewGroup),
    /// `true`: former backends of the group stay.
    AddBackends(GroupRef, Vec<Backend>, bool),
    SetWeights(GroupRef, Vec<Backend>),
    /// `true`: none of the former backends stays.
    RemoveBackends(GroupRef, Vec<Backend>, bool),
    DeleteGroup(GroupId, String),
    DeleteListener(ListenerKey),
    CreateListener(ListenerKey, Box<ListenerSettings>, GroupRef),
    SetListener(
        ListenerKey,
        Box<ListenerSettings>,
        GroupRef,
        Vec<&'static str>,
    ),
    SetDomain(ListenerKey, String, Option<String>),
    StartListener(ListenerKey),
    SetDeleteProtection(bool),
}

/// Something that the plan leaves as it is, and a person should see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A mistake in the Service.
    Problem(Problem),
    /// An attribute that cannot change.
    Immutable {
        /// The annotation.
        field: &'static str,
        /// The value in the cloud.
        is: String,
        /// The requested value.
        wanted: String,
    },
    /// A setting of the Service that has no effect in this cloud, with the reason.
    Unsupported(Problem),
    /// A listener of others at a port of the Service.
    Conflict(ListenerKey),
    /// A port without backends.
    NoBackends(ListenerKey),
    /// A load balancer that carries no traffic: [`State::Inactive`] or [`State::Locked`].
    NotServing(State),
}

/// The ordered actions and the notices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The actions in their order.
    pub actions: Vec<Action>,
    /// The notices.
    pub notices: Vec<Notice>,
}

// === impl GroupRef ===

impl fmt::Display for GroupRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::New(name) => write!(f, "{name}"),
        }
    }
}

// === impl Action ===

impl Action {
    /// The name of the call.
    #[must_use]
    pub fn call(&self) -> &'static str {
        match self {
            Self::SetModificationProtection(_) => "set_modification_protection",
            Self::SetName(_) => "set_name",
            Self::SetInstanceCharge(_) => "set_instance_charge",
            Self::SetInternet(_) => "set_internet",
            Self::SetSpec(_) => "set_spec",
            Self::Tag(_) => "tag",
            Self::CreateGroup(_) => "create_group",
            Self::AddBackends(..) => "add_backends",
            Self::SetWeights(..) => "set_weights",
            Self::RemoveBackends(..) => "remove_backends",
            Self::DeleteGroup(..) => "delete_group",
            Self::DeleteListener(_) => "delete_listener",
            Self::CreateListener(..) => "create_listener",
            Self::SetListener(..) => "set_listener",
            Self::SetDomain(..) => "set_domain",
            Self::StartListener(_) => "start_listener",
            Self::SetDeleteProtection(_) => "set_delete_protection",
        }
    }

    /// Whether it is one of the calls that [modification protection](crate::model::LoadBalancer) refuses.
    #[must_use]
    pub fn is_attribute(&self) -> bool {
        matches!(
            self,
            Self::SetName(_) | Self::SetInstanceCharge(_) | Self::SetInternet(_) | Self::SetSpec(_)
        )
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |backends: &[Backend]| {
            let texts: Vec<_> = backends.iter().map(Backend::to_string).collect();
            texts.join(" ")
        };
        match self {
            Self::SetModificationProtection(on) => {
                write!(f, "set modification protection {}", switch(*on))
            }
            Self::SetName(name) => write!(f, "set name {name}"),
            Self::SetInstanceCharge(charge) => write!(f, "set instance charge {charge}"),
            Self::SetInternet(internet) => write!(f, "set internet {}", internet_text(*internet)),
            Self::SetSpec(spec) => write!(f, "set spec {spec}"),
            Self::Tag(tags) => {
                let texts: Vec<_> = tags
                    .iter()
                    .map(|(key, value)| format!("{key}={value}"))
                    .collect();
                write!(f, "tag {}", texts.join(" "))
            }
            Self::CreateGroup(group) => write!(f, "create group {}", group.name),
            Self::AddBackends(group, backends, _) => {
                write!(f, "add to group {group}: {}", list(backends))
            }
            Self::SetWeights(group, backends) => {
                write!(f, "set weights in group {group}: {}", list(backends))
            }
            Self::RemoveBackends(group, backends, _) => {
                write!(f, "remove from group {group}: {}", list(backends))
            }
            Self::DeleteGroup(id, name) => write!(f, "delete group {id} ({name})"),
            Self::DeleteListener(key) => write!(f, "delete listener {key}"),
            Self::CreateListener(key, settings, group) => {
                write!(f, "create listener {key} to group {group}")?;
                if !settings.sources.is_empty() {
                    let texts: Vec<_> = settings.sources.iter().map(ToString::to_string).collect();
                    write!(f, " for {}", texts.join(" "))?;
                }
                Ok(())
            }
            Self::SetListener(key, _, _, fields) => {
                write!(f, "set listener {key}: {}", fields.join(", "))
            }
            Self::SetDomain(key, domain, Some(certificate)) => {
                write!(f, "set certificate of {domain} at {key}: {certificate}")
            }
            Self::SetDomain(key, domain, None) => {
                write!(f, "remove certificate of {domain} at {key}")
            }
            Self::StartListener(key) => write!(f, "start listener {key}"),
            Self::SetDeleteProtection(on) => write!(f, "set delete protection {}", switch(*on)),
        }
    }
}

fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn internet_text(internet: Internet) -> String {
    let charge = internet.charge;
    match internet.bandwidth {
        0 => charge.to_string(),
        bandwidth => format!("{charge} {bandwidth} Mbit/s"),
    }
}

// === impl Notice ===

impl Notice {
    /// The reason of its Event.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Problem(_) => "InvalidService",
            Self::Immutable { .. } => "ImmutableAttribute",
            Self::Unsupported(_) => "UnsupportedSetting",
            Self::Conflict(_) => "ListenerConflict",
            Self::NoBackends(_) => "UnAvailableLoadBalancer",
            Self::NotServing(_) => "LoadBalancerNotServing",
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Problem(problem) | Self::Unsupported(problem) => problem.fmt(f),
            Self::Immutable { field, is, wanted } => write!(
                f,
                "{field} is {is} and cannot change to {wanted}; create the Service again to change it"
            ),
            Self::Conflict(ListenerKey { port, protocol }) => {
                let space = if *protocol == Protocol::Udp {
                    "UDP"
                } else {
                    "TCP"
                };
                write!(
                    f,
                    "another listener has the {space} port {port}, which is skipped; the annotation \
                     lb.reeve.dev/override-listeners replaces it"
                )
            }
            Self::NoBackends(key) => write!(f, "there are no available backends for {key}"),
            Self::NotServing(State::Locked) => f.write_str(
                "the cloud has locked the load balancer, which refuses changes until the cause is mended",
            ),
            Self::NotServing(state) => write!(
                f,
                "the load balancer is {state} and carries no traffic; switch it on in the console"
            ),
        }
    }
}

// === impl Plan ===

impl Plan {
    /// Whether nothing has to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Whether a port is not served because it has a listener of others.
    #[must_use]
    pub fn has_conflict(&self) -> bool {
        let conflict = |notice: &Notice| matches!(notice, Notice::Conflict(_));
        self.notices.iter().any(conflict)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for notice in &self.notices {
            writeln!(f, "! {}: {notice}", notice.reason())?;
        }
        if self.actions.is_empty() {
            writeln!(f, "nothing to change")?;
        }
        for (number, action) in self.actions.iter().enumerate() {
            writeln!(f, "{:>3}. {action}", number + 1)?;
        }
        Ok(())
    }
}
