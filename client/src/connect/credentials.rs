//! Errors of kube-client's credential commands, without what the command got and printed.
//!
//! They are those of `auth-provider` of a kubeconfig, with the command line and the output. Tokens and client secrets are
//! in both. Errors of requests get into logs, spans, readiness and debug pages.

use std::error::Error;

use kube_client::client::AuthError;
use tower::BoxError;

use super::plugin::PluginError;

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

fn failed_plugin(error: &(dyn Error + 'static)) -> Option<PluginError> {
    let mut chain = std::iter::successors(Some(error), |&error| error.source());
    chain.find_map(|error| match error.downcast_ref() {
        Some(AuthError::AuthExecRun { out, .. }) => Some(PluginError::Exit(out.status)),
        Some(AuthError::AuthExecParse(_)) => Some(PluginError::Output),
        _ => None,
    })
}

#[cfg(all(test, unix))]
mod tests {
    use serde_json::json;

    use crate::connect::{Options, connect};

    const SECRET: &str = "hunter2";

    #[tokio::test]
    async fn a_command_that_fails_is_shown_without_its_arguments_and_output() {
        let mut config = kube_client::Config::new("http://127.0.0.1:1".parse().unwrap());
        let command = json!({"cmd-path": "cat", "cmd-args": format!("/no/{SECRET}")});
        let provider = json!({"name": "gcp", "config": command});
        config.auth_info = serde_json::from_value(json!({ "auth-provider": provider })).unwrap();
        let error = connect(config, &Options::new()).err().unwrap();
        let shown = format!("{} {error:?}", crate::error_chain(&error));
        assert!(!shown.contains(SECRET), "{shown}");
        let expected = "the credential plugin of the kubeconfig failed (exit status: 1)";
        assert!(shown.contains(expected), "{shown}");
    }
}
