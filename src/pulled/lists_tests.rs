//! Sources as BlockLists, against the built-in API server under virtual time.

use std::ops::Range;

use kube_client::Api;
use kube_client::api::{ListParams, Patch as KubePatch, PatchParams, PostParams};
use kube_core::PartialObjectMeta;
use reeve_apiserver::ApiServer;
use reeve_apiserver::faults::Rule;
use reeve_clock::Clock;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::super::sources::{Sinks, Sources};
use super::super::tests::{Server, ToServer, crowdsec, decisions, feed, triggers};
use super::*;
use crate::api::{BlockListSpec, ListEntry};
use crate::guard::Brake;
use crate::time::Time;
use crate::trigger::in_memory::InMemory;

/// The cache, which is never behind here.
#[derive(Debug)]
struct Current(Api<PartialObjectMeta<BlockList>>);

impl KnownLists for Current {
    fn lists<'a>(&'a self, _: Option<&'a str>) -> BoxFuture<'a, Result<Vec<ObjectMeta>, String>> {
        Box::pin(async move {
            let lists = self.0.list_metadata(&ListParams::default()).await;
            let lists = lists.map_err(|error| error.to_string())?;
            Ok(lists.items.into_iter().map(|list| list.metadata).collect())
        })
    }
}

struct World {
    api: ApiServer,
    lists: Api<BlockList>,
    http: Arc<Server>,
    sources: Arc<Sources>,
    metrics: Metrics,
    time: Time,
    running: Option<AbortOnDropHandle<()>>,
}

fn addresses(numbers: Range<u32>) -> Vec<String> {
    let address = |n: u32| std::net::Ipv4Addr::from(0x0B00_0000 + n).to_string();
    numbers.map(address).collect()
}

const MINUTE: Duration = Duration::from_secs(60);

impl World {
    async fn new() -> Self {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
        let api = ApiServer::builder().clock(clock.clone()).start().await;
        let api = api.unwrap();
        let kube = api.client();
        let definitions = Api::all(kube.clone());
        for definition in crate::api::crds() {
            let create = PostParams::default();
            definitions.create(&create, &definition).await.unwrap();
        }
        let lists: Api<BlockList> = Api::namespaced(kube.clone(), "default");
        while lists.list(&ListParams::default()).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
        let time = Time::trusting(clock);
        let http = Arc::<Server>::default();
        let metrics = Metrics::default();
        let mut world = Self {
            sources: Arc::new(Self::sources(&api, &http, &time, &metrics)),
            api,
            lists,
            http,
            metrics,
            time,
            running: None,
        };
        world.list(0..0);
        world.lead();
        world
    }

    fn sources(api: &ApiServer, http: &Arc<Server>, time: &Time, metrics: &Metrics) -> Sources {
        let longest = Some(Duration::from_secs(7 * 24 * 3600));
        let triggers = Arc::new(triggers(Arc::new(InMemory::default()), time, longest));
        let brakes = Arc::<Brakes>::default();
        let known = Arc::new(Current(Api::namespaced(api.client(), "default")));
        let (client, counts) = (Client::new(api.client()), metrics.clone());
        let sink = ListSink::new(client, known, triggers, Arc::clone(&brakes), counts);
        let sink: Arc<dyn Sink> = Arc::new(sink);
        let sinks = Sinks {
            blocks: Arc::clone(&sink),
            lists: sink,
        };
        let connect = Arc::new(ToServer(Arc::clone(http)));
        Sources::new(connect, sinks, brakes, time.clone(), metrics.clone())
    }

    /// Another replica leads from now on.
    fn lead(&mut self) {
        self.running = None;
        let sources = Self::sources(&self.api, &self.http, &self.time, &self.metrics);
        sources.set_brake(Brake::default(), None);
        self.sources = Arc::new(sources);
        let sources = Arc::clone(&self.sources);
        let run = async move { sources.run(CancellationToken::new()).await };
        self.running = Some(AbortOnDropHandle::new(tokio::spawn(run)));
    }

    /// The server lists these addresses from now on.
    fn list(&self, numbers: Range<u32>) {
        *self.http.list.lock() = (200, addresses(numbers).join("\n"));
    }

    async fn all(&self) -> Vec<BlockList> {
        let all = self.lists.list(&ListParams::default()).await.unwrap();
        all.items
    }

    /// The number of entries of each list.
    async fn sizes(&self) -> Vec<(String, usize)> {
        let all = self.all().await.into_iter();
        let sizes = all.map(|list| (list.metadata.name.unwrap(), list.spec.entries.len()));
        sizes.collect()
    }

