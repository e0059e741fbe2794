//! `faults`: what each peer does with the scripted servers, in one table. No speed is measured: time is virtual, and
//! two runs differ only by the peers' jitter.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::assemble;
use crate::plan::Program;

const COLUMNS: [(&str, Program); 2] = [("ours", Program::Ours), ("kube-runtime", Program::Kube)];

/// Runs the peers and writes the table. Returns the servers with which our informer was wrong.
pub(crate) fn compare(table: Option<&Path>) -> Result<Vec<String>, String> {
    let programs = assemble::build(COLUMNS.map(|(_, program)| program))?;
    let mut columns = Vec::new();
    for (_, program) in COLUMNS {
        columns.push(run(&programs[&program])?);
    }
    let text = render(&columns);
    println!("{text}");
    if let Some(path) = table {
        std::fs::write(path, &text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let wrong = columns[0].iter().filter(|line| !is_right(line));
    Ok(wrong
        .map(|line| format!("ours, server {}: {}", line["server"], line["observed"]))
        .collect())
}

fn run(program: &Path) -> Result<Vec<Value>, String> {
    let output = Command::new(program)
        .arg("faults")
        .output()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}: {error}", program.display(), output.status));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).map_err(|error| format!("{line}: {error}")))
        .collect()
}

fn is_right(line: &Value) -> bool {
    line["right"] == Value::Bool(true)
}

fn render(columns: &[Vec<Value>]) -> String {
    let mut text = format!(
        "# Servers that informers fail on\n\n\
         Each server is scripted over the bytes of HTTP. Two clients follow it for an hour of virtual time: this project's informer with its\n\
         defaults, and {} with `watcher(…).default_backoff().reflect(…).applied_objects()`, the chain of its README with a store\n\
         (its `Controller` retries in another way, and is not shown). ✓ is right, ✗ is wrong; two runs differ only by the peers' jitter.\n\
         A server stops after 100,000 requests, because under virtual time such a client would never end.\n\
         The servers are in `informer/scripted/src/servers.rs`, which describes what each does and what is right. They also run as tests of\n\
         this project in `informer/tests/it/servers.rs`. To write this page again:\n\n\
         ```sh\n\
         cargo run --manifest-path benches/peers/Cargo.toml -- faults --table docs/peers-faults.md\n\
         ```\n\n\
         | | the server | what is right |",
        assemble::locked("kube-runtime")
    );
    for (name, _) in COLUMNS {
        text.push_str(&format!(" {name} |"));
    }
    text.push_str("\n|---|---|---|");
    text.push_str(&"---|".repeat(COLUMNS.len()));
    for (row, first) in columns[0].iter().enumerate() {
        let of = |field: &str| first[field].as_str().unwrap_or_default().to_owned();
        text.push_str(&format!(
            "\n| {} | {} | {} |",
            of("server"),
            of("does"),
            of("wanted")
        ));
        for column in columns {
            let line = column.get(row).cloned().unwrap_or_default();
            let mark = if is_right(&line) { "✓" } else { "✗" };
            let observed = line["observed"].as_str().unwrap_or("did not run");
            text.push_str(&format!(" {mark} {observed} |"));
        }
    }
    text.push('\n');
    text
}
