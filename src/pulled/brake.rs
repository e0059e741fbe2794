//! The brake on the lifts of a source: a list that lost most of its entries is more often a fault than an intention.
//!
//! It has the bounds and the release of the brake on edits ([`crate::guard::brake`]), for each source by itself. While it
//! holds, bans that the list has no more stay until their own end; new entries are banned.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::guard::{Brake, brake};
use crate::target::Target;

/// The brakes of all sources.
#[derive(Debug, Default)]
pub(crate) struct Brakes(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    settings: Brake,
    /// The annotation that releases brakes.
    released: Option<String>,
    engaged: BTreeMap<String, Held>,
}

/// The lifts that a brake holds, as they were when it engaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    source: String,
    id: String,
    gone: usize,
    standing: usize,
}

// === impl Brakes ===

impl Brakes {
    /// The bounds, and the annotation that releases brakes.
    pub(crate) fn set(&self, settings: Brake, released: Option<String>) {
        let mut state = self.0.lock();
        (state.settings, state.released) = (settings, released);
    }

    /// Whether the lift of `gone`, out of `standing` bans of `source`, has to wait. An engaged brake stays while it holds
    /// anything, however few bans are left.
    pub(crate) fn holds(&self, source: &str, gone: &[Target], standing: usize) -> bool {
        let mut state = self.0.lock();
        let Brake {
            lift_percent,
            lift_least,
            ..
        } = state.settings;
        if gone.is_empty() || lift_percent == 0 {
            state.engaged.remove(source);
            return false;
        }
        let part = gone.len().saturating_mul(100) >= standing.saturating_mul(lift_percent.into());
        let many = part && gone.len() >= lift_least.max(1);
        if !many && !state.engaged.contains_key(source) {
            return false;
        }
        let State {
            released, engaged, ..
        } = &mut *state;
        let held = engaged.entry(source.to_owned()).or_insert_with(|| {
            let held = Held {
                source: source.to_owned(),
                id: id(source, gone),
                gone: gone.len(),
                standing,
            };
            tracing::warn!("{held}");
            held
        });
        !brake::releases(released.as_deref(), &held.id)
    }

    /// All that is held.
    pub(crate) fn held(&self) -> Vec<Held> {
        let state = self.0.lock();
        let held = state.engaged.values();
        held.filter(|held| !brake::releases(state.released.as_deref(), &held.id))
            .cloned()
            .collect()
    }

    /// The source is not pulled any more.
    pub(crate) fn forget(&self, source: &str) {
        self.0.lock().engaged.remove(source);
    }
}

/// A text for these lifts, which stays the same after a restart while the list does.
fn id(source: &str, gone: &[Target]) -> String {
    let mut digest = Sha256::new();
    for target in gone {
        digest.update(target.to_string());
        digest.update([0]);
    }
    let mut id = format!("lifts-{source}-");
    for byte in digest.finalize().iter().take(4) {
        let _ = write!(id, "{byte:02x}");
    }
    id
}

// === impl Held ===

impl fmt::Display for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            source,
            id,
            gone,
            standing,
        } = self;
        write!(
            formatter,
            "the brake holds the lift of {gone} bans out of {standing} that the source {source} does not list any more (brake.liftPercent); they stay until their end. Check the source; if its list is right, set the annotation {} of the ConfigMap to {id}, and they are lifted at the next pull",
            brake::RELEASE
        )
    }
}
