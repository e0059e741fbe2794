//! Decisions of handlers, and the reviews that the API server gets.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::policy::v1::Eviction;
use kube_core::gvk::GroupVersionKind;
use reeve_webhook::Webhook;
use reeve_webhook::admission::{Cause, Failure, Mutation, Operation, Request, Verdict};
use reeve_webhook::testing::Call;
use serde_json::{Value, json};

fn pod(labels: &[(&str, &str)]) -> Pod {
    let labels = labels
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()));
    let mut pod = Pod::default();
    pod.metadata.name = Some("web-0".into());
    pod.metadata.namespace = Some("shop".into());
    pod.metadata.labels = Some(labels.collect());
    pod
}

/// Denies changes of production Pods by pre-release users.
fn guard() -> Webhook {
    Webhook::validating(
        "pod.guard.example.com",
        |request: Request<Pod>| async move {
            let production = |pod: &Pod| {
                let labels = pod.metadata.labels.iter().flatten();
                labels
                    .into_iter()
                    .any(|(name, value)| name == "environment" && value == "production")
            };
            if request.user.groups.iter().any(|group| group == "pre") && request.either(production)
            {
                let operation = request.operation;
                return Verdict::deny(format!("not allowed to {operation} {}", request.name))
                    .reason("");
            }
            Verdict::allow().audit("checked", request.name)
        },
    )
}

#[tokio::test]
async fn a_guard_sees_the_old_and_the_new_object_of_every_operation() {
    let (production, plain) = (pod(&[("environment", "production")]), pod(&[]));
    for (name, call, allowed) in [
        ("creation", Call::create(&production), false),
        ("creation of another", Call::create(&plain), true),
        ("update", Call::update(&production, &production), false),
        (
            "strip of the label",
            Call::update(&production, &plain),
            false,
        ),
        (
            "addition of the label",
            Call::update(&plain, &production),
            false,
        ),
        ("deletion", Call::delete(&production), false),
        ("deletion of another", Call::delete(&plain), true),
        (
            "deletion of a collection",
            Call::delete(&production).in_collection(),
            false,
        ),
        ("dry run", Call::delete(&production).dry_run(), false),
    ] {
        let reply = call.clone().groups(["pre"]).to(&guard()).await;
        assert_eq!(reply.allowed(), allowed, "{name}");
        if !allowed {
            assert!(
                reply.message().ends_with("web-0"),
                "{name}: {}",
                reply.message()
            );
            assert_eq!(reply.code(), Some(403), "{name}");
            assert_eq!(reply.response()["status"].get("reason"), None, "{name}");
        }
        let reply = call.to(&guard()).await;
        assert!(reply.allowed(), "{name} by another user");
        assert_eq!(reply.audit("checked"), Some("web-0"), "{name}");
    }
}

#[tokio::test]
async fn the_request_has_all_that_the_review_has() {
    let seen = std::sync::Arc::new(parking_lot::Mutex::new(None));
    let keeps = std::sync::Arc::clone(&seen);
    let webhook = Webhook::validating("seen", move |request: Request<Pod>| {
        *keeps.lock() = Some(request);
        async { Verdict::allow() }
    });
    let call = Call::update(&pod(&[]), &pod(&[("a", "b")]))
        .field(
            "userInfo",
            json!({"username": "u", "uid": "1", "groups": ["g"], "extra": {"k": ["v"]}}),
        )
        .field(
            "requestKind",
            json!({"group": "", "version": "v0", "kind": "Pod"}),
        )
        .field("options", json!({"kind": "UpdateOptions"}))
        .field("new field of a later version", json!([1]))
        .dry_run();
    assert!(call.to(&webhook).await.allowed());
    let request = seen.lock().take().unwrap();
    assert_eq!(request.kind, GroupVersionKind::gvk("", "v1", "Pod"));
    assert_eq!(request.resource.resource, "pods");
    assert_eq!(request.request_kind.unwrap().version, "v0");
    assert_eq!(
        (request.subresource, request.namespace.as_deref()),
        (None, Some("shop"))
    );
    assert_eq!(
        (request.name.as_str(), request.operation),
        ("web-0", Operation::Update)
    );
    assert!(request.dry_run && request.deadline.is_none());
    assert_eq!(request.options.unwrap()["kind"], "UpdateOptions");
    assert_eq!(
        (request.user.username.as_str(), request.user.uid.as_str()),
        ("u", "1")
    );
    assert_eq!(
        (&request.user.groups[..], &request.user.extra["k"][..]),
        (&["g".to_owned()][..], &["v".to_owned()][..])
    );
    assert_eq!(request.object.unwrap().metadata.labels.unwrap()["a"], "b");
    assert_eq!(
        request.old_object.unwrap().metadata.labels.unwrap().len(),
        0
    );
}

