//! Takes events from the queue and writes them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube_core::params::Patch;
use reeve_clock::Clock;
use reeve_informer::ObjectKey;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::correlate::{Correlator, Count, ObjectIdentity, Unwritten, Verdict};
use super::turns::Turns;
use super::{QUEUE, Recorded};
use crate::client::{self, Client};
use crate::lifecycle::{Group, Runnable};

/// The number of tries of one write (client-go: `maxTriesPerEvent`).
const TRIES: u32 = 12;
/// The pause between two tries, with up to a quarter more.
const PAUSE: Duration = Duration::from_secs(10);
/// Events taken from the queue and not written yet: those of one turn are being written, the others wait for the next,
/// or pause before their next try. After the stop there are no turns.
const WRITES: usize = 8;
/// The interval of the checks of running series.
const SWEEP: Duration = Duration::from_secs(60);

/// Writes the events of one manager's recorders.
#[derive(Debug)]
pub(crate) struct Writer {
    client: Client,
    clock: Clock,
    /// The Pod's name.
    instance: String,
    queue: mpsc::Receiver<Recorded>,
    correlator: Correlator,
    turns: Arc<Turns>,
    /// The time in the last name, so that two events of one moment have two names.
    named: i128,
    /// Cancelled when unwritten events are dropped.
    giving_up: CancellationToken,
}

/// One write.
#[derive(Clone, Debug)]
struct Job {
    recorded: Recorded,
    name: String,
    /// `None` creates the event, a count patches its series.
    count: Option<i32>,
}

/// The result of a write.
#[derive(Debug)]
enum Ended {
    Written(Job),
    Gone(Job),
    /// Another event has its name.
    Taken(Job),
    Dropped(Job),
}

// === impl Writer ===

impl Writer {
    /// A writer, and the queue of the recorders.
    pub(crate) fn new(
        client: Client,
        clock: Clock,
        instance: String,
    ) -> (Self, mpsc::Sender<Recorded>) {
        let (sender, queue) = mpsc::channel(QUEUE);
        let writer = Self {
            client,
            clock,
            instance: super::cut(&instance, super::NAME),
            queue,
            correlator: Correlator::default(),
            turns: Arc::default(),
            named: 0,
            giving_up: CancellationToken::new(),
        };
        (writer, sender)
    }

    /// Cancelled, it drops what it has not written, and ends.
    pub(crate) fn giving_up(&self) -> &CancellationToken {
        &self.giving_up
    }

    /// The runnable of the writer.
    pub(crate) fn runnable(self, name: impl Into<String>) -> Runnable {
        let name = name.into();
        let run = Runnable::new(name.clone(), move |stop| async move {
            let dropped = self.run(stop).await;
            if dropped > 0 {
                tracing::warn!(
                    name,
                    dropped,
                    "could not write all events before the end of the grace period; dropped them"
                );
            }
            Ok::<_, std::convert::Infallible>(())
        });
        run.in_group(Group::Events)
    }

