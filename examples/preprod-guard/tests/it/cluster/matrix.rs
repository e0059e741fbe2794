//! Kind × operation × subresource × label strip × caller.

use serde_json::{Value, json};

use super::requests::{APPLY, Attempt, Caller};
use super::world::World;

/// Pre-release callers by user, by group, and by the namespace of a ServiceAccount.
const PRE: [Caller; 3] = [
    ("hbox-pre", "system:authenticated"),
    ("otto", "hbox:pre-release"),
    (
        "system:serviceaccount:hbox-pre:ci",
        "system:serviceaccounts:hbox-pre",
    ),
];

/// Production callers, also with names that contain `pre` (A1).
const PRODUCTION: [Caller; 4] = [
    ("anna", "system:masters"),
    ("hbox-pre2", "system:masters"),
    ("system:node:spread-1", "system:masters"),
    ("system:serviceaccount:kube-system:presto", "system:masters"),
];

/// The subresources that are connections.
const CONNECTIONS: [&str; 4] = ["exec", "attach", "portforward", "proxy"];

/// An object of a kind.
struct Row {
    collection: &'static str,
    name: &'static str,
    kind: &'static str,
    version: &'static str,
    spec: Value,
    subresources: &'static [&'static str],
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_matrix_on_the_built_in_server() {
    if let Some(world) = World::built_in("matrix-built-in").await {
        matrix(world).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_matrix_on_a_real_server() {
    if let Some(world) = World::real("matrix-real").await {
        matrix(world).await;
    }
}

fn row(
    collection: &'static str,
    kind: &'static str,
    version: &'static str,
    spec: Value,
    subresources: &'static [&'static str],
) -> Row {
    Row {
        collection,
        name: "web",
        kind,
        version,
        spec,
        subresources,
    }
}

fn rows() -> Vec<Row> {
    let pod = json!({
        "automountServiceAccountToken": false,
        "containers": [{"name": "web", "image": "registry.example.com/web"}],
    });
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": pod});
    let selector = json!({"matchLabels": {"app": "web"}});
    let set = json!({"replicas": 2, "selector": selector, "template": template});
    let mut stateful = set.clone();
    stateful["serviceName"] = json!("web");
    let mut once = template.clone();
    once["spec"]["restartPolicy"] = json!("Never");
    let scale: &[&str] = &["scale", "status"];
    vec![
        row(
            "/api/v1/namespaces/NS/pods",
            "Pod",
            "v1",
            pod,
            &[
                "eviction",
                "status",
                "ephemeralcontainers",
                "binding",
                "exec",
                "attach",
                "portforward",
                "proxy",
            ],
        ),
        row(
            "/apis/apps/v1/namespaces/NS/deployments",
            "Deployment",
            "apps/v1",
            set.clone(),
            scale,
        ),
        row(
            "/apis/apps/v1/namespaces/NS/replicasets",
            "ReplicaSet",
            "apps/v1",
            set,
            scale,
        ),
        row(
            "/apis/apps/v1/namespaces/NS/statefulsets",
            "StatefulSet",
            "apps/v1",
            stateful,
            scale,
        ),
        row(
            "/apis/apps/v1/namespaces/NS/daemonsets",
            "DaemonSet",
            "apps/v1",
            json!({"selector": selector, "template": template}),
            &["status"],
        ),
        row(
            "/apis/batch/v1/namespaces/NS/jobs",
            "Job",
            "batch/v1",
            json!({"template": once}),
            &["status"],
        ),
        row(
            "/apis/batch/v1/namespaces/NS/cronjobs",
            "CronJob",
            "batch/v1",
            json!({"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": once}}}),
            &["status"],
        ),
        row(
            "/api/v1/namespaces/NS/services",
            "Service",
            "v1",
            json!({"ports": [{"port": 80}]}),
            &["status", "proxy"],
        ),
        row(
            "/apis/networking.k8s.io/v1/namespaces/NS/ingresses",
            "Ingress",
            "networking.k8s.io/v1",
            json!({"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}),
            &["status"],
        ),
        row(
            "/api/v1/namespaces/NS/configmaps",
            "ConfigMap",
            "v1",
            Value::Null,
            &[],
        ),
        row(
            "/api/v1/namespaces/NS/secrets",
            "Secret",
            "v1",
            Value::Null,
            &[],
        ),
        row(
            "/api/v1/namespaces/NS/serviceaccounts",
            "ServiceAccount",
            "v1",
            Value::Null,
            &["token"],
        ),
        row(
            "/api/v1/namespaces/NS/persistentvolumeclaims",
            "PersistentVolumeClaim",
            "v1",
            json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}),
            &["status"],
        ),
        row(
            "/apis/policy/v1/namespaces/NS/poddisruptionbudgets",
            "PodDisruptionBudget",
            "policy/v1",
            json!({"minAvailable": 1, "selector": selector}),
            &["status"],
        ),
        row(
            "/apis/networking.k8s.io/v1/namespaces/NS/networkpolicies",
            "NetworkPolicy",
            "networking.k8s.io/v1",
            json!({"podSelector": {}}),
            &[],
        ),
        row(
            "/apis/autoscaling/v2/namespaces/NS/horizontalpodautoscalers",
            "HorizontalPodAutoscaler",
            "autoscaling/v2",
            json!({"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}}),
            &["status"],
        ),
    ]
}

/// The source of the mark of an object.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mark {
    Label,
    Namespace,
}

