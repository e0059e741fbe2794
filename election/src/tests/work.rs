//! Work that runs under the lease.

use std::sync::Arc;

use parking_lot::Mutex;
use reeve_fake::{Fake, eventually};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::fixture::{Fixture, LEASE};
use crate::{Lost, RunError};

/// Records the holder of the lease at the time of its drop.
struct HolderAtDrop(Fake, Arc<Mutex<Option<Value>>>);

impl Drop for HolderAtDrop {
    fn drop(&mut self) {
        let lease = self.0.object(LEASE).unwrap();
        *self.1.lock() = Some(lease["spec"]["holderIdentity"].clone());
    }
}

#[tokio::test(start_paused = true)]
async fn work_runs_under_the_lease_and_is_dropped_before_the_lease_is_given_up() {
    for (case, ends, lost) in [
        ("the work ends", true, false),
        ("a stop", false, false),
        ("the lease is lost", false, true),
    ] {
        let fixture = Fixture::new();
        let one = fixture.candidate("one");
        let (stop, holder) = (CancellationToken::new(), Arc::default());
        let guard = HolderAtDrop(fixture.fake.clone(), Arc::clone(&holder));
        let work = async move {
            let _guard = guard;
            if !ends {
                std::future::pending::<()>().await;
            }
            7
        };
        let running = tokio::spawn(one.elector.run(stop.clone(), work));
        let held = || fixture.fake.object(LEASE).is_some();
        eventually("the lease is taken", held).await;
        if lost {
            fixture.put_held_by("two");
        } else if !ends {
            stop.cancel();
        }
        let ended = running.await.unwrap();
        match case {
            "the lease is lost" => assert!(matches!(ended, Err(Lost::Taken { .. })), "{ended:?}"),
            _ => assert_eq!(ended.unwrap(), ends.then_some(7), "{case}"),
        }
        let last = if lost { "two" } else { "" };
        assert_eq!(fixture.spec()["holderIdentity"], last, "{case}");
        let while_dropped = if lost { "two" } else { "one" };
        assert_eq!(*holder.lock(), Some(json!(while_dropped)), "{case}");
    }
}

/// A signal reaches every test of this process that waits for one.
static SIGNALS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn a_signal_drops_the_work_and_releases_the_lease() {
    let _alone = SIGNALS.lock().await;
    for name in ["TERM", "INT"] {
        let fixture = Fixture::new();
        let one = fixture.candidate("one");
        let holder = Arc::default();
        let guard = HolderAtDrop(fixture.fake.clone(), Arc::clone(&holder));
        let work = async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        };
        let running = tokio::spawn(one.elector.run_until_signal(work));
        let held = || fixture.fake.object(LEASE).is_some();
        // Its handlers are there before the lease, so this process outlives the signal.
        eventually("the lease is taken", held).await;
        let kill = std::process::Command::new("kill")
            .args(["-s", name, &std::process::id().to_string()])
            .status();
        assert!(kill.unwrap().success());
        assert_eq!(running.await.unwrap().unwrap(), None, "{name}");
        assert_eq!(*holder.lock(), Some(json!("one")), "{name}");
        assert_eq!(fixture.spec()["holderIdentity"], "", "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_needs_no_signal_and_a_lost_lease_is_an_error() {
    let _alone = SIGNALS.lock().await;
    let fixture = Fixture::new();
    let one = fixture.candidate("one");
    let ended = one.elector.run_until_signal(async { 7 }).await;
    assert_eq!(ended.unwrap(), Some(7));

    let two = fixture.candidate("two");
    let running = tokio::spawn(two.elector.run_until_signal(std::future::pending::<()>()));
    eventually("the lease is taken", || {
        fixture.spec()["holderIdentity"] == "two"
    })
    .await;
    fixture.put_held_by("three");
    let ended = running.await.unwrap();
    assert!(
        matches!(ended, Err(RunError::Lost(Lost::Taken { .. }))),
        "{ended:?}"
    );
}
