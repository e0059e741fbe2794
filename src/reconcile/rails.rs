//! The guard rails at work: what a block is asked before a new ban, and the blocks that wait for its end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reeve_controller::Request;

use super::block::BlockReconciler;
use super::sweep::{request_named, request_of};
use crate::api::{IPBlock, IPBlockStatus, Phase, RESOLVED, condition};
use crate::config::Config;
use crate::decide::{Claim, Coverage, LIFT_BRAKED, RESOLVED_BRAKED, Rails, Run, World, decide};
use crate::guard::{Ask, Full, MINUTE, RESOLVED_WINDOW, Scope, source_of};
use crate::trigger::Repeat;

/// The brake on lifts of bans whose trigger is not configured.
const OTHERS: &str = "others";

/// Why a ban whose alerts are resolved stays while there is no valid configuration, which has the bounds of the brakes.
const WITHOUT_BOUNDS: &str = "there is no valid configuration, and so no bound on lifts by resolved alerts: the ban stays until its end";

/// The times of this process and of the API server may differ by so much.
const SAME_TIME: SignedDuration = SignedDuration::from_secs(60);

/// What the blocks show about the guard rails of the former leader. Texts that many blocks share are kept once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Former {
    /// The messages of blocks that wait for the brake on bans.
    waits: Vec<Arc<str>>,
    /// The number of bans whose lift the brake on edits of the configuration holds.
    edits: usize,
    /// The bans whose lift a brake on resolved alerts holds, with its message.
    resolved: Vec<(Request, Arc<str>)>,
    /// The bans that resolved alerts lifted, with their sources, if that counts still. A time that is ahead counts as the
    /// present.
    lifted: Vec<(Request, Arc<str>, Timestamp)>,
    /// New bans with their sources, if they count still.
    banned: Vec<(Request, Arc<str>, Timestamp)>,
}

// === impl Former ===

impl Former {
    /// Adds what `block` shows.
    pub(super) fn add(&mut self, block: &IPBlock, now: Timestamp) {
        let Some(status) = &block.status else { return };
        let ready = status.condition(condition::READY);
        let braked = ready.filter(|ready| status.is(&Phase::Pending) && ready.reason == "Braked");
        if let Some(ready) = braked
            && self
                .waits
                .last()
                .is_none_or(|last| **last != *ready.message)
        {
            self.waits.push((*ready.message).into());
        }
        // Earlier versions wrote no such condition.
        let held = status.condition(condition::LIFT_HELD).or(ready);
        let held = held.filter(|_| status.is(&Phase::Active));
        match held.map(|held| (&*held.reason, &*held.message)) {
            Some((LIFT_BRAKED, _)) => self.edits += 1,
            Some((RESOLVED_BRAKED, message)) => {
                let last = self.resolved.last().map(|(_, last)| last);
                let message = shared(last, message);
                self.resolved.push((request_of(block), message));
            }
            _ => {}
        }
        let within = |at: Timestamp, window: Duration| {
            Duration::try_from(now.duration_since(at)).is_ok_and(|ago| ago < window)
        };
        if let Some(at) = resolved_lift(block, status).map(|at| at.min(now))
            && within(at, RESOLVED_WINDOW)
        {
            let last = self.lifted.last().map(|(_, last, _)| last);
            let source = shared(last, source_of(block));
            self.lifted.push((request_of(block), source, at));
        }
        if let Some(at) = status.blocked_at()
            && within(at, MINUTE)
        {
            let last = self.banned.last().map(|(_, last, _)| last);
            let source = shared(last, source_of(block));
            self.banned.push((request_of(block), source, at));
        }
    }
}

/// `text`, as `last` if that is the same.
fn shared(last: Option<&Arc<str>>, text: &str) -> Arc<str> {
    let last = last.filter(|last| ***last == *text);
    last.map_or_else(|| text.into(), Arc::clone)
}

// === impl BlockReconciler ===

