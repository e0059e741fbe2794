//! The same seed and plan give the same run, in another process, too.

use std::process::Command;

use super::corpus::Bug;

/// Set in the other process.
const OTHER: &str = "REEVE_DIGEST";

/// The digest of the run that finds the bug, on a line of its own.
fn digest(bug: &Bug) -> String {
    let report = bug.explore(false, 60);
    let found = report.failures.first().expect("the bug is found");
    format!("digest {:x} of {}", found.timeline.digest(), found.plan)
}

#[test]
fn the_same_seed_gives_the_same_trace_in_another_process() {
    let own = digest(&super::recreations::bugs()[0]);
    if std::env::var_os(OTHER).is_some() {
        println!("\n{own}");
        return;
    }
    let name = "explore::digests::the_same_seed_gives_the_same_trace_in_another_process";
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(OTHER, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let other = text.lines().find(|line| line.starts_with("digest "));
    assert_eq!(other, Some(&*own), "{text}");
}
