//! The behaviours of the original and its defects (A).

use preprod_guard::object::Facts;
use preprod_guard::state::State;
use reeve_webhook::admission::Operation;
use reeve_webhook::testing::Call;
use serde_json::{Value, json};

use crate::scenario::{
    CALLERS, DEPLOYMENT, POD, allowed, ask, call, create, delete, denied, guard_of, key, mark,
    object, plain, production, state, update,
};

#[tokio::test]
async fn every_operation_on_production_is_denied_with_the_text_of_the_original() {
    for (kind, word) in [
        (POD, "pod"),
        (DEPLOYMENT, "deployment"),
        (("apps", "StatefulSet", "statefulsets"), "statefulset"),
        (("batch", "Job", "jobs"), "job"),
        (("", "Namespace", "namespaces"), "namespace"),
        (
            (
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                "customresourcedefinitions",
            ),
            "crd",
        ),
    ] {
        for call in [
            create(kind, production("a")),
            update(kind, production("a"), production("a")),
            delete(kind, production("a")),
        ] {
            let reply = ask(&call).await;
            let operation = call.review()["request"]["operation"]
                .as_str()
                .unwrap()
                .to_owned();
            let text =
                format!("Pre-release environment not allowed to {operation} production {word}");
            assert_eq!(reply.message(), text);
            assert_eq!(reply.code(), Some(403));
            assert_eq!(
                reply.response()["status"]["reason"],
                Value::Null,
                "kubectl would print it"
            );
            assert!(ask(&call.user("admin")).await.allowed());
        }
    }
}

#[tokio::test]
async fn the_callers_own_pods_may_be_created_changed_and_deleted() {
    allowed(create(POD, plain("try-1"))).await;
    allowed(update(POD, plain("try-0"), plain("try-0"))).await;
    allowed(delete(POD, plain("try-0"))).await;
}

#[tokio::test]
async fn an_old_pod_may_be_changed_and_not_deleted() {
    let mut old = plain("try-0");
    old["metadata"]["creationTimestamp"] = json!("2025-12-19T00:00:00Z");
    allowed(update(POD, old.clone(), old.clone())).await;
    denied(
        delete(POD, old.clone()),
        "not allowed to DELETE too old pod",
    )
    .await;
    let mut state = state();
    state.put(key("", "pods", "try-0"), Facts::of(&old, &mark()));
    let guard = guard_of(CALLERS, state);
    let body = json!({"metadata": {"name": "try-0", "namespace": "hbox"}});
    let kind = ("policy", "Eviction", "pods");
    let evict = call(Operation::Create, kind, None, Some(body));
    let evict = evict.subresource("", "v1", "pods", "eviction");
    let reply = evict.to(&guard.webhook).await;
    assert!(
        reply.message().contains("too old pod"),
        "an eviction deletes: {}",
        reply.message()
    );
}

#[tokio::test]
async fn a2_removing_the_label_is_denied() {
    let strip = update(POD, production("web-0"), plain("web-0"));
    denied(strip, "not allowed to UPDATE production pod").await;
}

#[tokio::test]
async fn a8_a_namespace_with_production_objects_cannot_be_deleted() {
    let kind = ("", "Namespace", "namespaces");
    denied(
        delete(kind, plain("hbox")),
        "DELETE namespace hbox: it contains 3 production objects (",
    )
    .await;
    allowed(delete(kind, plain("empty"))).await;
}

#[tokio::test]
async fn a8_a_definition_with_production_instances_cannot_be_changed_or_deleted() {
    let kind = (
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    );
    let name = "websites.example.com";
    denied(
        delete(kind, plain(name)),
        "it contains 1 production object (websites/site)",
    )
    .await;
    denied(update(kind, plain(name), plain(name)), "websites/site").await;
}

