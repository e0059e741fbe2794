//! The same random writes by several managers to the built-in server and to a real one, with the same objects and owners.
//!
//! A sequence writes one object: it applies, forces, replaces, patches in three ways, deletes, and writes the status and the
//! scale. Its managers are a few, or kubectl's client-side and server-side apply, or so many that the server merges the
//! oldest entries. An autoscaler is written in both of its versions. After each write both servers give the same status
//! code, the same message of an error, and the same object with the same managedFields, in the same order; times of
//! objects, uids, versions and allocated addresses aside.
//!
//! * `REEVE_SEQUENCES=n` runs n sequences in place of 100; `REEVE_FIRST=n` begins with the n-th.
//! * Without `KUBEBUILDER_ASSETS` the test is skipped or fails, see `reeve_apiserver::assets`.

mod random;
mod servers;
mod subjects;
mod writes;

use serde_json::Value;

use random::Random;
use servers::Servers;
use subjects::SUBJECTS;
use writes::{Mix, Write, may_create_by_status};

const SEQUENCES: u64 = 100;
/// How often a sequence is performed before it counts as different: on a busy machine one write may take one server into
/// the next second.
const TRIES: u64 = 3;
/// The number of differing sequences that are shown.
const SHOWN: usize = 10;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_writes_leave_the_same_owners_as_on_a_real_server() {
    let Some(servers) = Servers::start().await else {
        return;
    };
    let first = number("REEVE_FIRST").unwrap_or(0);
    let count = number("REEVE_SEQUENCES").unwrap_or(SEQUENCES);
    let mut differing = Vec::new();
    let mut writes = 0;
    let mut repeated = 0;
    for seed in first..first + count {
        let mut result = Err(String::new());
        for attempt in 0..TRIES {
            result = sequence(&servers, seed, attempt).await;
            if result.is_ok() {
                break;
            }
            repeated += 1;
        }
        match result {
            Ok(performed) => writes += performed,
            Err(difference) => differing.push(difference),
        }
    }
    println!(
        "{count} sequences, {writes} writes, {repeated} repeated, {} differ",
        differing.len()
    );
    for difference in differing.iter().take(SHOWN) {
        println!("{difference}\n");
    }
    servers.stop().await;
    assert!(
        differing.is_empty(),
        "{} of {count} sequences differ",
        differing.len()
    );
}

/// Performs one sequence; `Err` shows its writes up to the first difference.
async fn sequence(servers: &Servers, seed: u64, attempt: u64) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let subject = &SUBJECTS[random.below(SUBJECTS.len())];
    let mix = Mix::random(&mut random);
    let name = format!("o{seed}-{attempt}");
    let mut history = format!("sequence {seed}, {} with {mix:?}:", subject.resource);
    let mut performed = 0;
    for _ in 0..mix.writes {
        let write = Write::random(subject, &name, mix, &mut random);
        if may_create_by_status(subject, &write) && servers.is_absent(&name, &write).await {
            continue;
        }
        let answers = servers.perform(&name, &write).await;
        history.push_str(&format!("\n  {write}"));
        let [real, own] = &answers;
        if real != own {
            return Err(format!("{history}\n- {real}\n+ {own}"));
        }
        performed += 1;
    }
    Ok(performed)
}

/// Whether a value is an object with a status of failure.
fn is_failure(body: &Value) -> bool {
    body["kind"] == "Status"
}