impl BlockReconciler {
    /// The rails around a block of `source`, before it is known whether it makes a new ban.
    pub(super) fn rails<'a>(
        source: &'a str,
        config: Option<&'a Config>,
        keeps_refused: Option<&'a str>,
    ) -> Rails<'a> {
        let Some(config) = config else {
            return Rails::default();
        };
        let settings = &config.guard;
        Rails {
            hold: None,
            shadow: Some(source).filter(|source| settings.is_shadow(Some(source))),
            escalation: settings.escalation.as_ref(),
            escalates_active: config.repeated_alert == Repeat::Escalate,
            keeps_refused,
            keeps_resolved: None,
        }
    }

    /// Takes in what the blocks show: a restart gives no second burst.
    pub(super) fn recall_guard(&self, former: &Former, config: Option<&Config>, now: Timestamp) {
        let guard = &self.parts.guard;
        let settings = config.map(|config| &config.guard);
        // The clock may be set back meanwhile.
        let ago = |at: Timestamp| Duration::try_from(now.duration_since(at)).unwrap_or_default();
        for message in &former.waits {
            guard.recall_brake(settings, message, now);
        }
        guard.recall_lifts(former.edits);
        for (block, message) in &former.resolved {
            guard.recall_resolved(&block.to_string(), message);
        }
        for (block, source, at) in &former.lifted {
            let counted = config.map_or(Some(&**source), |config| counted_for(source, config));
            if let Some(trigger) = counted {
                guard.recall_lifted(&block.to_string(), trigger, ago(*at));
            }
        }
        for (block, source, at) in &former.banned {
            let asked = Ask {
                namespace: block.namespace.as_deref().unwrap_or_default(),
                source,
                full: None,
            };
            guard.recall(asked, settings, ago(*at));
        }
    }

    /// Decides about a block. A new ban is decided about again when it has to wait.
    pub(super) fn decide(
        &self,
        block: &Arc<IPBlock>,
        key: &str,
        world: &World<'_>,
        config: Option<&Config>,
    ) -> Run {
        let now = self.parts.time.now();
        let run = decide(block, world, now);
        let guard = &self.parts.guard;
        if run.lifts_resolved()
            && let Err(why) = self.admit_lift(block, key, config)
        {
            let world = World {
                rails: Rails {
                    keeps_resolved: Some(&why),
                    ..world.rails
                },
                ..world.clone()
            };
            return decide(block, &world, now);
        }
        let (Some((standing, until)), Some(config)) = (run.new_ban(), config) else {
            // Two brakes may hold the lift of one ban, and the other one goes on holding it.
            if run.keeps_for_a_brake() {
                guard.leave_queue(key);
            } else {
                guard.forget(key);
            }
            return run;
        };
        let engine = config.engine.as_ref().ok();
        let engine = self.parts.engines.get(&standing.place, engine).ok();
        let capabilities = engine.map(|engine| engine.capabilities());
        let mut coverage = self.parts.coverage.lock();
        if coverage.claim(key).is_some() {
            guard.forget(key);
            return run;
        }
        let most = capabilities.and_then(|engine| engine.most);
        let most = most.filter(|most| coverage.is_full(&standing, *most));
        let full = most.and_then(|most| Full::of(&standing, most));
        let asked = Ask { full, ..ask(block) };
        let admitted = guard.admit(key, asked, &config.guard, &coverage, now);
        let Err(mut hold) = admitted else {
            // Counted from now on, before other blocks ask.
            coverage.reserve(key, standing, until);
            coverage.attribute(key, source_of(block));
            return run;
        };
        drop(coverage);
        // Only this process can have called a gateway for a block that was created since it leads.
        let created = block.metadata.creation_timestamp.as_ref();
        let own = created
            .zip(self.seeded_at())
            .is_some_and(|(created, seeded)| created.0.duration_since(seeded) > SAME_TIME);
        hold.may_stand &= !own;
        let world = World {
            rails: Rails {
                hold: Some(&hold),
                ..world.rails
            },
            ..world.clone()
        };
        decide(block, &world, now)
    }

    /// Whether a ban whose alerts are resolved may be lifted before its end.
    fn admit_lift(
        &self,
        block: &IPBlock,
        key: &str,
        config: Option<&Config>,
    ) -> Result<(), String> {
        let Some(config) = config else {
            return Err(WITHOUT_BOUNDS.to_owned());
        };
        let coverage = self.parts.coverage.lock();
        let trigger = counted_for(source_of(block), config);
        let trigger = trigger.map(|name| (name, standing(name, config, &coverage)));
        let now = self.parts.time.now();
        let guard = &self.parts.guard;
        guard.admit_lift(key, trigger, config.guard.brake, &coverage, now)
    }

    /// After the end of a ban: requests the blocks that waited for it.
    pub(super) fn freed(&self, key: &str, claim: &Claim) {
        let request = request_named(key);
        let namespace = request
            .as_ref()
            .and_then(|request| request.namespace.as_deref());
        let ask = Ask {
            namespace: namespace.unwrap_or_default(),
            source: claim.source.as_deref().unwrap_or("manual"),
            full: None,
        };
        let mut scopes = ask.scopes();
        scopes.extend(Scope::engine(&claim.place.engine, claim.target.is_ipv6()));
        for key in self.parts.guard.freed(key, &scopes) {
            if let Some(request) = request_named(&key)
                && self.parts.again.try_send(request).is_err()
            {
                self.parts.guard.uncalled(&key);
            }
        }
    }
}