#[tokio::test]
async fn a_subresource_has_the_type_of_its_body() {
    let evictions = Webhook::validating("evictions", |request: Request<Eviction>| async move {
        assert!(request.is_for_subresource("eviction"));
        assert_eq!(request.resource.resource, "pods");
        Verdict::deny(format!("{} stays", request.name))
    });
    let mut eviction = Eviction::default();
    eviction.metadata.name = Some("web-0".into());
    let call = Call::create(&eviction).subresource("", "v1", "pods", "eviction");
    assert_eq!(call.to(&evictions).await.message(), "web-0 stays");

    let scales = Webhook::validating("scales", |request: Request<Scale>| async move {
        let replicas = |scale: Option<&Scale>| scale?.spec.as_ref()?.replicas;
        match (
            replicas(request.old_object.as_ref()),
            replicas(request.object.as_ref()),
        ) {
            (Some(1..), Some(0)) => Verdict::deny("not to zero"),
            _ => Verdict::allow(),
        }
    });
    let scale = |replicas| -> Scale {
        serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas}}))
            .unwrap()
    };
    for (replicas, allowed) in [(1, true), (0, false)] {
        let call = Call::update(&scale(2), &scale(replicas));
        let call = call.subresource("apps", "v1", "deployments", "scale");
        assert_eq!(call.to(&scales).await.allowed(), allowed, "{replicas}");
    }

    // A connection has a body without metadata.
    let execs = Webhook::validating_any("execs", |request: Request| async move {
        let command = request
            .object
            .as_ref()
            .map(|object| object["command"].clone());
        Verdict::deny(format!(
            "{} {} {}",
            request.operation,
            request.name,
            command.unwrap_or_default()
        ))
    });
    let kind = GroupVersionKind::gvk("", "v1", "PodExecOptions");
    let call = Call::of(
        Operation::Connect,
        &kind,
        "pods",
        Some(json!({"command": ["sh"]})),
        None,
    )
    .field("name", json!("web-0"))
    .field("subResource", json!("exec"));
    assert_eq!(call.to(&execs).await.message(), r#"CONNECT web-0 ["sh"]"#);
}

#[tokio::test]
async fn one_handler_takes_kinds_without_a_type() {
    let webhook = Webhook::validating_any("any.example.com", |request: Request| async move {
        let owner = |object: &Value| object["metadata"]["labels"]["owner"].is_string();
        if request.subject().is_some_and(owner) {
            Verdict::allow()
        } else {
            Verdict::deny(format!("{} needs an owner", request.kind.kind))
        }
    });
    assert_eq!(webhook.path(), "/validate/any.example.com");
    let widget = GroupVersionKind::gvk("example.com", "v1", "Widget");
    for (labels, allowed) in [(json!({"owner": "a"}), true), (json!({}), false)] {
        let object = json!({"metadata": {"name": "w", "labels": labels}});
        let call = Call::of(Operation::Create, &widget, "widgets", Some(object), None);
        assert_eq!(call.to(&webhook).await.allowed(), allowed);
    }
    let mut shop = Namespace::default();
    shop.metadata.labels = Some([("owner".into(), "a".into())].into());
    assert!(Call::delete(&shop).to(&webhook).await.allowed());
}

