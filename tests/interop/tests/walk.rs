//! Typed objects of client-go in protobuf, through every verb, on the built-in server and on a real one. The program
//! accepts nothing but protobuf.

use std::path::{Path, PathBuf};

use reeve_apiserver::{ApiServer, assets};
use tokio::process::Command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_go_walks_through_every_verb_in_protobuf_on_the_built_in_server() {
    let Some(go) = program() else { return };
    let server = ApiServer::builder().start().await.unwrap();
    let serving = server.serve(([127, 0, 0, 1], 0).into()).await.unwrap();
    walk(&go, &serving.kubeconfig(), "built-in").await;
    serving.stop().await;
    server.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_go_walks_through_every_verb_in_protobuf_on_a_real_server() {
    let Some(builder) = assets::control_plane() else {
        return;
    };
    let Some(go) = program() else { return };
    let control_plane = builder.start().await.unwrap();
    walk(&go, &control_plane.kubeconfig(), "real").await;
}

fn program() -> Option<PathBuf> {
    assets::program("REEVE_CONTENDER", "tests/interop/build.sh sets it")
}

async fn walk(go: &Path, kubeconfig: &str, server: &str) {
    let file = format!("reeve-walk-{}-{server}", std::process::id());
    let file = std::env::temp_dir().join(file);
    std::fs::write(&file, kubeconfig).unwrap();
    let output = Command::new(go)
        .args(["-walk", "-kubeconfig"])
        .arg(&file)
        .output()
        .await
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    assert!(printed.ends_with("walked\n"), "{printed}");
}
