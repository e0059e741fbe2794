//! What users, alerts and the administrator do, and what must come of it.

use kube_client::Error;
use kube_client::core::Status;

use super::super::*;
use super::process::Process;
use super::sets::Fed;
use super::world::{COLLEAGUE, PLACES, World};
use super::*;
use crate::api::TRIGGER_ANNOTATION;
use crate::config::keys;
use crate::duration;
use crate::target::Target;

/// What users ban, by hand. Some overlap, and the last three may not be banned.
const TARGETS: [&str; 11] = [
    "198.51.100.1",
    "198.51.100.2",
    "198.51.100.3",
    "198.51.100.0/29",
    "198.51.100.0/28",
    "198.51.100.9",
    "198.51.100.200",
    "2001:db8::1",
    COLLEAGUE,
    "203.0.113.0/28",
    "192.0.2.250",
];

/// What alerts are about.
pub(super) const ATTACKERS: [&str; 6] = [
    "203.0.113.101",
    "203.0.113.102",
    "203.0.113.103",
    "198.51.100.2",
    "198.51.100.9",
    COLLEAGUE,
];

/// Blocks by hand that exist at once.
pub(super) const BY_HAND: u64 = 14;

/// The longest difference by which the clock of a node is believed.
pub(super) const BELIEVED: SignedDuration = SignedDuration::from_secs(60);

/// The longest difference of times that counts as none: two nodes may be believed.
pub(super) const TOLERANCE: SignedDuration = SignedDuration::from_secs(150);

/// What must come of a block.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) target: Target,
    pub(super) by_alert: bool,
    /// It is banned at least until then, if it may be; `None`: that is not known.
    pub(super) until: Option<Timestamp>,
    /// It was unblocked, and no ban was asked for since.
    pub(super) over: bool,
    /// When it was unblocked last.
    pub(super) unblocked: Option<Timestamp>,
    /// The last action.
    pub(super) touched: Instant,
}

pub(super) struct Users {
    pub(super) random: Random,
    pub(super) wishes: BTreeMap<String, Wish>,
    pub(super) fed: Fed,
    made: u64,
}

/// Repeats a request until it is answered without an error.
pub(super) async fn persist<T, F>(request: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, Error>>,
{
    loop {
        match tokio::time::timeout(3 * SECOND, request()).await {
            Ok(Ok(answer)) => return answer,
            _ => tokio::time::sleep(SECOND / 2).await,
        }
    }
}

/// The answer of a request about an object that may be gone.
fn unless_gone<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    let gone = |status: &Status| status.code == 404;
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Error::Api(status)) if gone(&status) => Ok(None),
        Err(error) => Err(error),
    }
}

// === impl Users ===

impl Users {
    pub(super) fn new(random: Random) -> Self {
        Self {
            random,
            wishes: BTreeMap::new(),
            fed: Fed::new(),
            made: 0,
        }
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.wishes.keys().cloned().collect()
    }

