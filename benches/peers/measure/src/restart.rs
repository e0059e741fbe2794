//! The scenario `restart`: informers, one for each of many namespaces, while their API server restarts.
//!
//! `peer-restart` starts the peers, restarts the server and changes one object in each namespace after it. A peer prints
//! `ready` when all informers are synced, and its report when standard input ends.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::flags::Flags;
use crate::informer::Tally;
use crate::latency::Sorted;
use crate::report::{Outcome, Report, Stop};
use crate::usage::Stopwatch;

/// The set-up of the informers.
#[derive(Debug)]
pub struct Setup {
    /// The kubeconfig of the server.
    pub kubeconfig: String,
    /// Informer number i holds the ConfigMaps of the namespace with this name.
    pub namespaces: Vec<String>,
    /// Receives every object and every change of all informers.
    pub handler: Arc<Tally>,
}

/// Counts the changes of one object. An informer that lists again may deliver a change for a second time.
#[derive(Debug)]
pub struct Changes {
    handler: Arc<Tally>,
    /// The stamp of the last one; `u64::MAX` before the first.
    last: AtomicU64,
}

// === impl Changes ===

impl Changes {
    /// Counts with `handler`.
    #[must_use]
    pub fn new(handler: &Arc<Tally>) -> Self {
        Self {
            handler: Arc::clone(handler),
            last: AtomicU64::new(u64::MAX),
        }
    }

    /// The object was delivered as it was written at `stamp`.
    pub fn note(&self, stamp: Option<u64>) {
        let Some(stamp) = stamp else { return };
        let last = self.last.swap(stamp, Ordering::AcqRel);
        if last == u64::MAX || stamp > last {
            self.handler.note(|| Some(stamp));
        }
    }
}

/// The name of a namespace.
#[must_use]
pub fn namespace(number: usize) -> String {
    format!("restart-{number:03}")
}

/// Runs the scenario: `start` returns when all informers are synced.
///
/// # Errors
/// If a flag cannot be read, or standard output cannot be written.
pub fn run<F>(flags: &Flags, start: impl FnOnce(Setup) -> F) -> Outcome {
    let count: usize = flags.get("n", 100)?;
    let handler = Arc::new(Tally::new(true));
    let stopwatch = Stopwatch::start();
    let running = start(Setup {
        kubeconfig: flags.text("config", ""),
        namespaces: (0..count).map(namespace).collect(),
        handler: Arc::clone(&handler),
    });
    // One object in each.
    handler.wait(count)?;
    handler.forget_late();
    let mut output = std::io::stdout();
    let written = writeln!(output, "ready").and_then(|()| output.flush());
    written.map_err(|error| Stop::wrong(error.to_string()))?;
    // The end of the input, or an error, which is an end too.
    std::io::stdin().lock().lines().for_each(drop);
    let span = stopwatch.stop();
    drop(running);
    let late = handler.late();
    if late.is_empty() {
        return Err(Stop::wrong("no change was received"));
    }
    Ok(Report::new(late.len(), span).latency(&Sorted::new(late)))
}
