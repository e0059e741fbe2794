//! The floors of `sync`: the list is read and discarded (`-peer=floor`), or also passed over once with
//! serde_json (`-peer=floor-scan`).

use peer_measure::control::Server;
use peer_measure::usage::Stopwatch;
use peer_measure::{Flags, Outcome, Report, Stop};
use serde::de::IgnoredAny;

pub(crate) fn run(flags: &Flags) -> Outcome {
    if flags.text("mode", "list") != "list" {
        return Err(Stop::skip("the floor reads a list"));
    }
    let server = Server::of(flags)?;
    let count = flags.get("n", 100_000)?;
    server.reset(count)?;
    let path = match server.kind.as_str() {
        "ipblocks" => "/apis/ops.example.io/v1/ipblocks".to_owned(),
        core => format!("/api/v1/{core}"),
    };
    let mut body = Vec::new();
    let mut span = None;
    // In the second run the buffer has been touched.
    for _ in 0..2 {
        body.clear();
        let stopwatch = Stopwatch::start();
        server.read(&path, &mut body)?;
        if flags.peer == "floor-scan" {
            let json = serde_json::from_slice::<IgnoredAny>(&body);
            json.map_err(|error| Stop::wrong(format!("{path}: {error}")))?;
        }
        span = Some(stopwatch.stop());
    }
    let span = span.ok_or_else(|| Stop::wrong("nothing was read"))?;
    Ok(Report::new(count, span).extra("bytes", body.len() as f64))
}
