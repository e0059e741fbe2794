//! What an exploration says about itself.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use reeve_controller::testing::explore::{Explorer, Plan, Process, World};
use reeve_controller::{Context, Controller, ObjectKey, Outcome, Request, reconcile};
use serde_json::json;

/// A Secret for each ConfigMap.
fn copier() -> Controller {
    let reconciler = reconcile::function(|ctx: Context, request: Request| async move {
        let secret = ctx.lister::<Secret>()?.get(&request)?;
        if ctx.lister::<ConfigMap>()?.get(&request)?.is_some() && secret.is_none() {
            let mut secret = Secret::default();
            secret.metadata.name = Some(request.name.to_string());
            secret.metadata.namespace = request.namespace.as_deref().map(str::to_owned);
            ctx.client().create(&secret).await?;
        }
        Ok::<_, reconcile::Error>(Outcome::done())
    });
    let builder = Controller::builder("copier").for_kind::<ConfigMap>();
    let builder = builder.watches::<Secret>(reeve_controller::handler::for_object());
    builder.complete(reconciler).unwrap()
}

fn explorer() -> Explorer {
    Explorer::new(|_: &Process<()>| vec![copier()])
}

async fn scenario(world: &World<()>) {
    let map = json!({"metadata": {"name": "a", "namespace": "default"}});
    world.create::<ConfigMap>(map).await;
    world.settle().await;
}

fn plan(text: &str) -> Plan {
    text.parse().unwrap()
}

#[test]
fn a_step_that_fails_under_a_plan_is_reported_with_the_plan_and_the_timeline() {
    let crash = plan("crash-before P1 create secrets default/a 1");
    let report = explorer().first([crash.clone()]).run(async |world| {
        let map = json!({"metadata": {"name": "a", "namespace": "default"}});
        world.create::<ConfigMap>(map).await;
        // Without faults the Secret is there a moment later; after a crash it is not.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let secret = ObjectKey::namespaced("default", "a");
        let made = world.client().get::<Secret>(&secret).await;
        assert!(made.is_ok(), "the Secret is late");
    });
    let broken = &report.failures[0];
    assert_eq!(broken.plan, crash);
    assert_eq!(broken.wrong.rule, "no step of the scenario panics");
    assert_eq!(broken.wrong.how, "the Secret is late");
    assert!(broken.timeline.to_string().contains("FAULT crash-before"));
}

#[test]
#[should_panic(
    expected = "does not reach the point of the fault: lose P1 create secrets default/b 1"
)]
fn a_plan_alone_that_the_run_does_not_reach_is_an_error() {
    let lose = plan("lose P1 create secrets default/b 1");
    explorer().only(lose).check(scenario);
}

#[test]
fn plans_that_the_run_does_not_reach_are_counted() {
    let lose = plan("lose P1 create secrets default/b 1");
    let report = explorer()
        .first([lose])
        .budget(5, Duration::MAX)
        .run(scenario);
    assert_eq!((report.tried, report.unreached), (3, 1));
    assert!(report.to_string().contains("3 of "), "{report}");
    assert!(
        report
            .to_string()
            .ends_with("1 had a fault whose point was not reached; nothing goes wrong"),
        "{report}"
    );
}

#[test]
#[should_panic(expected = "the budget ended before the first plan")]
fn a_budget_without_a_plan_is_an_error() {
    explorer().budget(2, Duration::MAX).check(scenario);
}
