//! The scenarios of the original's tests, and faults.

use std::time::Duration;

use document_controller::{Document, FINALIZER, add};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::params::{DeleteParams, ListParams};
use kube_core::{CustomResourceExt, Resource, ResourceExt};
use reeve_controller::ObjectKey;
use reeve_controller::client::{Client, Patch, optional};
use reeve_controller::testing::{Cluster, Rule, Running, Server, Setup};
use serde_json::{Value, json};
use tokio::time::sleep;

const HOUR: Duration = Duration::from_secs(3600);

struct World {
    cluster: Cluster,
    client: Client,
}

/// Runs a case on the built-in server, which has the definition of the kind.
fn run(case: impl AsyncFnOnce(World)) {
    Setup::new().server(Server::BuiltIn).run(async |cluster| {
        let client = cluster.client();
        client.create(&Document::crd()).await.unwrap();
        let served = async || client.list::<Document>(None, &ListParams::default()).await;
        cluster.eventually("the kind is served", served).await;
        case(World { cluster, client }).await;
    });
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

// === impl World ===

impl World {
    async fn start(&self) -> Running {
        let manager = self.cluster.manager().build().await.unwrap();
        add(&manager).unwrap();
        self.cluster.start(&manager)
    }

    async fn document(&self, name: &str, title: &str, hide: bool) -> Document {
        let spec = json!({"title": title, "hide": hide, "content": "Lorem ipsum"});
        let meta = json!({"name": name, "namespace": "default"});
        let version = Document::api_version(&());
        let object =
            json!({"apiVersion": version, "kind": "Document", "metadata": meta, "spec": spec});
        self.cluster.create(object).await
    }

    async fn patch(&self, name: &str, patch: Value) {
        let patch = Patch::merge(patch);
        let key = key(name);
        let patched = self.client.patch::<Document>(&key, patch);
        patched.await.unwrap();
    }

    async fn delete(&self, name: &str) {
        let params = DeleteParams::default();
        let key = key(name);
        let deleted = self.client.delete::<Document>(&key, &params);
        deleted.await.unwrap();
    }

    async fn read(&self, name: &str) -> Option<Document> {
        optional(self.client.get(&key(name)).await).unwrap()
    }

    async fn until_hidden(&self, name: &str, hidden: bool) {
        let look = async || Some(self.read(name).await?.status?.hidden);
        let what = format!("{name} has the status hidden={hidden}");
        self.cluster.eventually_eq(&what, Some(hidden), look).await;
    }

    async fn until_gone(&self, name: &str) {
        let gone = async || self.read(name).await.is_none();
        self.cluster.eventually("it is gone", gone).await;
    }

    /// The notes of the Events about `name` with this reason.
    async fn notes(&self, name: &str, reason: &str) -> Vec<String> {
        let params = ListParams::default();
        let list = self.client.list::<Event>(Some("default"), &params);
        let events = list.await.unwrap().items.into_iter();
        let about = events.filter(|event| {
            let about = event
                .regarding
                .as_ref()
                .and_then(|about| about.name.as_deref());
            event.reason.as_deref() == Some(reason) && about == Some(name)
        });
        about.filter_map(|event| event.note).collect()
    }

    async fn until_note(&self, name: &str, reason: &str, note: &str) {
        let look = async || self.notes(name, reason).await;
        self.cluster
            .eventually_eq(reason, vec![note.to_owned()], look)
            .await;
    }

    fn writes(&self) -> usize {
        self.cluster.requests().count("patch", "documents")
    }
}

/// The original's `documents_without_finalizer_gets_a_finalizer` and `finalized_doc_causes_status_patch`.
#[test]
fn a_document_gets_the_finalizer_and_a_status() {
    run(async |world| {
        let running = world.start().await;
        world.document("lorem", "lorem", false).await;
        world.until_hidden("lorem", false).await;
        let document = world.read("lorem").await.unwrap();
        assert_eq!(document.finalizers(), [FINALIZER]);
        assert!(world.notes("lorem", "HideRequested").await.is_empty());
        running.end().await;
    });
}

/// The original's `finalized_doc_with_hide_causes_event_and_hide_patch`.
#[test]
fn a_document_to_hide_causes_one_event_and_the_status() {
    run(async |world| {
        let running = world.start().await;
        world.document("lorem", "lorem", true).await;
        world.until_hidden("lorem", true).await;
        world
            .until_note("lorem", "HideRequested", "Hiding `lorem`")
            .await;
        world.patch("lorem", json!({"spec": {"hide": false}})).await;
        world.until_hidden("lorem", false).await;
        assert_eq!(world.notes("lorem", "HideRequested").await.len(), 1);
        running.end().await;
    });
}

/// The original's `finalized_doc_with_delete_timestamp_causes_delete`.
#[test]
fn a_deleted_document_causes_an_event_and_goes() {
    run(async |world| {
        let running = world.start().await;
        world.document("lorem", "lorem", false).await;
        world.until_hidden("lorem", false).await;
        world.delete("lorem").await;
        world.until_gone("lorem").await;
        world
            .until_note("lorem", "DeleteRequested", "Delete `lorem`")
            .await;
        running.end().await;
    });
}

/// The original's `illegal_doc_reconcile_errors_which_bumps_failure_metric`.
#[test]
fn an_illegal_document_fails_and_counts_and_is_not_tried_again() {
    run(async |world| {
        let running = world.start().await;
        world.document("bad", "illegal", true).await;
        sleep(HOUR).await;
        let failures = "doc_ctrl_failures_total{error=\"IllegalDocument\"}";
        let count = running.metric(failures).unwrap();
        assert!(count >= 1.0);
        sleep(10 * HOUR).await;
        assert_eq!(running.metric(failures), Some(count));
        let terminal = "controller_runtime_terminal_reconcile_errors_total";
        assert_eq!(running.metric(terminal), Some(count));
        assert!(world.read("bad").await.unwrap().status.is_none());
        world
            .patch("bad", json!({"spec": {"title": "legal"}}))
            .await;
        world.until_hidden("bad", true).await;
        running.end().await;
    });
}

#[test]
fn a_document_is_checked_every_five_minutes_and_written_only_when_it_differs() {
    run(async |world| {
        let running = world.start().await;
        world.document("lorem", "lorem", true).await;
        world.until_hidden("lorem", true).await;
        sleep(Duration::from_secs(60)).await;
        let (writes, before) = (world.writes(), reconciles(&running));
        sleep(10 * HOUR).await;
        assert_eq!(reconciles(&running) - before, 120.0);
        assert_eq!(world.writes(), writes);
        let requests = world.cluster.requests();
        let events = (
            requests.count("create", "events"),
            requests.count("patch", "events"),
        );
        assert_eq!(events, (1, 0));
        running.end().await;
    });
}

/// Each write is stored and its answer is lost: of the finalizer, of the status, and of the end.
#[test]
fn writes_whose_answers_are_lost_have_their_effect_once() {
    run(async |world| {
        let writes = Rule::new().verb("patch").resource("documents");
        let lost = world.cluster.faults().add(writes.times(2).lose_answer());
        let running = world.start().await;
        world.document("lorem", "lorem", true).await;
        world.until_hidden("lorem", true).await;
        sleep(HOUR).await;
        assert_eq!(lost.hits(), 2);
        assert_eq!(world.read("lorem").await.unwrap().finalizers(), [FINALIZER]);
        let removal = Rule::new().verb("patch").resource("documents").times(1);
        let lost = world.cluster.faults().add(removal.lose_answer());
        world.delete("lorem").await;
        world.until_gone("lorem").await;
        sleep(HOUR / 2).await;
        assert_eq!(lost.hits(), 1);
        assert_eq!(world.notes("lorem", "DeleteRequested").await.len(), 1);
        running.end().await;
    });
}

#[test]
fn a_document_that_is_deleted_while_the_program_was_killed_is_cleaned_up_after_the_start() {
    run(async |world| {
        let running = world.start().await;
        world.document("lorem", "lorem", false).await;
        world.until_hidden("lorem", false).await;
        running.crash().await;
        world.delete("lorem").await;
        sleep(HOUR).await;
        assert!(world.read("lorem").await.is_some());
        let running = world.start().await;
        world.until_gone("lorem").await;
        world
            .until_note("lorem", "DeleteRequested", "Delete `lorem`")
            .await;
        running.end().await;
    });
}

/// The number of reconciles that ended with a requeue.
fn reconciles(running: &Running) -> f64 {
    let text = running.manager().metrics().encode();
    let line = text.lines().find(|line| {
        line.starts_with("controller_runtime_reconcile_total") && line.contains("\"requeue_after\"")
    });
    let value = line.and_then(|line| line.rsplit(' ').next());
    value.unwrap().parse().unwrap()
}

#[test]
fn the_manifest_is_the_definition_of_the_kind() {
    let manifest: CustomResourceDefinition =
        serde_saphyr::from_str(include_str!("../crd.yaml")).unwrap();
    assert!(
        manifest == Document::crd(),
        "crd.yaml is not the derived definition:\n{}",
        json!(Document::crd())
    );
}
