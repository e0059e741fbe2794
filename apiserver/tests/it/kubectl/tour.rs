//! The tour.

use crate::kubectl::server_side;
use crate::kubectl::steps::Runner;

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: kites.tour.example.com
spec:
  group: tour.example.com
  scope: Namespaced
  names: {plural: kites, singular: kite, kind: Kite, shortNames: [kt], categories: [toys]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.count, statusReplicasPath: .status.count}
    additionalPrinterColumns:
    - {name: Color, type: string, jsonPath: .spec.color}
    - {name: Count, type: integer, jsonPath: .spec.count}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    - {name: Wind, type: string, jsonPath: .spec.wind, priority: 1}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: Kite flies.
        required: [spec]
        properties:
          spec:
            type: object
            description: What is wanted.
            required: [color]
            properties:
              color: {type: string, description: The color., enum: [red, blue, green]}
              count: {type: integer, minimum: 0, maximum: 9, default: 1, description: How many.}
              wind: {type: string}
              tails:
                type: array
                description: What it has behind.
                items: {type: object, properties: {length: {type: integer}}}
          status:
            type: object
            properties:
              count: {type: integer}
              conditions:
                type: array
                items: {type: object, properties: {type: {type: string}, status: {type: string}}}
"#;

fn kite(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: tour.example.com/v1\nkind: Kite\nmetadata:\n  name: {name}\n  namespace: tour\nspec: {spec}\n"
    )
}

fn config_map(name: &str, data: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: tour\ndata: {data}\n"
    )
}

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: tour, labels: {app: web}}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1"}]}
"#;

pub async fn walk(t: &mut Runner) {
    definitions(t).await;
    create_and_get(t).await;
    apply(t).await;
    change(t).await;
    watch(t).await;
    built_in(t).await;
    from_flags(t).await;
    server_side::walk(t).await;
    learn(t).await;
    delete(t).await;
}

async fn definitions(t: &mut Runner) {
    t.run("get --raw /readyz").await;
    t.run("get kites").await;
    t.feed("apply -f -", &kite("early", "{color: red}")).await;
    t.feed("apply -f -", DEFINITION).await;
    t.run("wait --for=condition=Established crd/kites.tour.example.com --timeout=20s")
        .await;
    t.until("api-resources --api-group=tour.example.com", "kites")
        .await;
    t.run("get crd kites.tour.example.com").await;
    t.run("api-resources --api-group=tour.example.com").await;
    t.feed(
        "create -f -",
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: tour}\n",
    )
    .await;
    t.run("get namespace tour").await;
    t.run("get kites -n tour").await;
    t.run("get kites -A").await;
}

async fn create_and_get(t: &mut Runner) {
    t.feed("create -f -", &kite("a", "{color: red, wind: north}"))
        .await;
    t.feed("create -f -", &kite("a", "{color: red}")).await;
    t.feed("create -f -", &kite("b", "{color: blue, count: 3}"))
        .await;
    t.feed("create -f -", &kite("bad", "{color: pink}")).await;
    t.feed("create -f -", &kite("bad", "{color: red, colour: red}"))
        .await;
    t.feed(
        "create --validate=false -f -",
        &kite("lax", "{color: red, colour: red}"),
    )
    .await;
    t.feed(
        "create --validate=warn -f -",
        &kite("warned", "{color: red, colour: red}"),
    )
    .await;
    t.feed(
        "create --dry-run=server -o yaml -f -",
        &kite("dry", "{color: green}"),
    )
    .await;
    t.run("get kites -n tour").await;
    t.run("get kites -n tour -o wide").await;
    t.run("get kt a -n tour").await;
    t.run("get kite a -n tour -o yaml").await;
    t.run("get kite a -n tour -o json").await;
    t.run("get kites -n tour -o name").await;
    t.run("get kites -n tour -o jsonpath={.items[*].spec.color}")
        .await;
    t.run("get kites -n tour -o custom-columns=NAME:.metadata.name,COLOR:.spec.color")
        .await;
    t.run("get kites -n tour --sort-by=.spec.color").await;
    t.run("get kites -n tour --field-selector=metadata.name=b")
        .await;
    t.run("get kites -n tour --field-selector=spec.color=red")
        .await;
    t.run("get kites -n tour --chunk-size=1").await;
    t.run("get kites -n tour --show-labels").await;
    t.run("get toys -n tour").await;
    t.run("get kite nothing -n tour").await;
    t.run("get nonsense").await;
    t.run("describe kite a -n tour").await;
    t.run("delete kite lax warned -n tour").await;
}

