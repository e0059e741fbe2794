//! Certificates in a Secret, with the built-in API server under virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube_core::params::DeleteParams;
use parking_lot::Mutex;
use reeve_apiserver::ApiServer;
use reeve_client::{Client, ObjectKey, Patch};
use reeve_clock::Clock;
use reeve_serve::certificates::Certificates;
use reeve_webhook::certificates::{Journal, Lifetimes, Notice, Rotation, RotationMetrics};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// An API server with a webhook configuration, and replicas.
struct World {
    server: ApiServer,
    client: Client,
    clock: Clock,
    journal: Arc<Records>,
}

/// The reasons of the notices, in order.
#[derive(Default)]
struct Records(Mutex<Vec<String>>);

impl Journal for Records {
    fn record(&self, _: &ObjectKey, notice: &Notice) {
        let mut records = self.0.lock();
        records.push(match notice {
            Notice::Restored(cause) => format!("{}: {cause}", notice.reason()),
            _ => notice.reason().to_owned(),
        });
    }
}

/// A replica that runs.
struct Replica {
    certificates: Certificates,
    ready: Box<dyn Fn() -> Result<(), String>>,
    _task: AbortOnDropHandle<()>,
}

fn secret() -> ObjectKey {
    ObjectKey::namespaced("hbox", "guard-webhook-certificates")
}

fn configuration() -> ObjectKey {
    ObjectKey::cluster("guard")
}

// === impl World ===

impl World {
    async fn new() -> Self {
        let start = Timestamp::from_second(1_800_000_000).unwrap();
        let clock = Clock::simulated(start, 1);
        let server = ApiServer::builder()
            .clock(clock.clone())
            .start()
            .await
            .unwrap();
        let client = Client::new(server.client());
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": "hbox"}})).unwrap();
        client.create(&namespace).await.unwrap();
        let world = Self {
            server,
            client,
            clock,
            journal: Arc::default(),
        };
        world.apply_manifest().await;
        world
    }

