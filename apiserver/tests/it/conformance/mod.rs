//! The same raw HTTP requests to the built-in server and to a real kube-apiserver, with the same answers.
//!
//! Each case is a short conversation and names the rules that it checks. The answers of the real server are recorded in
//! `recorded/*.txt`: resourceVersions as ranks, uids, times and namespaces as placeholders. A run compares both
//! servers with the record. [`differences`] lists the cases in which the built-in server differs, with the reason and the
//! difference. Such a case must fail in exactly this way, so an entry is removed when the server is improved.
//!
//! * Built-in server: always.
//! * Real server: through `KUBEBUILDER_ASSETS` (see `tools/kube-apiserver/build.sh`); without it that half is skipped
//!   or fails, see `reeve_apiserver::assets`.
//! * `REEVE_RECORD=1` writes the record again from the real server. Read the diff before you commit it.
//! * `REEVE_CASE=text` runs only the cases whose name contains `text`; no match is an error.
//!
//! `CONFORMANCE.md` of the crate defines the rules; [`guard`] compares it with the cases.

mod case;
mod cases;
pub mod client;
mod differences;
mod guard;
mod normal;
mod recorded;
mod runner;
mod webhook;

use runner::{Outcome, Target};

/// The minimum number of cases: fewer mean that some were lost.
const CASES_AT_LEAST: usize = 150;

#[test]
fn every_case_has_its_own_name_and_names_its_rules() {
    let all = cases::all();
    assert!(all.len() >= CASES_AT_LEAST, "only {} cases", all.len());
    let mut names = std::collections::BTreeSet::new();
    for entry in &all {
        assert!(
            names.insert(entry.title()),
            "two cases have the name {:?}",
            entry.title()
        );
        assert!(!entry.rules.is_empty(), "{:?} names no rule", entry.name);
    }
    for difference in differences::BUILT_IN {
        assert!(
            names.contains(difference.case),
            "no case has the name {:?}",
            difference.case
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_built_in_server_answers_as_recorded() {
    let (serving, target) = Target::built_in().await;
    let outcome = runner::run(&target, differences::BUILT_IN).await;
    serving.stop().await;
    finish("the built-in server", &outcome);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_server_answers_as_recorded() {
    let Some((mut control_plane, target)) = Target::real().await else {
        return;
    };
    let outcome = runner::run(&target, &[]).await;
    if !outcome.failures.is_empty() {
        control_plane.keep_directory();
    }
    finish("the real kube-apiserver", &outcome);
}

fn finish(server: &str, outcome: &Outcome) {
    for failure in &outcome.failures {
        eprintln!("{failure}\n");
    }
    println!(
        "{server}: {} cases as recorded, {} known differences, {} failures",
        outcome.passed,
        outcome.expected,
        outcome.failures.len()
    );
    let names: Vec<&str> = outcome
        .failures
        .iter()
        .filter_map(|failure| failure.lines().next())
        .collect();
    assert!(
        names.is_empty(),
        "{server} fails {} cases:\n{}",
        names.len(),
        names.join("\n")
    );
}
