//! Errors of kube-client without the secrets that they quote. Errors of requests get into logs, spans, readiness and debug
//! pages.
//!
//! * The error of a credential command (`auth-provider` of a kubeconfig) has the command line and the output. Tokens and
//!   client secrets are in both.
//! * That of a certificate or a key has the line that is not PEM. A key without its line ends is one such line.

use std::error::Error;

use kube_client::client::AuthError;
use tower::BoxError;

use super::plugin::PluginError;

/// A certificate or a key in the configuration is not PEM.
#[derive(Debug, thiserror::Error)]
#[error("the client certificate or its key is not PEM")]
struct NoPem;

/// The error, or one without its secrets in place of it.
pub(super) fn redacted(error: BoxError) -> BoxError {
    without_secrets(&*error).unwrap_or(error)
}

/// As [`redacted`], for an error of kube-client.
pub(super) fn redacted_start(error: kube_client::Error) -> kube_client::Error {
    without_secrets(&error).map_or(error, kube_client::Error::Service)
}

fn without_secrets(error: &(dyn Error + 'static)) -> Option<BoxError> {
    let mut chain = std::iter::successors(Some(error), |&error| error.source());
    chain.find_map(|error| {
        if error.is::<rustls::pki_types::pem::Error>() {
            return Some(NoPem.into());
        }
        match error.downcast_ref()? {
            AuthError::AuthExecRun { out, .. } => Some(PluginError::Exit(out.status).into()),
            AuthError::AuthExecParse(_) => Some(PluginError::Output.into()),
            _ => None,
        }
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
