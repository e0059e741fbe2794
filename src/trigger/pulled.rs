//! The rules of alerts for the entries of sources that are pulled (see [`crate::pulled`]).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::address::target;
use super::alerts::{Resolved, Wanted};
use super::debounce::Debounce;
use super::firing::Firing;
use super::intake::{Intake, Outcome};
use super::repeat::{self, Repeat};
use super::server::Triggers;
use super::unfinished::Unfinished;
use crate::api::IPBlock;
use crate::target::Target;

/// A source is one alert for each of its addresses.
const ALERT: &str = "";

/// Writes the objects of one source.
#[derive(Debug)]
pub(crate) struct PulledIntake(Intake);

// === impl Triggers ===

impl Triggers {
    /// The intake of the source `name`: an entry bans and is renewed as by an alert, and one that leaves lifts as a resolved
    /// alert does.
    pub(crate) fn pulled(&self, name: &str, namespace: Option<&str>) -> PulledIntake {
        PulledIntake(Intake {
            shared: self.shared(),
            debounce: Arc::new(Debounce::new(Duration::ZERO, 1)),
            unfinished: Unfinished::default(),
            source: name.to_owned(),
            namespace: namespace.map(String::from),
            lifts: true,
            // Without it a listed address would be free between two pulls.
            repeated: Some(Repeat::Extend),
            renew_before: Duration::ZERO,
        })
    }
}

// === impl PulledIntake ===

impl PulledIntake {
    /// For entries that come again each `interval`, which a random part makes up to a tenth longer.
    #[must_use]
    pub(crate) fn each(mut self, interval: Duration) -> Self {
        self.0.renew_before = interval * 3 / 2;
        self
    }

    /// The namespace of the objects.
    pub(crate) fn namespace(&self) -> String {
        let settings = self.0.shared.settings.read();
        let namespace = self.0.namespace.as_ref();
        namespace.unwrap_or(&settings.namespace).clone()
    }

    /// Whether a ban of `target` for `asked` would change nothing about `block`.
    pub(crate) fn is_satisfied(&self, block: &IPBlock, target: &Target, asked: &str) -> bool {
        let firing = Firing::of(block).filter(|_| !self.0.leaves_to_others(block));
        let recorded = firing.is_none_or(|it| it.has(&self.0.source, ALERT));
        recorded && self.0.leaves_alone(block, &wanted(target, asked, ""))
    }

    /// Until when a refused `block` for `target` is banned without another request; `None`: it is not refused.
    pub(crate) fn refused_until(&self, block: &IPBlock, target: &Target) -> Option<Timestamp> {
        let same = block.spec.ip.trim().parse() == Ok(*target);
        // What only a source in shadow mode reported is not banned before another one asks.
        let asked = same && !self.0.takes_from_shadow(block);
        repeat::refused_until(block).filter(|_| asked)
    }

    /// The time that bans end by.
    pub(crate) fn now(&self) -> Timestamp {
        self.0.shared.time.now()
    }

    /// The longest ban; `None`: no limit.
    pub(crate) fn longest(&self) -> Option<Duration> {
        self.0.shared.settings.read().max_duration
    }

    /// Whether the ban of `block` is one of this source.
    pub(crate) fn has_banned(&self, block: &IPBlock) -> bool {
        Firing::of(block).is_some_and(|it| it.has(&self.0.source, ALERT))
    }

    /// Bans `target` for `asked`, or renews its ban.
    pub(crate) async fn ban(
        &self,
        target: &Target,
        asked: &str,
        reason: &str,
    ) -> Result<(), String> {
        match self.0.take(&wanted(target, asked, reason)).await {
            Outcome::Unavailable(why) => Err(why),
            Outcome::Rejected(why) => {
                let source = &self.0.source;
                tracing::warn!(%source, %why, "an entry of a source cannot be a block");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Ends the ban of `target`, if this source made it and nothing else keeps it.
    pub(crate) async fn lift(&self, target: &Target) -> Result<(), String> {
        let resolved = Resolved {
            target: *target,
            raw: target.to_string(),
            alert: ALERT.to_owned(),
        };
        match self.0.resolve(&resolved).await {
            Outcome::Unavailable(why) => Err(why),
            _ => Ok(()),
        }
    }
}

fn wanted(target: &Target, asked: &str, reason: &str) -> Wanted {
    Wanted {
        target: *target,
        raw: target.to_string(),
        duration: Some(asked.to_owned()),
        reason: reason.to_owned(),
        by: None,
        alert: ALERT.to_owned(),
        named: None,
        remark: None,
    }
}

/// The target of a text that is one address or range.
pub(crate) fn single_target(text: &str) -> Option<Target> {
    target(text.trim(), true).ok()
}
