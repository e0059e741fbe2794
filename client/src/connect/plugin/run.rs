//! One run of a credential plugin.

use std::io::IsTerminal;
use std::process::Stdio;
use std::time::Duration;

use kube_client::config::{ExecConfig, ExecInteractiveMode};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::error::PluginError;

/// The longest run of a plugin that asks nothing. client-go has no limit.
pub(super) const LONGEST_RUN: Duration = Duration::from_secs(180);

/// The longest output.
pub(super) const LONGEST_OUTPUT: u64 = 1 << 20;

/// Runs the plugin, and returns what it printed. A run that is dropped ends the process, and on Unix those that it
/// started, if neither it nor this program has a terminal.
pub(super) async fn run(exec: &ExecConfig) -> Result<Vec<u8>, PluginError> {
    let interactive = interactive(exec, std::io::stdin().is_terminal())?;
    let mut command = command(exec, interactive)?;
    // A plugin may ask at the terminal of this program, also where standard input is a file: it stays in the group
    // that may read from it.
    #[cfg(unix)]
    let apart = !interactive && !has_terminal();
    #[cfg(unix)]
    if apart {
        command.process_group(0);
    }
    let mut child = command.spawn().map_err(|fault| PluginError::Start {
        command: exec.command.clone().unwrap_or_default(),
        fault,
        hint: exec.install_hint.clone(),
    })?;
    let stdout = child.stdout.take();
    #[cfg(unix)]
    let mut group = group::Group::of(&child, apart);
    let ended = async {
        let mut output = Vec::new();
        if let Some(stdout) = stdout {
            let mut stdout = stdout.take(LONGEST_OUTPUT + 1);
            let read = stdout.read_to_end(&mut output).await;
            read.map_err(PluginError::Read)?;
        }
        if output.len() as u64 > LONGEST_OUTPUT {
            return Err(PluginError::Long);
        }
        let status = child.wait().await.map_err(PluginError::Read)?;
        #[cfg(unix)]
        group.ended();
        if status.success() {
            Ok(output)
        } else {
            Err(PluginError::Exit(status))
        }
    };
    if interactive {
        return ended.await;
    }
    timeout(LONGEST_RUN, ended)
        .await
        .unwrap_or(Err(PluginError::Hangs))
}

/// Whether this program belongs to a terminal.
#[cfg(unix)]
pub(in crate::connect) fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

#[cfg(unix)]
mod group {
    use rustix::process::{Pid, Signal, kill_process_group};

    /// The processes of a run: a plugin may be a wrapper of the program that hangs.
    pub(super) struct Group(Option<Pid>);

    // === impl Group ===

    impl Group {
        /// The group of `child`, if it is `apart` from that of this program.
        pub(super) fn of(child: &tokio::process::Child, apart: bool) -> Self {
            let leader = child.id().filter(|_| apart);
            let leader = leader.and_then(|id| i32::try_from(id).ok());
            Self(leader.and_then(Pid::from_raw))
        }

        /// The leader was waited for, so its number may be that of another process.
        pub(super) fn ended(&mut self) {
            self.0 = None;
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            if let Some(leader) = self.0 {
                // An error is a group that has ended.
                let _ = kill_process_group(leader, Signal::KILL);
            }
        }
    }
}

/// Whether the plugin may ask a person: client-go's rule.
fn interactive(exec: &ExecConfig, terminal: bool) -> Result<bool, PluginError> {
    match exec.interactive_mode {
        Some(ExecInteractiveMode::Never) => Ok(false),
        Some(ExecInteractiveMode::Always) if !terminal => Err(PluginError::Terminal),
        _ => Ok(terminal),
    }
}

fn command(exec: &ExecConfig, interactive: bool) -> Result<Command, PluginError> {
    let program = exec.command.as_ref().ok_or(PluginError::NoCommand)?;
    let mut command = Command::new(program);
    command.args(exec.args.iter().flatten());
    for variable in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    for name in exec.drop_env.iter().flatten() {
        command.env_remove(name);
    }
    let mut spec = json!({ "interactive": interactive });
    if exec.provide_cluster_info {
        let cluster = exec.cluster.as_ref().ok_or(PluginError::Cluster)?;
        spec["cluster"] = json!(cluster);
    }
    let info = json!({"apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec});
    let stdin = if interactive {
        Stdio::inherit()
    } else {
        Stdio::null()
    };
    command
        .env("KUBERNETES_EXEC_INFO", info.to_string())
        .stdin(stdin)
        .stdout(Stdio::piped())
        // As with client-go: what the plugin says to a person is not part of an error.
        .stderr(Stdio::inherit())
        .kill_on_drop(true);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(fields: serde_json::Value) -> ExecConfig {
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn a_plugin_asks_only_at_a_terminal() {
        let of =
            |mode: &str, terminal| interactive(&exec(json!({ "interactiveMode": mode })), terminal);
        assert!(matches!(of("Never", true), Ok(false)));
        assert!(matches!(of("IfAvailable", true), Ok(true)));
        assert!(matches!(of("IfAvailable", false), Ok(false)));
        assert!(matches!(of("Always", true), Ok(true)));
        assert!(matches!(of("Always", false), Err(PluginError::Terminal)));
        assert!(matches!(interactive(&exec(json!({})), true), Ok(true)));
    }

    #[test]
    fn a_plugin_gets_its_cluster_only_if_it_asks_for_it() {
        let mut config = exec(json!({"command": "p", "provideClusterInfo": true}));
        assert!(matches!(command(&config, false), Err(PluginError::Cluster)));
        config.cluster = Some(serde_json::from_value(json!({"server": "https://a"})).unwrap());
        let info = |config: &ExecConfig| {
            let command = command(config, false).unwrap();
            let mut variables = command.as_std().get_envs();
            let (_, value) = variables
                .find(|(name, _)| *name == "KUBERNETES_EXEC_INFO")
                .unwrap();
            let text = value.unwrap().to_str().unwrap().to_owned();
            serde_json::from_str::<serde_json::Value>(&text).unwrap()
        };
        assert_eq!(info(&config)["spec"]["cluster"]["server"], "https://a");
        config.provide_cluster_info = false;
        assert_eq!(info(&config)["spec"], json!({"interactive": false}));
    }
}