    fn one_of<'a>(&self, all: &[&'a str]) -> &'a str {
        all[self.random.below(all.len() as u64) as usize]
    }

    pub(super) fn duration(&self) -> Duration {
        match self.random.below(4) {
            0 => seconds_from(&self.random, 5, 120),
            1 => seconds_from(&self.random, 120, 1800),
            2 => seconds_from(&self.random, 1800, 4 * 3600),
            _ => seconds_from(&self.random, 2, 8) * 3600,
        }
    }

    /// One of the blocks by hand.
    fn block(&self) -> Option<String> {
        let by_hand = self.wishes.iter().filter(|(_, wish)| !wish.by_alert);
        let names: Vec<&String> = by_hand.map(|(name, _)| name).collect();
        let chosen = self.random.below(names.len() as u64) as usize;
        names.get(chosen).map(|name| (*name).clone())
    }

    pub(super) async fn act(&mut self, world: &mut World) {
        match self.random.below(28) {
            0..6 => self.create(world).await,
            6..13 => self.alert(world).await,
            13 => self.resolve(world).await,
            14..16 => self.edit(world, Edit::Unblock).await,
            16..18 => self.edit(world, Edit::Trigger).await,
            18 => self.edit(world, Edit::Annotate).await,
            19..21 => self.edit(world, Edit::Duration).await,
            21 => self.edit(world, Edit::Reason).await,
            22..24 => self.delete(world).await,
            24..26 => self.feed(world).await,
            _ => self.configure(world).await,
        }
    }

    async fn create(&mut self, world: &mut World) {
        let by_hand = self.wishes.values().filter(|wish| !wish.by_alert);
        if by_hand.count() as u64 >= BY_HAND {
            return self.delete(world).await;
        }
        let ip = self.one_of(&TARGETS);
        let lasting = (self.random.below(6) > 0).then(|| self.duration());
        self.made += 1;
        let name = format!("by-hand-{}", self.made);
        let text = lasting.map(duration::display);
        world
            .timeline
            .add(format!("{name}: create for {ip}, duration {text:?}"));
        let spec = IPBlockSpec {
            ip: ip.to_owned(),
            duration: text,
            ..IPBlockSpec::default()
        };
        let block = IPBlock::new(&name, spec);
        let asked = world.clock.now();
        persist(|| async {
            let created = world.blocks.create(&PostParams::default(), &block).await;
            match created {
                // After an answer that was lost.
                Err(error) => world.blocks.get(&name).await.map_err(|_| error),
                created => created,
            }
        })
        .await;
        let wish = Wish {
            target: ip.parse().unwrap(),
            by_alert: false,
            until: Some(end(asked, lasting)),
            over: false,
            unblocked: None,
            touched: Instant::now(),
        };
        self.wishes.insert(name, wish);
    }

    /// An alert, which its sender repeats until it is taken.
    async fn alert(&mut self, world: &mut World) {
        let ip = self.one_of(&ATTACKERS);
        let target: Target = ip.parse().unwrap();
        let (name, lasting) = (target.object_name(), self.duration());
        let text = duration::display(lasting);
        world
            .timeline
            .add(format!("{name}: alert about {ip}, duration {text}"));
        let deleting = persist(|| world.blocks.get_opt(&name)).await;
        let deleting = deleting.is_some_and(|block| block.is_deleting());
        let asked = deliver(world, async |triggers| {
            triggers.ban(&target, &text, "attack").await
        })
        .await;
        let grace = SignedDuration::from_mins(10) + TOLERANCE;
        let before = self.wishes.remove(&name);
        let unblocked = before.as_ref().and_then(|wish| wish.unblocked);
        let graced = unblocked.is_some_and(|at| asked < at + grace);
        let until = before.as_ref().and_then(|wish| wish.until);
        // A ban is not extended while half of the requested time is left, or while an earlier edit is not read.
        let quick = before.is_some_and(|wish| wish.touched.elapsed() < MINUTE);
        let more = Some(end(asked, Some(lasting / 2)));
        let more = more.filter(|_| world.is_settled() && !quick);
        let until = until.max(more);
        let known = !graced && !deleting && !world.is_allowed(&target);
        let wish = Wish {
            target,
            by_alert: true,
            until: until.filter(|_| known),
            over: false,
            unblocked,
            touched: Instant::now(),
        };
        self.wishes.insert(name, wish);
    }

    /// The alert is over.
    async fn resolve(&mut self, world: &mut World) {
        let target: Target = self.one_of(&ATTACKERS).parse().unwrap();
        let name = target.object_name();
        if !self.wishes.contains_key(&name) {
            return;
        }
        world.timeline.add(format!("{name}: the alert is over"));
        deliver(world, async |triggers| triggers.lift(&target).await).await;
        if let Some(wish) = self.wishes.get_mut(&name) {
            (wish.until, wish.touched) = (None, Instant::now());
        }
    }

    async fn edit(&mut self, world: &mut World, edit: Edit) {
        let Some(name) = self.block() else {
            return;
        };
        let lasting = (self.random.below(6) > 0).then(|| self.duration());
        let patch = match edit {
            Edit::Unblock => json!({"spec": {"unblock": true}}),
            Edit::Trigger => json!({"spec": {"trigger": true}}),
            Edit::Annotate => {
                self.made += 1;
                let value = self.made.to_string();
                json!({"metadata": {"annotations": {TRIGGER_ANNOTATION: value}}})
            }
            Edit::Duration => json!({"spec": {"duration": lasting.map(duration::display)}}),
            Edit::Reason => {
                self.made += 1;
                json!({"spec": {"reason": format!("reason {}", self.made)}})
            }
        };
        world.timeline.add(format!("{name}: {patch}"));
        let before = persist(|| world.blocks.get_opt(&name)).await;
        let asked = world.clock.now();
        let merge = Patch::Merge(patch);
        let params = PatchParams::default();
        persist(|| async { unless_gone(world.blocks.patch(&name, &params, &merge).await) }).await;
        let now = world.clock.now();
        let allowed = |wish: &Wish| world.is_allowed(&wish.target);
        let Some((wish, before)) = self.wishes.get_mut(&name).zip(before) else {
            return;
        };
        wish.touched = Instant::now();
        let status = before.status.clone().unwrap_or_default();
        let active = status.is(&api::Phase::Active);
        let asked_for = before.spec.duration.as_deref().unwrap_or_default();
        let asked_for = duration::parse_optional(asked_for).unwrap();
        match edit {
            Edit::Unblock => {
                // Of a block that is not banned only the flag is set back.
                (wish.over, wish.until, wish.unblocked) = (active, None, Some(asked));
            }
            Edit::Trigger | Edit::Annotate => {
                let until = Some(end(asked, asked_for));
                // An earlier request for a lift that is not carried out yet wins.
                let lifts = before.spec.unblock == Some(true);
                wish.until = until.filter(|_| !lifts && !allowed(wish));
                wish.over = false;
            }
            Edit::Duration => {
                // The end of a ban that stands moves, if it is not over before the edit is read. A lift that was asked for
                // before the edit is carried out all the same.
                let lifts = before.spec.unblock == Some(true);
                let stands =
                    active && !lifts && status.expires_at().is_none_or(|at| at > now + TOLERANCE);
                let began = status.blocked_at().unwrap_or(asked);
                let until = Some(end(began, lasting));
                wish.until = until.filter(|until| stands && *until > now + TOLERANCE);
            }
            Edit::Reason => {}
        }
    }

    async fn delete(&mut self, world: &mut World) {
        let alert = self.random.below(4) == 0;
        let name = match alert {
            true => self
                .one_of(&ATTACKERS)
                .parse::<Target>()
                .unwrap()
                .object_name(),
            false => self.block().unwrap_or_default(),
        };
        if self.wishes.remove(&name).is_none() {
            return;
        }
        world.timeline.add(format!("{name}: delete"));
        let delete = DeleteParams::default();
        persist(|| async { unless_gone(world.blocks.delete(&name, &delete).await) }).await;
        world.disturb(Duration::ZERO);
    }

    /// An edit of the ConfigMap.
    async fn configure(&mut self, world: &mut World) {
        let mut broken = false;
        match self.random.below(6) {
            0 | 1 => {
                let target: Target = self.one_of(&TARGETS).parse().unwrap();
                if !world.configured.allowed.remove(&target) {
                    world.configured.allowed.insert(target);
                }
                for wish in self.wishes.values_mut() {
                    if wish.target.overlaps(&target) {
                        wish.until = None;
                    }
                }
            }
            2 => {
                let none = world.configured.most_active.is_some();
                world.configured.most_active = (!none).then(|| 3 + self.random.below(6) as usize);
            }
            3 => {
                let none = world.configured.most_per_minute.is_some();
                let most = 1 + self.random.below(3) as usize;
                world.configured.most_per_minute = (!none).then_some(most);
            }
            4 => {
                // A gateway that is replaced while it is dead keeps its bans after ten minutes.
                let faulty = |site: &super::world::Site| site.faulty_until > Instant::now();
                if world.sites.iter().any(faulty) {
                    return;
                }
                world.configured.place = 1 - world.configured.place;
                world.moved = Instant::now();
            }
            _ => broken = true,
        }
        world.timeline.add(format!(
            "configuration: {:?}, broken: {broken}",
            world.configured
        ));
        if broken {
            world.write(&json!({keys::WHITELIST: "nonsense"})).await;
            tokio::time::sleep(seconds_from(&self.random, 1, 600)).await;
            world.timeline.add("configuration: mended");
        }
        let mut data = json!(world.data());
        for key in [keys::MAX_ACTIVE_BLOCKS, keys::MAX_BANS_PER_MINUTE] {
            data.as_object_mut()
                .unwrap()
                .entry(key)
                .or_insert(json!(null));
        }
        world.write(&data).await;
        world.disturb(Duration::ZERO);
    }
}

