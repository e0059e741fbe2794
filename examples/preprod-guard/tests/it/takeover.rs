//! Ways to let a controller delete production objects, to become a production caller, and to change the guard.

use preprod_guard::object::{Facts, Key};
use preprod_guard::state::State;
use reeve_webhook::admission::Operation;
use reeve_webhook::testing::Call;
use serde_json::{Value, json};

use crate::scenario::{
    CALLERS, DEPLOYMENT, POD, allowed, call, create, delete, denied, guard_of, key, mark, object,
    plain, production, state, update,
};

const SET: (&str, &str, &str) = ("apps", "ReplicaSet", "replicasets");
const SECRET: (&str, &str, &str) = ("", "Secret", "secrets");

/// The production Pod of `demo.yaml`, which has no controller, and a production Pod that has one.
fn demo() -> State {
    let mut state = State::default();
    state.synced = true;
    let mut web = object("web-0", Some("production"), json!({}));
    web["metadata"]["labels"] = json!({"environment": "production"});
    let mut controlled = object("api-0", Some("production"), json!({}));
    controlled["metadata"]["labels"] = json!({"environment": "production", "app": "api"});
    let owner =
        json!([{"kind": "ReplicaSet", "name": "api", "uid": "uid-api", "controller": true}]);
    controlled["metadata"]["ownerReferences"] = owner;
    let orphan = object("orphan", Some("production"), json!({}));
    for (group, resource, value) in [
        ("", "pods", web),
        ("", "pods", controlled),
        ("apps", "replicasets", orphan),
        ("", "namespaces", object("hbox", None, json!({}))),
        ("", "namespaces", object("other", None, json!({}))),
    ] {
        let name = value["metadata"]["name"].as_str().unwrap();
        state.put(key(group, resource, name), Facts::of(&value, &mark()));
    }
    state
}

/// A workload of the pre-release environment with a selector.
fn workload(selector: Value) -> Value {
    let template = json!({"metadata": {"labels": {"environment": "pre"}}});
    object(
        "adopt",
        Some("pre"),
        json!({"replicas": 0, "selector": selector, "template": template}),
    )
}

async fn message(call: &Call, config: &str, state: State) -> String {
    let reply = call.to(&guard_of(config, state).webhook).await;
    assert_eq!(reply.allowed(), reply.message().is_empty());
    reply.message().to_owned()
}

#[tokio::test]
async fn a_workload_whose_controller_would_adopt_a_production_pod_is_denied() {
    let exists = json!({"matchExpressions": [{"key": "environment", "operator": "Exists"}]});
    for kind in [
        SET,
        DEPLOYMENT,
        ("apps", "StatefulSet", "statefulsets"),
        ("apps", "DaemonSet", "daemonsets"),
        ("batch", "Job", "jobs"),
    ] {
        let adopt = workload(exists.clone());
        for call in [
            create(kind, adopt.clone()),
            update(kind, adopt.clone(), adopt),
        ] {
            let text = message(&call, CALLERS, demo()).await;
            assert!(
                text.contains("its controller could adopt 1 production object (pods/web-0)")
                    || kind == DEPLOYMENT && text.contains("replicasets/orphan"),
                "{call}: {text}"
            );
        }
    }
    let controller = ("", "ReplicationController", "replicationcontrollers");
    let adopt = create(controller, workload(json!({"environment": "production"})));
    assert!(
        message(&adopt, CALLERS, demo())
            .await
            .contains("pods/web-0")
    );
    let job = json!({"spec": {"manualSelector": true, "selector": exists}});
    let nightly = object("adopt", Some("pre"), json!({"jobTemplate": job}));
    let nightly = create(("batch", "CronJob", "cronjobs"), nightly);
    assert!(
        message(&nightly, CALLERS, demo())
            .await
            .contains("pods/web-0")
    );
}

#[tokio::test]
async fn a_workload_that_selects_no_free_production_object_is_allowed() {
    let is_pre = json!({"matchLabels": {"environment": "pre"}});
    let controlled = json!({"matchLabels": {"app": "api"}});
    for selector in [is_pre, controlled] {
        let call = create(SET, workload(selector));
        assert_eq!(message(&call, CALLERS, demo()).await, "");
    }
    let all = json!({"matchExpressions": [{"key": "environment", "operator": "Exists"}]});
    let mut elsewhere = workload(all);
    elsewhere["metadata"]["namespace"] = json!("other");
    assert_eq!(message(&create(SET, elsewhere), CALLERS, demo()).await, "");
}

