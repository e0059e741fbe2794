//! The ways around a guard (B), each closed.

use reeve_webhook::admission::Operation;
use serde_json::{Value, json};

use preprod_guard::object::Facts;

use crate::scenario::{
    CALLERS, DEPLOYMENT, POD, allowed, call, create, delete, denied, guard_of, key, mark, object,
    plain, production, state, update,
};

/// A body that has only names.
fn plain_name(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "hbox"}})
}

#[tokio::test]
async fn a3_b1_an_eviction_is_decided_by_its_pod() {
    let evict = |name: &str| {
        let eviction = json!({"metadata": {"name": name, "namespace": "hbox"}});
        call(
            Operation::Create,
            ("policy", "Eviction", "pods"),
            None,
            Some(eviction),
        )
        .subresource("", "v1", "pods", "eviction")
    };
    denied(evict("web-0"), "production pod").await;
    denied(evict("unknown"), "the guard does not see it").await;
    allowed(evict("try-0")).await;
}

#[tokio::test]
async fn a11_b2_each_object_of_a_collection_is_decided_by_its_labels() {
    denied(
        delete(POD, production("web-0")).in_collection(),
        "production pod",
    )
    .await;
    allowed(delete(POD, plain("try-0")).in_collection()).await;
}

#[tokio::test]
async fn b3_an_owner_of_production_objects_cannot_be_deleted_at_any_distance() {
    denied(
        delete(("apps", "ReplicaSet", "replicasets"), plain("web-rs")),
        "it owns 1 production object",
    )
    .await;
    denied(
        delete(DEPLOYMENT, plain("front")),
        "it owns 1 production object (pods/web-0)",
    )
    .await;
}

#[tokio::test]
async fn b4_b5_owners_and_finalizers_of_production_objects_cannot_be_changed() {
    for field in ["ownerReferences", "finalizers"] {
        let mut changed = production("web-0");
        changed["metadata"][field] = json!([]);
        denied(update(POD, production("web-0"), changed), "production pod").await;
    }
}

#[tokio::test]
async fn b6_scaling_a_production_object_is_denied() {
    let scale = |name: &str| json!({"metadata": {"name": name, "namespace": "hbox"}, "spec": {"replicas": 0}});
    let call = update(
        ("autoscaling", "Scale", "deployments"),
        scale("api"),
        scale("api"),
    );
    denied(
        call.subresource("apps", "v1", "deployments", "scale"),
        "production deployment",
    )
    .await;
}

#[tokio::test]
async fn b6_b7_the_mark_of_a_template_protects_the_object_that_makes_the_pods() {
    let template = json!({"metadata": {"labels": {"environment": "production"}}});
    let web = object("web", None, json!({"template": template}));
    denied(
        update(DEPLOYMENT, web.clone(), web),
        "production deployment",
    )
    .await;
    let job = json!({"jobTemplate": {"spec": {"template": template}}});
    let nightly = object("nightly", None, job);
    denied(
        update(("batch", "CronJob", "cronjobs"), nightly.clone(), nightly),
        "production cronjob",
    )
    .await;
}

#[tokio::test]
async fn b8_autoscalers_and_disruption_budgets_of_production_cannot_be_changed() {
    let scaler = object(
        "a",
        None,
        json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "api"}}),
    );
    let kind = (
        "autoscaling",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
    );
    denied(update(kind, scaler.clone(), scaler), "deployments/api").await;
    let budget = |app: &str| {
        object(
            "b",
            None,
            json!({"selector": {"matchLabels": {"app": app}}}),
        )
    };
    let kind = ("policy", "PodDisruptionBudget", "poddisruptionbudgets");
    denied(delete(kind, budget("web")), "pods/web-0").await;
    allowed(delete(kind, budget("other"))).await;
}

#[tokio::test]
async fn b9_a_node_with_production_pods_cannot_be_changed_or_deleted() {
    let kind = ("", "Node", "nodes");
    let node = |name: &str| json!({"metadata": {"name": name}, "spec": {"unschedulable": true}});
    denied(update(kind, node("node-1"), node("node-1")), "pods/web-0").await;
    denied(delete(kind, node("node-1")), "pods/web-0").await;
    allowed(delete(kind, node("node-2"))).await;
}

#[tokio::test]
async fn b10_priorities_are_not_for_pre_release_callers() {
    let class = json!({"metadata": {"name": "high"}});
    denied(
        create(
            ("scheduling.k8s.io", "PriorityClass", "priorityclasses"),
            class,
        ),
        "priorityclass",
    )
    .await;
    let high = object("try-1", None, json!({"priorityClassName": "high"}));
    denied(create(POD, high.clone()), "with priority class high").await;
    allowed(update(POD, high.clone(), high.clone())).await;
    let config = format!("{{{CALLERS}, priorityClasses: [high]}}");
    assert!(
        create(POD, high)
            .to(&guard_of(&config, state()).webhook)
            .await
            .allowed()
    );
}

#[tokio::test]
async fn b11_quotas_limits_and_rights_of_a_namespace_with_production_cannot_be_changed() {
    for kind in [
        ("", "ResourceQuota", "resourcequotas"),
        ("", "LimitRange", "limitranges"),
        ("rbac.authorization.k8s.io", "Role", "roles"),
        ("rbac.authorization.k8s.io", "RoleBinding", "rolebindings"),
    ] {
        denied(
            create(kind, plain("a")),
            "it holds for 3 production objects",
        )
        .await;
        let mut elsewhere = plain("a");
        elsewhere["metadata"]["namespace"] = json!("pre");
        allowed(create(kind, elsewhere)).await;
    }
}