    async fn banned(&self) -> usize {
        let (all, now) = (self.all().await, self.time.now());
        let items = all.iter().flat_map(|list| written::items(list).to_vec());
        items.filter(|item| item.until.at().unwrap() > now).count()
    }

    fn writes(&self) -> u64 {
        self.metrics.writes("list", "written") + self.metrics.writes("list", "deleted")
    }

    async fn edit(&self, name: &str, patch: serde_json::Value) {
        let params = PatchParams::default();
        let patch = KubePatch::Merge(patch);
        self.lists.patch(name, &params, &patch).await.unwrap();
    }

    async fn becomes(&self, expected: &[(&str, usize)], limit: Duration) {
        let started = Instant::now();
        loop {
            let sizes = self.sizes().await;
            let sizes: Vec<(&str, usize)> = sizes.iter().map(|(name, it)| (&**name, *it)).collect();
            if sizes == expected {
                return;
            }
            assert!(started.elapsed() < limit, "{sizes:?}");
            sleep(limit / 60).await;
        }
    }
}

fn lists(extra: &str) -> Source {
    feed(&format!("objects: BlockList, {extra}"))
}

#[tokio::test(start_paused = true)]
async fn a_feed_is_kept_as_lists_and_a_change_writes_those_that_changed() {
    let world = World::new().await;
    world.list(0..12_000);
    world.sources.set(&[lists("")]);
    let all = [("list-0", 5_000), ("list-1", 5_000), ("list-2", 2_000)];
    world.becomes(&all, MINUTE).await;
    let list = world.lists.get("list-0").await.unwrap();
    assert_eq!(list.spec.source.as_deref(), Some("list"));
    let entry = &list.spec.entries[0];
    assert_eq!(entry.target, "11.0.0.0");
    assert_eq!(entry.reason.as_deref(), Some("listed by list"));
    let until: jiff::Timestamp = entry.until.as_ref().unwrap().parse().unwrap();
    assert!(until > world.time.now() + jiff::SignedDuration::from_hours(23));
    assert_eq!(world.writes(), 3);
    sleep(6 * 60 * MINUTE).await;
    assert_eq!(world.writes(), 3, "nothing changed");
    world.list(10..12_005);
    sleep(70 * MINUTE).await;
    assert_eq!(
        world.writes(),
        4,
        "the new ones take the room of the others"
    );
    assert_eq!(world.banned().await, 11_995);
    // Each list is renewed when half of its time is over.
    sleep(48 * 60 * MINUTE).await;
    assert_eq!(world.banned().await, 11_995);
    let renewals = world.writes() - 4;
    assert!((9..=15).contains(&renewals), "{renewals} in two days");
}

