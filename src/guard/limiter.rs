//! Whether a new ban may be made now.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::held::{Ask, Held, Scope};
use super::settings::{Limit, Limits, Settings};
use super::window::Window;

/// After a release the brake lets bans pass for this long: those that it held are more than it allows.
const RELEASED: Duration = Duration::from_secs(600);

/// The bans of the last minute by scope, and the brake on new ones.
#[derive(Clone, Debug, Default)]
pub struct Limiter {
    windows: HashMap<Scope, Window>,
    braked: Option<String>,
    /// Until when the brake is off after its release.
    released: Option<Instant>,
}

// === impl Limiter ===

impl Limiter {
    /// Counts a new ban at `at`, if the caps and the brake let it pass. `active` is the number of banned blocks of a scope,
    /// those included whose ban begins.
    ///
    /// # Errors
    /// Why it has to wait. `time` names a brake that engages with it.
    pub fn admit(
        &mut self,
        ask: Ask<'_>,
        settings: &Settings,
        active: impl Fn(&Scope) -> usize,
        at: Instant,
        time: impl Fn() -> String,
    ) -> Result<(), Held> {
        // No setting makes room at a gateway.
        if let Some(full) = ask.full {
            return Err(Held::Active {
                scope: full.scope(),
                most: full.most,
            });
        }
        let limits = &settings.limits;
        let exempt = limits.exempt_manual && ask.source == "manual";
        if !exempt {
            self.check(ask, settings, active, at, time)?;
        }
        self.count(ask, settings, at);
        Ok(())
    }

    fn check(
        &mut self,
        ask: Ask<'_>,
        settings: &Settings,
        active: impl Fn(&Scope) -> usize,
        at: Instant,
        time: impl Fn() -> String,
    ) -> Result<(), Held> {
        if let Some(most) = settings.brake.bans_per_minute {
            let released = self.released.is_some_and(|until| at < until);
            let all = self.windows.entry(Scope::All).or_default();
            if self.braked.is_none() && !released && all.full_for(most, at).is_some() {
                self.braked = Some(format!("bans-{}", time()));
            }
            if let Some(id) = self.braked.clone() {
                return Err(Held::Braked { most, id });
            }
        }
        let scopes = settings.limits.of(ask.namespace, ask.source);
        for (scope, limit) in &scopes {
            if let Some(most) = limit.active
                && active(scope) >= most
            {
                let scope = scope.clone();
                return Err(Held::Active { scope, most });
            }
        }
        for (scope, limit) in scopes {
            let window = self.windows.get_mut(&scope);
            if let (Some(most), Some(window)) = (limit.per_minute, window)
                && let Some(room_in) = window.full_for(most, at)
            {
                return Err(Held::Rate {
                    scope,
                    most,
                    room_in,
                });
            }
        }
        Ok(())
    }

    /// Counts a ban that was made or begins at `at`.
    pub fn count(&mut self, ask: Ask<'_>, settings: &Settings, at: Instant) {
        let brake = settings.brake.bans_per_minute;
        for (scope, limit) in settings.limits.of(ask.namespace, ask.source) {
            let brake = brake.filter(|_| scope == Scope::All);
            if let Some(kept) = limit.per_minute.max(brake) {
                self.windows.entry(scope).or_default().add(at, kept);
            }
        }
        // Namespaces and sources are as many as users make.
        if self.windows.len() > 1024 {
            self.windows.retain(|_, window| window.len(at) > 0);
        }
    }

    /// How many more bans of a scope there may be now under a cap of `most` a minute.
    pub(super) fn room(&mut self, scope: &Scope, most: usize, at: Instant) -> usize {
        let window = self.windows.get_mut(scope);
        most.saturating_sub(window.map_or(0, |window| window.len(at)))
    }

    /// What releases the brake; `None`: it is not engaged.
    #[must_use]
    pub fn braked(&self) -> Option<&str> {
        self.braked.as_deref()
    }

