//! The objects at the built-in API server, with definitions like those of the plugins.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::api::{Patch, PatchParams};
use reeve_apiserver::ApiServer;
use reeve_apiserver::faults::Rule;
use reeve_clock::Clock;

use super::super::set::{Entry, Until};
use super::*;
use crate::target::Target;

struct Case {
    server: ApiServer,
    lead: watch::Sender<bool>,
    settings: Settings,
    engine: Arc<ObjectEngine>,
}

fn settings(plugin: Plugin) -> Settings {
    Settings {
        plugin,
        shard: 3,
        most: 100,
        policy: true,
        endpoints: vec![("app".into(), "web".into())],
        selector: "all()".into(),
        order: -1000,
    }
}

/// The definition of a kind, with the fields that the plugin has in it.
fn definition(kind: ServedKind, version: &str, spec: Value) -> CustomResourceDefinition {
    let (group, version) = version.split_once('/').unwrap();
    let singular = kind.kind.to_lowercase();
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{group}", kind.plural)},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"kind": kind.kind, "plural": kind.plural, "singular": singular},
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": spec},
                }}},
            }],
        },
    }))
    .unwrap()
}

fn open(kind: &str) -> Value {
    json!({"type": kind, "x-kubernetes-preserve-unknown-fields": true})
}

fn ranges() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
}

