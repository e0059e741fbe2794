//! Webhooks of a manager: on every replica, with certificates of its own, and called by a real kube-apiserver.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event;
use kube_core::params::{DeleteParams, ListParams};
use reeve_controller::testing::{Cluster, Server, Setup};
use reeve_controller::webhook::admission::{Mutation, Request, Verdict};
use reeve_controller::webhook::certificates::{Lifetimes, Rotation};
use reeve_controller::webhook::{self, Webhook};
use reeve_controller::{
    Context, Controller, Manager, ObjectKey, Outcome, leader_election, reconcile,
};
use serde_json::json;
use tokio::time::{Instant, sleep};

const SECRET: &str = "guard-webhook-certificates";

fn server() -> webhook::Server {
    let locked = Webhook::validating(
        "locked.example.com",
        |request: Request<ConfigMap>| async move {
            match request.name.as_str() {
                "bug" => panic!("a bug"),
                "down" => Err("the database is down"),
                _ if request.either(|map| map.immutable == Some(true)) => {
                    let operation = request.operation;
                    Ok(Verdict::deny(format!("no {operation} of {}", request.name))
                        .warn("it is locked"))
                }
                _ => Ok(Verdict::allow()),
            }
        },
    );
    let team = Webhook::mutating(
        "team.example.com",
        |mut request: Request<ConfigMap>| async move {
            let Some(mut map) = request.object.take() else {
                return Mutation::unchanged();
            };
            let labels = map.metadata.labels.get_or_insert_default();
            labels.insert("team".into(), request.user.username.replace(':', "."));
            Mutation::changed(map)
        },
    );
    webhook::Server::at(([127, 0, 0, 1], 0).into()).webhooks([locked, team])
}

/// Certificates for 127.0.0.1, in the Secret of the Service `guard`.
fn rotation(client: reeve_client::Client, lifetimes: Lifetimes) -> Rotation {
    Rotation::new(client, "default", "guard")
        .name("127.0.0.1")
        .validating("guard")
        .mutating("guard")
        .every(Duration::from_millis(500))
        .lifetimes(lifetimes.propagation(Duration::from_secs(1)))
}

async fn manager(cluster: &Cluster, identity: &str, lifetimes: Lifetimes) -> Manager {
    let election = leader_election::Options::new("default", "guard").identity(identity);
    let builder = Manager::builder(cluster.kube())
        .clock(cluster.clock().clone())
        .leader_election(election)
        .webhooks(server())
        .webhook_certificates(move |client| rotation(client, lifetimes));
    builder.build().await.unwrap()
}

/// Configurations that lead to the manager.
async fn configure(cluster: &Cluster, manager: &Manager) {
    let port = manager.webhook_address().unwrap().port();
    let hook = |name: &str, path: &str, operations: &[&str]| {
        json!({
            "name": name,
            "clientConfig": {"url": format!("https://127.0.0.1:{port}{path}")},
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                "operations": operations,
            }],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 5,
        })
    };
    let validating = hook(
        "locked.example.com",
        "/validate--v1-configmap",
        &["CREATE", "UPDATE", "DELETE"],
    );
    cluster
        .create::<ValidatingWebhookConfiguration>(
            json!({"metadata": {"name": "guard"}, "webhooks": [validating]}),
        )
        .await;
    let mutating = hook("team.example.com", "/mutate--v1-configmap", &["CREATE"]);
    cluster
        .create::<MutatingWebhookConfiguration>(
            json!({"metadata": {"name": "guard"}, "webhooks": [mutating]}),
        )
        .await;
}

fn is_ready(manager: &Manager) -> bool {
    let failures = manager.health().ready().failures();
    !failures.iter().any(|(name, _)| name == "webhooks")
}

fn map(name: &str, locked: bool) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.metadata.namespace = Some("default".to_owned());
    map.immutable = locked.then_some(true);
    map
}

