//! Manifests with a mistake or two, sent to the built-in server and to a real kube-apiserver: both have to accept or refuse
//! the same ones, and to name the same fields.
//!
//! Every request is a dry run: a POST of a changed manifest, or a PUT of it over the unchanged object.
//!
//! * `REEVE_MUTATIONS` is the number of manifests (default 600); `PROPTEST_RNG_SEED` chooses others.
//! * `REEVE_RECORD=1` writes `differences.txt`, the list of all differences.
//! * `REEVE_CASE=Kind` takes only manifests of that kind, and prints every difference.

mod mutation;
mod servers;
mod summary;

use std::fs;
use std::path::Path;

use reeve_apiserver::assets;
use servers::Server;
use summary::Summary;

/// The folder of the manifests and of the list of differences.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/mutated");
/// The least part with the same verdict, and of the refused ones with the same fields.
const SAME_VERDICT: f64 = 0.99;
const SAME_FIELDS: f64 = 0.98;

fn number(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else {
        return default;
    };
    text.parse()
        .unwrap_or_else(|_| panic!("{name}={text}: not a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutated_manifests_get_the_verdict_of_a_real_server() {
    let Some(builder) = assets::control_plane() else {
        return;
    };
    let control_plane = builder.start().await.expect("the control plane starts");
    let (_server, _serving, ours) = Server::built_in().await;
    let real = Server::real(&control_plane);
    let only = std::env::var("REEVE_CASE").unwrap_or_default();
    let mut manifests = Vec::new();
    let mut summary = Summary::default();
    let text = fs::read_to_string(Path::new(FOLDER).join("manifests.yaml")).expect("the manifests");
    for manifest in servers::manifests(&text) {
        let kind = manifest["kind"].as_str().expect("a kind").to_owned();
        if !only.is_empty() && kind != only {
            continue;
        }
        let (Some(path), Some(_)) = (ours.path(&manifest).await, real.path(&manifest).await) else {
            summary.unserved(&kind);
            continue;
        };
        let ours = ours.create(&path, &manifest).await;
        let real = real.create(&path, &manifest).await;
        match (ours, real) {
            (Ok(ours), Ok(real)) => manifests.push((path, ours, real, manifest)),
            (ours, real) => panic!("{kind}: {:?}\n{:?}", ours.err(), real.err()),
        }
    }
    assert!(!manifests.is_empty(), "REEVE_CASE={only}: no manifest");

    let mut random = fastrand::Rng::with_seed(number("PROPTEST_RNG_SEED", 1));
    for _ in 0..number("REEVE_MUTATIONS", 600) {
        let (path, our_state, real_state, manifest) = random.choice(&manifests).expect("not empty");
        let mutation = mutation::of(manifest, &mut random);
        let update = random.bool();
        let (ours, real) = if update {
            tokio::join!(
                ours.update(path, our_state, &mutation.manifest),
                real.update(path, real_state, &mutation.manifest)
            )
        } else {
            tokio::join!(
                ours.try_create(path, &mutation.manifest),
                real.try_create(path, &mutation.manifest)
            )
        };
        summary.add(&mutation, update, &ours, &real);
    }
    let text = summary.text();
    println!("{}", summary.shares());
    if !only.is_empty() {
        println!("{text}");
        return;
    }
    if std::env::var_os("REEVE_RECORD").is_some() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/mutated/differences.txt");
        fs::write(file, &text).expect("the list is written");
    }
    assert!(summary.same_verdict() >= SAME_VERDICT, "{text}");
    assert!(summary.same_fields() >= SAME_FIELDS, "{text}");
}
