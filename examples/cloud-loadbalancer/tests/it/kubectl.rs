//! The programs as their users run them: `e2e.sh`, with kubectl, curl, HAProxy, slbd, nodesim and ccm. One test uses the built-in
//! server, the other one a real server with its kube-controller-manager, if `KUBEBUILDER_ASSETS` names the binaries. Both print
//! what `e2e.txt` has.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use reeve_apiserver::{ApiServer, assets};
use tokio::process::Command;
use tokio::time::timeout;

/// The limit of a run.
const PATIENCE: Duration = Duration::from_secs(150);
/// What a run prints, with placeholders for what differs from run to run.
const EXPECTED: &str = include_str!("../../e2e.txt");
const HAPROXY: &str = "/usr/sbin/haproxy";

/// A folder with the kubeconfig of a run, removed at its end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_from_its_creation_to_its_end_on_the_built_in_server() {
    let Some(kubectl) = programs() else { return };
    let server = ApiServer::builder().rbac().start().await.unwrap();
    let serving = server.serve_tls(([127, 0, 0, 1], 0).into()).await.unwrap();
    run(&kubectl, &serving.kubeconfig(), 0).await;
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_from_its_creation_to_its_end_on_a_real_server() {
    let Some(builder) = assets::control_plane() else {
        return;
    };
    let Some(kubectl) = programs() else { return };
    let control_plane = builder.controller_manager(true).start();
    let control_plane = control_plane.await.unwrap();
    run(&kubectl, &control_plane.kubeconfig(), 1).await;
}

/// kubectl, where all other programs are, too. `None` skips the test.
fn programs() -> Option<PathBuf> {
    let kubectl = assets::kubectl()?;
    for (program, remedy) in [
        (Path::new(HAPROXY), "apt-get install haproxy"),
        (Path::new("/usr/bin/curl"), "apt-get install curl"),
        (&folder().join("slbd"), "cargo build -p slbd --bins"),
        (&folder().join("slbctl"), "cargo build -p slbd --bins"),
        (&folder().join("nodesim"), "cargo build -p slbd --bins"),
    ] {
        assets::file(program, remedy)?;
    }
    Some(kubectl)
}

/// The folder of the programs of the workspace.
fn folder() -> PathBuf {
    let ccm = Path::new(env!("CARGO_BIN_EXE_ccm"));
    ccm.parent().unwrap().to_owned()
}

/// Runs the script on a cluster; `which` is another number for each test of this process.
async fn run(kubectl: &Path, kubeconfig: &str, which: u32) {
    let process = std::process::id();
    let own = std::env::temp_dir().join(format!("cloud-loadbalancer-e2e-{process}-{which}"));
    std::fs::create_dir_all(&own).unwrap();
    let own = Folder(own);
    let file = own.0.join("kubeconfig");
    std::fs::write(&file, kubeconfig).unwrap();
    // Tests of other processes on this machine have other addresses, most likely.
    let number = (process.wrapping_mul(2) + which) % 256;
    let mut script = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e.sh"));
    script
        .env("KUBECONFIG", &file)
        .env("KUBECTL", kubectl)
        .env("HAPROXY", HAPROXY)
        .env("PROGRAMS", folder())
        .env("NUMBER", number.to_string())
        .env("CONTROLLERS", if which == 1 { "1" } else { "" })
        .env("STABLE", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(PATIENCE, script.output()).await.unwrap().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{}\n{stdout}\n{stderr}",
        output.status
    );
    assert_eq!(stdout, EXPECTED, "{stderr}");
}
