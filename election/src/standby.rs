//! Input of a standby: events of the lease from a watch, and a limit on the tries they cause.

use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube_core::params::WatchParams;
use kube_core::{Request, Resource, WatchEvent};
use reeve_client::{Client, ObjectKey};
use tokio::time::{Instant, timeout};

/// Duration of one watch in seconds; then it is opened again.
const WATCH_SECONDS: u32 = 290;
/// Maximum pause between two watches that could not be opened, in retry periods.
const LONGEST_PAUSE: u32 = 32;
/// Maximum number of tries for the lease that events may cause at once; one more every retry period.
const EAGER: u32 = 3;

/// An event of a watch.
#[derive(Debug)]
pub(super) enum News {
    /// The current lease.
    Now(Box<Lease>),
    /// The lease was deleted.
    Gone,
    /// The watch ended, with an error or without.
    Ended(Option<String>),
}

/// A watch on one lease. It is opened again when it ends, with growing pauses if it shows nothing.
pub(super) struct Watch {
    stream: Option<BoxStream<'static, News>>,
    not_before: Instant,
    pause: Duration,
    period: Duration,
    deadline: Duration,
}

// === impl Watch ===

impl Watch {
    /// A closed watch of an elector that tries every `period`; opening it may take up to `deadline`.
    pub(super) fn new(period: Duration, deadline: Duration) -> Self {
        Self {
            deadline,
            stream: None,
            not_before: Instant::now(),
            pause: period,
            period,
        }
    }

    /// Opens the watch unless it is open, or failed a short while ago. Nothing is sent before [`Watch::next`].
    pub(super) fn open(&mut self, client: &Client, key: &ObjectKey) {
        if self.stream.is_some() || Instant::now() < self.not_before {
            return;
        }
        self.stream = Some(news(client, key, self.deadline));
    }

    /// The next event; pending indefinitely while the watch is closed. Cancel-safe.
    pub(super) async fn next(&mut self) -> News {
        let Some(stream) = &mut self.stream else {
            return std::future::pending().await;
        };
        let news = stream.next().await.unwrap_or(News::Ended(None));
        if let News::Ended(_) = news {
            self.close();
        } else {
            self.pause = self.period;
        }
        news
    }

    /// Closes the watch for a while, if it is open.
    pub(super) fn close(&mut self) {
        if self.stream.take().is_none() {
            return;
        }
        self.not_before = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(self.period * LONGEST_PAUSE);
    }

    /// The time when it may be opened again, if it is closed.
    pub(super) fn reopens(&self) -> Option<Instant> {
        self.stream.is_none().then_some(self.not_before)
    }
}

/// A watch that starts with the current state as its first event.
fn news(client: &Client, key: &ObjectKey, deadline: Duration) -> BoxStream<'static, News> {
    let params = WatchParams::default()
        .fields(&format!("metadata.name={}", key.name))
        .timeout(WATCH_SECONDS);
    let path = Lease::url_path(&(), key.namespace.as_deref());
    let (kube, name) = (client.kube().clone(), key.name.to_string());
    let opened = async move {
        let request = Request::new(path)
            .watch(&params, "")
            .map_err(|error| error.to_string())?;
        let events = timeout(deadline, kube.request_events::<Lease>(request))
            .await
            .map_err(|_| format!("no answer within {deadline:?}"))?
            .map_err(|error| error.to_string())?;
        Ok::<_, String>(events.map(|event| event.map_err(|error| error.to_string())))
    };
    let named = move |lease: &Lease| lease.metadata.name.as_deref() == Some(&*name);
    stream::once(opened)
        .try_flatten()
        .filter_map(move |event| {
            std::future::ready(match event {
                Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) if named(&lease) => {
                    Some(News::Now(Box::new(lease)))
                }
                Ok(WatchEvent::Deleted(lease)) if named(&lease) => Some(News::Gone),
                Ok(WatchEvent::Error(status)) => Some(News::Ended(Some(status.message))),
                Ok(_) => None,
                Err(error) => Some(News::Ended(Some(error))),
            })
        })
        .boxed()
}

/// Limits how often events lead to a try, however fast the lease changes hands.
#[derive(Debug)]
pub(super) struct Pace {
    left: u32,
    since: Instant,
    period: Duration,
}

// === impl Pace ===

impl Pace {
    pub(super) fn new(period: Duration) -> Self {
        Self {
            left: EAGER,
            since: Instant::now(),
            period,
        }
    }

    /// Takes a try, or returns the time of the next one.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Instant> {
        while self.left < EAGER && now.duration_since(self.since) >= self.period {
            self.left += 1;
            self.since += self.period;
        }
        if self.left == 0 {
            return Err(self.since + self.period);
        }
        if self.left == EAGER {
            self.since = now;
        }
        self.left -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn news_lead_to_three_tries_at_once_and_one_more_every_period() {
        let period = Duration::from_secs(2);
        let mut pace = Pace::new(period);
        let now = Instant::now();
        for _ in 0..EAGER {
            assert_eq!(pace.take(now), Ok(()));
        }
        assert_eq!(pace.take(now), Err(now + period));
        assert_eq!(pace.take(now + period), Ok(()));
        assert_eq!(pace.take(now + period), Err(now + period * 2));
        let later = now + period * 50;
        let tries = (0..10).filter(|_| pace.take(later).is_ok()).count();
        assert_eq!(tries, EAGER as usize, "what was not used does not add up");
    }
}
