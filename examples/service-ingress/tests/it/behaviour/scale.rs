//! Many Services, and many workers.

use std::collections::BTreeMap;

use futures::StreamExt;
use futures::stream;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use kube_core::params::ListParams;
use reeve_clock::Clock;
use serde_json::json;
use service_ingress::Form;
use service_ingress::desired::ANNOTATION;

use crate::behaviour::world::World;

const MANY: usize = 1000;

async fn ingresses(world: &World) -> usize {
    let all = world
        .client
        .list::<Ingress>(None, &ListParams::default())
        .await
        .unwrap();
    all.items.len()
}

/// Creations of the program by name, including refused ones.
fn creations(world: &World) -> BTreeMap<String, usize> {
    let mut creations = BTreeMap::new();
    for request in world.requests() {
        if request.verb == "create" && request.resource == "ingresses" {
            let object: Ingress = serde_json::from_slice(&request.body).unwrap();
            *creations.entry(object.metadata.name.unwrap()).or_default() += 1;
        }
    }
    creations
}

async fn a_thousand_services_converge_with_one_creation_each(world: World) {
    let program = world.start().await;
    program.ready(&world).await;
    for number in 0..MANY {
        // Without an address: to find a free one, the server would check all.
        let service = json!({
            "metadata": {"namespace": "default", "name": format!("web-{number}"), "annotations": {ANNOTATION: "on"}},
            "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
        });
        let _: Service = world.create(service).await;
        if number % 100 == 0 {
            world.server.close_watches();
        }
    }
    world
        .until("each has its Ingress", async |world| {
            ingresses(world).await == MANY
        })
        .await;
    world.quiet().await;
    let made = creations(&world);
    assert_eq!(made.len(), MANY);
    assert!(
        made.values().all(|creations| *creations == 1),
        "one each: {made:?}"
    );
    // The log of requests is limited to 10,000.
    world.server.requests().clear();
    for number in 0..MANY {
        world.annotate(&format!("web-{number}"), None).await;
        if number % 100 == 50 {
            world.server.close_watches();
        }
    }
    world
        .until("none has one", async |world| ingresses(world).await == 0)
        .await;
    world.quiet().await;
    assert_eq!((world.done("create"), world.done("delete")), (0, MANY));
    program.end().await;
}

on_both_forms!(a_thousand_services_converge_with_one_creation_each);

/// On real threads: eight workers, and sixteen clients that change the annotation repeatedly.
async fn eight_workers_race(form: Form) {
    let world = World::with(form, Clock::system(), |server| server).await;
    let program = world.start().await;
    for number in 0..16 {
        world.service(&format!("web-{number}"), None).await;
    }
    stream::iter(0..16)
        .for_each_concurrent(16, |number| {
            let world = &world;
            async move {
                let name = format!("web-{number}");
                for round in 0..20 {
                    let wanted = (round + number) % 3 != 0;
                    world.annotate(&name, wanted.then_some("on")).await;
                    if round % 5 == 4 && world.ingress(&name).await.is_some() {
                        // It may already be deleted.
                        let _ = world
                            .client
                            .delete::<Ingress>(
                                &crate::behaviour::world::key(&name),
                                &Default::default(),
                            )
                            .await;
                    }
                }
            }
        })
        .await;
    let expected = (0..16).filter(|number| (19 + number) % 3 != 0).count();
    let settled = async |world: &World| {
        for number in 0..16 {
            let there = world.ingress(&format!("web-{number}")).await.is_some();
            if there != ((19 + number) % 3 != 0) {
                return false;
            }
        }
        true
    };
    world
        .until("each Ingress matches the last annotation", settled)
        .await;
    assert_eq!(ingresses(&world).await, expected);
    for number in 0..16 {
        let reasons = world.event_reasons(&format!("web-{number}")).await;
        let bad = reasons
            .iter()
            .find(|reason| ["SyncFailed", "IngressConflict"].contains(&reason.as_str()));
        assert_eq!(bad, None, "web-{number}");
    }
    program.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_workers_race_by_hand() {
    eight_workers_race(Form::Raw).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_workers_race_on_the_builder() {
    eight_workers_race(Form::Managed).await;
}
