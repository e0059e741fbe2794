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
use crate::sampled::Sampled;

/// Notifications that wait; further ones are dropped and counted.
const CAPACITY: usize = 1000;

/// More than this many waiting notifications are sent in one digest.
const FLOOD: usize = 10;

/// Attempts for one notification.
const ATTEMPTS: u32 = 5;

/// One line about dropped notifications of a channel within this time.
const DROPS_LOGGED: Duration = Duration::from_secs(60);

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
    /// The log of notifications that are dropped.
    drops: Sampled,
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
    /// that is gone are dropped and counted.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn set(&self, channels: Vec<Channel>) {
        self.set_and_keep(channels, &[]);
    }

    /// As [`set`](Self::set), and leaves the channels named `kept` as they are: configured ones that cannot be connected
    /// at the moment.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn set_and_keep(&self, channels: Vec<Channel>, kept: &[&str]) {
        let mut working = self.channels.lock();
        let names: Vec<String> = channels.iter().map(|it| it.name.clone()).collect();
        working.retain(|name, working| {
            let stays = names.contains(name) || kept.contains(&name.as_str());
            if !stays {
                working.queue.discard(name);
            }
            stays
        });
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
                drops: Sampled::every(DROPS_LOGGED),
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
        // Not earlier than the channel asks for. It may ask for no pause at all, by a date that is past here.
        let pause = after.map_or(wait, |after| after.min(LONGEST_AFTER).max(wait));
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
            let channel = state.channel.name.as_str();
            self.metrics.count(channel, "dropped", 1);
            if let Some(unlogged) = self.drops.pass() {
                tracing::warn!(
                    channel,
                    unlogged,
                    "the queue of a channel is full; a notification is dropped"
                );
            }
            state.dropped += 1;
            return;
        }
        state.waiting.push_back(notification.clone());
        drop(state);
        self.changed.notify_one();
    }

    /// Counts everything that the channel `name` will not deliver as dropped.
    fn discard(&self, name: &str) {
        let mut state = self.state.lock();
        let waiting = state.waiting.len() + usize::from(state.sending);
        state.waiting.clear();
        if waiting > 0 {
            tracing::warn!(
                channel = name,
                waiting,
                "notifications of a removed channel are dropped"
            );
            let waiting = u64::try_from(waiting).unwrap_or(u64::MAX);
            self.metrics.count(name, "dropped", waiting);
        }
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
    let kinds = [
        (Event::Ban, "banned", "Banned"),
        (Event::Resolve, "lifted", "Lifted"),
        (Event::Common, "other", "Other"),
    ];
    let of_kind =
        |event| -> Vec<&Notification> { all.iter().filter(|it| it.event == event).collect() };
    // A card cuts a long text at its end, so the numbers come first.
    let counts = kinds.iter().filter_map(|(event, word, _)| {
        let count = of_kind(*event).len();
        (count > 0).then(|| format!("{count} {word}"))
    });
    let counts: Vec<String> = counts.collect();
    let mut message = format!("{} notifications in one: {}", all.len(), counts.join(", "));
    if dropped > 0 {
        let _ = write!(message, ", {dropped} more dropped");
    }
    message.push('.');
    for (event, _, title) in kinds {
        let of_kind = of_kind(event);
        if of_kind.is_empty() {
            continue;
        }
        let _ = write!(message, " {title}: ");
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
    Notification::common(clock.now(), message)
}

#[cfg(test)]
mod tests;