#[test]
fn webhooks_run_on_every_replica_and_go_on_while_the_manager_stops() {
    Setup::new().server(Server::BuiltIn).run(async |cluster| {
        let lifetimes = Lifetimes::default();
        let (one, two) = (
            manager(&cluster, "one", lifetimes).await,
            manager(&cluster, "two", lifetimes).await,
        );
        configure(&cluster, &one).await;
        assert!(!is_ready(&one), "there is no certificate yet");
        let (leader, standby) = (cluster.start(&one), cluster.start(&two));
        cluster
            .eventually("both are ready", async || {
                (is_ready(&one) && is_ready(&two)).then_some(())
            })
            .await;
        assert_ne!(
            *one.leading().borrow(),
            *two.leading().borrow(),
            "one of them leads"
        );

        // One Event of the Secret for each step, and the ends as metrics.
        let reasons = async || {
            let params = ListParams::default();
            let events = cluster
                .client()
                .list::<Event>(Some("default"), &params)
                .await
                .unwrap()
                .items;
            let of_secret = events.into_iter().filter(|event| {
                event
                    .regarding
                    .as_ref()
                    .is_some_and(|regarding| regarding.name.as_deref() == Some(SECRET))
            });
            of_secret
                .filter_map(|event| event.reason)
                .collect::<Vec<_>>()
        };
        cluster
            .eventually("Events are written", async || {
                let reasons = reasons().await;
                let has = |reason: &str| reasons.iter().any(|found| found == reason);
                (has("CertificatesCreated") && has("BundleInjected")).then_some(())
            })
            .await;
        let metric = leader
            .metric("reeve_webhook_certificate_not_after_seconds")
            .unwrap();
        assert!(metric > 1_767_225_600.0 + 364.0 * 86_400.0);
        assert_eq!(
            leader.metric("controller_runtime_webhook_panics_total"),
            Some(0.0)
        );

        let key = ObjectKey::namespaced("default", SECRET);
        cluster
            .client()
            .delete::<Secret>(&key, &DeleteParams::default())
            .await
            .unwrap();
        cluster
            .eventually("the Secret is restored, and an Event says so", async || {
                reasons()
                    .await
                    .iter()
                    .any(|reason| reason == "CertificatesRestored")
                    .then_some(())
            })
            .await;

        // The server goes on for its linger time, although no part of the manager needs it.
        let begun = Instant::now();
        standby.stop();
        sleep(Duration::from_secs(1)).await;
        assert!(!is_ready(&two) && !standby.is_over());
        let address = two.webhook_address().unwrap();
        assert!(tokio::net::TcpStream::connect(address).await.is_ok());
        standby.ended().await.unwrap();
        assert!(
            (15..20).contains(&begun.elapsed().as_secs()),
            "{:?}",
            begun.elapsed()
        );
        assert!(is_ready(&one));
        leader.end().await;
    });
}

#[test]
fn a_short_grace_period_is_shared_by_the_linger_time_and_the_calls_in_work() {
    Setup::new().server(Server::BuiltIn).run(async |cluster| {
        let manager = Manager::builder(cluster.kube())
            .clock(cluster.clock().clone())
            .webhooks(server())
            .grace_period(Duration::from_secs(10))
            .build();
        let running = cluster.start(&manager.await.unwrap());
        sleep(Duration::from_secs(1)).await;
        let begun = Instant::now();
        // Without an error: no part of it was dropped.
        running.end().await;
        let took = begun.elapsed().as_secs_f64();
        assert!((5.5..7.0).contains(&took), "{took}");
    });
}

#[test]
fn a_test_of_a_controller_sees_its_own_admission() {
    Setup::new().server(Server::BuiltIn).run(async |cluster| {
        cluster.webhooks(&server()).await;
        // The controller's own writes are admitted, too.
        let reconciler = reconcile::function(
            |ctx: Context, request: reeve_controller::Request| async move {
                let lock = kube_core::params::Patch::Merge(json!({"immutable": true}));
                if request.name.starts_with("lock") {
                    ctx.client().patch::<ConfigMap>(&request, &lock).await?;
                }
                Ok::<_, reconcile::Error>(Outcome::done())
            },
        );
        let controller = Controller::builder("locker").for_kind::<ConfigMap>();
        let running = cluster
            .run([controller.complete(reconciler).unwrap()])
            .await;
        let made = cluster.client().create(&map("open", false)).await.unwrap();
        assert!(made.metadata.labels.unwrap().contains_key("team"));
        cluster
            .client()
            .create(&map("lock-me", false))
            .await
            .unwrap();
        cluster
            .eventually("the write of the controller is denied", async || {
                let queues = running.manager().queues().report(usize::MAX);
                let mut items = queues.into_iter().flat_map(|queue| queue.items);
                items.find_map(|item| {
                    let error = item.last_error?.message;
                    error.contains("no UPDATE of lock-me").then_some(())
                })
            })
            .await;
        // A failing webhook fails the call, and nothing but it.
        let error = cluster
            .client()
            .create(&map("bug", false))
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("locked.example.com panicked"),
            "{error}"
        );
        running.end().await;
    });
}

