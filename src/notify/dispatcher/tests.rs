//! Channels that fail, hang and are flooded, in paused time.

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

    fn notify<'a>(&'a self, notification: &'a Notification) -> BoxFuture<'a, Result<(), Error>> {
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
async fn a_channel_that_cannot_be_connected_keeps_its_queue_and_a_removed_one_counts_it() {
    let (notifications, channel, metrics) = start(Fake {
        answers: Mutex::new((0..4).map(|_| later()).collect()),
        ..Fake::default()
    });
    for number in 0..3 {
        notifications.send(ban(number));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    notifications.set_and_keep(Vec::new(), &["test"]);
    notifications.flush(Duration::from_secs(600)).await;
    let got: Vec<String> = channel
        .got
        .lock()
        .iter()
        .map(|it| it.1.ip.clone())
        .collect();
    assert!(got.contains(&"192.0.2.2".to_owned()), "{got:?}");
    assert_eq!(
        (metrics.get("test", "sent"), metrics.get("test", "dropped")),
        (3, 0)
    );

    channel.answers.lock().push_back(later());
    for number in 3..6 {
        notifications.send(ban(number));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    notifications.set(Vec::new());
    assert_eq!(metrics.get("test", "dropped"), 3, "one was being sent");
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
        text.starts_with("200 notifications in one: 200 banned. Banned: 192.0.2.0, "),
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
async fn a_channel_that_is_configured_again_keeps_its_queue_and_one_that_is_gone_sends_nothing() {
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

#[tokio::test(start_paused = true)]
async fn a_channel_that_asks_for_no_pause_has_the_growing_waits() {
    let fake = Fake::default();
    for _ in 0..4 {
        fake.answers.lock().push_back(Error::Later {
            why: "its date is past here".into(),
            after: Some(Duration::ZERO),
        });
    }
    let (notifications, fake, _) = start(fake);
    notifications.send(ban(1));
    notifications.flush(LONG).await;
    let got = fake.got.lock();
    assert_eq!(got.len(), 5);
    let waited = got[4].0 - got[0].0;
    assert!(waited >= Duration::from_secs(15), "{waited:?}");
}
