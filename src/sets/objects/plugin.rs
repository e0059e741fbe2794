//! The objects of each network plugin: the groups that hold the targets, and the policy that refuses them.

use serde_json::{Value, json};

use crate::target::Target;

/// The label of every object of an engine: its name.
pub(super) const LABEL: &str = "ops.yiiong.top/engine";

/// A kind at the API server, in the versions that may be served, the preferred one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServedKind {
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) versions: &'static [&'static str],
}

/// A network plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Plugin {
    /// `CiliumCIDRGroup` and `CiliumClusterwideNetworkPolicy`.
    Cilium,
    /// `GlobalNetworkSet` and `GlobalNetworkPolicy`.
    Calico,
}

/// An engine that keeps objects, as it is remembered after it is not configured any more. Displays as `cilium edge`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Keeper {
    /// Which objects.
    pub plugin: Plugin,
    /// The engine's name.
    pub name: String,
}

/// What an engine writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which objects.
    pub plugin: Plugin,
    /// The most targets in one object.
    pub shard: usize,
    /// The most targets at all.
    pub most: usize,
    /// Whether the engine keeps the policy too, or only the groups.
    pub policy: bool,
    /// Cilium: the labels of the endpoints that the policy protects; none: all.
    pub endpoints: Vec<(String, String)>,
    /// Calico: the selector of the host endpoints that the policy protects.
    pub selector: String,
    /// Calico: where the policy stands among others.
    pub order: i32,
}

// === impl Plugin ===

impl Plugin {
    /// Every plugin.
    pub const ALL: &[Self] = &[Self::Cilium, Self::Calico];

    /// The name, as the type of an engine.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cilium => "cilium",
            Self::Calico => "calico",
        }
    }

    /// The API groups and the resources of its groups and policies, for access rules.
    #[must_use]
    pub fn resources(self) -> (Vec<&'static str>, [&'static str; 2]) {
        let mut groups: Vec<&str> = [self.group(), self.policy()]
            .iter()
            .flat_map(|kind| kind.versions)
            .filter_map(|version| version.split('/').next())
            .collect();
        groups.sort_unstable();
        groups.dedup();
        (groups, [self.group().plural, self.policy().plural])
    }

    pub(super) fn group(self) -> ServedKind {
        match self {
            Self::Cilium => ServedKind {
                kind: "CiliumCIDRGroup",
                plural: "ciliumcidrgroups",
                versions: &["cilium.io/v2", "cilium.io/v2alpha1"],
            },
            Self::Calico => ServedKind {
                kind: "GlobalNetworkSet",
                plural: "globalnetworksets",
                versions: &["projectcalico.org/v3", "crd.projectcalico.org/v1"],
            },
        }
    }

    pub(super) fn policy(self) -> ServedKind {
        match self {
            Self::Cilium => ServedKind {
                kind: "CiliumClusterwideNetworkPolicy",
                plural: "ciliumclusterwidenetworkpolicies",
                versions: &["cilium.io/v2"],
            },
            Self::Calico => ServedKind {
                kind: "GlobalNetworkPolicy",
                plural: "globalnetworkpolicies",
                versions: &["projectcalico.org/v3", "crd.projectcalico.org/v1"],
            },
        }
    }

    /// The spec of a group.
    pub(super) fn group_spec<'a>(self, targets: impl Iterator<Item = &'a Target>) -> Value {
        // Both take ranges only: an address is one of length 32 or 128.
        let ranges: Vec<String> = targets.map(|target| target.net().to_string()).collect();
        match self {
            Self::Cilium => json!({ "externalCIDRs": ranges }),
            Self::Calico => json!({ "nets": ranges }),
        }
    }

    /// The targets in the spec of a group. What is not a range is left out: the plugin ignores it, and the next write
    /// removes it.
    pub(super) fn targets(self, spec: &Value) -> Vec<Target> {
        let field = match self {
            Self::Cilium => "externalCIDRs",
            Self::Calico => "nets",
        };
        let ranges = spec[field].as_array().into_iter().flatten();
        ranges
            .filter_map(|range| range.as_str()?.parse().ok())
            .collect()
    }

    /// Whether the API server kept what makes `policy` harmless to other traffic, as far as its answer shows.
    pub(super) fn check(self, answered: &Value) -> Result<(), String> {
        let open = &answered["spec"]["enableDefaultDeny"]["ingress"];
        if self == Self::Cilium && *open != json!(false) {
            return Err(
                "the API server drops enableDefaultDeny, so the policy would refuse all traffic: install Cilium 1.16 or later, or set policy: false and write a policy for the groups"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

// === impl Keeper ===

impl std::fmt::Display for Keeper {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {}", self.plugin.name(), self.name)
    }
}

impl Keeper {
    /// Reads what was displayed; `None`: this version has no such engine.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (plugin, name) = text.split_once(' ')?;
        let plugin = Plugin::ALL.iter().find(|it| it.name() == plugin)?;
        Some(Self {
            plugin: *plugin,
            name: name.to_owned(),
        })
    }
}

// === impl Settings ===

impl Settings {
    /// Those of an engine that is not configured any more: only its objects count.
    #[must_use]
    pub fn former(plugin: Plugin) -> Self {
        Self {
            plugin,
            shard: 1,
            most: 0,
            policy: true,
            endpoints: Vec::new(),
            selector: String::new(),
            order: 0,
        }
    }

    /// The spec of the policy of the engine `name` for the groups `groups`.
    pub(super) fn policy_spec(&self, name: &str, groups: &[String]) -> Value {
        match self.plugin {
            Plugin::Cilium => {
                let labels: serde_json::Map<String, Value> = self
                    .endpoints
                    .iter()
                    .map(|(label, value)| (label.clone(), json!(value)))
                    .collect();
                let selector = if labels.is_empty() {
                    json!({})
                } else {
                    json!({ "matchLabels": labels })
                };
                let groups: Vec<Value> = groups
                    .iter()
                    .map(|group| json!({ "cidrGroupRef": group }))
                    .collect();
                json!({
                    "description": "Refuses traffic from addresses that the IPBlock operator bans.",
                    "endpointSelector": selector,
                    // A policy with a section about ingress refuses everything else otherwise.
                    "enableDefaultDeny": {"ingress": false, "egress": false},
                    "ingressDeny": [{"fromCIDRSet": groups}],
                })
            }
            // Before DNAT, at host endpoints: the address of the client is still there, what is not refused goes on to the
            // other policies, and workloads have no other default because of it.
            Plugin::Calico => json!({
                "order": self.order,
                "selector": self.selector,
                "types": ["Ingress"],
                "preDNAT": true,
                "applyOnForward": true,
                "ingress": [{
                    "action": "Deny",
                    "source": {"selector": format!("{LABEL} == '{name}'")},
                }],
            }),
        }
    }
}
