//! The part of the tour that applies on the server, and asks for what only newer servers answer.

use crate::kubectl::steps::Runner;

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: side, namespace: side}
spec:
  replicas: 0
  selector: {matchLabels: {app: side}}
  template:
    metadata: {labels: {app: side}}
    spec: {containers: [{name: web, image: "web:1"}]}
"#;

fn config_map(data: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: side, namespace: side}}\ndata: {data}\n"
    )
}

pub async fn walk(t: &mut Runner) {
    t.run("create namespace side").await;
    apply(t).await;
    ask(t).await;
    change(t).await;
    t.run("delete namespace side").await;
}

async fn apply(t: &mut Runner) {
    let apply = "apply --server-side -f -";
    t.feed(apply, &config_map("{a: '1', b: '2'}")).await;
    t.feed(apply, &config_map("{a: '1', b: '2'}")).await;
    let other = "apply --server-side --field-manager=other -f -";
    t.feed(other, &config_map("{a: '2'}")).await;
    t.feed(
        "apply --server-side --field-manager=other --force-conflicts -f -",
        &config_map("{a: '2'}"),
    )
    .await;
    t.feed(apply, &config_map("{a: '3'}")).await;
    t.feed("diff --server-side -f -", &config_map("{a: '3'}"))
        .await;
    t.feed(
        "diff --server-side --force-conflicts -f -",
        &config_map("{a: '3', c: '4'}"),
    )
    .await;
    t.feed(
        "apply --server-side --dry-run=server -o yaml -f -",
        &config_map("{c: '4'}"),
    )
    .await;
    t.run("get configmap side -n side -o yaml --show-managed-fields")
        .await;
    t.feed(
        apply,
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: side, namespace: side}\ndata: [1]\n",
    )
    .await;
    // An object that was applied by the client.
    t.feed("apply -f -", DEPLOYMENT).await;
    t.feed(apply, &DEPLOYMENT.replace("web:1", "web:2")).await;
    t.run("get deployment side -n side -o jsonpath={.spec.template.spec.containers[*].image}:{.metadata.managedFields[?(@.operation==\"Apply\")].manager}")
        .await;
    t.feed("apply -f -", &DEPLOYMENT.replace("web:1", "web:3"))
        .await;
    t.run("apply view-last-applied deployment side -n side")
        .await;
}

async fn ask(t: &mut Runner) {
    t.run("explain deployment.spec.strategy").await;
    t.run("explain pod.spec.containers.resources").await;
    t.run("explain cronjob.spec --recursive").await;
    t.run("explain horizontalpodautoscaler.spec --api-version=autoscaling/v1")
        .await;
    t.run("auth can-i --list -n side").await;
    t.run("top pods -n side").await;
    t.run("top nodes").await;
    t.feed("create -f -", "apiVersion: v1\nkind: Event\nmetadata: {name: e, namespace: side}\ninvolvedObject: {apiVersion: v1, kind: ConfigMap, name: side, namespace: side}\nreason: Seen\nmessage: it was seen\ntype: Warning\ncount: 1\nlastTimestamp: 2026-01-01T00:00:00Z\n")
        .await;
    t.run("events -n side --for=configmap/side -o name").await;
    t.run("events -n side --types=Warning --no-headers=true -o jsonpath={.items[*].reason}")
        .await;
    t.run("wait --for=jsonpath={.data.b}=2 configmap/side -n side --timeout=5s")
        .await;
    t.run("wait --for=delete configmap/nothing -n side --timeout=5s")
        .await;
}

async fn change(t: &mut Runner) {
    t.run("run pod -n side --image=web:1 --restart=Never --labels=app=pod")
        .await;
    t.run("debug pod -n side --image=debug:1 --container=look --attach=false --quiet")
        .await;
    t.run("get pod pod -n side -o jsonpath={.spec.ephemeralContainers}")
        .await;
    t.run(
        "debug pod -n side --image=debug:1 --copy-to=copy --container=look --attach=false --quiet",
    )
    .await;
    t.run("get pod copy -n side -o jsonpath={.spec.containers[*].image}:{.metadata.labels}")
        .await;
    t.run("delete pod pod copy -n side --force --grace-period=0")
        .await;
    t.run("set env deployment/side -n side A=1").await;
    t.run("set resources deployment/side -n side --limits=cpu=200m")
        .await;
    t.run("set serviceaccount deployment/side -n side robot")
        .await;
    t.run("autoscale deployment side -n side --min=1 --max=3 --cpu-percent=50 --dry-run=server -o jsonpath={.spec}")
        .await;
    t.run("create cronjob tick -n side --image=web:1 --schedule=@daily --dry-run=server -o jsonpath={.spec.jobTemplate}")
        .await;
    t.run("create quota few -n side --hard=pods=2,requests.cpu=1000m --dry-run=server -o jsonpath={.spec}")
        .await;
    t.run("create poddisruptionbudget few -n side --selector=app=side --min-available=50% --dry-run=server -o jsonpath={.spec}")
        .await;
    t.run("create priorityclass side --value=10 --description=few")
        .await;
    t.run("get priorityclass side -o jsonpath={.value}:{.preemptionPolicy}")
        .await;
    t.run("delete priorityclass side").await;
    t.feed(
        "create -f -",
        "apiVersion: v1\nkind: Node\nmetadata: {name: side}\n",
    )
    .await;
    t.run("taint nodes side side=yes:NoSchedule").await;
    t.run("cordon side").await;
    t.run("uncordon side").await;
    t.run("drain side --force").await;
    t.run("delete node side").await;
}
