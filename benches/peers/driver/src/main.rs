//! Runs the same scenarios with this project, client-go, controller-runtime, kube-runtime and floors, in turn
//! on one machine, and prints one table a group.
//!
//! ```text
//! cargo run --release --manifest-path benches/peers/Cargo.toml -- queue --table docs/peers-queue.md
//! ```

mod assemble;
mod faults;
mod growth;
mod informer;
mod kept;
mod plan;
mod queue;
mod regressions;
mod run;
mod scale;
mod table;
mod webhook;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use plan::{Group, Program};

/// Compares the peers.
#[derive(Debug, Parser)]
struct Args {
    /// The group: queue, sync, informer, controller, scale, growth, regressions or webhook; or faults, which measures nothing.
    group: String,
    /// Only scenarios of these names.
    scenarios: Vec<String>,
    /// How often each scenario is run; the table shows medians.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only columns whose names contain one of these.
    #[arg(long)]
    only: Vec<String>,
    /// Multiplies the counts: 0.01 is a smoke test; the tables in docs/ are made with 1.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Where the table is written, beside standard output.
    #[arg(long)]
    table: Option<PathBuf>,
    /// Builds nothing: uses the programs in the directory of this one.
    #[arg(long)]
    built: bool,
    /// Every report is kept in this file; a run whose report it has is skipped.
    #[arg(long)]
    kept: Option<PathBuf>,
    /// The program `peer-ours` of an earlier state, for the group `regressions`.
    #[arg(long)]
    before: Option<PathBuf>,
    /// A single run that takes longer, in seconds, is a failure.
    #[arg(long, default_value_t = 180)]
    timeout: u64,
}

fn main() -> ExitCode {
    match compare(&Args::parse()) {
        Ok(failed) if failed.is_empty() => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("{} runs failed:\n{}", failed.len(), failed.join("\n"));
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs everything and writes the table. Returns the runs that failed.
fn compare(args: &Args) -> Result<Vec<String>, String> {
    if args.group == "faults" {
        return faults::compare(args.table.as_deref());
    }
    let mut group = chosen(&args.group)?;
    if !args.scenarios.is_empty() {
        group
            .cases
            .retain(|case| args.scenarios.iter().any(|name| name == case.scenario));
    }
    if !args.only.is_empty() {
        let wanted = |name: &str| args.only.iter().any(|part| name.contains(part.as_str()));
        group.columns.retain(|column| wanted(column.name));
    }
    if group.cases.is_empty() || group.columns.is_empty() {
        return Err("nothing to run".to_owned());
    }
    let mut programs = assemble::programs(&group, args.built)?;
    if let Some(before) = &args.before {
        programs.insert(Program::Before, before.clone());
    } else if args.group == "regressions" {
        return Err("regressions need --before PROGRAM".to_owned());
    }
    let server = group
        .server
        .then(|| run::Server::start(&programs))
        .transpose()?;
    let runner = run::Runner {
        programs,
        server,
        kept: args.kept.clone().map(kept::Kept::open).transpose()?,
        scale: args.scale,
        timeout: Duration::from_secs(args.timeout),
    };
    let mut results = runner.rounds(&group, args.rounds);
    let circumstances = assemble::circumstances(args.rounds, args.scale);
    let text = match args.group.as_str() {
        "growth" => growth::render(&group, &results, &circumstances),
        _ => table::render(&group, &results, &circumstances),
    };
    println!("{text}");
    if let Some(path) = &args.table {
        write(path, &text)?;
        if args.group == "growth" {
            // The table shows it by this name.
            let pictures = path.with_file_name("pictures");
            std::fs::create_dir_all(&pictures)
                .map_err(|error| format!("{}: {error}", pictures.display()))?;
            write(&pictures.join("growth.svg"), &growth::svg(&group, &results))?;
        }
    }
    if args.group == "regressions" {
        let worse = regressions::worse(&group, &results);
        results.failed.extend(worse);
    }
    Ok(results.failed)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn chosen(name: &str) -> Result<Group, String> {
    match name {
        "queue" => Ok(queue::group()),
        "sync" => Ok(informer::sync()),
        "informer" => Ok(informer::group()),
        "controller" => Ok(informer::controller()),
        "scale" => Ok(scale::group()),
        "growth" => Ok(growth::group()),
        "regressions" => Ok(regressions::group()),
        "webhook" => Ok(webhook::group()),
        _ => Err(format!(
            "{name} is not a group: the groups are queue, sync, informer, controller, scale, growth, regressions, webhook and faults"
        )),
    }
}
