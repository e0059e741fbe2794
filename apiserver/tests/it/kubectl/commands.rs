//! The commands that need no controller and are not in the tour: rollouts, certificates, kustomize, sets of objects, and
//! what a server says about itself.

use crate::kubectl::steps::Runner;

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: more, labels: {app: web}}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1", env: [{name: A, value: "1"}]}]}
"#;

const RIGHTS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: more}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, VERB]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: readers, namespace: more}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: User, name: USER, apiGroup: rbac.authorization.k8s.io}]
"#;

/// A request for a client certificate of a key that was thrown away.
const REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIY01JR0RBZ0VBTUNFeER6QU5CZ05WQkFNTUJtTnZiVzF2YmpFT01Bd0dBMVVFQ2d3RlozSnZkWEF3V1RBVApCZ2NxaGtqT1BRSUJCZ2dxaGtqT1BRTUJCd05DQUFRcFhYYzUvSzA3N2IzMGpIYlpxMEdBU296OVZ1c0IxanpzClJKOFN6UGZIUEVmYzlDRC9YK1RGOUpEdTE3eXN5ejZQTVpvRTU2L0FBWXdkUmZnNXcvT0hvQUF3Q2dZSUtvWkkKemowRUF3SURTQUF3UlFJaEFNNFB6NXI0amc5NlZtYXdIeTh6YjMyVC9PM2hneGtKSklsQ1BuRUZGL2t4QWlCdwpVellOWm9hNUp3cFp3NkRBNkFoYjFMTEUyQ1ZFZGVkREF2NldtS2VGV2c9PQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K";

fn config_map(name: &str, label: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: more, labels: {{set: {label}}}}}\ndata: {{a: '1'}}\n"
    )
}

fn signing_request(name: &str) -> String {
    format!(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {{name: {name}}}\nspec: {{signerName: example.com/signer, usages: [client auth], request: {REQUEST}}}\n"
    )
}

pub async fn walk(t: &mut Runner) {
    about(t).await;
    t.run("create namespace more").await;
    rollouts(t).await;
    sets(t).await;
    rights(t).await;
    certificates(t).await;
    kustomize(t).await;
    pruned(t).await;
    last_applied(t).await;
    patches(t).await;
}

async fn about(t: &mut Runner) {
    t.run("api-versions").await;
    t.run("api-resources").await;
    t.run("api-resources -o wide --api-group=apps").await;
    t.run("api-resources --namespaced=false --verbs=list,create -o name")
        .await;
    t.run("api-resources --sort-by=kind --api-group=").await;
    t.run("cluster-info").await;
    t.run("get --raw /version/nothing").await;
    t.run("get --raw /healthz/ping").await;
}

async fn rollouts(t: &mut Runner) {
    t.feed("apply -f -", DEPLOYMENT).await;
    t.run("rollout status deployment/web -n more --watch=false")
        .await;
    t.run("rollout history deployment/web -n more").await;
    t.run("rollout undo deployment/web -n more").await;
    t.run("rollout pause deployment/web -n more").await;
    t.run("rollout pause deployment/web -n more").await;
    t.run("rollout restart deployment/web -n more").await;
    t.run("rollout resume deployment/web -n more").await;
    t.run("rollout resume deployment/web -n more").await;
    t.run("rollout restart deployment/web -n more").await;
    t.run("get deployment web -n more -o jsonpath={.metadata.generation}:{.spec.paused}:{.spec.template.metadata.labels}")
        .await;
    t.run("rollout restart configmap/nothing -n more").await;
    t.run("rollout status deployment/nothing -n more").await;
    t.run("rollout history deployment/web -n more --revision=7")
        .await;
}

async fn sets(t: &mut Runner) {
    t.run("set image deployment/web -n more web=web:2").await;
    t.run("set image deployment/web -n more other=web:2").await;
    t.run("set env deployment/web -n more B=2 A-").await;
    t.run("set env deployment/web -n more --list").await;
    t.run("create configmap env -n more --from-literal=key=value")
        .await;
    t.run("set env deployment/web -n more --from=configmap/env --prefix=P_")
        .await;
    t.run("get deployment web -n more -o jsonpath={.spec.template.spec.containers[0].env}")
        .await;
    t.run("expose deployment web -n more --port=80").await;
    t.run("set selector service web -n more app=other").await;
    t.run("get service web -n more -o jsonpath={.spec.selector}")
        .await;
    t.run("set resources deployment web -n more --requests=cpu=1,memory=1Gi --limits=cpu=2")
        .await;
    t.run("scale deployment web -n more --replicas=0").await;
    t.run("autoscale deployment web -n more --min=1 --max=3")
        .await;
    t.run("get hpa web -n more").await;
}