#[tokio::test]
async fn a_denial_has_status_and_causes_and_both_answers_have_warnings() {
    let webhook = Webhook::validating("causes", |request: Request<Deployment>| async move {
        let replicas = request
            .object
            .and_then(|web| web.spec?.replicas)
            .unwrap_or(1);
        let even = (replicas % 2 == 0).then(|| {
            Cause::new(
                "spec.replicas",
                "FieldValueInvalid",
                format!("{replicas} is even"),
            )
        });
        Verdict::of_causes(even)
            .warn("replicas\nwill go")
            .warn("replicas will go")
    });
    let deployment = |replicas| -> Deployment {
        let template = json!({"metadata": {}, "spec": {"containers": []}});
        serde_json::from_value(
            json!({"spec": {"replicas": replicas, "selector": {}, "template": template}}),
        )
        .unwrap()
    };
    let denied = Call::create(&deployment(4)).to(&webhook).await;
    assert_eq!(
        denied.response()["status"],
        json!({
            "status": "Failure", "code": 422, "reason": "Invalid",
            "message": "spec.replicas: 4 is even",
            "details": {"causes": [{
                "field": "spec.replicas", "reason": "FieldValueInvalid", "message": "4 is even",
            }]},
        })
    );
    assert_eq!(
        (denied.fields(), denied.warnings()),
        (vec!["spec.replicas"], vec!["replicas will go"])
    );
    let allowed = Call::create(&deployment(3)).to(&webhook).await;
    assert_eq!(
        (allowed.allowed(), allowed.warnings()),
        (true, vec!["replicas will go"])
    );
    assert_eq!(allowed.response().get("status"), None);
}

/// Adds a container, a label and an annotation.
fn sidecar() -> Webhook {
    Webhook::mutating(
        "sidecar.example.com",
        |mut request: Request<Pod>| async move {
            let Some(mut pod) = request.object.take() else {
                return Ok(Mutation::unchanged());
            };
            let Some(spec) = &mut pod.spec else {
                return Err("a Pod without a spec");
            };
            if spec
                .containers
                .iter()
                .any(|container| container.name == "proxy")
            {
                return Ok(Mutation::changed(pod));
            }
            spec.containers
                .insert(0, serde_json::from_value(json!({"name": "proxy"})).unwrap());
            spec.host_network = None;
            Ok(Mutation::changed(pod).warn("a proxy was added"))
        },
    )
}

#[tokio::test]
async fn a_change_keeps_fields_that_the_type_does_not_have_and_removes_what_the_handler_removed() {
    let kind = GroupVersionKind::gvk("", "v1", "Pod");
    let create = |object: Value| Call::of(Operation::Create, &kind, "pods", Some(object), None);
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "creationTimestamp": null, "fieldOfTheFuture": 1},
        "spec": {"hostNetwork": true, "containers": [{"name": "app", "futureField": {"a": [1]}}]},
    });
    let reply = create(object.clone()).to(&sidecar()).await;
    let mut expected = object;
    expected["spec"]["containers"] = json!([
        {"name": "proxy"},
        {"name": "app", "futureField": {"a": [1]}},
    ]);
    expected["spec"]
        .as_object_mut()
        .unwrap()
        .remove("hostNetwork");
    assert_eq!(reply.object::<Value>(), expected);
    assert_eq!(reply.warnings(), ["a proxy was added"]);

    // The same object comes back: no patch.
    let again = create(expected).to(&sidecar()).await;
    assert!(again.allowed() && !again.is_patched());
}

