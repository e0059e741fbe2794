//! The webhooks of a program, called by the built-in API server.

use http_body_util::BodyExt;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::client::Body;
use kube_core::params::ListParams;
use reeve_apiserver::ApiServer;
use reeve_client::Patch;
use reeve_webhook::testing::InProcess;
use serde_json::{Value, json};
use tower::service_fn;

use super::Cluster;
use crate::ObjectKey;

/// The Service that generated configurations name.
const SERVICE: (&str, &str) = ("default", "webhooks");

// === impl Cluster ===

impl Cluster {
    /// Has the built-in server call the webhooks and conversions of `server` in this process: no socket, no certificate, and
    /// virtual time. Creates a webhook configuration with a rule for every operation on the type of each webhook
    /// ([`InProcess::configurations`]), and sets the conversion of each installed definition that `server` converts.
    /// [`Cluster::webhooks_as`] takes the program's own manifests.
    ///
    /// # Panics
    /// On a real server, which needs a socket and certificates; when two webhooks have one path, a configuration named `webhooks`
    /// exists, or a converted kind is not installed.
    pub async fn webhooks(&self, server: &reeve_webhook::Server) {
        let (in_process, (namespace, name)) = (in_process(server), SERVICE);
        self.serve(&in_process, namespace, name);
        for configuration in in_process.configurations(namespace, name) {
            self.create_manifest(configuration).await;
        }
        for (group, kind, conversion) in in_process.conversions(namespace, name) {
            self.convert(&group, &kind, &conversion).await;
        }
    }

    /// As [`Cluster::webhooks`], with these manifests in place of generated ones: ValidatingWebhookConfigurations,
    /// MutatingWebhookConfigurations and CustomResourceDefinitions. They are created as they are, and `server` answers in the
    /// place of each Service that they name, so a test also covers rules, selectors and paths.
    ///
    /// # Panics
    /// On a real server; when two webhooks have one path, the API server refuses a manifest, or one names no Service.
    pub async fn webhooks_as(
        &self,
        server: &reeve_webhook::Server,
        manifests: impl IntoIterator<Item = Value>,
    ) {
        let in_process = in_process(server);
        for manifest in manifests {
            let services = services(&manifest);
            assert!(
                !services.is_empty(),
                "the manifest names no Service: {manifest}"
            );
            for (namespace, name) in services {
                self.serve(&in_process, &namespace, &name);
            }
            self.create_manifest(manifest).await;
        }
    }

    /// Answers in the place of a Service.
    fn serve(&self, in_process: &InProcess, namespace: &str, name: &str) {
        let in_process = in_process.clone();
        let service = service_fn(move |request: http::Request<Body>| {
            let in_process = in_process.clone();
            async move {
                let uri = request.uri().clone();
                let body = request.into_body().collect().await?.to_bytes();
                let answer = in_process.answer(&uri, &body).await;
                Ok::<_, tower::BoxError>(answer.map(Body::from))
            }
        });
        self.api_server().serve_webhooks(namespace, name, service);
    }

    fn api_server(&self) -> &ApiServer {
        let server = self.built_in();
        server.expect("a real API server calls webhooks over TLS: run the webhook server itself")
    }

    async fn create_manifest(&self, manifest: Value) {
        match manifest["kind"].as_str().unwrap_or_default() {
            "ValidatingWebhookConfiguration" => {
                let _: ValidatingWebhookConfiguration = self.create(manifest).await;
            }
            "MutatingWebhookConfiguration" => {
                let _: MutatingWebhookConfiguration = self.create(manifest).await;
            }
            "CustomResourceDefinition" => {
                let _: CustomResourceDefinition = self.create(manifest).await;
            }
            other => panic!("{other:?} configures no webhook"),
        }
    }

    /// Sets the conversion of an installed definition.
    async fn convert(&self, group: &str, kind: &str, conversion: &Value) {
        let all = self
            .client()
            .list::<CustomResourceDefinition>(None, &ListParams::default())
            .await
            .unwrap_or_else(|error| panic!("the definitions cannot be listed: {error}"));
        let is_it = |definition: &CustomResourceDefinition| {
            definition.spec.group == group && definition.spec.names.kind == kind
        };
        let definition = all.items.into_iter().find(is_it);
        let definition = definition
            .unwrap_or_else(|| panic!("{kind} of {group} is not installed: install it first"));
        let patch = Patch::merge(json!({"spec": {"conversion": conversion}}));
        let key = ObjectKey::of(&definition);
        let patched = self
            .client()
            .patch::<CustomResourceDefinition>(&key, patch)
            .await;
        if let Err(error) = patched {
            panic!("the conversion of {kind} was refused: {error}");
        }
    }
}

fn in_process(server: &reeve_webhook::Server) -> InProcess {
    let in_process = server.in_process();
    in_process.unwrap_or_else(|error| panic!("{error}"))
}

/// The namespaces and names of the Services in a manifest.
fn services(manifest: &Value) -> Vec<(String, String)> {
    let webhooks = manifest["webhooks"].as_array().into_iter().flatten();
    let conversion = &manifest["spec"]["conversion"]["webhook"];
    let mut found: Vec<(String, String)> = webhooks
        .chain([conversion])
        .filter_map(|webhook| {
            let service = &webhook["clientConfig"]["service"];
            let text = |field: &str| service[field].as_str().map(str::to_owned);
            Some((text("namespace")?, text("name")?))
        })
        .collect();
    found.sort();
    found.dedup();
    found
}