#[tokio::test]
async fn a_pod_that_a_production_controller_would_adopt_is_denied() {
    let mut state = demo();
    let spec = json!({"selector": {"matchLabels": {"app": "api"}}});
    let set = object("api", Some("production"), spec);
    state.put(key("apps", "replicasets", "api"), Facts::of(&set, &mark()));
    let mut extra = object("extra", Some("pre"), json!({}));
    extra["metadata"]["labels"]["app"] = json!("api");
    let text = message(&create(POD, extra.clone()), CALLERS, state.clone()).await;
    let expected = "it could be adopted by 1 production object (replicasets/api)";
    assert!(text.contains(expected), "{text}");
    let owner = json!([{"kind": "ReplicaSet", "name": "own", "uid": "own", "controller": true}]);
    extra["metadata"]["ownerReferences"] = owner;
    assert_eq!(message(&create(POD, extra), CALLERS, state).await, "");
}

fn token(namespace: &str, account: &str) -> Call {
    let body = json!({"metadata": {"name": account, "namespace": namespace}});
    let kind = ("authentication.k8s.io", "TokenRequest", "serviceaccounts");
    create(kind, body).subresource("", "v1", "serviceaccounts", "token")
}

/// A state with the Namespaces of these tests and the ServiceAccounts of token requests.
fn accounts() -> State {
    let mut state = state();
    for namespace in ["kube-system", "hbox-pre"] {
        state.put(Key::namespace(namespace), Facts::default());
    }
    for (namespace, name) in [
        ("kube-system", "namespace-controller"),
        ("hbox", "default"),
        ("hbox", "tests"),
        ("hbox-pre", "ci"),
    ] {
        let mut key = key("", "serviceaccounts", name);
        namespace.clone_into(&mut key.namespace);
        state.put(key, Facts::default());
    }
    state
}

const CONFIG: &str =
    "{callers: {users: [hbox-pre], serviceAccountNamespaces: [hbox-pre]}, accounts: [hbox/tests]}";

#[tokio::test]
async fn b15_a_token_is_for_an_account_of_the_pre_release_environment_only() {
    for (namespace, account) in [
        ("kube-system", "namespace-controller"),
        ("hbox", "default"),
        ("hbox", "web"),
    ] {
        let text = message(&token(namespace, account), CONFIG, accounts()).await;
        let expected = format!("token of service account {account}");
        assert!(text.contains(&expected), "{namespace}: {text}");
    }
    for (namespace, account) in [("hbox", "tests"), ("hbox-pre", "ci")] {
        let text = message(&token(namespace, account), CONFIG, accounts()).await;
        assert_eq!(text, "", "{namespace}/{account}");
    }
}

#[tokio::test]
async fn b15_a_secret_that_becomes_a_credential_is_denied() {
    let secret = |kind: &str, account: &str| {
        let mut secret = plain("credential");
        secret["type"] = json!(kind);
        secret["metadata"]["annotations"] = json!({"kubernetes.io/service-account.name": account});
        secret
    };
    let of_account = "kubernetes.io/service-account-token";
    for (secret, expected) in [
        (secret(of_account, "web"), "token of service account web"),
        (secret(of_account, "tests"), ""),
        (
            secret("bootstrap.kubernetes.io/token", ""),
            "token for nodes",
        ),
        (secret("Opaque", "web"), ""),
    ] {
        let changed = update(SECRET, secret.clone(), secret.clone());
        for call in [create(SECRET, secret), changed] {
            let text = message(&call, CONFIG, accounts()).await;
            assert!(text.contains(expected), "{text}");
            assert_eq!(text.is_empty(), expected.is_empty(), "{text}");
        }
    }
}

#[tokio::test]
async fn b15_pods_and_templates_run_as_accounts_of_the_pre_release_environment() {
    let spec = |account: &str, image: &str| json!({"serviceAccountName": account, "containers": [{"image": image}]});
    let template = |account: &str, image: &str| json!({"replicas": 1, "template": {"spec": spec(account, image)}});
    let named = |spec: Value| object("try-1", Some("pre"), spec);
    for account in ["web", "unused"] {
        let text = format!("with service account {account}");
        for call in [
            create(POD, named(spec(account, "a"))),
            create(DEPLOYMENT, named(template(account, "a"))),
            update(POD, named(spec(account, "a")), named(spec(account, "b"))),
            update(
                DEPLOYMENT,
                named(template(account, "a")),
                named(template(account, "b")),
            ),
        ] {
            let answer = message(&call, CONFIG, accounts()).await;
            assert!(answer.contains(&text), "{call}: {answer}");
        }
    }
    let mut scaled = named(template("unused", "a"));
    scaled["spec"]["replicas"] = json!(2);
    for free in [
        create(POD, named(spec("tests", "a"))),
        create(POD, named(spec("default", "a"))),
        update(DEPLOYMENT, named(template("unused", "a")), scaled),
        update(POD, named(spec("unused", "a")), named(spec("unused", "a"))),
    ] {
        assert_eq!(message(&free, CONFIG, accounts()).await, "", "{free}");
    }
}

