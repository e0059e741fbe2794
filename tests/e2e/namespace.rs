//! A network namespace for one test: addresses and packet filters that a case sets end with it.

use std::process::Command;

use reeve_apiserver::assets;

use crate::cluster::Kind;
use crate::world::{self, World};

/// Set in the process that runs inside of the namespace.
const INSIDE: &str = "REEVE_IN_NAMESPACE";

/// Runs the calling test again in a network namespace of its own, and there `case` on a server of `kind`.
pub(crate) fn run<C, F>(kind: Kind, case: C)
where
    C: FnOnce(World) -> F,
    F: Future<Output = ()>,
{
    if std::env::var_os(INSIDE).is_some() {
        world::run(kind, case);
        return;
    }
    let reason = "network namespaces are not allowed: root, unshare and ip are needed";
    if assets::decide(is_allowed().then_some(()), reason).is_none()
        || (kind == Kind::Real && assets::control_plane().is_none())
    {
        return;
    }
    let thread = std::thread::current();
    let test = thread.name().expect("a test has a name").to_owned();
    let output = Command::new("unshare")
        .args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "-"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", &test, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && text.contains("1 passed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(passed, "inside of the namespace:\n{text}\n{errors}");
}

fn is_allowed() -> bool {
    let output = Command::new("unshare")
        .args(["--net", "ip", "link", "set", "lo", "up"])
        .output();
    output.is_ok_and(|output| output.status.success())
}
