//! Rules about what happens in a run, and the plans that are not tried.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use reeve_controller::client::Patch;
use reeve_controller::testing::explore::{Explorer, Plan, Process, World};
use reeve_controller::{Context, Controller, ObjectKey, Outcome, Request, reconcile};
use serde_json::json;

fn controller<F, Fut>(reconcile: F) -> Vec<Controller>
where
    F: Fn(Context, Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = reconcile::Result> + Send + 'static,
{
    let builder = Controller::builder("rules").for_kind::<ConfigMap>();
    vec![builder.complete(reconcile::function(reconcile)).unwrap()]
}

fn secret(request: &Request, suffix: &str) -> Secret {
    let mut secret = Secret::default();
    secret.metadata.name = Some(format!("{}{suffix}", request.name));
    secret.metadata.namespace = request.namespace.as_deref().map(str::to_owned);
    secret
}

async fn scenario<S>(world: &World<S>) {
    let map = json!({"metadata": {"name": "a", "namespace": "default"}});
    world.create::<ConfigMap>(map).await;
    world.settle().await;
}

#[test]
fn what_happens_once_without_faults_and_twice_after_a_lost_answer_breaks_the_rule() {
    let explorer = Explorer::<bool>::new(|process: &Process<bool>| {
        let outside = process.outside();
        controller(move |ctx, request| {
            let outside = outside.clone();
            async move {
                if ctx.client().get::<Secret>(&request).await.is_ok() {
                    return Ok(Outcome::done());
                }
                // The state outside is the same, however often it is bought.
                let bought = outside.call("buy a", |bought| *bought = true);
                bought.await.map_err(reconcile::Error::outage)?;
                ctx.client().create(&secret(&request, "")).await?;
                Ok(Outcome::done())
            }
        })
    });
    let once = |what: &str| what.strip_prefix("call buy ").map(str::to_owned);
    let report = explorer
        .at_most_once("each is bought once", once)
        .run(scenario);
    let broken = &report.failures[0];
    assert_eq!(broken.plan.to_string(), "crash-after P1 call buy a 1");
    assert_eq!(broken.wrong.rule, "each is bought once");
    assert_eq!(broken.wrong.how, "a happened twice");
}

#[test]
fn conflicts_beyond_the_limit_are_found() {
    let explorer = || {
        Explorer::<()>::new(|_| {
            controller(|ctx, request| async move {
                let Some(map) = ctx.lister::<ConfigMap>()?.get(&request)? else {
                    return Ok(Outcome::done());
                };
                if map.data.is_some() {
                    return Ok(Outcome::done());
                }
                let mut changed = ConfigMap::clone(&map);
                changed.data = Some([("b".to_owned(), "1".to_owned())].into());
                ctx.client().update(&changed).await?;
                // The version that was read is not the newest any more.
                let again = ctx.client().update(&changed).await;
                assert!(again.is_err());
                Ok(Outcome::done())
            })
        })
    };
    let only = |explorer: Explorer| explorer.only(Plan::default()).run(scenario);
    let report = only(explorer().conflicts(0));
    assert_eq!(
        (
            &*report.failures[0].wrong.rule,
            &*report.failures[0].wrong.how
        ),
        ("a run meets at most 0 conflicts", "it met 1")
    );
    let report = only(explorer().conflicts(1));
    assert!(report.failures.is_empty(), "{report}");
}

#[test]
fn work_that_comes_too_late_after_its_step_is_found() {
    let explorer = || {
        Explorer::<()>::new(|_| {
            let waited = AtomicBool::new(false);
            controller(move |ctx, request| {
                let first = !waited.swap(true, Ordering::Relaxed);
                async move {
                    if first {
                        return Ok(Outcome::requeue_after(Duration::from_secs(40)));
                    }
                    if ctx.client().get::<Secret>(&request).await.is_err() {
                        ctx.client().create(&secret(&request, "")).await?;
                    }
                    Ok(Outcome::done())
                }
            })
        })
    };
    let within = |seconds| {
        let explorer = explorer().settles_within(Duration::from_secs(seconds));
        explorer.only(Plan::default()).run(scenario)
    };
    let report = within(30);
    let wrong = &report.failures[0].wrong;
    assert_eq!(wrong.rule, "all is done within 30s");
    assert_eq!(wrong.how, "P1 create secrets default/a 1 came after 40s");
    let report = within(50);
    assert!(report.failures.is_empty(), "{report}");
}

#[test]
fn a_reconcile_that_panics_and_goes_well_the_next_time_is_found() {
    let report = Explorer::<()>::new(|_| {
        let panicked = AtomicBool::new(false);
        controller(move |_, _| {
            assert!(panicked.swap(true, Ordering::Relaxed), "the first time");
            async { Ok(Outcome::done()) }
        })
    })
    .run(scenario);
    let wrong = &report.failures[0].wrong;
    assert_eq!(wrong.rule, "no reconcile panics");
    assert_eq!(wrong.how, "1 did; the log has what they say");
}

#[test]
fn what_is_not_read_and_decides_is_noted() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let report = Explorer::<()>::new(|_| {
        let odd = RUNS.fetch_add(1, Ordering::Relaxed) == 0;
        controller(move |ctx, request| async move {
            if ctx.client().get::<Secret>(&request).await.is_ok() {
                return Ok(Outcome::done());
            }
            ctx.client().create(&secret(&request, "")).await?;
            if odd {
                let touch = Patch::merge(json!({"data": null}));
                ctx.client().patch::<Secret>(&request, touch).await?;
            }
            Ok(Outcome::done())
        })
    })
    .budget(1, Duration::MAX)
    .run(scenario);
    let note =
        "patch secrets default/a happens 1 times in one run without faults and 0 times in another";
    assert_eq!(report.notes, [note]);
}

