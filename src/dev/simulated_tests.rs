//! The whole operator under virtual time: API server, engines and gateway in one thread, no sockets.
//!
//! Minutes of faults pass in milliseconds, and every wait is exact.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ipblock_simulator::{Fault, Gateway, Operation, Rule};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::Api;
use kube_client::api::{DeleteParams, ListParams, PostParams};
use kube_core::CustomResourceExt;
use reeve_apiserver::{ApiServer, faults as api_faults};
use reeve_clock::Clock;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::gateway_tests::in_process;
use super::watcher::phase_of;
use crate::api::{IPBlock, IPBlockSpec, Place};
use crate::config::{CONFIG_MAP, EngineConfig, keys};
use crate::engine::{self, Endpoint, Engine, GuardSettings, Guarded, Kind};
use crate::operator::{Operator, Settings};
use crate::reconcile::{ConnectError, Connector};

const ALLOWLISTED: &str = "203.0.113.10";

/// Reaches the simulated gateway in process, with the guard of production.
#[derive(Debug)]
struct InProcess(Gateway);

impl Connector for InProcess {
    fn connect(
        &self,
        place: &Place,
        _: Option<&EngineConfig>,
    ) -> Result<Arc<dyn Engine>, ConnectError> {
        let kind: Kind = place.engine.parse()?;
        let engine = kind.connect(|| Endpoint::parse(&place.endpoint), in_process(&self.0))?;
        let guarded = Guarded::new(engine, GuardSettings::default(), engine::Metrics::new());
        Ok(Arc::new(guarded))
    }
}

struct World {
    server: ApiServer,
    gateway: Gateway,
    clock: Clock,
    blocks: Api<IPBlock>,
    operator: Option<AbortOnDropHandle<()>>,
}

