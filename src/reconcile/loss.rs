//! Gateways that lost their bans: a gateway that restarts has an empty list, and nothing reports that.
//!
//! Every [`CHECK`] the configured gateway is compared with the bans that this process asserted there. One that lists its
//! entries is asked for the list; of another one a few bans are asserted, each time the next ones. A ban that was
//! missing is evidence: all bans that were asserted there before are asserted at once, not at their next turn.
//! The checks write nothing to the API server, and wait behind lifts as every assertion does. Each check also tries a lift
//! at the earlier gateways at which bans were left.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reeve_controller::source::Sender;
use reeve_controller::{Request, Runnable};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::engines::Engines;
use super::left::Left;
use super::live::Live;
use super::sweep::request_named;
use crate::api::Place;
use crate::config::Config;
use crate::decide::Coverage;
use crate::guard;
use crate::target::Target;

/// How often a gateway is checked.
const CHECK: Duration = Duration::from_secs(20);

/// Bans that are asserted in one check of a gateway that has no list.
const SAMPLE: usize = 3;

/// When a gateway is asked again whose list was too long.
const LISTED_AGAIN: Duration = Duration::from_secs(3600);

/// A list of more bans is not asked for: the answer would be longer than what is read of one.
const LONGEST_LIST: usize = 2000;

/// The gateways that lost bans, and the blocks that are asserted again because of it.
#[derive(Debug)]
pub struct Losses {
    /// The last loss that was found at a place. What was asserted since stands.
    found: Mutex<HashMap<Place, Loss>>,
    left: Mutex<Left>,
    /// Each block once, however often it is found again while the channel is full.
    doubted: Mutex<BTreeSet<Arc<str>>>,
    changed: Notify,
    metrics: guard::Metrics,
}

/// A loss at one place.
#[derive(Clone, Copy, Debug)]
struct Loss {
    at: Instant,
    /// A loss within this time is no reason to assert everything: the gateway lacks some bans again and again.
    pause: Duration,
}

/// What the checks work with.
#[derive(Clone, Debug)]
pub(crate) struct Checks {
    pub(crate) losses: Arc<Losses>,
    pub(crate) live: Live,
    pub(crate) engines: Arc<Engines>,
    pub(crate) coverage: Arc<Mutex<Coverage>>,
    pub(crate) again: Sender<Request>,
}

// === impl Losses ===

impl Losses {
    /// Nothing was lost yet.
    #[must_use]
    pub fn new(metrics: guard::Metrics) -> Self {
        Self {
            found: Mutex::default(),
            left: Mutex::default(),
            doubted: Mutex::default(),
            changed: Notify::new(),
            metrics,
        }
    }

    /// The gateway at `place` had no ban that was `asserted` there. If that was after the last loss, every ban there is
    /// asserted again. From one loss to the next the pause doubles, up to `longest`; a gateway that kept its bans for twice
    /// the pause begins again. Returns what to report; `None`: the loss is known.
    pub(super) fn found(
        &self,
        place: &Place,
        asserted: Instant,
        longest: Duration,
        coverage: &Mutex<Coverage>,
    ) -> Option<String> {
        {
            let mut found = self.found.lock();
            let now = Instant::now();
            let mut pause = CHECK;
            if let Some(last) = found.get(place) {
                let passed = now.duration_since(last.at);
                if asserted < last.at || passed < last.pause {
                    return None;
                }
                if passed < last.pause * 2 {
                    pause = (last.pause * 2).min(longest.max(CHECK));
                }
            }
            found.insert(place.clone(), Loss { at: now, pause });
        }
        let keys = coverage.lock().suspect(place);
        let bans = keys.len();
        tracing::warn!(%place, bans, "gateway lost its bans; asserting all of them again");
        self.metrics.gateway_lost();
        self.request(keys);
        Some(format!(
            "the gateway {place} had lost bans: it restarted, or another program removed them; all {bans} bans that stand there are made again now"
        ))
    }

    /// A lift for block `key` at `place` failed, and the block goes on without it.
    pub(super) fn left(&self, place: &Place, key: &str) {
        self.left.lock().failed(place, key);
    }

    /// A lift for block `key` at `place` succeeded: what other blocks left there is lifted now.
    pub(super) fn lifted(&self, place: &Place, key: &str, coverage: &Mutex<Coverage>) {
        let others = self.left.lock().lifted(place, key);
        if !others.is_empty() {
            let bans = others.len();
            tracing::info!(%place, bans, "earlier gateway answers again; lifting the bans that were left there");
            self.doubt(others, coverage);
        }
    }

    /// Has the bans of these blocks asserted, which also lifts what they left elsewhere.
    fn doubt(&self, keys: impl IntoIterator<Item = Arc<str>>, coverage: &Mutex<Coverage>) {
        let keys: Vec<Arc<str>> = keys.into_iter().collect();
        {
            let mut coverage = coverage.lock();
            keys.iter().for_each(|key| coverage.doubt(key));
        }
        self.request(keys);
    }

