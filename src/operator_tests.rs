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
use crate::outbound::BoxFuture;
use crate::reconcile::{ConnectError, Connector, RECORD, Resolver};
use crate::sets::Sets;

#[path = "operator_audit_tests.rs"]
mod audits;
#[path = "operator_end_tests.rs"]
mod ends;
#[path = "operator_gateway_tests.rs"]
mod gateways;

#[path = "operator_guard_tests.rs"]
mod guard;
#[path = "operator_list_tests.rs"]
mod lists;
#[path = "operator_page_tests.rs"]
mod pages;
#[path = "operator_record_tests.rs"]
mod records;
#[path = "operator_rights_tests.rs"]
mod rights;
#[path = "operator_sets_tests.rs"]
mod sets;

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
}

const SECOND: Duration = Duration::from_secs(1);
const GATEWAY: &str = "192.0.2.250:9521";

#[tokio::test(start_paused = true)]
async fn when_the_wall_clock_is_set_forward_what_is_due_is_lifted() {
    let world = World::configured().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    world.clock.jump(SignedDuration::from_hours(2));
    world.until("a", "expired", 5 * SECOND).await;
    assert!(world.banned(GATEWAY).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_block_made_before_its_configuration_says_what_it_waits_for_and_is_banned_with_it() {
    let mut world = World::new().await;
    world.start().await;
    world.create("a", "192.0.2.7", "1h").await;
    let status = world.until("a", "pending", 20 * SECOND).await;
    let message = status.message.unwrap();
    assert!(message.contains(CONFIG_MAP), "{message}");
    world.configure(&[]).await;
    world.until("a", "active", 5 * SECOND).await;
    assert_eq!(
        world.banned(GATEWAY).await,
        BTreeSet::from(["192.0.2.7".into()])
    );
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_becomes_wrong_or_goes_leaves_the_last_one_in_force() {
    let world = World::configured().await;
    world.configure(&[("whitelist", "192.0.2.7")]).await;
    world.create("allowed", "192.0.2.7", "1h").await;
    world.until("allowed", "skipped", 5 * SECOND).await;
    world
        .configure(&[("whitelist", "192.0.2.7\nnonsense")])
        .await;
    tokio::time::sleep(SECOND).await;
    world.create("still", "192.0.2.7/32", "1h").await;
    world.until("still", "skipped", 5 * SECOND).await;
    let delete = DeleteParams::default();
    world.maps.delete(CONFIG_MAP, &delete).await.unwrap();
    tokio::time::sleep(SECOND).await;
    world.create("range", "192.0.2.0/28", "1h").await;
    world.until("range", "skipped", 5 * SECOND).await;
    world.create("other", "198.51.100.7", "1h").await;
    world.until("other", "active", 5 * SECOND).await;
}

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
async fn without_a_configuration_what_is_due_is_lifted_where_it_was_banned() {
    let mut world = World::configured().await;
    world.create("due", "192.0.2.7", "1m").await;
    world.create("standing", "192.0.2.8", "1h").await;
    world.until("due", "active", 5 * SECOND).await;
    world.until("standing", "active", 5 * SECOND).await;
    world.kill();
    let delete = DeleteParams::default();
    world.maps.delete(CONFIG_MAP, &delete).await.unwrap();
    tokio::time::sleep(90 * SECOND).await;
    world.start().await;
    world.until("due", "expired", 15 * SECOND).await;
    world
        .banned_becomes(GATEWAY, &["192.0.2.8"], 15 * SECOND)
        .await;
    world.until("standing", "active", SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_moved_gateway_takes_every_ban_with_it() {
    let world = World::configured().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.create("b", "192.0.2.8", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    world.until("b", "active", 5 * SECOND).await;
    let before = world.status("a").await;
    world
        .configure(&[("gatewayHost", "192.0.2.251:9521")])
        .await;
    let both = ["192.0.2.7", "192.0.2.8"];
    world
        .banned_becomes("192.0.2.251:9521", &both, 5 * SECOND)
        .await;
    world.banned_becomes(GATEWAY, &[], 5 * SECOND).await;
    tokio::time::sleep(SECOND).await;
    let after = world.status("a").await;
    assert_eq!(after.expires_at, before.expires_at, "moving is no new ban");
    assert_eq!(after.ban_count, Some(1));
    let delete = DeleteParams::default();
    world.blocks.delete("a", &delete).await.unwrap();
    world
        .banned_becomes("192.0.2.251:9521", &["192.0.2.8"], 5 * SECOND)
        .await;
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

const STRANGE: &str = "10.0.0.7:80";

fn strange_intent(target: &str, attempt: i64) -> String {
    let place = Place::new("iptables", STRANGE);
    api::Intent::new(target.parse().unwrap(), place, attempt).to_string()
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_only_an_annotation_names_is_never_called() {
    let mut world = World::configured().await;
    // A user of blocks tries to have an address called: before the first ban, while active, and to lift.
    let spec = IPBlockSpec {
        ip: "192.0.2.1".into(),
        unblock: Some(true),
        ..IPBlockSpec::default()
    };
    let mut block = IPBlock::new("born", spec);
    let annotations = block.metadata.annotations.get_or_insert_default();
    annotations.insert(INTENT.into(), strange_intent("192.0.2.1", 1));
    let create = PostParams::default();
    world.blocks.create(&create, &block).await.unwrap();
    tokio::time::sleep(5 * SECOND).await;
    let message = world.status("born").await.message.unwrap();
    assert!(message.contains("formerGateways"), "{message}");
    let released = Patch::Merge(json!({"metadata": {"annotations": {RELEASE_ANNOTATION: "true"}}}));
    let params = PatchParams::default();
    world
        .blocks
        .patch("born", &params, &released)
        .await
        .unwrap();
    world.until("born", "expired", 5 * SECOND).await;

    world.create("active", "192.0.2.7", "1h").await;
    world.until("active", "active", 5 * SECOND).await;
    world
        .annotate("active", &strange_intent("192.0.2.7", 5))
        .await;
    let mut also: api::Intent = strange_intent("192.0.2.7", 1).parse().unwrap();
    also.also = vec![also.standing.clone()];
    also.standing.place = Place::new("iptables", GATEWAY);
    tokio::time::sleep(5 * SECOND).await;
    world.annotate("active", &also.to_string()).await;
    tokio::time::sleep(5 * SECOND).await;
    world.banned_becomes(GATEWAY, &["192.0.2.7"], SECOND).await;

    // A new leader reads the objects, and an object may be gone without its finalizer.
    world.kill();
    world
        .annotate("active", &strange_intent("192.0.2.7", 1))
        .await;
    world.start().await;
    tokio::time::sleep(5 * SECOND).await;
    world
        .annotate("active", &strange_intent("192.0.2.7", 1))
        .await;
    let delete = DeleteParams::default();
    world.blocks.delete("active", &delete).await.unwrap();
    world.banned_becomes(GATEWAY, &[], 5 * SECOND).await;
    tokio::time::sleep(60 * SECOND).await;
    assert!(world.blocks.get_opt("active").await.unwrap().is_some());
    world
        .blocks
        .patch("active", &params, &released)
        .await
        .unwrap();
    tokio::time::sleep(5 * SECOND).await;
    assert!(world.blocks.get_opt("active").await.unwrap().is_none());
    assert!(!world.called(STRANGE));
}

#[tokio::test(start_paused = true)]
async fn a_gateway_replaced_while_nothing_runs_is_still_called_to_lift_what_stands_there() {
    let mut world = World::configured().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    world.kill();
    let next = "192.0.2.251:9521";
    world.configure(&[("gatewayHost", next)]).await;
    world.start().await;
    world
        .banned_becomes(next, &["192.0.2.7"], 15 * SECOND)
        .await;
    world.banned_becomes(GATEWAY, &[], 15 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_record_a_ban_at_a_replaced_gateway_is_lifted_once_the_gateway_is_named() {
    for end in ["stands", "deleted", "due"] {
        let mut world = World::configured().await;
        world.create("a", "192.0.2.7", "10m").await;
        world.until("a", "active", 5 * SECOND).await;
        world.kill();
        // As after an upgrade from a version that kept no record.
        let delete = DeleteParams::default();
        world.maps.delete(RECORD, &delete).await.unwrap();
        let next = "192.0.2.251:9521";
        world.configure(&[("gatewayHost", next)]).await;
        world.start().await;
        world
            .banned_becomes(next, &["192.0.2.7"], 15 * SECOND)
            .await;
        if end == "deleted" {
            world.blocks.delete("a", &delete).await.unwrap();
        }
        if end == "due" {
            tokio::time::sleep(700 * SECOND).await;
        }
        let here: &[&str] = if end == "stands" { &["192.0.2.7"] } else { &[] };
        world.banned_becomes(next, here, 5 * SECOND).await;
        tokio::time::sleep(60 * SECOND).await;
        let left = BTreeSet::from(["192.0.2.7".to_owned()]);
        assert_eq!(world.banned(GATEWAY).await, left, "{end}");
        assert!(world.blocks.get_opt("a").await.unwrap().is_some(), "{end}");
        let former = format!("iptables {GATEWAY}");
        let edit = [("gatewayHost", next), ("formerGateways", former.as_str())];
        world.configure(&edit).await;
        // Standing bans are asserted, and lifted where they should not be, every five minutes.
        world.banned_becomes(GATEWAY, &[], 400 * SECOND).await;
        match end {
            "stands" => drop(world.until("a", "active", SECOND).await),
            "due" => drop(world.until("a", "expired", 5 * SECOND).await),
            _ => {
                tokio::time::sleep(5 * SECOND).await;
                assert!(world.blocks.get_opt("a").await.unwrap().is_none());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_record_and_beside_a_wrong_configuration_what_is_due_is_lifted() {
    let mut world = World::configured().await;
    world.create("due", "192.0.2.7", "1m").await;
    world.create("standing", "192.0.2.8", "1h").await;
    world.until("due", "active", 5 * SECOND).await;
    world.until("standing", "active", 5 * SECOND).await;
    world.kill();
    let delete = DeleteParams::default();
    world.maps.delete(RECORD, &delete).await.unwrap();
    world.configure(&[("whitelist", "203.0.113.0/33")]).await;
    tokio::time::sleep(90 * SECOND).await;
    world.start().await;
    world.until("due", "expired", 15 * SECOND).await;
    world.banned_becomes(GATEWAY, &["192.0.2.8"], SECOND).await;
    world.until("standing", "active", SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_yet_is_not_overwritten_and_counts_when_it_can() {
    let mut world = World::new().await;
    world.configure(&[("whitelist", "203.0.113.0/24")]).await;
    world.start().await;
    world.create("before", "203.0.113.7", "1h").await;
    world.until("before", "skipped", 20 * SECOND).await;
    world.kill();
    // The allowlist gets lost while the access rules are those of an earlier version.
    let lost = Patch::Merge(json!({"data": {"whitelist": null}}));
    let params = PatchParams::default();
    world.maps.patch(CONFIG_MAP, &params, &lost).await.unwrap();
    let denied = Rule::new().verb("get").resource("configmaps").name(RECORD);
    let denied = world.server.faults().add(denied.status(403, "no"));
    world.start().await;
    tokio::time::sleep(60 * SECOND).await;
    assert!(denied.hits() > 1, "it is read again");
    world.server.faults().clear();
    tokio::time::sleep(15 * SECOND).await;
    let record = world.maps.get(RECORD).await.unwrap().data.unwrap();
    assert!(record.contains_key("whitelist"), "{record:?}");
    world.create("after", "203.0.113.8", "1h").await;
    world.until("after", "skipped", 20 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn beside_a_configuration_that_was_never_right_nothing_is_banned_and_readiness_says_why() {
    for (key, text) in [
        ("whitelist", "198.51.100.0/24\n203.0.113.0/33"),
        ("engine", "iptable"),
    ] {
        let mut world = World::new().await;
        world.configure(&[(key, text)]).await;
        world.start().await;
        world.create("office", "203.0.113.7", "1h").await;
        let status = world.until("office", "pending", 20 * SECOND).await;
        let message = status.message.unwrap();
        assert!(message.contains(key), "{message}");
        assert!(world.unready().contains(key), "{}", world.unready());
        assert!(world.announced("ConfigInvalid", key).await);
        tokio::time::sleep(600 * SECOND).await;
        assert!(world.places.0.lock().is_empty(), "no gateway was called");
        // The edit that corrects it.
        let mended = if key == "engine" {
            "iptables"
        } else {
            "203.0.113.0/24"
        };
        world.configure(&[(key, mended)]).await;
        let phase = if key == "engine" { "active" } else { "skipped" };
        world.until("office", phase, 20 * SECOND).await;
        assert_eq!(world.unready(), "[]");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_beside_a_wrong_edit_goes_on_with_the_last_good_configuration() {
    let mut world = World::configured().await;
    world.configure(&[("whitelist", "203.0.113.0/24")]).await;
    world.create("before", "203.0.113.7", "1h").await;
    world.until("before", "skipped", 5 * SECOND).await;
    world.kill();
    world
        .configure(&[("whitelist", "203.0.113.0/33"), ("engine", "iptable")])
        .await;
    world.start().await;
    world.create("office", "203.0.113.8", "1h").await;
    world.until("office", "skipped", 20 * SECOND).await;
    world.create("other", "198.51.100.7", "1h").await;
    world.until("other", "active", 20 * SECOND).await;
    assert_eq!(
        world.unready(),
        "[]",
        "as the replica that was not restarted"
    );
    assert_eq!(
        world.banned(GATEWAY).await,
        BTreeSet::from(["198.51.100.7".into()])
    );
    // The same holds for the whole ConfigMap.
    world.kill();
    let delete = DeleteParams::default();
    world.maps.delete(CONFIG_MAP, &delete).await.unwrap();
    world.start().await;
    world.create("late", "203.0.113.9", "1h").await;
    world.until("late", "skipped", 20 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn in_a_takeover_only_the_first_configuration_is_read_leniently_at_a_restart_too() {
    let mut world = World::new().await;
    world.takeover = true;
    world
        .configure(&[("whitelist", "203.0.113.0/24\nexample.com")])
        .await;
    world.start().await;
    world.create("office", "203.0.113.7", "1h").await;
    world.until("office", "skipped", 20 * SECOND).await;
    for _ in 0..2 {
        world.kill();
        world.start().await;
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!(world.unready(), "[]");
        world.until("office", "skipped", SECOND).await;
        // An edit, refused now and after the next restart.
        world.configure(&[("whitelist", "example.com")]).await;
        tokio::time::sleep(10 * SECOND).await;
        world.until("office", "skipped", SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_allowlist_whose_key_is_gone_stays_and_an_emptied_one_is_empty() {
    let world = World::configured().await;
    world.configure(&[("whitelist", "203.0.113.0/24")]).await;
    world.create("office", "203.0.113.7", "1h").await;
    world.until("office", "skipped", 5 * SECOND).await;
    let gone = Patch::Merge(json!({"data": {"whitelist": null, "whiteList": "203.0.113.0/24"}}));
    let params = PatchParams::default();
    world.maps.patch(CONFIG_MAP, &params, &gone).await.unwrap();
    tokio::time::sleep(30 * SECOND).await;
    world.until("office", "skipped", SECOND).await;
    world.configure(&[("whitelist", "")]).await;
    world.until("office", "active", 5 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_trigger_that_cannot_listen_leaves_the_replica_ready_while_another_listens() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = (taken.local_addr().unwrap().to_string(), taken);
    let entry = |name: &str, address: &str| {
        format!("{{name: {name}, type: grafana, addr: '{address}', path: /p, insecure: true}}")
    };
    let world = World::configured().await;
    let alone = format!("[{}]", entry("one", &taken.0));
    world.configure(&[("trigger", &alone)]).await;
    tokio::time::sleep(SECOND).await;
    assert!(
        world.unready().contains("cannot listen"),
        "{}",
        world.unready()
    );
    let both = format!(
        "[{}, {}]",
        entry("one", &taken.0),
        entry("two", "127.0.0.1:0")
    );
    world.configure(&[("trigger", &both)]).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(world.unready(), "[]");
    assert!(world.announced("ConfigPartly", "cannot listen").await);
}
