//! The manifests and their overlays as `kubectl kustomize` renders them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cluster::{documents, manifest_directory, manifests, yaml};
use crate::kubectl::{self, Kubectl};

/// The tag is the version, so that a Pod which starts again runs what ran before.
const IMAGE: &str = concat!("ipblock-operator:", env!("CARGO_PKG_VERSION"));

/// Objects by kind, namespace and name.
type Objects = BTreeMap<[String; 3], Value>;

fn by_name(objects: Vec<Value>) -> Objects {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let count = objects.len();
    let named: Objects = objects
        .into_iter()
        .map(|object| {
            let metadata = &object["metadata"];
            let name = [&object["kind"], &metadata["namespace"], &metadata["name"]].map(text);
            (name, object)
        })
        .collect();
    assert_eq!(named.len(), count, "no object is there twice");
    named
}

/// Renders a directory.
async fn rendered(kubectl: &Kubectl, directory: &Path) -> Objects {
    let directory = directory.display().to_string();
    let text = kubectl.ok(&["kustomize", &directory]).await;
    by_name(yaml(&text, &directory))
}

fn of_kind<'a>(objects: &'a Objects, kind: &str) -> &'a Value {
    let found: Vec<&Value> = objects
        .iter()
        .filter(|([of, ..], _)| of == kind)
        .map(|(_, object)| object)
        .collect();
    assert_eq!(found.len(), 1, "one {kind}");
    found[0]
}

fn template(workload: &Value) -> &Value {
    &workload["spec"]["template"]
}

#[tokio::test]
async fn the_manifests_and_their_overlays_yield_what_is_documented() {
    let Some(kubectl) = kubectl::of(PathBuf::from("no-cluster-is-asked")) else {
        return;
    };
    let directory = manifest_directory();
    let all = rendered(&kubectl, &directory).await;
    let base = rendered(&kubectl, &directory.join("base")).await;
    let takeover = rendered(&kubectl, &directory.join("overlays/takeover")).await;
    let uninstall = rendered(&kubectl, &directory.join("overlays/uninstall")).await;

    let names: Vec<[&str; 3]> = all
        .keys()
        .map(|[kind, namespace, name]| [kind.as_str(), namespace, name])
        .collect();
    assert_eq!(
        names,
        [
            ["ClusterRole", "", "ipblock-operator"],
            ["ClusterRole", "", "ipblock-operator-edit"],
            ["ClusterRole", "", "ipblock-operator-view"],
            ["ClusterRoleBinding", "", "ipblock-operator"],
            ["ConfigMap", "default", "ipblock-operator-config"],
            ["CustomResourceDefinition", "", "blocklists.ops.yiiong.top"],
            ["CustomResourceDefinition", "", "ipblocks.ops.yiiong.top"],
            ["Deployment", "default", "ipblock-operator"],
            ["PodDisruptionBudget", "default", "ipblock-operator"],
            ["Role", "default", "ipblock-operator"],
            ["RoleBinding", "default", "ipblock-operator"],
            ["Service", "default", "ipblock-operator-metrics"],
            ["Service", "default", "ipblock-trigger"],
            ["ServiceAccount", "default", "ipblock-operator"],
        ]
    );
    assert_eq!(all, base, "manifests/ is base/ under another path");
    // The other cases of this suite read the files without kustomize.
    assert_eq!(all, by_name(manifests()), "they read the same");

    let deployment = of_kind(&all, "Deployment");
    for (workload, account) in [
        (deployment, of_kind(&all, "ServiceAccount")),
        (of_kind(&uninstall, "Job"), of_kind(&all, "ServiceAccount")),
    ] {
        let pod = &template(workload)["spec"];
        assert_eq!(pod["serviceAccountName"], account["metadata"]["name"]);
        assert_eq!(
            workload["metadata"]["namespace"],
            account["metadata"]["namespace"]
        );
        let containers = pod["containers"].as_array().expect("containers");
        assert_eq!(containers.len(), 1);
        assert_eq!(containers[0]["image"], IMAGE);
    }
    let guide = include_str!("../../docs/operate.md");
    assert!(
        guide.contains(&format!("-t {IMAGE} .")),
        "the guide builds the image that is deployed"
    );
    let labels = &template(deployment)["metadata"]["labels"];
    let budget = &of_kind(&all, "PodDisruptionBudget")["spec"];
    assert_eq!(budget["selector"], deployment["spec"]["selector"]);
    for (_, service) in all.iter().filter(|([kind, ..], _)| kind == "Service") {
        for (label, value) in service["spec"]["selector"].as_object().expect("a selector") {
            assert_eq!(labels[label], *value, "{service:#}");
        }
    }

    // Taking over: the same without the ConfigMap, which is the original's, and with two arguments more.
    let mut expected = base.clone();
    expected.retain(|[kind, ..], _| kind != "ConfigMap");
    let deployment = expected
        .iter_mut()
        .find(|([kind, ..], _)| kind == "Deployment");
    let (_, deployment) = deployment.expect("a Deployment");
    let args = &mut deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    let args = args.as_array_mut().expect("arguments");
    args.push(json!("--insecure-triggers"));
    args.push(json!("--takeover"));
    assert_eq!(takeover, expected);

    // Leaving: a Job alone, so that deleting it deletes nothing else.
    assert_eq!(uninstall.len(), 1);
    let job = of_kind(&uninstall, "Job");
    assert_eq!(job["metadata"]["name"], "ipblock-operator-uninstall");
    assert!(guide.contains("job/ipblock-operator-uninstall"));
    let args = &template(job)["spec"]["containers"][0]["args"];
    assert_eq!(args[0], "uninstall");
    assert_eq!(args[1], "--bans=lift");
}