fn ask(block: &IPBlock) -> Ask<'_> {
    Ask {
        namespace: block.metadata.namespace.as_deref().unwrap_or_default(),
        source: source_of(block),
        full: None,
    }
}

/// When the alerts were resolved whose end lifted the ban of `block`; `None`: something else did, or it stands.
fn resolved_lift(block: &IPBlock, status: &IPBlockStatus) -> Option<Timestamp> {
    let ready = status.condition(condition::READY)?;
    let lifted = status.is(&Phase::Expired) && ready.reason == "Expired";
    let resolved: Timestamp = block.annotation(RESOLVED)?.parse().ok()?;
    let during = status.blocked_at()? <= resolved && resolved <= status.unblocked_at()?;
    (lifted && during).then_some(resolved)
}

/// The trigger whose brake counts the lifts of `source` by resolved alerts; `None`: a list that is pulled has a brake of its
/// own. A trigger of the same name keeps its brake.
fn counted_for<'a>(source: &'a str, config: &Config) -> Option<&'a str> {
    if config.triggers.iter().any(|it| it.name == source) {
        return Some(source);
    }
    let pulled = config.sources.iter().any(|pulled| pulled.name == source);
    // Users choose the sources of blocks, and the brakes are as many as the triggers.
    (!pulled).then_some(OTHERS)
}

