//! The defects of the original program, C1 to C10: each case fails with its defect.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use reeve_apiserver::faults::{Handle, Rule};
use serde_json::json;
use service_ingress::desired::ANNOTATION;
use service_ingress::{NAME, Settings};
use tokio::time::{Instant, sleep};

use crate::behaviour::world::{World, key};

/// Refuses lists and watches of `resource` until the handles are passed to [`shown`].
fn hidden(world: &World, resource: &str) -> [Handle; 2] {
    let away = |verb: &str| {
        Rule::new()
            .resource(resource)
            .verb(verb)
            .status(503, "away")
    };
    let handles = ["list", "watch"].map(|verb| world.server.faults().add(away(verb)));
    world.server.forget_history(None);
    world.server.close_watches();
    handles
}

fn shown(handles: impl IntoIterator<Item = Handle>) {
    for handle in handles {
        handle.remove();
    }
}

/// C1: the ownerReference had the apiVersion `meta.k8s.io/v1`, which no garbage collector can follow.
async fn c1_the_garbage_collector_takes_the_ingress_of_a_deleted_service(world: World) {
    let program = world.start().await;
    world.service("web", Some("on")).await;
    let ingress = world.until_ingress("web").await;
    let owner = &ingress.metadata.owner_references.unwrap()[0];
    assert_eq!((&*owner.api_version, &*owner.kind), ("v1", "Service"));
    // From here on only the server can delete it.
    program.end().await;
    world.delete::<Service>("web").await;
    world.until_no_ingress("web").await;
}

/// C2: an Ingress whose Service was deleted while the program was down was never deleted.
async fn c2_ingresses_that_became_orphans_while_the_program_was_down_are_deleted(world: World) {
    let form = world.form;
    let world = World::with(form, world.clock, |server| server.garbage_collection(false)).await;
    let program = world.start().await;
    for name in ["gone", "again"] {
        world.service(name, Some("on")).await;
        world.until_ingress(name).await;
    }
    program.kill().await;
    world.delete::<Service>("gone").await;
    world.delete::<Service>("again").await;
    let again = world.service("again", Some("on")).await;
    // An Ingress as the original program wrote it.
    let owner = json!({"apiVersion": "meta.k8s.io/v1", "kind": "Service", "name": "former", "uid": "long-gone", "controller": true});
    let _: Ingress = world
        .create(json!({
            "metadata": {"namespace": "default", "name": "former", "ownerReferences": [owner]},
            "spec": {"defaultBackend": {"service": {"name": "former", "port": {"number": 80}}}},
        }))
        .await;
    let program = world.start().await;
    world.until_no_ingress("gone").await;
    world.until_no_ingress("former").await;
    let replaced = async |world: &World| {
        let ingress = world.ingress("again").await;
        let owners = ingress.and_then(|ingress| ingress.metadata.owner_references);
        owners.is_some_and(|owners| Some(&owners[0].uid) == again.metadata.uid.as_ref())
    };
    world
        .until("the new Service has its own Ingress", replaced)
        .await;
    program.end().await;
}

/// C2, the opposite case: an Ingress is not deleted as an orphan because the cache of Services is behind.
async fn c2_an_ingress_is_kept_when_the_server_still_has_its_service(world: World) {
    let program = world.start().await;
    program.ready(&world).await;
    let away = hidden(&world, "services");
    let service = world.service("new", Some("on")).await;
    // An Ingress as another replica created it, whose cache already had the Service.
    let owner = json!({"apiVersion": "v1", "kind": "Service", "name": "new", "uid": service.metadata.uid, "controller": true});
    let made: Ingress = world
        .create(json!({
            "metadata": {"namespace": "default", "name": "new", "ownerReferences": [owner]},
            "spec": {"ingressClassName": "nginx", "defaultBackend": {"service": {"name": "new", "port": {"number": 80}}}},
        }))
        .await;
    world.quiet().await;
    shown(away);
    world.quiet().await;
    let kept = world.ingress("new").await.expect("it was never deleted");
    assert_eq!(kept.metadata.uid, made.metadata.uid);
    assert!(
        kept.spec.unwrap().rules.is_some(),
        "and is completed when the cache has the Service"
    );
    program.end().await;
}

