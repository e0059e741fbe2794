//! A set engine beside the gateways, and a list that a user edits: the set has the bans that stand, and no others.

use super::super::*;
use super::users::{TOLERANCE, Users, persist};
use super::world::{COLLEAGUE, World};
use super::*;
use crate::api::{BlockListSpec, ListEntry};
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
            let delete = DeleteParams::default();
            persist(|| async { unless(404, lists.delete(NAME, &delete).await.map(drop)) }).await;
        } else {
            let list = BlockList::new(NAME, specification(&entries));
            persist(|| async { write(&lists, &list).await }).await;
        }
        world.timeline.add(format!("list: {entries:?}"));
        (self.fed.entries, self.fed.edited) = (entries, Instant::now());
    }
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

/// Creates the list, or edits it.
async fn write(lists: &Api<BlockList>, list: &BlockList) -> Result<(), kube_client::Error> {
    let created = lists.create(&PostParams::default(), list).await;
    unless(409, created.map(drop))?;
    let patch = Patch::Merge(json!({ "spec": list.spec }));
    let patched = lists.patch(NAME, &PatchParams::default(), &patch).await;
    patched.map(drop)
}

impl World {
    /// Each replica has the bans of the active blocks, and the entries of the list that may be banned.
    pub(super) fn check_sets(
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
            assert!(
                lost.is_empty(),
                "the set of process {number} lacks {lost:?}"
            );
            assert!(
                leaked.is_empty(),
                "the set of process {number} still has {leaked:?}"
            );
        }
    }
}