/// The claims that count for what [`counted_for`] returns: those of a trigger, or those of no trigger and no pulled list.
fn standing(trigger: &str, config: &Config, coverage: &Coverage) -> usize {
    let of = |name: &str| coverage.count(&Scope::Source(name.to_owned()));
    if config.triggers.iter().any(|it| it.name == trigger) {
        return of(trigger);
    }
    let triggers = config.triggers.iter().map(|it| &*it.name);
    let pulled = config.sources.iter().map(|pulled| &*pulled.name);
    // Triggers may share a name.
    let named: BTreeSet<&str> = triggers.chain(pulled).collect();
    let named: usize = named.into_iter().map(of).sum();
    coverage.count(&Scope::All).saturating_sub(named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Options, parse};

    fn config() -> Config {
        let data = [
            ("engine", "xdp"),
            ("gatewayHost", "10.0.0.1"),
            ("gatewayPort", "8080"),
            (
                "trigger",
                "[{name: am, type: alertmanager, addr: ':9090', path: /am, insecure: true, resolved: lift}]",
            ),
            (
                "sources",
                "[{name: am, type: feed, url: 'https://lists.example/a'}, {name: feed, type: feed, url: 'https://lists.example/b'}]",
            ),
        ];
        let data = data.map(|(key, text)| (key.to_owned(), text.to_owned()));
        parse(&data.into(), &Options::default()).unwrap()
    }

    #[test]
    fn blocks_show_the_brakes_that_hold_them_and_what_is_not_older_than_a_window() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let at = |ago: i64| now - SignedDuration::from_secs(ago);
        let shown = |phase: &str, reason: &str, kind: &str, banned: i64, resolved: i64| {
            let block = serde_json::json!({
                "metadata": {
                    "name": "a", "namespace": "n",
                    "annotations": {RESOLVED: at(resolved).to_string()},
                },
                "spec": {"ip": "192.0.2.7"},
                "status": {
                    "phase": phase, "blockedAt": at(banned).to_string(),
                    "unblockedAt": at(resolved).to_string(),
                    "conditions": [{
                        "type": kind, "status": "True", "reason": reason, "message": "the brake",
                        "lastTransitionTime": at(banned).to_string(),
                    }],
                },
            });
            let block: IPBlock = serde_json::from_value(block).unwrap();
            let mut former = Former::default();
            former.add(&block, now);
            former.add(&block, now);
            former
        };
        let block = || Request::namespaced("n", "a");
        let manual = || -> Arc<str> { "manual".into() };
        let brake = || -> Arc<str> { "the brake".into() };
        let nothing = Former::default;
        let waits = || Former {
            waits: vec![brake()],
            ..nothing()
        };
        let edits = || Former {
            edits: 2,
            ..nothing()
        };
        let resolved = || Former {
            resolved: vec![(block(), brake()); 2],
            ..nothing()
        };
        let lifted = |ago| Former {
            lifted: vec![(block(), manual(), at(ago)); 2],
            ..nothing()
        };
        let banned = |ago| Former {
            banned: vec![(block(), manual(), at(ago)); 2],
            ..nothing()
        };
        for (phase, reason, kind, begun, ended, expected) in [
            ("pending", "Braked", "Ready", 900, 900, waits()),
            ("active", "Braked", "Ready", 900, 900, nothing()),
            ("active", LIFT_BRAKED, "LiftHeld", 900, 900, edits()),
            ("active", RESOLVED_BRAKED, "LiftHeld", 900, 900, resolved()),
            ("active", RESOLVED_BRAKED, "Ready", 900, 900, resolved()),
            ("expired", RESOLVED_BRAKED, "LiftHeld", 900, 900, nothing()),
            ("active", "Banned", "Ready", 59, 0, banned(59)),
            ("active", "Banned", "Ready", 60, 0, nothing()),
            ("active", "Banned", "Ready", -1, 0, nothing()),
            ("expired", "Expired", "Ready", 900, 599, lifted(599)),
            ("expired", "Expired", "Ready", 900, 600, nothing()),
            ("expired", "Expired", "Ready", 900, -5, lifted(0)),
        ] {
            let found = shown(phase, reason, kind, begun, ended);
            assert_eq!(found, expected, "{phase} {reason} {kind} {begun} {ended}");
        }
    }

    #[test]
    fn a_pulled_list_with_the_name_of_a_trigger_leaves_the_brake_of_the_trigger_on() {
        let config = config();
        for (source, expected) in [
            ("am", Some("am")),
            ("feed", None),
            ("manual", Some(OTHERS)),
            ("removed", Some(OTHERS)),
        ] {
            assert_eq!(counted_for(source, &config), expected, "{source}");
        }
    }

    #[test]
    fn lifts_of_no_trigger_are_compared_with_all_bans_of_no_trigger_and_no_pulled_list() {
        let config = config();
        let mut coverage = Coverage::default();
        for (number, source) in ["am", "am", "feed", "manual", "removed", "removed", "others"]
            .into_iter()
            .enumerate()
        {
            let key = format!("default/{number}");
            let standing = crate::api::Standing {
                target: format!("192.0.2.{number}").parse().unwrap(),
                place: crate::api::Place::new("xdp", "g:1"),
            };
            coverage.recall(&key, standing, None);
            coverage.attribute(&key, source);
        }
        assert_eq!(standing("am", &config, &coverage), 2);
        assert_eq!(standing(OTHERS, &config, &coverage), 4);
    }
}
