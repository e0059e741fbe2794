//! Reset of a control plane: etcd deletes every key that was added after the start.
//!
//! The keys are deleted in etcd itself, without finalizers, grace periods or namespace controllers, so that a reset
//! takes milliseconds where a start takes seconds. kube-apiserver and kube-controller-manager see the deletions in
//! their watches.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::error::Error;

/// The prefix of kube-apiserver's objects.
const ROOT: &str = "/registry/";
/// The first key after those of [`ROOT`].
const END: &str = "/registry0";
/// Keys a transaction deletes; etcd refuses more than 128 operations.
const AT_ONCE: usize = 100;
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const ANSWER_BYTES: usize = 64 << 20;

/// Namespaces whose objects are the control plane's own.
const OWN_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];
/// Resources that the control plane creates by itself, some of them after its start.
const OWN_RESOURCES: [&str; 7] = [
    "apiregistration.k8s.io",
    "flowschemas",
    "masterleases",
    "prioritylevelconfigurations",
    "priorityclasses",
    "ranges",
    "servicecidrs",
];
/// Objects of the namespace `default` that the control plane creates again.
const OWN_NAMES: [&str; 4] = [
    "/default/default",
    "/default/kube-root-ca.crt",
    "/default/kubernetes",
    "/namespaces/default",
];

/// The keys of all objects.
pub(super) async fn keys(etcd_url: &str) -> Result<BTreeSet<String>, Error> {
    let range = json!({"key": encode(ROOT), "range_end": encode(END), "keys_only": true});
    let answer = post(etcd_url, "/v3/kv/range", &range).await?;
    let pairs = answer["kvs"].as_array().into_iter().flatten();
    Ok(pairs
        .filter_map(|pair| {
            let key = BASE64.decode(pair["key"].as_str()?).ok()?;
            String::from_utf8(key).ok()
        })
        .collect())
}

/// Deletes every key that is not in `baseline` and not the control plane's own.
pub(super) async fn delete_new(etcd_url: &str, baseline: &BTreeSet<String>) -> Result<(), Error> {
    let now = keys(etcd_url).await?;
    let new: Vec<&String> = now
        .difference(baseline)
        .filter(|key| !is_own(key))
        .collect();
    for some in new.chunks(AT_ONCE) {
        let deletions: Vec<Value> = some
            .iter()
            .map(|key| json!({"requestDeleteRange": {"key": encode(key)}}))
            .collect();
        post(etcd_url, "/v3/kv/txn", &json!({"success": deletions})).await?;
    }
    Ok(())
}

/// Whether the control plane creates the object of this key by itself.
fn is_own(key: &str) -> bool {
    let mut parts = key.trim_start_matches(ROOT).split('/');
    let resource = parts.next().unwrap_or_default();
    OWN_RESOURCES.contains(&resource)
        || parts.any(|part| OWN_NAMESPACES.contains(&part))
        || OWN_NAMES.iter().any(|name| key.ends_with(name))
}

fn encode(key: &str) -> String {
    BASE64.encode(key)
}

/// Sends a request to etcd's JSON gateway.
async fn post(etcd_url: &str, path: &str, body: &Value) -> Result<Value, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::Reset(format!("etcd, {path}: {error}"));
    let address = etcd_url.trim_start_matches("http://");
    let exchange = async {
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|error| failed(&error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error))?;
        let request = http::Request::post(path)
            .header("host", address)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .map_err(|error| failed(&error))?;
        let answered = async {
            let answer = sender.send_request(request).await;
            let answer = answer.map_err(|error| failed(&error))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect();
            let body = body.await.map_err(|error| failed(&error))?.to_bytes();
            if !status.is_success() {
                return Err(failed(&format!(
                    "{status}: {}",
                    String::from_utf8_lossy(&body)
                )));
            }
            serde_json::from_slice(&body).map_err(|error| failed(&error))
        };
        tokio::select! {
            biased;
            answer = answered => answer,
            result = connection => Err(match result {
                Ok(()) => failed(&"the connection was closed"),
                Err(error) => failed(&error),
            }),
        }
    };
    match timeout(ANSWER_WITHIN, exchange).await {
        Ok(answer) => answer,
        Err(_) => Err(failed(&format!("no answer within {ANSWER_WITHIN:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_control_plane_makes_by_itself_is_kept() {
        for kept in [
            "/registry/configmaps/kube-system/extension-apiserver-authentication",
            "/registry/leases/kube-system/apiserver-x",
            "/registry/namespaces/kube-node-lease",
            "/registry/namespaces/default",
            "/registry/serviceaccounts/default/default",
            "/registry/configmaps/default/kube-root-ca.crt",
            "/registry/services/specs/default/kubernetes",
            "/registry/flowschemas/exempt",
            "/registry/apiregistration.k8s.io/apiservices/v1.example.com",
            "/registry/masterleases/127.0.0.1",
        ] {
            assert!(is_own(kept), "{kept}");
        }
    }

    #[test]
    fn what_a_test_makes_goes() {
        for removed in [
            "/registry/configmaps/default/mine",
            "/registry/namespaces/mine",
            "/registry/serviceaccounts/mine/default",
            "/registry/clusterroles/mine",
            "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com",
            "/registry/example.com/widgets/default/one",
            "/registry/events/default/one.1",
        ] {
            assert!(!is_own(removed), "{removed}");
        }
    }
}
