//! What is special about built-in kinds: status, generation, quantities, allocation, default propagation.

use serde_json::{Value, json};

use crate::rules::raw::*;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn service(name: &str, spec: Value) -> Value {
    let mut body = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        body["spec"][field] = value.clone();
    }
    body
}

fn template(resources: Value) -> Value {
    json!({
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    })
}

fn deployment(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"app": "x"}},
        "template": template(json!({"limits": {"cpu": "1000m", "memory": "1024Mi"}})),
    }})
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn job(name: &str) -> Value {
    let mut template = template(json!({}));
    template["spec"]["restartPolicy"] = json!("Never");
    json!({"metadata": {"name": name}, "spec": {"template": template}})
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_set_through_the_status_of_a_service_stays() {
    let server = server().await;
    let balanced = service("s", json!({"type": "LoadBalancer"}));
    post(&server, SERVICES, &balanced).await.expect_ok();
    let patch = json!({
        "metadata": {"finalizers": ["service.kubernetes.io/load-balancer-cleanup"], "annotations": {"a": "b"}},
        "spec": {"sessionAffinity": "ClientIP"},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
    });
    merge(&server, &format!("{SERVICES}/s/status"), &patch)
        .await
        .expect_ok();
    let stored = get(&server, &format!("{SERVICES}/s")).await.expect_ok();
    assert_eq!(
        stored["metadata"]["finalizers"],
        json!(["service.kubernetes.io/load-balancer-cleanup"])
    );
    assert_eq!(stored["metadata"]["annotations"]["a"], "b");
    assert_eq!(stored["spec"]["sessionAffinity"], "None", "the spec stays");
    assert_eq!(
        stored["status"]["loadBalancer"]["ingress"][0]["ip"],
        "192.0.2.1"
    );
    // And off it goes the same way, which lets a terminating Service go.
    delete(&server, &format!("{SERVICES}/s"), &Value::Null)
        .await
        .expect_ok();
    let off = json!({"metadata": {"finalizers": null}});
    merge(&server, &format!("{SERVICES}/s/status"), &off)
        .await
        .expect_ok();
    assert_eq!(get(&server, &format!("{SERVICES}/s")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn the_status_of_each_kind_keeps_the_metadata_that_its_strategy_keeps() {
    let server = server().await;
    post(&server, PODS, &pod("p")).await.expect_ok();
    post(&server, DEPLOYMENTS, &deployment("d"))
        .await
        .expect_ok();
    post(&server, CRDS, &foos()).await.expect_ok();
    post(&server, FOOS, &foo("f")).await.expect_ok();
    let owner = json!([{"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "u"}]);
    let patch = json!({"metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}, "ownerReferences": owner}});
    for (path, labels, annotations, owners) in [
        (format!("{PODS}/p"), true, true, false),
        (format!("{DEPLOYMENTS}/d"), false, true, true),
        (format!("{FOOS}/f"), false, false, false),
    ] {
        let before = get(&server, &path).await.expect_ok();
        merge(&server, &format!("{path}/status"), &patch)
            .await
            .expect_ok();
        let metadata = &get(&server, &path).await.expect_ok()["metadata"];
        assert_eq!(metadata["labels"]["l"] == "1", labels, "{path}");
        assert_eq!(metadata["annotations"]["a"] == "1", annotations, "{path}");
        assert_eq!(metadata["ownerReferences"].is_array(), owners, "{path}");
        assert_eq!(
            metadata["generation"], before["metadata"]["generation"],
            "{path}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_generation_of_a_deployment_follows_its_spec_and_its_annotations() {
    let server = server().await;
    let path = format!("{DEPLOYMENTS}/d");
    let made = post(&server, DEPLOYMENTS, &deployment("d"))
        .await
        .expect_ok();
    assert_eq!(made["metadata"]["generation"], 1);
    for (patch, generation) in [
        (json!({"metadata": {"labels": {"l": "1"}}}), 1),
        (json!({"metadata": {"annotations": {"a": "1"}}}), 2),
        (json!({"spec": {"replicas": 3}}), 3),
        // The same in other words.
        (
            json!({"spec": {"paused": false, "template": template(json!({"limits": {"cpu": 1, "memory": "1Gi"}}))}}),
            3,
        ),
    ] {
        let changed = merge(&server, &path, &patch).await.expect_ok();
        assert_eq!(changed["metadata"]["generation"], generation, "{patch}");
    }
}

#[tokio::test(start_paused = true)]
async fn quantities_are_stored_as_a_real_server_writes_them() {
    let server = server().await;
    let made = post(&server, DEPLOYMENTS, &deployment("d"))
        .await
        .expect_ok();
    let path = "/spec/template/spec/containers/0/resources/limits";
    assert_eq!(
        made.pointer(path),
        Some(&json!({"cpu": "1", "memory": "1Gi"}))
    );
    let mut body = deployment("d");
    body["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
    body["spec"]["template"]["spec"]["hostNetwork"] = json!(false);
    let again = put(&server, &format!("{DEPLOYMENTS}/d"), &body)
        .await
        .expect_ok();
    assert_eq!(version(&again), version(&made), "nothing changes");
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_job_stay_by_default_and_the_answer_warns() {
    let server = server().await;
    for (name, options, stays) in [
        ("a", Value::Null, true),
        ("b", json!({"propagationPolicy": "Background"}), false),
        ("c", json!({"orphanDependents": true}), true),
    ] {
        let owner = post(&server, JOBS, &job(name)).await.expect_ok();
        let mut child = map(name);
        child["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": owner["metadata"]["uid"],
        }]);
        post(&server, MAPS, &child).await.expect_ok();
        let answer = delete(&server, &format!("{JOBS}/{name}"), &options).await;
        assert_eq!(
            answer.headers.contains_key("warning"),
            options.is_null(),
            "{name}"
        );
        answer.expect_ok();
        settle().await;
        assert_eq!(
            get(&server, &format!("{JOBS}/{name}")).await.code,
            404,
            "{name}"
        );
        let code = get(&server, &format!("{MAPS}/{name}")).await.code;
        assert_eq!(code == 200, stays, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_or_node_port_that_another_service_has_is_refused() {
    let server = server().await;
    let first = json!({"type": "NodePort", "clusterIP": "10.96.0.77", "ports": [{"port": 80, "nodePort": 30080}]});
    post(&server, SERVICES, &service("first", first))
        .await
        .expect_ok();
    for (spec, field, text) in [
        (
            json!({"clusterIP": "10.96.0.77"}),
            "spec.clusterIPs",
            "Invalid value: [\"10.96.0.77\"]: failed to allocate IP 10.96.0.77: provided IP is already allocated",
        ),
        (
            json!({"clusterIP": "192.0.2.1"}),
            "spec.clusterIPs",
            "Invalid value: [\"192.0.2.1\"]: failed to allocate IP 192.0.2.1: the provided network does not match the current range",
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]}),
            "spec.ports[0].nodePort",
            "Invalid value: 30080: provided port is already allocated",
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}),
            "spec.ports[0].nodePort",
            "Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767",
        ),
    ] {
        let refused = post(&server, SERVICES, &service("second", spec)).await;
        assert_eq!(refused.code, 422, "{text}");
        let cause = &refused.json()["details"]["causes"][0];
        assert_eq!(
            (cause["field"].as_str(), cause["message"].as_str()),
            (Some(field), Some(text))
        );
    }
    let ok = post(&server, SERVICES, &service("second", json!({})))
        .await
        .expect_ok();
    let patch = json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]}});
    let refused = merge(&server, &format!("{SERVICES}/second"), &patch).await;
    assert_eq!(refused.code, 422, "an update claims as a creation does");
    assert_ne!(ok["spec"]["clusterIP"], "10.96.0.77");
    delete(&server, &format!("{SERVICES}/first"), &Value::Null)
        .await
        .expect_ok();
    merge(&server, &format!("{SERVICES}/second"), &patch)
        .await
        .expect_ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn services_created_at_once_get_addresses_and_node_ports_of_their_own() {
    const EACH: usize = 25;
    let server = std::sync::Arc::new(server().await);
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let server = server.clone();
            tokio::spawn(async move {
                let mut got = Vec::new();
                for at in 0..EACH {
                    let body = service(&format!("s-{writer}-{at}"), json!({"type": "NodePort"}));
                    let made = post(&server, SERVICES, &body).await.expect_ok();
                    got.push((
                        made["spec"]["clusterIP"].to_string(),
                        made["spec"]["ports"][0]["nodePort"].to_string(),
                    ));
                }
                got
            })
        })
        .collect();
    let mut addresses = std::collections::BTreeSet::new();
    let mut ports = std::collections::BTreeSet::new();
    for writer in writers {
        for (address, port) in writer.await.unwrap() {
            assert!(
                addresses.insert(address.clone()),
                "{address} was given twice"
            );
            assert!(ports.insert(port.clone()), "{port} was given twice");
        }
    }
    assert_eq!(addresses.len(), 4 * EACH);
}

#[tokio::test(start_paused = true)]
async fn when_no_node_port_is_left_a_service_is_refused() {
    let server = server().await;
    // One Service may have many: so the range is full after a few.
    let mut next = 30_000_u64;
    while next <= 32_767 {
        let ports: Vec<Value> = (next..=32_767)
            .take(1000)
            .map(|port| json!({"name": format!("p{port}"), "port": port, "nodePort": port}))
            .collect();
        next += 1000;
        let spec = json!({"type": "NodePort", "ports": ports});
        post(&server, SERVICES, &service(&format!("s{next}"), spec))
            .await
            .expect_ok();
    }
    let refused = post(
        &server,
        SERVICES,
        &service("late", json!({"type": "NodePort"})),
    )
    .await;
    assert_eq!(refused.code, 500);
    assert_eq!(
        refused.message(),
        "Internal error occurred: failed to allocate a nodePort: range is full"
    );
    assert_eq!(get(&server, &format!("{SERVICES}/late")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_binding_assigns_a_pod_to_a_node_once() {
    let server = server().await;
    post(&server, PODS, &pod("p")).await.expect_ok();
    let binding = json!({"metadata": {"name": "p", "labels": {"zone": "a"}}, "target": {"kind": "Node", "name": "n"}});
    let path = format!("{PODS}/p/binding");
    let answer = post(&server, &path, &binding).await.expect_ok();
    assert_eq!(answer["status"], "Success");
    let stored = get(&server, &format!("{PODS}/p")).await.expect_ok();
    assert_eq!(stored["spec"]["nodeName"], "n");
    assert_eq!(stored["metadata"]["generation"], 1);
    assert_eq!(stored["status"]["conditions"][0]["type"], "PodScheduled");
    assert_eq!(stored["metadata"]["labels"]["zone"], "a");
    let of_service = json!({"metadata": {"name": "p"}, "target": {"kind": "Service"}});
    let refused = post(&server, &path, &of_service).await;
    assert_eq!(refused.code, 500);
    let message = refused.json()["message"].clone();
    let message = message.as_str().unwrap_or_default();
    assert!(
        message.contains("target.kind") && message.contains("target.name"),
        "{message}"
    );
    let again = post(&server, &path, &binding).await;
    assert_eq!(again.code, 409);
    assert_eq!(
        again.json()["message"],
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\""
    );
}

#[tokio::test(start_paused = true)]
async fn an_eviction_needs_a_disruption_that_the_budget_allows() {
    const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let server = server().await;
    let mut running = pod("p");
    running["metadata"]["labels"] = json!({"a": "b"});
    post(&server, PODS, &running).await.expect_ok();
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    merge(&server, &format!("{PODS}/p/status"), &status)
        .await
        .expect_ok();
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
    post(&server, BUDGETS, &budget).await.expect_ok();
    // It guards no Pod; a Pod with two budgets could not be evicted.
    let without_selector = json!({"metadata": {"name": "none"}, "spec": {"minAvailable": 1}});
    post(&server, BUDGETS, &without_selector).await.expect_ok();
    let allow = |number: i64| json!({"status": {"observedGeneration": 1, "disruptionsAllowed": number, "currentHealthy": 1, "desiredHealthy": 1}});
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let path = format!("{PODS}/p/eviction");
    let of_budget = format!("{BUDGETS}/b/status");

    merge(&server, &of_budget, &allow(0)).await.expect_ok();
    let refused = post(&server, &path, &eviction).await;
    assert_eq!(refused.code, 429);
    assert_eq!(
        refused.json()["details"]["causes"][0]["reason"],
        "DisruptionBudget"
    );

    merge(&server, &of_budget, &allow(2)).await.expect_ok();
    let mut stale = eviction.clone();
    stale["deleteOptions"] = json!({"preconditions": {"resourceVersion": "1"}});
    assert_eq!(post(&server, &path, &stale).await.code, 409);
    let finalizer = json!({"metadata": {"finalizers": ["example.com/f"]}});
    let kept = merge(&server, &format!("{PODS}/p"), &finalizer)
        .await
        .expect_ok();
    let mut current = eviction.clone();
    let version = &kept["metadata"]["resourceVersion"];
    current["deleteOptions"] = json!({"preconditions": {"resourceVersion": version}});
    post(&server, &path, &current).await.expect_ok();
    let evicted = get(&server, &format!("{PODS}/p")).await.expect_ok();
    assert_eq!(
        evicted["status"]["conditions"][1]["type"],
        "DisruptionTarget"
    );
    assert!(evicted["metadata"]["deletionTimestamp"].is_string());
    let left = get(&server, &format!("{BUDGETS}/b")).await.expect_ok();
    assert_eq!(left["status"]["disruptionsAllowed"], 0);
    assert!(left["status"]["disruptedPods"]["p"].is_string());
}

#[tokio::test(start_paused = true)]
async fn a_resize_of_a_pod_changes_nothing_but_resources() {
    let server = server().await;
    let mut small = pod("p");
    small["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "500m"}});
    post(&server, PODS, &small).await.expect_ok();
    let patch = json!({
        "metadata": {"labels": {"team": "b"}, "annotations": {"a": "b"}, "finalizers": ["example.com/f"]},
        "spec": {"hostname": "h", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
    });
    let path = format!("{PODS}/p/resize");
    let resized = merge(&server, &path, &patch).await.expect_ok();
    let container = &resized["spec"]["containers"][0];
    assert_eq!(container["resources"]["requests"]["cpu"], "1");
    assert_eq!(resized["spec"]["hostname"], Value::Null);
    for field in ["labels", "annotations", "finalizers"] {
        assert_eq!(resized["metadata"][field], Value::Null, "{field}");
    }
    let fields = |resources: Value| {
        let containers = json!([{"name": "c", "image": "i", "resources": resources}]);
        let patch = json!({"spec": {"containers": containers}});
        let (server, path) = (&server, &path);
        async move {
            let refused = merge(server, path, &patch).await;
            assert_eq!(refused.code, 422);
            let causes = refused.json()["details"]["causes"].clone();
            let causes = causes.as_array().into_iter().flatten();
            let fields = causes.map(|cause| cause["field"].as_str().unwrap_or_default().to_owned());
            fields.collect::<Vec<_>>()
        }
    };
    let removed = ["spec", "spec.containers[0].resources.requests"];
    assert_eq!(fields(json!({"requests": null})).await, removed);
    let other = json!({"requests": {"cpu": "500m", "ephemeral-storage": "1Gi"}});
    assert_eq!(fields(other).await, ["spec"]);
}

#[tokio::test(start_paused = true)]
async fn ephemeral_containers_are_added_and_never_changed() {
    let server = server().await;
    post(&server, PODS, &pod("p")).await.expect_ok();
    let path = format!("{PODS}/p/ephemeralcontainers");
    let with = |containers: Value| json!({"spec": {"ephemeralContainers": containers}});
    let debug = json!({"name": "d", "image": "busybox", "targetContainerName": "c"});
    let added = merge(&server, &path, &with(json!([debug])))
        .await
        .expect_ok();
    let container = &added["spec"]["ephemeralContainers"][0];
    assert_eq!(container["imagePullPolicy"], "Always");
    let other = json!({"name": "d", "image": "other"});
    let probed = json!({"name": "e", "image": "i", "ports": [{"containerPort": 1}]});
    for (containers, field) in [
        (json!([]), "spec.ephemeralContainers"),
        (json!([other]), "spec.ephemeralContainers"),
        (json!([debug, probed]), "spec.ephemeralContainers[1].ports"),
    ] {
        let refused = merge(&server, &path, &with(containers)).await;
        assert_eq!(refused.code, 422, "{field}");
        assert_eq!(refused.json()["details"]["causes"][0]["field"], field);
    }
}

#[tokio::test(start_paused = true)]
async fn wrapped_base64_is_stored_as_go_writes_it() {
    const SECRETS: &str = "/api/v1/namespaces/default/secrets";
    let server = server().await;
    let secret = json!({"metadata": {"name": "s"}, "data": {"a": "YWJj\nZGU=\n", "b": "YR=="}});
    let stored = post(&server, SECRETS, &secret).await.expect_ok();
    assert_eq!(stored["data"], json!({"a": "YWJjZGU=", "b": "YQ=="}));
}

#[tokio::test(start_paused = true)]
async fn an_update_of_an_old_autoscaler_keeps_the_status_in_its_annotations() {
    const OLD: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    const NEW: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let server = server().await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let mut old = json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h", "annotations": {"autoscaling.alpha.kubernetes.io/conditions": "5"}},
        "spec": {"maxReplicas": 3, "scaleTargetRef": target},
    });
    post(&server, OLD, &old).await.expect_ok();
    let new = get(&server, &format!("{NEW}/h")).await.expect_ok();
    assert_eq!(new["status"]["conditions"], Value::Null);
    let status = json!({"status": {
        "desiredReplicas": 2, "currentReplicas": 1,
        "conditions": [{"type": "AbleToScale", "status": "True"}],
        "currentMetrics": [{"type": "Resource", "resource": {"name": "memory", "current": {"averageValue": "1Gi"}}}],
    }});
    let wanted = merge(&server, &format!("{NEW}/h/status"), &status)
        .await
        .expect_ok();
    old["metadata"] = json!({"name": "h"});
    old["spec"]["maxReplicas"] = json!(4);
    put(&server, &format!("{OLD}/h"), &old).await.expect_ok();
    let new = get(&server, &format!("{NEW}/h")).await.expect_ok();
    assert_eq!(new["spec"]["maxReplicas"], 4);
    assert_eq!(new["status"]["conditions"], wanted["status"]["conditions"]);
    assert_eq!(
        new["status"]["currentMetrics"],
        wanted["status"]["currentMetrics"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_autoscaler_is_one_object_in_two_versions() {
    const OLD: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    const NEW: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let server = server().await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let old = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 60, "scaleTargetRef": target}});
    post(&server, OLD, &old).await.expect_ok();
    let new = get(&server, &format!("{NEW}/h")).await.expect_ok();
    let metric = &new["spec"]["metrics"][0];
    assert_eq!(metric["resource"]["target"]["averageUtilization"], 60);
    let memory = json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}});
    let patch = json!({"spec": {"metrics": [metric, memory]}});
    merge(&server, &format!("{NEW}/h"), &patch)
        .await
        .expect_ok();
    let old = get(&server, &format!("{OLD}/h")).await.expect_ok();
    assert_eq!(old["spec"]["targetCPUUtilizationPercentage"], 60);
    assert_eq!(
        old["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"],
        r#"[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"1Gi"}}]"#
    );
    // A write in the old version keeps what it has no fields for.
    let patch = json!({"spec": {"maxReplicas": 5}});
    merge(&server, &format!("{OLD}/h"), &patch)
        .await
        .expect_ok();
    let new = get(&server, &format!("{NEW}/h")).await.expect_ok();
    assert_eq!(new["spec"]["metrics"].as_array().map(Vec::len), Some(2));
    assert_eq!(new["spec"]["maxReplicas"], 5);
    assert!(new["metadata"].get("annotations").is_none());
}

#[tokio::test(start_paused = true)]
async fn only_the_approval_of_a_certificate_request_sets_its_approval() {
    const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let server = server().await;
    let request = json!({"metadata": {"name": "r"}, "spec": {"signerName": "example.com/s", "usages": ["client auth"], "request": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0=", "username": "mallory"}});
    let stored = post(&server, REQUESTS, &request).await.expect_ok();
    assert_ne!(stored["spec"]["username"], "mallory");
    let approved =
        json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "R"}]}});
    let stored = merge(&server, &format!("{REQUESTS}/r/status"), &approved)
        .await
        .expect_ok();
    assert_eq!(stored["status"], json!({}));
    let stored = merge(&server, &format!("{REQUESTS}/r/approval"), &approved)
        .await
        .expect_ok();
    assert_eq!(stored["status"]["conditions"][0]["type"], "Approved");
    assert!(stored["status"]["conditions"][0]["lastUpdateTime"].is_string());
    for (conditions, field) in [
        (json!([]), "status.conditions"),
        (
            json!([{"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"}]),
            "status.conditions[0].type",
        ),
    ] {
        let patch = json!({"status": {"conditions": conditions}});
        let refused = merge(&server, &format!("{REQUESTS}/r/approval"), &patch).await;
        assert_eq!(refused.code, 422);
        assert_eq!(refused.json()["details"]["causes"][0]["field"], field);
    }
}
