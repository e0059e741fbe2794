//! The whole operator under virtual time: API server, engines and gateway in one thread, no sockets.
//!
//! Minutes of faults pass in milliseconds, and every wait is exact.

mod apiserver;
mod gateway;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ipblock_simulator::{Gateway, Operation};
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