    /// Writes until `stop`; then the queued events, and the counts of the running series, each tried once. Returns the
    /// number of writes that were dropped after `giving_up`.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> usize {
        let mut writes: FuturesUnordered<BoxFuture<'static, Ended>> = FuturesUnordered::new();
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopping = false;
        // Counts that are due and not started.
        let mut counts: VecDeque<Job> = VecDeque::new();
        let mut last_counts = false;
        let giving_up = self.giving_up.clone();
        loop {
            if stopping && self.queue.is_empty() && writes.is_empty() && counts.is_empty() {
                if last_counts {
                    return 0;
                }
                last_counts = true;
                counts.extend(self.counts(Correlator::unwritten));
                continue;
            }
            while writes.len() < WRITES
                && let Some(job) = counts.pop_front()
            {
                writes.push(self.write(job, &stop));
            }
            tokio::select! {
                biased;
                () = giving_up.cancelled() => return self.give_up(writes, counts).await,
                () = stop.cancelled(), if !stopping => {
                    stopping = true;
                    self.queue.close();
                }
                Some(ended) = writes.next(), if !writes.is_empty() => {
                    if let Some(job) = self.settle(ended) {
                        writes.push(self.write(job, &stop));
                    }
                }
                _ = sweep.tick(), if !stopping => {
                    counts.extend(self.counts(Correlator::due));
                }
                Some(recorded) = self.queue.recv(), if writes.len() < WRITES => {
                    if let Some(job) = self.decide(recorded) {
                        writes.push(self.write(job, &stop));
                    }
                }
                else => return 0,
            }
        }
    }

    /// Drops and counts the writes under way, which end by themselves then, `counts` and those of the running series, and
    /// the queued events.
    async fn give_up(
        mut self,
        mut writes: FuturesUnordered<BoxFuture<'static, Ended>>,
        mut counts: VecDeque<Job>,
    ) -> usize {
        self.queue.close();
        counts.extend(self.counts(Correlator::unwritten));
        let mut dropped = counts.len();
        for count in counts {
            count.recorded.dropped.inc();
        }
        while let Some(ended) = writes.next().await {
            if let Ended::Dropped(job) | Ended::Gone(job) | Ended::Taken(job) = ended {
                job.recorded.dropped.inc();
                dropped += 1;
            }
        }
        while let Some(recorded) = self.queue.recv().await {
            recorded.dropped.inc();
            dropped += 1;
        }
        dropped
    }

    fn counts(
        &mut self,
        which: impl FnOnce(&mut Correlator, Instant) -> Vec<Unwritten>,
    ) -> Vec<Job> {
        let counts = which(&mut self.correlator, Instant::now());
        counts.into_iter().map(Job::of_series).collect()
    }

    fn name(&mut self, regarding: &ObjectReference, at: Timestamp) -> String {
        self.named = at.as_nanosecond().max(self.named + 1);
        event_name(regarding, self.named, &self.clock)
    }

    fn decide(&mut self, mut recorded: Recorded) -> Option<Job> {
        let name = self.name(&recorded.regarding, recorded.at);
        self.correlator
            .combine(&mut recorded.identity, Instant::now());
        let (identity, at) = (&recorded.identity, recorded.at);
        let (dropped, now) = (&recorded.dropped, Instant::now());
        let verdict = self.correlator.take(identity, &name, at, dropped, now);
        let (name, count) = match verdict {
            Verdict::Create => (name, None),
            Verdict::Count(Count { name, count, .. }) => (name, Some(count)),
            Verdict::Later => return None,
            Verdict::Spam => {
                recorded.dropped.inc();
                tracing::debug!(object = ?recorded.identity.object, "dropped an event: its object has too many");
                return None;
            }
        };
        Some(Job {
            recorded,
            name,
            count,
        })
    }

    /// Whether a later series of the same events has begun meanwhile.
    fn is_replaced(&self, job: &Job) -> bool {
        self.correlator
            .is_replaced(&job.recorded.identity, &job.name)
    }

    /// A series whose event object has expired starts again with a new one (client-go: 404 on patch → create).
    fn settle(&mut self, ended: Ended) -> Option<Job> {
        match ended {
            Ended::Written(job) if job.count.is_none() && !self.is_replaced(&job) => {
                let mut recorded = job.recorded;
                let created = self.correlator.created(&recorded.identity, Instant::now());
                let Count { name, count, at } = created?;
                recorded.at = at;
                Some(Job {
                    recorded,
                    name,
                    count: Some(count),
                })
            }
            Ended::Written(_) => None,
            Ended::Dropped(job) => {
                job.recorded.dropped.inc();
                if job.count.is_none() && !self.is_replaced(&job) {
                    self.correlator.forget(&job.recorded.identity);
                }
                None
            }
            // The time in a name is unique in one process only: the process before a restart, or another replica, may
            // have used it, above all where the clock was set back.
            Ended::Taken(mut job) => {
                let name = random_name(&job.recorded.regarding, &self.clock);
                if !self.is_replaced(&job) {
                    self.correlator.rename(&job.recorded.identity, &name);
                }
                job.name = name;
                Some(job)
            }
            // A later event of the kind has begun a series with an object of its own.
            Ended::Gone(job) if self.is_replaced(&job) => {
                tracing::debug!(
                    object = ?job.recorded.identity.object,
                    count = job.count,
                    "dropped the last count of an event whose object has expired"
                );
                job.recorded.dropped.inc();
                None
            }
            Ended::Gone(mut job) => {
                self.correlator.forget(&job.recorded.identity);
                job.name = self.name(&job.recorded.regarding, self.clock.now());
                let recorded = &job.recorded;
                let (identity, at, dropped) = (&recorded.identity, recorded.at, &recorded.dropped);
                let _ = self
                    .correlator
                    .take(identity, &job.name, at, dropped, Instant::now());
                job.count = None;
                Some(job)
            }
        }
    }

    fn write(&self, job: Job, stop: &CancellationToken) -> BoxFuture<'static, Ended> {
        let (client, clock, stop) = (self.client.clone(), self.clock.clone(), stop.clone());
        let (turns, instance) = (Arc::clone(&self.turns), self.instance.clone());
        let giving_up = self.giving_up.clone();
        async move {
            let mut tries = 0;
            loop {
                let turn = tokio::select! {
                    biased;
                    () = stop.cancelled() => None,
                    turn = turns.take() => Some(turn),
                };
                let answer = tokio::select! {
                    biased;
                    () = giving_up.cancelled() => return Ended::Dropped(job),
                    answer = try_write(&client, &job, &instance) => answer,
                };
                drop(turn);
                let Err(error) = answer else {
                    return Ended::Written(job);
                };
                tries += 1;
                if job.count.is_some() && error.is_not_found() {
                    return Ended::Gone(job);
                }
                if tries > 1 && error.is_already_exists() {
                    // The own first try, whose answer was lost.
                    return Ended::Written(job);
                }
                if error.is_already_exists() {
                    return Ended::Taken(job);
                }
                let final_answer = error
                    .status()
                    .is_some_and(|status| status.code < 500 && status.code != 429);
                if final_answer || tries == TRIES || stop.is_cancelled() {
                    tracing::warn!(event = %job.name, %error, tries, "could not write an event");
                    return Ended::Dropped(job);
                }
                let pause = clock.random().jitter(PAUSE, 0.25);
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = sleep(pause) => {}
                }
            }
        }
        .boxed()
    }
}

