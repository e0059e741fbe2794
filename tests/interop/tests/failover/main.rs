//! Our leader election against client-go's on a real kube-apiserver: the leader is killed, stopped, cut off or ended
//! by a signal, and the other takes over; again and again.
//!
//! After each fail-over, from the history of the Lease and of the object that both write, as etcd ordered it:
//! * no write of ours was accepted while another held the lease, or it had no holder;
//! * ours leads within LeaseDuration + 1.2·RetryPeriod of the last renewal after a crash, and within 1.2·RetryPeriod of
//!   a release; client-go within the worst case of its own loop.
//!
//! `REEVE_FAILOVERS` is the number of fail-overs (default 8: each way to fail, in each direction).

mod contender;
mod history;
mod proxy;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use contender::{Contender, Side};
use history::History;
use proxy::Proxy;
use reeve_apiserver::assets;
use reeve_apiserver::control_plane::ControlPlane;
use tokio::time::{Instant, sleep, timeout};

/// Whole seconds, as a Lease stores it.
const LEASE: Duration = Duration::from_secs(3);
const RENEW: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(500);
/// client-go polls with a pause of up to 2.2 retry periods after each answer, for which this is allowed.
const ANSWER: Duration = Duration::from_millis(200);
/// Long enough for any standby to have seen the leader.
const SETTLED: Duration = Duration::from_millis(1300);
/// How long until a test gives up waiting for what should have happened.
const LIMIT: Duration = Duration::from_secs(20);

/// How a leader fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// `kill -9`.
    Kill,
    /// SIGSTOP for longer than the lease, then SIGCONT.
    Pause,
    /// Nothing comes through between it and the server, until another leads.
    Partition,
    /// SIGTERM: it gives up the lease.
    Release,
}

const FAULTS: [Fault; 4] = [Fault::Kill, Fault::Pause, Fault::Partition, Fault::Release];

