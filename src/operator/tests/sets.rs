//! Engines that follow the set of bans, in an operator at work.

use super::*;
use reeve_apiserver::rights::Rights;

use crate::api::EngineStatus;
use crate::sets::{Plugin, install};

/// A list at a free port.
const LIST: &str = "- name: edge\n  type: list\n  addr: 127.0.0.1:0\n  insecure: true\n";

/// Only the list: blocks need no gateway.
const ALONE: &[(&str, &str)] = &[("engine", ""), ("engines", LIST)];

impl World {
    /// Waits for what the set engines of this operator are to block.
    pub(super) async fn set_becomes(&self, expected: &[&str], limit: Duration) {
        becomes(self.sets.as_ref().unwrap(), expected, limit).await;
    }

    /// Another replica.
    pub(super) async fn replica(&self, identity: &str) -> (Arc<Sets>, AbortOnDropHandle<()>) {
        let settings = Settings {
            connector: Some(Arc::clone(&self.places) as Arc<dyn Connector>),
            resolver: Arc::clone(&self.names) as Arc<dyn Resolver>,
            identity: Some(identity.to_owned()),
            ..Settings::new(self.clock.clone())
        };
        let client = self.server.client_with(Some(TOKEN));
        let operator = Operator::build(client, settings).await.unwrap();
        let sets = Arc::clone(operator.sets());
        let task = tokio::spawn(async move {
            operator.run(CancellationToken::new()).await.unwrap();
        });
        (sets, AbortOnDropHandle::new(task))
    }
}

fn targets(sets: &Sets) -> BTreeSet<String> {
    let view = sets.desired().view();
    view.set.iter().map(|it| it.target.to_string()).collect()
}

