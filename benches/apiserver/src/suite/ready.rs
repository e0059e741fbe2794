//! From the start of the processes until they are ready, and their memory then.

use std::time::Duration;

use tokio::time::sleep;

use crate::error::Result;
use crate::report::{Unit, Values};
use crate::server::Server;

/// `idle` is how long the ready server is left alone.
pub(crate) async fn run(server: &Server, idle: Duration) -> Result<Values> {
    let mut values = Values::default();
    values.add(
        "exec → `/readyz` answers 200",
        Unit::Seconds,
        server.ready_after.as_secs_f64(),
    );
    let usage = server.usage()?;
    values.add(
        "processor time until then",
        Unit::Seconds,
        usage.cpu.as_secs_f64(),
    );
    values.add("resident memory then", Unit::Bytes, bytes(usage.resident));
    sleep(idle).await;
    let title = |what: &str| format!("{what} {} s later", idle.as_secs());
    let then = server.usage()?;
    values.add(title("resident memory"), Unit::Bytes, bytes(then.resident));
    let cpu = then.cpu.saturating_sub(usage.cpu);
    let title = format!("processor time of these {} s", idle.as_secs());
    values.add(title, Unit::Seconds, cpu.as_secs_f64());
    Ok(values)
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn bytes(number: u64) -> f64 {
    number as f64
}
