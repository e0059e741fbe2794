//! Lists, in an operator at work.

use super::*;
use crate::api::{BlockList, BlockListSpec, BlockListStatus, ListEntry, condition::ENFORCED};

/// A list engine at a free port.
const SET: &str = "- name: edge\n  type: list\n  addr: 127.0.0.1:0\n  insecure: true\n";

impl World {
    fn lists(&self) -> Api<BlockList> {
        Api::namespaced(self.server.client(), "default")
    }

    async fn with_lists(engines: &str) -> Self {
        let mut world = Self::new().await;
        world
            .configure(&[("engine", ""), ("engines", engines)])
            .await;
        world.start().await;
        world
    }

    pub(super) async fn feed(&self, name: &str, entries: &[(&str, &str)]) {
        let entries = entries.iter().map(|(target, until)| ListEntry {
            target: (*target).to_owned(),
            until: (!until.is_empty()).then(|| (*until).to_owned()),
            reason: None,
        });
        let spec = BlockListSpec {
            entries: entries.collect(),
            ..BlockListSpec::default()
        };
        let (lists, create) = (self.lists(), PostParams::default());
        if lists.get_opt(name).await.unwrap().is_some() {
            let patch = Patch::Merge(json!({ "spec": spec }));
            let params = PatchParams::default();
            lists.patch(name, &params, &patch).await.unwrap();
            return;
        }
        let list = BlockList::new(name, spec);
        lists.create(&create, &list).await.unwrap();
    }

    async fn edit_list(&self, name: &str, spec: serde_json::Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        let params = PatchParams::default();
        self.lists().patch(name, &params, &patch).await.unwrap();
    }

    async fn list_status(&self, name: &str) -> BlockListStatus {
        let list = self.lists().get(name).await.unwrap();
        list.status.unwrap_or_default()
    }

