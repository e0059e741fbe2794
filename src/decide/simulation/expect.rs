//! What must come of a history, as far as that follows without deciding like the operator.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use jiff::{SignedDuration, Timestamp};

use super::servers::addresses;
use super::*;
use crate::target::object_name;

/// By the key of a block.
type Times = BTreeMap<String, Timestamp>;

#[derive(Default)]
pub(super) struct Expected {
    /// When a ban was asked for last.
    asked: Times,
    /// When a trigger asked for a ban, which nothing took back or refused since.
    owed: Times,
    /// The last moment at rest since then, and within the time that is asked for, at which the ban could be made.
    chance: Times,
    /// Until when alerts that were taken want a ban.
    lasts: Times,
    /// When a ban that was lifted by hand counts no more against alerts.
    grace: Times,
    /// When a block came to its end.
    ended: Times,
    /// How often it was banned.
    bans: BTreeMap<String, i64>,
}

impl Expected {
    /// A ban is asked for.
    pub(super) fn asked(&mut self, key: &str, now: Timestamp) {
        self.asked.insert(key.to_owned(), now);
        self.chance.remove(key);
    }

    /// A trigger asks for a ban.
    pub(super) fn triggered(&mut self, key: &str, now: Timestamp) {
        self.asked(key, now);
        self.owed.insert(key.to_owned(), now);
    }

    /// The value of an annotation is replaced by one that asks for nothing.
    pub(super) fn taken_back(&mut self, key: &str) {
        self.owed.remove(key);
    }

    /// When a ban was asked for last.
    pub(super) fn asked_at(&self, key: &str) -> Option<Timestamp> {
        self.asked.get(key).copied()
    }

    /// The request changed, or is not allowed any more.
    pub(super) fn edited(&mut self, key: &str) {
        self.chance.remove(key);
        self.lasts.remove(key);
        self.owed.remove(key);
    }

    /// An alert was taken for a ban until `until`; a later one may ask for less time if it asks for a new ban.
    pub(super) fn lasts(&mut self, key: &str, until: Timestamp) {
        self.lasts.insert(key.to_owned(), until);
    }

    /// A gateway lost its bans, which the next assertion repairs.
    pub(super) fn forgotten(&mut self) {
        self.lasts.clear();
    }

    /// A user deletes the block, and with it its history.
    pub(super) fn deleted(&mut self, key: &str) {
        self.lasts.remove(key);
        self.grace.remove(key);
    }

    /// There is another block of this name.
    pub(super) fn forget(&mut self, key: &str) {
        for times in [
            &mut self.asked,
            &mut self.owed,
            &mut self.chance,
            &mut self.lasts,
            &mut self.grace,
            &mut self.ended,
        ] {
            times.remove(key);
        }
        self.bans.remove(key);
    }

    /// No block records that the address was unblocked a moment ago.
    pub(super) fn created_by_alert(&self, key: &str, now: Timestamp) {
        let graced = self.grace.get(key).is_some_and(|until| *until > now);
        assert!(!graced, "{key}: an alert bans within the grace");
    }

    /// A status is written.
    pub(super) fn status(
        &mut self,
        key: &str,
        before: &IPBlockStatus,
        after: &IPBlockStatus,
        now: Timestamp,
    ) {
        if before == after {
            return;
        }
        let bans = self.bans.entry(key.to_owned()).or_default();
        let [earlier, counted] = [before, after].map(IPBlockStatus::bans);
        assert!((earlier..=earlier + 1).contains(&counted), "{after:?}");
        *bans += counted - earlier;
        assert_eq!(*bans, counted, "{key}: earlier bans are counted");

        let reason = |status: &IPBlockStatus| {
            let ready = status.condition(condition::READY);
            ready.map(|ready| ready.reason.clone())
        };
        let late = Some("NotInTime".to_owned());
        if reason(after) == late && reason(before) != late {
            let (asked, chance) = (self.asked.get(key), self.chance.get(key));
            assert!(
                chance.is_none(),
                "{key} was asked for at {asked:?}, could be banned at {chance:?}, and is given up"
            );
        }

        if let Some(lifted) = after.lifted_by_hand() {
            self.grace.insert(key.to_owned(), plus(lifted, GRACE));
        } else {
            self.grace.remove(key);
        }
        if !after.is_over() {
            self.ended.remove(key);
        } else if !before.is_over() || ended(before) != ended(after) {
            self.ended.insert(key.to_owned(), now);
        }
    }

    /// Nothing is left to do at this moment with a gateway that answers.
    fn at_rest(&mut self, key: &str, block: &IPBlock, now: Timestamp) {
        let text = block.spec.duration.as_deref().unwrap_or_default();
        let Ok(duration) = crate::duration::parse_optional(text) else {
            return;
        };
        let Some(asked) = self.asked.get(key) else {
            return;
        };
        let within = duration.is_none_or(|duration| now < plus(*asked, duration));
        if within && !block.is_deleting() && block.spec.unblock != Some(true) {
            self.chance.insert(key.to_owned(), now);
            let status = block.status.clone().unwrap_or_default();
            let banned = status.blocked_at().filter(|_| status.is(&Phase::Active));
            let owed = self.owed.get(key);
            assert!(
                owed.is_none_or(|owed| banned.is_some_and(|banned| banned >= *owed)),
                "{key} was triggered at {owed:?} and is not banned since: {block:?}"
            );
        }
    }

