//! Clients of other languages on the built-in server and on a real one: typed objects of client-go, which accepts nothing
//! but protobuf, an object of each kind with client-go at its defaults, the official Python client with its defaults, and
//! Helm. What the last three print on each server is in `target/tmp/walk-*.txt`.

#![allow(clippy::print_stdout, reason = "a test prints what it compared")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use reeve_apiserver::control_plane::Builder;
use reeve_apiserver::{ApiServer, assets};
use tokio::process::Command;

/// The objects of the tests of reeve-apiserver: one or two of each built-in kind.
const MANIFESTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../apiserver/tests/it/kinds/manifests.json"
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_go_walks_through_every_verb_in_protobuf_on_the_built_in_server() {
    let Some(go) = contender() else { return };
    assert!(
        on_the_built_in_server(&go, &["-walk", "-kubeconfig"], &[])
            .await
            .ends_with("walked\n")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_go_walks_through_every_verb_in_protobuf_on_a_real_server() {
    let Some(builder) = assets::control_plane() else {
        return;
    };
    let Some(go) = contender() else { return };
    let control_plane = builder.start().await.unwrap();
    let printed = walk(
        &go,
        &["-walk", "-kubeconfig"],
        &control_plane.kubeconfig(),
        &[],
    )
    .await;
    assert!(printed.ends_with("walked\n"), "{printed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_go_sees_of_each_kind_on_the_built_in_server_what_it_sees_on_a_real_server() {
    let Some(builder) = assets::control_plane() else {
        return;
    };
    let Some(go) = contender() else { return };
    let before = ["-walk-kinds", MANIFESTS, "-kubeconfig"];
    compare(builder, "client-go", &go, &before, &[], 600).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_sees_on_the_built_in_server_what_it_sees_on_a_real_server() {
    let Some(builder) = assets::control_plane() else {
        return;
    };
    let Some(python) = python() else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/walk.py");
    compare(builder, "python", &python, &[script], &[MANIFESTS], 500).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn helm_prints_and_stores_on_the_built_in_server_what_it_does_on_a_real_server() {
    let Some(builder) = assets::control_plane() else {
        return;
    };
    let Some(python) = python() else { return };
    let Some(helm) = assets::program("REEVE_HELM", "tools/clients/build.sh sets it") else {
        return;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/helm/walk.py");
    let helm = helm.to_string_lossy();
    compare(builder, "helm", &python, &[script], &[&helm], 500).await;
}

/// Runs a program that prints what it sees on both servers, and compares the lines, of which there are at least `lines`.
async fn compare(
    builder: Builder,
    name: &str,
    program: &Path,
    before: &[&str],
    after: &[&str],
    lines: usize,
) {
    let control_plane = builder.start().await.unwrap();
    let real = walk(program, before, &control_plane.kubeconfig(), after).await;
    drop(control_plane);
    let ours = on_the_built_in_server(program, before, after).await;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(folder.join(format!("walk-{name}-real.txt")), &real).unwrap();
    std::fs::write(folder.join(format!("walk-{name}-built-in.txt")), &ours).unwrap();
    assert!(
        real.ends_with("walked\n") && real.lines().count() > lines,
        "{real}"
    );
    let only = |lines: &str, others: &str| {
        let others: BTreeSet<&str> = others.lines().collect();
        let only = lines.lines().filter(|line| !others.contains(line));
        only.map(str::to_owned).collect::<Vec<_>>()
    };
    let (missing, more) = (only(&real, &ours), only(&ours, &real));
    assert!(
        real == ours,
        "only the real server: {missing:#?}\nonly ours: {more:#?}"
    );
    println!("{name}: {} lines on both servers", real.lines().count());
}

fn python() -> Option<PathBuf> {
    assets::program("REEVE_PYTHON", "tests/interop/python/build.sh sets it")
}

fn contender() -> Option<PathBuf> {
    assets::program("REEVE_CONTENDER", "tests/interop/build.sh sets it")
}

async fn on_the_built_in_server(program: &Path, before: &[&str], after: &[&str]) -> String {
    let server = ApiServer::builder().start().await.unwrap();
    let serving = server.serve(([127, 0, 0, 1], 0).into()).await.unwrap();
    let printed = walk(program, before, &serving.kubeconfig(), after).await;
    serving.stop().await;
    server.shutdown().await.unwrap();
    printed
}

/// What the program prints with a kubeconfig between its arguments.
async fn walk(program: &Path, before: &[&str], kubeconfig: &str, after: &[&str]) -> String {
    static WALKS: AtomicU32 = AtomicU32::new(0);
    let walk = WALKS.fetch_add(1, Ordering::Relaxed);
    let file = format!("reeve-walk-{}-{walk}", std::process::id());
    let file = std::env::temp_dir().join(file);
    std::fs::write(&file, kubeconfig).unwrap();
    let mut command = Command::new(program);
    let output = command
        .args(before)
        .arg(&file)
        .args(after)
        .output()
        .await
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    printed
}