/// A component, because a network policy that does not fit the cluster cuts the operator off from its gateway.
#[tokio::test]
async fn the_network_policy_selects_the_operator_and_admits_its_ports() {
    let Some(kubectl) = kubectl::of(PathBuf::from("no-cluster-is-asked")) else {
        return;
    };
    let copy = std::env::temp_dir().join(format!("reeve-e2e-component-{}", std::process::id()));
    copy_directory(&manifest_directory(), &copy);
    let path = copy.join("kustomization.yaml");
    let mut text = std::fs::read_to_string(&path).expect("a file of the copy");
    text.push_str("components:\n  - components/networkpolicy\n");
    std::fs::write(&path, text).expect("it can be written");
    let all = rendered(&kubectl, &copy).await;
    std::fs::remove_dir_all(&copy).expect("the copy can be removed");
    let policy = &of_kind(&all, "NetworkPolicy")["spec"];
    let deployment = of_kind(&all, "Deployment");
    assert_eq!(policy["podSelector"], deployment["spec"]["selector"]);
    let ports = |rules: &Value, key: &str| -> Vec<Value> {
        let rules = rules.as_array().expect("rules").iter();
        let ports = rules.flat_map(|rule| rule["ports"].as_array().expect("ports"));
        ports.map(|port| port[key].clone()).collect()
    };
    let container = &template(deployment)["spec"]["containers"][0];
    let listens = ports(&json!([container]), "containerPort");
    // Set engines listen where docs/engines.md puts them, once they are configured.
    let of_engines = [json!(8093), json!(8094)];
    let mut admitted = ports(&policy["ingress"], "port");
    assert!(of_engines.iter().all(|port| admitted.contains(port)));
    admitted.retain(|port| !of_engines.contains(port));
    assert_eq!(admitted, listens);
    let gateway = &of_kind(&all, "ConfigMap")["data"]["gatewayHost"];
    let (_, gateway) = gateway
        .as_str()
        .and_then(|host| host.rsplit_once(':'))
        .expect("a port");
    let gateway: u16 = gateway.parse().expect("a number");
    let egress = ports(&policy["egress"], "port");
    for port in [53, 443, 6443, gateway] {
        assert!(egress.contains(&json!(port)), "{port}");
    }
}