// === impl Job ===

impl Job {
    /// The write of a series' count, made from its identity.
    fn of_series(unwritten: Unwritten) -> Self {
        let Unwritten {
            identity,
            count: Count { name, count, at },
            dropped,
        } = unwritten;
        let recorded = Recorded {
            regarding: reference_of(&identity.object),
            related: identity.related.as_ref().map(reference_of),
            identity,
            at,
            annotations: Arc::default(),
            dropped,
        };
        Self {
            recorded,
            name,
            count: Some(count),
        }
    }
}

async fn try_write(client: &Client, job: &Job, instance: &str) -> Result<(), client::Error> {
    let recorded = &job.recorded;
    let namespace = namespace_of(&recorded.regarding);
    if let Some(count) = job.count {
        let key = ObjectKey::namespaced(namespace, job.name.as_str());
        let series =
            json!({"series": {"count": count, "lastObservedTime": MicroTime(recorded.at)}});
        let patch = Patch::Merge(series);
        return client.patch::<Event>(&key, &patch).await.map(|_| ());
    }
    let identity = &recorded.identity;
    let event_type = if identity.warning {
        "Warning"
    } else {
        "Normal"
    };
    let mut event = Event {
        action: Some(identity.action.clone()),
        event_time: Some(MicroTime(recorded.at)),
        note: Some(identity.note.clone()),
        reason: Some(identity.reason.clone()),
        regarding: Some(recorded.regarding.clone()),
        related: recorded.related.clone(),
        reporting_controller: Some(identity.controller.clone()),
        reporting_instance: Some(instance.to_owned()),
        type_: Some(event_type.to_owned()),
        ..Event::default()
    };
    event.metadata.name = Some(job.name.clone());
    event.metadata.namespace = Some(namespace.to_owned());
    if !recorded.annotations.is_empty() {
        event.metadata.annotations = Some((*recorded.annotations).clone());
    }
    client.objects().create_unread(&event).await
}

