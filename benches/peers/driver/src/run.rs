//! Runs the programs in turn and collects their reports.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::kept::Kept;
use crate::plan::{Case, Column, Group, Program};

/// Runs the programs one after the other.
pub(crate) struct Runner {
    pub(crate) programs: BTreeMap<Program, PathBuf>,
    pub(crate) server: Option<Server>,
    pub(crate) kept: Option<Kept>,
    pub(crate) scale: f64,
    pub(crate) timeout: Duration,
}

/// The canned server, stopped on drop.
pub(crate) struct Server {
    process: Child,
    address: String,
    /// Where it answers by TLS.
    secured: String,
}

/// The reports, by the index of the case and of the column.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) cells: BTreeMap<(usize, usize), Cell>,
    pub(crate) failed: Vec<String>,
}

/// The reports of a peer in a case.
#[derive(Debug)]
pub(crate) enum Cell {
    /// One report a round.
    Reports(Vec<Value>),
    /// The peer does not have the feature.
    Skipped,
}

// === impl Server ===

impl Server {
    /// Starts it on a port that is free.
    pub(crate) fn start(programs: &BTreeMap<Program, PathBuf>) -> Result<Self, String> {
        let program = programs
            .get(&Program::Server)
            .ok_or("the server was not built")?;
        let mut process = Command::new(program)
            .args(["serve", "-listen=127.0.0.1:0", "-tls=127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let mut line = String::new();
        if let Some(output) = process.stdout.take() {
            let read = BufReader::new(output).read_line(&mut line);
            read.map_err(|error| format!("the server: {error}"))?;
        }
        let mut server = Self {
            process,
            address: String::new(),
            secured: String::new(),
        };
        let addresses = line.trim().strip_prefix("listening on ");
        let (address, secured) = addresses
            .and_then(|addresses| addresses.split_once(" and "))
            .ok_or_else(|| format!("the server printed {line:?}"))?;
        server.address = address.to_owned();
        server.secured = secured.to_owned();
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

// === impl Results ===

impl Results {
    fn add(&mut self, cell: (usize, usize), report: Value) {
        let cell = self.cells.entry(cell);
        match cell.or_insert(Cell::Reports(Vec::new())) {
            Cell::Reports(reports) => reports.push(report),
            Cell::Skipped => self.failed.push(format!("skipped, then not: {report}")),
        }
    }
}

// === impl Runner ===

impl Runner {
    /// Runs all cases with all columns, `rounds` times.
    pub(crate) fn rounds(&self, group: &Group, rounds: usize) -> Results {
        let mut results = Results::default();
        for round in 1..=rounds {
            for (row, case) in group.cases.iter().enumerate() {
                for (place, column) in group.columns.iter().enumerate() {
                    if case.includes(column) {
                        self.run(case, column, round, (row, place), &mut results);
                    }
                }
            }
        }
        results
    }

    fn run(
        &self,
        case: &Case,
        column: &Column,
        round: usize,
        cell: (usize, usize),
        results: &mut Results,
    ) {
        let count = (case.count as f64 * self.scale).max(1.0) as usize;
        let kept = self.kept.as_ref();
        if let Some(report) = kept.and_then(|kept| kept.find(round, case, column, count)) {
            results.add(cell, report.clone());
            return;
        }
        let Some(program) = self.programs.get(&column.program) else {
            return;
        };
        if matches!(results.cells.get(&cell), Some(Cell::Skipped)) {
            return;
        }
        let mut command = Command::new(program);
        command
            .arg(case.scenario)
            .arg(format!("-peer={}", column.peer))
            .arg(format!("-n={count}"))
            .args(case.flags)
            .args(column.flags);
        if let Some(measured) = column.measures {
            let Some(measured) = self.programs.get(&measured) else {
                return;
            };
            command.arg(format!("-program={}", measured.display()));
        }
        if let Some(server) = &self.server {
            command.arg(format!("-server=http://{}", server.address));
            if case.secured {
                command.arg(format!("-objects=https://{}", server.secured));
            }
        }
        for (name, flag) in case.own_flags {
            if *name == column.name {
                command.arg(flag);
            }
        }
        let started = Instant::now();
        let line = format!("{}: {} ({count}) {:?}", column.name, case.title, case.flags);
        match self.output(&mut command) {
            Ok(None) => drop(results.cells.insert(cell, Cell::Skipped)),
            Ok(Some(report)) => {
                let secs = started.elapsed().as_secs_f64();
                eprintln!("round {round}, {line}: {secs:.1} s: {report}");
                let added = kept.map(|kept| kept.add(round, case, column, count, &report));
                if let Some(Err(why)) = added {
                    results.failed.push(why);
                }
                results.add(cell, report);
            }
            Err(why) => {
                eprintln!("round {round}, {line}: {why}");
                results.failed.push(format!("round {round}, {line}: {why}"));
            }
        }
    }

    /// The report that a program prints; `None` if the peer does not have the feature.
    fn output(&self, command: &mut Command) -> Result<Option<Value>, String> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|error| format!("{command:?}: {error}"))?;
        let until = Instant::now() + self.timeout;
        // A report is one line and fits into the pipe, so it is read after the end of the program.
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(20)),
                Ok(None) => {
                    child
                        .kill()
                        .and_then(|()| child.wait())
                        .map_err(|error| error.to_string())?;
                    return Err(format!("not ready after {:?}", self.timeout));
                }
                Err(error) => return Err(error.to_string()),
            }
        };
        if status.code() == Some(3) {
            return Ok(None);
        }
        let output = child
            .wait_with_output()
            .map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("{command:?}: {status}"));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().last().unwrap_or_default();
        serde_json::from_str(line)
            .map(Some)
            .map_err(|error| format!("{line:?} is not a report: {error}"))
    }
}