    /// When a block of an alert is deleted.
    fn end(&self, key: &str, block: &IPBlock) -> Option<Timestamp> {
        let name = key.strip_prefix("default/")?;
        let ended = self
            .ended
            .get(key)
            .filter(|_| name == object_name(&block.spec.ip))?;
        let bans = self.bans.get(key).copied().unwrap_or_default();
        let retention = RETENTION * u32::try_from(bans.clamp(1, 8)).unwrap();
        let end = plus(*ended, retention);
        Some(self.grace.get(key).map_or(end, |grace| end.max(*grace)))
    }

    /// The block is deleted because it was kept for long enough.
    pub(super) fn collected(&mut self, key: &str, block: &IPBlock, now: Timestamp) {
        let end = self.end(key, block);
        // The end is counted in whole seconds in places.
        let kept = end.is_some_and(|end| end <= plus(now, Duration::from_secs(1)));
        assert!(kept, "{key} is deleted before {end:?}: {block:?}");
    }

    /// The block was not kept for long enough.
    fn is_kept(&self, key: &str, block: &IPBlock, now: Timestamp) {
        let end = self.end(key, block);
        let over = end.is_some_and(|end| plus(end, Duration::from_secs(1)) < now);
        assert!(!over, "{key} was to be deleted at {end:?}: {block:?}");
    }
}

impl Simulation {
    /// Nothing is queued or due at this moment.
    pub(super) fn at_rest(&mut self) {
        // What a cap holds back may be given up although it could be banned.
        if self.caps.is_some() {
            return;
        }
        let place = self.place.clone();
        let Some(place) = place.filter(|place| !self.dead.contains(place)) else {
            return;
        };
        for (key, block) in &self.objects {
            let target: Target = block.spec.ip.parse().unwrap();
            if self.policy.refusal(&target).is_none() {
                self.expected.at_rest(key, block, self.now);
            }
        }
        let enforced = self.enforced.get(&place);
        for (key, until) in &self.expected.lasts {
            // Ends are written in whole seconds in places.
            if self.now + SignedDuration::from_secs(1) >= *until {
                continue;
            }
            let block = &self.objects[key];
            let target: Target = block.spec.ip.parse().unwrap();
            assert!(
                enforced.is_some_and(|set| set.is_superset(&addresses(&target))),
                "{key} is to be banned until {until}: {block:?}"
            );
        }
    }

    /// What must hold at the end.
    pub(super) fn check(&self) {
        let mut wanted: BTreeSet<u32> = BTreeSet::new();
        for (key, block) in &self.objects {
            let status = block.status.clone().unwrap_or_default();
            let shown = serde_json::to_string(block).unwrap();
            assert_ne!(
                block.spec.unblock,
                Some(true),
                "{key}: the flag is still set: {shown}"
            );
            if status.is(&Phase::Active) {
                let target: Target = block.spec.ip.parse().unwrap();
                assert!(
                    self.policy.refusal(&target).is_none(),
                    "{key} is allowlisted and banned: {shown}"
                );
                assert!(
                    status.expires_at().is_none_or(|until| until > self.now),
                    "{key} is overdue: {shown}"
                );
                wanted.extend(addresses(&target));
            }
            let late = status
                .condition(condition::READY)
                .is_some_and(|ready| ready.reason == "NotInTime");
            let broken = block.spec.duration.as_deref() == Some("soon");
            let held = self.caps.is_some() && status.is(&Phase::Pending);
            assert!(
                held || !status.is(&Phase::Pending),
                "{key} stays pending: {shown}"
            );
            assert!(
                status.phase.is_some(),
                "{key} was never decided about: {shown}"
            );
            assert!(
                broken || late || !status.is(&Phase::Failed),
                "{key} failed: {shown}"
            );
            assert!(
                broken || block.spec.trigger != Some(true),
                "{key}: the trigger is still set: {shown}"
            );
            self.expected.is_kept(key, block, self.now);
            assert!(
                status.observed_generation == block.metadata.generation,
                "{key}: {shown}"
            );
        }
        for (place, enforced) in self.alive() {
            let expected = if Some(place) == self.place.as_ref() {
                wanted.clone()
            } else {
                BTreeSet::new()
            };
            let show = |set: &BTreeSet<u32>| {
                set.iter()
                    .map(|a| Ipv4Addr::from(*a).to_string())
                    .collect::<Vec<_>>()
            };
            assert_eq!(
                show(enforced),
                show(&expected),
                "at {place}, objects {}",
                serde_json::to_string(&self.objects.values().collect::<Vec<_>>()).unwrap()
            );
        }
        if !wanted.is_empty() {
            let here = self
                .place
                .as_ref()
                .and_then(|place| self.enforced.get(place));
            assert!(
                here.is_some_and(|set| !set.is_empty()),
                "nothing is enforced"
            );
        }
    }
}

/// The times of the end in a status.
fn ended(status: &IPBlockStatus) -> (Option<&str>, Option<&str>) {
    let ready = status.condition(condition::READY);
    let since = ready.map(|ready| ready.last_transition_time.as_str());
    (since, status.unblocked_at.as_deref())
}

fn plus(at: Timestamp, duration: Duration) -> Timestamp {
    at + SignedDuration::try_from(duration).unwrap()
}
