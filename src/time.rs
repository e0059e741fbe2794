//! The time that bans end by: the wall clock, as long as the API server's is not far from it.
//!
//! A node whose clock jumps ahead would lift every timed ban at once, and nothing brings those back. One whose clock is
//! behind would ban for too long, and what it bans would end too early once the clock is set. So a clock that moved by
//! more than a minute, ahead or back, the clock of a process that has just started, and any clock every five minutes, are compared with the
//! `Date` of an answer of the API server. Until the two agree, time goes on as before the jump, or as the server has it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use reeve_clock::Clock;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::decide::Coverage;
use crate::metrics::Metrics;
use crate::outbound::BoxFuture;

/// How far the wall clock may be from the API server's, or from the time that has passed.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(60);

/// How often the clocks are compared while they differ, or the API server does not answer.
const COMPARE_AGAIN: Duration = Duration::from_secs(10);

/// The same before the first comparison, for which decisions wait.
const COMPARE_FIRST: Duration = Duration::from_secs(1);

/// How often the clocks are compared while they agree: a clock that drifts does not jump.
const COMPARE_OFTEN: Duration = Duration::from_secs(300);

/// How long one answer of the API server may take.
const ANSWER: Duration = Duration::from_secs(5);

/// After this long a later answer has another `Date`.
const TICK: Duration = Duration::from_secs(2);

/// How long the first decision waits for the first comparison. An API server that answers some requests and not others
/// would otherwise have a node whose clock is wrong lift bans, or date them.
const PATIENCE: Duration = Duration::from_secs(60);

/// The clock of the API server.
pub trait ServerTime: Send + Sync + fmt::Debug {
    /// Its time now; `None` if its answers carry none.
    fn read(&self) -> BoxFuture<'_, Result<Option<Timestamp>, String>>;
}

/// The time of decisions. Clones agree.
#[derive(Clone, Debug)]
pub struct Time {
    clock: Clock,
    believed: Arc<Mutex<Believed>>,
    doubt: Arc<Notify>,
    compared: Arc<watch::Sender<bool>>,
    set_back: Arc<watch::Sender<()>>,
}

/// A wall time that is believed, and when it was read.
#[derive(Clone, Copy, Debug)]
struct Believed {
    at: Timestamp,
    since: Instant,
}

/// Reads it through a client.
#[derive(Clone)]
struct DateHeader(kube_client::Client);

/// The clock of the server of `client`.
pub(crate) fn server_time(client: kube_client::Client) -> Arc<dyn ServerTime> {
    Arc::new(DateHeader(client))
}

// === impl Time ===