impl Mark {
    fn namespace(self) -> &'static str {
        match self {
            Self::Label => "hbox",
            Self::Namespace => "marked",
        }
    }
}

impl Row {
    fn collection(&self, mark: Mark) -> String {
        self.collection.replace("NS", mark.namespace())
    }

    fn path(&self, mark: Mark) -> String {
        format!("{}/{}", self.collection(mark), self.name)
    }

    fn object(&self, mark: Mark) -> Value {
        let mut labels = json!({"app": "web"});
        if mark == Mark::Label {
            labels["environment"] = json!("production");
        }
        let mut object = json!({
            "apiVersion": self.version, "kind": self.kind,
            "metadata": {"name": self.name, "namespace": mark.namespace(), "labels": labels},
        });
        if !self.spec.is_null() {
            object["spec"] = self.spec.clone();
        }
        object
    }

    /// Every way to change the object.
    fn attempts(&self, mark: Mark, stored: &Value) -> Vec<Attempt> {
        let (path, collection) = (self.path(mark), self.collection(mark));
        let metadata = |field: &str, value: Value| json!({"metadata": {field: value}});
        let mut replaced = stored.clone();
        replaced["metadata"]["annotations"] = json!({"a": "b"});
        let mut applied = self.object(mark);
        applied["metadata"]["annotations"] = json!({"a": "b"});
        let owner =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"}]);
        let mut attempts = vec![
            Attempt::new("PUT", &path, replaced),
            Attempt::new("PATCH", &path, metadata("annotations", json!({"a": "b"}))),
            Attempt::new(
                "PATCH",
                &path,
                metadata("labels", json!({"environment": null, "app": null})),
            ),
            Attempt::new(
                "PATCH",
                &path,
                metadata("labels", json!({"environment": "pre"})),
            ),
            Attempt::new(
                "PATCH",
                &path,
                metadata("finalizers", json!(["example.com/hold"])),
            ),
            Attempt::new("PATCH", &path, metadata("ownerReferences", owner)),
            Attempt::new("DELETE", &path, Value::Null),
            Attempt::new(
                "DELETE",
                &path,
                json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"}),
            ),
            Attempt::new(
                "DELETE",
                format!("{collection}?labelSelector=app%3Dweb"),
                Value::Null,
            ),
            Attempt::new("DELETE", format!("{path}?dryRun=All"), Value::Null),
        ];
        let mut apply = Attempt::new(
            "PATCH",
            format!("{path}?fieldManager=pre&force=true"),
            applied,
        );
        apply.content = APPLY;
        attempts.push(apply);
        for name in self.subresources {
            attempts.push(self.of_subresource(mark, name));
            if CONNECTIONS.contains(name) {
                let mut posted = self.of_subresource(mark, name);
                posted.method = "POST";
                attempts.push(posted);
            }
            if *name == "proxy" {
                let with_port = format!("{path}:80/proxy/x");
                attempts.push(Attempt::new("GET", with_port, Value::Null));
            }
        }
        attempts
    }

