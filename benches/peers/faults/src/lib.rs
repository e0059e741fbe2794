//! `faults`: a peer follows each of the scripted servers under paused time, and prints one line of JSON with the
//! result for each.

use std::process::ExitCode;

use kube_client::Client;
pub use reeve_scripted::{Follower, SERVERS};
use serde_json::json;

/// Runs `start` against each server. It makes a follower from a client, with or without streaming lists.
///
/// # Errors
/// If there is no runtime.
pub fn main<F: Follower>(start: impl Fn(Client, bool) -> F) -> std::io::Result<ExitCode> {
    for server in &SERVERS {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()?;
        let report = runtime.block_on(reeve_scripted::observe(server, &start));
        println!(
            "{}",
            json!({
                "server": server.name,
                "does": server.does,
                "wanted": server.right,
                "right": report.verdict.right,
                "observed": report.verdict.observed,
                "requests": report.seen.requests(),
            })
        );
    }
    Ok(ExitCode::SUCCESS)
}
