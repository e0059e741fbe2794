//! Two replicas of the guard under every fault that the explorer tries: `REEVE_EXPLORE_SECONDS` is how long, by default 10.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use preprod_guard::config::Config;
use preprod_guard::install::{self, Place};
use preprod_guard::program::{self, Settings};
use reeve_client::{Client, ObjectKey, Patch};
use reeve_controller::testing::explore::{Explorer, Process, State, World};
use reeve_webhook::Server;
use serde_json::{Value, json};

const NAMESPACE: &str = "preprod-guard";

fn config() -> Config {
    Config::parse("name: hbox\ncallers:\n  users: [hbox-pre]\n").unwrap()
}

fn secret(state: &State) -> Option<&Value> {
    let mut secrets = state.of("secrets").iter();
    secrets.find(|secret| secret["metadata"]["namespace"] == NAMESPACE)
}

fn explorer() -> Explorer {
    let explorer = Explorer::of_manager(|process: Process<()>| {
        Box::pin(async move {
            let client = Client::new(process.kube()).with_clock(process.clock().clone());
            let server = Server::at(([127, 0, 0, 1], 0).into());
            let mut settings = Settings::new(config());
            settings.clock = process.clock().clone();
            settings.audit = Some("/dev/null".into());
            let manager = program::build(process.manager(), server, client, settings);
            manager.await.unwrap()
        })
    });
    let explorer = explorer
        .processes(2)
        .given::<Namespace>(json!({"metadata": {"name": NAMESPACE}}));
    explorer.at_rest(
        "every webhook has the authorities of the Secret",
        |state, ()| {
            let Some(secret) = secret(state) else {
                return false;
            };
            let authorities = secret["data"]["ca.crt"].as_str().unwrap_or_default();
            let configurations = state.of("validatingwebhookconfigurations");
            let webhooks = configurations
                .iter()
                .flat_map(|one| one["webhooks"].as_array().unwrap());
            let mut bundles = webhooks.map(|webhook| webhook["clientConfig"]["caBundle"].as_str());
            configurations.len() == 2
                && !authorities.is_empty()
                && bundles.all(|bundle| bundle == Some(authorities))
        },
    )
}

/// The installation; someone deletes the Secret; someone applies a configuration without its authorities.
async fn scenario(world: &World<()>) {
    let configurations = install::configurations(&config(), &Place::Service, &[]);
    for configuration in &configurations {
        world
            .create::<ValidatingWebhookConfiguration>(configuration.clone())
            .await;
    }
    world.settle().await;
    let name = format!("{NAMESPACE}-webhook-certificates");
    world.delete::<Secret>(NAMESPACE, &name).await;
    world.settle().await;
    let name = configurations[0]["metadata"]["name"].as_str().unwrap();
    let webhooks = json!({"webhooks": configurations[0]["webhooks"]});
    let client = world.client();
    let key = ObjectKey::cluster(name);
    let patch = Patch::merge(webhooks);
    let patched = client.patch::<ValidatingWebhookConfiguration>(&key, patch);
    patched.await.unwrap();
    world.settle().await;
}

#[test]
fn the_certificates_of_two_replicas_are_right_after_every_fault() {
    let seconds = std::env::var("REEVE_EXPLORE_SECONDS").ok();
    let seconds = seconds.map_or(10, |text| text.parse().expect("a number of seconds"));
    explorer()
        .budget(usize::MAX, Duration::from_secs(seconds))
        .spread()
        .drawn(u64::MAX)
        .quiet(Duration::from_secs(30))
        .check(scenario);
}