impl Fault {
    /// How long `next` may take to lead, counted from the last renewal, or from the release.
    fn bound(self, next: Side) -> Duration {
        match (self, next) {
            (Self::Release, Side::Ours) => RETRY.mul_f64(1.2),
            (Self::Release, Side::Go) => RETRY.mul_f64(2.2) + ANSWER,
            (_, Side::Ours) => LEASE + RETRY.mul_f64(1.2),
            // It sees the last renewal a poll late, and that the lease is over another.
            (_, Side::Go) => LEASE + (RETRY.mul_f64(2.2) + ANSWER) * 2,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ours_and_client_gos_take_over_from_each_other() {
    let rounds: usize = std::env::var("REEVE_FAILOVERS")
        .map_or(8, |text| text.parse().expect("a number of fail-overs"));
    let Some(go) = program() else { return };
    let Some(control_plane) = ControlPlane::from_assets().await.unwrap() else {
        return;
    };
    let history = History::begin(control_plane.client().unwrap()).await;
    let mut campaign = Campaign {
        control_plane,
        go,
        history,
        started: 0,
        worst: [[Duration::ZERO; 4]; 2],
    };
    let mut leader = campaign.start(Side::Ours, fault_of(0)).await;
    campaign.led_by(&leader).await;
    let mut standby = campaign.start(Side::Go, fault_of(1)).await;
    for round in 0..rounds {
        let fault = fault_of(round);
        sleep(SETTLED).await;
        let (next, failed) = (standby, leader);
        standby = campaign.fail_over(round, fault, failed, &next).await;
        leader = next;
    }
    leader.end().await;
    standby.end().await;
    sleep(SETTLED).await;
    let audit = campaign.history.audit(true);
    eprintln!("{}", campaign.summary(rounds));
    eprintln!("{audit}");
    assert!(audit.ours_stray.is_empty(), "{audit}");
    assert!(
        audit.ours > rounds * 10,
        "hardly anything was written: {audit}"
    );
}

/// Each way to fail once from each side, and again.
fn fault_of(round: usize) -> Fault {
    FAULTS[round / 2 % FAULTS.len()]
}

/// The contender on client-go, which tests/interop/build.sh builds.
fn program() -> Option<PathBuf> {
    assets::program("REEVE_CONTENDER", "tests/interop/build.sh sets it")
}

struct Campaign {
    // Dropped before the server it watches.
    history: History,
    control_plane: ControlPlane,
    go: PathBuf,
    started: usize,
    /// The longest fail-over to each side, for each fault.
    worst: [[Duration; 4]; 2],
}

impl Campaign {
    /// Starts another process of `side`, which is to lead and then to fail by `fault`, behind a proxy of its own.
    ///
    /// A process of client-go that gets no signal does not release: it would release the lease of its successor
    /// (client-go v0.37: `tryRelease` compares the leader that it saw last, and overwrites the lease that it has just read).
    async fn start(&mut self, side: Side, fault: Fault) -> Contender {
        self.started += 1;
        let identity = format!("{side}-{}", self.started);
        let url = self.control_plane.url();
        let address = url.strip_prefix("https://").unwrap();
        let proxy = Proxy::start(address.parse().unwrap()).await;
        let through = format!("https://{}", proxy.address());
        let kubeconfig = self.control_plane.kubeconfig().replace(url, &through);
        let directory = self.control_plane.directory();
        let program = match side {
            Side::Ours => Path::new(env!("CARGO_BIN_EXE_contender")),
            Side::Go => &self.go,
        };
        let mut flags = vec![format!("-identity={identity}")];
        if side == Side::Go {
            flags.push(format!("-release={}", fault == Fault::Release));
        }
        Contender::start(
            side,
            program,
            flags,
            &identity,
            &kubeconfig,
            directory,
            proxy,
        )
        .await
    }

    async fn led_by(&self, contender: &Contender) -> Instant {
        let identity = contender.identity.clone();
        let led = self.history.until(move |held| held.holder == identity);
        let Ok(held) = timeout(LIMIT, led).await else {
            panic!(
                "{} does not lead within {LIMIT:?}; {}\n{}",
                contender.identity,
                self.history.audit(false),
                contender.log()
            );
        };
        held.seen
    }

    /// Makes `failed` fail and waits until `next` leads; returns another standby in place of the failed one.
    async fn fail_over(
        &mut self,
        round: usize,
        fault: Fault,
        mut failed: Contender,
        next: &Contender,
    ) -> Contender {
        let side = failed.side;
        match fault {
            Fault::Kill => failed.signal("KILL").await,
            Fault::Pause => failed.signal("STOP").await,
            Fault::Partition => failed.proxy.cut(),
            Fault::Release => failed.signal("TERM").await,
        }
        let hit = Instant::now();
        let taken = self.led_by(next).await;
        let since = self
            .history
            .last_word_of(&failed.identity, fault == Fault::Release);
        let (took, bound) = (taken - since, fault.bound(next.side));
        match fault {
            Fault::Kill | Fault::Release => {}
            Fault::Pause => {
                // Another leads, and has done for a while.
                sleep((LEASE + RENEW).saturating_sub(hit.elapsed())).await;
                failed.signal("CONT").await;
            }
            Fault::Partition => {
                sleep(RETRY).await;
                failed.proxy.heal();
            }
        }
        let refused = failed.ended(LIMIT).await;
        // What it sent at the very end has arrived by now.
        sleep(ANSWER).await;
        let audit = self.history.audit(false);
        eprintln!(
            "{round:3} {side} → {}: {fault:?} {:.2} s of {:.2} s; {} and {} writes, refused {refused}",
            next.side,
            took.as_secs_f64(),
            bound.as_secs_f64(),
            audit.ours,
            audit.go,
        );
        assert!(audit.ours_stray.is_empty(), "{audit}\n{}", failed.log());
        assert!(
            took <= bound,
            "{} took over after {took:?}, more than {bound:?}\n{}\n{}",
            next.identity,
            failed.log(),
            next.log()
        );
        if side == Side::Ours && matches!(fault, Fault::Pause | Fault::Partition) {
            assert!(
                refused > 0,
                "nothing was tried: the fence was not needed\n{}",
                failed.log()
            );
        }
        let worst = &mut self.worst[next.side as usize][fault as usize];
        *worst = took.max(*worst);
        self.start(side, fault_of(round + 2)).await
    }

    fn summary(&self, rounds: usize) -> String {
        let mut text = format!("{rounds} fail-overs; the longest of each kind:");
        for (side, worst) in [Side::Ours, Side::Go].into_iter().zip(&self.worst) {
            for (fault, took) in FAULTS.into_iter().zip(worst) {
                let (took, bound) = (took.as_secs_f64(), fault.bound(side).as_secs_f64());
                let _ = write!(
                    text,
                    "\n  {side} after {fault:?}: {took:.2} s of {bound:.2} s"
                );
            }
        }
        text
    }
}