async fn apply(t: &mut Runner) {
    t.feed("apply -f -", &kite("c", "{color: red, wind: north}"))
        .await;
    t.feed("apply -f -", &kite("c", "{color: red, wind: north}"))
        .await;
    t.feed("apply -f -", &kite("c", "{color: blue}")).await;
    t.run("get kite c -n tour -o yaml").await;
    t.feed("diff -f -", &kite("c", "{color: green}")).await;
    t.feed("diff -f -", &kite("c", "{color: blue}")).await;
    t.feed("apply --dry-run=server -f -", &kite("c", "{color: green}"))
        .await;
    t.feed("apply -f -", &kite("c", "{color: pink}")).await;
    t.feed("apply -f -", &kite("c", "{color: red, colour: red}"))
        .await;
    t.feed("apply -f -", &kite("a", "{color: red}")).await;
    t.feed("apply -f -", &config_map("settings", "{a: '1', b: '2'}"))
        .await;
    t.feed("apply -f -", &config_map("settings", "{b: '3'}"))
        .await;
    t.run("get configmap settings -n tour -o yaml").await;
    t.feed("diff -f -", &config_map("settings", "{b: '4'}"))
        .await;
    t.feed(
        "apply -f -",
        "apiVersion: tour.example.com/v2\nkind: Kite\nmetadata: {name: x}\n",
    )
    .await;
    t.feed("replace -f -", &kite("c", "{color: green, count: 2}"))
        .await;
    t.feed("replace -f -", &kite("nothing", "{color: green}"))
        .await;
    t.feed("replace --force -f -", &kite("c", "{color: blue}"))
        .await;
}

