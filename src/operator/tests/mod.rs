//! The operator against the built-in API server, under virtual time, with engines that only record.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionCondition,
};
use kube_client::Api;
use kube_client::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube_core::ObjectMeta;
use parking_lot::Mutex;
use reeve_apiserver::ApiServer;
use reeve_apiserver::faults::Rule;
use reeve_apiserver::rbac::User;
use reeve_clock::Clock;
use reeve_controller::Manager;
use reeve_controller::health::Health;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{Kept, Operator, Settings};
use crate::api::{
    self, BlockList, INTENT, IPBlock, IPBlockSpec, IPBlockStatus, Place, RELEASE_ANNOTATION,
};
use crate::config::{CONFIG_MAP, EngineConfig};
use crate::engine::{DryRun, Engine};
use crate::names::Resolver;
use crate::outbound::BoxFuture;
use crate::reconcile::{ConnectError, Connector, RECORD};
use crate::sets::Sets;

mod alert;
mod audits;
mod clocks;
mod configurations;
mod contract;
mod days;
mod ends;
mod explored;
mod faulty;
mod full;
mod gateways;
mod guard;
mod lists;
mod pages;
mod records;
mod retentions;
mod rights;
mod sets;
mod takeovers;

/// The credentials of the operator; the test has those of an administrator.
const TOKEN: &str = "the operator's";

/// One recording engine a place, however often it is connected.
#[derive(Debug, Default)]
struct Places(Mutex<BTreeMap<Place, Arc<DryRun>>>);

impl Connector for Places {
    fn connect(
        &self,
        place: &Place,
        _: Option<&EngineConfig>,
    ) -> Result<Arc<dyn Engine>, ConnectError> {
        let engine = Arc::clone(self.0.lock().entry(place.clone()).or_default());
        Ok(engine)
    }
}

/// One address for every name.
#[derive(Debug, Default)]
struct Names(Mutex<Option<IpAddr>>);

impl Resolver for Names {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, Result<Vec<IpAddr>, String>> {
        let address = self.0.lock().ok_or_else(|| "no such name".to_owned());
        Box::pin(async move { Ok(vec![address?]) })
    }
}

struct World {
    server: ApiServer,
    clock: Clock,
    places: Arc<Places>,
    names: Arc<Names>,
    blocks: Api<IPBlock>,
    maps: Api<ConfigMap>,
    operator: Option<AbortOnDropHandle<()>>,
    health: Option<Health>,
    takeover: bool,
    kept: Kept,
    manager: Option<Manager>,
    sets: Option<Arc<Sets>>,
    page: Option<std::net::SocketAddr>,
    triggers: Option<Arc<crate::trigger::Triggers>>,
}

