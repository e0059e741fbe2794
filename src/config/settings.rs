//! A configuration, the options that go into it, and what changes between two.

use std::time::Duration;

use super::ChannelConfig;
use crate::api::Place;
use crate::engine::{Endpoint, Kind};
use crate::guard;
use crate::mounted::MountedFile;
use crate::policy::{Allowed, Policy};
use crate::prefix::Prefixes;
use crate::pulled::{Objects, Source};
use crate::sets;
use crate::trigger::{Definition, Repeat};

/// The name of the ConfigMap, as the original's.
pub const CONFIG_MAP: &str = "ipblock-operator-config";

/// A configuration that was read whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The engine and its gateway, or why there is none.
    pub engine: Result<EngineConfig, String>,
    /// The engines that follow the whole set of bans.
    pub engines: Vec<sets::Definition>,
    /// Allowlist, protected ranges, widest range.
    pub policy: Policy,
    /// The allowlist as configured: `policy` has the entries that did not end.
    pub allowlist: Prefixes<Allowed>,
    /// How long a ban lasts when its alert has no duration.
    pub default_duration: Duration,
    /// The longest ban; `None`: no limit.
    pub max_duration: Option<Duration>,
    /// How long a block that a trigger made is kept after its ban ended, for each time it was banned; `None`: always.
    pub retention: Option<Duration>,
    /// How long alerts leave an address alone after `spec.unblock`.
    pub unblock_grace: Duration,
    /// What an alert does to an active block.
    pub repeated_alert: Repeat,
    /// How often a standing ban is asserted again.
    pub resync_interval: Duration,
    /// The HTTP servers that make alerts into blocks.
    pub triggers: Vec<Definition>,
    /// Caps, brakes, shadow mode, escalation.
    pub guard: guard::Settings,
    /// The lists that are pulled.
    pub sources: Vec<Source>,
    /// Where notifications go.
    pub notify: Vec<ChannelConfig>,
    /// Oddities that are not errors, such as unknown keys; for the log.
    pub warnings: Vec<String>,
    /// Wrong parts that were left out, which only the first configuration of a takeover may have: see [`parse_first`](super::parse_first).
    pub dropped: Vec<String>,
    /// Gateways that were configured before: bans may be lifted there.
    pub former: Vec<Place>,
    /// Gateways that were configured before and are not called any more: their bans count as lifted.
    pub withdrawn: Vec<Place>,
}

/// An engine at a gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineConfig {
    /// Which engine.
    pub kind: Kind,
    /// Its gateway; `None` for an engine that needs none.
    pub endpoint: Option<Endpoint>,
    /// Both, as recorded in objects.
    pub place: Place,
    /// Until the connection stands. Default 2 s.
    pub connect_timeout: Duration,
    /// Until the answer is complete. Default 5 s.
    pub request_timeout: Duration,
    /// A file with a bearer token for the gateway.
    pub bearer_token_file: Option<MountedFile>,
    /// A file with the certificate authorities of the gateway.
    pub authority_file: Option<MountedFile>,
}

/// What a new configuration changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Every block has to be decided about again.
    pub blocks: bool,
    /// The engine has to be connected again.
    pub engine: bool,
    /// The triggers have to be served again.
    pub triggers: bool,
    /// The channel of notifications has to be connected again.
    pub notify: bool,
}

// === impl Config ===

impl Config {
    /// The engine and gateway as recorded in objects, or why there is none.
    ///
    /// # Errors
    /// The reason, as a sentence for a status.
    pub fn place(&self) -> Result<&Place, &str> {
        match &self.engine {
            Ok(engine) => Ok(&engine.place),
            Err(why) => Err(why),
        }
    }

    /// The sources that are kept as BlockLists, of which no configured engine enforces any. Those in shadow mode are not
    /// enforced anyway.
    pub fn unenforced_sources(&self) -> impl Iterator<Item = &str> {
        let sources = self.sources.iter().filter(move |source| {
            let listed = source.objects == Objects::Lists && self.engines.is_empty();
            listed && !self.guard.shadow.contains(&source.name)
        });
        sources.map(|source| source.name.as_str())
    }

    /// What `self` changes against `before`.
    #[must_use]
    pub fn changes(&self, before: &Self) -> Changes {
        let engine = self.engine != before.engine;
        let limits = self.default_duration != before.default_duration
            || self.max_duration != before.max_duration
            || self.unblock_grace != before.unblock_grace
            || self.repeated_alert != before.repeated_alert
            || self.guard != before.guard;
        Changes {
            blocks: engine
                || !self.policy.has_rules_of(&before.policy)
                || self.allowlist != before.allowlist
                || self.guard != before.guard
                || self.former != before.former
                || self.withdrawn != before.withdrawn
                || self.max_duration != before.max_duration
                || self.retention != before.retention
                || self.unblock_grace != before.unblock_grace
                || self.resync_interval != before.resync_interval
                || self.engines != before.engines,
            engine,
            // The place is written into the objects that triggers make.
            triggers: engine
                || limits
                || self.triggers != before.triggers
                || self.sources != before.sources,
            notify: self.notify != before.notify,
        }
    }
}

// === impl Changes ===

impl Changes {
    /// Everything is new: the first configuration.
    #[must_use]
    pub fn all() -> Self {
        Self {
            blocks: true,
            engine: true,
            triggers: true,
            notify: true,
        }
    }

    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
