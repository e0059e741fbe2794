//! What the configuration says about guard rails.

use std::collections::{BTreeMap, BTreeSet};

use super::Escalation;
use super::held::Scope;

/// All guard rails.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Caps.
    pub limits: Limits,
    /// What holds back a mass of bans or lifts.
    pub brake: Brake,
    /// The sources whose blocks are not banned, only shown.
    pub shadow: BTreeSet<String>,
    /// How repeated bans grow; `None`: each lasts as long as it was requested for.
    pub escalation: Option<Escalation>,
    /// Nodes and Services are protected. Default on.
    pub protect_cluster: bool,
}

/// Caps of one scope; `None`: no cap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// The number of blocks that are banned at once.
    pub active: Option<usize>,
    /// The number of new bans within a minute.
    pub per_minute: Option<usize>,
}

/// Caps of every scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Of all blocks.
    pub all: Limit,
    /// By namespace; [`Limits::OTHERS`] is for each that is not named.
    pub namespaces: BTreeMap<String, Limit>,
    /// By source; [`Limits::OTHERS`] is for each that is not named.
    pub sources: BTreeMap<String, Limit>,
    /// Blocks without a source, or with the source `manual`, are not held by caps or the brake. They count.
    pub exempt_manual: bool,
}

/// When a mass of bans or lifts is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brake {
    /// New bans within a minute, beyond which all new bans are held; `None`: never.
    pub bans_per_minute: Option<usize>,
    /// An edit that would lift this part of the standing bans or more is held back from them; 0: never. Default 50.
    pub lift_percent: u8,
    /// Fewer bans than this are lifted, whatever their part is. Default 100.
    pub lift_least: usize,
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            brake: Brake::default(),
            shadow: BTreeSet::new(),
            escalation: None,
            protect_cluster: true,
        }
    }
}

impl Settings {
    /// Whether blocks of `source` are only shown.
    #[must_use]
    pub fn is_shadow(&self, source: Option<&str>) -> bool {
        source.is_some_and(|source| self.shadow.contains(source))
    }
}

// === impl Limits ===

impl Limits {
    /// The name of every namespace or source that has no caps of its own.
    pub const OTHERS: &'static str = "*";

    /// The caps of a block, each with its scope.
    pub(super) fn of(&self, namespace: &str, source: &str) -> [(Scope, Limit); 3] {
        let find = |all: &BTreeMap<String, Limit>, name: &str| {
            let named = all.get(name).or_else(|| all.get(Self::OTHERS));
            named.copied().unwrap_or_default()
        };
        [
            (Scope::All, self.all),
            (
                Scope::Namespace(namespace.to_owned()),
                find(&self.namespaces, namespace),
            ),
            (
                Scope::Source(source.to_owned()),
                find(&self.sources, source),
            ),
        ]
    }
}

// === impl Brake ===

impl Default for Brake {
    fn default() -> Self {
        Self {
            bans_per_minute: None,
            lift_percent: 50,
            lift_least: 100,
        }
    }
}
