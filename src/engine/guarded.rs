//! An engine behind a limit of calls in flight and a circuit breaker.
//!
//! A gateway that hangs holds each caller for its time-out. Without a guard it soon holds every worker,
//! and blocks that need no gateway wait too. Here [`GuardSettings::in_flight`] callers and a few lifts are
//! held at most. The others wait for little more than a second: then the breaker is open, waiters are turned
//! away, and a single probe at a time detects that the gateway is back.
//!
//! A flood of new bans waits for its turns here. Lifts do not wait behind it: a few calls are theirs alone.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::breaker::{Admission, Breaker, Change, Settings};
use super::{Ban, Capabilities, Engine, Error, Metrics, Remaining, Unban};
use crate::outbound::{self, BoxFuture};
use crate::target::Target;

/// Limits of [`Guarded`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardSettings {
    /// Calls to the gateway at once. Default 16. More lets a fast gateway work through a burst
    /// sooner; fewer than the operator's workers leaves workers to blocks that need no gateway while it
    /// hangs. A quarter as many come on top of these for lifts alone, at least one.
    pub in_flight: usize,
    /// When the breaker opens.
    pub breaker: Settings,
}

/// Bounds the calls to an engine, and stops calling it while it does not answer.
#[derive(Debug)]
pub struct Guarded {
    inner: Arc<dyn Engine>,
    /// For every call.
    permits: Semaphore,
    /// For lifts, while the others are taken.
    for_lifts: Semaphore,
    breaker: Mutex<Breaker>,
    opened: Notify,
    slow_after: Duration,
    metrics: Metrics,
}

impl Default for GuardSettings {
    fn default() -> Self {
        Self {
            in_flight: 16,
            breaker: Settings::default(),
        }
    }
}

// === impl Guarded ===

impl Guarded {
    /// Guards `inner`, counting its calls in `metrics`.
    #[must_use]
    pub fn new(inner: Arc<dyn Engine>, settings: GuardSettings, metrics: Metrics) -> Self {
        let in_flight = settings.in_flight.max(1);
        Self {
            inner,
            permits: Semaphore::new(in_flight),
            for_lifts: Semaphore::new((in_flight / 4).max(1)),
            breaker: Mutex::new(Breaker::new(settings.breaker)),
            opened: Notify::new(),
            slow_after: settings.breaker.slow_after,
            metrics,
        }
    }

    async fn call<T>(
        &self,
        op: Op,
        call: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let mut started = Instant::now();
        let result = self.guarded(op, call, &mut started).await;
        let outcome = match &result {
            Ok(_) => "ok",
            Err(error) => error.outcome(),
        };
        let engine = self.inner.capabilities().name;
        self.metrics
            .called(engine, op.name(), outcome, started.elapsed());
        result
    }

    /// Waits for one of the calls in flight to end, if there are as many as may be.
    async fn permit(&self, op: Op) -> Option<SemaphorePermit<'_>> {
        if op != Op::Unban {
            return self.permits.acquire().await.ok();
        }
        if let Ok(permit) = self.permits.try_acquire() {
            return Some(permit);
        }
        tokio::select! {
            biased;
            permit = self.for_lifts.acquire() => permit.ok(),
            permit = self.permits.acquire() => permit.ok(),
        }
    }

    /// Waits for a permit, unless the breaker is open or opens meanwhile.
    async fn admitted(&self, op: Op) -> Result<Option<SemaphorePermit<'_>>, Error> {
        loop {
            // Listening starts before the state is read, so an opening between the two is not missed.
            let opened = self.opened.notified();
            tokio::pin!(opened);
            opened.as_mut().enable();
            self.turned_away()?;
            tokio::select! {
                biased;
                // It may be closed again by now: then this waits on, and does not call without a permit.
                () = &mut opened => {}
                permit = self.permit(op) => {
                    self.turned_away()?;
                    return Ok(permit);
                }
            }
        }
    }

    fn turned_away(&self) -> Result<(), Error> {
        match self.breaker.lock().refusal(Instant::now()) {
            Some((last, retry_after)) => Err(open(last, retry_after)),
            None => Ok(()),
        }
    }

    /// `started` is set to the time at which the call began, after the wait for a permit.
    async fn guarded<T>(
        &self,
        op: Op,
        call: impl Future<Output = Result<T, Error>> + Send,
        started: &mut Instant,
    ) -> Result<T, Error> {
        let admission = self.breaker.lock().admit(Instant::now());
        let probe = match admission {
            Admission::Refused { last, retry_after } => return Err(open(last, retry_after)),
            Admission::Probe => true,
            Admission::Pass => false,
        };
        let mut outcome = Outcome {
            guarded: self,
            probe,
            slow: false,
        };
        // The probe needs no permit: there is one at a time, and the others may be held by the calls
        // that opened the breaker.
        let _permit = match probe {
            true => None,
            false => self.admitted(op).await?,
        };
        *started = Instant::now();
        tokio::pin!(call);
        let result = match tokio::time::timeout(self.slow_after, &mut call).await {
            Ok(result) => result,
            Err(_) => {
                outcome.slow();
                call.await
            }
        };
        outcome.settle(result.as_ref().err());
        result
    }
}

