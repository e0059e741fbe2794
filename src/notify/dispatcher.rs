//! The queue between the senders of notifications and the channel.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reeve_clock::Clock;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::rate::Rate;
use super::{Error, Event, Metrics, Notification, Notifier};

/// Notifications that wait; further ones are dropped and counted.
const CAPACITY: usize = 1000;

/// More than this many waiting notifications are sent in one digest.
const FLOOD: usize = 10;

/// Attempts for one notification.
const ATTEMPTS: u32 = 5;

/// Back-off between attempts: doubled from the first up to the last.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Takes notifications and delivers them in the background. Cloning is cheap; the worker ends with the
/// last clone.
#[derive(Clone, Debug)]
pub struct Notifications {
    queue: Arc<Queue>,
    _worker: Arc<AbortOnDropHandle<()>>,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    /// Something was queued, or the channel changed.
    changed: Notify,
    /// The queue is empty and nothing is being sent.
    idle: Notify,
    clock: Clock,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Notification>,
    /// Dropped since the last digest.
    dropped: u64,
    notifier: Option<Arc<dyn Notifier>>,
    sending: bool,
}

// === impl Notifications ===

impl Notifications {
    /// Starts the worker, without a channel: until [`Notifications::set`] notifications are dropped.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn start(clock: Clock, metrics: Metrics) -> Self {
        let queue = Arc::new(Queue {
            state: Mutex::default(),
            changed: Notify::new(),
            idle: Notify::new(),
            clock,
            metrics,
        });
        let worker = tokio::spawn(work(Arc::clone(&queue)));
        Self {
            queue,
            _worker: Arc::new(AbortOnDropHandle::new(worker)),
        }
    }

    /// Uses `notifier` from now on, for waiting notifications too; `None` turns notifications off.
    pub fn set(&self, notifier: Option<Arc<dyn Notifier>>) {
        let mut state = self.queue.state.lock();
        if notifier.is_none() {
            state.waiting.clear();
            state.dropped = 0;
        }
        state.notifier = notifier;
        drop(state);
        self.queue.changed.notify_one();
    }

    /// Queues `notification`. Never waits and never fails.
    pub fn send(&self, notification: Notification) {
        let mut state = self.queue.state.lock();
        let Some(notifier) = &state.notifier else {
            return;
        };
        if state.waiting.len() >= CAPACITY {
            self.queue.metrics.count(notifier.channel(), "dropped", 1);
            state.dropped += 1;
            return;
        }
        state.waiting.push_back(notification);
        drop(state);
        self.queue.changed.notify_one();
    }

    /// Waits until everything queued is delivered or given up, at most for `limit`.
    pub async fn flush(&self, limit: Duration) {
        let empty = async {
            loop {
                let idle = self.queue.idle.notified();
                {
                    let state = self.queue.state.lock();
                    if state.waiting.is_empty() && !state.sending {
                        return;
                    }
                }
                idle.await;
            }
        };
        let _ = tokio::time::timeout(limit, empty).await;
    }

    /// How many wait to be sent.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.state.lock().waiting.len()
    }
}

async fn work(queue: Arc<Queue>) {
    let mut rate = Rate::new(&[]);
    loop {
        let Some(channel) = queue.ready() else {
            queue.idle.notify_waiters();
            queue.changed.notified().await;
            continue;
        };
        if rate.limits() != channel.limits() {
            rate = Rate::new(channel.limits());
        }
        // Notifications that arrive while this waits may make a digest, so one is taken afterwards.
        tokio::time::sleep(rate.wait(Instant::now())).await;
        let Some((notification, stands_for)) = queue.take(channel.channel()) else {
            continue;
        };
        deliver(&queue, &mut rate, &notification, stands_for).await;
        queue.state.lock().sending = false;
    }
}

