//! From the start of the processes until they are ready, and their memory then.

use std::time::Duration;

use tokio::time::sleep;

use crate::error::Result;
use crate::report::{Unit, Values};
use crate::server::Server;

pub(crate) async fn run(server: &Server) -> Result<Values> {
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
    sleep(Duration::from_secs(5)).await;
    let idle = server.usage()?;
    values.add(
        "resident memory 5 s later",
        Unit::Bytes,
        bytes(idle.resident),
    );
    let cpu = idle.cpu.saturating_sub(usage.cpu);
    values.add(
        "processor time of these 5 s",
        Unit::Seconds,
        cpu.as_secs_f64(),
    );
    Ok(values)
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn bytes(number: u64) -> f64 {
    number as f64
}