async fn change(t: &mut Runner) {
    t.run(r#"patch kite a -n tour --type=merge -p {"spec":{"color":"green"}}"#)
        .await;
    t.run(r#"patch kite a -n tour --type=merge -p {"spec":{"color":"green"}}"#)
        .await;
    t.run(
        r#"patch kite a -n tour --type=json -p [{"op":"replace","path":"/spec/count","value":4}]"#,
    )
    .await;
    t.run(r#"patch kite a -n tour --type=json -p [{"op":"remove","path":"/spec/nothing"}]"#)
        .await;
    t.run(r#"patch kite a -n tour -p {"spec":{"color":"red"}}"#)
        .await;
    t.run(r#"patch kite a -n tour --type=merge -p {"spec":{"count":99}}"#)
        .await;
    t.run(r#"patch kite a -n tour --subresource=status --type=merge -p {"status":{"count":4,"conditions":[{"type":"Ready","status":"True"}]}}"#).await;
    t.run("get kite a -n tour").await;
    t.run("wait --for=condition=Ready kite/a -n tour --timeout=10s")
        .await;
    t.run("wait --for=jsonpath={.spec.color}=green kite/a -n tour --timeout=10s")
        .await;
    t.run("wait --for=condition=Ready kite/b -n tour --timeout=1s")
        .await;
    t.run(r#"patch configmap settings -n tour -p {"data":{"c":"5"}}"#)
        .await;
    t.run("label kite a -n tour kind=box").await;
    t.run("label kite a -n tour kind=delta").await;
    t.run("label kite a -n tour kind=delta --overwrite").await;
    t.run("get kites -n tour -l kind=delta").await;
    t.run("get kites -n tour -l kind!=delta").await;
    t.run("label kite a -n tour kind-").await;
    t.run("label kite a -n tour kind=b@d").await;
    t.run("annotate kite a -n tour note=one").await;
    t.run("annotate kite a -n tour note-").await;
    t.run("scale kite b -n tour --replicas=5").await;
    t.run("scale kite b -n tour --current-replicas=1 --replicas=6")
        .await;
    t.run("get kite b -n tour").await;
    t.run("scale kite b -n tour --replicas=50").await;
    t.edit("edit kite b -n tour", "s/color: blue/color: green/")
        .await;
    t.edit("edit kite b -n tour", "s/nothing/at all/").await;
    t.edit("edit configmap settings -n tour", "s/b: .3./b: edited/")
        .await;
    t.run("get kite b -n tour -o jsonpath={.spec}").await;
    t.run("get configmap settings -n tour -o jsonpath={.data}")
        .await;
}

async fn watch(t: &mut Runner) {
    let watching = t.watch("get kites -n tour -w").await;
    t.run(r#"patch kite a -n tour --type=merge -p {"spec":{"color":"blue"}}"#)
        .await;
    t.feed("create -f -", &kite("d", "{color: red}")).await;
    t.run("delete kite d -n tour").await;
    t.stop(watching, 7).await;
    let watching = t.watch("get kite a -n tour -w -o name").await;
    t.run(r#"patch kite a -n tour --type=merge -p {"spec":{"color":"red"}}"#)
        .await;
    t.stop(watching, 2).await;
    let watching = t.watch("get kites -n tour -w --output-watch-events").await;
    t.run(r#"patch kite a -n tour --type=merge -p {"spec":{"color":"green"}}"#)
        .await;
    t.stop(watching, 5).await;
}

async fn built_in(t: &mut Runner) {
    t.run("get configmaps -n tour").await;
    t.run("describe configmap settings -n tour").await;
    t.feed("apply -f -", DEPLOYMENT).await;
    t.feed("apply -f -", &DEPLOYMENT.replace("web:1", "web:2"))
        .await;
    t.run("get deployment web -n tour -o jsonpath={.spec.template.spec.containers[*].image}")
        .await;
    t.run("set image deployment/web -n tour web=web:3").await;
    t.run("get deployment web -n tour -o jsonpath={.spec.template.spec.containers[*].image}")
        .await;
    t.run("label deployment web -n tour tier=front").await;
    t.run("delete deployment web -n tour").await;
    t.feed("create -f -", "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: tour}\nstringData: {password: hunter2}\n").await;
    t.run("get secret s -n tour").await;
    t.run("get secret s -n tour -o jsonpath={.data.password}")
        .await;
    t.run("describe secret s -n tour").await;
    t.feed("create -f -", "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: l, namespace: tour}\nspec: {holderIdentity: me, leaseDurationSeconds: 15}\n").await;
    t.run("get leases -n tour").await;
    t.feed("create -f -", "apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: tour}\nspec: {clusterIP: None, ports: [{name: http, port: 80}], selector: {app: web}}\n").await;
    t.run("get service s -n tour").await;
    t.run("get service s -n tour -o wide").await;
    t.feed("create -f -", "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r, namespace: tour}\nrules: [{apiGroups: [''], resources: [pods], verbs: [get]}]\n").await;
    t.run("get roles -n tour").await;
    t.run("describe role r -n tour").await;
    t.run("get events -n tour").await;
    t.feed("create -f -", "apiVersion: v1\nkind: Event\nmetadata: {name: e, namespace: tour}\ninvolvedObject: {apiVersion: tour.example.com/v1, kind: Kite, name: a, namespace: tour}\nreason: Flown\nmessage: it flew\ntype: Normal\ncount: 1\n").await;
    t.run("get events -n tour -o custom-columns=REASON:.reason,OBJECT:.involvedObject.name,MESSAGE:.message").await;
}

/// From 1.32 on, kubectl sends objects made from flags in protobuf.
async fn from_flags(t: &mut Runner) {
    t.run("create namespace flags").await;
    t.run("create namespace flags").await;
    t.run("get namespace flags").await;
    t.run("create configmap literal -n flags --from-literal=a=1 --from-literal=b=2")
        .await;
    t.run("create configmap literal -n flags --from-literal=a=1")
        .await;
    t.run("create configmap Not_A_Name -n flags").await;
    t.run("create configmap lost -n nowhere").await;
    t.run("create configmap dry -n flags --from-literal=a=1 --dry-run=server -o yaml")
        .await;
    t.run("get configmap literal -n flags -o yaml").await;
    t.run("create secret generic password -n flags --from-literal=password=hunter2")
        .await;
    t.run("get secret password -n flags -o yaml").await;
    t.run("create secret docker-registry pull -n flags --docker-server=example.com --docker-username=me --docker-password=hunter2").await;
    t.run("get secrets -n flags").await;
    t.run("create deployment front -n flags --image=web:1 --replicas=0 --port=80")
        .await;
    t.run("get deployment front -n flags -o jsonpath={.spec}")
        .await;
    t.run("create deployment dry -n flags --image=web:1 --dry-run=server -o yaml")
        .await;
    t.run("expose deployment front -n flags --port=80 --name=exposed")
        .await;
    t.run("create service clusterip inner -n flags --tcp=80:8080 --tcp=443:8443")
        .await;
    t.run("create service clusterip headless -n flags --clusterip=None --tcp=80")
        .await;
    t.run("create service nodeport outer -n flags --tcp=80:8080 --node-port=30080")
        .await;
    t.run("create service nodeport again -n flags --tcp=80:8080 --node-port=30080")
        .await;
    t.run("create service nodeport wrong -n flags --tcp=80:8080 --node-port=80")
        .await;
    t.run("create service loadbalancer balanced -n flags --tcp=80:8080")
        .await;
    t.run("create service externalname away -n flags --external-name=example.com")
        .await;
    for service in ["exposed", "inner", "headless", "outer", "away"] {
        t.run(&format!("get service {service} -n flags -o jsonpath={{.spec.type}}:{{.spec.ports}}:{{.spec.selector}}:{{.spec.externalName}}"))
            .await;
    }
    // Its node port is any free one.
    t.run("get service balanced -n flags -o jsonpath={.spec.type}:{.spec.selector}")
        .await;
    t.run("create ingress site -n flags --class=nginx --rule=site.example.com/path*=inner:80,tls=pull --rule=/exact=inner:http")
        .await;
    t.run("get ingress site -n flags").await;
    t.run("get ingress site -n flags -o jsonpath={.spec}").await;
    t.run("create serviceaccount robot -n flags").await;
    t.run("create token robot -n flags -o jsonpath={.kind}")
        .await;
    t.run("create token robot -n flags --duration=5s").await;
    t.run("create token nothing -n flags").await;
    t.run("create role reader -n flags --verb=get,list --resource=pods,deployments.apps --resource-name=one").await;
    t.run("describe role reader -n flags").await;
    t.run("create rolebinding readers -n flags --role=reader --user=jane --group=people --serviceaccount=flags:robot").await;
    t.run("get rolebinding readers -n flags -o wide").await;
    t.run("get rolebinding readers -n flags -o yaml").await;
    t.run("create clusterrole flags-reader --verb=get --non-resource-url=/metrics,/logs/*")
        .await;
    t.run("get clusterrole flags-reader -o jsonpath={.rules}")
        .await;
    t.run("create clusterrolebinding flags-readers --clusterrole=flags-reader --group=people")
        .await;
    t.run("get clusterrolebinding flags-readers -o jsonpath={.roleRef}:{.subjects}")
        .await;
    t.run("create job once -n flags --image=web:1 --dry-run=server -o jsonpath={.spec.template.spec} -- date")
        .await;
    t.run("auth can-i create pods -n flags").await;
    t.run("auth can-i get deployments.apps/front --subresource=scale -n flags")
        .await;
    t.run("auth can-i get /healthz").await;
    t.run("auth whoami -o jsonpath={.kind}").await;
    t.run("delete clusterrolebinding flags-readers").await;
    t.run("delete clusterrole flags-reader").await;
    t.run("delete namespace flags").await;
}

async fn learn(t: &mut Runner) {
    t.run("explain kite").await;
    t.run("explain kite.spec").await;
    t.run("explain kite.spec.color").await;
    t.run("explain kite.spec --recursive").await;
    t.run("explain kite.nothing").await;
    t.run("explain configmap.data").await;
    t.run("api-resources --api-group=coordination.k8s.io").await;
    t.run("api-resources --api-group=apiextensions.k8s.io")
        .await;
}

async fn delete(t: &mut Runner) {
    t.run("delete kite nothing -n tour").await;
    t.run("delete kite nothing -n tour --ignore-not-found")
        .await;
    t.run(r#"patch kite a -n tour --type=merge -p {"metadata":{"finalizers":["tour.example.com/hold"]}}"#).await;
    t.run("delete kite a -n tour --wait=false").await;
    t.run("delete kite a -n tour --timeout=1s").await;
    t.run("get kite a -n tour -o jsonpath={.metadata.finalizers}")
        .await;
    t.run(r#"patch kite a -n tour --type=merge -p {"metadata":{"finalizers":null}}"#)
        .await;
    t.run("wait --for=delete kite/a -n tour --timeout=10s")
        .await;
    t.run("get kites -n tour").await;
    t.run("delete kites --all -n tour").await;
    t.run("delete configmap -l nothing=here -n tour").await;
    t.run("delete namespace tour").await;
    t.run("get namespace tour").await;
    t.run("delete crd kites.tour.example.com").await;
    t.until("get --raw /apis/tour.example.com/v1/kites", "NotFound")
        .await;
    t.run("get kites -A").await;
}
