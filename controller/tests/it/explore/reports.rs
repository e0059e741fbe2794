//! What an exploration says about itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// Without faults the Secret is there a moment later; after a crash it is not.
async fn impatient(world: &World<()>) {
    let map = json!({"metadata": {"name": "a", "namespace": "default"}});
    world.create::<ConfigMap>(map).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let secret = ObjectKey::namespaced("default", "a");
    let made = world.client().get::<Secret>(&secret).await;
    assert!(made.is_ok(), "the Secret is late");
}

fn plan(text: &str) -> Plan {
    text.parse().unwrap()
}

#[test]
fn a_step_that_fails_under_a_plan_is_reported_with_the_plan_and_the_timeline() {
    let crash = plan("crash-before P1 create secrets default/a 1");
    let report = explorer().first([crash.clone()]).run(impatient);
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
    assert_eq!((report.tried, report.unreached), (5, 1));
    let text = report.to_string();
    assert!(text.contains("5 of "), "{text}");
    let end = "1 had a fault whose point was not reached; nothing goes wrong; \
        the plan lose P1 create secrets default/b 1 is not reached any more: lose P1 create secrets default/b 1";
    assert!(text.ends_with(end), "{text}");
}

#[test]
#[should_panic(expected = "the budget ended before the first plan")]
fn a_budget_without_a_plan_is_an_error() {
    explorer().budget(0, Duration::MAX).check(scenario);
}

#[test]
fn a_plan_that_fails_is_kept_and_tried_first() {
    let file = std::env::temp_dir().join(format!("reeve-plans-{}", std::process::id()));
    std::fs::write(&file, "# an old one\nlose P1 create secrets default/a 1\n").unwrap();
    let explorer = || explorer().remember(&file);
    let found = explorer().run(impatient);
    let plan = found.failures[0].plan.clone();
    let again = explorer().run(impatient);
    // The old plan does not fail.
    assert_eq!(
        (again.failures[0].tried, &again.failures[0].plan),
        (2, &plan)
    );
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let rule = "# no step of the scenario panics";
    assert_eq!(lines[2..], [rule, &plan.to_string()]);
    std::fs::write(&file, "lose\n").unwrap();
    let wrong = std::panic::catch_unwind(|| explorer().run(scenario)).unwrap_err();
    let wrong = wrong.downcast_ref::<String>().unwrap();
    assert!(wrong.contains("\"lose\" is not a fault"), "{wrong}");
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn plans_of_several_faults_are_drawn_after_all_others() {
    let explorer = explorer().pairs(false).budget(usize::MAX, Duration::MAX);
    let (without, with) = (explorer.run(scenario), explorer.drawn(9).run(scenario));
    assert_eq!(with.tried, without.tried + 9);
    assert!(with.failures.is_empty(), "{with}");
}

#[test]
fn faults_of_a_kind_are_left_out_alone_in_plans_of_two_and_in_drawn_ones() {
    assert_eq!(explorer().run(impatient).failures.len(), 1);
    let starts = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&starts);
    let explorer = Explorer::new(move |_: &Process<()>| {
        count.fetch_add(1, Ordering::Relaxed);
        vec![copier()]
    });
    let crashes = ["crash-before", "crash-after", "stale", "behind"];
    let report = explorer.without(crashes).drawn(20).run(scenario);
    assert!(report.failures.is_empty(), "{report}");
    // A process that does not crash starts once a run, and again at the end of the second run without faults. A write that is refused
    // is repeated, and the explorer would try a crash at that.
    assert_eq!(starts.load(Ordering::Relaxed), report.runs + 1, "{report}");
}

#[test]
#[should_panic(expected = "faults of the scenario are left out: nothing would be tried")]
fn a_scenario_without_any_fault_left_is_an_error() {
    let kinds = [
        "crash-before",
        "crash-after",
        "lose",
        "refuse",
        "hold",
        "hold-on",
        "stale",
        "behind",
    ];
    explorer().without(kinds).run(scenario);
}

#[test]
#[should_panic(expected = "loose is no kind of faults: crash-before, crash-after, lose,")]
fn a_kind_of_faults_that_does_not_exist_is_an_error() {
    let _ = explorer().without(["loose"]);
}

#[test]
fn a_value_that_is_reached_by_way_of_another_is_the_value_reached_at_once() {
    let create = async |world: &World<()>| {
        world.settle().await;
        let map = json!({"metadata": {"name": "a", "namespace": "default"}, "data": {"b": "2"}});
        world.create::<ConfigMap>(map).await;
        world.settle().await;
    };
    let change = async |world: &World<()>, data| {
        let map = json!({"metadata": {"name": "a", "namespace": "default"}, "data": {"b": "1"}});
        world.create::<ConfigMap>(map).await;
        world.settle().await;
        world
            .patch::<ConfigMap>("default", "a", json!({ "data": data }))
            .await;
        world.settle().await;
    };
    explorer().check_same(create, async |world| change(world, json!({"b": "2"})).await);
    let other =
        || explorer().check_same(create, async |world| change(world, json!({"c": "2"})).await);
    let differs = std::panic::catch_unwind(other).unwrap_err();
    let differs = differs.downcast_ref::<String>().unwrap();
    let expected = "the scenarios end differently: configmaps default/a/data/b is \"1\", and \"2\" at the end of the first scenario";
    assert!(differs.starts_with(expected), "{differs}");
}

#[test]
fn a_deletion_by_name_alone_is_noted() {
    let deleter = |_: &Process<()>| {
        let reconciler = reconcile::function(|ctx: Context, request: Request| async move {
            if ctx.lister::<Secret>()?.get(&request)?.is_some() {
                ctx.client()
                    .delete::<Secret>(&request, &Default::default())
                    .await?;
            }
            Ok::<_, reconcile::Error>(Outcome::done())
        });
        let builder = Controller::builder("deleter").for_kind::<Secret>();
        vec![builder.complete(reconciler).unwrap()]
    };
    let report = Explorer::<()>::new(deleter).run(async |world| {
        let secret = json!({"metadata": {"name": "a", "namespace": "default"}});
        world.create::<Secret>(secret).await;
        world.settle().await;
    });
    let note =
        "delete secrets default/a has no precondition: it may meet another object of that name";
    assert_eq!(report.notes, [note]);
    assert!(report.to_string().ends_with(note), "{report}");
}