async fn rights(t: &mut Runner) {
    let rights = |verb: &str, user: &str| RIGHTS.replace("VERB", verb).replace("USER", user);
    t.feed("auth reconcile -f -", &rights("list", "ann")).await;
    t.feed("auth reconcile -f -", &rights("watch", "bob")).await;
    t.feed(
        "auth reconcile --dry-run=server -f -",
        &rights("list", "eve"),
    )
    .await;
    t.feed(
        "auth reconcile --remove-extra-permissions --remove-extra-subjects -f -",
        &rights("list", "bob"),
    )
    .await;
    t.run("get role reader -n more -o jsonpath={.rules}").await;
    t.run("set subject rolebinding readers -n more --user=jane --group=people --serviceaccount=more:robot")
        .await;
    t.run("get rolebinding readers -n more -o jsonpath={.subjects}")
        .await;
}

async fn certificates(t: &mut Runner) {
    t.feed("create -f -", &signing_request("good")).await;
    t.feed("create -f -", &signing_request("bad")).await;
    t.run("certificate approve good").await;
    t.run("certificate approve good").await;
    t.run("certificate deny bad").await;
    t.run("certificate approve bad").await;
    t.run("certificate approve nothing").await;
    t.run("get csr good bad -o jsonpath={.items[*].status.conditions[*].type}:{.items[*].status.conditions[*].reason}")
        .await;
    t.run("delete csr good bad").await;
}

async fn kustomize(t: &mut Runner) {
    t.file("base.yaml", &config_map("base", "kustomized"));
    t.file(
        "kustomization.yaml",
        "namespace: more\nnamePrefix: pre-\nresources: [base.yaml]\nconfigMapGenerator: [{name: made, literals: [x=y]}]\ngeneratorOptions: {disableNameSuffixHash: true}\n",
    );
    t.run("kustomize {dir}").await;
    t.run("diff -k {dir}").await;
    t.run("apply -k {dir}").await;
    t.run("apply -k {dir}").await;
    t.run("diff -k {dir}").await;
    t.run("get -k {dir}").await;
    t.run("delete -k {dir}").await;
}

async fn pruned(t: &mut Runner) {
    let both = config_map("one", "pruned") + "---\n" + &config_map("two", "pruned");
    let prune = "apply --prune -l set=pruned --prune-allowlist=core/v1/ConfigMap -n more -f -";
    t.feed(prune, &both).await;
    t.feed(
        &format!("{prune} --dry-run=server"),
        &config_map("one", "pruned"),
    )
    .await;
    t.feed(prune, &config_map("one", "pruned")).await;
    t.run("get configmaps -n more -l set=pruned -o name").await;
    t.feed(
        "apply --prune --all -n more --prune-allowlist=core/v1/Secret -f -",
        &config_map("one", "pruned"),
    )
    .await;
}

async fn last_applied(t: &mut Runner) {
    t.run("create configmap bare -n more --from-literal=a=1")
        .await;
    let bare = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bare, namespace: more}\ndata: {a: '2'}\n";
    t.feed("apply set-last-applied -f -", bare).await;
    t.feed("apply set-last-applied --create-annotation -f -", bare)
        .await;
    t.run("apply view-last-applied configmap bare -n more -o json")
        .await;
    t.run("apply view-last-applied configmap one -n more").await;
    t.edit(
        "apply edit-last-applied configmap bare -n more",
        "s/\"2\"/\"3\"/",
    )
    .await;
    t.run("apply view-last-applied configmap bare -n more")
        .await;
    t.run("get configmap bare -n more -o jsonpath={.data}")
        .await;
}

async fn patches(t: &mut Runner) {
    t.run("patch deployment web -n more -p {\"spec\":{\"minReadySeconds\":5}}")
        .await;
    t.run("patch deployment web -n more --type=json -p [{\"op\":\"remove\",\"path\":\"/spec/minReadySeconds\"}]")
        .await;
    t.run("patch deployment web -n more --type=json -p [{\"op\":\"remove\",\"path\":\"/spec/nothing\"}]")
        .await;
    t.run("patch deployment web -n more --type=merge -p {\"spec\":{\"replicas\":-1}}")
        .await;
    t.run("patch deployment web -n more --subresource=status --type=merge -p {\"status\":{\"replicas\":3}}")
        .await;
    t.run("get deployment web -n more --subresource=status -o jsonpath={.status.replicas}")
        .await;
    t.run("patch deployment web -n more --subresource=scale --type=merge -p {\"spec\":{\"replicas\":0}}")
        .await;
    t.run("annotate configmap bare -n more --list").await;
    t.run("label configmaps --all -n more every=one").await;
    t.run("get configmaps -n more -l every=one -o name").await;
    t.run("wait --for=delete configmap -l every=none -n more --timeout=5s")
        .await;
    t.run("wait --for=jsonpath={.spec.paused}=true deployment/web -n more --timeout=1s")
        .await;
    t.run("delete configmaps -l every=one -n more").await;
}