    /// Requests these blocks as soon as the channel has room.
    pub(super) fn request(&self, keys: Vec<Arc<str>>) {
        self.doubted.lock().extend(keys);
        self.changed.notify_one();
    }

    fn take(&self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut *self.doubted.lock())
    }
}

// === impl Checks ===

impl Checks {
    /// The checks at work, while this process leads.
    pub(crate) fn runnable(self) -> Runnable {
        Runnable::new("lost bans", move |stop| async move {
            self.run(stop).await;
            Ok::<_, std::convert::Infallible>(())
        })
    }

    /// Checks until `stop`.
    async fn run(self, stop: CancellationToken) {
        let work = async { tokio::join!(self.check(), self.request()) };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            _ = work => {}
        }
    }

    /// Requests the blocks whose bans are in doubt. Waits for room in the channel, so that none is left out.
    pub(super) async fn request(&self) {
        loop {
            self.losses.changed.notified().await;
            for key in self.losses.take() {
                if let Some(request) = request_named(&key)
                    && self.again.send(request).await.is_err()
                {
                    return;
                }
            }
        }
    }

    async fn check(&self) {
        let mut last: Option<Arc<str>> = None;
        let mut too_long = None;
        loop {
            tokio::time::sleep(CHECK).await;
            let left = {
                let coverage = self.coverage.lock();
                let active = |key: &str| coverage.claims_ban(key);
                self.losses.left.lock().probe(active)
            };
            self.losses.doubt(left, &self.coverage);
            let Some(config) = self.live.config() else {
                continue;
            };
            let Ok(place) = config.place() else { continue };
            let doubted = match self.missing(place, &config, &mut too_long).await {
                Some(missing) => missing,
                None => {
                    let coverage = self.coverage.lock();
                    let sample = coverage.sample(place, last.as_deref(), SAMPLE);
                    // After the last one the first are next.
                    last = sample.last().cloned();
                    sample
                }
            };
            self.losses.doubt(doubted, &self.coverage);
        }
    }

    /// The blocks whose bans the gateway does not list; `None`: it lists none, or there are too many.
    ///
    /// `too_long` is the gateway whose list was longer than what is read of one, and when: it also has the bans of others.
    async fn missing(
        &self,
        place: &Place,
        config: &Config,
        too_long: &mut Option<(Place, Instant)>,
    ) -> Option<Vec<Arc<str>>> {
        let rests = too_long.as_ref();
        if rests.is_some_and(|(it, at)| it == place && at.elapsed() < LISTED_AGAIN) {
            return None;
        }
        let asserted: Vec<(Arc<str>, Target)> = {
            let coverage = self.coverage.lock();
            let here = coverage
                .claims()
                .filter(|(_, claim)| claim.asserted.is_some() && *claim.place == *place);
            let some = here.take(LONGEST_LIST + 1);
            some.map(|(key, claim)| (Arc::clone(key), claim.target))
                .collect()
        };
        if asserted.is_empty() || asserted.len() > LONGEST_LIST {
            return asserted.is_empty().then(Vec::new);
        }
        let engine = self.engines.get(place, config.engine.as_ref().ok()).ok()?;
        // A gateway that does not answer is another problem, which its calls report.
        let listed = engine.list().await;
        if let Err(error) = &listed
            && error.is_too_long()
        {
            tracing::warn!(%place, "the gateway's list is too long to be read: a few bans are asserted in its place");
            *too_long = Some((place.clone(), Instant::now()));
        }
        let listed: BTreeSet<Target> = listed.ok()??;
        let missing = asserted
            .into_iter()
            .filter(|(_, target)| !listed.contains(target))
            // The set engines have what the gateway cannot express.
            .filter(|(_, target)| engine.capabilities().refusal(target).is_none());
        Some(missing.map(|(key, _)| key).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_block_that_is_doubted_again_and_again_waits_once() {
        let losses = Losses::new(guard::Metrics::default());
        let coverage = Mutex::new(Coverage::default());
        for _ in 0..1000 {
            losses.doubt(["default/a".into(), "default/b".into()], &coverage);
        }
        assert_eq!(losses.take().len(), 2);
        assert!(losses.take().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_always_lacks_some_bans_gets_all_asserted_ever_more_rarely() {
        let losses = Losses::new(guard::Metrics::default());
        let place = Place::new("xdp", "g:1");
        let coverage = Mutex::new(Coverage::default());
        let longest = Duration::from_secs(300);
        let rounds = async |checks: u32| {
            let mut rounds = 0;
            for _ in 0..checks {
                let asserted = Instant::now();
                tokio::time::sleep(CHECK).await;
                let news = losses.found(&place, asserted, longest, &coverage);
                rounds += usize::from(news.is_some());
            }
            rounds
        };
        assert_eq!(rounds(1).await, 1, "the first loss counts at once");
        let hour = rounds(180).await;
        assert!((10..=16).contains(&hour), "{hour} rounds in an hour");
        tokio::time::sleep(longest * 3).await;
        assert_eq!(rounds(3).await, 2, "a later loss counts at once again");
    }
}