#[tokio::test]
async fn a_webhook_without_a_type_patches_the_object_itself() {
    let webhook = Webhook::mutating_any("team", |mut request: Request| async move {
        let Some(mut object) = request.object.take() else {
            return Mutation::unchanged();
        };
        object["metadata"]["labels"]["team/a~b"] = json!("x");
        Mutation::changed(object)
    });
    let widget = GroupVersionKind::gvk("example.com", "v1", "Widget");
    let object = json!({"metadata": {"name": "w"}, "spec": [1, null]});
    let call = Call::of(Operation::Create, &widget, "widgets", Some(object), None);
    let patched: Value = call.to(&webhook).await.object();
    assert_eq!(
        patched,
        json!({"metadata": {"name": "w", "labels": {"team/a~b": "x"}}, "spec": [1, null]})
    );
}

#[tokio::test]
async fn a_denied_change_has_no_patch() {
    let webhook = Webhook::mutating("deny", |request: Request<Pod>| async move {
        let mut changed = Mutation::changed(Pod::default());
        if request.dry_run {
            changed = Mutation::deny("no");
        }
        changed
    });
    let call = Call::create(&pod(&[]));
    assert!(call.to(&webhook).await.is_patched());
    let denied = call.dry_run().to(&webhook).await;
    assert!(!denied.allowed() && !denied.is_patched());
}

#[tokio::test]
async fn what_is_no_decision_is_a_failure_with_its_reason() {
    let call = Call::create(&pod(&[]));
    let failing = |operation: &'static str| {
        Webhook::mutating("broken", move |request: Request<Pod>| async move {
            match operation {
                "error" => Err("the database is down"),
                _ => {
                    let mut pod = request.old_object.unwrap_or_default();
                    pod.metadata
                        .labels
                        .get_or_insert_default()
                        .insert("a".into(), "b".into());
                    Ok(Mutation::changed(pod))
                }
            }
        })
    };
    let failure = call.try_to(&failing("error")).await.unwrap_err();
    assert_eq!(failure.to_string(), "broken failed: the database is down");
    let failure = Call::delete(&pod(&[]))
        .try_to(&failing("change"))
        .await
        .unwrap_err();
    assert!(matches!(
        failure,
        Failure::Unchangeable {
            operation: "DELETE",
            ..
        }
    ));
    assert!(failure.status().is_server_error());

    let review = call.review();
    let with = |path: &str, value: Value| {
        let mut review = review.clone();
        *review.pointer_mut(path).unwrap() = value;
        review.to_string()
    };
    for (body, expected) in [
        ("", "EOF while parsing"),
        ("[1]", "the body is not AdmissionReview"),
        ("5", "the body is not AdmissionReview"),
        ("{}", "an object without kind and apiVersion"),
        (
            r#"{"apiVersion": "v1", "kind": "Pod"}"#,
            "the body is Pod of v1, and AdmissionReview of v1 is expected",
        ),
        (
            &with("/apiVersion", json!("admission.k8s.io/v1beta1")),
            "name v1 alone",
        ),
        (&with("/request", json!(null)), "the review has no request"),
        (&with("/request/uid", json!("")), "no uid"),
        (
            &with("/request/operation", json!("PATCH")),
            "unknown variant `PATCH`",
        ),
        (
            &with("/request/kind/kind", json!("Node")),
            "takes Pod of v1, and the request has Node of v1",
        ),
    ] {
        let failure = guard().answer(body.as_bytes()).await.unwrap_err();
        let text = failure.to_string();
        assert!(text.contains(expected), "{body}: {text}");
        assert_eq!(failure.status(), 400, "{body}");
    }
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_denied_with_the_place_of_the_problem() {
    for (field, value, problem) in [
        ("object", json!({"spec": {"containers": 5}}), "invalid type"),
        // Not the value of a stored object, which the user may not be allowed to read.
        (
            "oldObject",
            json!([]),
            "the stored object is not of the type",
        ),
    ] {
        let call = Call::update(&pod(&[]), &pod(&[])).field(field, value);
        let reply = call.to(&guard()).await;
        assert_eq!(
            (reply.allowed(), reply.code()),
            (false, Some(400)),
            "{field}"
        );
        let expected = format!("{field} cannot be read: {problem}");
        assert!(
            reply.message().starts_with(&expected),
            "{}",
            reply.message()
        );
    }
}

