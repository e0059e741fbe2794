//! A cloud that fails, throttles and loses answers, with many Services; and a process that may not act any more.

use std::sync::Arc;
use std::time::Duration;

use cloud_loadbalancer::provider::memory;
use k8s_openapi::api::core::v1::Service;
use reeve_controller::testing::Rule;
use serde_json::json;
use tokio::time::sleep;

use crate::world::{Faults, World, key, run, run_with, run_with_equal_names};

const MANY: usize = 200;

#[test]
fn two_hundred_services_converge_though_calls_fail_and_answers_are_lost() {
    run_with_equal_names(async |world: World| {
        // Five of a hundred calls fail before they take effect, and five after.
        *world.faults.lock() = Some(Faults {
            random: Arc::new(world.cluster.clock().clone()),
            percent: 5,
        });
        let running = world.start().await;
        let name = |number: usize| format!("web-{number}");
        for number in 0..MANY {
            // Without an address: to find a free one, the server would check all.
            world.service(&name(number), json!({})).await;
        }
        sleep(Duration::from_secs(600)).await;
        for number in 0..MANY {
            let name = name(number);
            if number % 4 == 0 {
                let changes = json!({"spec": "slb.s2.small", "bandwidth": "7"});
                world.annotate(&name, changes).await;
            } else if number % 4 == 1 {
                let ports = json!([{"name": "tls", "port": 443}]);
                world.patch(&name, json!({"spec": {"ports": ports}})).await;
            } else if number % 4 == 2 {
                world.delete::<Service>(&key(&name)).await;
            }
        }
        world.node("n4", json!({})).await;
        world
            .delete::<k8s_openapi::api::core::v1::Node>(&reeve_controller::ObjectKey::cluster("n1"))
            .await;
        sleep(Duration::from_secs(1200)).await;
        for number in 0..MANY {
            let name = name(number);
            let ports: &[u16] = if number % 4 == 1 { &[443] } else { &[80] };
            if number % 4 == 2 {
                assert!(world.get(&name).await.is_none(), "{name} is gone");
                continue;
            }
            let made = world
                .served(&name, ports)
                .await
                .unwrap_or_else(|why| panic!("{name}: {why}"));
            if number % 4 == 0 {
                assert_eq!(
                    (&*made.about.spec, made.about.internet.bandwidth),
                    ("slb.s2.small", 7)
                );
            }
        }
        assert_eq!(world.cloud.all().len(), MANY - MANY / 4, "no leak");
        assert_eq!(world.cloud.created(), MANY, "no second load balancer");
        assert_eq!(world.effects.violations(), [] as [String; 0]);
        running.end().await;
    });
}

#[test]
fn a_throttled_cloud_is_called_again_after_the_time_it_asks_for() {
    let throttled = memory::Settings {
        calls_per_second: Some(5),
        ..memory::Settings::default()
    };
    run_with(throttled, async |world: World| {
        let running = world.start().await;
        for number in 0..20 {
            world.service(&format!("web-{number}"), json!({})).await;
        }
        for number in 0..20 {
            world.until_served(&format!("web-{number}"), &[80]).await;
        }
        assert_eq!(world.cloud.created(), 20);
        running.end().await;
    });
}

#[test]
fn a_process_that_lost_the_lease_changes_nothing_and_the_next_one_goes_on() {
    run(async |world: World| {
        let first = world.start_copy("a").await;
        world.service("web", json!({})).await;
        world.until_served("web", &[80]).await;
        let second = world.start_copy("b").await;
        world.quiet().await;
        world.changes();
        let leases = Rule::new()
            .verb("update")
            .resource("leases")
            .status(503, "later");
        let away = world.cluster.faults().add(leases);
        // The lease is not renewed for longer than its holder may rely on it.
        sleep(Duration::from_secs(20)).await;
        world.service("api", json!({})).await;
        world.annotate("web", json!({"spec": "slb.s2.small"})).await;
        world.quiet().await;
        assert_eq!(world.changes(), [] as [&str; 0]);
        assert!(first.is_over() && !second.is_over());
        away.remove();
        world.until_served("api", &[80]).await;
        let size = async || world.only("web").await.about.spec;
        world
            .cluster
            .eventually_eq("the size is set", "slb.s2.small", size)
            .await;
        assert_eq!(world.cloud.created(), 2);
        second.end().await;
    });
}