    /// The configuration as in a manifest, without bundles.
    async fn apply_manifest(&self) {
        let webhook = |name: &str, service: &str| {
            json!({
                "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": {"namespace": "hbox", "name": service}},
            })
        };
        let manifest: ValidatingWebhookConfiguration = serde_json::from_value(json!({
            "metadata": {"name": "guard"},
            "webhooks": [webhook("a.example.com", "guard"), webhook("b.example.com", "other"), webhook("c.example.com", "guard")],
        })).unwrap();
        let options = reeve_client::ApplyOptions::new("kubectl").force();
        if self
            .client
            .get::<ValidatingWebhookConfiguration>(&configuration())
            .await
            .is_ok()
        {
            self.client
                .delete::<ValidatingWebhookConfiguration>(
                    &configuration(),
                    &DeleteParams::default(),
                )
                .await
                .unwrap();
        }
        self.client.apply(&manifest, options).await.unwrap();
    }

    fn replica(&self, lifetimes: Lifetimes) -> Replica {
        let rotation = Rotation::new(self.client.clone(), "hbox", "guard")
            .validating("guard")
            .conversion("missing.example.com")
            .lifetimes(lifetimes)
            .clock(self.clock.clone())
            .journal(self.journal.clone());
        Replica {
            certificates: rotation.certificates(),
            ready: Box::new(rotation.check()),
            _task: AbortOnDropHandle::new(tokio::spawn(rotation.run(CancellationToken::new()))),
        }
    }

    async fn data(&self) -> BTreeMap<String, ByteString> {
        self.client
            .get::<Secret>(&secret())
            .await
            .unwrap()
            .data
            .unwrap()
    }

    async fn set_data(&self, data: &BTreeMap<String, ByteString>) {
        let data: BTreeMap<&String, String> = data
            .iter()
            .map(|(key, value)| (key, STANDARD.encode(&value.0)))
            .collect();
        let patch = Patch::json(json!([{"op": "replace", "path": "/data", "value": data}]));
        self.client.patch::<Secret>(&secret(), patch).await.unwrap();
    }

    /// The bundles of the three entries, in PEM.
    async fn bundles(&self) -> Vec<String> {
        let object = self
            .client
            .get::<ValidatingWebhookConfiguration>(&configuration())
            .await
            .unwrap();
        let bundle =
            |bundle: Option<ByteString>| String::from_utf8(bundle.unwrap_or_default().0).unwrap();
        object
            .webhooks
            .into_iter()
            .flatten()
            .map(|webhook| bundle(webhook.client_config.ca_bundle))
            .collect()
    }

    /// The configuration trusts what the Secret has, in the entries of the Service.
    async fn check(&self, replicas: &[&Replica]) {
        let bundle = String::from_utf8(self.data().await["ca.crt"].0.clone()).unwrap();
        assert_eq!(self.bundles().await, [bundle.as_str(), "", bundle.as_str()]);
        for replica in replicas {
            assert_eq!((replica.ready)(), Ok(()));
        }
    }

    fn recorded(&self) -> Vec<String> {
        std::mem::take(&mut self.journal.0.lock())
    }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn two_replicas_share_one_secret_and_repair_it() {
    let world = World::new().await;
    let (first, second) = (
        world.replica(Lifetimes::default()),
        world.replica(Lifetimes::default()),
    );
    assert!((first.ready)().unwrap_err().contains("not read yet"));
    pass(60).await;
    world.check(&[&first, &second]).await;
    // Each replica reports the configuration that does not exist.
    assert_eq!(
        world.recorded(),
        [
            "ConfigurationNotFound",
            "ConfigurationNotFound",
            "CertificatesCreated",
            "BundleInjected",
            "AuthorityConfirmed"
        ]
    );
    let leaf = first.certificates.chain();
    assert_eq!(second.certificates.chain(), leaf);
    let data = world.data().await;

    // Each fault is repaired with the same certificates.
    let delete = async || {
        world
            .client
            .delete::<Secret>(&secret(), &DeleteParams::default())
            .await
            .unwrap();
    };
    delete().await;
    pass(15).await;
    assert_eq!(
        world.recorded(),
        ["CertificatesRestored: the Secret was deleted"]
    );
    let mut damaged = data.clone();
    damaged.get_mut("tls.key").unwrap().0.truncate(40);
    world.set_data(&damaged).await;
    pass(15).await;
    assert_eq!(
        world.recorded(),
        ["CertificatesRestored: the Secret was damaged: tls.key is missing or cannot be read"]
    );
    world.set_data(&data).await;
    pass(15).await;
    assert_eq!(
        world.recorded(),
        ["CertificatesRestored: the Secret was rolled back"]
    );
    for key in ["ca.crt", "ca.key", "tls.crt", "tls.key"] {
        assert_eq!(world.data().await[key], data[key], "{key}");
    }

    // A manifest without bundles is applied again.
    world.apply_manifest().await;
    pass(15).await;
    assert_eq!(world.recorded(), ["BundleInjected"]);
    world.check(&[&first, &second]).await;
    assert_eq!(first.certificates.chain(), leaf);
    drop((first, second));
    drop(world.server);
}

#[tokio::test(start_paused = true)]
async fn nothing_ends_when_the_clock_goes_90_days_ahead_four_times_each_followed_by_a_minute() {
    let world = World::new().await;
    let replica = world.replica(Lifetimes::default());
    pass(60).await;
    world.recorded();
    let leaf = replica.certificates.chain();
    for _ in 0..4 {
        world.clock.jump(SignedDuration::from_hours(90 * 24));
        pass(60).await;
        world.check(&[&replica]).await;
    }
    // At two thirds of a year.
    assert_eq!(world.recorded(), ["CertificateIssued"]);
    assert_ne!(replica.certificates.chain(), leaf);
}

#[tokio::test(start_paused = true)]
async fn authorities_are_replaced_in_order_and_every_notice_is_recorded() {
    let world = World::new().await;
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    let lifetimes = Lifetimes::default()
        .authority(minutes(90))
        .leaf(minutes(45))
        .overlap(minutes(5));
    let (first, second) = (world.replica(lifetimes), world.replica(lifetimes));
    pass(60).await;
    // Each replica reports the configuration that does not exist.
    assert_eq!(
        world.recorded(),
        [
            "ConfigurationNotFound",
            "ConfigurationNotFound",
            "CertificatesCreated",
            "BundleInjected",
            "AuthorityConfirmed"
        ]
    );
    pass(31 * 60).await;
    assert_eq!(
        world.recorded(),
        ["CertificateIssued"],
        "at two thirds of 45 minutes"
    );
    pass(29 * 60 + 30).await;
    assert_eq!(
        world.recorded(),
        [
            "AuthorityAnnounced",
            "BundleInjected",
            "AuthorityConfirmed",
            "CertificateIssued"
        ],
        "at two thirds of 90 minutes"
    );
    assert_eq!(world.bundles().await[0].matches("BEGIN").count(), 2);
    pass(6 * 60).await;
    assert_eq!(world.recorded(), ["AuthorityRetired", "BundleInjected"]);
    assert_eq!(world.bundles().await[0].matches("BEGIN").count(), 1);
    world.check(&[&first, &second]).await;
}