async fn deliver(queue: &Queue, rate: &mut Rate, notification: &Notification, stands_for: u64) {
    let mut wait = FIRST_WAIT;
    for attempt in 1..=ATTEMPTS {
        // Read again: the channel may have been replaced meanwhile.
        let notifier = queue.state.lock().notifier.clone();
        let Some(notifier) = notifier else {
            return;
        };
        let channel = notifier.channel();
        tokio::time::sleep(rate.wait(Instant::now())).await;
        rate.used(Instant::now());
        let after = match notifier.notify(notification).await {
            Ok(()) => {
                queue.metrics.count(channel, "sent", 1);
                return;
            }
            Err(Error::Never(why)) => {
                tracing::error!(channel, %why, "channel refused a notification");
                queue.metrics.count(channel, "failed", stands_for);
                return;
            }
            Err(Error::Later { why, after }) => {
                if attempt == ATTEMPTS {
                    tracing::error!(channel, %why, "gave up a notification");
                    queue.metrics.count(channel, "failed", stands_for);
                    return;
                }
                tracing::warn!(channel, %why, attempt, "could not deliver a notification; trying again");
                queue.metrics.count(channel, "retried", 1);
                after
            }
        };
        let pause = after.unwrap_or(wait).min(LONGEST_WAIT);
        tokio::time::sleep(queue.clock.random().jitter(pause, 0.2)).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

// === impl Queue ===

impl Queue {
    /// The channel, if a notification waits for it.
    fn ready(&self) -> Option<Arc<dyn Notifier>> {
        let state = self.state.lock();
        if state.waiting.is_empty() {
            return None;
        }
        state.notifier.clone()
    }

    /// The next notification, and the number that it stands for.
    fn take(&self, channel: &'static str) -> Option<(Notification, u64)> {
        let mut state = self.state.lock();
        let taken = if state.waiting.len() > FLOOD {
            let all: Vec<Notification> = state.waiting.drain(..).collect();
            let count = u64::try_from(all.len()).unwrap_or(u64::MAX);
            self.metrics.count(channel, "digested", count);
            let dropped = std::mem::take(&mut state.dropped);
            (digest(&all, dropped, &self.clock), count)
        } else {
            (state.waiting.pop_front()?, 1)
        };
        state.sending = true;
        Some(taken)
    }
}

/// Many notifications as one.
fn digest(all: &[Notification], dropped: u64, clock: &Clock) -> Notification {
    /// Addresses named of each kind.
    const NAMED: usize = 10;
    let mut message = format!("{} notifications in one.", all.len());
    for (event, title) in [
        (Event::Ban, "Banned"),
        (Event::Resolve, "Lifted"),
        (Event::Common, "Other"),
    ] {
        let of_kind: Vec<&Notification> = all.iter().filter(|it| it.event == event).collect();
        if of_kind.is_empty() {
            continue;
        }
        let _ = write!(message, " {title} {}: ", of_kind.len());
        let named: Vec<&str> = of_kind
            .iter()
            .take(NAMED)
            .map(|it| {
                if it.ip.is_empty() {
                    it.message.as_str()
                } else {
                    it.ip.as_str()
                }
            })
            .collect();
        message.push_str(&named.join(", "));
        if of_kind.len() > NAMED {
            let _ = write!(message, " and {} more", of_kind.len() - NAMED);
        }
        message.push('.');
    }
    if dropped > 0 {
        let _ = write!(message, " {dropped} more were dropped.");
    }
    Notification::common(clock.now(), message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbound::BoxFuture;

    /// Answers with the next of `answers`, then well; takes its time; remembers what it got and when.
    #[derive(Debug, Default)]
    struct Channel {
        answers: Mutex<VecDeque<Error>>,
        takes: Duration,
        got: Mutex<Vec<(Instant, Notification)>>,
    }

    impl Notifier for Channel {
        fn channel(&self) -> &'static str {
            "test"
        }

        fn limits(&self) -> &'static [(usize, Duration)] {
            const LIMITS: &[(usize, Duration)] =
                &[(5, Duration::from_secs(1)), (100, Duration::from_secs(60))];
            LIMITS
        }

        fn notify<'a>(
            &'a self,
            notification: &'a Notification,
        ) -> BoxFuture<'a, Result<(), Error>> {
            Box::pin(async move {
                tokio::time::sleep(self.takes).await;
                self.got.lock().push((Instant::now(), notification.clone()));
                self.answers.lock().pop_front().map_or(Ok(()), Err)
            })
        }
    }

    fn later() -> Error {
        Error::Later {
            why: "busy".into(),
            after: None,
        }
    }

    fn ban(number: usize) -> Notification {
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        Notification {
            event: Event::Ban,
            ip: format!("192.0.2.{number}"),
            ..Notification::common(at, "banned")
        }
    }

    fn start(channel: Channel) -> (Notifications, Arc<Channel>, Metrics) {
        let channel = Arc::new(channel);
        let metrics = Metrics::default();
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        let notifications = Notifications::start(Clock::simulated(start, 1), metrics.clone());
        notifications.set(Some(Arc::clone(&channel) as Arc<dyn Notifier>));
        (notifications, channel, metrics)
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn a_few_are_sent_one_by_one_in_order() {
        let (notifications, channel, metrics) = start(Channel::default());
        for number in 0..8 {
            notifications.send(ban(number));
        }
        notifications.flush(LONG).await;
        let got: Vec<String> = channel
            .got
            .lock()
            .iter()
            .map(|(_, it)| it.ip.clone())
            .collect();
        let expected: Vec<String> = (0..8).map(|number| format!("192.0.2.{number}")).collect();
        assert_eq!(got, expected);
        assert_eq!(metrics.get("test", "sent"), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_becomes_a_digest() {
        let (notifications, channel, metrics) = start(Channel::default());
        for number in 0..200 {
            notifications.send(ban(number));
        }
        notifications.flush(LONG).await;
        let got = channel.got.lock();
        assert!(got.len() <= 6, "{} messages", got.len());
        let text = &got[0].1.message;
        assert!(
            text.starts_with("200 notifications in one. Banned 200: 192.0.2.0, "),
            "{text}"
        );
        assert!(text.ends_with("and 190 more."), "{text}");
        assert_eq!(metrics.get("test", "digested"), 200);
    }

    #[tokio::test(start_paused = true)]
    async fn the_channels_rate_is_kept() {
        let (notifications, channel, _) = start(Channel::default());
        for number in 0..300 {
            notifications.send(ban(number));
            tokio::time::sleep(Duration::from_millis(120)).await;
        }
        notifications.flush(LONG).await;
        let got = channel.got.lock();
        for (count, window) in channel.limits() {
            for pair in got.windows(count + 1) {
                assert!(pair[*count].0 - pair[0].0 >= *window);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_retried_with_growing_waits() {
        let channel = Channel::default();
        channel.answers.lock().extend([later(), later(), later()]);
        let (notifications, channel, metrics) = start(channel);
        let started = Instant::now();
        notifications.send(ban(1));
        notifications.flush(LONG).await;
        assert_eq!(channel.got.lock().len(), 4);
        assert!(started.elapsed() >= Duration::from_secs(7));
        assert_eq!(
            (metrics.get("test", "sent"), metrics.get("test", "retried")),
            (1, 3)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_for_good_is_not_repeated() {
        let channel = Channel::default();
        channel
            .answers
            .lock()
            .push_back(Error::Never("wrong token".into()));
        let (notifications, channel, metrics) = start(channel);
        notifications.send(ban(1));
        notifications.send(ban(2));
        notifications.flush(LONG).await;
        assert_eq!(channel.got.lock().len(), 2);
        assert_eq!(
            (metrics.get("test", "failed"), metrics.get("test", "sent")),
            (1, 1)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_channel_that_hangs_delays_no_other_and_the_queue_is_bounded() {
        let channel = Channel {
            takes: LONG,
            ..Channel::default()
        };
        let (notifications, _, metrics) = start(channel);
        notifications.send(ban(0));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = Instant::now();
        for number in 0..1500 {
            notifications.send(ban(number));
        }
        assert_eq!(before.elapsed(), Duration::ZERO);
        assert_eq!(notifications.waiting(), CAPACITY);
        assert_eq!(metrics.get("test", "dropped"), 500);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_channel_everything_is_let_go() {
        let (notifications, channel, _) = start(Channel::default());
        notifications.set(None);
        notifications.send(ban(1));
        notifications.flush(LONG).await;
        assert!(channel.got.lock().is_empty());
        notifications.set(Some(Arc::clone(&channel) as Arc<dyn Notifier>));
        notifications.send(ban(2));
        notifications.flush(LONG).await;
        assert_eq!(channel.got.lock().len(), 1);
    }
}
