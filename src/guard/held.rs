//! Why a new ban has to wait, and what the caps count.

use std::fmt;
use std::time::Duration;

use crate::api::Standing;
use crate::engine::Kind;

/// The annotation of the ConfigMap that releases a brake: the texts that its Event names, separated by commas.
pub const RELEASE: &str = "ops.yiiong.top/release-brake";

/// How soon a block that waits for an end of others asks again if it is not called before.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// So many blocks that wait to be called ask again within one minute.
const SPREAD: usize = 1000;

/// After so many minutes a block asks again at the latest.
const LONGEST: usize = 5;

/// The blocks that a cap is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// All.
    All,
    /// Those of a namespace.
    Namespace(String),
    /// Those of a source.
    Source(String),
    /// Those of an address family, at the gateway of the configured engine.
    Engine {
        /// The engine's name.
        name: &'static str,
        /// IPv6, not IPv4.
        ipv6: bool,
    },
}

/// A gateway that has as many targets of a family as it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// The engine's name.
    pub engine: &'static str,
    /// The family is IPv6, not IPv4.
    pub ipv6: bool,
    /// The targets that it takes.
    pub most: usize,
}

/// A new ban.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The namespace of the block.
    pub namespace: &'a str,
    /// See [`source_of`](super::source_of).
    pub source: &'a str,
    /// The gateway has no room for the ban.
    pub full: Option<Full>,
}

/// Why a new ban has to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// As many blocks of the scope are banned as may be at once.
    Active {
        /// The blocks that are counted.
        scope: Scope,
        /// The cap.
        most: usize,
    },
    /// As many bans of the scope were made within the last minute as may be.
    Rate {
        /// The bans that are counted.
        scope: Scope,
        /// The cap.
        most: usize,
        /// When there is room.
        room_in: Duration,
    },
    /// The brake holds all new bans.
    Braked {
        /// The bans within a minute that engaged it.
        most: usize,
        /// What releases it.
        id: String,
    },
}

/// A new ban that has to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The reason of the condition and the Event.
    pub reason: &'static str,
    /// What holds it, and what to change.
    pub message: String,
    /// When to ask again.
    pub retry_in: Duration,
    /// An earlier process may have made the ban, and ended before the status had it: it is lifted while it waits.
    pub may_stand: bool,
}

// === impl Scope ===

impl Scope {
    /// The blocks of a family at the gateway of an engine; `None`: there is no such engine.
    #[must_use]
    pub fn engine(name: &str, ipv6: bool) -> Option<Self> {
        let name = name.parse::<Kind>().ok()?.name();
        Some(Self::Engine { name, ipv6 })
    }

    /// For metrics: `all`, `namespace`, `source`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Namespace(_) => "namespace",
            Self::Source(_) => "source",
            Self::Engine { .. } => "engine",
        }
    }

    /// The key of the configuration with the cap `name` of this scope.
    fn key(&self, name: &str) -> String {
        match self {
            Self::All => name.to_owned(),
            Self::Namespace(of) => format!("limits.namespaces.{of}.{name}"),
            Self::Source(of) => format!("limits.sources.{of}.{name}"),
            Self::Engine { name: of, .. } => format!("the engine {of}"),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => formatter.write_str("in all"),
            Self::Namespace(name) => write!(formatter, "in namespace {name}"),
            Self::Source(name) => write!(formatter, "from source {name}"),
            Self::Engine { ipv6: true, .. } => formatter.write_str("of IPv6"),
            Self::Engine { ipv6: false, .. } => formatter.write_str("of IPv4"),
        }
    }
}

// === impl Full ===

impl Full {
    /// The gateway of `standing` takes no more than `most` targets; `None`: there is no such engine.
    #[must_use]
    pub fn of(standing: &Standing, most: usize) -> Option<Self> {
        let kind: Kind = standing.place.engine.parse().ok()?;
        Some(Self {
            engine: kind.name(),
            ipv6: standing.target.is_ipv6(),
            most,
        })
    }

    pub(super) fn scope(self) -> Scope {
        Scope::Engine {
            name: self.engine,
            ipv6: self.ipv6,
        }
    }
}

// === impl Ask ===

impl Ask<'_> {
    /// The scopes that the ban counts in.
    #[must_use]
    pub fn scopes(&self) -> Vec<Scope> {
        vec![
            Scope::All,
            Scope::Namespace(self.namespace.to_owned()),
            Scope::Source(self.source.to_owned()),
        ]
    }
}

// === impl Held ===

impl Held {
    /// The reason of the condition and the Event.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Active { .. } | Self::Rate { .. } => "Limited",
            Self::Braked { .. } => "Braked",
        }
    }

    /// For metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Active { .. } => "active",
            Self::Rate { .. } => "rate",
            Self::Braked { .. } => "brake",
        }
    }

    /// The scope of the cap.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        match self {
            Self::Active { scope, .. } | Self::Rate { scope, .. } => scope,
            Self::Braked { .. } => &Scope::All,
        }
    }

    /// When to ask again, as the `position`th of those that wait.
    #[must_use]
    pub fn retry_in(&self, position: usize) -> Duration {
        match self {
            // They are called, and ask by themselves only in case the call is lost: many ask more rarely.
            Self::Active { .. } | Self::Braked { .. } => {
                let minutes = 1 + (position / SPREAD).min(LONGEST - 1);
                ASK_AGAIN * u32::try_from(minutes).unwrap_or(1)
            }
            Self::Rate { most, room_in, .. } => {
                // Each minute has room for as many as the cap; those behind need not ask before.
                // But not for long: a call that is lost must not cost hours.
                let minutes = match position / (*most).max(1) {
                    near @ 0..=LONGEST => near,
                    far => far % LONGEST + 1,
                };
                let later = ASK_AGAIN.saturating_mul(u32::try_from(minutes).unwrap_or(u32::MAX));
                room_in.saturating_add(later).max(Duration::from_millis(1))
            }
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Active {
                scope: scope @ Scope::Engine { name, .. },
                most,
            } => write!(
                formatter,
                "the gateway of the engine {name} takes {most} targets {scope}, and blocks have as many there; it is banned when one of them ends, or lift blocks, or ban a range in place of its addresses"
            ),
            Self::Active { scope, most } => write!(
                formatter,
                "{} allows {most} banned at once {scope}, and all are; it is banned when one of them ends, or raise the key",
                scope.key("maxActiveBlocks")
            ),
            Self::Rate { scope, most, .. } => write!(
                formatter,
                "{} allows {most} a minute {scope}, and the last minute had as many; it is banned when there is room, or raise the key",
                scope.key("maxBansPerMinute")
            ),
            Self::Braked { most, id } => write!(
                formatter,
                "the brake holds all new bans, because there were more than {most} within a minute (brake.bansPerMinute); check their source, then set the annotation {RELEASE} of the ConfigMap to {id}, or raise bansPerMinute"
            ),
        }
    }
}