fn open(last: Error, retry_after: Duration) -> Error {
    Error::Open {
        last: Box::new(last),
        retry_after,
    }
}

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Ban,
    Unban,
    List,
}

// === impl Op ===

impl Op {
    /// The name in the metrics.
    fn name(self) -> &'static str {
        match self {
            Self::Ban => "ban",
            Self::Unban => "unban",
            Self::List => "list",
        }
    }
}

/// Reports how a call ended to the breaker, also when it is cancelled.
struct Outcome<'a> {
    guarded: &'a Guarded,
    probe: bool,
    slow: bool,
}

// === impl Outcome ===

impl Outcome<'_> {
    fn slow(&mut self) {
        self.slow = true;
        let hanging = Error::NoAnswer {
            gateway: self.guarded.inner.endpoint().to_owned(),
            cause: outbound::Error::Timeout(self.guarded.slow_after),
        };
        let change = self.guarded.breaker.lock().slow(hanging, Instant::now());
        self.notify(change);
    }

    fn settle(&mut self, error: Option<&Error>) {
        let mut breaker = self.guarded.breaker.lock();
        let change = match error {
            Some(error) if error.is_gateway_fault() => {
                breaker.failed(error.clone(), self.probe, Instant::now())
            }
            _ => {
                breaker.answered();
                Change::Unchanged
            }
        };
        drop(breaker);
        self.probe = false;
        self.notify(change);
    }

    fn notify(&self, change: Change) {
        if change == Change::Opened {
            self.guarded.opened.notify_waiters();
        }
    }
}

impl Drop for Outcome<'_> {
    fn drop(&mut self) {
        if self.slow || self.probe {
            let mut breaker = self.guarded.breaker.lock();
            if self.slow {
                breaker.slow_ended();
            }
            if self.probe {
                breaker.probe_abandoned(Instant::now());
            }
        }
    }
}

impl Engine for Guarded {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn endpoint(&self) -> &str {
        self.inner.endpoint()
    }

