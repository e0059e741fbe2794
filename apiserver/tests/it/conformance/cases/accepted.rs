//! Built-in kinds: accepted creations and updates, and the stored form.

use serde_json::{Value, json};

use super::cases;
use crate::conformance::case::{Answer, Case, MERGE};

const PODS: &str = "/api/v1/namespaces/{ns}/pods";
const SERVICES: &str = "/api/v1/namespaces/{ns}/services";
const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/{ns}/statefulsets";
const JOBS: &str = "/apis/batch/v1/namespaces/{ns}/jobs";

/// `base` with the `fields` in its spec.
fn with(mut base: Value, fields: &Value) -> Value {
    for (field, value) in fields.as_object().into_iter().flatten() {
        base["spec"][field] = value.clone();
    }
    base
}

fn pod(spec: &Value) -> Value {
    let base =
        json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    with(base, spec)
}

fn template(spec: &Value) -> Value {
    let base = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    with(base, spec)
}

/// A StatefulSet with a claim `data` and without replicas, so no controller creates Pods.
fn stateful_set(mounts: Value) -> Value {
    json!({"metadata": {"name": "a"}, "spec": {
        "replicas": 0, "serviceName": "s", "selector": {"matchLabels": {"app": "x"}},
        "template": template(&json!({"containers": [{"name": "c", "image": "i:1", "volumeMounts": mounts}]})),
        "volumeClaimTemplates": [{
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}},
        }],
    }})
}

fn service(spec: &Value) -> Value {
    with(
        json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}),
        spec,
    )
}

/// Records the code, and the stored object or the field and message of each cause. For addresses and ports that the
/// server chose, it only records that they exist.
fn note(t: &mut Case, label: &str, answer: &Answer) {
    if answer.code >= 300 {
        let causes = answer.body["details"]["causes"].as_array();
        let causes: Vec<Value> = causes
            .into_iter()
            .flatten()
            .map(|cause| json!([cause["field"], cause["message"]]))
            .collect();
        return t.note(label, json!([answer.code, causes]));
    }
    let mut spec = answer.body["spec"].clone();
    for field in ["clusterIP", "clusterIPs"] {
        if !spec[field].is_null() {
            spec[field] = json!("given");
        }
    }
    if !spec["healthCheckNodePort"].is_null() {
        spec["healthCheckNodePort"] = json!("given");
    }
    for port in spec
        .pointer_mut("/ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if !port["nodePort"].is_null() {
            port["nodePort"] = json!("given");
        }
    }
    t.note(label, json!([answer.code, spec]));
}

fn number(answer: &Answer, pointer: &str) -> u64 {
    let number = answer.body.pointer(pointer).and_then(Value::as_u64);
    number.unwrap_or_else(|| panic!("no number at {pointer} in {}", answer.body))
}

async fn account(t: &Case) {
    let path = "/api/v1/namespaces/{ns}/serviceaccounts/default";
    t.until(path, |answer| answer.code == 200).await;
}