#[tokio::test(start_paused = true)]
async fn a_secret_of_another_program_is_left_alone_and_an_empty_one_is_filled() {
    let world = World::new().await;
    let make = async |data: serde_json::Value| {
        let object: Secret = serde_json::from_value(json!({
            "metadata": {"name": &*secret().name, "namespace": "hbox"}, "data": data,
        }))
        .unwrap();
        world.client.create(&object).await.unwrap();
    };
    make(json!({"tls.crt": "eA=="})).await;
    let replica = world.replica(Lifetimes::default());
    pass(60).await;
    assert_eq!(world.data().await.len(), 1);
    let problem = (replica.ready)().unwrap_err();
    assert!(problem.contains("has data and not the label"), "{problem}");
    assert_eq!(
        world.recorded(),
        ["ConfigurationNotFound", "RotationFailed"],
        "once each"
    );
    world
        .client
        .delete::<Secret>(&secret(), &DeleteParams::default())
        .await
        .unwrap();
    make(json!({})).await;
    pass(60).await;
    world.check(&[&replica]).await;
}

#[tokio::test(start_paused = true)]
async fn metrics_show_the_end_and_a_failed_renewal_is_warned_of_before_it() {
    let world = World::new().await;
    let mut registry = prometheus_client::registry::Registry::default();
    let hour = Duration::from_secs(3600);
    let rotation = Rotation::new(world.client.clone(), "hbox", "guard")
        .lifetimes(Lifetimes::default().leaf(hour * 6))
        .clock(world.clock.clone())
        .journal(world.journal.clone())
        .metrics(RotationMetrics::register(&mut registry));
    let _task = AbortOnDropHandle::new(tokio::spawn(rotation.run(CancellationToken::new())));
    pass(45).await;
    let start = 1_800_000_000;
    let value = |name: &str| -> i64 {
        let text = reeve_serve::metrics::encode(&registry);
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let end = value("reeve_webhook_certificate_not_after_seconds");
    assert!(
        (start + 6 * 3600..start + 6 * 3600 + 60).contains(&end),
        "{end}"
    );
    assert!(value("reeve_webhook_authority_not_after_seconds") > start + 3649 * 86_400);
    world.recorded();
    // Nothing can be written for five hours.
    world.server.faults().add(
        reeve_apiserver::faults::Rule::new()
            .verb("update")
            .status(503, "not now"),
    );
    pass(4 * 3600 + 60).await;
    assert_eq!(world.recorded(), ["RotationFailed"]);
    pass(3600).await;
    assert_eq!(world.recorded(), ["CertificateExpiresSoon"]);
    assert!(value("reeve_webhook_rotation_errors_total") > 100);
    world.server.faults().clear();
    pass(60).await;
    assert_eq!(world.recorded(), ["CertificateIssued"]);
}

#[tokio::test(start_paused = true)]
async fn replicas_that_start_again_are_ready_at_their_first_look() {
    let world = World::new().await;
    let first = world.replica(Lifetimes::default());
    pass(20).await;
    assert!((first.ready)().unwrap_err().contains("long enough"));
    pass(40).await;
    let leaf = first.certificates.chain();
    drop(first);
    let again = world.replica(Lifetimes::default());
    pass(1).await;
    world.check(&[&again]).await;
    assert_eq!(again.certificates.chain(), leaf);
    drop(again);
    // A manifest without bundles was applied meanwhile: what API servers see is open again.
    world.apply_manifest().await;
    let again = world.replica(Lifetimes::default());
    pass(20).await;
    assert!((again.ready)().unwrap_err().contains("long enough"));
    pass(40).await;
    world.check(&[&again]).await;
}
