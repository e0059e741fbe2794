//! The scenario of the original, typed with kubectl and kubeconfigs.

use std::path::Path;

use serde_json::{Value, json};

use super::world::{CONFIG, World, text};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scenario_on_the_built_in_server() {
    if let Some(world) = World::built_in("scenario-built-in").await {
        scenario(world).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scenario_on_a_real_server() {
    if let Some(world) = World::real_with_signer("scenario-real").await {
        scenario(world).await;
    }
}

async fn scenario(world: World) {
    let path = |name: &str| world.file(name).display().to_string();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("demo.yaml")
        .display()
        .to_string();
    world.kubectl(&["apply", "-f", &demo]).await;
    let tls = format!("--tls={}", path("pki"));
    let guard = world.start("first", &[&tls]);
    guard.until("caches synced").await;
    let installed = world.install(&guard, Some(&world.file("pki/ca.crt"))).await;
    assert!(installed.contains(
        "validatingwebhookconfiguration.admissionregistration.k8s.io/hbox-guard created"
    ));
    world.until_called().await;

    // A9: the names in the kubeconfig agree, and kubectl accepts it.
    let out = path("hbox-pre.yaml");
    let (flag, authority) = (
        format!("--out={out}"),
        format!("--authority={}", path("pki")),
    );
    let credentials: &[&str] = if world.is_real() {
        &["--namespace=hbox", &authority, "--group=hbox:pre-release"]
    } else {
        // The built-in server keeps the key of its authority, so the command gets a token.
        &["--namespace=hbox-pre", "--service-account=ci"]
    };
    let config = format!("--config={}", path("guard.yaml"));
    let arguments = ["kubeconfig", "--user=hbox-pre", &config, &flag];
    let arguments = [&arguments[..], credentials].concat();
    let printed = world.guard_command(&arguments).await;
    assert_eq!(
        printed,
        format!("Congratulations! The kubeconfig file is generated at {out}\n")
    );
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(&out).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let pre = async |arguments: &[&str]| {
        let all = [&["-n", "hbox"], arguments].concat();
        let output = world.try_kubectl("hbox-pre.yaml", &all).await;
        (output.status.success(), text(&output))
    };
    let denied = |word: &str, text: &str| {
        format!(
            "Error from server: admission webhook \"{word}.validate.hbox\" denied the request: Pre-release environment not allowed to {text}\n"
        )
    };
    let answer = pre(&["delete", "pod", "web-0"]).await;
    assert_eq!(answer, (false, denied("pod", "DELETE production pod")));
    // From here on it is a client certificate on both servers.
    if let Some(kubeconfig) = world.kubeconfig_of("hbox-pre", "hbox:pre-release") {
        std::fs::write(&out, kubeconfig).unwrap();
    }
    let answer = pre(&["label", "pod", "web-0", "environment-"]).await;
    assert_eq!(answer, (false, denied("pod", "UPDATE production pod")));
    let (_, answer) = pre(&["delete", "pod", "--all", "--dry-run=server"]).await;
    assert!(
        answer.contains(&denied("pod", "DELETE production pod")),
        "{answer}"
    );
    assert!(
        answer.contains("pod \"try-0\" deleted") && answer.contains("dry run"),
        "{answer}"
    );
    let answer = pre(&["delete", "namespace", "hbox"]).await;
    let contents = "DELETE namespace hbox: it contains 1 production object (pods/web-0)";
    // kubectl warns that the namespace of its context does not matter.
    assert!(
        !answer.0 && answer.1.ends_with(&denied("namespace", contents)),
        "{}",
        answer.1
    );

    // A month later.
    guard.kill().await;
    let guard = world.start("later", &[&tls, "--later=768"]);
    guard.until("caches synced").await;
    world.install(&guard, Some(&world.file("pki/ca.crt"))).await;
    world.until_called().await;
    world.until_recorded(&guard, true).await;
    let answer = pre(&["delete", "pod", "try-0"]).await;
    assert_eq!(answer, (false, denied("pod", "DELETE too old pod")));
    // The administrator is a production caller.
    let deleted = world
        .kubectl(&["-n", "hbox", "delete", "pod", "web-0"])
        .await;
    assert!(deleted.starts_with("pod \"web-0\" deleted"), "{deleted}");

    let audit = std::fs::read_to_string(&guard.audit).unwrap();
    let mut lines: Vec<Value> = audit
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["target"].as_str().unwrap().starts_with("pods/hbox/"))
        .map(|line| json!(["op", "target", "decision", "rule"].map(|field| line[field].clone())))
        .collect();
    // A real server calls twice for the deletion of a Pod: when its grace period begins, and for the deletion.
    lines.dedup();
    let expected = [
        json!(["DELETE", "pods/hbox/try-0", "deny", "age"]),
        json!(["DELETE", "pods/hbox/web-0", "allow", null]),
    ];
    assert_eq!(lines, expected);

    let log = guard.audit.display().to_string();
    let lines = ["audit", "tail", "--no-follow", "--user=hbox-pre", &log];
    let shown = world.guard_command(&lines).await;
    let denied = "deny  hbox-pre DELETE pods/hbox/try-0: Pre-release environment not allowed to DELETE too old pod (rule age)\n";
    assert!(shown.ends_with(denied), "{shown}");
    let of_allowed = [&lines[..], &["--verdict=allow"]].concat();
    assert_eq!(world.guard_command(&of_allowed).await, "");

    let url = format!("--url=https://{}", guard.address);
    let doctor = world.try_guard_command(&["doctor", &config, &url]).await;
    // A12, B14, B15: the pre-release callers of this test have all rights.
    assert!(!doctor.status.success());
    let findings = text(&doctor);
    for expected in [
        "good: configuration hbox-guard\n",
        "good: configuration hbox-guard-records\n",
        "good: webhooks hold a write of a Pod for 3 s at most\n",
        "PROBLEM: user hbox-pre passes by the webhooks: may delete validatingwebhookconfigurations",
        "deletecollection validatingwebhookconfigurations",
        "impersonate users",
        "get nodes/proxy",
        "update configmaps in preprod-guard",
        // A binding names the account, and none of its groups.
        "PROBLEM: service account hbox-pre/ci passes by the webhooks: may delete validatingwebhookconfigurations",
        "good: rights of service account hbox-pre/default",
        "good: Kubernetes 1.",
    ] {
        assert!(findings.contains(expected), "{expected}: {findings}");
    }
    let elsewhere = world.try_guard_command(&["doctor", &config]).await;
    assert!(text(&elsewhere).contains("pod.validate.hbox calls {\"url\""));
    let misspelt = [
        "kubeconfig",
        "--user=hbox-pr",
        &config,
        &flag,
        "--namespace=hbox",
    ];
    let refused = world.try_guard_command(&misspelt).await;
    assert!(!refused.status.success());
    assert!(text(&refused).contains("hbox-pr would be a caller of production"));
    if world.is_real() {
        signed(&world, &config).await;
    }
    guard.kill().await;

    // With `mode: warn` the same deletion is done.
    std::fs::write(world.file("guard.yaml"), format!("{CONFIG}mode: warn\n")).unwrap();
    let guard = world.start("warning", &[&tls, "--later=768"]);
    guard.until("caches synced").await;
    world.install(&guard, Some(&world.file("pki/ca.crt"))).await;
    world.until_recorded(&guard, true).await;
    let warned = pre(&["delete", "pod", "try-0"]).await;
    let warning = "Warning: Pre-release environment not allowed to DELETE too old pod";
    assert!(warned.0 && warned.1.contains(warning), "{}", warned.1);
    let of_config = world.guard_command(&["uninstall", &config]).await;
    let both = "deleted hbox-guard\ndeleted hbox-guard-records\n";
    assert_eq!(of_config, both);
    world.install(&guard, Some(&world.file("pki/ca.crt"))).await;
    // A label that was lost does not hide a configuration in an emergency.
    let configuration = "validatingwebhookconfiguration/hbox-guard";
    world
        .kubectl(&["label", configuration, "app.kubernetes.io/name-"])
        .await;
    let deleted = world.guard_command(&["uninstall", "--emergency"]).await;
    assert_eq!(deleted, both);
    for arguments in [["uninstall", "--emergency"], ["uninstall", &config]] {
        let nothing = world.try_guard_command(&arguments).await;
        assert!(!nothing.status.success());
        assert!(text(&nothing).contains("deleted nothing"));
    }
    guard.kill().await;
    world.end().await;
}

/// A certificate that the signer of the cluster issues.
async fn signed(world: &World, config: &str) {
    let out = format!("--out={}", world.file("signed.yaml").display());
    let arguments = [
        "kubeconfig",
        config,
        "--user=hbox-pre",
        "--group=hbox:pre-release",
        "--namespace=hbox",
        &out,
    ];
    world.guard_command(&arguments).await;
    let requests = world
        .kubectl(&["get", "certificatesigningrequests", "--output=name"])
        .await;
    assert_eq!(requests, "", "the request is deleted");
    let user = world.try_kubectl("signed.yaml", &["auth", "whoami"]).await;
    let user = text(&user);
    assert!(
        user.contains("hbox-pre") && user.contains("hbox:pre-release"),
        "{user}"
    );
}
