//! What must hold when nothing has failed for a while.

use super::super::*;
use super::process::Left;
use super::users::{BELIEVED, TOLERANCE, Users, Wish};
use super::world::World;
use super::*;
use crate::api::{Phase, condition};
use crate::duration;
use crate::target::Target;

/// How long after an action its block is in order.
const ACTED: Duration = Duration::from_secs(60);

impl World {
    /// Compares everything, if nothing has failed for a while. Returns whether it did.
    pub(super) async fn check(&mut self, users: &mut Users) -> bool {
        if !self.is_settled() {
            return false;
        }
        let blocks = self.blocks.list(&ListParams::default()).await.unwrap();
        let blocks: BTreeMap<String, IPBlock> = blocks
            .items
            .into_iter()
            .map(|block| (block.metadata.name.clone().unwrap(), block))
            .collect();
        let now = self.clock.now();
        users.wishes.retain(|name, wish| {
            let gone = !blocks.contains_key(name);
            let until = wish.until.filter(|_| !self.is_allowed(&wish.target));
            let kept = until.is_some_and(|until| until > now);
            assert!(
                !gone || (wish.by_alert && !kept),
                "{name} is gone: {wish:?}"
            );
            !gone
        });
        let mut banned = BTreeSet::new();
        let mut unsure = BTreeSet::new();
        for (name, block) in &blocks {
            let wish = users.wishes.get(name);
            let wish = wish.unwrap_or_else(|| panic!("{name} is not deleted: {block:?}"));
            let status = block.status.clone().unwrap_or_default();
            let ends = status.expires_at();
            let ends = ends.is_some_and(|at| at.duration_since(now).abs() < TOLERANCE);
            if wish.touched.elapsed() < ACTED || ends {
                unsure.insert(wish.target);
                continue;
            }
            self.check_block(block, wish, now);
            if status.is(&Phase::Active) {
                banned.insert(wish.target);
            }
        }
        self.check_sets(&users.fed, &banned, &unsure).await;
        banned.retain(|target| !target.is_ipv6() || self.engine != "iptables");
        self.check_gateways(&blocks, &banned, &unsure);
        self.check_notices(&blocks);
        self.check_memory(&blocks).await;
        true
    }

    fn check_block(&self, block: &IPBlock, wish: &Wish, now: Timestamp) {
        let shown = || {
            let mut block = block.clone();
            block.metadata.managed_fields = None;
            format!("{}: {wish:?}, {}", block.key(), json!(block))
        };
        let status = block.status.clone().unwrap_or_default();
        // A set engine takes what the gateway cannot.
        let refused = wish.target.is_ipv6() && self.engine == "iptables";
        let unsupported = refused && !self.follows;
        let capped =
            self.configured.most_active.is_some() || self.configured.most_per_minute.is_some();
        let phase = status.phase.clone();
        assert!(!block.is_deleting(), "not deleted: {}", shown());
        assert_ne!(
            block.spec.unblock,
            Some(true),
            "a flag is left: {}",
            shown()
        );
        let active = status.is(&Phase::Active);
        let pending = status.is(&Phase::Pending);
        assert!(phase.is_some(), "no phase: {}", shown());
        assert!(capped || !pending, "still pending: {}", shown());
        assert!(
            pending || unsupported || block.spec.trigger != Some(true),
            "a flag is left: {}",
            shown()
        );
        let generation = block.metadata.generation;
        assert_eq!(status.observed_generation, generation, "{}", shown());
        if self.is_allowed(&wish.target) {
            assert!(!active && !pending, "allowed and banned: {}", shown());
        } else if !unsupported {
            let until = wish.until.filter(|until| *until > now + TOLERANCE);
            let held = capped && pending;
            assert!(
                until.is_none() || active || held,
                "not banned until {until:?}: {}",
                shown()
            );
        }
        assert!(!wish.over || !active, "unblocked and banned: {}", shown());
        assert!(!unsupported || !active, "{}", shown());
        if status.is(&Phase::Failed) && !unsupported {
            let ready = status.condition(condition::READY);
            let reason = ready.map(|ready| ready.reason.clone());
            assert_eq!(reason.as_deref(), Some("NotInTime"), "{}", shown());
        }
        if active {
            let asked = block.spec.duration.as_deref().unwrap_or_default();
            let asked = duration::parse_optional(asked).unwrap();
            let began = status.blocked_at().unwrap();
            let end = asked.map(|asked| began + signed(asked));
            let off = match (status.expires_at(), end) {
                (Some(at), Some(end)) => at.duration_since(end).abs(),
                (None, None) => SignedDuration::ZERO,
                _ => SignedDuration::MAX,
            };
            assert!(off < SignedDuration::from_secs(2), "ends late: {}", shown());
            assert!(end.is_none_or(|end| end > now), "overdue: {}", shown());
        }
    }