#[test]
fn the_image_holds_what_its_build_makes() {
    let dockerfile = include_str!("../../manifests/Dockerfile");
    let after = |word: &str| {
        let rest = dockerfile.split_once(word).map(|(_, rest)| rest);
        let found = rest.and_then(|rest| rest.split_whitespace().next());
        found.unwrap_or_else(|| panic!("{word} in the Dockerfile"))
    };
    let (profile, target, directory) = (
        after("--profile "),
        after("--target "),
        after("--target-dir "),
    );
    assert!(
        include_str!("../../Cargo.toml").contains(&format!("[profile.{profile}]")),
        "the profile {profile} exists"
    );
    assert_eq!(
        after("&& cp "),
        format!("{directory}/{target}/{profile}/ipblock-operator")
    );
    let container = crate::cluster::container();
    assert!(
        container["command"].is_null(),
        "the image's entry point runs"
    );
    assert!(dockerfile.contains("ENTRYPOINT [\"/ipblock-operator\"]"));
}

/// kustomize silently leaves out a patch with a target that matches nothing.
#[tokio::test]
async fn every_patch_of_an_overlay_is_about_an_object_that_exists() {
    let Some(kubectl) = kubectl::of(PathBuf::from("no-cluster-is-asked")) else {
        return;
    };
    let directory = manifest_directory();
    let base = rendered(&kubectl, &directory.join("base")).await;
    let mut patches = 0;
    for overlay in ["takeover", "uninstall"] {
        let path = directory.join("overlays").join(overlay);
        let kustomization = &documents(&path.join("kustomization.yaml"))[0];
        for patch in kustomization["patches"].as_array().into_iter().flatten() {
            let text = patch["patch"].as_str().expect("an inline patch");
            let inline = yaml(text, overlay).remove(0);
            let (kind, name) = match patch["target"].as_object() {
                Some(target) => (&target["kind"], &target["name"]),
                None => (&inline["kind"], &inline["metadata"]["name"]),
            };
            assert!(
                base.keys()
                    .any(|[of, _, called]| of == kind && called == name),
                "{overlay}: there is no {kind} {name}"
            );
            patches += 1;
        }
    }
    assert_eq!(patches, 2, "those that were looked at");
}

/// docs/operate.md: how to install in another namespace.
#[tokio::test]
async fn another_namespace_is_set_in_three_files_and_everything_follows() {
    let Some(kubectl) = kubectl::of(PathBuf::from("no-cluster-is-asked")) else {
        return;
    };
    let copy = std::env::temp_dir().join(format!("reeve-e2e-manifests-{}", std::process::id()));
    copy_directory(&manifest_directory(), &copy);
    let guide = include_str!("../../docs/operate.md");
    for file in [
        "kustomization.yaml",
        "base/kustomization.yaml",
        "overlays/uninstall/kustomization.yaml",
    ] {
        assert!(guide.contains(&format!("manifests/{file}")), "{file}");
        let path = copy.join(file);
        let text = std::fs::read_to_string(&path).expect("a file of the copy");
        let line = "namespace: default";
        assert_eq!(
            text.matches(line).count(),
            1,
            "{file} has one line to change"
        );
        std::fs::write(&path, text.replace(line, "namespace: bans")).expect("it can be written");
    }
    for overlay in ["", "base", "overlays/takeover", "overlays/uninstall"] {
        for ([kind, namespace, name], object) in rendered(&kubectl, &copy.join(overlay)).await {
            let cluster_wide = kind.starts_with("Cluster") || kind == "CustomResourceDefinition";
            let expected = if cluster_wide { "" } else { "bans" };
            assert_eq!(namespace, expected, "{overlay}: {kind} {name}");
            for subject in object["subjects"].as_array().into_iter().flatten() {
                assert_eq!(subject["namespace"], "bans", "{overlay}: {kind} {name}");
            }
        }
    }
    std::fs::remove_dir_all(&copy).expect("the copy can be removed");
}

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory of the copy");
    for entry in std::fs::read_dir(from).expect("a directory of the manifests") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy_directory(&path, &target);
        } else {
            std::fs::copy(&path, &target).expect("a file of the manifests");
        }
    }
}