/// C2 and C1 together: the collector deletes the Ingress of a Service that the cache still has. It is not created again.
async fn c2_no_ingress_is_created_for_a_service_that_only_the_cache_has(world: World) {
    let program = world.start().await;
    world.service("web", Some("on")).await;
    world.until_ingress("web").await;
    world.quiet().await;
    let away = hidden(&world, "services");
    world.delete::<Service>("web").await;
    world.until_no_ingress("web").await;
    sleep(Duration::from_secs(60)).await;
    assert!(world.ingress("web").await.is_none());
    assert_eq!(world.done("create"), 1);
    shown(away);
    world.quiet().await;
    assert!(world.ingress("web").await.is_none());
    program.end().await;
}

/// C3: a Service without the annotation caused the deletion of any Ingress of its name.
async fn c3_an_ingress_with_another_owner_is_not_deleted(world: World) {
    let program = world.start().await;
    for (name, annotation) in [("never", None), ("before", Some("on"))] {
        world.foreign_ingress(name).await;
        world.service(name, annotation).await;
    }
    world.quiet().await;
    world.annotate("before", None).await;
    world
        .patch::<Service>("never", json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    world.quiet().await;
    world.delete::<Service>("never").await;
    world.quiet().await;
    for name in ["never", "before"] {
        let ingress = world.ingress(name).await.expect("it is still there");
        assert!(
            ingress.metadata.owner_references.is_none(),
            "{name} is as it was"
        );
    }
    assert_eq!(world.done("delete"), 0);
    program.end().await;
}

/// C4: a key's failures were never forgotten. They added up over the life of the process until the key was given up.
async fn c4_failures_of_the_past_do_not_count(world: World) {
    let program = world.start().await;
    world.service("web", None).await;
    for round in 0..6 {
        let refuse = Rule::new()
            .verb("create")
            .resource("ingresses")
            .times(5)
            .status(403, "not yet");
        let refused = world.server.faults().add(refuse);
        world.annotate("web", Some("on")).await;
        world.until_ingress("web").await;
        assert_eq!(refused.hits(), 5, "round {round}");
        world.annotate("web", None).await;
        world.until_no_ingress("web").await;
    }
    assert!(
        !world
            .event_reasons("web")
            .await
            .contains(&"SyncFailed".to_owned())
    );
    program.end().await;
}

/// C5: deletions that a list showed, and not a watch, crashed a handler or were lost.
async fn c5_deletions_that_no_watch_showed_are_processed(world: World) {
    let form = world.form;
    let world = World::with(form, world.clock, |server| server.garbage_collection(false)).await;
    let program = world.start().await;
    for name in ["service-gone", "ingress-gone", "both-gone"] {
        world.service(name, Some("on")).await;
        world.until_ingress(name).await;
    }
    world.quiet().await;
    let away = [hidden(&world, "services"), hidden(&world, "ingresses")];
    world.delete::<Service>("service-gone").await;
    world.delete::<Ingress>("ingress-gone").await;
    world.delete::<Service>("both-gone").await;
    world.delete::<Ingress>("both-gone").await;
    world.server.forget_history(None);
    sleep(Duration::from_secs(60)).await;
    shown(away.into_iter().flatten());
    world.until_ingress("ingress-gone").await;
    world.until_no_ingress("service-gone").await;
    world.quiet().await;
    assert!(world.ingress("both-gone").await.is_none());
    // The handlers still work.
    world.service("next", Some("on")).await;
    world.until_ingress("next").await;
    program.end().await;
}

/// C6: an Ingress that the cache did not show yet made "already exists" a failure.
async fn c6_a_stale_cache_is_not_a_failure(world: World) {
    let settings = Settings {
        max_retry: 0,
        ..world.settings()
    };
    let program = world.start_with(settings).await;
    program.ready(&world).await;
    let away = hidden(&world, "ingresses");
    world.foreign_ingress("web").await;
    world.service("web", Some("on")).await;
    let tried = async |world: &World| {
        let conflicts = |request: &reeve_apiserver::record::RequestRecord| {
            request.verb == "create" && request.code == 409
        };
        world.requests().into_iter().filter(conflicts).count() >= 3
    };
    world.until("it was tried three times", tried).await;
    shown(away);
    world.until_event("web", "IngressConflict").await;
    assert_eq!(
        world.event_reasons("web").await,
        ["IngressConflict"],
        "and never given up"
    );
    program.end().await;
}

/// C7: changes of the Ingress by other clients stayed, and the port was 80 for every Service.
async fn c7_drift_is_repaired_and_the_port_followed(world: World) {
    let program = world.start().await;
    world.service("web", Some("on")).await;
    let made = world.until_ingress("web").await;
    let as_made = async |world: &World| {
        let ingress = world.ingress("web").await.unwrap();
        ingress.spec == made.spec && ingress.metadata.uid == made.metadata.uid
    };
    let mut evil = serde_json::to_value(&made.spec).unwrap();
    evil["rules"][0]["host"] = json!("evil.example");
    for drift in [evil, json!({"ingressClassName": "other"})] {
        world.patch::<Ingress>("web", json!({"spec": drift})).await;
        world.until("the Ingress is as it was", as_made).await;
    }
    world
        .patch::<Service>("web", json!({"spec": {"ports": [{"port": 8080}]}}))
        .await;
    let follows = async |world: &World| {
        let ingress = serde_json::to_value(world.ingress("web").await).unwrap();
        ingress.pointer("/spec/rules/0/http/paths/0/backend/service/port/number")
            == Some(&json!(8080))
    };
    world
        .until("the backend follows the Service", follows)
        .await;
    world.quiet().await;
    assert_eq!(world.done("patch"), 3, "one repair each");
    // Parts that other clients added stay.
    world.patch::<Ingress>("web", json!({"metadata": {"annotations": {"cert": "x"}}, "spec": {"tls": [{"hosts": ["example.com"]}]}})).await;
    world.quiet().await;
    let ingress = world.ingress("web").await.unwrap();
    assert!(ingress.spec.unwrap().tls.is_some() && ingress.metadata.annotations.is_some());
    assert_eq!(world.done("patch"), 3);
    program.end().await;
}

/// C8: a Service that was being deleted, and was held by a finalizer, got a new Ingress.
async fn c8_a_service_that_is_being_deleted_gets_no_ingress(world: World) {
    let program = world.start().await;
    world.service("web", Some("on")).await;
    world
        .patch::<Service>(
            "web",
            json!({"metadata": {"finalizers": ["example.com/load-balancer"]}}),
        )
        .await;
    world.until_ingress("web").await;
    world.delete::<Service>("web").await;
    world.until_no_ingress("web").await;
    let service: Service = world.get("web").await.expect("the finalizer holds it");
    assert!(
        service
            .metadata
            .annotations
            .unwrap()
            .contains_key(ANNOTATION)
    );
    world
        .patch::<Service>("web", json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    world.quiet().await;
    assert!(world.ingress("web").await.is_none());
    assert_eq!(world.done("create"), 1);
    program.end().await;
}

/// C9: an Ingress of the same name with another owner was not reported.
async fn c9_an_ingress_with_another_owner_is_reported_and_its_deletion_frees_the_name(
    world: World,
) {
    let program = world.start().await;
    world.foreign_ingress("web").await;
    world.service("web", Some("on")).await;
    world.until_event("web", "IngressConflict").await;
    world.delete::<Ingress>("web").await;
    let ours = world.until_ingress("web").await;
    assert!(ours.metadata.owner_references.is_some());
    world.until_event("web", "IngressCreated").await;
    program.end().await;
}

/// C10: there was no election. Of two copies one works, and the other one takes over, at once or after the lease.
async fn c10_of_two_copies_one_works_and_the_other_takes_over(world: World) {
    let holder = async || {
        let lease: Lease = world.client.get(&key(NAME)).await.unwrap();
        lease
            .spec
            .and_then(|spec| spec.holder_identity)
            .unwrap_or_default()
    };
    let one = world.start_copy("pod-0").await;
    one.ready(&world).await;
    let two = world.start_copy("pod-1").await;
    two.ready(&world).await;
    world.service("a", Some("on")).await;
    world.until_ingress("a").await;
    world.quiet().await;
    assert_eq!((world.done("create"), &*holder().await), (1, "pod-0"));

    let stopped = Instant::now();
    one.end().await;
    world.service("b", Some("on")).await;
    world.until_ingress("b").await;
    assert!(
        stopped.elapsed() < Duration::from_secs(5),
        "{:?}",
        stopped.elapsed()
    );
    assert_eq!(holder().await, "pod-1");

    let three = world.start_copy("pod-2").await;
    three.ready(&world).await;
    let killed = Instant::now();
    two.kill().await;
    world.service("c", Some("on")).await;
    world.until_ingress("c").await;
    assert!(
        killed.elapsed() < Duration::from_secs(20),
        "{:?}",
        killed.elapsed()
    );
    assert_eq!((world.done("create"), &*holder().await), (3, "pod-2"));
    three.end().await;
}

/// C10: there was no sign whether the program works.
async fn c10_readiness_names_what_is_missing_and_events_report_what_was_done(world: World) {
    let away = hidden(&world, "ingresses");
    let program = world.start().await;
    sleep(Duration::from_secs(60)).await;
    let status = async |path: &str| {
        let answer = program.manager.health().respond(path, None);
        answer.await.status().as_u16()
    };
    assert_eq!(
        (status("/healthz").await, status("/readyz").await),
        (200, 500)
    );
    let failures = program.manager.health().ready().failures();
    assert!(
        failures
            .iter()
            .any(|(_, cause)| cause.contains("ingresses")),
        "{failures:?}"
    );
    shown(away);
    program.ready(&world).await;
    assert_eq!(
        (status("/healthz").await, status("/readyz").await),
        (200, 200)
    );

    world.service("web", Some("on")).await;
    world.until_ingress("web").await;
    world.annotate("web", Some("class=other")).await;
    world.until_event("web", "IngressUpdated").await;
    world.annotate("web", None).await;
    world.until_no_ingress("web").await;
    world.until_event("web", "IngressDeleted").await;
    assert_eq!(
        world.event_reasons("web").await,
        ["IngressCreated", "IngressDeleted", "IngressUpdated"]
    );
    let metrics = program.manager.metrics().encode();
    for family in ["workqueue_adds_total", "workqueue_depth"] {
        assert!(metrics.contains(family), "{family}:\n{metrics}");
    }
    program.end().await;
}

on_both_forms!(
    c1_the_garbage_collector_takes_the_ingress_of_a_deleted_service,
    c2_ingresses_that_became_orphans_while_the_program_was_down_are_deleted,
    c2_an_ingress_is_kept_when_the_server_still_has_its_service,
    c2_no_ingress_is_created_for_a_service_that_only_the_cache_has,
    c3_an_ingress_with_another_owner_is_not_deleted,
    c4_failures_of_the_past_do_not_count,
    c5_deletions_that_no_watch_showed_are_processed,
    c6_a_stale_cache_is_not_a_failure,
    c7_drift_is_repaired_and_the_port_followed,
    c8_a_service_that_is_being_deleted_gets_no_ingress,
    c9_an_ingress_with_another_owner_is_reported_and_its_deletion_frees_the_name,
    c10_of_two_copies_one_works_and_the_other_takes_over,
    c10_readiness_names_what_is_missing_and_events_report_what_was_done,
);