/// Waits until the API server serves the kinds of the operator.
async fn served(client: &kube_client::Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for tries in 0.. {
        let all = definitions.list(&ListParams::default()).await.unwrap();
        let conditions = all.items.iter().map(|definition| {
            let conditions = definition.status.iter().flat_map(|it| &it.conditions);
            conditions.flatten().cloned().collect::<Vec<_>>()
        });
        let conditions: Vec<_> = conditions.collect();
        let established = |all: &Vec<CustomResourceDefinitionCondition>| {
            all.iter()
                .any(|it| it.type_ == "Established" && it.status == "True")
        };
        if conditions.iter().all(established) {
            break;
        }
        assert!(tries < 1_000, "{conditions:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (blocks, lists): (Api<IPBlock>, Api<BlockList>) =
        (Api::all(client.clone()), Api::all(client.clone()));
    let one = ListParams::default().limit(1);
    while blocks.list(&one).await.is_err() || lists.list(&one).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl World {
    async fn new() -> Self {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 3);
        let account = User::service_account("default", "ipblock-operator", "");
        let server = ApiServer::builder()
            .clock(clock.clone())
            .token(TOKEN, account)
            .start()
            .await
            .unwrap();
        let client = server.client();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let create = PostParams::default();
        for definition in api::crds() {
            definitions.create(&create, &definition).await.unwrap();
        }
        let blocks: Api<IPBlock> = Api::namespaced(client.clone(), "default");
        served(&client).await;
        Self {
            server,
            clock,
            places: Arc::default(),
            names: Arc::default(),
            blocks,
            maps: Api::namespaced(client, "default"),
            operator: None,
            health: None,
            takeover: false,
            kept: Kept::default(),
            manager: None,
            sets: None,
            page: None,
            triggers: None,
        }
    }

    /// Why the replica is not ready.
    fn unready(&self) -> String {
        let failures = self.health.as_ref().unwrap().ready().failures();
        format!("{failures:?}")
    }

    async fn annotate(&self, name: &str, intent: &str) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {INTENT: intent}}}));
        let params = PatchParams::default();
        self.blocks.patch(name, &params, &patch).await.unwrap();
    }

    /// How often blocks were reconciled so far.
    fn reconciles(&self) -> u64 {
        let text = self.manager.as_ref().unwrap().metrics().encode();
        let series = "controller_runtime_reconcile_total{controller=\"ipblock\"";
        let lines = text.lines().filter(|line| line.starts_with(series));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }

    /// Whether there is an Event with this reason and words.
    async fn announced(&self, reason: &str, words: &str) -> bool {
        let events: Api<Event> = Api::namespaced(self.server.client(), "default");
        let events = events.list(&ListParams::default()).await.unwrap();
        events.items.iter().any(|event| {
            let note = event.note.as_deref().unwrap_or_default();
            event.reason.as_deref() == Some(reason) && note.contains(words)
        })
    }

    /// Whether anything was ever called at the gateway of this address.
    fn called(&self, gateway: &str) -> bool {
        let places = self.places.0.lock();
        places.keys().any(|place| place.endpoint == gateway)
    }

    async fn configured() -> Self {
        let mut world = Self::new().await;
        world.configure(&[]).await;
        world.start().await;
        world
    }

    async fn configure(&self, more: &[(&str, &str)]) {
        let mut data = BTreeMap::from(
            [("engine", "iptables"), ("gatewayHost", "192.0.2.250:9521")]
                .map(|(key, text)| (key.to_owned(), text.to_owned())),
        );
        for (key, text) in more {
            data.insert((*key).to_owned(), (*text).to_owned());
        }
        if self.maps.get_opt(CONFIG_MAP).await.unwrap().is_some() {
            let patch = Patch::Merge(json!({ "data": data }));
            let params = PatchParams::default();
            self.maps.patch(CONFIG_MAP, &params, &patch).await.unwrap();
            return;
        }
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(CONFIG_MAP.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        };
        self.maps
            .create(&PostParams::default(), &map)
            .await
            .unwrap();
    }

    async fn start(&mut self) {
        self.start_with(|_| {}).await;
    }

    async fn start_with(&mut self, change: impl FnOnce(&mut Settings)) {
        let mut settings = Settings {
            connector: Some(Arc::clone(&self.places) as Arc<dyn Connector>),
            resolver: Arc::clone(&self.names) as Arc<dyn Resolver>,
            takeover: self.takeover,
            ..Settings::new(self.clock.clone())
        };
        change(&mut settings);
        let client = self.server.client_with(Some(TOKEN));
        let operator = Operator::build(client, settings).await.unwrap();
        self.health = Some(operator.manager().health().clone());
        self.kept = operator.kept.clone();
        self.page = operator.page_address();
        self.manager = Some(operator.manager().clone());
        self.sets = Some(Arc::clone(operator.sets()));
        self.triggers = Some(Arc::clone(operator.triggers()));
        let task = tokio::spawn(async move {
            operator.run(CancellationToken::new()).await.unwrap();
        });
        self.operator = Some(AbortOnDropHandle::new(task));
    }

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
        let create = PostParams::default();
        self.blocks.create(&create, &block).await.unwrap();
    }

    async fn status(&self, name: &str) -> IPBlockStatus {
        let block = self.blocks.get(name).await.unwrap();
        block.status.unwrap_or_default()
    }

    async fn until(&self, name: &str, phase: &str, limit: Duration) -> IPBlockStatus {
        let started = Instant::now();
        loop {
            let status = self.status(name).await;
            if status
                .phase
                .as_ref()
                .is_some_and(|now| now.as_str() == phase)
            {
                return status;
            }
            assert!(
                started.elapsed() < limit,
                "{name} is not {phase} after {limit:?}: {status:?}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What is banned at the gateway of this address.
    async fn banned(&self, gateway: &str) -> BTreeSet<String> {
        let place = Place::new("iptables", gateway);
        let engine = self.places.0.lock().get(&place).cloned();
        let Some(engine) = engine else {
            return BTreeSet::new();
        };
        let listed = engine.list().await.unwrap().unwrap();
        listed.iter().map(ToString::to_string).collect()
    }

    async fn banned_becomes(&self, gateway: &str, expected: &[&str], limit: Duration) {
        let expected: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
        let started = Instant::now();
        while self.banned(gateway).await != expected {
            let now = self.banned(gateway).await;
            assert!(
                started.elapsed() < limit,
                "{now:?} is banned after {limit:?}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
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

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const GATEWAY: &str = "192.0.2.250:9521";

#[tokio::test(start_paused = true)]
async fn a_block_whose_finalizer_another_client_removed_is_lifted_when_it_is_gone() {
    let world = World::configured().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    // At the same time, so that the finalizer is not put back in between.
    let delete = DeleteParams::default();
    let strip = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let params = PatchParams::default();
    let (_, stripped) = tokio::join!(
        world.blocks.delete("a", &delete),
        world.blocks.patch("a", &params, &strip)
    );
    drop(stripped);
    world.banned_becomes(GATEWAY, &[], 5 * SECOND).await;
    assert!(world.blocks.get_opt("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn two_namespaces_cannot_lift_each_others_bans() {
    let world = World::configured().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    let other: Api<IPBlock> = Api::namespaced(world.server.client(), "kube-public");
    let spec = IPBlockSpec {
        ip: "192.0.2.7".into(),
        duration: Some("10s".into()),
        ..IPBlockSpec::default()
    };
    let create = PostParams::default();
    other
        .create(&create, &IPBlock::new("b", spec))
        .await
        .unwrap();
    tokio::time::sleep(15 * SECOND).await;
    let lifted = other.get("b").await.unwrap().status.unwrap();
    let message = lifted.message.unwrap();
    assert!(message.contains("stays banned by default/a"), "{message}");
    assert_eq!(
        world.banned(GATEWAY).await,
        BTreeSet::from(["192.0.2.7".into()])
    );
}
