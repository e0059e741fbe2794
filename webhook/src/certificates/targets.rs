//! The configurations that must trust the server: webhook configurations and definitions with a conversion webhook.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use reeve_client::{Client, Error, Kind, ObjectKey, Patch, optional};
use reeve_serve::certificates::CertificateDer;
use serde_json::{Value, json};

use super::contents::Id;
use super::material::{certificates, id};

/// A configuration that leads to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    kind: Kind,
    name: String,
}

/// A configuration as it was read.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    target: Target,
    version: String,
    pub(super) entries: Vec<Entry>,
}

/// A client configuration in it that leads to this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// JSON pointer of the client configuration.
    path: String,
    /// The authorities of its bundle; empty if it cannot be read.
    pub(super) bundle: BTreeSet<Id>,
    pub(super) authorities: Vec<CertificateDer<'static>>,
}

/// The server's names, for the entries that lead to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server<'a> {
    pub(super) service: &'a ObjectKey,
    pub(super) names: &'a [String],
}

// === impl Target ===

impl Target {
    pub(super) fn validating(name: String) -> Self {
        let kind = Kind::of::<ValidatingWebhookConfiguration>();
        Self { kind, name }
    }

    pub(super) fn mutating(name: String) -> Self {
        let kind = Kind::of::<MutatingWebhookConfiguration>();
        Self { kind, name }
    }

    pub(super) fn conversion(name: String) -> Self {
        let kind = Kind::of::<CustomResourceDefinition>();
        Self { kind, name }
    }

    /// Reads the configuration. `None` if there is none.
    pub(super) async fn read(
        &self,
        client: &Client,
        server: Server<'_>,
    ) -> Result<Option<Seen>, Error> {
        let key = ObjectKey::cluster(self.name.as_str());
        let object = optional(client.dynamic(&self.kind).get(&key).await)?;
        Ok(object.map(|object| Seen {
            target: self.clone(),
            version: object.metadata.resource_version.unwrap_or_default(),
            entries: entries(&object.data, server),
        }))
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind.resource().kind, self.name)
    }
}

// === impl Seen ===

impl Seen {
    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Whether the configuration has still this version, as far as it can be read.
    pub(super) async fn is_current(&self, client: &Client) -> bool {
        let key = ObjectKey::cluster(self.target.name.as_str());
        let read = client.dynamic(&self.target.kind).get(&key).await;
        read.is_ok_and(|object| {
            object.metadata.resource_version.as_deref() == Some(self.version.as_str())
        })
    }

    /// Sets the bundle of each entry that has another one. Returns whether any had. The write fails if the configuration was
    /// changed since it was read: the bundle that was read with it may be an old one.
    pub(super) async fn inject(
        &self,
        client: &Client,
        bundle: &BTreeSet<Id>,
        pem: &str,
    ) -> Result<bool, Error> {
        let other: Vec<&Entry> = self
            .entries
            .iter()
            .filter(|entry| entry.bundle != *bundle)
            .collect();
        if other.is_empty() {
            return Ok(false);
        }
        let encoded = STANDARD.encode(pem);
        let version = json!({
            "op": "test", "path": "/metadata/resourceVersion", "value": self.version,
        });
        let sets = other.iter().map(|entry| {
            json!({"op": "add", "path": format!("{}/caBundle", entry.path), "value": encoded})
        });
        let operations: Vec<Value> = std::iter::once(version).chain(sets).collect();
        let key = ObjectKey::cluster(self.target.name.as_str());
        let objects = client.dynamic(&self.target.kind);
        objects.patch(&key, Patch::json(operations)).await?;
        Ok(true)
    }
}

/// The entries that lead to the server.
fn entries(object: &Value, server: Server<'_>) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut add = |path: String, config: &Value| {
        if leads_to(config, server) {
            let authorities = authorities(config);
            found.push(Entry {
                path,
                bundle: authorities.iter().map(id).collect(),
                authorities,
            });
        }
    };
    for (index, webhook) in object["webhooks"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        let path = format!("/webhooks/{index}/clientConfig");
        add(path, &webhook["clientConfig"]);
    }
    let conversion = &object["spec"]["conversion"]["webhook"]["clientConfig"];
    if conversion.is_object() {
        add(
            "/spec/conversion/webhook/clientConfig".to_owned(),
            conversion,
        );
    }
    found
}

