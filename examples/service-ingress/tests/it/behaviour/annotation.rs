//! The values of the annotation, from the outside.

use k8s_openapi::api::core::v1::{Namespace, Service};
use serde_json::json;
use service_ingress::desired::ANNOTATION;

use crate::behaviour::world::World;

async fn the_settings_in_an_annotation_are_followed(world: World) {
    let program = world.start().await;
    world
        .service("web", Some("host=a.example.com,path=/x,class=traefik"))
        .await;
    let ingress = serde_json::to_value(world.until_ingress("web").await).unwrap();
    assert_eq!(ingress["spec"]["ingressClassName"], "traefik");
    assert_eq!(ingress["spec"]["rules"][0]["host"], "a.example.com");
    assert_eq!(
        ingress["spec"]["rules"][0]["http"]["paths"][0]["path"],
        "/x"
    );
    world.annotate("web", Some("on")).await;
    let default = async |world: &World| {
        let ingress = serde_json::to_value(world.ingress("web").await).unwrap();
        ingress.pointer("/spec/rules/0/host") == Some(&json!("example.com"))
    };
    world.until("it is the default Ingress", default).await;
    program.end().await;
}

async fn a_mistake_causes_an_event_and_an_ingress_that_serves_stays(world: World) {
    let program = world.start().await;
    world.service("web", Some("host=a.example.com")).await;
    world.service("new", Some("host=A,path=/x")).await;
    world.service("udp", Some("on")).await;
    world.until_ingress("web").await;
    world.until_ingress("udp").await;
    world
        .annotate("web", Some("host=a.example.com,pth=/x"))
        .await;
    world
        .patch::<Service>(
            "udp",
            json!({"spec": {"ports": [{"port": 53, "protocol": "UDP"}]}}),
        )
        .await;
    for name in ["web", "new", "udp"] {
        world.until_event(name, "InvalidService").await;
    }
    world.quiet().await;
    let host = serde_json::to_value(world.ingress("web").await).unwrap();
    assert_eq!(
        host.pointer("/spec/rules/0/host"),
        Some(&json!("a.example.com"))
    );
    assert!(world.ingress("new").await.is_none());
    assert!(world.ingress("udp").await.is_some());
    assert_eq!(
        (
            world.done("create"),
            world.done("patch"),
            world.done("delete")
        ),
        (2, 0, 0)
    );
    world
        .annotate("new", Some("host=a.example.com,path=/x"))
        .await;
    world.until_ingress("new").await;
    program.end().await;
}

/// `--watch-namespace`: objects of other namespaces are not requested.
async fn the_program_stays_in_the_one_namespace_that_is_named(world: World) {
    let builder = world.builder().namespace("default");
    let program = world.run(builder, world.settings()).await;
    program.ready(&world).await;
    let annotations = json!({ANNOTATION: "on"});
    let _: Namespace = world.create(json!({"metadata": {"name": "other"}})).await;
    let _: Service = world
        .create(json!({
            "metadata": {"namespace": "other", "name": "web", "annotations": annotations},
            "spec": {"ports": [{"port": 80}]},
        }))
        .await;
    world.service("web", Some("on")).await;
    world.until_ingress("web").await;
    world.quiet().await;
    assert_eq!(world.done("create"), 1);
    let kinds = ["services", "ingresses"];
    for request in world.requests() {
        if kinds.contains(&request.resource.as_str()) {
            assert!(request.path.contains("/namespaces/default/"), "{request}");
        }
    }
    program.end().await;
}

/// `--watch-namespace=default,shop`: no request and no write concerns another namespace.
async fn the_program_stays_in_the_two_namespaces_that_are_named(world: World) {
    let builder = world.builder().namespace("default").namespace("shop");
    for name in ["shop", "other"] {
        let _: Namespace = world.create(json!({"metadata": {"name": name}})).await;
    }
    let program = world.run(builder, world.settings()).await;
    program.ready(&world).await;
    for name in ["other", "shop"] {
        let _: Service = world
            .create(json!({
                "metadata": {"namespace": name, "name": "web", "annotations": {ANNOTATION: "on"}},
                "spec": {"ports": [{"port": 80}]},
            }))
            .await;
    }
    world.service("web", Some("on")).await;
    world.until_ingress("web").await;
    world.quiet().await;
    assert_eq!(world.done("create"), 2);
    let kinds = ["services", "ingresses"];
    for request in world.requests() {
        if kinds.contains(&request.resource.as_str()) {
            let named = ["/namespaces/default/", "/namespaces/shop/"];
            let named = named.iter().any(|name| request.path.contains(name));
            assert!(named, "{request}");
        }
    }
    program.end().await;
}

on_both_forms!(
    the_program_stays_in_the_one_namespace_that_is_named,
    the_program_stays_in_the_two_namespaces_that_are_named,
    the_settings_in_an_annotation_are_followed,
    a_mistake_causes_an_event_and_an_ingress_that_serves_stays,
);