impl Time {
    /// The time of `clock`, not yet compared.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let believed = Believed {
            at: clock.now(),
            since: Instant::now(),
        };
        Self {
            clock,
            believed: Arc::new(Mutex::new(believed)),
            doubt: Arc::default(),
            compared: Arc::new(watch::Sender::new(false)),
            set_back: Arc::new(watch::Sender::new(())),
        }
    }

    /// The time of `clock`, as after a comparison.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn trusting(clock: Clock) -> Self {
        let time = Self::new(clock);
        time.compare(None);
        time
    }

    /// The wall time, unless it jumped and nothing has confirmed that.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let wall = self.clock.now();
        let mut believed = self.believed.lock();
        let expected = believed.expected();
        if wall.duration_since(expected).abs() > TOLERANCE {
            self.doubt.notify_one();
            return expected;
        }
        *believed = Believed {
            at: wall,
            since: Instant::now(),
        };
        wall
    }

    /// Randomness, for jitter.
    #[must_use]
    pub fn random(&self) -> &reeve_clock::Random {
        self.clock.random()
    }

    /// How long until `at`; zero when past.
    #[must_use]
    pub fn until(&self, at: Timestamp) -> Duration {
        Duration::try_from(at.duration_since(self.now())).unwrap_or_default()
    }

    /// Changes when the time goes back: what was over may be ahead.
    #[must_use]
    pub fn set_backs(&self) -> watch::Receiver<()> {
        self.set_back.subscribe()
    }

    /// Returns after the first comparison, or when the API server does not answer for too long.
    pub async fn compared(&self) {
        let mut compared = self.compared.subscribe();
        let waited = tokio::time::timeout(PATIENCE, compared.wait_for(|done| *done)).await;
        if waited.is_err() {
            self.compared.send_replace(true);
        }
    }

    /// Compares at the start, after each jump and every five minutes, until `stop`. After a confirmed jump the alarms of all ends in
    /// `coverage` are set again.
    pub(crate) async fn watch(
        self,
        server: Arc<dyn ServerTime>,
        coverage: Arc<Mutex<Coverage>>,
        metrics: Metrics,
        stop: CancellationToken,
    ) {
        let mut warned = false;
        let mut failing = false;
        let mut last = None;
        let mut routine = false;
        loop {
            let answer = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                answer = tokio::time::timeout(ANSWER, server.read()) => answer,
            };
            let answer = answer.unwrap_or_else(|_| Err("it did not answer in time".into()));
            let agreed = match answer {
                Ok(server) => {
                    failing = false;
                    let ahead = self.compare(server.filter(|date| moves(&mut last, *date)));
                    metrics.clock_ahead(ahead.unwrap_or_default());
                    if let Some(ahead) = ahead
                        && !warned
                    {
                        tracing::error!(
                            ?ahead,
                            "the node's clock differs from the API server's: bans end by the API server's; set the node's clock"
                        );
                    }
                    // While the clocks differ the ends lie where they were ten seconds ago.
                    let same = routine && !warned && ahead.is_none();
                    if (!warned || ahead.is_none()) && !same {
                        coverage.lock().rearm();
                    }
                    warned = ahead.is_some();
                    ahead.is_none()
                }
                Err(error) => {
                    if !failing {
                        tracing::warn!(%error, "could not compare the clock with the API server's; trying again");
                    }
                    failing = true;
                    false
                }
            };
            let again = async {
                if !agreed {
                    let first = !*self.compared.borrow();
                    let rest = if first { COMPARE_FIRST } else { COMPARE_AGAIN };
                    tokio::time::sleep(rest).await;
                    return false;
                }
                tokio::select! {
                    biased;
                    () = self.doubt.notified() => false,
                    () = tokio::time::sleep(COMPARE_OFTEN) => true,
                }
            };
            routine = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                routine = again => routine,
            };
        }
    }

    /// Believes the wall clock, or else the server; how far the wall clock is ahead of it, if too far. Negative: behind.
    pub(crate) fn compare(&self, server: Option<Timestamp>) -> Option<SignedDuration> {
        let wall = self.clock.now();
        let ahead = server.map_or(SignedDuration::ZERO, |server| wall.duration_since(server));
        let doubted = ahead.abs() > TOLERANCE;
        let at = server.filter(|_| doubted).unwrap_or(wall);
        let believed = Believed {
            at,
            since: Instant::now(),
        };
        let before = std::mem::replace(&mut *self.believed.lock(), believed);
        if before.expected().duration_since(at) > TOLERANCE {
            self.set_back.send_replace(());
        }
        self.compared.send_replace(true);
        doubted.then_some(ahead)
    }
}

// === impl Believed ===

impl Believed {
    fn expected(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.since.elapsed()).unwrap_or(SignedDuration::MAX);
        self.at.saturating_add(passed).unwrap_or(Timestamp::MAX)
    }
}

// === impl DateHeader ===

impl ServerTime for DateHeader {
    fn read(&self) -> BoxFuture<'_, Result<Option<Timestamp>, String>> {
        Box::pin(async move {
            let request = http::Request::get("/version")
                .header(http::header::CACHE_CONTROL, "no-cache")
                .body(kube_client::client::Body::empty());
            let request = request.map_err(|error| error.to_string())?;
            // Whatever the answer is, it has a date.
            let answer = self.0.send(request).await;
            let answer = answer.map_err(|error| error.to_string())?;
            let date = answer.headers().get(http::header::DATE);
            Ok(date.and_then(|date| read_date(date.to_str().ok()?)))
        })
    }
}

