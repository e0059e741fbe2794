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

// === impl Held ===

impl Held {
    pub(crate) fn source(&self) -> &str {
        &self.source
    }
}

// === impl Brakes ===

impl Brakes {
    /// The bounds, and the annotation that releases brakes.
    pub(crate) fn set(&self, settings: Brake, released: Option<String>) {
        let mut state = self.0.lock();
        (state.settings, state.released) = (settings, released);
    }

    /// Whether the lift of `gone`, out of `standing` bans of `source`, has to wait. An engaged brake stays while it holds
    /// anything, however few bans are left, and asks for another release when it holds many more than it engaged for.
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
        // A release is for what was held when it was asked for.
        let more = lift_least.max(1);
        let outgrown = engaged.get(source);
        if outgrown.is_some_and(|held| gone.len() >= held.gone.saturating_add(more)) {
            engaged.remove(source);
        }
        let held = engaged.entry(source.to_owned()).or_insert_with(|| {
            // An annotation that was there before the brake engaged released an earlier loss, though of the same bans.
            let spent = |id: &String| brake::releases(released.as_deref(), id);
            let mut ids = (0..).map(|round| id(source, gone, round));
            let held = Held {
                source: source.to_owned(),
                id: ids.find(|id| !spent(id)).unwrap_or_default(),
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

    /// The source is not pulled any more, or what it has no more is lifted.
    pub(crate) fn forget(&self, source: &str) {
        self.0.lock().engaged.remove(source);
    }
}

/// A text for these lifts, which stays the same after a restart while the list does. A later `round` has another one.
fn id(source: &str, gone: &[Target], round: u32) -> String {
    let mut digest = Sha256::new();
    if round > 0 {
        digest.update(round.to_be_bytes());
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(count: u8) -> Vec<Target> {
        let targets = (0..count).map(|last| format!("192.0.2.{last}").parse().unwrap());
        targets.collect()
    }

    #[test]
    fn a_list_that_lost_many_more_since_asks_for_another_release_and_one_that_lost_few_does_not() {
        let brakes = Brakes::default();
        let settings = Brake {
            lift_percent: 50,
            lift_least: 20,
            ..Brake::default()
        };
        brakes.set(settings, None);
        let asks = |count| {
            assert!(brakes.holds("list", &gone(count), 100));
            brakes.held().remove(0).id
        };
        let first = asks(50);
        assert_eq!(asks(69), first, "19 more");
        let second = asks(70);
        assert_ne!(second, first);
        brakes.set(settings, Some(first));
        assert!(brakes.holds("list", &gone(70), 100), "that was for 50");
        brakes.set(settings, Some(second));
        assert!(!brakes.holds("list", &gone(70), 100));
        assert!(brakes.holds("list", &gone(90), 100), "they left meanwhile");
    }

    #[test]
    fn a_release_is_for_one_loss_and_not_for_a_later_one_of_the_same_bans() {
        let settings = Brake {
            lift_percent: 50,
            lift_least: 20,
            ..Brake::default()
        };
        let brakes = Brakes::default();
        brakes.set(settings, None);
        assert!(brakes.holds("list", &gone(50), 60));
        let first = brakes.held().remove(0).id;
        brakes.set(settings, Some(first.clone()));
        assert!(!brakes.holds("list", &gone(50), 60));
        brakes.forget("list");
        assert!(brakes.holds("list", &gone(50), 60), "the same ones again");
        let second = brakes.held().remove(0).id;
        let restarted = Brakes::default();
        restarted.set(settings, Some(first.clone()));
        assert!(restarted.holds("list", &gone(50), 60), "after a restart");
        assert_eq!(restarted.held().remove(0).id, second);
        brakes.set(settings, Some(format!("{first},{second}")));
        assert!(!brakes.holds("list", &gone(50), 60));
        brakes.forget("list");
        assert!(brakes.holds("list", &gone(50), 60), "a third time");
    }
}