#[tokio::test(start_paused = true)]
async fn another_replica_reads_what_stands_and_writes_what_changed() {
    let mut world = World::new().await;
    world.list(0..6_000);
    world.sources.set(&[lists("")]);
    let both = [("list-0", 5_000), ("list-1", 1_000)];
    world.becomes(&both, MINUTE).await;
    world.list(0..5_990);
    world.lead();
    world.sources.set(&[lists("")]);
    let less = [("list-0", 5_000), ("list-1", 990)];
    world.becomes(&less, MINUTE).await;
    assert_eq!(world.writes(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_entries_is_taken_back_and_a_list_that_was_deleted_is_made_again() {
    let world = World::new().await;
    world.list(0..10);
    world.sources.set(&[lists("")]);
    world.becomes(&[("list-0", 10)], MINUTE).await;
    let foreign = json!({"spec": {"entries": [{"target": "192.0.2.1"}]}});
    world.edit("list-0", foreign).await;
    world.becomes(&[("list-0", 10)], 70 * MINUTE).await;
    let list = world.lists.get("list-0").await.unwrap();
    assert!(list.spec.entries.iter().all(|entry| entry.until.is_some()));
    let delete = kube_client::api::DeleteParams::default();
    world.lists.delete("list-0", &delete).await.unwrap();
    world.becomes(&[("list-0", 10)], 70 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_list_stays_suspended_and_new_entries_go_to_another() {
    let world = World::new().await;
    world.list(0..10);
    world.sources.set(&[lists("")]);
    world.becomes(&[("list-0", 10)], MINUTE).await;
    let suspended = json!({"spec": {"suspended": true}});
    world.edit("list-0", suspended).await;
    world.list(2..12);
    let apart = [("list-0", 8), ("list-1", 2)];
    world.becomes(&apart, 70 * MINUTE).await;
    let list = world.lists.get("list-0").await.unwrap();
    assert_eq!(list.spec.suspended, Some(true));
    world.list(2..10);
    world.becomes(&[("list-0", 8)], 70 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_status_that_was_written_meanwhile_is_no_conflict() {
    let world = World::new().await;
    world.list(0..10);
    world.sources.set(&[lists("")]);
    world.becomes(&[("list-0", 10)], MINUTE).await;
    let once = Rule::new().verb("patch").resource("blocklists").times(1);
    let once = world
        .api
        .faults()
        .add(once.status(409, "the object has been modified"));
    world.list(0..11);
    world.becomes(&[("list-0", 11)], 70 * MINUTE).await;
    assert_eq!(once.hits(), 1);
    assert_eq!(world.metrics.writes("list", "failed"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_cannot_be_deleted_keeps_no_other_and_a_conflict_is_tried_again_at_once() {
    let world = World::new().await;
    // The brake on lifts lets less than half of the entries go.
    world.list(0..20_002);
    world.sources.set(&[lists("")]);
    let full = (0..5).map(|n| (format!("list-{n}"), if n < 4 { 5_000 } else { 2 }));
    let full: Vec<(String, usize)> = full.collect();
    let full: Vec<(&str, usize)> = full.iter().map(|(name, it)| (&**name, *it)).collect();
    world.becomes(&full, 10 * MINUTE).await;
    let rule = |name: &str, code| {
        let once = Rule::new().verb("delete").resource("blocklists").name(name);
        world
            .api
            .faults()
            .add(once.times(1).status(code, "not now"))
    };
    let (conflict, fault) = (rule("list-1", 409), rule("list-0", 500));
    // The first two lists lose all of their entries.
    world.list(10_000..20_002);
    world.becomes(&full[2..], 70 * MINUTE).await;
    assert_eq!((conflict.hits(), fault.hits()), (1, 1));
    assert_eq!(world.metrics.writes("list", "failed"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_another_client_keeps_its_name_and_its_entries() {
    let world = World::new().await;
    let entry = ListEntry {
        target: "192.0.2.1".into(),
        ..ListEntry::default()
    };
    let spec = BlockListSpec {
        entries: vec![entry],
        ..BlockListSpec::default()
    };
    let create = PostParams::default();
    world
        .lists
        .create(&create, &BlockList::new("list-0", spec))
        .await
        .unwrap();
    world.list(0..10);
    world.sources.set(&[lists("")]);
    world
        .becomes(&[("list-0", 1), ("list-1", 10)], MINUTE)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_lost_most_entries_keeps_them_until_the_brake_is_released() {
    let world = World::new().await;
    world.list(0..6_000);
    world.sources.set(&[lists("")]);
    world
        .becomes(&[("list-0", 5_000), ("list-1", 1_000)], MINUTE)
        .await;
    world.list(5_000..6_100);
    sleep(70 * MINUTE).await;
    assert_eq!(world.banned().await, 6_100, "new ones are banned");
    assert_eq!(world.metrics.held_now("list"), 5_000);
    let held = world.sources.held();
    let (_, id) = held[0].split_once(" to lifts-list-").unwrap();
    let id = format!("lifts-list-{}", &id[..8]);
    world.sources.set_brake(Brake::default(), Some(id));
    world.becomes(&[("list-1", 1_100)], 70 * MINUTE).await;
    assert_eq!(world.metrics.held_now("list"), 0);
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_is_written_later_and_nothing_is_deleted_before() {
    let world = World::new().await;
    world.sources.set_brake(
        Brake {
            lift_percent: 0,
            ..Brake::default()
        },
        None,
    );
    world.list(0..25_000);
    world.sources.set(&[lists("")]);
    sleep(2 * MINUTE).await;
    assert_eq!(world.sizes().await.len(), 5);
    // One entry of a thousand stays: the five lists become one.
    let few = addresses(0..25_000);
    let few: Vec<String> = few.into_iter().step_by(1_000).collect();
    *world.http.list.lock() = (200, few.join("\n"));
    let down = Rule::new().verb("patch").resource("blocklists");
    let down = world.api.faults().add(down.status(503, "no quorum"));
    sleep(61 * MINUTE + 30 * Duration::from_secs(1)).await;
    assert_eq!(world.sizes().await.len(), 5);
    assert!(world.metrics.pulls("list", "unwritten") >= 1);
    down.remove();
    sleep(15 * MINUTE).await;
    assert_eq!(world.banned().await, 25);
    assert_eq!(world.sizes().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn decisions_of_crowdsec_end_by_themselves_and_cost_no_write() {
    let world = World::new().await;
    let mut source = crowdsec("objects: BlockList");
    source.interval = Duration::from_secs(10);
    *world.http.list.lock() = (200, decisions(&addresses(0..100), 2));
    world.sources.set(&[source]);
    world.becomes(&[("list-0", 100)], MINUTE).await;
    let list = world.lists.get("list-0").await.unwrap();
    let reason = list.spec.entries[0].reason.as_deref();
    assert_eq!(reason, Some("CrowdSec: crowdsecurity/ssh-bf (crowdsec)"));
    *world.http.list.lock() = (200, r#"{"new": null, "deleted": null}"#.into());
    sleep(119 * MINUTE).await;
    assert_eq!(world.writes(), 1);
    assert_eq!(world.banned().await, 100);
    *world.http.list.lock() = (200, r#"{"new": null, "deleted": [{"id": 7}]}"#.into());
    sleep(30 * Duration::from_secs(1)).await;
    assert_eq!(world.banned().await, 99, "deleted before its end");
    world.becomes(&[], 5 * MINUTE).await;
    assert_eq!(world.writes(), 3, "written twice, and deleted");
}

#[tokio::test(start_paused = true)]
async fn the_lists_of_a_source_that_is_gone_run_out_and_are_deleted_unless_they_were_edited() {
    let world = World::new().await;
    world.list(0..5_010);
    world.sources.set(&[lists("")]);
    world
        .becomes(&[("list-0", 5_000), ("list-1", 10)], MINUTE)
        .await;
    world.sources.set(&[]);
    world
        .edit(
            "list-1",
            json!({"spec": {"entries": [{"target": "192.0.2.1"}]}}),
        )
        .await;
    sleep(22 * 60 * MINUTE).await;
    assert_eq!(world.sizes().await.len(), 2);
    sleep(4 * 60 * MINUTE).await;
    assert_eq!(world.sizes().await, [("list-1".to_owned(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn many_lists_are_written_at_a_bounded_pace() {
    let world = World::new().await;
    world.list(0..130_000);
    world.sources.set(&[lists("maxEntries: 130000")]);
    let began = Instant::now();
    while world.writes() < 26 {
        assert!(began.elapsed() < 2 * MINUTE, "{}", world.writes());
        sleep(Duration::from_secs(1)).await;
        let most = 21 + began.elapsed().as_secs();
        assert!(world.writes() <= most, "{} of {most}", world.writes());
    }
    assert_eq!(world.banned().await, 130_000);
}

#[tokio::test(start_paused = true)]
async fn without_the_rights_the_error_says_where_they_are_written() {
    let world = World::new().await;
    let forbidden = Rule::new().verb("create").resource("blocklists");
    let _forbidden = world.api.faults().add(forbidden.status(403, "no rights"));
    let source = lists("");
    let sink = world.sources.sinks().lists;
    let targets = std::collections::BTreeSet::from(["192.0.2.1".parse().unwrap()]);
    let entry = super::super::entry::Entry {
        duration: MINUTE,
        reason: "".into(),
    };
    let entries = Entries::same(targets, entry);
    let error = sink.put(&source, &entries, true).await.unwrap_err();
    assert!(
        error.contains("rights to create, patch and delete blocklists"),
        "{error}"
    );
    assert!(error.contains("namespace default"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_cannot_be_deleted_keeps_no_other() {
    let world = World::new().await;
    for name in ["former-0", "former-1"] {
        let mut list = BlockList::of(name, []);
        list.metadata.labels = Some(BlockList::labels_for("former"));
        let past = "2025-12-31T00:00:00Z".to_owned();
        list.metadata.annotations = Some([(crate::api::LAST_END.to_owned(), past)].into());
        let create = PostParams::default();
        world.lists.create(&create, &list).await.unwrap();
    }
    let forbidden = Rule::new().verb("delete").name("former-0");
    let forbidden = world.api.faults().add(forbidden.status(403, "no rights"));
    sleep(70 * MINUTE).await;
    assert_eq!(world.sizes().await, [("former-0".to_owned(), 0)]);
    assert!(forbidden.hits() > 0);
    drop(forbidden);
}