cases! { "accepted";
    ["K-6"] "containers of a StatefulSet mount its claims" => |t| {
        for mounts in [
            json!([{"name": "data", "mountPath": "/data"}]),
            json!([{"name": "data", "mountPath": "/data"}, {"name": "other", "mountPath": "/other"}]),
        ] {
            let answer = t.setup_any("POST", &format!("{STATEFUL_SETS}?dryRun=All"), &[], stateful_set(mounts.clone())).await;
            note(t, &mounts.to_string(), &answer);
        }
        let mut overridden = stateful_set(json!([{"name": "data", "mountPath": "/data"}]));
        overridden["spec"]["template"]["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
        let answer = t.setup_any("POST", &format!("{STATEFUL_SETS}?dryRun=All"), &[], overridden).await;
        note(t, "a claim instead of a volume", &answer);
    }
    ["K-5"] "a StatefulSet with claims in another form is unchanged" => |t| {
        t.make(STATEFUL_SETS, stateful_set(json!([{"name": "data", "mountPath": "/data"}]))).await;
        let path = format!("{STATEFUL_SETS}/a");
        for (field, value) in [
            ("status", json!({})),
            ("metadata", json!({"name": "data", "creationTimestamp": null, "labels": {}})),
            ("spec", json!({"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "volumeName": "", "resources": {"requests": {"storage": "1Gi"}}})),
            ("kind", json!("")),
        ] {
            let mut body = stateful_set(json!([{"name": "data", "mountPath": "/data"}]));
            body["spec"]["volumeClaimTemplates"][0][field] = value.clone();
            let answer = t.setup_any("PUT", &path, &[], body).await;
            note(t, &json!({field: value}).to_string(), &answer);
        }
        let mut body = stateful_set(json!([{"name": "data", "mountPath": "/data"}]));
        body["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] = json!("2Gi");
        let answer = t.setup_any("PUT", &path, &[], body).await;
        note(t, "more", &answer);
    }
    ["K-5"] "a Pod and a Job in another form are unchanged" => |t| {
        account(t).await;
        let divisor = json!({"containers": [{"name": "c", "image": "i:1", "resources": {"limits": {"cpu": "1000m"}}, "env": [{"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]}],
            "volumes": [
                {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}},
                {"name": "d", "downwardAPI": {"items": [{"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}}]}},
            ]});
        let job = json!({"metadata": {"name": "a"}, "spec": {"parallelism": 0, "template": template(&with(json!({"spec": {"restartPolicy": "Never"}}), &divisor)["spec"])}});
        t.make(PODS, pod(&divisor)).await;
        t.make(JOBS, job).await;
        for (path, base) in [(format!("{PODS}/a"), "/spec"), (format!("{JOBS}/a"), "/spec/template/spec")] {
            let stored = t.setup("GET", &path, Value::Null).await.body;
            let spec = stored.pointer(base).cloned().unwrap_or_default();
            t.note(base, json!([spec["containers"][0]["env"], spec["volumes"][0], spec["volumes"][1]]));
            for (pointer, value) in [
                ("containers/0/env/0/valueFrom/resourceFieldRef/divisor", json!("0")),
                ("volumes/0/ephemeral/volumeClaimTemplate/metadata", json!({})),
                ("volumes/0/ephemeral/volumeClaimTemplate/spec/volumeMode", json!("Filesystem")),
                ("hostNetwork", json!(false)),
                ("containers/0/resources/limits/cpu", json!(1)),
            ] {
                let patch = json!([{"op": "add", "path": format!("{base}/{pointer}"), "value": value}]);
                let answer = t.setup_any("PATCH", &path, &[("content-type", crate::conformance::case::JSON_PATCH)], patch).await;
                t.note(pointer, json!([answer.code, answer.body["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]]));
            }
        }
    }
    ["K-4"] "a Service of each type gets its defaults" => |t| {
        for spec in [
            json!({}),
            json!({"externalIPs": ["192.0.2.1"]}),
            json!({"externalIPs": ["192.0.2.1"], "externalTrafficPolicy": "Local"}),
            json!({"clusterIP": "None"}),
            json!({"clusterIP": "None", "ports": []}),
            json!({"type": "NodePort"}),
            json!({"type": "NodePort", "externalTrafficPolicy": "Local"}),
            json!({"type": "LoadBalancer"}),
            json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "loadBalancerClass": "example.com/class", "loadBalancerSourceRanges": ["192.0.2.0/24"]}),
            json!({"type": "ExternalName", "externalName": "example.com"}),
            json!({"type": "ExternalName", "externalName": "example.com", "externalIPs": ["192.0.2.1"]}),
            json!({"sessionAffinity": "ClientIP"}),
            json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {}}}),
            json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}}),
            json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}}}),
            json!({"sessionAffinity": "None", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}}),
        ] {
            let answer = t.setup_any("POST", &format!("{SERVICES}?dryRun=All"), &[], service(&spec)).await;
            note(t, &spec.to_string(), &answer);
        }
    }
    ["K-4"] "a Service changes its type, and loses the fields of the former type" => |t| {
        let path = format!("{SERVICES}/a");
        for (first, patches) in [
            (json!({"type": "LoadBalancer"}), vec![json!({"type": "NodePort"}), json!({"type": "ClusterIP"}), json!({"type": "LoadBalancer"}), json!({"type": "ClusterIP"})]),
            (json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/class"}), vec![json!({"type": "NodePort"})]),
            (json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/class"}), vec![json!({"type": "ClusterIP"}), json!({"type": "ExternalName", "externalName": "example.com"}), json!({"type": "NodePort"})]),
            (json!({"type": "LoadBalancer"}), vec![json!({"type": "ClusterIP", "allocateLoadBalancerNodePorts": false})]),
            (json!({"type": "LoadBalancer"}), vec![json!({"type": "ClusterIP", "externalTrafficPolicy": "Local"})]),
            (json!({"type": "NodePort", "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}), vec![json!({"type": "ClusterIP", "ports": [{"name": "a", "port": 80}]})]),
            (json!({"type": "LoadBalancer"}), vec![json!({"type": "ExternalName", "externalName": "example.com"})]),
            (json!({"externalIPs": ["192.0.2.1"]}), vec![json!({"externalIPs": null})]),
            (json!({"type": "NodePort", "externalIPs": ["192.0.2.1"]}), vec![json!({"type": "ClusterIP"}), json!({"externalIPs": []})]),
            (json!({"sessionAffinity": "ClientIP"}), vec![json!({"sessionAffinity": "None"}), json!({"sessionAffinity": "ClientIP"})]),
        ] {
            t.make(SERVICES, service(&first)).await;
            t.note("from", first);
            for patch in patches {
                let answer = t.setup_any("PATCH", &path, &[("content-type", MERGE)], json!({"spec": patch})).await;
                note(t, &patch.to_string(), &answer);
            }
            t.setup("DELETE", &path, Value::Null).await;
        }
    }
    ["K-4"] "a Service whose update omits node ports keeps or drops exactly these" => |t| {
        let path = format!("{SERVICES}/a");
        let made = t.make(SERVICES, service(&json!({"type": "NodePort", "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}))).await;
        let ports = made.body["spec"]["ports"].clone();
        // If it is omitted, the node port of a port of the same name stays.
        let left_out = json!({"type": "NodePort", "ports": [{"name": "b", "port": 82}, {"name": "a", "port": 80}]});
        let answer = t.setup("PUT", &path, service(&left_out)).await;
        let is = &answer.body["spec"]["ports"];
        t.note("kept", json!([is[0]["nodePort"] == ports[1]["nodePort"], is[1]["nodePort"] == ports[0]["nodePort"]]));
        let fewer = json!({"spec": {"type": "ClusterIP", "ports": [{"name": "b", "port": 82, "nodePort": ports[1]["nodePort"]}]}});
        let answer = t.setup_any("PATCH", &path, &[("content-type", MERGE)], fewer).await;
        note(t, "one of them", &answer);
    }
    ["K-4"] "a Service that is not a load balancer any more has no load balancer address" => |t| {
        let path = format!("{SERVICES}/a");
        t.make(SERVICES, service(&json!({"type": "LoadBalancer"}))).await;
        t.setup("PATCH", &format!("{path}/status"), json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}})).await;
        let answer = t.setup_any("PATCH", &path, &[("content-type", MERGE)], json!({"spec": {"type": "ClusterIP"}})).await;
        t.note("status", json!([answer.code, answer.body["status"]]));
    }
    ["K-4"] "a load balancer for local traffic has a port for its health checks, as long as it is one" => |t| {
        let path = format!("{SERVICES}/a");
        let local = service(&json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}));
        let made = t.make(SERVICES, local.clone()).await;
        note(t, "created", &made);
        let (port, node_port) = (number(&made, "/spec/healthCheckNodePort"), number(&made, "/spec/ports/0/nodePort"));
        t.note("chosen", json!([(30_000..=32_767).contains(&port), port != node_port]));
        let answer = t.setup("PUT", &path, local).await;
        t.note("an update that omits it", json!(number(&answer, "/spec/healthCheckNodePort") == port));
        for patch in [
            json!({"healthCheckNodePort": 30063}),
            json!({"healthCheckNodePort": null, "ports": [{"port": 81}]}),
            json!({"externalTrafficPolicy": "Cluster", "healthCheckNodePort": 30063}),
            json!({"externalTrafficPolicy": "Cluster"}),
            json!({"healthCheckNodePort": 30063}),
            json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 80}),
            json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": -1}),
            json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 30063, "ports": [{"port": 80, "nodePort": 30063}]}),
            json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 30063}),
        ] {
            let answer = t.setup_any("PATCH", &path, &[("content-type", MERGE)], json!({"spec": patch})).await;
            note(t, &patch.to_string(), &answer);
        }
        let answer = t.setup("GET", &path, Value::Null).await;
        t.note("requested", json!(number(&answer, "/spec/healthCheckNodePort")));
        // Another Service has it when this one gives it up.
        let other = |spec: Value| {
            let mut other = service(&spec);
            other["metadata"]["name"] = json!("b");
            other
        };
        let health_check = other(json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30063}));
        let node_port = other(json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30063}]}));
        for body in [&health_check, &node_port] {
            let answer = t.setup_any("POST", SERVICES, &[], body.clone()).await;
            note(t, "taken", &answer);
        }
        let answer = t.setup_any("PATCH", &path, &[("content-type", MERGE)], json!({"spec": {"type": "NodePort"}})).await;
        note(t, "not a load balancer", &answer);
        for body in [&node_port, &health_check] {
            let answer = t.setup_any("POST", SERVICES, &[], body.clone()).await;
            note(t, "given up", &answer);
            t.setup("DELETE", &format!("{SERVICES}/b"), Value::Null).await;
        }
        let answer = t.setup_any("POST", SERVICES, &[], node_port).await;
        note(t, "deleted", &answer);
    }
    ["K-6"] "hosts of an Ingress in its rules and in its certificates" => |t| {
        for host in ["example.com", "*.example.com", "192.0.2.1", "", "A_", "*.*.example.com"] {
            let body = json!({"metadata": {"name": "a"}, "spec": {
                "tls": [{"hosts": [host], "secretName": "s"}],
                "defaultBackend": {"service": {"name": "s", "port": {"number": 80}}},
            }});
            let answer = t.setup_any("POST", "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses?dryRun=All", &[], body).await;
            note(t, host, &answer);
        }
    }
    ["K-6"] "requests below the limits, of resources that allow overcommitment" => |t| {
        account(t).await;
        for name in ["cpu", "kubernetes.io/slots", "slots.kubernetes.io/few", "example.com/slots", "hugepages-2Mi"] {
            let resources = json!({"limits": {name: "4Mi", "memory": "1Gi"}, "requests": {name: "2Mi"}});
            let body = pod(&json!({"containers": [{"name": "c", "image": "i:1", "resources": resources}]}));
            let answer = t.setup_any("POST", &format!("{PODS}?dryRun=All"), &[], body).await;
            let causes = answer.body["details"]["causes"].as_array();
            let causes: Vec<&Value> = causes.into_iter().flatten().map(|cause| &cause["message"]).collect();
            let causes = json!(causes);
            t.note(name, json!([answer.code, causes]));
        }
    }
}
