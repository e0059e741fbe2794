//! The scenario `fleet`: many informers of few objects each, in one process.

use std::thread;
use std::time::Duration;

use crate::control::Server;
use crate::flags::Flags;
use crate::informer::streaming;
use crate::report::{Outcome, Report, Stop};
use crate::usage::{self, Stopwatch};

/// The informers of a peer. Dropping it ends them.
pub trait Fleet {
    /// Returns when each holds its objects.
    fn wait_synced(&self);

    /// The number of objects of each.
    fn counts(&self) -> Vec<usize>;
}

/// Runs the scenario: `start` starts `-n` informers of the same `-each` objects, with streamed lists if that is true.
///
/// # Errors
/// If a flag cannot be read, or an informer does not hold what it should.
pub fn run<F: Fleet>(flags: &Flags, start: impl FnOnce(&Server, usize, bool) -> F) -> Outcome {
    let informers = flags.get("n", 200)?;
    let each: usize = flags.get("each", 100)?;
    let idle = Duration::from_secs_f64(flags.get("idle", 10.0)?);
    let streaming = streaming(flags)?;
    let server = Server::of(flags)?;
    server.reset(each)?;
    usage::forget_peak();
    let stopwatch = Stopwatch::start();
    let fleet = start(&server, informers, streaming);
    fleet.wait_synced();
    let span = stopwatch.stop();
    if let Some(held) = fleet.counts().into_iter().find(|held| *held != each) {
        return Err(Stop::wrong(format!("{held} of {each} objects")));
    }
    // Watches are open, and the memory of the lists has been returned as far as it will be.
    thread::sleep(Duration::from_secs(1));
    let (peak, resident, own) = (usage::peak(), usage::resident(), usage::anonymous());
    let quiet = Stopwatch::start();
    thread::sleep(idle);
    let quiet = quiet.stop();
    drop(fleet);
    Ok(Report::new(informers, span)
        .peak(peak)
        .extra("resident_mb", resident)
        .extra("own_mb", own)
        .extra("idle_us", quiet.cpu.all / quiet.secs * 1e6))
}