    fn of_subresource(&self, mark: Mark, name: &str) -> Attempt {
        let path = format!("{}/{name}", self.path(mark));
        let named = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": self.name, "namespace": mark.namespace()}});
        match name {
            "eviction" => Attempt::new("POST", path, named("policy/v1", "Eviction")),
            "binding" => {
                let mut binding = named("v1", "Binding");
                binding["target"] = json!({"kind": "Node", "name": "node-1"});
                Attempt::new("POST", path, binding)
            }
            "token" => Attempt::new(
                "POST",
                path,
                json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
            ),
            "exec" | "attach" => {
                Attempt::new("GET", format!("{path}?command=id&stdout=true"), Value::Null)
            }
            "portforward" | "proxy" => Attempt::new("GET", path, Value::Null),
            "scale" => Attempt::new("PATCH", path, json!({"spec": {"replicas": 0}})),
            "ephemeralcontainers" => Attempt::new(
                "PATCH",
                path,
                json!({"spec": {"ephemeralContainers": [{"name": "x", "image": "x"}]}}),
            ),
            _ => Attempt::new(
                "PATCH",
                path,
                json!({"metadata": {"annotations": {"a": "b"}}}),
            ),
        }
    }
}

async fn matrix(world: World) {
    let guard = world.start("guard", &["--tls-name=127.0.0.1", "--certificates-every=1"]);
    guard.until("caches synced").await;
    world.install(&guard, None).await;
    // The guard writes the authorities into the configurations by itself.
    guard.until("another certificate is in use").await;
    world.until_called().await;
    let marked = json!({"metadata": {"name": "marked", "labels": {"environment": "production"}}});
    world.must("POST", "/api/v1/namespaces", marked).await;

    let mut refused = 0;
    for mark in [Mark::Label, Mark::Namespace] {
        for row in rows() {
            world
                .must("POST", &row.collection(mark), row.object(mark))
                .await;
            refused += refusals(&world, &row, mark).await;
        }
    }
    // 16 kinds, 207 ways to change or reach them, by label and by Namespace, by three callers.
    assert_eq!(refused, 207 * 2 * 3);

    let namespace = |name: &str| format!("/api/v1/namespaces/{name}");
    for (attempt, text) in [
        (
            Attempt::new("DELETE", namespace("hbox"), Value::Null),
            "namespace hbox: it contains",
        ),
        (
            Attempt::new("DELETE", namespace("marked"), Value::Null),
            "DELETE production namespace",
        ),
        (
            Attempt::new(
                "PATCH",
                namespace("marked"),
                json!({"metadata": {"labels": {"environment": null}}}),
            ),
            "UPDATE production namespace",
        ),
    ] {
        for caller in PRE {
            let answer = world.send(&attempt, Some(caller)).await;
            assert!(
                answer.message.contains(text),
                "{attempt:?}: {}",
                answer.message
            );
        }
    }

    // B14: the older form of a binding.
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"},
        "target": {"kind": "Node", "name": "node-1"},
    });
    let bind = Attempt::new("POST", "/api/v1/namespaces/hbox/bindings", binding);
    let answer = world.send(&bind, Some(PRE[0])).await;
    assert!(
        answer.message.contains("CREATE production pod"),
        "{}",
        answer.message
    );

    // B19: the webhooks are called for another version of a kind.
    let old_version = "/apis/autoscaling/v1/namespaces/hbox/horizontalpodautoscalers/web";
    for caller in PRE {
        let attempt = Attempt::new("DELETE", old_version, Value::Null);
        let answer = world.send(&attempt, Some(caller)).await;
        assert!(
            answer
                .message
                .contains("DELETE production horizontalpodautoscaler"),
            "{}",
            answer.message
        );
    }

    // Production callers may do all of it, and with a dead webhook, too.
    production(&world, Mark::Label).await;
    // A guard that hangs costs a deletion of a production caller the second of the record.
    guard.signal("-STOP").await;
    let path = format!("{}?dryRun=All", rows()[0].path(Mark::Label));
    let hanging = Attempt::new("DELETE", path, Value::Null);
    let answer = world.send(&hanging, Some(PRODUCTION[0])).await;
    assert_eq!(answer.code, 200, "{}", answer.message);
    guard.kill().await;
    for caller in PRE {
        let attempt = Attempt::new("DELETE", rows()[0].path(Mark::Label), Value::Null);
        let answer = world.send(&attempt, Some(caller)).await;
        assert_eq!(answer.code, 500, "{}", answer.message);
        assert!(
            answer
                .message
                .contains("failed calling webhook \"pod.validate.hbox\"")
        );
    }
    production(&world, Mark::Label).await;
    for row in rows() {
        for mark in [Mark::Label, Mark::Namespace] {
            world
                .must(
                    "DELETE",
                    &row.path(mark),
                    json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"}),
                )
                .await;
        }
    }
    world
        .must("DELETE", &namespace("marked"), Value::Null)
        .await;
    world.end().await;
}

