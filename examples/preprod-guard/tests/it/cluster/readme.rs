//! The commands of the README on an empty cluster.

use std::path::Path;

use super::world::{World, text};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_readme_on_the_built_in_server() {
    if let Some(world) = World::built_in_empty("readme-built-in").await {
        readme(world).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_readme_on_a_real_server() {
    if let Some(world) = World::real_empty("readme-real").await {
        readme(world).await;
    }
}

/// The lines of the first block for a shell.
fn lines() -> Vec<&'static str> {
    let readme = include_str!("../../../README.md");
    let (_, block) = readme.split_once("```sh\n").unwrap();
    let (block, _) = block.split_once("\n```").unwrap();
    block.lines().collect()
}

async fn readme(world: World) {
    let example = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::create_dir(world.file("manifests")).unwrap();
    for file in ["demo.yaml", "manifests/guard.yaml", "manifests/rbac.yaml"] {
        std::fs::copy(example.join(file), world.file(file)).unwrap();
    }
    let mut guard = None;
    let mut output = String::new();
    for line in lines() {
        if let Some(expected) = line.strip_prefix("# ") {
            assert_eq!(output.trim_end(), expected);
            continue;
        }
        // There is no kubelet: the guard of this test takes the place of the Deployment.
        if line.starts_with("docker ") {
            continue;
        }
        if line.contains("rollout status") {
            world.give_rights_to_guard().await;
            let started = world.start("guard", &["--certificates-every=1"]);
            started.until("caches synced").await;
            world.install_service(&started).await;
            started.until("another certificate is in use").await;
            world.until_called().await;
            guard = Some(started);
            continue;
        }
        let result = world.shell(line).await;
        output = text(&result);
        let is_denial = line.contains("delete pod web-0");
        // The Service of this test has another port, and no Pod runs: the only problems.
        let is_doctor = line.contains(" doctor ");
        assert!(
            result.status.success() || is_denial || is_doctor,
            "{line}: {output}"
        );
        if is_doctor {
            let problems = output.lines().filter(|line| line.starts_with("PROBLEM"));
            for problem in problems {
                let is_of_test =
                    problem.contains("\"port\":") || problem.contains("has 0 ready replicas");
                assert!(is_of_test, "{problem}");
            }
            for good in [
                "good: rights of service account hbox-pre/ci",
                "good: certificate in preprod-guard-webhook-certificates until",
            ] {
                assert!(output.contains(good), "{output}");
            }
        }
    }
    assert_eq!(output, "deleted hbox-guard\ndeleted hbox-guard-records\n");
    guard.unwrap().kill().await;
    world.end().await;
}
