//! The operator under the explorer of faults: each crash, lost answer, late event and old view, one after the other.

use futures::FutureExt as _;
use reeve_controller::testing::explore::{Explorer, Failure, Outside, State, World};
use serde::Serialize;

use super::*;
use crate::engine::{self, Ban, Capabilities, Kind, Remaining, Unban};
use crate::outbound;
use crate::target::Target;

/// What a gateway bans.
#[derive(Debug, Default, Serialize)]
struct Bans(BTreeMap<String, BTreeSet<String>>);

/// A gateway whose calls are effects of a run.
#[derive(Debug)]
struct Gateway {
    outside: Outside<Bans>,
    at: Place,
}

#[derive(Debug)]
struct Gateways(Outside<Bans>);

// === impl Gateway ===

impl Gateway {
    async fn call<T>(
        &self,
        name: String,
        call: impl FnOnce(&mut BTreeSet<String>) -> T,
    ) -> Result<T, engine::Error> {
        let at = self.at.endpoint.clone();
        let name = format!("{name} at {at}");
        let called = self
            .outside
            .call(&name, |bans| call(bans.0.entry(at.clone()).or_default()));
        called.await.map_err(|failure| engine::Error::NoAnswer {
            gateway: self.at.endpoint.clone(),
            cause: match failure {
                Failure::Lost => outbound::Error::Reset,
                Failure::Refused => outbound::Error::Refused,
            },
        })
    }
}

impl Engine for Gateway {
    fn capabilities(&self) -> Capabilities {
        Kind::Xdp.capabilities()
    }

    fn endpoint(&self) -> &str {
        &self.at.endpoint
    }

    fn ban<'a>(
        &'a self,
        target: &'a Target,
        _: Option<Remaining>,
    ) -> BoxFuture<'a, Result<Ban, engine::Error>> {
        let name = format!("ban {target}");
        let banned = self.call(name, move |bans| bans.insert(target.to_string()));
        let banned = async move {
            Ok(if banned.await? {
                Ban::Added
            } else {
                Ban::Already
            })
        };
        Box::pin(banned)
    }

    fn unban<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Unban, engine::Error>> {
        let name = format!("unban {target}");
        let lifted = self.call(name, move |bans| bans.remove(&target.to_string()));
        let lifted = async move {
            Ok(if lifted.await? {
                Unban::Removed
            } else {
                Unban::Absent
            })
        };
        Box::pin(lifted)
    }

    fn list(&self) -> BoxFuture<'_, Result<Option<BTreeSet<Target>>, engine::Error>> {
        let banned = self.outside.read(|bans| {
            let banned = bans.0.get(&self.at.endpoint).into_iter().flatten();
            banned.map(|target| target.parse().unwrap()).collect()
        });
        Box::pin(async move { Ok(Some(banned.await)) })
    }
}

impl Connector for Gateways {
    fn connect(
        &self,
        place: &Place,
        _: Option<&EngineConfig>,
    ) -> Result<Arc<dyn Engine>, ConnectError> {
        Ok(Arc::new(Gateway {
            outside: self.0.clone(),
            at: place.clone(),
        }))
    }
}

fn explorer() -> Explorer<Bans> {
    let [blocks, lists] = api::crds();
    let explorer = Explorer::of_program(|process| {
        let settings = Settings {
            connector: Some(Arc::new(Gateways(process.outside()))),
            ..Settings::new(process.clock().clone())
        };
        let kube = process.kube();
        async move {
            let operator = Operator::build(kube, settings).await.unwrap();
            let _ = operator.run(CancellationToken::new()).await;
        }
        .boxed()
    });
    let explorer = explorer
        .install_definition(blocks)
        .install_definition(lists);
    // The history of a block whose end was seen before its beginning is another one: no attempt, no ban, no finalizer.
    let mut explorer = explorer;
    for name in ["short", "long"] {
        for field in ["metadata/annotations", "metadata/finalizers", "status"] {
            explorer = explorer.mask(&format!("ipblocks default/{name}/{field}"));
        }
    }
    let explorer = explorer.at_rest("the block that was lifted is inactive", |state, _| {
        let mut long = state.of("ipblocks").iter();
        let long = long.find(|block| block["metadata"]["name"] == "long");
        long.is_none_or(|long| {
            long["spec"]["unblock"] != true || long["status"]["phase"] == "inactive"
        })
    });
    explorer.at_rest(
        "what is banned has an active block",
        |state: &State, bans: &Bans| {
            let active = state.of("ipblocks").iter();
            let active = active.filter(|block| block["status"]["phase"] == "active");
            let active: BTreeSet<&str> =
                active.filter_map(|it| it["spec"]["ip"].as_str()).collect();
            let banned = bans.0.values().flatten().map(String::as_str);
            banned.collect::<BTreeSet<&str>>() == active
        },
    )
}

fn block(name: &str, ip: &str, duration: &str) -> serde_json::Value {
    json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"ip": ip, "duration": duration}})
}

/// Real time for each exploration; `.ci/soak` gives more.
fn wall() -> Duration {
    let seconds = std::env::var("REEVE_EXPLORE_SECONDS").ok();
    let seconds = seconds.map_or(5, |text| text.parse().expect("a number of seconds"));
    Duration::from_secs(seconds)
}

async fn scenario(world: &World<Bans>) {
    let data = json!({"engine": "xdp", "gatewayHost": "192.0.2.250:9521"});
    let map = json!({"metadata": {"name": CONFIG_MAP, "namespace": "default"}, "data": data});
    world.create::<ConfigMap>(map).await;
    world.settle().await;
    for (name, ip, duration) in [
        ("short", "203.0.113.1", "90s"),
        ("long", "203.0.113.2", "10h"),
        ("gone", "203.0.113.3", "10h"),
    ] {
        world.create::<IPBlock>(block(name, ip, duration)).await;
    }
    world.settle().await;
    let unblock = json!({"spec": {"unblock": true}});
    world.patch::<IPBlock>("default", "long", unblock).await;
    world.delete::<IPBlock>("default", "gone").await;
    world.settle().await;
}

#[test]
fn a_ban_its_end_its_lift_by_hand_and_its_deletion_survive_every_fault() {
    explorer()
        .budget(usize::MAX, wall())
        .clock_jumps()
        // Every list is old in an old view, also the one that a leader compares with: docs/decisions/operator.md, 15.
        .pairs(false)
        .spread()
        .every_failure()
        .check(scenario);
}

#[test]
fn a_ban_its_end_its_lift_by_hand_and_its_deletion_survive_faults_together() {
    explorer()
        .budget(usize::MAX, wall())
        .clock_jumps()
        // As above.
        .without(["stale"])
        .spread()
        .drawn(u64::MAX)
        .every_failure()
        .check(scenario);
}

#[test]
fn a_ban_that_a_restart_asserts_by_an_old_copy_of_its_block_is_lifted() {
    let plan = "stale P1 patch ipblocks default/long 2 @ P1 modified ipblocks default/long 3";
    explorer().only(plan.parse().unwrap()).check(scenario);
}
