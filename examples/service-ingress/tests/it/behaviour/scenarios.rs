//! The four scenarios of the original program, undisturbed and with a disturbance between any two steps.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;

use crate::behaviour::world::World;

/// The disturbance between two steps.
#[derive(Clone, Copy, Debug)]
enum Disturbance {
    None,
    /// Every watch ends, and resumes.
    Dropped,
    /// Every watch ends, and the history for its resume is removed: the caches list again.
    Forgotten,
    /// The server is down for half a minute, and the step comes the moment it is back.
    Away,
}

impl Disturbance {
    async fn happen(self, world: &World) {
        match self {
            Self::None => {}
            Self::Dropped => world.server.close_watches(),
            Self::Forgotten => {
                world.server.forget_history(None);
                world.server.close_watches();
            }
            Self::Away => {
                world.server.go_down();
                tokio::time::sleep(Duration::from_secs(30)).await;
                world.server.come_up();
            }
        }
    }
}

async fn scenarios(world: World, disturbance: Disturbance) {
    let program = world.start().await;
    program.ready(&world).await;
    let between = async || disturbance.happen(&world).await;

    // The annotation creates an Ingress.
    world.service("nginx-pod-demo", None).await;
    world.quiet().await;
    assert!(
        world.ingress("nginx-pod-demo").await.is_none(),
        "without an annotation"
    );
    between().await;
    world.annotate("nginx-pod-demo", Some("on")).await;
    let first = world.until_ingress("nginx-pod-demo").await;
    let spec = first.spec.as_ref().unwrap();
    assert_eq!(spec.ingress_class_name.as_deref(), Some("nginx"));
    assert_eq!(
        spec.rules.as_ref().unwrap()[0].host.as_deref(),
        Some("example.com")
    );

    // Without the annotation the Ingress is deleted.
    between().await;
    world.annotate("nginx-pod-demo", None).await;
    world.until_no_ingress("nginx-pod-demo").await;

    // A deleted Ingress is created again.
    between().await;
    world.annotate("nginx-pod-demo", Some("on")).await;
    let second = world.until_ingress("nginx-pod-demo").await;
    between().await;
    world.delete::<Ingress>("nginx-pod-demo").await;
    let third = world.until_ingress("nginx-pod-demo").await;
    assert_ne!(second.metadata.uid, third.metadata.uid, "{disturbance:?}");

    // With the Service the Ingress is deleted.
    between().await;
    world.delete::<Service>("nginx-pod-demo").await;
    world.until_no_ingress("nginx-pod-demo").await;
    world.quiet().await;
    assert!(
        world.ingress("nginx-pod-demo").await.is_none(),
        "{disturbance:?}"
    );
    assert_eq!(
        world.done("create"),
        3,
        "{disturbance:?}: one for each missing Ingress"
    );
    program.end().await;
}

async fn the_four_scenarios(world: World) {
    scenarios(world, Disturbance::None).await;
}

async fn the_four_scenarios_with_watches_dropped(world: World) {
    scenarios(world, Disturbance::Dropped).await;
}

async fn the_four_scenarios_with_watches_dropped_and_history_forgotten(world: World) {
    scenarios(world, Disturbance::Forgotten).await;
}

async fn the_four_scenarios_with_a_server_that_was_down(world: World) {
    scenarios(world, Disturbance::Away).await;
}

on_both_forms!(
    the_four_scenarios,
    the_four_scenarios_with_watches_dropped,
    the_four_scenarios_with_watches_dropped_and_history_forgotten,
    the_four_scenarios_with_a_server_that_was_down,
);