fn pairs() -> Explorer {
    Explorer::new(|_| {
        controller(|ctx, request| async move {
            for suffix in ["-ca", "-key"] {
                let secret = secret(&request, suffix);
                if ctx
                    .client()
                    .get::<Secret>(&ObjectKey::of(&secret))
                    .await
                    .is_err()
                {
                    ctx.client().create(&secret).await?;
                }
            }
            Ok(Outcome::done())
        })
    })
}

#[test]
fn a_crash_that_is_the_same_as_another_is_left_out() {
    let report = pairs().pairs(false).run(scenario);
    assert!(report.failures.is_empty(), "{report}");
    // Between the two creations the process reads, and nothing happens.
    assert_eq!(report.pruned, 1, "{report}");
    assert!(
        report
            .to_string()
            .contains("1 were left out as like others")
    );
}

#[test]
fn a_restart_may_read_all_but_the_last_write() {
    let behind: Plan = "behind P1 create secrets default/a-ca 1".parse().unwrap();
    let explorer = Explorer::<()>::new(|_| {
        let builder = Controller::builder("copier").for_kind::<ConfigMap>();
        let builder = builder.owns::<Secret>();
        let reconcile = reconcile::function(|ctx: Context, request: Request| async move {
            let ca = secret(&request, "-ca");
            if ctx.lister::<Secret>()?.get(&ObjectKey::of(&ca))?.is_none() {
                let made = ctx.client().create(&ca).await;
                assert!(made.is_ok(), "it is there already");
            }
            Ok::<_, reconcile::Error>(Outcome::done())
        });
        vec![builder.complete(reconcile).unwrap()]
    });
    let report = explorer.only(behind).run(scenario);
    let broken = &report.failures[0];
    assert_eq!(broken.wrong.rule, "no reconcile panics");
    let timeline = broken.timeline.to_string();
    assert!(
        timeline.contains("create secrets default/a-ca -> 409"),
        "{timeline}"
    );
}

#[test]
fn plans_that_are_named_are_tried_whatever_the_time() {
    let first: Vec<Plan> = [
        "lose P1 create secrets default/a-ca 1",
        "refuse P1 create secrets default/a-key 1",
    ]
    .map(|text| text.parse().unwrap())
    .into();
    let report = pairs().budget(9, Duration::ZERO).run(scenario);
    assert_eq!(report.tried, 1);
    let report = pairs().first(first).budget(9, Duration::ZERO).run(scenario);
    assert_eq!(report.tried, 2);
}