#[tokio::test]
async fn a_namespace_gives_its_label_to_objects_that_have_none() {
    let mut state = state();
    state.put(
        key("", "namespaces", "hbox"),
        Facts::of(&production("hbox"), &mark()),
    );
    let guard = guard_of(CALLERS, state);
    assert!(
        !delete(POD, plain("try-0"))
            .to(&guard.webhook)
            .await
            .allowed()
    );
    let own = object("try-0", Some("pre"), json!({}));
    assert!(delete(POD, own.clone()).to(&guard.webhook).await.allowed());
    let leave = update(POD, plain("try-0"), own);
    assert!(
        !leave.to(&guard.webhook).await.allowed(),
        "a label of its own takes it out"
    );
}

#[tokio::test]
async fn until_the_caches_are_synced_only_requests_that_search_them_are_denied() {
    let mut unsynced = State::default();
    unsynced.put(
        key("", "namespaces", "hbox"),
        Facts::of(&plain("hbox"), &mark()),
    );
    let guard = guard_of(CALLERS, unsynced);
    let code = async |call: &Call| call.to(&guard.webhook).await.code();
    let free = delete(POD, plain("try-0"));
    assert_eq!(code(&free).await, None, "{free}");
    let mark = delete(POD, production("web-0"));
    assert_eq!(code(&mark).await, Some(403), "the mark is in the request");
    let set = ("apps", "ReplicaSet", "replicasets");
    for search in [
        delete(("", "Namespace", "namespaces"), plain("a")),
        delete(set, plain("a")),
        create(POD, plain("try-0")),
    ] {
        assert_eq!(code(&search).await, Some(503), "{search}");
        assert_eq!(code(&search.user("admin")).await, None);
    }
    let mut elsewhere = plain("try-0");
    elsewhere["metadata"]["namespace"] = json!("unknown");
    let elsewhere = delete(POD, elsewhere);
    assert_eq!(
        code(&elsewhere).await,
        Some(503),
        "its namespace may be production"
    );
}

#[tokio::test]
async fn warn_and_monitor_allow_and_another_rule_still_denies() {
    let guard = guard_of(
        &format!("{{{CALLERS}, rules: {{production: warn}}}}"),
        state(),
    );
    let reply = delete(POD, production("web-9")).to(&guard.webhook).await;
    assert!(reply.allowed());
    assert_eq!(
        reply.warnings(),
        ["Pre-release environment not allowed to DELETE production pod"]
    );
    let mut old = production("web-9");
    old["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
    assert!(!delete(POD, old.clone()).to(&guard.webhook).await.allowed());

    let guard = guard_of(&format!("{{{CALLERS}, mode: monitor}}"), state());
    let reply = delete(POD, old).to(&guard.webhook).await;
    assert!(reply.allowed() && reply.warnings().is_empty());
    assert!(reply.audit("production").is_some() && reply.audit("age").is_some());
}

#[tokio::test]
async fn each_decision_is_a_line_of_the_audit_log() {
    let guard = guard_of(CALLERS, state());
    delete(POD, production("web-0")).to(&guard.webhook).await;
    delete(POD, production("web-0"))
        .user("admin")
        .dry_run()
        .to(&guard.webhook)
        .await;
    let lines = guard.lines.lock();
    let fields = |line: &Value| {
        [
            "user", "op", "target", "uid", "decision", "rule", "message", "dryRun",
        ]
        .map(|field| line[field].clone())
    };
    assert_eq!(
        json!(fields(&lines[0])),
        json!([
            "hbox-pre",
            "DELETE",
            "pods/hbox/web-0",
            "uid-web-0",
            "deny",
            "production",
            "Pre-release environment not allowed to DELETE production pod",
            false
        ])
    );
    assert_eq!(
        json!(fields(&lines[1])),
        json!([
            "admin",
            "DELETE",
            "pods/hbox/web-0",
            "uid-web-0",
            "allow",
            null,
            "pass delete",
            true
        ])
    );
    assert!(!lines[0]["request"].as_str().unwrap().is_empty());
}
