//! The queue between the senders of notifications and the channel.

use std::collections::{BTreeMap, VecDeque};
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

/// The longest wait that a channel may ask for. DingTalk refuses everything for ten minutes after a flood.
const LONGEST_AFTER: Duration = Duration::from_secs(10 * 60);

/// A channel as configured.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Its name, in metrics and logs. It keeps its queue while the configuration has a channel of this name.
    pub name: String,
    /// The events that it gets.
    pub events: Vec<Event>,
    /// How often it may be used: each a number of notifications in a time, all of which hold.
    pub limits: Vec<(usize, Duration)>,
    /// Whether many waiting notifications become one.
    pub digest: bool,
    /// What delivers.
    pub notifier: Arc<dyn Notifier>,
}

/// Takes notifications and delivers them in the background, each channel by a queue and a worker of its own: one that
/// fails or is slow does not hold up another. Cloning is cheap; the workers end with the last clone.
#[derive(Clone, Debug)]
pub struct Notifications {
    channels: Arc<Mutex<BTreeMap<String, Working>>>,
    clock: Clock,
    metrics: Metrics,
}

#[derive(Debug)]
struct Working {
    queue: Arc<Queue>,
    _worker: AbortOnDropHandle<()>,
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

#[derive(Debug)]
struct State {
    waiting: VecDeque<Notification>,
    /// Dropped since the last digest.
    dropped: u64,
    channel: Arc<Channel>,
    sending: bool,
}

// === impl Channel ===

impl Channel {
    /// All events, by the limits of `notifier`, named after it.
    #[must_use]
    pub fn new(notifier: Arc<dyn Notifier>) -> Self {
        Self {
            name: notifier.channel().to_owned(),
            events: Event::ALL.to_vec(),
            limits: notifier.limits().to_vec(),
            digest: notifier.digests(),
            notifier,
        }
    }
}

// === impl Notifications ===

impl Notifications {
    /// No channel: until [`Notifications::set`] notifications are dropped.
    #[must_use]
    pub fn start(clock: Clock, metrics: Metrics) -> Self {
        Self {
            channels: Arc::default(),
            clock,
            metrics,
        }
    }

    /// Uses exactly `channels` from now on. One whose name is known gets its waiting notifications, too; those of a name
    /// that is gone are dropped.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn set(&self, channels: Vec<Channel>) {
        let mut working = self.channels.lock();
        let names: Vec<String> = channels.iter().map(|it| it.name.clone()).collect();
        working.retain(|name, _| names.contains(name));
        for channel in channels {
            let channel = Arc::new(channel);
            if let Some(present) = working.get(&channel.name) {
                present.queue.state.lock().channel = channel;
                present.queue.changed.notify_one();
                continue;
            }
            let name = channel.name.clone();
            let queue = Arc::new(Queue {
                state: Mutex::new(State {
                    waiting: VecDeque::new(),
                    dropped: 0,
                    channel,
                    sending: false,
                }),
                changed: Notify::new(),
                idle: Notify::new(),
                clock: self.clock.clone(),
                metrics: self.metrics.clone(),
            });
            let worker = tokio::spawn(work(Arc::clone(&queue)));
            let _worker = AbortOnDropHandle::new(worker);
            working.insert(name, Working { queue, _worker });
        }
    }

    /// Queues `notification` for each channel that gets its event. Never waits and never fails.
    pub fn send(&self, notification: Notification) {
        for working in self.channels.lock().values() {
            working.queue.push(&notification);
        }
    }

    /// Waits until everything queued is delivered or given up, at most for `limit`.
    pub async fn flush(&self, limit: Duration) {
        let queues: Vec<Arc<Queue>> = {
            let channels = self.channels.lock();
            channels.values().map(|it| Arc::clone(&it.queue)).collect()
        };
        let empty = futures::future::join_all(queues.iter().map(|queue| queue.empty()));
        let _ = tokio::time::timeout(limit, empty).await;
    }

    /// How many wait to be sent, in all queues.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let channels = self.channels.lock();
        channels
            .values()
            .map(|it| it.queue.state.lock().waiting.len())
            .sum()
    }
}

