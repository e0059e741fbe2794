//! The kinds found by discovery, by group and version.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::error::Error;
use crate::kind::Kind;

/// The kinds found by discovery. A client and its clones share one.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(super) state: Mutex<State>,
    /// Held during discovery, so that concurrent misses cause one discovery.
    pub(super) discovering: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// By name; `None` for a group whose kinds were not requested yet.
    pub(super) groups: BTreeMap<String, Option<Group>>,
    /// The versions of the groups, where kinds are requested group by group.
    pub(super) legacy: BTreeMap<String, Vec<String>>,
    /// Number of discoveries.
    pub(super) discoveries: u64,
}

/// The versions of a group, the preferred one first, and the kinds of each.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) versions: Vec<(String, Vec<Kind>)>,
}

/// The target of a lookup.
#[derive(Clone, Debug)]
pub(super) enum Lookup<'a> {
    /// A kind, in this version or in the preferred one.
    Kind {
        kind: &'a str,
        version: Option<&'a str>,
    },
    /// A resource by its plural.
    Resource {
        plural: &'a str,
        version: Option<&'a str>,
    },
}

// === impl Lookup ===

impl Lookup<'_> {
    pub(super) fn version(&self) -> Option<&str> {
        match self {
            Self::Kind { version, .. } | Self::Resource { version, .. } => *version,
        }
    }
}

// === impl Known ===

impl Known {
    /// Drops what was found about the group.
    pub(crate) fn forget(&self, group: &str) {
        self.state.lock().groups.remove(group);
    }
}

// === impl State ===

impl State {
    /// Whether the group exists, and its kinds were not requested yet.
    pub(super) fn lacks(&self, group: &str) -> bool {
        matches!(self.groups.get(group), Some(None))
    }

    pub(super) fn find(&self, group: &str, wanted: &Lookup<'_>) -> Option<Kind> {
        let group = self.groups.get(group)?.as_ref()?;
        group.versions.iter().find_map(|(name, kinds)| {
            if wanted.version().is_some_and(|version| version != name) {
                return None;
            }
            let is_wanted = |kind: &&Kind| match wanted {
                Lookup::Kind { kind: wanted, .. } => kind.resource().kind == *wanted,
                Lookup::Resource { plural, .. } => kind.resource().plural == *plural,
            };
            kinds.iter().find(is_wanted).cloned()
        })
    }

    /// The error of a lookup, with the existing kinds.
    pub(super) fn no_match(&self, group: &str, wanted: &Lookup<'_>) -> Error {
        let name = match wanted {
            Lookup::Kind { kind: name, .. } | Lookup::Resource { plural: name, .. } => *name,
        };
        let place = match (group, wanted.version()) {
            ("", None) => "the core group".to_owned(),
            ("", Some(version)) => version.to_owned(),
            (group, None) => group.to_owned(),
            (group, Some(version)) => format!("{group}/{version}"),
        };
        let is_named = |kind: &Kind| {
            let resource = kind.resource();
            name.eq_ignore_ascii_case(&resource.kind) || name.eq_ignore_ascii_case(&resource.plural)
        };
        let all = || {
            let groups = self.groups.iter();
            groups.flat_map(|(name, group)| {
                let versions = group.iter().flat_map(|group| &group.versions);
                let kinds = versions.flat_map(|(_, kinds)| kinds);
                kinds.map(move |kind| (name.as_str(), kind))
            })
        };
        let mut there: Vec<String> = all()
            .filter(|(_, kind)| is_named(kind))
            .map(|(_, kind)| kind.to_string())
            .collect();
        let mut what = "there are of that name";
        if there.is_empty() {
            what = "the group has";
            let kinds = all().filter(|(found, _)| *found == group);
            there = kinds
                .map(|(_, kind)| kind.resource().kind.clone())
                .collect();
        }
        if there.is_empty() {
            what = "there are the groups";
            let named = self.groups.keys().filter(|name| !name.is_empty());
            there = named.cloned().collect();
        }
        there.sort_unstable();
        there.dedup();
        Error::NoMatch {
            wanted: name.to_owned(),
            place,
            found: format!("{what} {}", there.join(", ")),
        }
    }
}