async fn becomes(sets: &Sets, expected: &[&str], limit: Duration) {
    let expected: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
    let started = Instant::now();
    while targets(sets) != expected || !sets.desired().is_read() {
        let now = targets(sets);
        assert!(
            started.elapsed() < limit,
            "the set is {now:?} after {limit:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn enforced(name: &str) -> EngineStatus {
    EngineStatus {
        name: name.to_owned(),
        enforced: true,
        message: None,
    }
}

#[tokio::test(start_paused = true)]
async fn blocks_need_no_gateway_when_a_set_engine_has_them() {
    let mut world = World::new().await;
    world.configure(ALONE).await;
    world.start().await;
    world.create("a", "192.0.2.7", "1m").await;
    world.create("b", "2001:db8::/48", "1h").await;
    let status = world.until("a", "active", 5 * SECOND).await;
    assert_eq!(status.engine.as_deref(), Some("sets"));
    assert_eq!(status.engines, [enforced("edge")]);
    world.until("b", "active", 5 * SECOND).await;
    world
        .set_becomes(&["192.0.2.7", "2001:db8::/48"], SECOND)
        .await;
    let status = world.until("a", "expired", 70 * SECOND).await;
    assert!(status.engines.is_empty());
    world.set_becomes(&["2001:db8::/48"], SECOND).await;
    let delete = DeleteParams::default();
    world.blocks.delete("b", &delete).await.unwrap();
    world.set_becomes(&[], 5 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn the_leader_does_not_follow_the_records_of_blocks() {
    let mut world = World::new().await;
    world.configure(ALONE).await;
    world.start().await;
    world.create("first", "192.0.2.1", "1h").await;
    world.until("first", "active", 5 * SECOND).await;
    let added =
        |controller: &str| world.metric(&format!("workqueue_adds_total{{name=\"{controller}\""));
    let before = ["sets", "ipblock"].map(added);
    world.create("a", "192.0.2.7", "10s").await;
    world.until("a", "expired", 20 * SECOND).await;
    let after = ["sets", "ipblock"].map(added);
    assert!(after[0] <= before[0], "{before:?} {after:?}");
    assert!(after[1] >= before[1] + 4.0, "{before:?} {after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_gateway_and_a_set_engine_have_a_status_each() {
    let mut world = World::new().await;
    world.configure(&[("engines", LIST)]).await;
    world.start().await;
    world.create("a", "192.0.2.7", "1h").await;
    let status = world.until("a", "active", 5 * SECOND).await;
    assert_eq!(status.engines, [enforced("iptables"), enforced("edge")]);
    world.banned_becomes(GATEWAY, &["192.0.2.7"], SECOND).await;
    world.set_becomes(&["192.0.2.7"], SECOND).await;
    // The gateway is given up, and then the list.
    world.configure(&[("engine", ""), ("engines", LIST)]).await;
    world.banned_becomes(GATEWAY, &[], 5 * SECOND).await;
    world.set_becomes(&["192.0.2.7"], SECOND).await;
    world.configure(&[("engines", "")]).await;
    tokio::time::sleep(10 * SECOND).await;
    let status = world.until("a", "active", SECOND).await;
    assert!(status.engines.is_empty());
    world.banned_becomes(GATEWAY, &["192.0.2.7"], SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_operator_has_the_set_before_any_engine_may_act() {
    let mut world = World::new().await;
    world.configure(ALONE).await;
    world.start().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.create("due", "192.0.2.8", "1m").await;
    world.until("a", "active", 5 * SECOND).await;
    world.until("due", "active", 5 * SECOND).await;
    world.kill();
    tokio::time::sleep(90 * SECOND).await;
    world.start().await;
    let sets = Arc::clone(world.sets.as_ref().unwrap());
    let mut changes = sets.desired().changes();
    changes.wait_for(Option::is_some).await.unwrap();
    assert_eq!(targets(&sets), BTreeSet::from(["192.0.2.7".into()]));
    world.until("due", "expired", 5 * SECOND).await;
    world.set_becomes(&["192.0.2.7"], SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_standby_has_the_set_of_the_leader_and_keeps_it_when_it_leads() {
    let mut world = World::new().await;
    world.configure(ALONE).await;
    world
        .start_with(|settings| settings.identity = Some("one".to_owned()))
        .await;
    world.create("a", "192.0.2.7", "1h").await;
    world.create("b", "192.0.2.7/32", "2m").await;
    world.until("a", "active", 30 * SECOND).await;
    let (standby, _running) = world.replica("two").await;
    becomes(&standby, &["192.0.2.7"], 30 * SECOND).await;
    world.create("c", "198.51.100.7", "2h").await;
    world.create("d", "198.51.100.8", "1m").await;
    world.until("d", "active", 5 * SECOND).await;
    let all = ["192.0.2.7", "198.51.100.7", "198.51.100.8"];
    becomes(&standby, &all, 5 * SECOND).await;
    world.until("d", "expired", 70 * SECOND).await;
    let rest = ["192.0.2.7", "198.51.100.7"];
    becomes(&standby, &rest, 5 * SECOND).await;
    world.until("b", "expired", 130 * SECOND).await;
    world.kill();
    tokio::time::sleep(30 * SECOND).await;
    world.create("e", "203.0.113.7", "1h").await;
    world.until("e", "active", 60 * SECOND).await;
    let led = ["192.0.2.7", "198.51.100.7", "203.0.113.7"];
    becomes(&standby, &led, 5 * SECOND).await;
    let delete = DeleteParams::default();
    world.blocks.delete("c", &delete).await.unwrap();
    becomes(&standby, &["192.0.2.7", "203.0.113.7"], 5 * SECOND).await;
}

const CILIUM: &[(&str, &str)] = &[
    ("engine", ""),
    ("engines", "- name: mesh\n  type: cilium\n"),
];

impl World {
    /// The ranges in Cilium's groups, and whether there is a policy.
    async fn cilium(&self) -> (BTreeSet<String>, bool) {
        let list = async |plural: &str| -> Vec<serde_json::Value> {
            let path = format!("/apis/cilium.io/v2/{plural}");
            let request = http::Request::get(path).body(Vec::new()).unwrap();
            let list: serde_json::Value = self.server.client().request(request).await.unwrap();
            list["items"].as_array().cloned().unwrap_or_default()
        };
        let groups = list("ciliumcidrgroups").await;
        let ranges = groups
            .iter()
            .filter_map(|it| it["spec"]["externalCIDRs"].as_array());
        let ranges = ranges
            .flatten()
            .filter_map(|it| it.as_str().map(str::to_owned));
        let policies = list("ciliumclusterwidenetworkpolicies").await;
        (ranges.collect(), !policies.is_empty())
    }

    async fn cilium_becomes(&self, expected: &[&str], limit: Duration) {
        let expected: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
        let policy = !expected.is_empty();
        let started = Instant::now();
        while self.cilium().await != (expected.clone(), policy) {
            let now = self.cilium().await;
            assert!(
                started.elapsed() < limit,
                "Cilium has {now:?} after {limit:?}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_fails_is_named_in_the_status_and_the_block_is_active_when_it_works() {
    let mut world = World::new().await;
    install(&world.server, Plugin::Cilium, 0, true).await;
    world.configure(CILIUM).await;
    world.start().await;
    let down = Rule::new().resource("ciliumcidrgroups");
    world
        .server
        .faults()
        .add(down.status(503, "out of service"));
    world.create("a", "192.0.2.7", "1h").await;
    let status = world.until("a", "pending", 30 * SECOND).await;
    let message = status.message.unwrap();
    assert!(message.contains("set engine mesh: cannot"), "{message}");
    world.server.faults().clear();
    let status = world.until("a", "active", 60 * SECOND).await;
    assert_eq!(status.engines, [enforced("mesh")]);
    world.cilium_becomes(&["192.0.2.7/32"], SECOND).await;
    // A lift that fails keeps the block until it is done.
    let down = Rule::new().verb("delete").resource("ciliumcidrgroups");
    world
        .server
        .faults()
        .add(down.status(503, "out of service"));
    let delete = DeleteParams::default();
    world.blocks.delete("a", &delete).await.unwrap();
    tokio::time::sleep(60 * SECOND).await;
    assert!(world.blocks.get_opt("a").await.unwrap().is_some());
    world.server.faults().clear();
    world.cilium_becomes(&[], 60 * SECOND).await;
    tokio::time::sleep(30 * SECOND).await;
    assert!(world.blocks.get_opt("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_not_configured_any_more_is_emptied_also_after_a_restart() {
    let mut world = World::new().await;
    install(&world.server, Plugin::Cilium, 0, true).await;
    world.configure(CILIUM).await;
    world.start().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 10 * SECOND).await;
    world.cilium_becomes(&["192.0.2.7/32"], 5 * SECOND).await;
    world.configure(ALONE).await;
    world.cilium_becomes(&[], 30 * SECOND).await;
    // Back, and edited away while no operator runs.
    world.configure(CILIUM).await;
    world.cilium_becomes(&["192.0.2.7/32"], 60 * SECOND).await;
    world.kill();
    world.configure(ALONE).await;
    world.start().await;
    world.cilium_becomes(&[], 60 * SECOND).await;
    tokio::time::sleep(60 * SECOND).await;
    let record = world.maps.get(RECORD).await.unwrap();
    let kept = &record.metadata.annotations.unwrap()["ops.yiiong.top/set-engines"];
    assert_eq!(kept, "[]", "it is forgotten once it is empty");
    world.until("a", "active", SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn the_access_rules_of_an_engine_hold_what_it_requests_and_no_more() {
    let mut world = World::new().await;
    install(&world.server, Plugin::Cilium, 0, true).await;
    let resource = |kind: &str, plural: &str| kube_core::ApiResource {
        group: "cilium.io".into(),
        version: "v2".into(),
        api_version: "cilium.io/v2".into(),
        kind: kind.into(),
        plural: plural.into(),
    };
    let client = world.server.client();
    let api = |resource| Api::<kube_core::DynamicObject>::all_with(client.clone(), resource);
    let group = resource("CiliumCIDRGroup", "ciliumcidrgroups");
    let groups = api(&group);
    let of_another = kube_core::DynamicObject::new("mesh-0", &group).data(json!({"spec": {}}));
    let created = groups.create(&PostParams::default(), &of_another).await;
    created.unwrap();
    world.configure(CILIUM).await;
    world.start().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.create("b", "192.0.2.8", "2m").await;
    tokio::time::sleep(30 * SECOND).await;
    let status = world.blocks.get("a").await.unwrap().status.unwrap();
    let status = serde_json::to_string(&status).unwrap();
    assert!(status.contains("give the engine another name"), "{status}");
    let delete = DeleteParams::default();
    groups.delete("mesh-0", &delete).await.unwrap();
    world.until("a", "active", 60 * SECOND).await;
    world.until("b", "expired", 250 * SECOND).await;
    let patch = Patch::Merge(json!({"spec": {"ingressDeny": []}}));
    let policy = resource(
        "CiliumClusterwideNetworkPolicy",
        "ciliumclusterwidenetworkpolicies",
    );
    let policies = api(&policy);
    let params = PatchParams::default();
    policies.patch("mesh", &params, &patch).await.unwrap();
    tokio::time::sleep(400 * SECOND).await;
    let repaired = policies.get("mesh").await.unwrap();
    assert_ne!(repaired.data["spec"]["ingressDeny"], json!([]));
    world.blocks.delete("a", &delete).await.unwrap();
    world.cilium_becomes(&[], 10 * SECOND).await;
    let mut requests = world.server.requests().all();
    requests.retain(|request| {
        request.user == "system:serviceaccount:default:ipblock-operator"
            && request.path.starts_with("/apis/cilium.io/v2/")
    });
    let rules = include_str!("../../../manifests/engines/cilium.yaml");
    let unused = Rights::of(&requests).check(rules);
    let unused: String = unused.iter().map(ToString::to_string).collect();
    assert_eq!(unused, "");
}

#[tokio::test(start_paused = true)]
async fn a_replica_without_blocks_serves_the_empty_list() {
    let mut world = World::new().await;
    world.configure(ALONE).await;
    world.start().await;
    world.set_becomes(&[], 20 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_block_that_is_released_without_a_lift_leaves_the_set() {
    let mut world = World::new().await;
    world.configure(&[("engines", LIST)]).await;
    world.start().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {RELEASE_ANNOTATION: "true"}}}));
    let params = PatchParams::default();
    world.blocks.patch("a", &params, &patch).await.unwrap();
    let delete = DeleteParams::default();
    world.blocks.delete("a", &delete).await.unwrap();
    world.set_becomes(&[], 5 * SECOND).await;
    assert!(
        !world.banned(GATEWAY).await.is_empty(),
        "the gateway was not called"
    );
}

#[tokio::test(start_paused = true)]
async fn a_wrong_list_of_engines_is_refused_with_its_line() {
    let mut world = World::new().await;
    world.configure(ALONE).await;
    world.start().await;
    world.set_becomes(&[], 20 * SECOND).await;
    for (text, words) in [
        ("- name: edge\n  type: lisst", "unknown type"),
        ("- name: edge\n  typ: list", "line 2"),
        ("- name: edge\n  type: list", "set addr"),
        (
            "- name: edge\n  type: list\n  addr: :8093",
            "no credentials",
        ),
    ] {
        world.configure(&[("engine", ""), ("engines", text)]).await;
        tokio::time::sleep(SECOND).await;
        assert!(world.announced("ConfigInvalid", words).await, "{words}");
    }
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_cannot_bind_is_reported_and_tried_again() {
    let mut world = World::new().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let list = LIST.replace("127.0.0.1:0", &address.to_string());
    world.configure(&[("engine", ""), ("engines", &list)]).await;
    world.start().await;
    tokio::time::sleep(5 * SECOND).await;
    assert!(world.announced("ConfigPartly", "cannot listen").await);
    drop(taken);
    tokio::time::sleep(15 * SECOND).await;
    let addresses = world.sets.as_ref().unwrap().addresses().await;
    assert_eq!(addresses, [address]);
}

#[tokio::test(start_paused = true)]
async fn what_the_gateway_cannot_express_is_left_to_the_set_engines() {
    let mut world = World::new().await;
    world.configure(&[("engines", LIST)]).await;
    world.start().await;
    world.create("a", "2001:db8::7", "5m").await;
    let status = world.until("a", "active", 5 * SECOND).await;
    let shown = status.message.as_deref().unwrap_or_default();
    assert!(shown.contains("banned by the set engines"), "{shown}");
    let own = &status.engines[0];
    assert!(own.name == "iptables" && !own.enforced);
    let message = own.message.as_deref().unwrap_or_default();
    assert!(message.contains("does not support IPv6"), "{message}");
    assert_eq!(status.engines[1..], [enforced("edge")]);
    world.set_becomes(&["2001:db8::7"], SECOND).await;
    world.kill();
    world.start().await;
    world.set_becomes(&["2001:db8::7"], 20 * SECOND).await;
    world.until("a", "expired", 400 * SECOND).await;
    world.set_becomes(&[], SECOND).await;
    assert!(world.banned(GATEWAY).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_status_has_a_line_for_each_engine_also_while_one_fails_and_after_an_edit() {
    let mut world = World::new().await;
    install(&world.server, Plugin::Cilium, 0, true).await;
    world.configure(ALONE).await;
    world.start().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    let down = Rule::new().resource("ciliumcidrgroups");
    world
        .server
        .faults()
        .add(down.status(503, "out of service"));
    let both = format!("{LIST}- name: mesh\n  type: cilium\n");
    world.configure(&[("engine", ""), ("engines", &both)]).await;
    tokio::time::sleep(40 * SECOND).await;
    let status = world.until("a", "active", SECOND).await;
    assert_eq!(status.engines[0], enforced("edge"));
    let mesh = &status.engines[1];
    assert!(!mesh.enforced && mesh.message.is_some(), "{mesh:?}");
    world.server.faults().clear();
    tokio::time::sleep(60 * SECOND).await;
    let status = world.until("a", "active", SECOND).await;
    assert_eq!(status.engines, [enforced("edge"), enforced("mesh")]);
    // One that is removed leaves the status soon, not at the next assertion.
    world.configure(ALONE).await;
    tokio::time::sleep(10 * SECOND).await;
    let status = world.until("a", "active", SECOND).await;
    assert_eq!(status.engines, [enforced("edge")]);
}

#[tokio::test(start_paused = true)]
async fn the_gauges_of_an_engine_go_with_it() {
    let mut world = World::new().await;
    world.configure(ALONE).await;
    world.start().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    let shows = |world: &World, part: &str| {
        let text = world.manager.as_ref().unwrap().metrics().encode();
        text.lines().any(|line| line.contains(part))
    };
    tokio::time::sleep(6 * SECOND).await;
    assert!(shows(&world, "ipblock_agents{engine=\"edge\""));
    assert!(shows(&world, "ipblock_engine_desired{engine=\"edge\"} 1"));
    install(&world.server, Plugin::Cilium, 0, true).await;
    let other = "- name: edge\n  type: cilium\n";
    world.configure(&[("engine", ""), ("engines", other)]).await;
    tokio::time::sleep(700 * SECOND).await;
    assert!(!shows(&world, "ipblock_agents{engine=\"edge\""));
    assert!(shows(&world, "ipblock_engine_desired{engine=\"edge\"} 1"));
    world.configure(&[("engines", "")]).await;
    tokio::time::sleep(700 * SECOND).await;
    assert!(!shows(&world, "ipblock_engine_desired{engine=\"edge\""));
}
