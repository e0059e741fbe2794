//! A webhook server without a socket.

use std::sync::Arc;

use http::{Response, StatusCode, Uri};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::admission::Form;
use crate::http::{Shared, Target};

/// The webhooks and conversions of a [`Server`](crate::Server) in this process: no socket, no certificate, and virtual time.
/// Deadlines, panics, the most calls in work and metrics are those of the server. Clones share it.
///
/// `reeve_controller::testing` puts it in the place of a Service of the built-in API server.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use reeve_webhook::admission::{Request, Verdict};
/// use reeve_webhook::testing::Call;
/// use reeve_webhook::{Server, Webhook};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let guard = Webhook::validating("guard.example.com", |_: Request<Pod>| async { Verdict::deny("no") });
/// let server = Server::at(([127, 0, 0, 1], 0).into()).webhook(guard).in_process()?;
/// let uri = "https://guard.ops.svc:443/validate--v1-pod?timeout=10s".parse()?;
/// let review = Call::create(&Pod::default()).review().to_string();
/// let answer = server.answer(&uri, review.as_bytes()).await;
/// assert!(answer.status() == 200 && String::from_utf8(answer.into_body())?.contains("Forbidden"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct InProcess {
    targets: Arc<[Target]>,
    shared: Shared,
}

// === impl InProcess ===

impl InProcess {
    pub(crate) fn new(targets: Vec<Target>, shared: Shared) -> Self {
        let targets = targets.into();
        Self { targets, shared }
    }

    /// The answer to a call of the API server: a review that was posted to the path of `uri`, with the `timeout` of its
    /// query. 404 if there is no webhook at that path.
    pub async fn answer(&self, uri: &Uri, body: &[u8]) -> Response<Vec<u8>> {
        let Some(target) = self
            .targets
            .iter()
            .find(|target| target.path() == uri.path())
        else {
            let mut missing = Response::new(format!("no webhook at {}", uri.path()).into_bytes());
            *missing.status_mut() = StatusCode::NOT_FOUND;
            return missing;
        };
        let answer = target.answer_to(&self.shared, uri.query(), body).await;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await;
        // A whole answer is in memory.
        let body = body
            .map(|body| body.to_bytes().to_vec())
            .unwrap_or_default();
        Response::from_parts(parts, body)
    }

    /// A ValidatingWebhookConfiguration and a MutatingWebhookConfiguration for the webhooks that have a type, each with one
    /// entry for every operation on the objects of its kind. They lead to the Service `name` in `namespace`, have its name, and
    /// fail if a call fails. For subresources, several kinds, or selectors a test has manifests of its own.
    #[must_use]
    pub fn configurations(&self, namespace: &str, name: &str) -> Vec<Value> {
        let entries = |form: Form| -> Vec<Value> {
            let webhooks = self.targets.iter().filter_map(|target| match target {
                Target::Admission(webhook) if webhook.form() == form => Some(webhook),
                _ => None,
            });
            let entry = |webhook: &crate::Webhook| {
                let rule = webhook.rule()?;
                let service = json!({"namespace": namespace, "name": name, "path": webhook.path()});
                Some(json!({
                    "name": webhook.name(),
                    "clientConfig": {"service": service},
                    "rules": [rule],
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "failurePolicy": "Fail",
                }))
            };
            webhooks.filter_map(entry).collect()
        };
        [
            ("ValidatingWebhookConfiguration", Form::Validating),
            ("MutatingWebhookConfiguration", Form::Mutating),
        ]
        .into_iter()
        .map(|(kind, form)| (kind, entries(form)))
        .filter(|(_, entries)| !entries.is_empty())
        .map(|(kind, entries)| {
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": name},
                "webhooks": entries,
            })
        })
        .collect()
    }

    /// The conversions: group and kind of each, and `spec.conversion` of its CustomResourceDefinition, which leads to the
    /// Service `name` in `namespace`.
    #[must_use]
    pub fn conversions(&self, namespace: &str, name: &str) -> Vec<(String, String, Value)> {
        let conversions = self.targets.iter().filter_map(|target| match target {
            Target::Conversion(conversion) => Some(conversion),
            Target::Admission(_) => None,
        });
        let of = |conversion: &crate::Conversion| {
            let service = json!({"namespace": namespace, "name": name, "path": conversion.path()});
            let webhook = json!({
                "clientConfig": {"service": service},
                "conversionReviewVersions": ["v1"],
            });
            let strategy = json!({"strategy": "Webhook", "webhook": webhook});
            let (group, kind) = (conversion.group().to_owned(), conversion.kind().to_owned());
            (group, kind, strategy)
        };
        conversions.map(of).collect()
    }
}