impl fmt::Debug for DateHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DateHeader").finish_non_exhaustive()
    }
}

/// Whether a date is later than the `last` one, which has the time it was read. A date that stands still comes from a
/// cache and is ignored.
fn moves(last: &mut Option<(Timestamp, Instant)>, date: Timestamp) -> bool {
    if last.is_some_and(|(before, at)| date <= before && at.elapsed() >= TICK) {
        return false;
    }
    *last = Some((date, Instant::now()));
    true
}

fn read_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(text)
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn hours(count: i64) -> SignedDuration {
        SignedDuration::from_hours(count)
    }

    /// Always the same date.
    #[derive(Debug)]
    struct Still(Timestamp);

    impl ServerTime for Still {
        fn read(&self) -> BoxFuture<'_, Result<Option<Timestamp>, String>> {
            Box::pin(async { Ok(Some(self.0)) })
        }
    }

    /// Behind by three hours, at the pace of time.
    #[derive(Debug)]
    struct Behind(Clock);

    impl ServerTime for Behind {
        fn read(&self) -> BoxFuture<'_, Result<Option<Timestamp>, String>> {
            Box::pin(async move { Ok(Some(self.0.now() - hours(3))) })
        }
    }

    fn watched(clock: &Clock, server: Arc<dyn ServerTime>) -> (Time, Arc<Mutex<Coverage>>) {
        let (time, coverage) = (Time::new(clock.clone()), Arc::<Mutex<Coverage>>::default());
        let watching = time.clone().watch(
            server,
            Arc::clone(&coverage),
            Metrics::new(),
            CancellationToken::new(),
        );
        tokio::spawn(watching);
        (time, coverage)
    }

    #[tokio::test(start_paused = true)]
    async fn a_date_that_stands_still_does_not_stop_the_time() {
        let clock = Clock::simulated(start() + hours(3), 1);
        let (time, _) = watched(&clock, Arc::new(Still(start())));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(time.now(), start() + SignedDuration::from_secs(1));
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(time.now(), clock.now(), "it is ignored");
    }

    /// At the pace of time, whatever the wall clock does.
    #[derive(Debug)]
    struct Steady(Instant);

    impl ServerTime for Steady {
        fn read(&self) -> BoxFuture<'_, Result<Option<Timestamp>, String>> {
            let passed = SignedDuration::try_from(self.0.elapsed()).unwrap();
            Box::pin(async move { Ok(Some(start() + passed)) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_drifts_is_found_though_it_never_jumps() {
        let clock = Clock::simulated(start(), 1);
        let begin = Instant::now();
        let (time, _) = watched(&clock, Arc::new(Steady(begin)));
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(60)).await;
            clock.jump(SignedDuration::from_secs(10));
            let _ = time.now();
        }
        let right = start() + SignedDuration::try_from(begin.elapsed()).unwrap();
        let ahead = time.now().duration_since(right);
        assert!(ahead.abs() <= TOLERANCE, "{ahead:?}");
        assert!(clock.now().duration_since(right) > SignedDuration::from_secs(500));
    }

    /// Never answers; counts the reads.
    #[derive(Debug, Default)]
    struct Silent(std::sync::atomic::AtomicUsize);

    impl ServerTime for Silent {
        fn read(&self) -> BoxFuture<'_, Result<Option<Timestamp>, String>> {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_is_read_again() {
        let silent = Arc::new(Silent::default());
        let clock = Clock::simulated(start(), 1);
        let _watched = watched(&clock, Arc::clone(&silent) as Arc<dyn ServerTime>);
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!(silent.0.load(std::sync::atomic::Ordering::Relaxed), 7);
    }

    /// Fails a number of times, then is three hours behind.
    #[derive(Debug)]
    struct Failing(std::sync::atomic::AtomicUsize, Clock);

    impl ServerTime for Failing {
        fn read(&self) -> BoxFuture<'_, Result<Option<Timestamp>, String>> {
            use std::sync::atomic::Ordering::Relaxed;
            let left = self
                .0
                .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
            Box::pin(async move {
                match left {
                    Ok(_) => Err("the connection was reset".to_owned()),
                    Err(_) => Ok(Some(self.1.now() - hours(3))),
                }
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_decision_waits_a_minute_for_a_server_that_fails() {
        let waits = async |failures: usize| {
            let clock = Clock::simulated(start(), 1);
            let (time, _) = watched(&clock, Arc::new(Failing(failures.into(), clock.clone())));
            let begin = Instant::now();
            time.compared().await;
            (
                begin.elapsed().as_secs(),
                clock.now().duration_since(time.now()),
            )
        };
        assert_eq!(waits(20).await, (20, hours(3)));
        assert_eq!(waits(1000).await, (60, SignedDuration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_clocks_differ_what_is_due_is_not_sent_again_and_again() {
        let clock = Clock::simulated(start(), 1);
        let (time, coverage) = watched(&clock, Arc::new(Behind(clock.clone())));
        let standing = crate::api::Standing {
            target: "192.0.2.7".parse().unwrap(),
            place: crate::api::Place::new("xdp", "g:1"),
        };
        tokio::time::sleep(Duration::from_secs(1)).await;
        coverage
            .lock()
            .set("a/b", standing, Some(start() - hours(4)));
        assert_eq!(coverage.lock().take_due(time.now()).len(), 1);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(coverage.lock().take_due(time.now()).is_empty());
    }

    #[test]
    fn a_date_header_is_read() {
        let read = read_date("Thu, 01 Jan 2026 00:00:00 GMT");
        assert_eq!(read, Some(start()));
        assert_eq!(read_date("yesterday"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_ahead_counts_when_the_server_confirms_it_and_not_before() {
        let clock = Clock::simulated(start(), 1);
        let time = Time::new(clock.clone());
        clock.jump(SignedDuration::from_secs(60));
        assert_eq!(time.now(), clock.now(), "small steps are believed");
        clock.jump(hours(2));
        tokio::time::sleep(Duration::from_secs(5)).await;
        let before = start() + SignedDuration::from_secs(65);
        assert_eq!(time.now(), before, "time goes on as it did");
        assert_eq!(time.compare(Some(before)), Some(hours(2)));
        assert_eq!(time.now(), before);
        assert_eq!(time.compare(Some(clock.now())), None);
        assert_eq!(time.now(), clock.now());
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_back_counts_when_the_server_confirms_it_and_not_before() {
        let clock = Clock::simulated(start(), 1);
        let time = Time::new(clock.clone());
        clock.jump(SignedDuration::from_secs(-60));
        assert_eq!(time.now(), clock.now(), "small steps are believed");
        let before = clock.now();
        clock.jump(hours(-2));
        assert_eq!(time.now(), before, "time goes on as it did");
        assert_eq!(time.compare(Some(before)), Some(hours(-2)));
        assert_eq!(time.now(), before);
        assert_eq!(time.compare(Some(clock.now())), None);
        assert_eq!(time.now(), clock.now());
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_behind_at_the_start_gives_way_to_the_servers_until_it_is_set() {
        let clock = Clock::simulated(start() - hours(3), 1);
        let time = Time::new(clock.clone());
        assert_eq!(time.compare(Some(start())), Some(hours(-3)));
        assert_eq!(time.now(), start());
        clock.jump(hours(3));
        assert_eq!(time.now(), clock.now());
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_ahead_at_the_start_gives_way_to_the_servers_until_it_is_set() {
        let clock = Clock::simulated(start() + hours(3), 1);
        let time = Time::new(clock.clone());
        assert!(time.compare(Some(start())).is_some());
        assert_eq!(time.now(), start());
        clock.jump(hours(-3));
        assert_eq!(time.now(), clock.now());
        assert_eq!(time.compare(None), None, "a server without a date");
    }
}
