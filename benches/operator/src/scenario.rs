//! The scenarios: each leaves the server empty and the gateway clean.

mod bare;
mod faults;
mod floor;
mod load;

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::bench::Bench;
use crate::blocks::{Error, Result, address, create, each};
use crate::subject::Subject;

pub(crate) use self::bare::{bare, drive};
pub(crate) use self::faults::{api_down, gateway_faults, kill};
pub(crate) use self::floor::{floor, write_alone};
pub(crate) use self::load::{burst, lift, single};

/// Requests in flight at once, for the bench and for the floor alike.
const LANES: usize = 16;

async fn create_all(bench: &Bench, prefix: &str, count: usize, duration: &str) -> Result<()> {
    let client = bench.client.clone();
    each(count, LANES, |n| {
        let (client, name) = (client.clone(), format!("{prefix}-{n}"));
        async move {
            create(&client, &name, &address(n), duration)
                .await
                .map(drop)
        }
    })
    .await
}

/// When an object was due: its own status, or (for the original) its creation and duration.
fn due(object: &serde_json::Value, after: Duration) -> Option<jiff::Timestamp> {
    if let Some(at) = object["status"]["expiresAt"].as_str() {
        return at.parse().ok();
    }
    let blocked: jiff::Timestamp = object["status"]["blockedAt"].as_str()?.parse().ok()?;
    blocked
        .checked_add(jiff::SignedDuration::try_from(after).ok()?)
        .ok()
}

/// Waits until `done`, with frequent checks; fails when `limit` passes or the operator ended.
async fn until(subject: &mut Subject, limit: Duration, done: impl Fn() -> bool) -> Result<()> {
    let waiting = async {
        while !done() {
            if !subject.alive() {
                return Err(Error::Setup(
                    "the operator ended; its log has the reason".into(),
                ));
            }
            sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    };
    timeout(limit, waiting)
        .await
        .map_err(|_| Error::Setup(format!("not done within {limit:?}")))?
}
