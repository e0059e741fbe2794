//! Explores a small controller, and prints how many plans a second one core tries:
//! `cargo run --release -p reeve-controller --features testing --example explore_faults`.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use reeve_controller::testing::explore::{Explorer, Process};
use reeve_controller::{Context, Controller, Outcome, Request, handler, reconcile};
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
    let builder = builder.watches::<Secret>(handler::for_object());
    builder.complete(reconciler).expect("a controller")
}

#[allow(clippy::print_stdout, reason = "the result of the program")]
fn main() {
    let explorer = Explorer::new(|_: &Process<()>| vec![copier()]);
    let explorer = explorer
        .drawn(u64::MAX)
        .budget(usize::MAX, Duration::from_secs(60));
    // The scenario is small, and so is the number of its plans: it is explored until there were enough runs to count.
    let (mut runs, mut took) = (0, Duration::ZERO);
    while runs < 2_000 {
        let report = explorer.run(async |world| {
            let map = json!({"metadata": {"name": "a", "namespace": "default"}});
            world.create::<ConfigMap>(map).await;
            world.settle().await;
        });
        println!("{report}");
        runs += report.runs;
        took += report.took;
    }
    let rate = runs as f64 / took.as_secs_f64();
    println!("{runs} runs, {rate:.0} a second");
}