#[tokio::test]
async fn b13_b15_a_pod_of_another_account_cannot_be_entered() {
    let mut state = accounts();
    for (name, account) in [("own", "default"), ("foreign", "operator")] {
        let pod = object(name, Some("pre"), json!({"serviceAccountName": account}));
        state.put(key("", "pods", name), Facts::of(&pod, &mark()));
    }
    for (operation, subresource) in [
        (Operation::Connect, "exec"),
        (Operation::Connect, "attach"),
        (Operation::Update, "ephemeralcontainers"),
    ] {
        let enter = |pod: &str| {
            let body = json!({"metadata": {"name": pod, "namespace": "hbox"}});
            let call = call(operation, ("", "Body", "pods"), None, Some(body));
            call.subresource("", "v1", "pods", subresource)
        };
        let text = message(&enter("foreign"), CONFIG, state.clone()).await;
        assert!(text.contains("pod with service account operator"), "{text}");
        assert_eq!(message(&enter("own"), CONFIG, state.clone()).await, "");
    }
}

#[tokio::test]
async fn the_namespace_of_the_guard_is_production_with_any_label() {
    let mut state = state();
    let namespace = object("preprod-guard", Some("pre"), json!({}));
    state.put(
        Key::namespace("preprod-guard"),
        Facts::of(&namespace, &mark()),
    );
    let own = |name: &str| {
        let mut object = object(name, Some("pre"), json!({}));
        object["metadata"]["namespace"] = json!("preprod-guard");
        object
    };
    let mut calls = vec![
        update(
            ("", "Namespace", "namespaces"),
            namespace.clone(),
            namespace.clone(),
        ),
        delete(("", "Namespace", "namespaces"), namespace),
    ];
    for kind in [
        ("", "ConfigMap", "configmaps"),
        ("", "Event", "events"),
        ("events.k8s.io", "Event", "events"),
        ("", "Service", "services"),
        DEPLOYMENT,
        POD,
    ] {
        calls.push(create(kind, own("new")));
        calls.push(update(kind, own("guard"), own("guard")));
        calls.push(delete(kind, own("guard")));
    }
    for call in calls {
        let text = message(&call, CALLERS, state.clone()).await;
        assert!(text.contains("production"), "{call}: {text}");
        let text = message(&call.user("admin"), CALLERS, state.clone()).await;
        assert_eq!(text, "", "production callers may");
    }
}

#[tokio::test]
async fn b10_priorities_are_denied_before_the_caches_are_synced() {
    let mut unsynced = State::default();
    unsynced.put(key("", "namespaces", "hbox"), Facts::default());
    let high = object("try-1", None, json!({"priorityClassName": "high"}));
    let call = create(POD, high);
    let text = message(&call, CALLERS, unsynced.clone()).await;
    assert!(text.contains("with priority class high"), "{text}");
    let monitor = format!("{{{CALLERS}, rules: {{unresolved: monitor}}}}");
    let text = message(&call, &monitor, unsynced).await;
    assert!(text.contains("with priority class high"), "{text}");
}

#[tokio::test]
async fn an_object_without_a_label_has_the_mark_of_its_owners() {
    let mut state = state();
    let front = object("front", Some("production"), json!({}));
    state.put(
        key("apps", "deployments", "front"),
        Facts::of(&front, &mark()),
    );
    let owned = |name: &str, environment: Option<&str>, owner: &str| {
        let mut object = object(name, environment, json!({}));
        object["metadata"]["ownerReferences"] = json!([{"uid": owner}]);
        object
    };
    let pod = owned("front-0", None, "uid-web-rs");
    let text = message(&delete(POD, pod), CALLERS, state.clone()).await;
    assert!(text.contains("DELETE production pod"), "{text}");
    let labelled = owned("front-1", Some("pre"), "uid-web-rs");
    assert_eq!(
        message(&delete(POD, labelled), CALLERS, state.clone()).await,
        ""
    );
    let of_another = owned("front-2", None, "unknown");
    assert_eq!(message(&delete(POD, of_another), CALLERS, state).await, "");
}

