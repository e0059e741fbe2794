//! The floor: what the same writes cost without an operator.

use ipblock_operator::api::Place;
use jiff::SignedDuration;
use serde_json::json;
use tokio::time::Instant;

use super::LANES;
use crate::bench::Bench;
use crate::blocks::{self, Result, Watched, address, create, each, merge};
use crate::local::now;

/// The writes for an active block without an operator: creation, finalizer and intent, status. Their content is that of the
/// operator's, and the bench watches here, too: both cost the API server processor time.
pub(crate) async fn floor(bench: &mut Bench, count: usize) -> Result<f64> {
    let _watched = Watched::start(&bench.client).await?;
    let started = Instant::now();
    let (client, host) = (bench.client.clone(), bench.gateway.host());
    each(count, LANES, |n| {
        let (client, gateway) = (client.clone(), host.clone());
        async move {
            let (name, ip) = (format!("floor-{n}"), address(n));
            create(&client, &name, &ip, "1h").await?;
            let intent = json!({"metadata": {"finalizers": ["bench.reeve/floor"],
                "annotations": {"ops.yiiong.top/intent": format!("v1 iptables {ip}")}}});
            merge(&client, &name, "", &intent).await?;
            let place = Place::new("iptables", &gateway);
            let until = now() + SignedDuration::from_hours(1);
            let status = blocks::active_status(&ip, now(), until, &place)?;
            merge(&client, &name, "/status", &status).await?;
            Ok(())
        }
    })
    .await?;
    let rate = count as f64 / started.elapsed().as_secs_f64();
    bench.report.add(
        &format!("burst {count}"),
        "active a second",
        "floor",
        rate,
        "/s",
    );

    blocks::clear(&client).await?;
    Ok(rate)
}

/// One write at a time, for the floor of a single block.
pub(crate) async fn write_alone(bench: &mut Bench, count: usize) -> Result<()> {
    let client = bench.client.clone();
    create(&client, "alone", &address(0), "1h").await?;
    let mut writes = Vec::new();
    for n in 0..count {
        let body = json!({"metadata": {"annotations": {"bench": n.to_string()}}});
        let before = Instant::now();
        merge(&client, "alone", "", &body).await?;
        writes.push(before.elapsed());
    }
    bench
        .report
        .quantiles("one", "a write alone", "floor", writes);
    blocks::clear(&client).await
}
