//! A set engine beside the gateways, and a list that a user edits: the set has the bans that stand, and no others.

use super::super::*;
use super::users::{TOLERANCE, Users, persist};
use super::world::{COLLEAGUE, PLACES, World};
use super::*;
use crate::api::{BlockListSpec, ListEntry, Place};
use crate::engine::Kind;
use crate::sets::Source;
use crate::target::Target;

/// A list at a free port.
pub(super) const ENGINE: &str =
    "- name: edge\n  type: list\n  addr: 127.0.0.1:0\n  insecure: true\n";

const NAME: &str = "feed";

/// What the list may have. Some are banned by hand, too, and the last two may not be banned.
const TARGETS: [&str; 8] = [
    "198.51.100.1",
    "198.51.100.0/29",
    "198.51.100.77",
    "198.51.100.128/25",
    "2001:db8::1",
    "2001:db8:1::/48",
    COLLEAGUE,
    "203.0.113.0/28",
];

/// How long after an edit the set has the list.
const EDITED: Duration = Duration::from_secs(60);

/// What must come of the list.
#[derive(Clone, Debug)]
pub(super) struct Fed {
    /// With the end of each.
    entries: BTreeMap<Target, Option<Timestamp>>,
    edited: Instant,
}

// === impl Fed ===

impl Fed {
    pub(super) fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            edited: Instant::now(),
        }
    }
}

// === impl Users ===

impl Users {
    /// Replaces the entries of the list, or deletes it.
    pub(super) async fn feed(&mut self, world: &World) {
        if !world.follows {
            return;
        }
        let now = world.clock.now();
        let mut entries = BTreeMap::new();
        for target in TARGETS {
            if self.random.below(2) == 0 {
                let lasting = (self.random.below(4) > 0).then(|| self.duration());
                let target: Target = target.parse().unwrap();
                entries.insert(target, lasting.map(|lasting| now + signed(lasting)));
            }
        }
        let deleted = self.random.below(6) == 0;
        let lists: Api<BlockList> = Api::namespaced(world.server.client(), "default");
        if deleted {
            entries.clear();
            world.timeline.add("list: delete");
            let delete = DeleteParams::default();
            persist(|| async { unless(404, lists.delete(NAME, &delete).await.map(drop)) }).await;
        } else {
            world.timeline.add(format!("list: {entries:?}"));
            write_entries(&lists, &entries).await;
        }
        (self.fed.entries, self.fed.edited) = (entries, Instant::now());
    }
}

/// What each source of the set has, and which version of the list is cached.
pub(super) fn sources(operator: &Operator, engine: &str) -> String {
    let sets = operator.sets();
    let gateways = PLACES.map(|endpoint| Place::new(engine, endpoint));
    let places = gateways
        .into_iter()
        .chain([Place::new(Kind::Sets.name(), "")]);
    let places = places.map(|place| {
        let entries = sets.desired().entries(&Source::Place(place.clone()));
        format!("{place}: {entries:?}")
    });
    let places: Vec<String> = places.collect();
    let listed = sets.list(&format!("default/{NAME}"));
    let caches = operator.manager().caches();
    let request = reeve_controller::Request::namespaced("default", NAME);
    let cached = caches.metadata::<BlockList>().map(|lister| {
        let list = lister.get(&request);
        list.map(|list| list.map(|list| list.metadata.resource_version.clone()))
    });
    format!(
        "by blocks: {}; by the list: {listed:?}; cached version: {cached:?}",
        places.join(", ")
    )
}

fn specification(entries: &BTreeMap<Target, Option<Timestamp>>) -> BlockListSpec {
    let entries = entries.iter().map(|(target, until)| ListEntry {
        target: target.to_string(),
        until: until.map(|until| until.to_string()),
        reason: None,
    });
    BlockListSpec {
        entries: entries.collect(),
        ..BlockListSpec::default()
    }
}

fn unless(code: u16, answer: Result<(), kube_client::Error>) -> Result<(), kube_client::Error> {
    match answer {
        Err(kube_client::Error::Api(status)) if status.code == code => Ok(()),
        answer => answer,
    }
}

/// Creates the list with these entries, or replaces those that it has.
pub(super) async fn write_entries(
    lists: &Api<BlockList>,
    entries: &BTreeMap<Target, Option<Timestamp>>,
) {
    let list = BlockList::new(NAME, specification(entries));
    persist(|| async { write(lists, &list).await }).await;
}

/// Creates the list, or edits it.
async fn write(lists: &Api<BlockList>, list: &BlockList) -> Result<(), kube_client::Error> {
    let created = lists.create(&PostParams::default(), list).await;
    unless(409, created.map(drop))?;
    // The spec as JSON lacks entries if there are none, and a merge patch would keep the present ones.
    let patch = Patch::Merge(json!({ "spec": { "entries": list.spec.entries } }));
    let patched = lists.patch(NAME, &PatchParams::default(), &patch).await;
    patched.map(drop)
}

impl World {
    /// Each replica has the bans of the active blocks, and the entries of the list that may be banned.
    pub(super) async fn check_sets(
        &self,
        fed: &Fed,
        banned: &BTreeSet<Target>,
        unsure: &BTreeSet<Target>,
    ) {
        if !self.follows || fed.edited.elapsed() < EDITED {
            return;
        }
        let now = self.clock.now();
        let mut wanted = banned.clone();
        let mut unsure = unsure.clone();
        for (target, until) in &fed.entries {
            match until {
                Some(until) if until.duration_since(now).abs() < TOLERANCE => {
                    unsure.insert(*target);
                }
                Some(until) if *until < now => {}
                _ if self.is_allowed(target) => {}
                _ => {
                    wanted.insert(*target);
                }
            }
        }
        for (number, process) in self.processes.iter().enumerate() {
            let operator = process.operator();
            let operator = operator.unwrap_or_else(|| panic!("process {number} does not run"));
            let view = operator.sets().desired().view();
            let stands: BTreeSet<Target> = view.set.iter().map(|entry| entry.target).collect();
            let sure = |target: &&Target| !unsure.contains(target);
            let lost: Vec<_> = wanted.difference(&stands).filter(sure).collect();
            let leaked: Vec<_> = stands.difference(&wanted).filter(sure).collect();
            if lost.is_empty() && leaked.is_empty() {
                continue;
            }
            let sources = sources(&operator, self.engine);
            let lists: Api<BlockList> = Api::namespaced(self.server.client(), "default");
            let served = lists.get_opt(NAME).await.unwrap();
            panic!(
                "the set of process {number} lacks {lost:?}, still has {leaked:?}; {sources}; the server has the list {}",
                json!(served)
            );
        }
    }
}
