//! Runs the plugin.

use std::ffi::OsStr;
use std::path::Path;

use tokio::process::Command;

/// What the plugin printed, and its exit status.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) text: String,
    pub(crate) errors: String,
    pub(crate) code: Option<i32>,
}

/// The plugin with these arguments, and programs only from `path`.
pub(crate) fn plugin<S: AsRef<OsStr>>(path: &Path, arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-reeve"));
    command.args(arguments).env("PATH", path).kill_on_drop(true);
    command.env_remove("REEVE_TOKEN").env_remove("NO_COLOR");
    command
}

pub(crate) async fn run<S: AsRef<OsStr>>(path: &Path, arguments: &[S]) -> Output {
    let output = plugin(path, arguments).output().await.unwrap();
    Output {
        text: String::from_utf8(output.stdout).unwrap(),
        errors: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code(),
    }
}

/// The plugin for a program on this machine. There is no kubectl.
pub(crate) async fn at(address: &str, more: &[&str]) -> Output {
    let mut arguments = vec!["--address", address];
    arguments.extend(more);
    run(Path::new("/nowhere"), &arguments).await
}