#[tokio::test]
async fn a8_a_definition_whose_objects_are_not_watched_cannot_be_changed_or_deleted() {
    let kind = (
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    );
    let other = plain("others.example.com");
    let text = "the guard does not watch its objects; add it to `kinds`";
    denied(delete(kind, other.clone()), text).await;
    denied(update(kind, other.clone(), other.clone()), text).await;
    allowed(create(kind, other.clone())).await;
    let config = format!(
        "{{{CALLERS}, kinds: [{{group: example.com, version: v1, kind: Other, plural: others}}]}}"
    );
    assert_eq!(message(&delete(kind, other), &config, state()).await, "");
}

#[tokio::test]
async fn b12_what_ingresses_sets_and_volumes_use_cannot_be_changed() {
    let mut state = state();
    let ingress = json!({
        "tls": [{"secretName": "web-tls"}],
        "rules": [{"http": {"paths": [{"backend": {"service": {"name": "web-front"}}}]}}],
    });
    let set = json!({"volumeClaimTemplates": [{"metadata": {"name": "data"}}]});
    let pod = json!({
        "volumes": [{"csi": {"nodePublishSecretRef": {"name": "csi-key"}}}, {"azureFile": {"secretName": "azure-key"}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu-0"}],
    });
    for (group, resource, name, spec) in [
        ("networking.k8s.io", "ingresses", "web", ingress),
        ("apps", "statefulsets", "db", set),
        ("", "pods", "web-1", pod),
        ("", "services", "web-service", json!({})),
    ] {
        let object = object(name, Some("production"), spec);
        state.put(key(group, resource, name), Facts::of(&object, &mark()));
    }
    let claim = ("", "PersistentVolumeClaim", "persistentvolumeclaims");
    let device = ("resource.k8s.io", "ResourceClaim", "resourceclaims");
    for (kind, name, user) in [
        (SECRET, "web-tls", "ingresses/web"),
        (("", "Service", "services"), "web-front", "ingresses/web"),
        (claim, "data-db-0", "statefulsets/db"),
        (SECRET, "csi-key", "pods/web-1"),
        (SECRET, "azure-key", "pods/web-1"),
        (device, "gpu-0", "pods/web-1"),
        (claim, "data-db-x", ""),
        (claim, "data-dbx-0", ""),
        (SECRET, "other", ""),
    ] {
        let text = message(&delete(kind, plain(name)), CALLERS, state.clone()).await;
        assert!(text.contains(user), "{name}: {text}");
        assert_eq!(text.is_empty(), user.is_empty(), "{name}: {text}");
    }
    let slice = ("discovery.k8s.io", "EndpointSlice", "endpointslices");
    let mut steal = plain("steal");
    for (service, denied) in [("web-service", true), ("other", false)] {
        steal["metadata"]["labels"] = json!({"kubernetes.io/service-name": service});
        let text = message(&create(slice, steal.clone()), CALLERS, state.clone()).await;
        assert_eq!(text.contains("services/web-service"), denied, "{text}");
    }
    let endpoints = create(("", "Endpoints", "endpoints"), plain("web-service"));
    let text = message(&endpoints, CALLERS, state).await;
    assert!(text.contains("services/web-service"), "{text}");
}

#[tokio::test]
async fn b8_an_autoscaler_of_an_owner_of_production_pods_cannot_be_created() {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "front"});
    let scaler = object("a", None, json!({"scaleTargetRef": target}));
    let mut state = state();
    let front = plain("front");
    state.put(
        key("apps", "deployments", "front"),
        Facts::of(&front, &mark()),
    );
    let kind = (
        "autoscaling",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
    );
    let text = message(&create(kind, scaler), CALLERS, state).await;
    assert!(text.contains("pods/web-0"), "{text}");
}

#[tokio::test]
async fn rules_that_search_deny_while_the_watches_fail() {
    let mut stale = state();
    stale.synced = false;
    let namespace = ("", "Namespace", "namespaces");
    let guard = guard_of(CALLERS, stale);
    let reply = delete(namespace, plain("hbox")).to(&guard.webhook).await;
    assert_eq!(reply.code(), Some(503), "{}", reply.message());
    let mark = delete(POD, production("web-0")).to(&guard.webhook).await;
    assert_eq!(mark.code(), Some(403), "the mark is in the request");
    assert!(
        delete(POD, plain("try-0"))
            .to(&guard.webhook)
            .await
            .allowed()
    );
    // The ReplicaSet of a rollout that the watches did not see may be of a production Deployment.
    let mut owned = plain("web-1");
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "unseen"}]);
    let reply = delete(POD, owned.clone()).to(&guard.webhook).await;
    assert_eq!(reply.code(), Some(503), "{}", reply.message());
    owned["metadata"]["labels"]["environment"] = json!("test");
    let says = delete(POD, owned).to(&guard.webhook).await;
    assert!(says.allowed(), "its own label counts");
}