#[test]
fn a_test_uses_the_manifests_of_the_program() {
    Setup::new().server(Server::BuiltIn).run(async |cluster| {
        let manifest = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "guard"},
            "webhooks": [{
                "name": "locked.example.com",
                "clientConfig": {"service": {
                    "namespace": "ops", "name": "guard", "path": "/validate--v1-configmap",
                }},
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                    "operations": ["DELETE"],
                }],
                "admissionReviewVersions": ["v1"], "sideEffects": "None",
            }],
        });
        cluster.webhooks_as(&server(), [manifest]).await;
        // The rule has deletions alone.
        cluster.client().create(&map("kept", true)).await.unwrap();
        let key = ObjectKey::namespaced("default", "kept");
        let delete = DeleteParams::default();
        let error = cluster
            .client()
            .delete::<ConfigMap>(&key, &delete)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("no DELETE of kept"), "{error}");
    });
}

#[test]
fn certificates_without_webhooks_are_refused() {
    Setup::new().server(Server::BuiltIn).run(async |cluster| {
        let builder = || {
            let certificates = |client| rotation(client, Lifetimes::default());
            Manager::builder(cluster.kube()).webhook_certificates(certificates)
        };
        let error = builder().build().await.unwrap_err().to_string();
        assert!(error.contains("call `webhooks`"), "{error}");
        assert!(builder().webhooks_enabled(false).build().await.is_ok());
    });
}

#[test]
fn a_real_kube_apiserver_calls_the_webhooks_of_a_manager() {
    Setup::new().server(Server::Assets).run(async |cluster| {
        let manager = manager(&cluster, "one", Lifetimes::default()).await;
        configure(&cluster, &manager).await;
        let running = cluster.start(&manager);
        cluster
            .eventually("the webhooks are ready", async || {
                is_ready(&manager).then_some(())
            })
            .await;
        let client = cluster.client();

        let open = client.create(&map("open", false)).await.unwrap();
        let team = open.metadata.labels.unwrap_or_default();
        assert!(team.contains_key("team"), "{team:?}");
        for (name, locked, expected) in [
            (
                "locked",
                true,
                "admission webhook \"locked.example.com\" denied the request: no CREATE of locked",
            ),
            (
                "bug",
                false,
                "an error on the server (\"locked.example.com panicked; its log has the message\")",
            ),
            (
                "down",
                false,
                "locked.example.com failed: the database is down",
            ),
        ] {
            let error = client
                .create(&map(name, locked))
                .await
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
        }
        let key = ObjectKey::namespaced("default", "open");
        let lock = reeve_client::Patch::merge(json!({"immutable": true}));
        let error = client
            .patch::<ConfigMap>(&key, lock.clone())
            .await
            .unwrap_err();
        assert!(error.to_string().contains("no UPDATE of open"), "{error}");
        let error = client
            .clone()
            .dry_run()
            .patch::<ConfigMap>(&key, lock)
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("no UPDATE of open"),
            "dry run: {error}"
        );
        client
            .delete::<ConfigMap>(&key, &DeleteParams::default())
            .await
            .unwrap();
        assert_eq!(
            running.metric("controller_runtime_webhook_panics_total"),
            Some(1.0)
        );
        let stop = Instant::now();
        running.end().await;
        assert!(stop.elapsed() < Duration::from_secs(25));
    });
}

#[test]
fn a_real_kube_apiserver_loses_no_call_while_authorities_are_replaced() {
    Setup::new().server(Server::Assets).run(async |cluster| {
        let lifetimes = Lifetimes::default()
            .authority(Duration::from_secs(12))
            .leaf(Duration::from_secs(12))
            .overlap(Duration::from_secs(1));
        let manager = manager(&cluster, "one", lifetimes).await;
        configure(&cluster, &manager).await;
        let running = cluster.start(&manager);
        cluster
            .eventually("the webhooks are ready", async || {
                is_ready(&manager).then_some(())
            })
            .await;
        let authority = async || {
            let key = ObjectKey::namespaced("default", SECRET);
            let data = cluster
                .client()
                .get::<Secret>(&key)
                .await
                .unwrap()
                .data
                .unwrap();
            data["ca.key"].0.clone()
        };
        let calls = Arc::new(AtomicUsize::new(0));
        let (mut seen, mut rotations) = (authority().await, 0);
        let begun = Instant::now();
        while rotations < 3 {
            let number = calls.fetch_add(1, Ordering::Relaxed);
            let created = cluster
                .client()
                .create(&map(&format!("map-{number}"), false))
                .await;
            created.unwrap_or_else(|error| {
                panic!("call {number} after {rotations} rotations: {error}")
            });
            let now = authority().await;
            if now != seen {
                (seen, rotations) = (now, rotations + 1);
            }
            assert!(
                begun.elapsed() < Duration::from_secs(120),
                "{rotations} rotations"
            );
            sleep(Duration::from_millis(20)).await;
        }
        println!(
            "{} calls, {rotations} rotations",
            calls.load(Ordering::Relaxed)
        );
        running.end().await;
    });
}