    fn ban<'a>(
        &'a self,
        target: &'a Target,
        remaining: Option<Remaining>,
    ) -> BoxFuture<'a, Result<Ban, Error>> {
        Box::pin(self.call(Op::Ban, self.inner.ban(target, remaining)))
    }

    fn unban<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Unban, Error>> {
        Box::pin(self.call(Op::Unban, self.inner.unban(target)))
    }

    fn list(&self) -> BoxFuture<'_, Result<Option<BTreeSet<Target>>, Error>> {
        Box::pin(self.call(Op::List, self.inner.list()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Endpoint, Iptables};
    use crate::outbound::InProcess;
    use bytes::Bytes;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use tokio::task::JoinSet;

    /// A gateway that hangs, or resets, or answers after a while; with its calls counted.
    #[derive(Clone, Default)]
    struct Gateway {
        hangs: Arc<AtomicBool>,
        resets: Arc<AtomicBool>,
        calls: Arc<AtomicUsize>,
        running: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
        takes: Duration,
    }

    impl Gateway {
        fn engine(&self, in_flight: usize) -> Arc<Guarded> {
            let gateway = self.clone();
            let outbound = InProcess::new(move |request| {
                let gateway = gateway.clone();
                async move {
                    gateway.calls.fetch_add(1, Ordering::SeqCst);
                    let answer = match request.uri().path() {
                        "/unlimit" => r#"{"status":"unlimited"}"#,
                        _ => r#"{"status":"limited"}"#,
                    };
                    let stuck = request.uri().query() == Some("ip=192.0.2.99");
                    if stuck || gateway.hangs.load(Ordering::SeqCst) {
                        std::future::pending::<()>().await;
                    }
                    if gateway.resets.load(Ordering::SeqCst) {
                        return Err(outbound::Error::Reset);
                    }
                    let running = gateway.running.fetch_add(1, Ordering::SeqCst) + 1;
                    gateway.most.fetch_max(running, Ordering::SeqCst);
                    let late = request.uri().query() == Some("ip=192.0.2.200");
                    let more = Duration::from_millis(if late { 100 } else { 0 });
                    tokio::time::sleep(gateway.takes + more).await;
                    gateway.running.fetch_sub(1, Ordering::SeqCst);
                    Ok(http::Response::new(Bytes::from(answer)))
                }
            });
            let endpoint = Endpoint::parse("192.0.2.250:9521").unwrap();
            let engine = Arc::new(Iptables::new(endpoint, Arc::new(outbound)));
            let settings = GuardSettings {
                in_flight,
                ..GuardSettings::default()
            };
            Arc::new(Guarded::new(engine, settings, Metrics::new()))
        }
    }

    fn target(last: u8) -> Target {
        Target::host([192, 0, 2, last].into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_gateway_holds_no_caller_for_long() {
        let gateway = Gateway::default();
        gateway.hangs.store(true, Ordering::SeqCst);
        let engine = gateway.engine(8);
        let started = Instant::now();
        let mut calls = JoinSet::new();
        for last in 0..50 {
            let engine = Arc::clone(&engine);
            calls.spawn(async move {
                let result = engine.ban(&target(last), None).await;
                (result.unwrap_err(), started.elapsed())
            });
        }
        let mut ended = Vec::new();
        while let Some(call) = calls.join_next().await {
            ended.push(call.unwrap());
        }
        let soon = Duration::from_millis(1100);
        let held = ended.iter().filter(|(_, at)| *at > soon).count();
        assert_eq!(held, 8, "only the calls in flight wait for their time-out");
        assert_eq!(gateway.calls.load(Ordering::SeqCst), 8);
        let text = "gateway 192.0.2.250:9521: no answer in time";
        assert!(ended.iter().all(|(error, _)| error.to_string() == text));

        let before = Instant::now();
        let error = engine.ban(&target(1), None).await.unwrap_err();
        assert_eq!(error.to_string(), text);
        let one_probe = before.elapsed();
        let mut refused = 0;
        for last in 0..20 {
            if engine.ban(&target(last), None).await.is_err() && before.elapsed() == one_probe {
                refused += 1;
            }
        }
        assert_eq!(
            refused, 20,
            "while it is open, callers are turned away at once"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_that_hangs_does_not_delay_the_others() {
        let gateway = Gateway {
            takes: Duration::from_millis(2),
            ..Gateway::default()
        };
        let engine = gateway.engine(4);
        let mut stuck = JoinSet::new();
        let held = Arc::clone(&engine);
        stuck.spawn(async move { held.ban(&target(99), None).await });
        for round in 0..2000 {
            let before = Instant::now();
            engine.ban(&target((round % 90) as u8), None).await.unwrap();
            assert!(before.elapsed() < Duration::from_millis(10));
        }
        let error = stuck.join_next().await.unwrap().unwrap().unwrap_err();
        assert_eq!(error.reason(), "GatewayTimeout");
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_resets_is_called_seldom_and_noticed_when_it_is_back() {
        let gateway = Gateway::default();
        gateway.resets.store(true, Ordering::SeqCst);
        let engine = gateway.engine(8);
        let end = Instant::now() + Duration::from_secs(30);
        while Instant::now() < end {
            let error = engine.ban(&target(1), None).await.unwrap_err();
            assert_eq!(error.reason(), "GatewayReset");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let calls = gateway.calls.load(Ordering::SeqCst);
        assert!(calls <= 15, "{calls} calls in 30 s");

        gateway.resets.store(false, Ordering::SeqCst);
        let back = Instant::now();
        loop {
            match engine.ban(&target(1), None).await {
                Ok(_) => break,
                Err(Error::Open { retry_after, .. }) => tokio::time::sleep(retry_after).await,
                Err(other) => panic!("the gateway was called: {other}"),
            }
        }
        assert!(back.elapsed() <= Duration::from_secs(8));
        engine.ban(&target(2), None).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_probe_does_not_keep_the_gateway_closed_off() {
        let gateway = Gateway::default();
        gateway.resets.store(true, Ordering::SeqCst);
        let engine = gateway.engine(8);
        for _ in 0..5 {
            engine.ban(&target(1), None).await.unwrap_err();
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        gateway.resets.store(false, Ordering::SeqCst);
        gateway.hangs.store(true, Ordering::SeqCst);
        let probe = tokio::time::timeout(Duration::from_millis(100), async {
            engine.ban(&target(1), None).await
        });
        assert!(probe.await.is_err());
        gateway.hangs.store(false, Ordering::SeqCst);
        engine.ban(&target(1), None).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_gateway_that_answers_is_used_within_the_limit() {
        let gateway = Gateway {
            takes: Duration::from_millis(200),
            ..Gateway::default()
        };
        let engine = gateway.engine(4);
        let started = Instant::now();
        let mut calls = JoinSet::new();
        for last in 0..40 {
            let engine = Arc::clone(&engine);
            calls.spawn(async move { engine.ban(&target(last), None).await });
        }
        while let Some(call) = calls.join_next().await {
            call.unwrap().unwrap();
        }
        assert_eq!(started.elapsed().as_millis(), 2000, "four at a time");
    }

    #[tokio::test(start_paused = true)]
    async fn lifts_do_not_wait_behind_a_flood_of_bans() {
        let gateway = Gateway {
            takes: Duration::from_millis(200),
            ..Gateway::default()
        };
        let engine = gateway.engine(4);
        let mut bans = JoinSet::new();
        for last in 0..80 {
            let engine = Arc::clone(&engine);
            bans.spawn(async move { engine.ban(&target(last), None).await });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(gateway.calls.load(Ordering::SeqCst), 4);
        let started = Instant::now();
        let mut lifts = JoinSet::new();
        for last in 80..83 {
            let engine = Arc::clone(&engine);
            lifts.spawn(async move {
                engine.unban(&target(last)).await.unwrap();
                started.elapsed().as_millis()
            });
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(
            gateway.calls.load(Ordering::SeqCst),
            5,
            "one more call, for a lift"
        );
        let mut ended = lifts.join_all().await;
        ended.sort_unstable();
        assert_eq!(ended, [200, 400, 600], "one after another, beside the bans");
        while let Some(ban) = bans.join_next().await {
            ban.unwrap().unwrap();
        }
        let lasted = started.elapsed().as_millis();
        assert_eq!(lasted, 3950, "the bans have their four calls all the time");
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_near_the_limit_of_time_gets_no_more_calls_at_once() {
        // Four calls are slow at the time at which others are answered: the breaker opens, and closes before a waiter runs.
        let gateway = Gateway {
            takes: Duration::from_secs(1),
            ..Gateway::default()
        };
        let engine = gateway.engine(16);
        let mut calls = JoinSet::new();
        for last in 0..100 {
            let engine = Arc::clone(&engine);
            let target = target(if last < 4 { 200 } else { last });
            calls.spawn(async move { engine.ban(&target, None).await.is_ok() });
        }
        let answered = calls.join_all().await.into_iter().filter(|ok| *ok).count();
        assert!(answered >= 99, "{answered} found the breaker closed again");
        assert_eq!(gateway.most.load(Ordering::SeqCst), 16);
    }

    #[tokio::test(start_paused = true)]
    async fn every_call_is_given_back_by_waiters_that_are_turned_away_or_dropped() {
        for dropped in [true, false] {
            let gateway = Gateway::default();
            gateway.hangs.store(true, Ordering::SeqCst);
            let engine = gateway.engine(4);
            let mut calls = JoinSet::new();
            for last in 0..60 {
                let engine = Arc::clone(&engine);
                calls.spawn(async move {
                    match last % 2 {
                        0 => engine.ban(&target(last), None).await.is_err(),
                        _ => engine.unban(&target(last)).await.is_err(),
                    }
                });
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert_eq!(gateway.calls.load(Ordering::SeqCst), 5);
            if dropped {
                calls.shutdown().await;
            } else {
                assert!(calls.join_all().await.into_iter().all(|failed| failed));
            }
            let free = (
                engine.permits.available_permits(),
                engine.for_lifts.available_permits(),
            );
            assert_eq!(free, (4, 1), "dropped: {dropped}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_bans_lifts_have_every_call() {
        let gateway = Gateway {
            takes: Duration::from_millis(200),
            ..Gateway::default()
        };
        let engine = gateway.engine(4);
        let started = Instant::now();
        let mut lifts = JoinSet::new();
        for last in 0..40 {
            let engine = Arc::clone(&engine);
            lifts.spawn(async move { engine.unban(&target(last)).await });
        }
        for lift in lifts.join_all().await {
            lift.unwrap();
        }
        let lasted = started.elapsed().as_millis();
        assert_eq!(lasted, 1600, "five at a time");
    }
}
