//! One tour with kubectl on the built-in server and on a real kube-apiserver, with the same output, and one script of the
//! commands that are not in it, on a real server without controllers.
//!
//! For each version of kubectl, `recorded-*.txt` and `commands-*.txt` have its output on the real server, with placeholders
//! for ages, uids and versions. Both servers are compared with it.
//!
//! The environment names kubectl 1.29 to 1.37 (`KUBECTL_1_29`, …), otherwise they come from the usual
//! folders; tools/clients/build.sh builds the last four. A missing version is skipped or fails, see `reeve_apiserver::assets`. `REEVE_RECORD=1` with
//! `KUBEBUILDER_ASSETS` writes the record again.

mod commands;
mod server_side;
mod steps;
mod tour;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use reeve_apiserver::{ApiServer, assets};

/// The known differences of the built-in server: a part of the step's line, and the reason. The list is strict.
const KNOWN_DIFFERENCES: &[(&str, &str)] = &[
    (
        "explain deployment.spec.strategy",
        "the descriptions, which are those of k8s-openapi, have no list of the values of an enum",
    ),
    (
        "auth can-i --list",
        "the server of this test allows everything without RBAC, so that there are no roles to list",
    ),
];

/// Makes the tests of each version of kubectl.
macro_rules! of_each_version {
    ($script:expr; $built_in:ident, $real:ident; $($name:ident: $version:literal),+ $(,)?) => {
        mod $built_in {
            use super::Script;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::on_the_built_in_server($script, $version).await; })+
        }
        mod $real {
            use super::Script;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::on_a_real_server($script, $version).await; })+
        }
    };
}

of_each_version! {
    Script::Tour; prints_the_same_on_the_built_in_server, prints_what_is_recorded_on_a_real_server;
    kubectl_1_29: "1.29",
    kubectl_1_30: "1.30",
    kubectl_1_31: "1.31",
    kubectl_1_32: "1.32",
    kubectl_1_33: "1.33",
    kubectl_1_34: "1.34",
    kubectl_1_35: "1.35",
    kubectl_1_36: "1.36",
    kubectl_1_37: "1.37",
}

of_each_version! {
    Script::Commands; prints_the_same_of_other_commands, prints_what_is_recorded_of_other_commands_on_a_real_server;
    kubectl_1_29: "1.29",
    kubectl_1_30: "1.30",
    kubectl_1_31: "1.31",
    kubectl_1_32: "1.32",
    kubectl_1_33: "1.33",
    kubectl_1_34: "1.34",
    kubectl_1_35: "1.35",
    kubectl_1_36: "1.36",
    kubectl_1_37: "1.37",
}

/// What kubectl runs.
#[derive(Clone, Copy)]
enum Script {
    Tour,
    /// The commands that are not in the tour.
    Commands,
}

// === impl Script ===

impl Script {
    async fn walk(self, runner: &mut steps::Runner) {
        match self {
            Self::Tour => tour::walk(runner).await,
            Self::Commands => commands::walk(runner).await,
        }
    }

    /// The known differences of the built-in server.
    fn differences(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Tour => KNOWN_DIFFERENCES,
            Self::Commands => &[],
        }
    }

    fn record(self, version: &str) -> PathBuf {
        let name = match self {
            Self::Tour => "recorded",
            Self::Commands => "commands",
        };
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join(format!("tests/it/kubectl/{name}-{version}.txt"))
    }
}

async fn on_the_built_in_server(script: Script, version: &str) {
    let Some(kubectl) = assets::kubectl_of_version(version) else {
        return;
    };
    let server = ApiServer::builder()
        .start()
        .await
        .expect("the built-in server starts");
    let serving = server
        .serve(([127, 0, 0, 1], 0).into())
        .await
        .expect("it listens");
    let printed = walk(script, &kubectl, &serving.kubeconfig()).await;
    serving.stop().await;
    server.shutdown().await.expect("it ends");
    compare(
        script,
        "the built-in server",
        version,
        &printed,
        script.differences(),
    );
}

