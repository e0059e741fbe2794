//! Blocks whose finalizer is removed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Api;
use kube_client::api::PostParams;
use reeve_apiserver::ApiServer;
use reeve_apiserver::faults::Rule;

use serde_json::{Value, json};

use super::*;
use crate::api::{IPBlockSpec, Standing};
use crate::decide::Operation;

fn active(namespace: &str, status: &Value) -> IPBlock {
    let spec = IPBlockSpec {
        ip: "192.0.2.7".into(),
        ..IPBlockSpec::default()
    };
    let mut block = IPBlock::new("a", spec);
    block.metadata.namespace = Some(namespace.into());
    block.status = serde_json::from_value(status.clone()).unwrap();
    block
}

fn here() -> Place {
    Place::new("iptables", "gateway:9521")
}

/// A server with the kind and this many blocks, each with the finalizer.
async fn server(blocks: usize) -> (ApiServer, Client) {
    let server = ApiServer::builder().start().await.unwrap();
    let kube = server.client();
    let create = PostParams::default();
    let definitions: Api<CustomResourceDefinition> = Api::all(kube.clone());
    definitions
        .create(&create, &crate::api::crd())
        .await
        .unwrap();
    let api: Api<IPBlock> = Api::namespaced(kube.clone(), "default");
    while api.list(&ListParams::default()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for number in 0..blocks {
        let spec = IPBlockSpec {
            ip: "192.0.2.7".into(),
            ..IPBlockSpec::default()
        };
        let mut block = IPBlock::new(&format!("b-{number:04}"), spec);
        block.metadata.finalizers = Some(vec![crate::api::FINALIZER.into()]);
        api.create(&create, &block).await.unwrap();
    }
    (server, Client::new(kube))
}

fn keeping<'a>(client: &'a Client, record: &'a Record) -> Work<'a> {
    Work {
        client,
        engines: Engines::new(Arc::new(Gateways {
            allow_loopback: false,
            guard: GuardSettings::default(),
            metrics: engine::Metrics::new(),
        })),
        config: None,
        record,
        others: Coverage::default(),
        bans: Bans::Keep,
        clock: Clock::system(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_expires_while_blocks_are_let_go_begins_again() {
    let count = usize::try_from(PAGE).unwrap() + 3;
    let (server, client) = server(count).await;
    let faults = server.faults();
    let busy = Rule::new().verb("patch").name("b-0001").times(1);
    let busy = faults.add(busy.status(409, "changed"));
    let expired = Rule::new().verb("list").resource("ipblocks");
    let expired = faults.add(expired.after(1).times(2).status(410, "expired"));
    let record = Record::new("default");
    let work = keeping(&client, &record);
    let (all, left) = work.let_all_go(None).await.unwrap();
    assert_eq!((all, left), (count, 1));
    assert_eq!(expired.hits(), 2);
    assert_eq!(busy.hits(), 1);
    let blocks: Api<IPBlock> = Api::all(server.client());
    let blocks = blocks.list(&ListParams::default()).await.unwrap();
    let held = blocks.iter().filter(|block| block.is_held());
    let held: Vec<_> = held.map(IPBlock::key).collect();
    assert_eq!(held, ["default/b-0001"], "tried once");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_expires_each_time_is_given_up_after_pauses() {
    let (server, client) = server(usize::try_from(PAGE).unwrap() + 1).await;
    let pages = Rule::new().verb("list").resource("ipblocks");
    // The first page is served each time.
    for page in 0..50 {
        let expired = pages.clone().after(page + 1).times(1);
        server.faults().add(expired.status(410, "expired"));
    }
    let record = Record::new("default");
    let started = tokio::time::Instant::now();
    let error = keeping(&client, &record).let_all_go(None).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("5 times in a row"), "{error}");
    assert!(started.elapsed() >= LIST_AGAIN * (EXPIRATIONS - 1));
}

#[test]
fn an_active_block_that_says_no_gateway_is_not_free_without_a_configuration() {
    let block = active("default", &json!({"phase": "active"}));
    let (none, clock) = (Coverage::default(), Clock::system());
    assert_eq!(lifting(&block, None, &none, &clock), None);
    let calls = lifting(&block, Some(&here()), &none, &clock).unwrap();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].operation, Operation::Unban);
    let over = active("default", &json!({"phase": "expired"}));
    assert_eq!(lifting(&over, None, &none, &clock), Some(Vec::new()));
}

#[test]
fn what_a_block_of_another_namespace_wants_stays_banned() {
    let block = active("leaving", &json!({"phase": "active"}));
    let standing = Standing {
        target: "192.0.2.7".parse().unwrap(),
        place: here(),
    };
    let mut others = Coverage::default();
    others.set("staying/b", standing, None);
    let calls = lifting(&block, Some(&here()), &others, &Clock::system()).unwrap();
    assert_eq!(calls[0].operation, Operation::Ban(None));
}

#[test]
fn what_may_stand_at_a_gateway_that_is_not_followed_is_left_unless_it_is_released() {
    let mut block = active("default", &json!({"phase": "active"}));
    let mut intent = crate::api::Intent::new("192.0.2.7".parse().unwrap(), here(), 1);
    intent.unfollowed = vec![intent.standing.clone()];
    let annotations = block.metadata.annotations.get_or_insert_default();
    annotations.insert(crate::api::INTENT.into(), intent.to_string());
    assert_eq!(unfollowed(&block), intent.unfollowed);
    let annotations = block.metadata.annotations.get_or_insert_default();
    annotations.insert(RELEASE_ANNOTATION.into(), "true".into());
    assert_eq!(unfollowed(&block), []);
}

#[test]
fn a_lifted_block_reads_as_expired_so_that_a_later_install_does_not_ban_again() {
    let block = active(
        "default",
        &json!({"phase": "active", "expiresAt": "2999-01-01T00:00:00Z", "banCount": 1}),
    );
    let status = uninstalled(&block, Clock::system().now());
    assert_eq!(status.phase, Some(Phase::Expired));
    assert_eq!(status.ban_count, Some(1));
    let patch = status_patch(&block, &status);
    assert_eq!(patch["status"].get("expiresAt"), Some(&Value::Null));
    assert_eq!(patch["status"]["phase"], "expired");
    let mut after = block;
    after.status = Some(status);
    assert_eq!(recorded_claim(&after, Some(&here())), None);
    assert_eq!(recorded_standings(&after, Some(&here())), Some(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn the_objects_of_set_engines_are_deleted_also_those_that_only_the_record_names() {
    let (server, client) = server(0).await;
    crate::sets::install(&server, crate::sets::Plugin::Cilium, 0, true).await;
    let post = async |path: &str, body: serde_json::Value| {
        let request = http::Request::post(path).body(body.to_string().into_bytes());
        let posted = server.client().request(request.unwrap()).await;
        let _: serde_json::Value = posted.unwrap();
    };
    for engine in ["former", "strange"] {
        let group = serde_json::json!({
            "apiVersion": "cilium.io/v2", "kind": "CiliumCIDRGroup",
            "metadata": {"name": format!("{engine}-0"), "labels": {"ops.yiiong.top/engine": engine}},
            "spec": {"externalCIDRs": ["192.0.2.7/32"]},
        });
        post("/apis/cilium.io/v2/ciliumcidrgroups", group).await;
    }
    let record = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": crate::reconcile::RECORD,
            "annotations": {"ops.yiiong.top/set-engines": r#"["cilium former", "unknown x"]"#},
        },
    });
    post("/api/v1/namespaces/default/configmaps", record).await;
    let record = Record::new("default");
    record.read(&client).await.unwrap();
    empty_engines(server.client(), &record).await.unwrap();
    let request = http::Request::get("/apis/cilium.io/v2/ciliumcidrgroups").body(Vec::new());
    let left = server.client().request(request.unwrap()).await;
    let left: serde_json::Value = left.unwrap();
    let left = left["items"].as_array().unwrap();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0]["metadata"]["name"], "strange-0");
}

#[tokio::test(start_paused = true)]
async fn lists_of_sources_are_deleted_with_their_bans_and_those_of_others_stay() {
    use crate::api::BlockList;
    let server = ApiServer::builder().start().await.unwrap();
    let client = Client::new(server.client());
    let none = lists::end(&client, None, Bans::Lift).await.unwrap();
    assert_eq!(none, lists::Ended::default(), "a server without the kind");
    let create = PostParams::default();
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    let [_, definition] = crate::api::crds();
    definitions.create(&create, &definition).await.unwrap();
    let api: Api<BlockList> = Api::namespaced(server.client(), "default");
    while api.list(&ListParams::default()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let other = BlockList::of("import", []);
    api.create(&create, &other).await.unwrap();
    let mut own = BlockList::of("feed-0", []);
    own.metadata.labels = Some(BlockList::labels_for("feed"));
    api.create(&create, &own).await.unwrap();
    let end = async |bans, deleted, left| {
        let ended = lists::end(&client, Some("default"), bans).await.unwrap();
        assert_eq!(ended, lists::Ended { deleted, left }, "{bans:?}");
    };
    end(Bans::Keep, 0, 2).await;
    end(Bans::Lift, 1, 1).await;
    assert!(api.get_opt("import").await.unwrap().is_some());
}