/// An edit of a block.
#[derive(Clone, Copy, Debug)]
enum Edit {
    Unblock,
    Trigger,
    Annotate,
    Duration,
    Reason,
}

/// Has a running replica take an alert. Returns when the try began that succeeded.
async fn deliver(
    world: &World,
    request: impl AsyncFn(crate::trigger::PulledIntake) -> Result<(), String>,
) -> Timestamp {
    for tries in 0.. {
        assert!(tries < 2_000, "no alert is taken");
        let operators = world.processes.iter().filter_map(Process::operator);
        for operator in operators {
            let intake = operator.triggers().pulled("feed", None);
            drop(operator);
            let asked = world.clock.now();
            let answer = tokio::time::timeout(10 * SECOND, request(intake)).await;
            if answer == Ok(Ok(())) {
                return asked;
            }
        }
        tokio::time::sleep(2 * SECOND).await;
    }
    unreachable!()
}

fn end(from: Timestamp, lasting: Option<Duration>) -> Timestamp {
    lasting.map_or(Timestamp::MAX, |lasting| from + signed(lasting))
}

impl World {
    /// Whether the target may not be banned.
    pub(super) fn is_allowed(&self, target: &Target) -> bool {
        let gateway = PLACES[self.configured.place].rsplit_once(':').unwrap().0;
        let fixed = [COLLEAGUE, gateway].map(|text| text.parse().unwrap());
        let mut all = self.configured.allowed.iter().chain(&fixed);
        all.any(|entry| entry.overlaps(target))
    }

    /// Merges `data` into the ConfigMap.
    async fn write(&self, data: &serde_json::Value) {
        let patch = Patch::Merge(json!({ "data": data }));
        let params = PatchParams::default();
        persist(|| self.maps.patch(CONFIG_MAP, &params, &patch)).await;
    }
}