async fn on_a_real_server(script: Script, version: &str) {
    let Some(builder) = assets::control_plane() else {
        return;
    };
    let Some(kubectl) = assets::kubectl_of_version(version) else {
        return;
    };
    let control_plane = builder
        .controller_manager(matches!(script, Script::Tour))
        .controller_manager_argument("--controllers=*,-root-ca-certificate-publisher-controller")
        .start()
        .await
        .expect("the control plane starts");
    let printed = walk(script, &kubectl, &control_plane.kubeconfig()).await;
    if std::env::var_os("REEVE_RECORD").is_some() {
        std::fs::write(script.record(version), printed.join("\n") + "\n")
            .expect("the record is written");
    } else {
        compare(script, "the real kube-apiserver", version, &printed, &[]);
    }
}

async fn walk(script: Script, kubectl: &std::path::Path, kubeconfig: &str) -> Vec<String> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory =
        std::env::temp_dir().join(format!("reeve-kubectl-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::write(directory.join("kubeconfig"), kubeconfig).expect("a kubeconfig");
    let mut runner = steps::Runner::new(kubectl, &directory);
    script.walk(&mut runner).await;
    std::fs::remove_dir_all(&directory).expect("the directory is removed");
    runner.printed()
}

/// Compares step by step (a step begins with `$`).
fn compare(
    script: Script,
    server: &str,
    version: &str,
    printed: &[String],
    known: &[(&str, &str)],
) {
    let recorded = std::fs::read_to_string(script.record(version))
        .expect("the tour is recorded: run with REEVE_RECORD=1");
    let recorded: Vec<&str> = recorded.lines().collect();
    let printed: Vec<&str> = printed.iter().flat_map(|text| text.lines()).collect();
    let [recorded, printed] = [recorded, printed].map(|lines| {
        by_step(&lines)
            .into_iter()
            .map(in_order)
            .collect::<Vec<_>>()
    });
    let mut failures = Vec::new();
    for at in 0..recorded.len().max(printed.len()) {
        let nothing = Vec::new();
        let (was, is) = (
            recorded.get(at).unwrap_or(&nothing),
            printed.get(at).unwrap_or(&nothing),
        );
        let title = was.first().or(is.first()).copied().unwrap_or_default();
        let reason = known
            .iter()
            .find(|(part, _)| title.contains(part))
            .map(|(_, reason)| *reason);
        match (was == is, reason) {
            (true, None) | (false, Some(_)) => {}
            (true, Some(reason)) => failures.push(format!(
                "{title}\nis as recorded, but listed as different: {reason}"
            )),
            (false, None) => failures.push(format!(
                "{title}\n--- recorded\n{}\n--- printed\n{}",
                was.join("\n"),
                is.join("\n")
            )),
        }
    }
    assert!(
        failures.is_empty(),
        "kubectl {version} on {server}: {} of {} steps differ\n\n{}",
        failures.len(),
        recorded.len(),
        failures.join("\n\n")
    );
    println!(
        "kubectl {version} on {server}: {} steps as recorded",
        recorded.len()
    );
}

/// `describe` prints the data of a ConfigMap or a Secret in the order of a Go map, which changes each time.
fn in_order(mut step: Vec<&str>) -> Vec<&str> {
    let is_unordered = ["describe configmap", "describe secret"]
        .iter()
        .any(|command| step[0].contains(command));
    if is_unordered {
        step[1..].sort_unstable();
    }
    step
}

fn by_step<'a>(lines: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut steps: Vec<Vec<&str>> = Vec::new();
    for line in lines {
        if line.starts_with("$ ") || steps.is_empty() {
            steps.push(Vec::new());
        }
        if let Some(step) = steps.last_mut() {
            step.push(line);
        }
    }
    steps
}