async fn work(queue: Arc<Queue>) {
    let mut rate = Rate::new(Vec::new());
    loop {
        let Some(channel) = queue.ready() else {
            queue.idle.notify_waiters();
            queue.changed.notified().await;
            continue;
        };
        if rate.limits() != channel.limits {
            rate = Rate::new(channel.limits.clone());
        }
        // Notifications that arrive while this waits may make a digest, so one is taken afterwards.
        tokio::time::sleep(rate.wait(Instant::now())).await;
        let Some((notification, stands_for)) = queue.take() else {
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
        let present = Arc::clone(&queue.state.lock().channel);
        let channel = present.name.as_str();
        tokio::time::sleep(rate.wait(Instant::now())).await;
        rate.used(Instant::now());
        let after = match present.notifier.notify(notification).await {
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
        // Not earlier than the channel asks for.
        let pause = after.map_or(wait, |after| after.min(LONGEST_AFTER));
        tokio::time::sleep(queue.clock.random().jitter(pause, 0.2)).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

// === impl Queue ===

impl Queue {
    fn push(&self, notification: &Notification) {
        let mut state = self.state.lock();
        if !state.channel.events.contains(&notification.event) {
            return;
        }
        if state.waiting.len() >= CAPACITY {
            self.metrics.count(&state.channel.name, "dropped", 1);
            state.dropped += 1;
            return;
        }
        state.waiting.push_back(notification.clone());
        drop(state);
        self.changed.notify_one();
    }

    /// Waits until nothing is queued and nothing is being sent.
    async fn empty(&self) {
        loop {
            let idle = self.idle.notified();
            {
                let state = self.state.lock();
                if state.waiting.is_empty() && !state.sending {
                    return;
                }
            }
            idle.await;
        }
    }

    /// The channel, if a notification waits for it.
    fn ready(&self) -> Option<Arc<Channel>> {
        let state = self.state.lock();
        (!state.waiting.is_empty()).then(|| Arc::clone(&state.channel))
    }

    /// The next notification, and the number that it stands for.
    fn take(&self) -> Option<(Notification, u64)> {
        let mut state = self.state.lock();
        let taken = if state.channel.digest && state.waiting.len() > FLOOD {
            let all: Vec<Notification> = state.waiting.drain(..).collect();
            let count = u64::try_from(all.len()).unwrap_or(u64::MAX);
            self.metrics.count(&state.channel.name, "digested", count);
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
    struct Fake {
        answers: Mutex<VecDeque<Error>>,
        takes: Duration,
        got: Mutex<Vec<(Instant, Notification)>>,
    }

    impl Notifier for Fake {
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

    fn start(channel: Fake) -> (Notifications, Arc<Fake>, Metrics) {
        let channel = Arc::new(channel);
        let metrics = Metrics::default();
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        let notifications = Notifications::start(Clock::simulated(start, 1), metrics.clone());
        notifications.set(vec![
            Channel::new(Arc::clone(&channel) as Arc<dyn Notifier>),
        ]);
        (notifications, channel, metrics)
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn a_few_are_sent_one_by_one_in_order() {
        let (notifications, channel, metrics) = start(Fake::default());
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
        let (notifications, channel, metrics) = start(Fake::default());
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
        let (notifications, channel, _) = start(Fake::default());
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
        let channel = Fake::default();
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
        let channel = Fake::default();
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
        let channel = Fake {
            takes: LONG,
            ..Fake::default()
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
        let (notifications, channel, _) = start(Fake::default());
        notifications.set(Vec::new());
        notifications.send(ban(1));
        notifications.flush(LONG).await;
        assert!(channel.got.lock().is_empty());
        notifications.set(vec![
            Channel::new(Arc::clone(&channel) as Arc<dyn Notifier>),
        ]);
        notifications.send(ban(2));
        notifications.flush(LONG).await;
        assert_eq!(channel.got.lock().len(), 1);
    }

    /// A channel of this name over `fake`.
    fn named(name: &str, fake: &Arc<Fake>) -> Channel {
        let name = name.to_owned();
        let notifier = Arc::clone(fake) as Arc<dyn Notifier>;
        Channel {
            name,
            ..Channel::new(notifier)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_channel_that_hangs_does_not_hold_up_another_and_each_gets_its_events() {
        let (notifications, first, metrics) = start(Fake::default());
        let slow = Arc::new(Fake {
            takes: LONG,
            ..Fake::default()
        });
        let trouble = Arc::new(Fake::default());
        let mut filtered = named("trouble", &trouble);
        filtered.events = vec![Event::Common];
        notifications.set(vec![named("a", &first), named("slow", &slow), filtered]);
        for number in 0..3 {
            notifications.send(ban(number));
        }
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        notifications.send(Notification::common(at, "trouble"));
        notifications.flush(Duration::from_secs(10)).await;
        assert_eq!(first.got.lock().len(), 4);
        assert_eq!(trouble.got.lock().len(), 1);
        assert!(slow.got.lock().is_empty());
        assert_eq!(
            (metrics.get("a", "sent"), metrics.get("slow", "sent")),
            (4, 0)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_channel_that_is_configured_again_keeps_its_queue_and_one_that_is_gone_sends_nothing()
    {
        let (notifications, old, _) = start(Fake::default());
        old.answers.lock().extend([later(), later()]);
        let gone = Arc::new(Fake {
            takes: Duration::from_secs(5),
            ..Fake::default()
        });
        notifications.set(vec![named("test", &old), named("gone", &gone)]);
        notifications.send(ban(1));
        notifications.send(ban(2));
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(old.got.lock().len(), 1, "the first attempt");
        let new = Arc::new(Fake::default());
        notifications.set(vec![named("test", &new)]);
        notifications.flush(LONG).await;
        assert_eq!(new.got.lock().len(), 2);
        assert!(gone.got.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_channel_of_programs_gets_each_event_of_a_flood() {
        let (notifications, fake, metrics) = start(Fake::default());
        let mut each = named("test", &fake);
        each.digest = false;
        notifications.set(vec![each]);
        for number in 0..200 {
            notifications.send(ban(number));
        }
        notifications.flush(LONG).await;
        assert_eq!(fake.got.lock().len(), 200);
        assert_eq!(metrics.get("test", "digested"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_that_a_channel_asks_for_is_kept() {
        let fake = Fake::default();
        fake.answers.lock().push_back(Error::Later {
            why: "too many".into(),
            after: Some(Duration::from_secs(90)),
        });
        let (notifications, fake, _) = start(fake);
        let started = Instant::now();
        notifications.send(ban(1));
        notifications.flush(LONG).await;
        assert_eq!(fake.got.lock().len(), 2);
        let waited = started.elapsed();
        assert!(
            waited >= Duration::from_secs(90) && waited < Duration::from_secs(110),
            "{waited:?}"
        );
    }
}
