//! Client certificates that the signer of the cluster issues.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition,
};
use kube_core::params::DeleteParams;
use reeve_client::{Client, ObjectKey, WriteOptions};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::certs;
use crate::program::BoxError;

/// The pause between two reads of a request.
const READ_EVERY: Duration = Duration::from_millis(500);

/// The longest time that the signer has.
const LONGEST_ISSUE: Duration = Duration::from_secs(60);

/// A client certificate of `seconds` and its key in PEM: requests it, approves the request, and waits for the signer
/// `kubernetes.io/kube-apiserver-client`. The request is deleted at the end, also after a failure.
///
/// # Errors
/// When the API server refuses a step, or no signer runs within a minute.
pub async fn signed(
    client: &Client,
    user: &str,
    group: Option<&str>,
    seconds: u64,
) -> Result<(String, String), BoxError> {
    let (request, key) = certs::request(user, group)?;
    let request: CertificateSigningRequest = serde_json::from_value(json!({
        "metadata": {"generateName": "preprod-guard-"},
        "spec": {
            "request": STANDARD.encode(request),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["digital signature", "client auth"],
            "expirationSeconds": seconds,
        },
    }))?;
    let request = client.create(&request).await?;
    let name = request.metadata.name.clone().unwrap_or_default();
    let name = ObjectKey::cluster(name);
    let issued = issued(client, &name, request).await;
    let params = DeleteParams::default();
    let deleted = client.delete::<CertificateSigningRequest>(&name, &params);
    if let Err(error) = deleted.await {
        tracing::warn!(%error, request = %name.name, "could not delete a certificate signing request");
    }
    Ok((issued?, key))
}

/// Approves a request, and waits for its certificate.
async fn issued(
    client: &Client,
    name: &ObjectKey,
    mut request: CertificateSigningRequest,
) -> Result<String, BoxError> {
    let approval = CertificateSigningRequestCondition {
        type_: "Approved".to_owned(),
        status: "True".to_owned(),
        reason: Some("PreprodGuard".to_owned()),
        message: Some("approved by preprod-guard kubeconfig".to_owned()),
        ..CertificateSigningRequestCondition::default()
    };
    let status = request.status.get_or_insert_default();
    status.conditions.get_or_insert_default().push(approval);
    let approvals = client.subresource::<CertificateSigningRequest>("approval");
    let _: CertificateSigningRequest = approvals
        .update(name, WriteOptions::new(), &request)
        .await?;
    let end = Instant::now() + LONGEST_ISSUE;
    loop {
        let now: CertificateSigningRequest = client.get(name).await?;
        if let Some(certificate) = now.status.and_then(|status| status.certificate) {
            return Ok(String::from_utf8(certificate.0)?);
        }
        if Instant::now() >= end {
            let text = format!(
                "no signer issued {}; use --authority or --service-account",
                name.name
            );
            return Err(text.into());
        }
        sleep(READ_EVERY).await;
    }
}