#[tokio::test]
async fn b12_what_production_pods_use_cannot_be_changed() {
    for (kind, name) in [
        (("", "ConfigMap", "configmaps"), "web-settings"),
        (("", "Secret", "secrets"), "web-key"),
        (("", "ServiceAccount", "serviceaccounts"), "web"),
    ] {
        denied(
            update(kind, plain(name), plain(name)),
            "it is used by 1 production object",
        )
        .await;
        allowed(update(kind, plain("other"), plain("other"))).await;
    }
}

#[tokio::test]
async fn b13_b14_b17_subresources_of_production_pods_are_denied() {
    for (operation, name) in [
        (Operation::Connect, "exec"),
        (Operation::Connect, "attach"),
        (Operation::Connect, "portforward"),
        (Operation::Create, "binding"),
    ] {
        let body = |pod: &str| json!({"metadata": {"name": pod, "namespace": "hbox"}});
        let to = |pod: &str| {
            call(operation, ("", "Body", "pods"), None, Some(body(pod)))
                .subresource("", "v1", "pods", name)
        };
        denied(to("web-0"), "production pod").await;
        allowed(to("try-0")).await;
    }
    for name in ["ephemeralcontainers", "status"] {
        let changed =
            update(POD, plain("web-0"), plain("web-0")).subresource("", "v1", "pods", name);
        denied(changed, "production pod").await;
    }
}

#[tokio::test]
async fn b13_a_proxy_with_a_port_and_a_scheme_is_that_of_its_pod() {
    let to = |name: &str| {
        let body = json!({"metadata": {"name": name, "namespace": "hbox"}});
        call(Operation::Connect, ("", "Body", "pods"), None, Some(body))
            .subresource("", "v1", "pods", "proxy")
    };
    for name in ["web-0", "web-0:80", "https:web-0:443", "https:web-0:"] {
        denied(to(name), "production pod").await;
    }
    for name in ["try-0", "try-0:80", "http:try-0:80"] {
        allowed(to(name)).await;
    }
}

#[tokio::test]
async fn b14_a_binding_in_its_older_form_is_that_of_its_pod() {
    let bind = |pod: &str| create(("", "Binding", "bindings"), plain_name(pod));
    denied(bind("web-0"), "production pod").await;
    allowed(bind("try-0")).await;
}

#[tokio::test]
async fn a_subresource_of_a_pod_with_a_label_of_its_own_in_a_production_namespace_is_free() {
    let mut state = state();
    let namespace = Facts::of(&production("hbox"), &mark());
    state.put(key("", "namespaces", "hbox"), namespace);
    let own = Facts::of(&object("own", Some("pre"), json!({})), &mark());
    state.put(key("", "pods", "own"), own);
    let guard = guard_of(CALLERS, state);
    let kind = ("policy", "Eviction", "pods");
    for (name, expected) in [("own", true), ("try-0", false)] {
        let evict = call(Operation::Create, kind, None, Some(plain_name(name)));
        let evict = evict.subresource("", "v1", "pods", "eviction");
        let reply = evict.to(&guard.webhook).await;
        assert_eq!(reply.allowed(), expected, "{evict}: {}", reply.message());
    }
}

#[tokio::test]
async fn b12_a_volume_of_a_production_claim_cannot_be_changed_or_deleted() {
    let volume = |claim: &str| {
        let claim = json!({"namespace": "hbox", "name": claim});
        json!({"metadata": {"name": "pv"}, "spec": {"claimRef": claim}})
    };
    let kind = ("", "PersistentVolume", "persistentvolumes");
    denied(delete(kind, volume("web-data")), "pods/web-0").await;
    allowed(delete(kind, volume("other"))).await;
}

#[tokio::test]
async fn b16_the_labels_of_a_namespace_with_production_objects_cannot_be_changed() {
    let kind = ("", "Namespace", "namespaces");
    let change = |name: &str| update(kind, plain(name), plain(name));
    denied(change("hbox"), "it contains 3 production objects").await;
    allowed(change("pre")).await;
}

#[tokio::test]
async fn b15_a_production_account_is_not_for_pre_release_callers() {
    let pod = object("try-1", None, json!({"serviceAccountName": "web"}));
    denied(create(POD, pod), "with service account web").await;
    let kind = ("authentication.k8s.io", "TokenRequest", "serviceaccounts");
    let token = create(
        kind,
        json!({"metadata": {"name": "web", "namespace": "hbox"}}),
    );
    denied(
        token.subresource("", "v1", "serviceaccounts", "token"),
        "token of service account web",
    )
    .await;
    let request = json!({"metadata": {"name": "csr"}});
    let kind = (
        "certificates.k8s.io",
        "CertificateSigningRequest",
        "certificatesigningrequests",
    );
    let approve = update(kind, request.clone(), request);
    let approve = approve.subresource("certificates.k8s.io", "v1", kind.2, "approval");
    denied(approve, "it holds for the whole cluster").await;
}

#[tokio::test]
async fn b16_the_label_of_a_namespace_and_aggregated_apis_cannot_be_changed() {
    let strip = update(
        ("", "Namespace", "namespaces"),
        production("prod"),
        plain("prod"),
    );
    denied(strip, "production namespace").await;
    for kind in [
        ("storage.k8s.io", "VolumeAttachment", "volumeattachments"),
        ("storage.k8s.io", "StorageClass", "storageclasses"),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema", "flowschemas"),
    ] {
        let object = json!({"metadata": {"name": "a"}});
        denied(delete(kind, object), "whole cluster").await;
    }
    let service = json!({"metadata": {"name": "v1.example.com"}});
    let kind = ("apiregistration.k8s.io", "APIService", "apiservices");
    denied(update(kind, service.clone(), service), "whole cluster").await;
}

#[tokio::test]
async fn b18_a_dry_run_gets_the_same_answer() {
    denied(delete(POD, production("web-0")).dry_run(), "production pod").await;
}