/// Checks that each attempt of each pre-release caller is refused by the guard, and changes nothing. Returns their number.
async fn refusals(world: &World, row: &Row, mark: Mark) -> usize {
    let path = row.path(mark);
    let stored = world.must("GET", &path, Value::Null).await;
    let mut refused = 0;
    for attempt in row.attempts(mark, &stored) {
        for caller in PRE {
            let answer = world.send(&attempt, Some(caller)).await;
            let by_guard = answer
                .message
                .contains("denied the request: Pre-release environment not allowed to");
            assert!(by_guard, "{caller:?} {mark:?} {attempt:?}: {answer:?}");
            let now = world.must("GET", &path, Value::Null).await;
            for field in ["uid", "resourceVersion"] {
                assert_eq!(
                    now["metadata"][field], stored["metadata"][field],
                    "{attempt:?}"
                );
            }
            refused += 1;
        }
    }
    refused
}

/// Checks that production callers may change each object.
async fn production(world: &World, mark: Mark) {
    for row in rows() {
        for (turn, caller) in PRODUCTION.into_iter().enumerate() {
            let path = row.path(mark);
            let annotate = json!({"metadata": {"annotations": {"turn": turn.to_string()}}});
            let mut attempts = vec![
                Attempt::new("PATCH", &path, annotate),
                Attempt::new("DELETE", format!("{path}?dryRun=All"), Value::Null),
                Attempt::new("POST", format!("{}?dryRun=All", row.collection(mark)), {
                    let mut another = row.object(mark);
                    another["metadata"]["name"] = json!("another");
                    another
                }),
            ];
            for name in row.subresources {
                if matches!(*name, "status" | "scale" | "token") {
                    attempts.push(row.of_subresource(mark, name));
                }
                if *name == "eviction" {
                    let mut evict = row.of_subresource(mark, name);
                    evict.path += "?dryRun=All";
                    attempts.push(evict);
                }
            }
            for attempt in attempts {
                let answer = world.send(&attempt, Some(caller)).await;
                assert_eq!(
                    answer.code, 200,
                    "{caller:?} {attempt:?}: {}",
                    answer.message
                );
            }
        }
    }
    // No node: the server itself refuses what the guard lets pass.
    let pod = &rows()[0];
    for name in ["exec", "attach", "portforward"] {
        for caller in PRODUCTION {
            let attempt = pod.of_subresource(mark, name);
            let answer = world.send(&attempt, Some(caller)).await;
            let why = "pod web does not have a host assigned";
            assert_eq!((answer.code, answer.message.as_str()), (400, why));
        }
    }
}
