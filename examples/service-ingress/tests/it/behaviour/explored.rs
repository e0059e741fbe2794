//! Both forms under every fault that the explorer tries: `REEVE_EXPLORE_SECONDS` is how long for each, by default 5.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use reeve_controller::testing::explore::{Explorer, Process, World};
use serde_json::{Value, json};
use service_ingress::desired::ANNOTATION;
use service_ingress::{Form, Settings, build};

fn service(annotated: &str) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": "web", "annotations": {ANNOTATION: annotated}},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}},
    })
}

/// A Service with the annotation, without it, with it again, and another Service of the name.
async fn scenario(world: &World<()>) {
    world.create::<Service>(service("true")).await;
    world.settle().await;
    for annotated in [Value::Null, json!("true")] {
        let patch = json!({"metadata": {"annotations": {ANNOTATION: annotated}}});
        world.patch::<Service>("default", "web", patch).await;
        world.settle().await;
    }
    world.delete::<Service>("default", "web").await;
    world.settle().await;
    world.create::<Service>(service("true")).await;
    world.settle().await;
}

fn explored(form: Form) {
    let seconds = std::env::var("REEVE_EXPLORE_SECONDS").ok();
    let seconds = seconds.map_or(5, |text| text.parse().expect("a number of seconds"));
    let explorer = Explorer::of_manager(move |process: Process<()>| {
        Box::pin(async move {
            let manager = build(process.manager(), Settings::new(form)).await;
            manager.unwrap()
        })
    });
    let explorer = explorer.at_rest("the Service has its Ingress", |state, ()| {
        state.of("ingresses").len() == 1
    });
    explorer
        .budget(usize::MAX, Duration::from_secs(seconds))
        .drawn(u64::MAX)
        .check(scenario);
}

#[test]
fn the_form_by_hand_is_right_after_every_fault() {
    explored(Form::Raw);
}

#[test]
fn the_form_with_the_builder_is_right_after_every_fault() {
    explored(Form::Managed);
}