    /// Waits until the condition `Enforced` of a list has this reason.
    async fn list_is(&self, name: &str, reason: &str, limit: Duration) -> BlockListStatus {
        let started = Instant::now();
        loop {
            let list = self.lists().get(name).await.unwrap();
            let status = list.status.unwrap_or_default();
            let current = status.observed_generation == list.metadata.generation;
            let condition = status.condition(ENFORCED);
            if current && condition.is_some_and(|it| it.reason == reason) {
                return status;
            }
            assert!(
                started.elapsed() < limit,
                "{name} is not {reason} after {limit:?}: {status:?}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// How often the statuses of lists were written.
    fn list_writes(&self) -> usize {
        let requests = self.server.requests().all();
        let writes = requests
            .iter()
            .filter(|it| it.user.ends_with(":ipblock-operator"))
            .filter(|it| it.verb == "patch" && it.resource == "blocklists");
        writes.count()
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_is_enforced_and_each_entry_leaves_at_its_end_without_a_write() {
    let world = World::with_lists(SET).await;
    let entries = [
        ("192.0.2.7", "2026-01-01T00:02:00Z"),
        ("192.0.2.8", "2026-01-01T00:04:00Z"),
        ("2001:db8::/48", ""),
    ];
    world.feed("feed", &entries).await;
    let status = world.list_is("feed", "Enforced", 5 * SECOND).await;
    assert_eq!((status.entries, status.enforced, status.refused), (3, 3, 0));
    assert_eq!(status.next_end.as_deref(), Some("2026-01-01T00:02:00Z"));
    assert_eq!((status.engines.len(), status.engines[0].enforced), (1, 3));
    world
        .set_becomes(&["192.0.2.7", "192.0.2.8", "2001:db8::/48"], SECOND)
        .await;
    let writes = world.list_writes();
    assert_eq!(writes, 1);
    world
        .set_becomes(&["192.0.2.8", "2001:db8::/48"], 121 * SECOND)
        .await;
    world.set_becomes(&["2001:db8::/48"], 121 * SECOND).await;
    let now = world.clock.now();
    assert!(now < "2026-01-01T00:04:01Z".parse().unwrap(), "{now}");
    assert_eq!(world.list_writes(), writes);
    tokio::time::sleep(16 * 60 * SECOND).await;
    let status = world.list_status("feed").await;
    assert_eq!(
        (status.enforced, status.ended, status.next_end),
        (1, 2, None)
    );
    assert_eq!(world.list_writes(), writes + 1);
}

#[tokio::test(start_paused = true)]
async fn an_edit_replaces_the_entries_and_a_deletion_drops_them() {
    let world = World::with_lists(SET).await;
    world
        .feed("one", &[("192.0.2.7", ""), ("192.0.2.8", "")])
        .await;
    world.feed("two", &[("192.0.2.8", "")]).await;
    world
        .set_becomes(&["192.0.2.7", "192.0.2.8"], 5 * SECOND)
        .await;
    world.feed("one", &[("192.0.2.9", "")]).await;
    world
        .set_becomes(&["192.0.2.8", "192.0.2.9"], 5 * SECOND)
        .await;
    let delete = DeleteParams::default();
    world.lists().delete("one", &delete).await.unwrap();
    world.set_becomes(&["192.0.2.8"], 5 * SECOND).await;
    world.edit_list("two", json!({"suspended": true})).await;
    world.set_becomes(&[], 5 * SECOND).await;
    let status = world.list_is("two", "Suspended", 10 * SECOND).await;
    assert_eq!((status.entries, status.enforced), (1, 0));
    world.edit_list("two", json!({"suspended": false})).await;
    world.set_becomes(&["192.0.2.8"], 5 * SECOND).await;
    world.list_is("two", "Enforced", 10 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_replaces_one_of_its_name_has_its_own_entries() {
    let world = World::with_lists(SET).await;
    world.feed("feed", &[("192.0.2.7", "")]).await;
    world.set_becomes(&["192.0.2.7"], 5 * SECOND).await;
    // Both changes come while another list is read. The test itself looks for that list first.
    let slow = Rule::new().verb("get").resource("blocklists").name("slow");
    let slow = slow.after(1).times(1).delay(5 * SECOND);
    let slow = world.server.faults().add(slow);
    world.feed("slow", &[("192.0.2.9", "")]).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(slow.hits(), 1);
    let delete = DeleteParams::default();
    world.lists().delete("feed", &delete).await.unwrap();
    world.feed("feed", &[("192.0.2.8", "")]).await;
    world
        .set_becomes(&["192.0.2.8", "192.0.2.9"], 10 * SECOND)
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_ended_by_a_clock_that_was_ahead_is_enforced_again() {
    let world = World::with_lists(SET).await;
    let entries = [("192.0.2.7", "2026-01-01T01:00:00Z"), ("192.0.2.8", "")];
    world.feed("feed", &entries).await;
    world
        .set_becomes(&["192.0.2.7", "192.0.2.8"], 5 * SECOND)
        .await;
    world.clock.jump(SignedDuration::from_hours(2));
    world.set_becomes(&["192.0.2.8"], 5 * MINUTE).await;
    world.clock.jump(SignedDuration::from_hours(-2));
    world
        .set_becomes(&["192.0.2.7", "192.0.2.8"], 5 * MINUTE)
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_edited_policy_is_applied_to_the_entries_of_lists() {
    let world = World::with_lists(SET).await;
    let entries = [("192.0.2.7", ""), ("198.51.100.7", ""), ("nonsense", "")];
    world.feed("feed", &entries).await;
    world
        .set_becomes(&["192.0.2.7", "198.51.100.7"], 5 * SECOND)
        .await;
    world
        .configure(&[
            ("engine", ""),
            ("engines", SET),
            ("whitelist", "192.0.2.0/24"),
        ])
        .await;
    world.set_becomes(&["198.51.100.7"], 5 * SECOND).await;
    let status = async |refused| {
        let started = Instant::now();
        loop {
            let status = world.list_status("feed").await;
            if status.refused == refused {
                return status;
            }
            assert!(started.elapsed() < 10 * SECOND, "{status:?}");
            tokio::time::sleep(SECOND).await;
        }
    };
    let refusals = status(2).await.refusals;
    let reasons: Vec<&str> = refusals.iter().map(|it| it.reason.as_str()).collect();
    assert_eq!(reasons, ["Allowlisted", "InvalidTarget"]);
    assert!(world.announced("EntriesRefused", "2 of 3 entries").await);
    // An entry of the allowlist that ends is no edit.
    let ending = "192.0.2.0/24 until=2026-01-01T00:10:00Z";
    world
        .configure(&[("engine", ""), ("engines", SET), ("whitelist", ending)])
        .await;
    tokio::time::sleep(10 * SECOND).await;
    world.set_becomes(&["198.51.100.7"], SECOND).await;
    world
        .set_becomes(&["192.0.2.7", "198.51.100.7"], 600 * SECOND)
        .await;
    assert!(world.clock.now() > "2026-01-01T00:09:59Z".parse().unwrap());
    status(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_source_is_in_shadow_mode_is_shown_and_not_enforced() {
    let world = World::with_lists(SET).await;
    world.feed("feed", &[("192.0.2.7", "")]).await;
    world.feed("other", &[("192.0.2.8", "")]).await;
    world.edit_list("feed", json!({"source": "partners"})).await;
    world
        .set_becomes(&["192.0.2.7", "192.0.2.8"], 5 * SECOND)
        .await;
    let shown = [
        ("engine", ""),
        ("engines", SET),
        ("shadowSources", "partners"),
    ];
    world.configure(&shown).await;
    world.set_becomes(&["192.0.2.8"], 5 * SECOND).await;
    let status = world.list_is("feed", "Shadow", 15 * SECOND).await;
    let message = &status.condition(ENFORCED).unwrap().message;
    assert!(message.starts_with("would enforce 1 entries"), "{message}");
    assert_eq!((status.entries, status.enforced), (1, 0));
    let off = [("engine", ""), ("engines", SET), ("shadowSources", "")];
    world.configure(&off).await;
    world.list_is("feed", "Enforced", 15 * SECOND).await;
    world
        .set_becomes(&["192.0.2.7", "192.0.2.8"], 5 * SECOND)
        .await;
}

#[tokio::test(start_paused = true)]
async fn without_a_set_engine_the_status_says_what_to_add_and_no_gateway_is_called() {
    let world = World::configured().await;
    world.feed("feed", &[("192.0.2.7", "")]).await;
    let status = world
        .list_is("feed", "EngineCannotExpress", 5 * SECOND)
        .await;
    let message = &status.condition(ENFORCED).unwrap().message;
    assert!(
        message.contains("engines") && message.contains("type list"),
        "{message}"
    );
    assert!(world.banned(GATEWAY).await.is_empty());
    world.configure(&[("engines", SET)]).await;
    world.list_is("feed", "Enforced", 15 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_made_before_the_configuration_waits_for_it() {
    let mut world = World::new().await;
    world.start().await;
    world.feed("feed", &[("192.0.2.7", "")]).await;
    world.list_is("feed", "NotConfigured", 5 * SECOND).await;
    world.configure(&[("engine", ""), ("engines", SET)]).await;
    world.list_is("feed", "Enforced", 15 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_no_engine_acts_before_every_list_was_read() {
    let mut world = World::with_lists(SET).await;
    let names: Vec<String> = (0..20).map(|n| format!("feed-{n}")).collect();
    let targets: Vec<String> = (0..20).map(|n| format!("192.0.2.{n}")).collect();
    for (name, target) in names.iter().zip(&targets) {
        world.feed(name, &[(target, "")]).await;
    }
    world.list_is("feed-19", "Enforced", 20 * SECOND).await;
    world.kill();
    let writes = world.list_writes();
    world.start().await;
    let sets = Arc::clone(world.sets.as_ref().unwrap());
    let mut changes = sets.desired().changes();
    changes.wait_for(Option::is_some).await.unwrap();
    assert_eq!(sets.desired().view().set.len(), 20);
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(world.list_writes(), writes, "nothing has changed");
}

#[tokio::test(start_paused = true)]
async fn a_default_duration_counts_from_the_change_of_the_spec_and_a_restart_does_not_renew_it() {
    let mut world = World::with_lists(SET).await;
    world.feed("feed", &[("192.0.2.7", "")]).await;
    world.set_becomes(&["192.0.2.7"], 5 * SECOND).await;
    tokio::time::sleep(60 * SECOND).await;
    world
        .edit_list("feed", json!({"defaultDuration": "10m"}))
        .await;
    tokio::time::sleep(300 * SECOND).await;
    world.kill();
    world.start().await;
    world.set_becomes(&["192.0.2.7"], 10 * SECOND).await;
    tokio::time::sleep(280 * SECOND).await;
    world.set_becomes(&["192.0.2.7"], SECOND).await;
    world.set_becomes(&[], 25 * SECOND).await;
    let status = world
        .list_is("feed", "NothingToEnforce", 20 * 60 * SECOND)
        .await;
    assert_eq!((status.enforced, status.ended), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_changes_every_second_is_followed_with_a_write_every_five_seconds() {
    let world = World::with_lists(SET).await;
    let targets: Vec<String> = (0..30).map(|n| format!("192.0.2.{n}")).collect();
    let began = Instant::now();
    for count in 1..=targets.len() {
        let entries: Vec<(&str, &str)> = targets[..count].iter().map(|it| (&**it, "")).collect();
        world.feed("feed", &entries).await;
        tokio::time::sleep(SECOND).await;
    }
    let all: Vec<&str> = targets.iter().map(String::as_str).collect();
    world.set_becomes(&all, 2 * SECOND).await;
    let status = world.list_is("feed", "Enforced", 10 * SECOND).await;
    assert_eq!(status.enforced, 30);
    let most = began.elapsed().as_secs() / 5 + 1;
    assert!(
        world.list_writes() as u64 <= most,
        "{}",
        world.list_writes()
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_without_the_kind_has_no_lists_and_blocks_are_enforced() {
    let mut world = World::new().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.server.client());
    let delete = DeleteParams::default();
    let name = "blocklists.ops.yiiong.top";
    definitions.delete(name, &delete).await.unwrap();
    world.configure(&[("engine", ""), ("engines", SET)]).await;
    world.start().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 20 * SECOND).await;
    world.set_becomes(&["192.0.2.7"], 5 * SECOND).await;
    // The kind is installed later.
    let [_, lists] = api::crds();
    definitions
        .create(&PostParams::default(), &lists)
        .await
        .unwrap();
    served(&world.server.client()).await;
    world.feed("feed", &[("192.0.2.8", "")]).await;
    world
        .set_becomes(&["192.0.2.7", "192.0.2.8"], 90 * SECOND)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_list_of_five_thousand_entries_is_accepted_and_one_more_is_not() {
    let world = World::with_lists(SET).await;
    let target = |n: usize| format!("11.{}.{}.{}", n >> 16, (n >> 8) & 255, n & 255);
    let targets: Vec<String> = (0..=api::MOST_ENTRIES).map(target).collect();
    let entries: Vec<(&str, &str)> = targets.iter().map(|it| (&**it, "")).collect();
    world.feed("feed", &entries[1..]).await;
    let status = world.list_is("feed", "Enforced", 10 * SECOND).await;
    assert_eq!(status.enforced, 5_000);
    let spec =
        json!({"entries": entries.iter().map(|it| json!({"target": it.0})).collect::<Vec<_>>()});
    let patch = Patch::Merge(json!({ "spec": spec }));
    let params = PatchParams::default();
    let refused = world.lists().patch("feed", &params, &patch).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("5000")));
}

/// A set engine, the brake at three entries, and this allowlist.
fn braked(allowlist: &str) -> [(&str, &str); 4] {
    [
        ("engine", ""),
        ("engines", SET),
        ("brake", "{liftPercent: 50, liftLeast: 3}"),
        ("whitelist", allowlist),
    ]
}

/// A world whose list `feed` has four entries in one range.
async fn with_four_entries() -> World {
    let mut world = World::new().await;
    world.configure(&braked("")).await;
    world.start().await;
    let four = [
        ("192.0.2.1", ""),
        ("192.0.2.2", ""),
        ("192.0.2.3", "2026-01-01T00:05:00Z"),
        ("192.0.2.4", ""),
    ];
    world.feed("feed", &four).await;
    world.list_is("feed", "Enforced", 10 * SECOND).await;
    world
}

const FOUR: [&str; 4] = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"];

#[tokio::test(start_paused = true)]
async fn an_edit_that_would_lift_most_entries_is_held_and_lifts_them_when_it_is_released() {
    let world = with_four_entries().await;
    world.configure(&braked("192.0.2.0/24")).await;
    tokio::time::sleep(10 * SECOND).await;
    world.set_becomes(&FOUR, SECOND).await;
    let held = "4 entries of BlockLists out of 4";
    assert!(world.announced("LiftsBraked", held).await);
    assert_eq!(world.metric("ipblock_brake{kind=\"lifts\"}"), 1.0);
    let entries = |state: &str| world.metric(&format!("ipblock_list_entries{{state=\"{state}\"}}"));
    assert_eq!((entries("held"), entries("refused")), (4.0, 0.0));
    let status = world.list_status("feed").await;
    assert_eq!((status.enforced, status.refused), (4, 0));
    let condition = status.condition(api::condition::LIFT_HELD).unwrap();
    assert_eq!(condition.reason, "LiftBraked");
    assert!(condition.message.contains(held), "{condition:?}");
    let id = condition.message.rsplit(' ').next().unwrap().to_owned();
    // An edit of the list is followed, a new entry follows the rules, and an end is an end.
    let edited = [
        ("192.0.2.1", ""),
        ("192.0.2.2", ""),
        ("192.0.2.3", "2026-01-01T00:05:00Z"),
        ("192.0.2.9", ""),
    ];
    world.feed("feed", &edited).await;
    world.set_becomes(&FOUR[..3], 5 * SECOND).await;
    world.set_becomes(&FOUR[..2], 300 * SECOND).await;
    world.release_brake("lifts-00000000").await;
    tokio::time::sleep(60 * SECOND).await;
    world.set_becomes(&FOUR[..2], SECOND).await;
    world.release_brake(&id).await;
    world.set_becomes(&[], 5 * SECOND).await;
    world.list_is("feed", "NothingToEnforce", 20 * SECOND).await;
    let status = world.list_status("feed").await;
    assert!(status.condition(api::condition::LIFT_HELD).is_none());
    assert_eq!(world.metric("ipblock_brake{kind=\"lifts\"}"), 0.0);
    assert!(world.announced("BrakeReleased", "LiftsBraked").await);
    // The release is bound to that edit.
    world.configure(&braked("")).await;
    world
        .set_becomes(&["192.0.2.1", "192.0.2.2", "192.0.2.9"], 10 * SECOND)
        .await;
    world.configure(&braked("192.0.0.0/16")).await;
    tokio::time::sleep(10 * SECOND).await;
    world
        .set_becomes(&["192.0.2.1", "192.0.2.2", "192.0.2.9"], SECOND)
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_that_lifts_few_entries_is_not_held_and_one_that_is_taken_back_ends_the_brake() {
    let world = with_four_entries().await;
    world.configure(&braked("192.0.2.4")).await;
    world.set_becomes(&FOUR[..3], 5 * SECOND).await;
    assert_eq!(world.metric("ipblock_brake{kind=\"lifts\"}"), 0.0);
    let wrong = [
        ("engine", ""),
        ("engines", SET),
        ("brake", "{liftPercent: 50, liftLeast: 2}"),
        ("whitelist", "192.0.2.4"),
        ("maxDuration", "1h"),
    ];
    world.configure(&wrong).await;
    tokio::time::sleep(10 * SECOND).await;
    world.set_becomes(&FOUR[..3], SECOND).await;
    assert!(world.announced("LiftsBraked", "2 entries").await);
    world
        .configure(&[("engine", ""), ("maxDuration", "")])
        .await;
    tokio::time::sleep(10 * SECOND).await;
    world.set_becomes(&FOUR[..3], SECOND).await;
    assert_eq!(world.metric("ipblock_brake{kind=\"lifts\"}"), 0.0);
    let status = world.list_status("feed").await;
    assert!(status.condition(api::condition::LIFT_HELD).is_none());
}