    /// Engages the brake that was engaged before a restart.
    pub fn brake(&mut self, id: String) {
        self.braked.get_or_insert(id);
    }

    /// Releases the brake if `id` is its own. Whether it was engaged.
    pub fn release(&mut self, id: &str, at: Instant) -> bool {
        let own = self.braked.as_deref() == Some(id);
        if own {
            self.braked = None;
            self.released = Some(at + RELEASED);
        }
        own
    }

    /// A brake of an earlier process is released already.
    pub(super) fn released(&mut self, at: Instant) {
        self.released = Some(at + RELEASED);
    }

    /// Releases the brake because its setting changed. Whether it was engaged.
    pub fn reset(&mut self) -> bool {
        self.braked.take().is_some()
    }
}

impl Limit {
    /// Whether there is no cap.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Limits {
    /// Whether any scope has a cap.
    #[must_use]
    pub fn any(&self) -> bool {
        let named = self.namespaces.values().chain(self.sources.values());
        named.chain([&self.all]).any(|limit| !limit.is_none())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::guard::Full;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limit(active: usize, per_minute: usize) -> Limit {
        Limit {
            active: Some(active),
            per_minute: Some(per_minute),
        }
    }

    fn ask<'a>(namespace: &'a str, source: &'a str) -> Ask<'a> {
        Ask {
            namespace,
            source,
            full: None,
        }
    }

    #[test]
    fn a_full_gateway_holds_bans_of_its_family_also_those_that_no_cap_counts() {
        let mut settings = Settings::default();
        settings.limits.exempt_manual = true;
        let mut limiter = Limiter::default();
        let full = Full {
            engine: "xdp",
            ipv6: false,
            most: 10_240,
        };
        let mut admit = |full| {
            let asked = Ask {
                full,
                ..ask("default", "manual")
            };
            limiter.admit(asked, &settings, |_| 0, Instant::now(), String::new)
        };
        assert_eq!(admit(None), Ok(()));
        let held = admit(Some(full)).unwrap_err();
        assert_eq!((held.reason(), held.kind()), ("Limited", "active"));
        assert!(held.to_string().starts_with(
            "the gateway of the engine xdp takes 10240 targets of IPv4, and blocks have as many"
        ));
    }

    #[test]
    fn each_scope_has_a_cap_of_its_own_and_the_refusal_names_its_key() {
        let settings = Settings {
            limits: Limits {
                namespaces: BTreeMap::from([
                    ("team-a".into(), limit(2, 100)),
                    ("*".into(), limit(1, 100)),
                ]),
                sources: BTreeMap::from([("feed".into(), limit(100, 1))]),
                ..Limits::default()
            },
            ..Settings::default()
        };
        let now = Instant::now();
        let mut limiter = Limiter::default();
        let none = |_: &Scope| 0;
        let mut admit = |asked, active: usize| {
            let active = move |scope: &Scope| match scope {
                Scope::Namespace(_) => active,
                _ => none(scope),
            };
            let answer = limiter.admit(asked, &settings, active, now, String::new);
            answer.map_err(|held| held.to_string())
        };
        assert_eq!(admit(ask("team-a", "grafana"), 1), Ok(()));
        let held = admit(ask("team-a", "grafana"), 2).unwrap_err();
        assert!(
            held.contains("limits.namespaces.team-a.maxActiveBlocks"),
            "{held}"
        );
        assert!(admit(ask("team-b", "grafana"), 1).is_err());
        assert_eq!(admit(ask("team-a", "feed"), 0), Ok(()));
        let held = admit(ask("team-b", "feed"), 0).unwrap_err();
        assert!(
            held.contains("limits.sources.feed.maxBansPerMinute"),
            "{held}"
        );
    }

    #[test]
    fn blocks_made_by_hand_are_exempt_only_where_the_configuration_says_so() {
        let mut settings = Settings::default();
        settings.limits.all = limit(1, 1);
        let now = Instant::now();
        for (exempt, expected) in [(false, false), (true, true)] {
            settings.limits.exempt_manual = exempt;
            let full =
                Limiter::default().admit(ask("a", "manual"), &settings, |_| 1, now, String::new);
            assert_eq!(full.is_ok(), expected);
            let full =
                Limiter::default().admit(ask("a", "grafana"), &settings, |_| 1, now, String::new);
            assert!(full.is_err());
        }
    }

    #[test]
    fn the_brake_holds_every_new_ban_until_its_release_and_not_again_for_ten_minutes() {
        let mut settings = Settings::default();
        settings.brake.bans_per_minute = Some(3);
        let (mut limiter, mut now) = (Limiter::default(), Instant::now());
        let admit = |limiter: &mut Limiter, now| {
            limiter.admit(ask("a", "grafana"), &settings, |_| 0, now, || "7".into())
        };
        for _ in 0..3 {
            assert_eq!(admit(&mut limiter, now), Ok(()));
        }
        now += 30 * SECOND;
        let held = admit(&mut limiter, now).unwrap_err();
        assert_eq!(held.reason(), "Braked");
        assert!(held.to_string().contains("to bans-7"), "{held}");
        now += 3600 * SECOND;
        assert!(admit(&mut limiter, now).is_err(), "it stays engaged");
        assert!(!limiter.release("bans-6", now));
        assert!(limiter.release("bans-7", now));
        for _ in 0..20 {
            assert_eq!(admit(&mut limiter, now), Ok(()));
        }
        now += 601 * SECOND;
        for _ in 0..3 {
            assert_eq!(admit(&mut limiter, now), Ok(()));
        }
        assert!(admit(&mut limiter, now).is_err());
    }

    #[test]
    fn those_that_wait_behind_a_cap_of_bans_ask_again_in_turn() {
        let held = Held::Rate {
            scope: Scope::All,
            most: 10,
            room_in: 20 * SECOND,
        };
        assert_eq!(held.retry_in(0), 20 * SECOND);
        assert_eq!(held.retry_in(9), 20 * SECOND);
        assert_eq!(held.retry_in(10), 80 * SECOND);
        for far in [60, 777, 100_000, usize::MAX] {
            let retry_in = held.retry_in(far);
            assert!((80 * SECOND..=320 * SECOND).contains(&retry_in), "{far}");
        }
    }

    proptest! {
        #[test]
        fn never_more_than_the_cap_of_any_scope(
            asks in proptest::collection::vec((0u64..20, 0usize..3, 0usize..3), 1..120),
            (all, namespace, source) in (1usize..8, 1usize..5, 1usize..5),
        ) {
            const NAMES: [&str; 3] = ["one", "two", "three"];
            let settings = Settings {
                limits: Limits {
                    all: limit(usize::MAX, all),
                    namespaces: BTreeMap::from([("*".into(), limit(usize::MAX, namespace))]),
                    sources: BTreeMap::from([("one".into(), limit(usize::MAX, source))]),
                    exempt_manual: false,
                },
                ..Settings::default()
            };
            let (mut limiter, mut now) = (Limiter::default(), Instant::now());
            let mut made: Vec<(Instant, usize, usize)> = Vec::new();
            for (wait, of, from) in asks {
                now += Duration::from_secs(wait);
                let asked = ask(NAMES[of], NAMES[from]);
                if limiter.admit(asked, &settings, |_| 0, now, String::new).is_ok() {
                    made.push((now, of, from));
                }
            }
            for (at, of, from) in &made {
                let within = made.iter().filter(|ban| ban.0 >= *at && ban.0 < *at + 60 * SECOND);
                prop_assert!(within.clone().count() <= all);
                prop_assert!(within.clone().filter(|ban| ban.1 == *of).count() <= namespace);
                let limited = *from == 0;
                prop_assert!(!limited || within.filter(|ban| ban.2 == 0).count() <= source);
            }
        }
    }
}
