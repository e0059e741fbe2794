//! The one line of JSON that a peer prints.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use serde_json::{Map, Value, json};

use crate::flags::Flags;
use crate::heap;
use crate::jemalloc;
use crate::latency::Sorted;
use crate::usage::{self, Span};

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    fields: Map<String, Value>,
    extra: Map<String, Value>,
}

/// Why there is no report.
#[derive(Debug)]
pub enum Stop {
    /// The peer does not have the feature, with the reason: exit 3.
    Skip(String),
    /// The command line or the run is wrong: exit 2.
    Wrong(String),
}

/// A report, or the reason why there is none.
pub type Outcome = Result<Report, Stop>;

// === impl Report ===

impl Report {
    /// A report of `count` operations in `span`.
    #[must_use]
    pub fn new(count: usize, span: Span) -> Self {
        let mut fields = Map::new();
        fields.insert("n".into(), json!(count));
        fields.insert("secs".into(), json!(span.secs));
        fields.insert("rate".into(), json!(count as f64 / span.secs));
        fields.insert("cpu".into(), json!(span.cpu.all));
        fields.insert("sys".into(), json!(span.cpu.system));
        fields.insert("rss_mb".into(), json!(usage::peak()));
        Self {
            fields,
            extra: Map::new(),
        }
    }

    /// Peak resident memory in MB, if it is not that of the whole run.
    #[must_use]
    pub fn peak(mut self, megabytes: f64) -> Self {
        self.fields.insert("rss_mb".into(), json!(megabytes));
        self
    }

    /// Live bytes an object.
    #[must_use]
    pub fn heap(mut self, bytes: f64) -> Self {
        self.fields.insert("heap_obj".into(), json!(bytes));
        self
    }

    /// Median, 99th percentile and longest.
    #[must_use]
    pub fn latency(mut self, sorted: &Sorted) -> Self {
        for (name, share) in [("p50_us", 0.5), ("p99_us", 0.99), ("max_us", 1.0)] {
            self.fields
                .insert(name.into(), json!(sorted.quantile_us(share)));
        }
        self
    }

    /// One more figure.
    #[must_use]
    pub fn extra(mut self, name: &str, value: f64) -> Self {
        self.extra.insert(name.into(), json!(value));
        self
    }
}

// === impl Stop ===

impl Stop {
    /// The peer does not have the feature.
    pub fn skip(why: impl Into<String>) -> Self {
        Self::Skip(why.into())
    }

    /// The command line or the run is wrong.
    pub fn wrong(why: impl Into<String>) -> Self {
        Self::Wrong(why.into())
    }

    /// The scenario does not exist.
    #[must_use]
    pub fn unknown(flags: &Flags) -> Self {
        Self::Wrong(format!(
            "{} of {}: no such scenario or peer",
            flags.scenario, flags.peer
        ))
    }
}

/// Runs the scenario of the command line and prints its line. The body of every peer's `main`.
pub fn main(default_peer: &str, run: impl FnOnce(&Flags) -> Outcome) -> ExitCode {
    let flags = match Flags::of_process(default_peer) {
        Ok(flags) => flags,
        Err(stop) => return refuse("", &stop),
    };
    if let Err(stop) = with_allocator(&flags) {
        return refuse(&flags.peer, &stop);
    }
    match run(&flags) {
        Err(stop) => refuse(&flags.peer, &stop),
        Ok(_) if !flags.unknown().is_empty() => {
            let unknown = format!("{:?}: no flags of {}", flags.unknown(), flags.scenario);
            refuse(&flags.peer, &Stop::Wrong(unknown))
        }
        Ok(report) => {
            let mut line = json!({ "scenario": flags.scenario, "peer": flags.peer });
            if let Value::Object(line) = &mut line {
                line.extend(report.fields);
                if !report.extra.is_empty() {
                    line.insert("extra".into(), Value::Object(report.extra));
                }
            }
            println!("{line}");
            ExitCode::SUCCESS
        }
    }
}

/// Starts the process again if `-allocator` names another allocator than the one that it has.
fn with_allocator(flags: &Flags) -> Result<(), Stop> {
    let usual = if jemalloc::IS_BUILT {
        "jemalloc"
    } else {
        "glibc"
    };
    let present = env::var(heap::ALLOCATOR).unwrap_or_else(|_| usual.to_owned());
    let wanted = flags.text("allocator", &present);
    match wanted.as_str() {
        "jemalloc" if !jemalloc::IS_BUILT => Err(Stop::skip("built without jemalloc")),
        "jemalloc" | "glibc" if wanted == present => Ok(()),
        "jemalloc" | "glibc" => {
            let program = env::current_exe().map_err(|error| Stop::wrong(error.to_string()))?;
            let mut again = Command::new(program);
            again.args(env::args_os().skip(1));
            // It returns only if it fails.
            let error = again.env(heap::ALLOCATOR, &wanted).exec();
            Err(Stop::wrong(format!("{again:?}: {error}")))
        }
        other => Err(Stop::wrong(format!(
            "-allocator={other}: jemalloc or glibc"
        ))),
    }
}

fn refuse(peer: &str, stop: &Stop) -> ExitCode {
    match stop {
        Stop::Skip(why) => {
            println!("{}", json!({ "peer": peer, "skip": why }));
            ExitCode::from(3)
        }
        Stop::Wrong(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}
