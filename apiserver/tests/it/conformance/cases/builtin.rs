//! Built-in kinds: refused specs, writes of the status, allocations, default deletions.

use serde_json::{Value, json};

use super::{cases, config_map};
use crate::conformance::case::{Answer, Case, MERGE};

const PODS: &str = "/api/v1/namespaces/{ns}/pods";
const SERVICES: &str = "/api/v1/namespaces/{ns}/services";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/{ns}/deployments";
const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/{ns}/statefulsets";
const JOBS: &str = "/apis/batch/v1/namespaces/{ns}/jobs";
const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses";

fn container(fields: Value) -> Value {
    let mut container = json!({"name": "c", "image": "i:1"});
    for (field, value) in fields.as_object().into_iter().flatten() {
        container[field] = value.clone();
    }
    container
}

fn pod(spec: Value) -> Value {
    let mut pod =
        json!({"metadata": {"name": "a"}, "spec": {"containers": [container(json!({}))]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

fn template(policy: &str, fields: Value) -> Value {
    json!({"metadata": {"labels": {"app": "x"}}, "spec": {"restartPolicy": policy, "containers": [container(fields)]}})
}

/// A Deployment for which no controller creates Pods.
fn deployment(spec: Value) -> Value {
    let mut deployment = json!({"metadata": {"name": "a"}, "spec": {
        "replicas": 0, "paused": true, "selector": {"matchLabels": {"app": "x"}}, "template": template("Always", json!({})),
    }});
    for (field, value) in spec.as_object().into_iter().flatten() {
        deployment["spec"][field] = value.clone();
    }
    deployment
}

/// A Job for which no controller creates Pods.
fn job() -> Value {
    json!({"metadata": {"name": "a"}, "spec": {"parallelism": 0, "template": template("Never", json!({}))}})
}

fn service(spec: Value) -> Value {
    let mut service = json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        service["spec"][field] = value.clone();
    }
    service
}

fn ingress(backend: Value) -> Value {
    json!({"metadata": {"name": "a"}, "spec": {"rules": [{"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]}})
}

/// Records an answer whose message shows values as Go's types: its code, and the field and reason of each cause.
fn note_causes(t: &mut Case, label: &str, answer: &Answer) {
    let causes = answer.body["details"]["causes"].as_array();
    let causes: Vec<Value> = causes
        .into_iter()
        .flatten()
        .map(|cause| json!([cause["field"], cause["reason"]]))
        .collect();
    t.note(label, json!([answer.code, causes]));
}

async fn account(t: &Case) {
    let path = "/api/v1/namespaces/{ns}/serviceaccounts/default";
    t.until(path, |answer| answer.code == 200).await;
}

cases! { "builtin";
    ["K-1"] "the status of a Service keeps finalizers, labels and annotations that are written with it" => |t| {
        t.make(SERVICES, service(json!({"type": "LoadBalancer"}))).await;
        let path = format!("{SERVICES}/a");
        t.setup("PATCH", &format!("{path}/status"), json!({
            "metadata": {"finalizers": ["example.com/balancer"], "labels": {"l": "1"}, "annotations": {"a": "1"}},
            "spec": {"sessionAffinity": "ClientIP"},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
        })).await;
        let stored = t.setup("GET", &path, Value::Null).await.body;
        let metadata = &stored["metadata"];
        t.note("stored", json!([metadata["finalizers"], metadata["labels"], metadata["annotations"], stored["spec"]["sessionAffinity"], stored["status"]]));
        t.setup("PATCH", &format!("{path}/status"), json!({"metadata": {"finalizers": null}, "status": {"loadBalancer": null}})).await;
        t.setup("PATCH", &path, json!({"spec": {"type": "ClusterIP"}})).await;
        t.patch(MERGE, &format!("{path}/status"), json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}})).await;
    }
    ["K-1"] "the status of a Pod keeps labels, not owners; that of a Deployment keeps owners, not labels" => |t| {
        account(t).await;
        t.make(PODS, pod(json!({}))).await;
        t.make(DEPLOYMENTS, deployment(json!({}))).await;
        let owner = t.make("{cm}", config_map("owner", "1")).await;
        let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid()}]);
        for path in [format!("{PODS}/a"), format!("{DEPLOYMENTS}/a")] {
            let patch = json!({"metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}, "ownerReferences": owners}});
            t.setup("PATCH", &format!("{path}/status"), patch).await;
            let stored = t.setup("GET", &path, Value::Null).await.body;
            let metadata = &stored["metadata"];
            t.note(&path, json!([metadata["labels"]["l"], metadata["annotations"]["a"], metadata["ownerReferences"].is_array(), metadata["generation"]]));
        }
    }
    ["K-2"] "the generation of a Deployment follows its spec and its annotations" => |t| {
        t.make(DEPLOYMENTS, deployment(json!({"template": template("Always", json!({"resources": {"limits": {"cpu": "1000m"}}}))}))).await;
        for patch in [
            json!({"metadata": {"labels": {"l": "1"}}}),
            json!({"metadata": {"annotations": {"a": "1"}}}),
            json!({"spec": {"template": template("Always", json!({"resources": {"limits": {"cpu": 1}}, "tty": false}))}}),
            json!({"spec": {"minReadySeconds": 5}}),
        ] {
            let answer = t.setup("PATCH", &format!("{DEPLOYMENTS}/a"), patch.clone()).await;
            t.note(&patch.to_string(), answer.body["metadata"]["generation"].clone());
        }
    }
    ["K-2"] "quantities are stored in their canonical form" => |t| {
        let amounts = ["1000m", "0.5", "1.5", "1024Mi", "1.5Gi", "1500", "1000", "0", "1e3", "100n", "0.1", "2048Ki", "1.500"];
        for amount in amounts {
            let body = deployment(json!({"template": template("Always", json!({"resources": {"limits": {"memory": amount}}}))}));
            let answer = t.setup("POST", &format!("{DEPLOYMENTS}?dryRun=All"), body).await;
            t.note(amount, answer.body["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"].clone());
        }
    }
    ["K-2"] "false, zero and empty values without a meaning are not stored" => |t| {
        let mut body = deployment(json!({"paused": false, "minReadySeconds": 0}));
        body["spec"]["template"]["spec"]["hostNetwork"] = json!(false);
        body["spec"]["template"]["spec"]["nodeName"] = json!("");
        body["spec"]["template"]["spec"]["containers"][0]["tty"] = json!(false);
        body["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": ""}]);
        let answer = t.setup("POST", &format!("{DEPLOYMENTS}?dryRun=All"), body).await;
        t.note("spec", answer.body["spec"].clone());
    }
    ["K-3"] "a Job is deleted with a warning, and its dependents stay, unless the options set another policy" => |t| {
        for (name, options) in [("a", Value::Null), ("b", json!({"propagationPolicy": "Background"})), ("c", json!({"orphanDependents": true}))] {
            let mut body = job();
            body["metadata"]["name"] = json!(name);
            let owner = t.make(JOBS, body).await;
            let reference = json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": owner.uid()});
            t.make("{cm}", json!({"metadata": {"name": name, "ownerReferences": [reference]}})).await;
            let (code, warnings) = t.warnings_of("DELETE", &format!("{JOBS}/{name}"), options).await;
            t.note(name, json!([code, warnings]));
            t.until(&format!("{JOBS}/{name}"), |answer| answer.code == 404).await;
        }
        t.until("{cm}/b", |answer| answer.code == 404).await;
        for name in ["a", "c"] {
            let left = t.setup("GET", &format!("{{cm}}/{name}"), Value::Null).await;
            t.note(name, left.body["metadata"]["ownerReferences"].clone());
        }
        let (code, warnings) = t.warnings_of("DELETE", JOBS, Value::Null).await;
        t.note("collection", json!([code, warnings]));
    }
    ["K-4"] "a cluster address or node port that is taken or out of range is refused" => |t| {
        // Below 30086: the server itself takes ports from there on first.
        t.make(SERVICES, json!({"metadata": {"name": "first"}, "spec": {"type": "NodePort", "clusterIP": "10.96.200.7", "ports": [{"port": 80, "nodePort": 30061}]}})).await;
        for spec in [
            json!({"clusterIP": "10.96.200.7"}),
            json!({"clusterIP": "192.0.2.1"}),
            json!({"clusterIP": "x"}),
            json!({"clusterIP": "fd00::1"}),
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30061}]}),
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}),
            json!({"ports": [{"port": 80, "nodePort": 30062}]}),
            json!({"type": "NodePort", "clusterIP": "None"}),
        ] {
            t.post(SERVICES, service(spec)).await;
        }
        t.make(SERVICES, service(json!({}))).await;
        t.patch(MERGE, &format!("{SERVICES}/a"), json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30061}]}})).await;
        t.setup("DELETE", &format!("{SERVICES}/first"), Value::Null).await;
        let answer = t.setup("PATCH", &format!("{SERVICES}/a"), json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30061}]}})).await;
        t.note("freed", answer.body["spec"]["ports"].clone());
        let answer = t.setup("PATCH", &format!("{SERVICES}/a"), json!({"spec": {"type": "ClusterIP"}})).await;
        t.note("given up", json!([answer.body["spec"]["ports"], answer.body["spec"]["externalTrafficPolicy"]]));
        let answer = t.setup("PATCH", &format!("{SERVICES}/a"), json!({"spec": {"type": "ExternalName", "externalName": "example.com"}})).await;
        t.note("external", answer.body["spec"].clone());
    }
    ["K-5"] "the spec of a Pod is fixed except for a few fields" => |t| {
        account(t).await;
        t.make(PODS, pod(json!({"activeDeadlineSeconds": 100, "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute"}]}))).await;
        let path = format!("{PODS}/a");
        let kept = t.setup("GET", &path, Value::Null).await.body["spec"]["tolerations"].clone();
        let mut more = kept.as_array().cloned().unwrap_or_default();
        more.push(json!({"key": "b", "operator": "Exists"}));
        for patch in [
            json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "i:2"}]),
            json!([{"op": "replace", "path": "/spec/activeDeadlineSeconds", "value": 50}]),
            json!([{"op": "replace", "path": "/spec/tolerations", "value": more}]),
        ] {
            let answer = t.setup_any("PATCH", &path, &[("content-type", crate::conformance::case::JSON_PATCH)], patch).await;
            t.note("allowed", json!([answer.code, answer.body["metadata"]["generation"]]));
        }
        for patch in [
            json!({"spec": {"activeDeadlineSeconds": 60}}),
            json!({"spec": {"activeDeadlineSeconds": null}}),
            json!({"spec": {"tolerations": []}}),
            json!({"spec": {"containers": [container(json!({})), {"name": "d", "image": "i"}]}}),
        ] {
            t.patch(MERGE, &path, patch).await;
        }
        for patch in [
            json!({"spec": {"nodeName": "n"}}),
            json!({"spec": {"terminationGracePeriodSeconds": 1}}),
            json!({"spec": {"nodeSelector": {"a": "b"}}}),
        ] {
            let answer = t.setup_any("PATCH", &path, &[("content-type", MERGE)], patch.clone()).await;
            let message = answer.text("/message");
            t.note(&patch.to_string(), json!([answer.code, message.lines().next(), answer.body["details"]["causes"][0]["field"]]));
        }
    }
    ["K-5"] "selectors and the parts of a StatefulSet are fixed" => |t| {
        t.make(DEPLOYMENTS, deployment(json!({}))).await;
        let other = json!({"selector": {"matchLabels": {"app": "y"}}, "template": {"metadata": {"labels": {"app": "y"}}}});
        t.patch(MERGE, &format!("{DEPLOYMENTS}/a"), json!({"spec": other})).await;
        t.patch(MERGE, &format!("{DEPLOYMENTS}/a"), json!({"spec": {"selector": {"matchLabels": {"app": "y"}}}})).await;
        t.make(STATEFUL_SETS, json!({"metadata": {"name": "a"}, "spec": {
            "replicas": 0, "serviceName": "s", "selector": {"matchLabels": {"app": "x"}}, "template": template("Always", json!({})),
        }})).await;
        t.patch(MERGE, &format!("{STATEFUL_SETS}/a"), json!({"spec": {"serviceName": "t"}})).await;
        t.patch(MERGE, &format!("{STATEFUL_SETS}/a"), json!({"spec": {"podManagementPolicy": "Parallel"}})).await;
        let answer = t.setup("PATCH", &format!("{STATEFUL_SETS}/a"), json!({"spec": {"minReadySeconds": 3, "revisionHistoryLimit": 2}})).await;
        t.note("allowed", answer.body["metadata"]["generation"].clone());
    }
    ["MF-1"] "a Job without labels gets those of its template, and its manager owns the sent ones" => |t| {
        t.keep_managed_fields();
        t.post(JOBS, job()).await;
        let mut labelled = job();
        labelled["metadata"] = json!({"name": "b", "labels": labelled["spec"]["template"]["metadata"]["labels"]});
        t.post(JOBS, labelled).await;
    }
    ["K-5"] "the template, selector and completions of a Job are fixed" => |t| {
        let made = t.make(JOBS, job()).await;
        for patch in [
            json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 5}}}}),
            json!({"spec": {"completions": 3}}),
            json!({"spec": {"completionMode": "Indexed"}}),
            json!({"spec": {"parallelism": -1}}),
        ] {
            let answer = t.setup_any("PATCH", &format!("{JOBS}/a"), &[("content-type", MERGE)], patch.clone()).await;
            note_causes(t, &patch.to_string(), &answer);
        }
        let mut again = job();
        again["metadata"]["resourceVersion"] = json!("");
        again["metadata"]["uid"] = json!(made.uid());
        let answer = t.setup_any("PUT", &format!("{JOBS}/a"), &[], again).await;
        note_causes(t, "without the selector", &answer);
        let answer = t.setup("PATCH", &format!("{JOBS}/a"), json!({"spec": {"activeDeadlineSeconds": 100, "backoffLimit": 1}})).await;
        t.note("allowed", json!([answer.body["spec"]["activeDeadlineSeconds"], answer.body["spec"]["backoffLimit"]]));
    }
    ["K-6"] "a Pod with wrong containers" => |t| {
        account(t).await;
        for spec in [
            json!({"containers": []}),
            json!({"containers": [{"name": "C_", "image": ""}]}),
            json!({"containers": [container(json!({})), container(json!({}))]}),
            json!({"containers": [container(json!({"imagePullPolicy": "Sometimes"}))]}),
            json!({"containers": [container(json!({"ports": [{"containerPort": 70000, "name": "no letters?", "protocol": "ICMP"}]}))]}),
            json!({"containers": [container(json!({"ports": [{"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "a"}]}))]}),
            json!({"containers": [container(json!({"env": [{"name": "A=B"}, {"name": ""}, {"name": "C", "valueFrom": {}}]}))]}),
            json!({"containers": [container(json!({"volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}]}))]}),
            json!({"containers": [container(json!({"resources": {"limits": {"cpu": "-1"}}}))]}),
            json!({"containers": [container(json!({"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}))]}),
            json!({"initContainers": [container(json!({"name": "c"})), container(json!({"name": "d", "livenessProbe": {"exec": {"command": ["x"]}}}))]}),
        ] {
            t.post(&format!("{PODS}?dryRun=All"), pod(spec)).await;
        }
    }
    ["K-6"] "a Pod with wrong probes" => |t| {
        account(t).await;
        for probe in [
            json!({"livenessProbe": {}}),
            json!({"livenessProbe": {"exec": {"command": ["x"]}, "successThreshold": 2}}),
            json!({"readinessProbe": {"httpGet": {"port": 0}, "terminationGracePeriodSeconds": 1}}),
            json!({"startupProbe": {"tcpSocket": {"port": "UP"}, "periodSeconds": -1}}),
            json!({"livenessProbe": {"exec": {}}}),
            json!({"livenessProbe": {"exec": {"command": ["x"]}, "grpc": {"port": 80}, "terminationGracePeriodSeconds": 0}}),
            json!({"livenessProbe": {"httpGet": {"port": 80, "scheme": "FTP"}}}),
        ] {
            t.post(&format!("{PODS}?dryRun=All"), pod(json!({"containers": [container(probe)]}))).await;
        }
    }
    ["K-6"] "a Pod with a wrong spec" => |t| {
        account(t).await;
        for spec in [
            json!({"restartPolicy": "Perhaps"}),
            json!({"dnsPolicy": "Perhaps"}),
            json!({"activeDeadlineSeconds": 0}),
            json!({"hostname": "A.b", "subdomain": "C.d"}),
            json!({"nodeName": "N_"}),
            json!({"nodeSelector": {"a b": "c d"}}),
            json!({"tolerations": [{"operator": "Equal"}, {"key": "a", "operator": "Exists", "value": "b"}, {"key": "a", "operator": "Maybe"}, {"key": "a", "effect": "NoWay"}, {"key": "a", "tolerationSeconds": 1}]}),
            json!({"volumes": [{"name": "V_", "emptyDir": {}}, {"name": "w", "emptyDir": {}}, {"name": "w", "emptyDir": {}}]}),
        ] {
            t.post(&format!("{PODS}?dryRun=All"), pod(spec)).await;
        }
    }
    ["K-6"] "a wrong Deployment" => |t| {
        for spec in [
            json!({"replicas": -1, "minReadySeconds": -1, "revisionHistoryLimit": -1}),
            json!({"progressDeadlineSeconds": 5, "minReadySeconds": 5}),
            json!({"selector": {}}),
            json!({"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["y"]}]}}),
            json!({"template": template("Never", json!({}))}),
            json!({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}}),
            json!({"strategy": {"rollingUpdate": {"maxSurge": "x", "maxUnavailable": "101%"}}}),
            json!({"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}}),
        ] {
            t.post(&format!("{DEPLOYMENTS}?dryRun=All"), deployment(spec)).await;
        }
    }
    ["K-6"] "a wrong StatefulSet, a wrong DaemonSet and a wrong Job" => |t| {
        let set = |spec: Value| {
            let mut set = json!({"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template("Always", json!({}))}});
            for (field, value) in spec.as_object().into_iter().flatten() {
                set["spec"][field] = value.clone();
            }
            set
        };
        for spec in [
            json!({"replicas": -1}),
            json!({"podManagementPolicy": "Whatever"}),
            json!({"updateStrategy": {"rollingUpdate": {"partition": -1}}}),
            json!({"selector": {}}),
        ] {
            t.post(&format!("{STATEFUL_SETS}?dryRun=All"), set(spec)).await;
        }
        for spec in [
            json!({"selector": {}}),
            json!({"updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}}),
            json!({"updateStrategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}}),
        ] {
            t.post("/apis/apps/v1/namespaces/{ns}/daemonsets?dryRun=All", set(spec)).await;
        }
        for spec in [
            json!({"template": template("Always", json!({}))}),
            json!({"template": template("Never", json!({})), "completionMode": "Indexed"}),
            json!({"template": template("Never", json!({})), "backoffLimit": -1}),
        ] {
            t.post(&format!("{JOBS}?dryRun=All"), json!({"metadata": {"name": "a"}, "spec": spec})).await;
        }
    }
    ["K-6"] "a wrong Service" => |t| {
        for spec in [
            json!({"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]}),
            json!({"ports": [{"port": 80, "name": "A"}, {"port": 81}]}),
            json!({"ports": [{"port": 80, "protocol": "ICMP", "targetPort": "UP!"}]}),
            json!({"type": "Odd"}),
            json!({"type": "ExternalName"}),
            json!({"sessionAffinity": "Cookie"}),
            json!({"externalTrafficPolicy": "Local"}),
            json!({"selector": {"a b": "c"}}),
        ] {
            t.post(&format!("{SERVICES}?dryRun=All"), service(spec)).await;
        }
    }
    ["K-6"] "a wrong Ingress" => |t| {
        for backend in [
            json!({}),
            json!({"service": {"name": "", "port": {}}}),
            json!({"service": {"name": "s", "port": {"number": 80, "name": "web"}}}),
            json!({"service": {"name": "S_", "port": {"number": 70000}}}),
            json!({"service": {"name": "s", "port": {"name": "UP"}}, "resource": {"kind": "K", "name": "n"}}),
            json!({"resource": {"kind": "", "name": "a/b"}}),
        ] {
            t.post(&format!("{INGRESSES}?dryRun=All"), ingress(backend)).await;
        }
        let good = json!({"service": {"name": "s", "port": {"number": 80}}});
        for rule in [
            json!({"host": "192.0.2.1"}),
            json!({"host": "*.*.example.com"}),
            json!({"host": "A_"}),
            json!({"http": {"paths": []}}),
            json!({"http": {"paths": [{"path": "x", "pathType": "Prefix", "backend": good}]}}),
            json!({"http": {"paths": [{"path": "/a//b/.", "pathType": "Exact", "backend": good}]}}),
            json!({"http": {"paths": [{"path": "", "pathType": "ImplementationSpecific", "backend": good}, {"path": "/", "pathType": "Odd", "backend": good}]}}),
        ] {
            t.post(&format!("{INGRESSES}?dryRun=All"), json!({"metadata": {"name": "a"}, "spec": {"rules": [rule]}})).await;
        }
    }
    ["K-6"] "a Job gets the labels of its template, and owns those that were sent" => |t| {
        t.keep_managed_fields();
        let pod = |labels: Value| json!({"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}});
        let job = |name: &str, spec: Value| json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec});
        t.post(JOBS, job("plain", json!({"template": pod(Value::Null)}))).await;
        t.post(JOBS, job("labelled", json!({"template": pod(json!({"app": "a"}))}))).await;
        t.post(JOBS, job("indexed", json!({"completions": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 1, "template": pod(Value::Null)}))).await;
    }
}
