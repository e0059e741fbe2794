//! Errors of credential plugins, without what the plugin got and printed.
//!
//! kube-client's error of a failed plugin has its command line, the environment of the kubeconfig and the output. Tokens and
//! client secrets are in both. Errors of requests get into logs, spans, readiness and debug pages.

use std::error::Error;
use std::process::ExitStatus;

use kube_client::client::AuthError;
use tower::BoxError;

/// The credential plugin of the kubeconfig failed.
#[derive(Debug, thiserror::Error)]
enum PluginFailed {
    #[error(
        "the credential plugin of the kubeconfig failed ({0}): run it by hand to see its output"
    )]
    Exit(ExitStatus),
    /// kube-client's error quotes the output.
    #[error(
        "the credential plugin of the kubeconfig printed something else than an ExecCredential: run it by hand to see its output"
    )]
    Output,
}

/// The error, or that of a failed plugin without its details.
pub(super) fn redacted(error: BoxError) -> BoxError {
    match failed_plugin(&*error) {
        Some(plugin) => plugin.into(),
        None => error,
    }
}

/// As [`redacted`], for an error of kube-client.
pub(super) fn redacted_start(error: kube_client::Error) -> kube_client::Error {
    match failed_plugin(&error) {
        Some(plugin) => kube_client::Error::Service(plugin.into()),
        None => error,
    }
}

fn failed_plugin(error: &(dyn Error + 'static)) -> Option<PluginFailed> {
    let mut chain = std::iter::successors(Some(error), |&error| error.source());
    chain.find_map(|error| match error.downcast_ref() {
        Some(AuthError::AuthExecRun { out, .. }) => Some(PluginFailed::Exit(out.status)),
        Some(AuthError::AuthExecParse(_)) => Some(PluginFailed::Output),
        _ => None,
    })
}

#[cfg(all(test, unix))]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::connect::{Options, connect};

    const SECRET: &str = "hunter2";

    fn config(script: &str) -> kube_client::Config {
        let mut config = kube_client::Config::new("http://127.0.0.1:1".parse().unwrap());
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
            "args": ["-c", script], "env": [{"name": "CLIENT_SECRET", "value": SECRET}],
            "interactiveMode": "Never"});
        config.auth_info = serde_json::from_value(json!({ "exec": exec })).unwrap();
        config
    }

    fn check(error: &(dyn Error + 'static), expected: &str) {
        let shown = format!("{} {error:?}", crate::error_chain(error));
        assert!(!shown.contains(SECRET), "{shown}");
        let expected = format!("the credential plugin of the kubeconfig {expected}");
        assert!(shown.contains(&expected), "{shown}");
    }

    #[tokio::test]
    async fn what_a_plugin_prints_is_not_shown_if_it_cannot_be_read() {
        let output = format!("warning: [ {{\\napiVersion: 7\\nstatus: {{token: {SECRET}");
        let script = format!("printf '{output}'");
        let error = connect(config(&script), &Options::new()).err().unwrap();
        check(&error, "printed something else than an ExecCredential");
    }

    #[tokio::test]
    async fn a_plugin_that_fails_at_the_start_is_shown_without_its_environment_and_output() {
        let script = format!("echo {SECRET}; exit 3");
        let error = connect(config(&script), &Options::new()).err().unwrap();
        check(&error, "failed (exit status: 3)");
    }

    #[tokio::test]
    async fn a_plugin_that_fails_later_is_shown_without_its_environment_and_output() {
        let fails = std::env::temp_dir().join(format!("reeve-plugin-{}", std::process::id()));
        let _ = std::fs::remove_file(&fails);
        let expired = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": {"token": SECRET, "expirationTimestamp": "2020-01-01T00:00:00Z"}});
        let script = format!(
            "[ -e {} ] && {{ echo {SECRET}; exit 3; }}; echo '{expired}'",
            fails.display()
        );
        let client = connect(config(&script), &Options::new()).unwrap();
        std::fs::write(&fails, "").unwrap();
        let error = client.apiserver_version().await.unwrap_err();
        check(&error, "failed (exit status: 3)");
        std::fs::remove_file(&fails).unwrap();
    }
}