    /// The gateway has the bans of the active blocks, and no others.
    fn check_gateways(
        &self,
        blocks: &BTreeMap<String, IPBlock>,
        banned: &BTreeSet<Target>,
        unsure: &BTreeSet<Target>,
    ) {
        for (number, site) in self.sites.iter().enumerate() {
            let targets = site.gateway.targets().into_iter();
            let stands: BTreeSet<Target> = targets.map(|it| it.parse().unwrap()).collect();
            let configured = number == self.configured.place;
            let wanted = if configured { banned } else { &BTreeSet::new() };
            let lost: Vec<_> = wanted.difference(&stands).collect();
            let sure = |target: &&Target| !unsure.contains(target);
            let lost: Vec<_> = lost.into_iter().filter(sure).collect();
            let leaked: Vec<_> = stands.difference(wanted).filter(sure).collect();
            assert!(lost.is_empty(), "gateway {number} lacks {lost:?}");
            let of_leaked = |block: &&IPBlock| {
                let status = block.status.as_ref();
                let target = status.and_then(|status| status.target.as_ref()?.parse().ok());
                target.is_some_and(|target: Target| leaked.contains(&&target))
            };
            let shown: Vec<_> = blocks
                .values()
                .filter(of_leaked)
                .map(|block| json!(block))
                .collect();
            assert!(
                leaked.is_empty(),
                "gateway {number} still has {leaked:?}: {shown:?}"
            );
            for target in wanted {
                let doubtful = unsure.iter().any(|it| it.overlaps(target));
                let open = !site.gateway.drops(target.address());
                assert!(doubtful || !open, "gateway {number} lets {target} pass");
            }
        }
    }

    /// Each ban, and each lift, was reported once.
    fn check_notices(&self, blocks: &BTreeMap<String, IPBlock>) {
        let mut notices = self.notices.all.lock().clone();
        notices.sort();
        for block in blocks.values() {
            let status = block.status.clone().unwrap_or_default();
            let Some(began) = status.blocked_at() else {
                continue;
            };
            // The start is a time of the node, which is believed within a minute.
            let mut disturbances = self.disturbances.iter();
            let near = |(from, until): &(Timestamp, Timestamp)| {
                (*from - BELIEVED..*until + BELIEVED).contains(&began)
            };
            if disturbances.any(near) {
                continue;
            }
            let ban = Left {
                uid: block.metadata.uid.clone().unwrap(),
                event: "ban".to_owned(),
                bans: status.bans(),
                end: None,
            };
            let reported = notices.iter().any(|(left, _)| *left == ban);
            assert!(reported, "not reported: {}: {status:?}", block.key());
        }
        for pair in notices.windows(2) {
            let (one, other) = (&pair[0], &pair[1]);
            assert_ne!(one.0, other.0, "reported twice: {}; {}", one.1, other.1);
        }
    }

    /// No Event about a ban is written twice.
    pub(super) async fn check_events(&self) {
        let events: Api<Event> = Api::namespaced(self.server.client(), "default");
        let events = events.list(&ListParams::default()).await.unwrap();
        let mut counts: BTreeMap<String, i32> = BTreeMap::new();
        for event in events {
            if event.reason.as_deref() == Some("Banned") {
                let uid = event.regarding.and_then(|regarding| regarding.uid);
                let count = event.series.map_or(1, |series| series.count);
                *counts.entry(uid.unwrap_or_default()).or_default() += count;
            }
        }
        let notices = self.notices.all.lock();
        for (uid, count) in counts {
            let bans = notices.iter();
            let bans = bans.filter(|(left, _)| left.uid == uid && left.event == "ban");
            let bans = bans.count();
            assert!(
                count as usize <= bans,
                "{count} Events about {bans} bans of {uid}"
            );
        }
    }

    /// The operator remembers blocks that exist, and nothing is stuck.
    async fn check_memory(&self, blocks: &BTreeMap<String, IPBlock>) {
        for (number, process) in self.processes.iter().enumerate() {
            let operator = process.operator();
            let operator = operator.unwrap_or_else(|| panic!("process {number} does not run"));
            let mut tries = 0;
            while !operator.kept.locks.is_empty() {
                tries += 1;
                assert!(tries < 50, "process {number}: locks are held");
                tokio::time::sleep(Duration::from_millis(170)).await;
            }
            let coverage = operator.kept.coverage.lock();
            for (key, claim) in coverage.claims() {
                let name = key.strip_prefix("default/").unwrap();
                assert!(blocks.contains_key(name), "claim of no block: {claim:?}");
            }
        }
    }
}
