//! Triggers against the built-in API server: what is written is what the definition allows.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Api;
use kube_client::api::{Patch, PatchParams, PostParams};
use kube_core::CustomResourceExt;
use reeve_apiserver::ApiServer;
use serde_json::json;

use super::*;
use crate::api::{FINALIZER, IPBlock, IPBlockSpec, Place};

async fn server() -> (ApiServer, KubeBlocks, Api<IPBlock>) {
    let server = ApiServer::builder().start().await.unwrap();
    let client = server.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions
        .create(&PostParams::default(), &IPBlock::crd())
        .await
        .unwrap();
    let api: Api<IPBlock> = Api::namespaced(client.clone(), "default");
    let listed = async {
        while api
            .list(&kube_client::api::ListParams::default())
            .await
            .is_err()
        {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(5), listed)
        .await
        .unwrap();
    (server, KubeBlocks::new(client), api)
}

fn block(ip: &str, duration: &str) -> IPBlock {
    let target = "192.0.2.7".parse().unwrap();
    let place = Place::new("xdp", "192.0.2.250:8080");
    let spec = IPBlockSpec {
        ip: ip.into(),
        duration: Some(duration.into()),
        ..IPBlockSpec::default()
    };
    IPBlock::born("one", "default", &target, Some(&place), spec)
}

#[tokio::test]
async fn objects_are_created_read_and_patched() {
    let (_server, blocks, api) = server().await;
    assert_eq!(blocks.get("default", "one").await, Ok(None));
    blocks.create(&block("192.0.2.7", "10m")).await.unwrap();
    let again = blocks.create(&block("192.0.2.7", "10m")).await;
    assert_eq!(again, Err(BlocksError::Exists));

    let made = blocks.get("default", "one").await.unwrap().unwrap();
    assert_eq!(made.metadata.finalizers, Some(vec![FINALIZER.to_owned()]));

    let version = made.metadata.resource_version.clone();
    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"trigger": true}});
    blocks.patch("default", "one", &patch).await.unwrap();
    assert_eq!(api.get("one").await.unwrap().spec.trigger, Some(true));
    let stale = blocks.patch("default", "one", &patch).await;
    assert_eq!(stale, Err(BlocksError::Conflict));
    let gone = blocks.patch("default", "two", &json!({})).await;
    assert_eq!(gone, Err(BlocksError::Gone));
}

#[tokio::test]
async fn an_edit_of_the_duration_shows_in_what_triggers_read() {
    let (_server, blocks, api) = server().await;
    blocks.create(&block("192.0.2.7", "10m")).await.unwrap();
    let edited = async || {
        let read = blocks.get("default", "one").await.unwrap().unwrap();
        read.has_edited_duration()
    };
    let longer = json!({"spec": {"duration": "20m"}});
    blocks.patch("default", "one", &longer).await.unwrap();
    assert!(!edited().await, "an alert's");
    let params = PatchParams {
        field_manager: Some("kubectl-edit".into()),
        ..PatchParams::default()
    };
    let reason = Patch::Merge(json!({"spec": {"reason": "seen by Ana"}}));
    api.patch("one", &params, &reason).await.unwrap();
    assert!(!edited().await, "another field");
    let shorter = Patch::Merge(json!({"spec": {"duration": "5m"}}));
    api.patch("one", &params, &shorter).await.unwrap();
    assert!(edited().await);
    blocks.patch("default", "one", &longer).await.unwrap();
    assert!(!edited().await, "the next ban is an alert's");
}

#[tokio::test]
async fn what_the_definition_refuses_is_rejected_and_what_is_missing_may_come() {
    let (server, blocks, _) = server().await;
    for wrong in [block("example.com", "10m"), block("192.0.2.7", "-10m")] {
        let refused = blocks.create(&wrong).await;
        assert!(
            matches!(refused, Err(BlocksError::Rejected(_))),
            "{refused:?}"
        );
    }
    let mut elsewhere = block("192.0.2.7", "10m");
    elsewhere.metadata.namespace = Some("missing".into());
    assert_eq!(blocks.create(&elsewhere).await, Err(BlocksError::Gone));
    server.go_down();
    let down = blocks.create(&block("192.0.2.7", "10m")).await;
    assert!(matches!(down, Err(BlocksError::Unavailable(_))), "{down:?}");
}

#[tokio::test]
async fn the_originals_objects_are_found_by_their_status() {
    let (_server, blocks, api) = server().await;
    let blocks: Arc<dyn Blocks> = Arc::new(blocks);
    blocks.create(&block("192.0.2.7", "10m")).await.unwrap();
    let status = json!({"status": {"phase": "expired", "result": "unblocked"}});
    api.patch_status("one", &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
    let read = blocks.get("default", "one").await.unwrap().unwrap();
    assert!(read.status.unwrap().is(&crate::api::Phase::Expired));
}
