//! The same random writes by four managers to the built-in server and to a real one, with the same objects and owners.
//!
//! A sequence writes one object: it applies, forces, replaces, patches, and writes the status and the scale. After each
//! write both servers give the same status code, the same message of an error, and the same object with the same
//! managedFields; times, uids, versions and allocated addresses aside.
//!
//! * `REEVE_SEQUENCES=n` runs n sequences in place of 100; `REEVE_FIRST=n` begins with the n-th.
//! * Without `KUBEBUILDER_ASSETS` the test is skipped or fails, see `reeve_apiserver::assets`.

mod random;
mod servers;
mod subjects;

use serde_json::Value;

use random::Random;
use servers::Servers;
use subjects::{SUBJECTS, Write};

const SEQUENCES: u64 = 100;
const WRITES: u64 = 10;
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
    for seed in first..first + count {
        match sequence(&servers, seed).await {
            Ok(performed) => writes += performed,
            Err(difference) => differing.push(difference),
        }
    }
    println!(
        "{count} sequences, {writes} writes, {} differ",
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
async fn sequence(servers: &Servers, seed: u64) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let subject = &SUBJECTS[random.below(SUBJECTS.len())];
    let name = format!("o{seed}");
    let mut history = format!("sequence {seed}, {}:", subject.resource);
    let mut performed = 0;
    for _ in 0..WRITES {
        let write = Write::random(subject, &name, &mut random);
        let answers = servers.perform(subject, &name, &write).await;
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