impl World {
    async fn new(engine: &str) -> Self {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 7);
        let server = ApiServer::builder()
            .clock(clock.clone())
            .start()
            .await
            .unwrap();
        let client = server.client();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        definitions
            .create(&PostParams::default(), &IPBlock::crd())
            .await
            .unwrap();
        let blocks: Api<IPBlock> = Api::namespaced(client.clone(), "default");
        while blocks.list(&ListParams::default()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let data = [
            (keys::ENGINE, engine),
            (keys::GATEWAY_HOST, "192.0.2.250:8080"),
            (keys::WHITELIST, ALLOWLISTED),
            (keys::RESYNC_INTERVAL, "1m"),
        ];
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(CONFIG_MAP.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from(
                data.map(|(key, text)| (key.to_owned(), text.to_owned())),
            )),
            ..ConfigMap::default()
        };
        let maps: Api<ConfigMap> = Api::namespaced(client, "default");
        maps.create(&PostParams::default(), &map).await.unwrap();
        let gateway = Gateway::new(clock.clone());
        let mut world = Self {
            server,
            gateway,
            clock,
            blocks,
            operator: None,
        };
        world.start().await;
        world
    }

    async fn start(&mut self) {
        let settings = Settings {
            connector: Some(Arc::new(InProcess(self.gateway.clone()))),
            ..Settings::new(self.clock.clone())
        };
        let operator = Operator::build(self.server.client(), settings)
            .await
            .unwrap();
        let task = tokio::spawn(async move {
            operator.run(CancellationToken::new()).await.unwrap();
        });
        self.operator = Some(AbortOnDropHandle::new(task));
    }

    /// As `kill -9`: nothing more is done by the process.
    fn kill(&mut self) {
        self.operator = None;
    }

    async fn create(&self, name: &str, ip: &str, duration: &str) {
        let spec = IPBlockSpec {
            ip: ip.to_owned(),
            duration: Some(duration.to_owned()),
            ..IPBlockSpec::default()
        };
        let block = IPBlock::new(name, spec);
        self.blocks
            .create(&PostParams::default(), &block)
            .await
            .unwrap();
    }

    async fn create_many(&self, count: u8, duration: &str) {
        for last in 1..=count {
            self.create(
                &format!("block-{last}"),
                &format!("192.0.2.{last}"),
                duration,
            )
            .await;
        }
    }

    async fn in_phase(&self, phase: &str) -> usize {
        let all = self.blocks.list(&ListParams::default()).await.unwrap();
        all.items
            .iter()
            .filter(|block| phase_of(block) == phase)
            .count()
    }

    async fn get(&self, name: &str) -> IPBlock {
        self.blocks.get(name).await.unwrap()
    }

    /// How long it takes until `count` blocks are in `phase`.
    async fn until(&self, phase: &str, count: usize, limit: Duration) -> Duration {
        let started = Instant::now();
        loop {
            let now = self.in_phase(phase).await;
            if now == count {
                return started.elapsed();
            }
            assert!(
                started.elapsed() < limit,
                "{now} of {count} blocks are {phase} after {limit:?}"
            );
            // These tests spend most of their time on lists.
            let pause = if limit > 10 * SECOND { 100 } else { 20 };
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    fn calls(&self, operation: Operation) -> usize {
        let calls = self.gateway.calls();
        calls
            .iter()
            .filter(|call| call.operation == operation)
            .count()
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_gateway_that_hangs_does_not_delay_blocks_that_need_none() {
    let world = World::new("iptables").await;
    world.gateway.faults().set(Fault::Hang);
    world.create_many(50, "1h").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.create("colleague", ALLOWLISTED, "1h").await;
    let took = world.until("skipped", 1, 10 * SECOND).await;
    assert!(took <= Duration::from_millis(1500), "{took:?}");

    // Also later, when probes come and go.
    for round in 0..5 {
        tokio::time::sleep(5 * SECOND).await;
        let name = format!("later-{round}");
        world.create(&name, ALLOWLISTED, "1h").await;
        let took = world.until("skipped", 2 + round, 10 * SECOND).await;
        assert!(took <= Duration::from_millis(200), "{took:?}");
    }
    assert_eq!(world.in_phase("pending").await, 50);
    let calls = world.calls(Operation::Ban);
    assert!(calls <= 40, "{calls} calls");

    world.gateway.faults().clear();
    let took = world.until("active", 50, 45 * SECOND).await;
    assert!(took <= 25 * SECOND, "{took:?}");
    assert_eq!(world.gateway.targets().len(), 50);
}

#[tokio::test(start_paused = true)]
async fn one_address_that_hangs_does_not_delay_the_others() {
    let world = World::new("iptables").await;
    world
        .gateway
        .faults()
        .add(Rule::all(Fault::Hang).target("198.51.100.99"));
    world.create("stuck", "198.51.100.99", "1h").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.create_many(50, "1h").await;
    let took = world.until("active", 50, 10 * SECOND).await;
    assert!(took <= SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn every_fault_is_survived_with_few_calls_and_a_stable_reason() {
    for (fault, words) in [
        (Fault::Reset, "connection closed"),
        (Fault::Status(500), "HTTP 500"),
        (Fault::Fail, "simulated failure"),
    ] {
        let world = World::new("iptables").await;
        world.gateway.faults().set(fault);
        world.create_many(10, "1h").await;
        tokio::time::sleep(30 * SECOND).await;
        let calls = world.calls(Operation::Ban);
        assert!(calls <= 100, "{fault:?}: {calls} calls in 30 s");
        let stuck = world.get("block-1").await;
        let message = stuck.status.clone().unwrap().message.unwrap();
        assert!(message.contains(words), "{message}");
        tokio::time::sleep(30 * SECOND).await;
        let later = world.get("block-1").await;
        assert_eq!(
            stuck.metadata.resource_version, later.metadata.resource_version,
            "{fault:?}: a lasting fault is written once"
        );
        world.gateway.faults().clear();
        world.until("active", 10, 45 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_at_expiry_leaves_no_ban_behind() {
    let world = World::new("xdp").await;
    world.create_many(50, "10s").await;
    world.until("active", 50, 5 * SECOND).await;
    world
        .gateway
        .faults()
        .add(Rule::all(Fault::Status(500)).on(Operation::Unban));
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(
        world.in_phase("expired").await,
        0,
        "what is not lifted is not called expired"
    );
    world.gateway.faults().clear();
    world.until("expired", 50, 45 * SECOND).await;
    assert!(world.gateway.targets().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_lost_a_ban_gets_it_again() {
    let world = World::new("iptables").await;
    world.create_many(5, "1h").await;
    world.until("active", 5, 5 * SECOND).await;
    world.gateway.lose_state();
    let started = Instant::now();
    while world.gateway.targets().len() < 5 {
        assert!(
            started.elapsed() < 120 * SECOND,
            "the interval is one minute"
        );
        tokio::time::sleep(SECOND).await;
    }
    for last in 1..=5 {
        let status = world.get(&format!("block-{last}")).await.status.unwrap();
        assert_eq!(status.bans(), 1, "asserting is no new ban");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_is_one_ban() {
    for engine in ["iptables", "xdp"] {
        let world = World::new(engine).await;
        world
            .gateway
            .faults()
            .add(Rule::all(Fault::LoseAnswer).on(Operation::Ban).times(1));
        world.create("one", "192.0.2.7", "1h").await;
        world.until("active", 1, 10 * SECOND).await;
        assert_eq!(world.get("one").await.status.unwrap().bans(), 1);
        assert_eq!(world.gateway.targets(), ["192.0.2.7"]);
    }
}

#[tokio::test(start_paused = true)]
async fn bans_end_when_due_and_not_before() {
    let world = World::new("xdp").await;
    for last in 1..=60 {
        world
            .create(
                &format!("block-{last}"),
                &format!("192.0.2.{last}"),
                &format!("{last}s"),
            )
            .await;
    }
    world.until("expired", 60, 90 * SECOND).await;
    for last in 1..=60_i64 {
        let status = world.get(&format!("block-{last}")).await.status.unwrap();
        let began = status.blocked_at().unwrap();
        let ended: jiff::Timestamp = status.unblocked_at.unwrap().parse().unwrap();
        let lasted = ended.duration_since(began).as_millis();
        let (least, most) = (i128::from(last) * 1000, i128::from(last) * 1000 + 1000);
        assert!((least..=most).contains(&lasted), "{last} s: {lasted} ms");
    }
    assert!(world.gateway.targets().is_empty());
}

#[tokio::test(start_paused = true)]
async fn after_a_kill_nothing_is_lost_and_nothing_leaks() {
    let mut world = World::new("iptables").await;
    world.create_many(20, "30s").await;
    world.until("active", 20, 5 * SECOND).await;
    world.create("long", "198.51.100.7", "1h").await;
    world.create("gone", "198.51.100.8", "1h").await;
    world.until("active", 22, 5 * SECOND).await;
    world.kill();
    world
        .blocks
        .delete("gone", &DeleteParams::default())
        .await
        .unwrap();
    world.create("meanwhile", "198.51.100.9", "1h").await;
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(world.gateway.targets().len(), 22, "no process lifts them");
    world.start().await;
    let took = world.until("expired", 20, 10 * SECOND).await;
    assert!(took <= 2 * SECOND, "{took:?}");
    world.until("active", 2, 5 * SECOND).await;
    let mut blocked = world.gateway.targets();
    blocked.sort();
    assert_eq!(blocked, ["198.51.100.7", "198.51.100.9"]);
    assert!(world.blocks.get_opt("gone").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_wakes_from_a_suspend_without_its_lease_calls_no_engine() {
    let mut world = World::new("xdp").await;
    world.kill();
    let settings = Settings {
        connector: Some(Arc::new(InProcess(world.gateway.clone()))),
        identity: Some("one".into()),
        ..Settings::new(world.clock.clone())
    };
    let operator = Operator::build(world.server.client(), settings)
        .await
        .unwrap();
    world.operator = Some(AbortOnDropHandle::new(tokio::spawn(async move {
        let ended = operator.run(CancellationToken::new()).await;
        assert!(ended.is_err(), "the lease is lost");
    })));
    world.create("one", "192.0.2.7", "30s").await;
    world.until("active", 1, 30 * SECOND).await;
    let leases = api_faults::Rule::new().resource("leases").stall();
    world.server.faults().add(leases);
    // The ban is due, and the lease over: another replica may lead, and ban the address.
    tokio::time::advance(60 * SECOND).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(world.calls(Operation::Unban), 0);
    world.server.faults().clear();
    world.start().await;
    world.until("expired", 1, 30 * SECOND).await;
    assert!(world.gateway.targets().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_kill_at_any_moment_of_a_burst_converges() {
    for milliseconds in [1_u64, 3, 5, 8, 13, 21, 34] {
        let mut world = World::new("xdp").await;
        let create = world.create_many(10, "20s");
        let _ = tokio::time::timeout(Duration::from_millis(milliseconds), create).await;
        world.kill();
        let made = world
            .blocks
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len();
        world.start().await;
        world.until("active", made, 10 * SECOND).await;
        assert_eq!(world.gateway.targets().len(), made);
        world.kill();
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        world.start().await;
        world.until("expired", made, 30 * SECOND).await;
        assert!(world.gateway.targets().is_empty());
    }
}

/// Bans twenty while the API server misbehaves, and checks that all come and go. They last long enough to be read in
/// time: a block that is read after its own duration is not banned any more. Watches that end at once use up the
/// requests that all informers share, those of nodes, Services and lists too, so that a list may wait for minutes.
async fn survives(what: &str, trouble: impl AsyncFnOnce(&World) -> Vec<api_faults::Handle>) {
    let world = World::new("xdp").await;
    world.create_many(5, "30s").await;
    world.until("active", 5, 5 * SECOND).await;
    let rules = trouble(&world).await;
    for last in 6..=20 {
        let (name, ip) = (format!("block-{last}"), format!("192.0.2.{last}"));
        let created = async {
            loop {
                let spec = IPBlockSpec {
                    ip: ip.clone(),
                    duration: Some("5m".into()),
                    ..IPBlockSpec::default()
                };
                let block = IPBlock::new(&name, spec);
                match world.blocks.create(&PostParams::default(), &block).await {
                    Ok(_) => break,
                    Err(kube_client::Error::Api(status)) if status.code == 409 => break,
                    Err(_) => tokio::time::sleep(SECOND).await,
                }
            }
        };
        created.await;
    }
    let started = Instant::now();
    loop {
        let all = world.blocks.list(&ListParams::default()).await;
        let ended = |block: &IPBlock| phase_of(block) == "expired";
        if all.is_ok_and(|all| all.items.len() == 20 && all.items.iter().all(ended)) {
            break;
        }
        let blocked = world.gateway.targets();
        assert!(
            started.elapsed() < 900 * SECOND,
            "{what}: not settled; the gateway blocks {blocked:?}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(world.gateway.targets().is_empty(), "{what}");
    for rule in &rules {
        assert!(rule.hits() > 0, "{what}: the fault never struck");
    }
    for last in 1..=20 {
        let status = world.get(&format!("block-{last}")).await.status.unwrap();
        assert_eq!(status.bans(), 1, "{what}: block-{last} was banned once");
    }
    for last in 1..=20 {
        let banned = world.gateway.drops([192, 0, 2, last].into());
        assert!(!banned, "{what}: a hole or a rest is left");
    }
}

#[tokio::test(start_paused = true)]
async fn writes_that_conflict_fail_or_lose_their_answer_converge() {
    type Change = fn(api_faults::Rule) -> api_faults::Rule;
    let table: [(&str, Change); 5] = [
        ("conflicts", |rule| {
            rule.status(409, "Operation cannot be fulfilled")
        }),
        ("errors", |rule| rule.status(500, "boom")),
        ("overload", |rule| {
            rule.text(429, "too many requests").retry_after(1)
        }),
        ("resets", api_faults::Rule::reset),
        ("lost answers", api_faults::Rule::lose_answer),
    ];
    for (what, change) in table {
        survives(what, async |world: &World| {
            // The operator patches; the verb does not matter here.
            let patches = api_faults::Rule::new().verb("patch").resource("ipblocks");
            vec![world.server.faults().add(change(patches.probability(0.4)))]
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn watches_that_break_stall_or_are_too_old_converge() {
    type Change = fn(api_faults::Rule) -> api_faults::Rule;
    let table: [(&str, Change); 4] = [
        ("empty watches", api_faults::Rule::close_empty),
        ("broken watches", |rule| rule.reset_after(1)),
        ("cut events", |rule| rule.truncate_after(1)),
        ("gone versions", |rule| {
            rule.status(410, "too old resource version")
        }),
    ];
    for (what, change) in table {
        survives(what, async |world: &World| {
            // The next watch for certain, later ones by chance.
            let watch = || api_faults::Rule::new().verb("watch");
            let first = world.server.faults().add(change(watch().times(1)));
            world.server.faults().add(change(watch().probability(0.6)));
            world.server.close_watches();
            vec![first]
        })
        .await;
    }
    survives("a lost history", async |world: &World| {
        world.server.forget_history(None);
        world.server.close_watches();
        Vec::new()
    })
    .await;
    survives("a watch that falls silent", async |world: &World| {
        let rule = api_faults::Rule::new()
            .verb("watch")
            .stall_after(1)
            .times(2);
        let rule = world.server.faults().add(rule);
        world.server.close_watches();
        vec![rule]
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_restarts_in_the_middle_is_found_again() {
    for seconds in [1, 10, 60] {
        survives("a restart", async |world: &World| {
            world.server.go_down();
            tokio::time::sleep(seconds * SECOND).await;
            world.server.come_up();
            Vec::new()
        })
        .await;
    }
}

/// What the operator wrote since the last `clear`, as `verb resource/subresource`.
fn writes(world: &World) -> Vec<String> {
    let all = world.server.requests().all().into_iter();
    all.filter(|request| {
        matches!(&*request.verb, "create" | "update" | "patch" | "delete")
            && request.code < 300
            && (request.resource == "events" || request.resource == "ipblocks")
    })
    .map(|request| {
        let of = if request.subresource.is_empty() {
            ""
        } else {
            "/"
        };
        format!(
            "{} {}{of}{}",
            request.verb, request.resource, request.subresource
        )
    })
    .collect()
}

#[tokio::test(start_paused = true)]
async fn a_life_costs_five_writes_and_resting_costs_none() {
    let world = World::new("xdp").await;
    world.create("one", "192.0.2.7", "30s").await;
    world.server.requests().clear();
    world.until("active", 1, 5 * SECOND).await;
    tokio::time::sleep(10 * SECOND).await;
    let banned = writes(&world);
    let expected = ["patch ipblocks", "patch ipblocks/status", "create events"];
    assert_eq!(banned, expected, "finalizer and intent, active, Banned");

    world.server.requests().clear();
    world.until("expired", 1, 60 * SECOND).await;
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(writes(&world), ["patch ipblocks/status", "create events"]);

    world.server.requests().clear();
    tokio::time::sleep(3600 * SECOND).await;
    assert!(writes(&world).is_empty(), "an hour of rest");

    world
        .blocks
        .delete("one", &DeleteParams::default())
        .await
        .unwrap();
    world.server.requests().clear();
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(writes(&world), ["patch ipblocks"], "the finalizer");
    assert!(world.blocks.get_opt("one").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_standing_bans_writes_nothing() {
    let world = World::new("iptables").await;
    world.create_many(20, "10h").await;
    world.until("active", 20, 5 * SECOND).await;
    tokio::time::sleep(10 * SECOND).await;
    world.server.requests().clear();
    tokio::time::sleep(3600 * SECOND).await;
    assert!(writes(&world).is_empty());
}

#[tokio::test(start_paused = true)]
async fn two_blocks_on_one_address_hold_until_the_longer_ends() {
    let world = World::new("xdp").await;
    world.create("short", "198.51.100.7", "10s").await;
    world.create("long", "198.51.100.7", "60s").await;
    world.create("around", "198.51.100.0/24", "30s").await;
    world.until("active", 3, 5 * SECOND).await;
    let drops = || world.gateway.drops([198, 51, 100, 7].into());
    for second in 0..59 {
        assert!(drops(), "after {second} s");
        tokio::time::sleep(SECOND).await;
    }
    world.until("expired", 3, 10 * SECOND).await;
    assert!(!drops() && world.gateway.targets().is_empty());
}