fn leads_to(config: &Value, Server { service, names }: Server<'_>) -> bool {
    let own = config["service"]["name"] == *service.name
        && config["service"]["namespace"].as_str() == service.namespace.as_deref();
    let url = config["url"]
        .as_str()
        .and_then(|url| url.parse::<http::Uri>().ok());
    let host = url.as_ref().and_then(http::Uri::host);
    let host = host.map(|host| host.trim_start_matches('[').trim_end_matches(']'));
    own || host.is_some_and(|host| names.iter().any(|name| name == host))
}

fn authorities(config: &Value) -> Vec<CertificateDer<'static>> {
    let text = config["caBundle"].as_str().unwrap_or_default();
    let pem = STANDARD.decode(text).unwrap_or_default();
    certificates(&pem).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_entries_that_lead_to_this_server_are_found() {
        let service = ObjectKey::namespaced("hbox", "guard");
        let names = ["localhost".to_owned(), "::1".to_owned()];
        let server = Server {
            service: &service,
            names: &names,
        };
        let own = json!({"service": {"namespace": "hbox", "name": "guard", "path": "/a"}});
        let object = json!({"webhooks": [
            {"clientConfig": own},
            {"clientConfig": {"service": {"namespace": "other", "name": "guard"}}},
            {"clientConfig": {"service": {"namespace": "hbox", "name": "other"}}},
            {"clientConfig": {"url": "https://localhost:9443/a"}},
            {"clientConfig": {"url": "https://[::1]:9443/a"}},
            {"clientConfig": {"url": "https://example.com/a"}},
            {"clientConfig": {"caBundle": "!"}},
        ]});
        let paths = |object: &Value| -> Vec<String> {
            entries(object, server)
                .into_iter()
                .map(|entry| entry.path)
                .collect()
        };
        assert_eq!(
            paths(&object),
            [0, 3, 4].map(|index| format!("/webhooks/{index}/clientConfig"))
        );
        let definition = json!({"spec": {"conversion": {"webhook": {"clientConfig": own}}}});
        assert_eq!(
            paths(&definition),
            ["/spec/conversion/webhook/clientConfig"]
        );
        assert_eq!(
            paths(&json!({"spec": {"conversion": {"strategy": "None"}}})),
            [""; 0]
        );
    }

    #[tokio::test]
    async fn a_slow_replica_does_not_write_an_older_bundle_over_a_newer_one() {
        let server = reeve_apiserver::ApiServer::builder().start().await.unwrap();
        let client = Client::new(server.client());
        let configuration: ValidatingWebhookConfiguration = serde_json::from_value(json!({
            "metadata": {"name": "guard"},
            "webhooks": [{
                "name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": {"namespace": "hbox", "name": "guard"}},
            }],
        }))
        .unwrap();
        client.create(&configuration).await.unwrap();
        let (service, target) = (
            ObjectKey::namespaced("hbox", "guard"),
            Target::validating("guard".to_owned()),
        );
        let server = Server {
            service: &service,
            names: &[],
        };
        let seen = async || target.read(&client, server).await.unwrap().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let make = |name: &str| {
            let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
            let made = params.self_signed(&key).unwrap();
            (BTreeSet::from([id(made.der())]), made.pem())
        };
        let (older, newer) = (make("older"), make("newer"));
        let (slow, fast) = (seen().await, seen().await);
        assert!(fast.inject(&client, &newer.0, &newer.1).await.unwrap());
        let lost = slow.inject(&client, &older.0, &older.1).await.unwrap_err();
        assert!(lost.is_conflict() || lost.is_invalid(), "{lost}");
        let now = seen().await;
        assert_eq!(now.entries[0].bundle, newer.0);
        assert!(
            !now.inject(&client, &newer.0, &newer.1).await.unwrap(),
            "nothing to do"
        );
    }
}