fn reference_of(object: &ObjectIdentity) -> ObjectReference {
    let text = |field: &String| Some(field.clone()).filter(|text| !text.is_empty());
    ObjectReference {
        api_version: text(&object.api_version),
        kind: text(&object.kind),
        namespace: text(&object.namespace),
        name: text(&object.name),
        uid: text(&object.uid),
        ..ObjectReference::default()
    }
}

/// An event lives in the namespace of its object; those of cluster-scoped objects in `default`.
fn namespace_of(regarding: &ObjectReference) -> &str {
    regarding
        .namespace
        .as_deref()
        .filter(|namespace| !namespace.is_empty())
        .unwrap_or("default")
}

/// `<object>.<nanoseconds in hex>`; a random name where the object's name leaves no room for that.
fn event_name(regarding: &ObjectReference, nanos: i128, clock: &Clock) -> String {
    named(regarding, &format!("{nanos:x}"), clock)
}

/// As [`event_name`], with a random part in place of the time.
fn random_name(regarding: &ObjectReference, clock: &Clock) -> String {
    named(
        regarding,
        &format!("{:016x}", clock.random().next_u64()),
        clock,
    )
}

fn named(regarding: &ObjectReference, suffix: &str, clock: &Clock) -> String {
    let object = regarding.name.as_deref().unwrap_or_default();
    let fits = !object.is_empty() && object.len() <= 253 - 17;
    let plain = object
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte));
    if fits && plain {
        format!("{object}.{suffix}")
    } else {
        let random = clock.random();
        format!("{:016x}{:016x}", random.next_u64(), random.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::super::correlate::tests::identity;
    use super::*;
    use crate::fake::{Fake, clock};

    /// Later events of the kind have begun a series with an object of its own, which is being created.
    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_write_leaves_a_later_series_alone() {
        let client = Client::new(Fake::default().client());
        let identity = identity("up");
        let (at, dropped) = (Timestamp::UNIX_EPOCH, Counter::default());
        let count = Job::of_series(Unwritten {
            identity: identity.clone(),
            count: Count {
                name: "web.1".into(),
                count: 3,
                at,
            },
            dropped: dropped.clone(),
        });
        let event = Job {
            count: None,
            ..count.clone()
        };
        for ended in [
            Ended::Written(event.clone()),
            Ended::Dropped(event.clone()),
            Ended::Gone(count),
            Ended::Taken(event),
        ] {
            let (mut writer, _recorders) = Writer::new(client.clone(), clock(), "pod-0".into());
            let now = Instant::now();
            let take = |writer: &mut Writer, name| {
                let correlator = &mut writer.correlator;
                correlator.take(&identity, name, at, &dropped, now)
            };
            assert_eq!(take(&mut writer, "web.2"), Verdict::Create);
            let what = format!("{ended:?}");
            // An event whose name is taken is written under another one.
            let again = matches!(ended, Ended::Taken(_));
            assert_eq!(writer.settle(ended).is_some(), again, "{what}");
            assert_eq!(take(&mut writer, "web.3"), Verdict::Later, "{what}");
            let created = writer.correlator.created(&identity, now).unwrap();
            assert_eq!((&*created.name, created.count), ("web.2", 2), "{what}");
        }
        assert_eq!(dropped.get(), 2, "an event and the count of another one");
    }

    #[test]
    fn names_are_dns_subdomains() {
        let clock = Clock::system();
        let at: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let named = |name: &str| {
            let reference = ObjectReference {
                name: Some(name.into()),
                ..ObjectReference::default()
            };
            event_name(&reference, at.as_nanosecond(), &clock)
        };
        assert_eq!(named("web-1"), format!("web-1.{:x}", at.as_nanosecond()));
        let longest = "a".repeat(253 - 17);
        assert_eq!(named(&longest).len(), 253);
        for odd in [
            "",
            "system:node",
            "Web",
            "a_b",
            "\u{e4}",
            &"a".repeat(253 - 16),
        ] {
            let name = named(odd);
            let plain = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
            assert!(name.len() == 32 && name.chars().all(plain), "{odd}: {name}");
            assert_ne!(name, named(odd), "{odd}");
        }
    }
}