/// Installs definitions like those of a plugin: the groups in one of their versions; an old Cilium has no
/// `enableDefaultDeny`.
pub(crate) async fn install(server: &ApiServer, plugin: Plugin, version: usize, recent: bool) {
    let mut policy = json!({
        "endpointSelector": open("object"), "description": {"type": "string"},
        "ingressDeny": {"type": "array", "items": open("object")},
        "order": {"type": "number"}, "selector": {"type": "string"},
        "types": ranges(), "preDNAT": {"type": "boolean"},
        "applyOnForward": {"type": "boolean"},
        "ingress": {"type": "array", "items": open("object")},
    });
    if recent {
        policy["enableDefaultDeny"] = open("object");
    }
    let groups = json!({"externalCIDRs": ranges(), "nets": ranges()});
    let versions = plugin.policy().versions;
    let policy_version = versions[version.min(versions.len() - 1)];
    let group_version = plugin.group().versions[version];
    for definition in [
        definition(plugin.group(), group_version, groups),
        definition(plugin.policy(), policy_version, policy),
    ] {
        let api: Api<CustomResourceDefinition> = Api::all(server.client());
        api.create(&PostParams::default(), &definition)
            .await
            .unwrap();
    }
    let leading = watch::channel(true).1;
    let engine = ObjectEngine::new("edge", settings(plugin), server.client(), leading);
    while engine.served(plugin.policy()).await.is_err()
        || engine.served(plugin.group()).await.is_err()
    {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

impl Case {
    async fn new(plugin: Plugin) -> Self {
        Self::of_version(plugin, 0, true).await
    }

    async fn of_version(plugin: Plugin, version: usize, recent: bool) -> Self {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 3);
        let server = ApiServer::builder().clock(clock).start().await.unwrap();
        install(&server, plugin, version, recent).await;
        let (lead, leading) = watch::channel(true);
        let settings = settings(plugin);
        let engine = ObjectEngine::new("edge", settings.clone(), server.client(), leading);
        Self {
            server,
            lead,
            settings,
            engine: Arc::new(engine),
        }
    }

    /// Another process with the same engine.
    fn restarted(&self) -> ObjectEngine {
        let leading = self.lead.subscribe();
        ObjectEngine::new("edge", self.settings.clone(), self.server.client(), leading)
    }

    async fn api(&self, kind: ServedKind) -> Api<DynamicObject> {
        let resource = self.engine.served(kind).await.unwrap();
        Api::all_with(self.server.client(), &resource)
    }

    /// The ranges of each group, by name.
    async fn groups(&self) -> Vec<(String, Vec<String>)> {
        let api = self.api(self.settings.plugin.group()).await;
        let groups = api.list(&ListParams::default()).await.unwrap();
        let ranges = |group: &DynamicObject| {
            let targets = self.settings.plugin.targets(&group.data["spec"]);
            targets.iter().map(ToString::to_string).collect()
        };
        let named = groups
            .iter()
            .map(|it| (it.metadata.name.clone().unwrap(), ranges(it)));
        named.collect()
    }

    async fn policy(&self) -> Option<Value> {
        let api = self.api(self.settings.plugin.policy()).await;
        let policy = api.get_opt("edge").await.unwrap();
        policy.map(|policy| policy.data["spec"].clone())
    }

    async fn apply(&self, engine: &ObjectEngine, targets: &[&str]) -> Result<(), Error> {
        let from = engine.state.lock().await.shards.set();
        engine
            .apply(&Change {
                from,
                to: set(targets),
            })
            .await
    }
}

fn set(targets: &[&str]) -> TargetSet {
    let entries = targets.iter().map(|target| Entry {
        target: target.parse::<Target>().unwrap(),
        until: Until::NEVER,
    });
    entries.collect()
}

const FOUR: &[&str] = &["192.0.2.1", "192.0.2.2", "198.51.100.0/24", "2001:db8::7"];

fn named(groups: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
    let ranges = |all: &[&str]| all.iter().map(ToString::to_string).collect();
    let groups = groups
        .iter()
        .map(|(name, all)| ((*name).to_owned(), ranges(all)));
    groups.collect()
}

#[tokio::test(start_paused = true)]
async fn cilium_gets_groups_of_ranges_and_one_policy_that_refuses_them() {
    let case = Case::new(Plugin::Cilium).await;
    case.apply(&case.engine, FOUR).await.unwrap();
    let groups = named(&[("edge-0", &FOUR[..3]), ("edge-1", &FOUR[3..])]);
    assert_eq!(case.groups().await, groups);
    let api = case.api(Plugin::Cilium.group()).await;
    let first = api.get("edge-0").await.unwrap();
    let hosts = &first.data["spec"]["externalCIDRs"];
    assert_eq!(hosts[0], "192.0.2.1/32", "only ranges are allowed there");
    let policy = case.policy().await.unwrap();
    let named = json!([{"cidrGroupRef": "edge-0"}, {"cidrGroupRef": "edge-1"}]);
    assert_eq!(policy["ingressDeny"], json!([{ "fromCIDRSet": named }]));
    assert_eq!(
        policy["endpointSelector"],
        json!({"matchLabels": {"app": "web"}})
    );
    assert_eq!(policy["enableDefaultDeny"]["ingress"], false);
    case.apply(&case.engine, &FOUR[..1]).await.unwrap();
    assert_eq!(case.groups().await.len(), 1);
    let policy = case.policy().await.unwrap();
    assert_eq!(
        policy["ingressDeny"][0]["fromCIDRSet"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    case.apply(&case.engine, &[]).await.unwrap();
    assert!(case.groups().await.is_empty() && case.policy().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_earlier_cilium_has_groups_in_another_version_and_one_that_would_refuse_all_gets_no_policy()
 {
    let case = Case::of_version(Plugin::Cilium, 1, true).await;
    case.apply(&case.engine, FOUR).await.unwrap();
    assert!(case.groups().await.len() == 2 && case.policy().await.is_some());
    let old = Case::of_version(Plugin::Cilium, 1, false).await;
    let error = old.apply(&old.engine, FOUR).await.unwrap_err();
    assert!(error.to_string().contains("Cilium 1.16"), "{error}");
    assert!(old.policy().await.is_none(), "it was only tried");
}

#[tokio::test(start_paused = true)]
async fn calico_gets_labelled_sets_and_a_policy_before_dnat() {
    for version in [0, 1] {
        let case = Case::of_version(Plugin::Calico, version, true).await;
        case.apply(&case.engine, FOUR).await.unwrap();
        let groups = named(&[("edge-0", &FOUR[..3]), ("edge-1", &FOUR[3..])]);
        assert_eq!(case.groups().await, groups);
        let api = case.api(Plugin::Calico.group()).await;
        let first = api.get("edge-0").await.unwrap();
        assert_eq!(first.metadata.labels.unwrap()[LABEL], "edge");
        let policy = case.policy().await.unwrap();
        assert_eq!(policy["preDNAT"], true);
        let source = &policy["ingress"][0]["source"]["selector"];
        assert_eq!(source, "ops.yiiong.top/engine == 'edge'");
        assert_eq!(policy["ingress"][0]["action"], "Deny");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_operator_goes_on_from_the_objects_and_repairs_them() {
    let case = Case::new(Plugin::Cilium).await;
    case.apply(&case.engine, FOUR).await.unwrap();
    let again = case.restarted();
    let found = again.snapshot().await.unwrap().unwrap();
    assert_eq!(found, set(FOUR));
    // Another client changes a group and deletes the policy.
    let api = case.api(Plugin::Cilium.group()).await;
    let change = json!({"spec": {"externalCIDRs": ["203.0.113.9/32"]}});
    let params = PatchParams::default();
    api.patch("edge-1", &params, &Patch::Merge(change))
        .await
        .unwrap();
    let policies = case.api(Plugin::Cilium.policy()).await;
    policies
        .delete("edge", &DeleteParams::default())
        .await
        .unwrap();
    let mut five = FOUR.to_vec();
    five.push("2001:db8::8");
    let error = case.apply(&again, &five).await.unwrap_err();
    assert!(error.to_string().contains("another client"), "{error}");
    let drifted = again.snapshot().await.unwrap().unwrap();
    assert!(case.policy().await.is_some(), "it is there again");
    again
        .apply(&Change {
            from: drifted,
            to: set(FOUR),
        })
        .await
        .unwrap();
    assert_eq!(again.snapshot().await.unwrap().unwrap(), set(FOUR));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_is_repaired_from_the_list() {
    let case = Case::new(Plugin::Cilium).await;
    let lost = Rule::new()
        .verb("create")
        .resource("ciliumcidrgroups")
        .times(1);
    case.server.faults().add(lost.after(1).lose_answer());
    let error = case.apply(&case.engine, FOUR).await.unwrap_err();
    assert!(error.to_string().contains("cannot write edge-1"), "{error}");
    let from = case.engine.snapshot().await.unwrap().unwrap();
    let to = set(FOUR);
    case.engine.apply(&Change { from, to }).await.unwrap();
    assert_eq!(case.engine.snapshot().await.unwrap().unwrap(), set(FOUR));
    assert!(case.policy().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_does_not_lead_writes_nothing() {
    let case = Case::new(Plugin::Calico).await;
    case.lead.send_replace(false);
    assert!(case.apply(&case.engine, FOUR).await.is_err());
    assert!(case.groups().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_former_engine_is_emptied_and_another_ones_objects_stay() {
    let case = Case::new(Plugin::Cilium).await;
    case.apply(&case.engine, FOUR).await.unwrap();
    let leading = case.lead.subscribe();
    let other = ObjectEngine::new(
        "other",
        case.settings.clone(),
        case.server.client(),
        leading,
    );
    case.apply(&other, &FOUR[..1]).await.unwrap();
    let mut former = case.restarted();
    former.settings = Settings::former(Plugin::Cilium);
    former.clear().await.unwrap();
    assert_eq!(case.groups().await, named(&[("other-0", &FOUR[..1])]));
    assert!(case.policy().await.is_none());
    former.clear().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_to_have_no_policy_deletes_the_one_it_had_and_no_other() {
    let case = Case::new(Plugin::Calico).await;
    case.apply(&case.engine, FOUR).await.unwrap();
    let mut edited = case.restarted();
    edited.settings.policy = false;
    assert_eq!(edited.snapshot().await.unwrap().unwrap(), set(FOUR));
    assert!(case.policy().await.is_none());
    let (api, create) = (
        case.api(Plugin::Calico.policy()).await,
        PostParams::default(),
    );
    let resource = case.engine.served(Plugin::Calico.policy()).await.unwrap();
    let own = DynamicObject::new("edge", &resource);
    api.create(&create, &own).await.unwrap();
    edited.snapshot().await.unwrap().unwrap();
    assert!(api.get_opt("edge").await.unwrap().is_some(), "a user's");
}

#[tokio::test(start_paused = true)]
async fn a_server_without_the_plugin_is_an_error_that_names_it_and_nothing_to_empty() {
    let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 3);
    let server = ApiServer::builder().clock(clock).start().await.unwrap();
    let (_lead, leading) = watch::channel(true);
    let engine = ObjectEngine::new("edge", settings(Plugin::Cilium), server.client(), leading);
    let error = engine.snapshot().await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("no ciliumcidrgroups; install cilium"),
        "{text}"
    );
    engine.clear().await.unwrap();
}

/// Creates an object of another client.
async fn foreign(case: &Case, kind: ServedKind, name: &str) -> DynamicObject {
    let resource = case.engine.served(kind).await.unwrap();
    let object = DynamicObject::new(name, &resource).data(json!({"spec": {"selector": "other"}}));
    let api = case.api(kind).await;
    api.create(&PostParams::default(), &object).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn objects_of_others_are_neither_overwritten_nor_deleted() {
    for plugin in [Plugin::Cilium, Plugin::Calico] {
        let case = Case::new(plugin).await;
        let policy = foreign(&case, plugin.policy(), "edge").await;
        let group = foreign(&case, plugin.group(), "edge-1").await;
        let error = case.apply(&case.engine, &FOUR[..1]).await.unwrap_err();
        let named = format!("{} edge", plugin.policy().plural);
        assert!(error.to_string().contains(&named), "{error}");
        let from = case.engine.snapshot().await;
        assert!(from.is_err(), "the policy is not in place");
        let error = case.apply(&case.engine, FOUR).await.unwrap_err();
        let named = format!("{} edge-1", plugin.group().plural);
        assert!(error.to_string().contains(&named), "{error}");
        let mut former = case.restarted();
        former.settings = Settings::former(plugin);
        former.clear().await.unwrap();
        let version = |object: DynamicObject| object.metadata.resource_version.unwrap();
        let policies = case.api(plugin.policy()).await;
        let groups = case.api(plugin.group()).await;
        assert_eq!(
            version(policies.get("edge").await.unwrap()),
            version(policy)
        );
        assert_eq!(version(groups.get("edge-1").await.unwrap()), version(group));
        assert!(groups.get_opt("edge-0").await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_another_client_changed_is_not_deleted_unseen() {
    let case = Case::new(Plugin::Cilium).await;
    case.apply(&case.engine, FOUR).await.unwrap();
    let api = case.api(Plugin::Cilium.group()).await;
    let change = json!({"spec": {"externalCIDRs": ["203.0.113.9/32"]}});
    let params = PatchParams::default();
    api.patch("edge-1", &params, &Patch::Merge(change))
        .await
        .unwrap();
    let error = case.apply(&case.engine, &FOUR[..3]).await.unwrap_err();
    assert!(error.to_string().contains("another client"), "{error}");
    assert!(api.get_opt("edge-1").await.unwrap().is_some());
    let from = case.engine.snapshot().await.unwrap().unwrap();
    let to = set(&FOUR[..3]);
    case.engine.apply(&Change { from, to }).await.unwrap();
    assert!(api.get_opt("edge-1").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_group_under_another_name_is_not_taken_for_the_group() {
    let case = Case::new(Plugin::Cilium).await;
    case.apply(&case.engine, FOUR).await.unwrap();
    let api = case.api(Plugin::Cilium.group()).await;
    let mut copy = api.get("edge-1").await.unwrap();
    // There is no group edge-7.
    copy.metadata.name = Some("edge-07".into());
    copy.metadata.resource_version = None;
    copy.data["spec"] = json!({"externalCIDRs": ["203.0.113.9/32"]});
    api.create(&PostParams::default(), &copy).await.unwrap();
    let from = case.engine.snapshot().await.unwrap().unwrap();
    assert_eq!(from, set(FOUR), "it is not this engine's");
    let to = set(&FOUR[..3]);
    case.engine.apply(&Change { from, to }).await.unwrap();
    assert!(api.get_opt("edge-1").await.unwrap().is_none());
    assert!(api.get_opt("edge-07").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_field_that_was_added_to_the_policy_is_taken_out_again() {
    for (plugin, change) in [
        (
            Plugin::Cilium,
            json!({"ingressDeny": [{
                "fromCIDRSet": [{"cidrGroupRef": "edge-0"}, {"cidrGroupRef": "edge-1"}],
                "toPorts": [{"ports": [{"port": "80"}]}],
            }]}),
        ),
        (
            Plugin::Calico,
            json!({"ingress": [{
                "action": "Deny",
                "source": {"selector": "ops.yiiong.top/engine == 'edge'", "notNets": ["192.0.2.1/32"]},
            }]}),
        ),
    ] {
        let case = Case::new(plugin).await;
        case.apply(&case.engine, FOUR).await.unwrap();
        let wanted = case.policy().await.unwrap();
        let policies = case.api(plugin.policy()).await;
        let patch = Patch::Merge(json!({ "spec": change }));
        let params = PatchParams::default();
        policies.patch("edge", &params, &patch).await.unwrap();
        assert_ne!(case.policy().await.unwrap(), wanted);
        case.engine.snapshot().await.unwrap();
        assert_eq!(case.policy().await.unwrap(), wanted);
    }
}

#[test]
fn empty_fields_and_the_tier_are_no_drift() {
    let wanted = settings(Plugin::Calico).policy_spec("edge", &[]);
    let mut present = wanted.clone();
    present["tier"] = json!("default");
    present["order"] = json!(-1000.0);
    present["ingress"][0]["destination"] = json!({});
    assert!(is_as_wanted(&present, &wanted));
    present["ingress"][0]["protocol"] = json!("TCP");
    assert!(!is_as_wanted(&present, &wanted));
}
