//! How bans and blocks end, whatever happens at the same time.

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use reeve_apiserver::faults::Rule;

use super::*;
use crate::engine::{Ban, Capabilities, Error, Remaining, Unban};
use crate::outbound::{self, BoxFuture};
use crate::target::{Target, object_name};
use crate::time::ServerTime;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Engines that take a while, or do not answer at some places.
#[derive(Debug, Default)]
struct Faulty {
    places: Arc<Places>,
    takes: Duration,
    dead: Mutex<BTreeSet<String>>,
    /// Where connections are refused.
    refuses: Mutex<BTreeSet<String>>,
    /// The gateways have no list, as XDP.
    unlisted: bool,
}

#[derive(Debug)]
struct FaultyEngine {
    inner: Arc<dyn Engine>,
    place: Place,
    faults: Arc<Faulty>,
}

/// As a connector.
#[derive(Debug)]
struct Connect(Arc<Faulty>);

impl Connector for Connect {
    fn connect(
        &self,
        place: &Place,
        config: Option<&EngineConfig>,
    ) -> Result<Arc<dyn Engine>, ConnectError> {
        Ok(Arc::new(FaultyEngine {
            inner: self.0.places.connect(place, config)?,
            place: place.clone(),
            faults: Arc::clone(&self.0),
        }))
    }
}

impl FaultyEngine {
    async fn answers(&self) -> Result<(), Error> {
        tokio::time::sleep(self.faults.takes).await;
        if self.faults.refuses.lock().contains(&self.place.endpoint) {
            return Err(Error::NoAnswer {
                gateway: self.place.endpoint.clone(),
                cause: outbound::Error::Refused,
            });
        }
        if self.faults.dead.lock().contains(&self.place.endpoint) {
            return Err(Error::Failed {
                gateway: self.place.endpoint.clone(),
                detail: "dead".into(),
            });
        }
        Ok(())
    }
}

impl Engine for FaultyEngine {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn endpoint(&self) -> &str {
        &self.place.endpoint
    }

