//! The guard rails at work: what a block is asked before a new ban, and the blocks that wait for its end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::block::BlockReconciler;
use super::sweep::request_named;
use crate::api::{IPBlock, IPBlockStatus, Phase, RESOLVED, condition};
use crate::config::Config;
use crate::decide::{Claim, Coverage, LIFT_BRAKED, RESOLVED_BRAKED, Rails, Run, World, decide};
use crate::guard::{Ask, Full, Scope, source_of};
use crate::trigger::Repeat;

/// The brake on lifts of bans whose trigger is not configured.
const OTHERS: &str = "others";

/// Why a ban whose alerts are resolved stays while there is no valid configuration, which has the bounds of the brakes.
const WITHOUT_BOUNDS: &str = "there is no valid configuration, and so no bound on lifts by resolved alerts: the ban stays until its end";

/// The times of this process and of the API server may differ by so much.
const SAME_TIME: SignedDuration = SignedDuration::from_secs(60);

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

    /// What a block shows about the last minute of the former leader: a restart gives no second burst.
    pub(super) fn recall_guard(&self, block: &IPBlock, config: Option<&Config>, now: Timestamp) {
        let Some(status) = &block.status else { return };
        let settings = config.map(|config| &config.guard);
        let ready = status.condition(condition::READY);
        let braked = ready.filter(|ready| status.is(&Phase::Pending) && ready.reason == "Braked");
        if let Some(ready) = braked {
            let guard = &self.parts.guard;
            guard.recall_brake(settings, &ready.message, now);
        }
        // Earlier versions wrote no such condition.
        let held = status.condition(condition::LIFT_HELD).or(ready);
        let held = held.filter(|_| status.is(&Phase::Active));
        match held.map(|held| (held.reason.as_str(), &held.message)) {
            Some((LIFT_BRAKED, _)) => self.parts.guard.recall_lift(),
            Some((RESOLVED_BRAKED, message)) => {
                self.parts.guard.recall_resolved(&block.key(), message);
            }
            _ => {}
        }
        if let Some(at) = resolved_lift(block, status)
            && let Some(trigger) = config.map_or(Some(source_of(block)), |config| {
                counted_for(source_of(block), config)
            })
        {
            // A time that is ahead counts as now.
            let ago = Duration::try_from(now.duration_since(at)).unwrap_or_default();
            let guard = &self.parts.guard;
            guard.recall_lifted(&block.key(), trigger, ago);
        }
        let ago = status.blocked_at().map(|at| now.duration_since(at));
        if let Some(Ok(ago)) = ago.map(Duration::try_from) {
            self.parts.guard.recall(ask(block), settings, ago);
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
