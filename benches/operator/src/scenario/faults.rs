//! A gateway that fails, an API server that is down, an operator that is killed.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{create_all, due, until};
use crate::bench::Bench;
use crate::blocks::{self, Result, Watched};
use crate::gateway::Mode;

pub(crate) async fn gateway_faults(bench: &mut Bench, count: usize) -> Result<()> {
    let name = bench.name.clone();
    for (label, mode) in [
        ("500", Mode::Fail),
        ("refuses", Mode::Refuse),
        ("hangs 30 s", Mode::Hang),
    ] {
        let watched = Watched::start(&bench.client).await?;
        bench.gateway.set_mode(mode).await?;
        let mut subject = bench.start().await?;
        create_all(bench, "fault", count, "1h").await?;
        sleep(Duration::from_secs(if mode == Mode::Hang {
            30
        } else {
            10
        }))
        .await;
        bench.gateway.set_mode(Mode::Serve).await?;
        let recovered = Instant::now();
        let all = until(&mut subject, Duration::from_secs(45), || {
            watched.in_phase("active") >= count
        })
        .await;
        let active = watched.in_phase("active");
        bench.report.add(
            "gateway",
            &format!("{label}: active within 45 s of recovery, of {count}"),
            &name,
            active as f64,
            "",
        );
        if all.is_ok() {
            bench.report.add(
                "gateway",
                &format!("{label}: all active after recovery"),
                &name,
                recovered.elapsed().as_secs_f64(),
                "s",
            );
        }
        bench.finish(subject).await?;
    }

    // Resets: how often is a dead gateway called?
    bench.gateway.set_mode(Mode::Reset).await?;
    let subject = bench.start().await?;
    create_all(bench, "reset", 10, "1h").await?;
    sleep(Duration::from_secs(30)).await;
    bench.report.add(
        "gateway",
        "resets: calls in 30 s for 10 blocks",
        &name,
        bench.gateway.touched() as f64,
        "",
    );
    bench.gateway.set_mode(Mode::Serve).await?;
    bench.finish(subject).await?;

    // A failure at expiry: the ban must still be lifted.
    let watched = Watched::start(&bench.client).await?;
    let mut subject = bench.start().await?;
    create_all(bench, "expiry", count, "5s").await?;
    until(&mut subject, Duration::from_secs(30), || {
        watched.reached("active").len() >= count
    })
    .await?;
    bench.gateway.set_mode(Mode::Fail).await?;
    sleep(Duration::from_secs(12)).await;
    bench.gateway.set_mode(Mode::Serve).await?;
    let gateway = &bench.gateway;
    let _ = until(&mut subject, Duration::from_secs(45), || {
        gateway.enforced().is_empty()
    })
    .await;
    bench.report.add(
        "gateway",
        &format!("500 at expiry: still banned 45 s after recovery, of {count}"),
        &name,
        bench.gateway.enforced().len() as f64,
        "",
    );
    bench.finish(subject).await
}

pub(crate) async fn api_down(bench: &mut Bench, count: usize) -> Result<()> {
    let name = bench.name.clone();
    let mut subject = bench.start().await?;
    create_all(bench, "down", count, "15s").await?;
    sleep(Duration::from_millis(300)).await;
    bench.cluster.stop_apiserver();
    sleep(Duration::from_secs(10)).await;
    bench.cluster.start_apiserver().await?;
    let watched = Watched::start(&bench.client).await?;
    // Every block was due long before: a block that is not expired now is stuck.
    let gateway = &bench.gateway;
    let _ = until(&mut subject, Duration::from_secs(60), || {
        gateway.enforced().is_empty()
    })
    .await;
    sleep(Duration::from_secs(5)).await;
    drop(watched);
    let stuck = blocks::list(&bench.client)
        .await?
        .iter()
        .filter(|object| object["status"]["phase"].as_str() != Some("expired"))
        .count();
    bench.report.add(
        "API down",
        &format!("still not expired, of {count}"),
        &name,
        stuck as f64,
        "",
    );
    bench.report.add(
        "API down",
        "bans left at the gateway",
        &name,
        bench.gateway.enforced().len() as f64,
        "",
    );
    bench.finish(subject).await
}

pub(crate) async fn kill(bench: &mut Bench, count: usize) -> Result<()> {
    let name = bench.name.clone();
    let watched = Watched::start(&bench.client).await?;
    let mut subject = bench.start().await?;
    create_all(bench, "kill", count, "10s").await?;
    until(&mut subject, Duration::from_secs(60), || {
        watched.in_phase("active") >= count
    })
    .await?;
    subject.kill().await?;
    // The operator is down for half of the time left: some blocks fall due before the restart, some after it.
    sleep(Duration::from_secs(6)).await;
    let restarted = bench.wall(Instant::now());
    let mut subject = bench.start_again().await?;
    let gateway = &bench.gateway;
    let _ = until(&mut subject, Duration::from_secs(40), || {
        gateway.enforced().is_empty()
    })
    .await;
    bench.report.add(
        "kill -9",
        &format!("bans never lifted, of {count}"),
        &name,
        bench.gateway.enforced().len() as f64,
        "",
    );
    let lifts = bench.gateway.last_lifts();
    let mut late = Vec::new();
    for object in blocks::list(&bench.client).await? {
        let (Some(ip), Some(due)) = (
            object["spec"]["ip"].as_str(),
            due(&object, Duration::from_secs(10)),
        ) else {
            continue;
        };
        if let Some(at) = lifts.get(ip) {
            let from = due.max(restarted);
            late.push(Duration::try_from(bench.wall(*at).duration_since(from)).unwrap_or_default());
        }
    }
    bench
        .report
        .quantiles("kill -9", "lifted after due or restart", &name, late);
    bench.finish(subject).await
}