    fn ban<'a>(
        &'a self,
        target: &'a Target,
        remaining: Option<Remaining>,
    ) -> BoxFuture<'a, Result<Ban, Error>> {
        Box::pin(async move {
            self.answers().await?;
            self.inner.ban(target, remaining).await
        })
    }

    fn unban<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Unban, Error>> {
        Box::pin(async move {
            self.answers().await?;
            self.inner.unban(target).await
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Option<BTreeSet<Target>>, Error>> {
        if self.faults.unlisted {
            return Box::pin(async { Ok(None) });
        }
        self.inner.list()
    }
}

impl World {
    fn faulty(&self, takes: Duration) -> Arc<Faulty> {
        Arc::new(Faulty {
            places: Arc::clone(&self.places),
            takes,
            dead: Mutex::default(),
            refuses: Mutex::default(),
            unlisted: false,
        })
    }

    async fn phases(&self) -> BTreeMap<String, usize> {
        let mut phases = BTreeMap::new();
        for block in self.blocks.list(&ListParams::default()).await.unwrap() {
            let phase = block.status.and_then(|status| status.phase);
            let phase = phase.map_or_else(|| "none".to_owned(), |phase| phase.to_string());
            *phases.entry(phase).or_default() += 1;
        }
        phases
    }

    async fn server_block(&self, name: &str) -> IPBlock {
        let block = self.blocks.get(name).await;
        block.expect("it is not deleted")
    }

    async fn exists(&self, name: &str) -> bool {
        self.blocks.get_opt(name).await.unwrap().is_some()
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_in_a_flood_of_new_blocks_what_is_due_is_lifted_first() {
    let mut world = World::new().await;
    world.configure(&[]).await;
    world.start().await;
    for n in 0..20 {
        let address = format!("192.0.2.{n}");
        world.create(&format!("due-{n}"), &address, "60s").await;
    }
    world.until("due-19", "active", 5 * SECOND).await;
    tokio::time::sleep(50 * SECOND).await;
    world.kill();
    let slow = world.faulty(SECOND / 5);
    for n in 0..150 {
        let address = format!("198.51.100.{n}");
        world.create(&format!("before-{n}"), &address, "1h").await;
    }
    world
        .start_with(|settings| {
            settings.workers = 2;
            settings.connector = Some(Arc::new(Connect(slow)));
        })
        .await;
    for n in 0..150 {
        let address = format!("203.0.113.{n}");
        world.create(&format!("after-{n}"), &address, "1h").await;
    }
    // Due within 10 s; two at a time, 20 lifts take 2 s, and 300 bans half a minute.
    tokio::time::sleep(14 * SECOND).await;
    let phases = world.phases().await;
    assert_eq!(phases.get("expired"), Some(&20), "{phases:?}");
    let active = phases.get("active").copied().unwrap_or_default();
    assert!((20..200).contains(&active), "a flood all along: {phases:?}");
}

#[tokio::test(start_paused = true)]
async fn in_a_flood_of_new_blocks_what_has_to_be_lifted_is_lifted_first() {
    for restarted in [false, true] {
        let mut world = World::new().await;
        world.configure(&[]).await;
        let slow = Arc::new(Connect(world.faulty(SECOND / 5)));
        world
            .start_with(|settings| {
                settings.workers = 2;
                settings.connector = Some(slow);
            })
            .await;
        for (name, address) in [
            ("deleted", "192.0.2.1"),
            ("unblocked", "192.0.2.2"),
            ("allowed", "192.0.2.3"),
        ] {
            world.create(name, address, "1h").await;
            world.until(name, "active", 5 * SECOND).await;
        }
        if restarted {
            world.kill();
        }
        for n in 0..200 {
            let address = format!("198.51.100.{n}");
            world.create(&format!("new-{n}"), &address, "1h").await;
        }
        let delete = DeleteParams::default();
        world.blocks.delete("deleted", &delete).await.unwrap();
        let unblock = Patch::Merge(json!({"spec": {"unblock": true}}));
        let params = PatchParams::default();
        world
            .blocks
            .patch("unblocked", &params, &unblock)
            .await
            .unwrap();
        if restarted {
            let slow = Arc::new(Connect(world.faulty(SECOND / 5)));
            world
                .start_with(|settings| {
                    settings.workers = 2;
                    settings.connector = Some(slow);
                })
                .await;
        } else {
            world.configure(&[("whitelist", "192.0.2.3")]).await;
        }
        // Two at a time: three lifts take half a second, 200 bans 20 s.
        tokio::time::sleep(3 * SECOND).await;
        assert!(!world.exists("deleted").await, "restarted: {restarted}");
        world.until("unblocked", "expired", SECOND / 10).await;
        if !restarted {
            world.until("allowed", "skipped", SECOND / 10).await;
        }
        let active = world.phases().await.get("active").copied();
        let active = active.unwrap_or_default();
        assert!((5..100).contains(&active), "a flood all along: {active}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_conflicts_after_the_status_loses_no_event() {
    let world = World::configured().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    // The patch of the user, then the one that sets the flag back.
    let flag = Rule::new().verb("patch").resource("ipblocks");
    let flag = flag.subresource("").after(1).times(1);
    world.server.faults().add(flag.status(409, "changed"));
    let patch = Patch::Merge(json!({"spec": {"unblock": true}}));
    let params = PatchParams::default();
    world.blocks.patch("a", &params, &patch).await.unwrap();
    world.until("a", "expired", 5 * SECOND).await;
    tokio::time::sleep(MINUTE).await;
    let events: Api<Event> = Api::namespaced(world.server.client(), "default");
    let events = events.list(&ListParams::default()).await.unwrap();
    let unbanned = |event: &&Event| event.reason.as_deref() == Some("Unbanned");
    assert_eq!(events.iter().filter(unbanned).count(), 1);
    let block = world.blocks.get("a").await.unwrap();
    assert_eq!(block.spec.unblock, Some(false), "set back by the next run");
}

/// A server whose clock is this far behind the simulated one.
#[derive(Debug)]
struct Behind(Clock, Mutex<SignedDuration>);

impl ServerTime for Behind {
    fn read(&self) -> BoxFuture<'_, Result<Option<Timestamp>, String>> {
        let now = self.0.now() - *self.1.lock();
        Box::pin(async move { Ok(Some(now)) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_ahead_lifts_nothing_until_the_api_server_agrees() {
    let mut world = World::new().await;
    world.configure(&[]).await;
    let behind = Arc::new(Behind(world.clock.clone(), Mutex::default()));
    let server = Arc::clone(&behind);
    world
        .start_with(|settings| settings.server_time = Some(server))
        .await;
    world.create("a", "192.0.2.7", "1h").await;
    let before = world.until("a", "active", 5 * SECOND).await;
    *behind.1.lock() = SignedDuration::from_hours(2);
    world.clock.jump(SignedDuration::from_hours(2));
    tokio::time::sleep(MINUTE).await;
    let after = world.status("a").await;
    assert_eq!(after.expires_at, before.expires_at);
    assert_eq!(world.banned(GATEWAY).await.len(), 1, "still banned");
    *behind.1.lock() = SignedDuration::ZERO;
    world.until("a", "expired", 15 * SECOND).await;
}

/// A server with a clock of its own.
#[derive(Debug)]
pub(super) struct At(pub(super) Clock);

impl ServerTime for At {
    fn read(&self) -> BoxFuture<'_, Result<Option<Timestamp>, String>> {
        let now = self.0.now();
        Box::pin(async move { Ok(Some(now)) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_behind_at_the_start_and_is_set_later_ends_no_ban_early_or_late() {
    let mut world = World::new().await;
    world.configure(&[]).await;
    let two_hours = SignedDuration::from_hours(2);
    let node = Clock::simulated(world.clock.now() - two_hours, 5);
    let (clock, server) = (node.clone(), At(world.clock.clone()));
    world
        .start_with(|settings| {
            settings.clock = clock;
            settings.server_time = Some(Arc::new(server));
        })
        .await;
    world.create("a", "192.0.2.7", "1h").await;
    world.create("short", "192.0.2.8", "10m").await;
    let banned = world.until("a", "active", 5 * SECOND).await;
    let left = banned
        .expires_at()
        .unwrap()
        .duration_since(world.clock.now());
    assert!(left > SignedDuration::from_mins(59), "{left:?}");
    world.until("short", "active", 5 * SECOND).await;
    world.until("short", "expired", 10 * MINUTE + SECOND).await;
    node.jump(two_hours);
    tokio::time::sleep(48 * MINUTE).await;
    world.until("a", "active", SECOND).await;
    world.until("a", "expired", 3 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_ban_that_is_no_longer_due_because_the_clock_was_set_back_is_lifted_first_at_its_end() {
    let mut world = World::new().await;
    world.configure(&[]).await;
    let slow = Arc::new(Connect(world.faulty(2 * SECOND)));
    world
        .start_with(|settings| {
            settings.workers = 2;
            settings.connector = Some(slow);
        })
        .await;
    world.create("due", "192.0.2.7", "60s").await;
    let banned = world.until("due", "active", 5 * SECOND).await;
    let end = banned.expires_at().unwrap();
    let left = Duration::try_from(end.duration_since(world.clock.now())).unwrap();
    tokio::time::sleep(left - SECOND / 2).await;
    // Both workers are busy when it is due, and 50 s after.
    for n in 0..60 {
        let address = format!("198.51.100.{n}");
        world.create(&format!("new-{n}"), &address, "1h").await;
    }
    tokio::time::sleep(SECOND).await;
    world.clock.jump(SignedDuration::from_secs(-20));
    tokio::time::sleep(15 * SECOND).await;
    world.until("due", "active", SECOND).await;
    world.until("due", "expired", 10 * SECOND).await;
    let phases = world.phases().await;
    assert!(phases["active"] < 50, "a flood all along: {phases:?}");
}

#[tokio::test(start_paused = true)]
async fn a_block_of_a_trigger_is_deleted_after_its_retention_and_one_of_a_person_stays() {
    let world = World::configured().await;
    world.configure(&[("retention", "1h")]).await;
    let name = object_name("192.0.2.7");
    world.create(&name, "192.0.2.7", "1m").await;
    world.create("by-hand", "192.0.2.8", "1m").await;
    world.until(&name, "expired", 2 * MINUTE).await;
    world.until("by-hand", "expired", 2 * MINUTE).await;
    tokio::time::sleep(58 * MINUTE).await;
    assert!(world.exists(&name).await);
    tokio::time::sleep(3 * MINUTE).await;
    assert!(!world.exists(&name).await);
    assert!(world.exists("by-hand").await);
}

#[tokio::test(start_paused = true)]
async fn a_block_that_may_not_be_deleted_is_tried_again_after_an_hour() {
    let world = World::configured().await;
    world.configure(&[("retention", "1h")]).await;
    let refused = Rule::new().verb("delete").resource("ipblocks").times(1);
    let refused = world.server.faults().add(refused.status(403, "no"));
    let name = object_name("192.0.2.7");
    world.create(&name, "192.0.2.7", "1m").await;
    tokio::time::sleep(HOUR + 5 * MINUTE).await;
    assert_eq!(refused.hits(), 1);
    assert!(world.exists(&name).await);
    tokio::time::sleep(HOUR).await;
    assert!(!world.exists(&name).await);
}

/// What this thread logs.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn blocks_that_may_not_be_deleted_are_counted_each_and_logged_in_one_line() {
    // Otherwise a thread of another test that reaches a line first would disable it for the whole process.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let world = World::configured().await;
    world.configure(&[("retention", "1h")]).await;
    let refused = Rule::new().verb("delete").resource("ipblocks");
    let refused = world.server.faults().add(refused.status(403, "no"));
    for n in 0..10 {
        let address = format!("192.0.2.{n}");
        world.create(&object_name(&address), &address, "1m").await;
    }
    tokio::time::sleep(HOUR + 5 * MINUTE).await;
    assert_eq!(refused.hits(), 10);
    let metrics = world.manager.as_ref().unwrap().metrics().encode();
    let count = "ipblock_collections_refused_total 10";
    assert!(metrics.contains(count), "{metrics}");
    let logged = String::from_utf8(lines.0.lock().clone()).unwrap();
    let logged: Vec<&str> = logged.lines().collect();
    let about = |line: &&&str| line.contains("could not delete a block");
    assert_eq!(logged.iter().filter(about).count(), 1, "{logged:#?}");
}

/// Keeps the API server from sending changes of IPBlocks, until its faults are cleared.
fn unheard(world: &World) -> reeve_apiserver::faults::Handle {
    let faults = world.server.faults();
    let watches = Rule::new().verb("watch").resource("ipblocks");
    let handle = faults.add(watches.status(503, "no watch cache"));
    faults.add(
        Rule::new()
            .verb("list")
            .resource("ipblocks")
            .status(503, "no"),
    );
    world.server.close_watches();
    handle
}

#[tokio::test(start_paused = true)]
async fn a_block_that_changed_while_the_informer_does_not_follow_the_server_is_not_deleted() {
    for (end, change, phase) in [
        ("expired", json!({"spec": {"trigger": true}}), "active"),
        ("expired", json!({"spec": {"unblock": true}}), "expired"),
        (
            "expired",
            json!({"metadata": {"annotations": {api::RETENTION_ANNOTATION: "never"}}}),
            "expired",
        ),
        // Banned by the next alert once the grace is over.
        ("unblocked", json!({"spec": {"trigger": true}}), "active"),
        ("unblocked", json!({"spec": {"unblock": true}}), "expired"),
    ] {
        let what = format!("{end}, then {change}");
        let world = World::configured().await;
        // After an unblock the grace counts, of ten minutes.
        let retention = if end == "expired" { "10m" } else { "10s" };
        world.configure(&[("retention", retention)]).await;
        let name = object_name("192.0.2.7");
        world.create(&name, "192.0.2.7", "1m").await;
        world.until(&name, "active", 5 * SECOND).await;
        let params = PatchParams::default();
        if end == "unblocked" {
            let unblock = Patch::Merge(json!({"spec": {"unblock": true}}));
            world.blocks.patch(&name, &params, &unblock).await.unwrap();
        }
        world.until(&name, "expired", 2 * MINUTE).await;
        tokio::time::sleep(MINUTE).await;
        let tried = Rule::new().verb("delete").resource("ipblocks");
        let tried = world.server.faults().add(tried.delay(SECOND / 1000));
        let unheard = unheard(&world);
        tokio::time::sleep(SECOND).await;
        let patch = Patch::Merge(change);
        world.blocks.patch(&name, &params, &patch).await.unwrap();
        tokio::time::sleep(15 * MINUTE).await;
        let hits = [unheard.hits(), tried.hits()];
        assert!(hits.iter().all(|hits| *hits > 0), "{what}: {hits:?}");
        let block = world.server_block(&name).await;
        assert!(block.metadata.deletion_timestamp.is_none(), "{what}");
        world.server.faults().clear();
        // The change is followed at last.
        world.until(&name, phase, 5 * MINUTE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_alert_within_the_grace_bans_nothing_however_short_the_retention() {
    let world = World::configured().await;
    world.configure(&[("retention", "10s")]).await;
    let name = object_name("192.0.2.7");
    world.create(&name, "192.0.2.7", "1h").await;
    world.until(&name, "active", 5 * SECOND).await;
    let unblock = Patch::Merge(json!({"spec": {"unblock": true}}));
    let params = PatchParams::default();
    world.blocks.patch(&name, &params, &unblock).await.unwrap();
    world.until(&name, "expired", 5 * SECOND).await;
    tokio::time::sleep(9 * MINUTE).await;
    assert!(world.exists(&name).await, "the grace is remembered by it");
    tokio::time::sleep(2 * MINUTE).await;
    assert!(!world.exists(&name).await);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_gateway_that_stays_dead_lets_the_object_go_ten_minutes_after_its_end() {
    let mut world = World::new().await;
    world.configure(&[]).await;
    let faults = world.faulty(Duration::ZERO);
    let connector = Arc::new(Connect(Arc::clone(&faults)));
    world
        .start_with(|settings| settings.connector = Some(connector))
        .await;
    world.create("a", "192.0.2.7", "5m").await;
    world.until("a", "active", 5 * SECOND).await;
    faults.dead.lock().insert(GATEWAY.to_owned());
    let other = "192.0.2.251:9521";
    world.configure(&[("gatewayHost", other)]).await;
    world
        .banned_becomes(other, &["192.0.2.7"], 5 * SECOND)
        .await;
    tokio::time::sleep(14 * MINUTE).await;
    assert_eq!(world.phases().await.get("active"), Some(&1), "still tried");
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(world.phases().await.get("expired"), Some(&1));
    assert!(world.banned(other).await.is_empty());
    let delete = DeleteParams::default();
    world.blocks.delete("a", &delete).await.unwrap();
    tokio::time::sleep(5 * SECOND).await;
    assert!(!world.exists("a").await);
}

#[tokio::test(start_paused = true)]
async fn an_unblock_ends_ten_minutes_after_its_first_failure_at_a_replaced_gateway_across_restarts()
{
    let mut world = World::new().await;
    world.configure(&[]).await;
    let faults = world.faulty(Duration::ZERO);
    let connector = || Some(Arc::new(Connect(Arc::clone(&faults))) as Arc<dyn Connector>);
    world
        .start_with(|settings| settings.connector = connector())
        .await;
    world.create("a", "192.0.2.7", "12h").await;
    world.until("a", "active", 5 * SECOND).await;
    faults.dead.lock().insert(GATEWAY.to_owned());
    let other = "192.0.2.251:9521";
    world.configure(&[("gatewayHost", other)]).await;
    world
        .banned_becomes(other, &["192.0.2.7"], 5 * SECOND)
        .await;
    tokio::time::sleep(60 * MINUTE).await;
    let unblock = Patch::Merge(json!({"spec": {"unblock": true}}));
    let params = PatchParams::default();
    world.blocks.patch("a", &params, &unblock).await.unwrap();
    world.banned_becomes(other, &[], 5 * SECOND).await;
    tokio::time::sleep(5 * MINUTE).await;
    world.kill();
    tokio::time::sleep(MINUTE).await;
    world
        .start_with(|settings| settings.connector = connector())
        .await;
    tokio::time::sleep(3 * MINUTE).await;
    let waiting = world.server_block("a").await;
    assert_eq!(waiting.spec.unblock, Some(true), "still tried");
    let status = waiting.status.unwrap();
    let lifted = status.condition("Lifted").unwrap();
    assert!(lifted.message.contains("retrying until"), "{lifted:?}");
    world.until("a", "expired", 2 * MINUTE).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(world.server_block("a").await.spec.unblock, Some(false));
    assert!(world.announced("LeftBehind", GATEWAY).await);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_of_blocks_that_are_gone() {
    let world = World::configured().await;
    world.configure(&[("retention", "10s")]).await;
    for round in 0..20 {
        for n in 0..10 {
            let address = format!("198.51.{round}.{n}");
            let name = object_name(&address);
            world.create(&name, &address, "10s").await;
        }
        tokio::time::sleep(5 * SECOND).await;
        let claims = world.kept.coverage.lock().len();
        assert_eq!(claims, 10, "round {round}: no more than there are bans");
        tokio::time::sleep(25 * SECOND).await;
    }
    assert!(world.phases().await.is_empty(), "all were deleted");
    let coverage = world.kept.coverage.lock();
    assert!(coverage.is_empty());
    assert_eq!(coverage.next_due().0, None);
    assert!(world.kept.locks.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cached_block_takes_no_more_than_docs_operate_md_says() {
    let world = World::configured().await;
    for n in 0..100 {
        let address = format!("198.51.100.{n}");
        world.create(&object_name(&address), &address, "10s").await;
    }
    tokio::time::sleep(MINUTE).await;
    assert_eq!(world.phases().await.get("expired"), Some(&100));
    let manager = world.manager.as_ref().unwrap();
    let lister = manager.caches().lister::<IPBlock>().unwrap();
    let health = lister.health().unwrap();
    assert_eq!(health.objects, 100);
    let each = health.bytes.total() / health.objects;
    assert!((500..2_000).contains(&each), "{each} bytes a block");
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_lost_its_bans_has_them_again_within_a_minute() {
    for unlisted in [false, true] {
        let mut world = World::new().await;
        world.configure(&[("resyncInterval", "6h")]).await;
        let faults = Arc::new(Faulty {
            places: Arc::clone(&world.places),
            takes: Duration::ZERO,
            dead: Mutex::default(),
            refuses: Mutex::default(),
            unlisted,
        });
        let connector = Arc::new(Connect(faults));
        world
            .start_with(|settings| settings.connector = Some(connector))
            .await;
        for last in 0..50 {
            let address = format!("192.0.2.{last}");
            world.create(&format!("b-{last}"), &address, "12h").await;
        }
        world.until("b-49", "active", 5 * SECOND).await;
        tokio::time::sleep(MINUTE).await;
        let all = world.banned(GATEWAY).await;
        assert_eq!(all.len(), 50);
        for _ in 0..2 {
            let place = Place::new("iptables", GATEWAY);
            let engine = Arc::clone(&world.places.0.lock()[&place]);
            for address in &all {
                engine.unban(&address.parse().unwrap()).await.unwrap();
            }
            tokio::time::sleep(25 * SECOND).await;
            assert_eq!(world.banned(GATEWAY).await, all, "unlisted: {unlisted}");
        }
        let text = world.manager.as_ref().unwrap().metrics().encode();
        assert!(
            text.contains("ipblock_gateway_losses_total 2"),
            "{unlisted}"
        );
        assert!(
            text.contains("ipblock_drift_repaired_total{engine=\"iptables\"} 100"),
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_block_whose_gateway_was_changed_to_a_dead_one_and_back_ends_within_a_minute_of_that() {
    // The end of the ban lies before the restore, or after it.
    for (ban, expected) in [("5m", "expired"), ("12m", "active")] {
        let mut world = World::new().await;
        world.configure(&[]).await;
        let faults = world.faulty(Duration::ZERO);
        let connector = Arc::new(Connect(Arc::clone(&faults)));
        world
            .start_with(|settings| settings.connector = Some(connector))
            .await;
        world.create("a", "192.0.2.7", ban).await;
        world.until("a", "active", 5 * SECOND).await;
        let other = "192.0.2.251:9521";
        faults.refuses.lock().insert(other.to_owned());
        world.configure(&[("gatewayHost", other)]).await;
        tokio::time::sleep(6 * MINUTE).await;
        world.configure(&[("gatewayHost", GATEWAY)]).await;
        world.until("a", expected, MINUTE).await;
        tokio::time::sleep(6 * MINUTE).await;
        world.until("a", "expired", SECOND).await;
        assert!(world.banned(GATEWAY).await.is_empty());
    }
}