#[tokio::test]
async fn a_stored_object_that_cannot_be_read_can_be_repaired() {
    let broken = json!({"metadata": {"name": "web-0", "labels": 5}});
    let labelled = Webhook::mutating("label", |mut request: Request<Pod>| async move {
        assert!(request.old_unreadable && request.old_object.is_none());
        let Some(mut pod) = request.object.take() else {
            return Mutation::unchanged();
        };
        pod.metadata
            .labels
            .get_or_insert_default()
            .insert("a".into(), "b".into());
        Mutation::changed(pod)
    });
    let update = Call::update(&pod(&[]), &pod(&[])).field("oldObject", broken.clone());
    let reply = update.to(&labelled).await;
    assert!(reply.allowed() && reply.is_patched());
    let delete = Call::delete(&pod(&[])).field("oldObject", broken);
    assert!(delete.to(&labelled).await.allowed());

    // A rule that may be about the stored object is checked with it, unless the webhook says otherwise.
    let rule = Webhook::validating("rule", |request: Request<Pod>| async move {
        if request.old_unreadable {
            Verdict::allow().warn("not checked")
        } else {
            Verdict::allow()
        }
    });
    assert_eq!(update.to(&rule).await.code(), Some(400));
    let reply = update.to(&rule.clone().allow_unreadable_old()).await;
    assert_eq!(
        (reply.allowed(), reply.warnings()),
        (true, vec!["not checked"])
    );
    let readable = Call::update(&pod(&[]), &pod(&[]));
    assert!(
        readable
            .to(&rule.allow_unreadable_old())
            .await
            .warnings()
            .is_empty()
    );
}

#[tokio::test]
async fn an_object_that_is_returned_as_it_is_makes_no_patch_in_any_operation() {
    let webhook = Webhook::mutating("same", |request: Request<Pod>| async move {
        match request.subject() {
            Some(pod) => Mutation::changed(pod.clone()),
            None => Mutation::unchanged(),
        }
    });
    let subject = pod(&[("a", "b")]);
    for call in [
        Call::create(&subject),
        Call::update(&pod(&[]), &subject),
        Call::delete(&subject),
        Call::delete(&subject).in_collection(),
    ] {
        let reply = call.to(&webhook).await;
        assert!(reply.allowed() && !reply.is_patched(), "{call}");
    }
    let any = Webhook::mutating_any("same", |request: Request<Value>| async move {
        Mutation::changed(request.object.unwrap_or_default())
    });
    let options = GroupVersionKind::gvk("", "v1", "PodExecOptions");
    let exec = Call::of(
        Operation::Connect,
        &options,
        "pods",
        Some(json!({"stdin": true})),
        None,
    );
    let reply = exec.to(&any).await;
    assert!(reply.allowed() && !reply.is_patched());
}

#[test]
fn paths_are_those_of_kubebuilder() {
    let deployments = Webhook::validating("a", |_: Request<Deployment>| async { Verdict::allow() });
    assert_eq!(deployments.path(), "/validate-apps-v1-deployment");
    let scales = Webhook::mutating("b", |_: Request<Scale>| async { Mutation::unchanged() });
    assert_eq!(scales.path(), "/mutate-autoscaling-v1-scale");
    let evictions =
        Webhook::validating("c", |_: Request<k8s_openapi::api::rbac::v1::Role>| async {
            Verdict::allow()
        });
    assert_eq!(
        evictions.path(),
        "/validate-rbac-authorization-k8s-io-v1-role"
    );
    assert_eq!(evictions.at("/other").path(), "/other");
}
