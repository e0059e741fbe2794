//! The blocks and the configuration, read from this replica.

use std::sync::Arc;
use std::time::Duration;

use kube_core::PartialObjectMeta;
use reeve_controller::cache::{Caches, ReadError, View};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::Instant;

use super::state::{Configuration, State, Summary};
use crate::api::{BlockList, IPBlock};
use crate::guard::Guard;
use crate::guard::brake::RELEASE;
use crate::pulled;
use crate::reconcile::{BlockPages, Live};
use crate::target::Target;
use crate::time::Time;
use crate::why::{Answer, Rules, Search};

/// How long a state is shown at least before blocks are read again.
const FRESH: Duration = Duration::from_secs(2);

/// A state stays for this many times the time that it took, so that reading takes a tenth of a core at most.
const REST: u32 = 10;

/// Readings at once, of states and of searches. Each reads every block.
const READINGS: usize = 2;

/// How long a reading waits for the others.
const PATIENCE: Duration = Duration::from_secs(5);

/// The error of a reading that waited for that long.
const BUSY: &str = "other requests read the blocks now; try again";

/// Where the page gets what it shows.
#[derive(Clone)]
pub struct Sources {
    /// The caches with the blocks.
    pub caches: Caches,
    /// The configuration in force.
    pub live: Live,
    /// The brakes.
    pub guard: Guard,
    /// The lists that are pulled, and their brakes.
    pub pulled: Arc<pulled::Sources>,
    /// The time that bans end by.
    pub time: Time,
    /// Whether this replica leads.
    pub leads: watch::Receiver<bool>,
    /// The name of this replica.
    pub replica: String,
}

/// Reads states and answers. Cloning is cheap; clones share the last state.
#[derive(Clone)]
pub struct Reader {
    sources: Sources,
    last: Arc<Mutex<Option<Last>>>,
    readings: Arc<Semaphore>,
}

/// A state that was read.
struct Last {
    state: Arc<State>,
    /// Until when it is shown.
    fresh: Instant,
}

// === impl Sources ===

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources")
            .field("replica", &self.replica)
            .finish_non_exhaustive()
    }
}

// === impl Reader ===

impl Reader {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(sources: Sources) -> Self {
        Self {
            sources,
            last: Arc::default(),
            readings: Arc::new(Semaphore::new(READINGS)),
        }
    }

    /// The state, at most a few seconds old.
    ///
    /// # Errors
    /// Why the blocks cannot be read, or that other requests read them for too long.
    pub async fn state(&self) -> Result<Arc<State>, String> {
        recent(&self.last, |until| self.read(until)).await
    }

    async fn read(&self, until: Instant) -> Result<State, String> {
        let sources = &self.sources;
        let now = sources.time.now();
        let summary = self
            .each(until, move |blocks| {
                let mut summary = Summary::new(now);
                blocks.each(|block| summary.add(block))?;
                Ok(summary)
            })
            .await?;
        let leads = *sources.leads.borrow();
        Ok(summary.into_state(&sources.replica, leads, configuration(sources)))
    }

    /// Whether `target` is banned, and why.
    ///
    /// # Errors
    /// Why the blocks cannot be read.
    pub async fn why(&self, target: Target) -> Result<Answer, String> {
        let search = self
            .each(Instant::now() + PATIENCE, move |blocks| {
                let mut search = Search::new(target);
                blocks.each(|block| search.see(block))?;
                Ok(search)
            })
            .await?;
        let config = self.sources.live.config();
        let mut rules = Rules::default();
        match &config {
            Some(config) => {
                rules.policy = Some(&config.policy);
                rules.unblock_grace = Some(config.unblock_grace);
            }
            None => {
                let why = self.sources.live.check().err().unwrap_or_default();
                rules.unknown.push(format!("nothing new is banned: {why}"));
            }
        }
        let lists = View::<PartialObjectMeta<BlockList>>::metadata();
        // Without the kind nothing is cached.
        let lists = self.sources.caches.view(&lists);
        if lists.is_ok_and(|lists| !lists.is_empty()) {
            rules.unknown.push(
                "BlockLists are not checked, and an entry of one may ban it (kubectl get ipbl -A)"
                    .to_owned(),
            );
        }
        Ok(search.answer(&rules, self.sources.time.now()))
    }

    /// Reads blocks beside the tasks of the operator: decoding many of them takes a while. Waits for its turn until
    /// `until`.
    async fn each<T: Send + 'static>(
        &self,
        until: Instant,
        read: impl FnOnce(Blocks) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, String> {
        let lister = self.sources.caches.lister::<IPBlock>();
        let lister = lister.map_err(|error| error.to_string())?;
        let blocks = Blocks(BlockPages::new(lister));
        let done = beside(&self.readings, until, move || read(blocks)).await?;
        done.map_err(|error| error.to_string())
    }
}

/// The last state while it is fresh, else a new one. `read` waits for its turn until the time that it gets.
async fn recent<F: Future<Output = Result<State, String>>>(
    last: &Mutex<Option<Last>>,
    read: impl FnOnce(Instant) -> F,
) -> Result<Arc<State>, String> {
    // One limit for both waits, or the waits of many requests would add up.
    let until = Instant::now() + PATIENCE;
    // Others that ask meanwhile wait for this state.
    let last = tokio::time::timeout_at(until, last.lock()).await;
    let mut last = last.map_err(|_| BUSY)?;
    let begin = Instant::now();
    if let Some(last) = &*last
        && last.fresh > begin
    {
        return Ok(Arc::clone(&last.state));
    }
    let state = Arc::new(read(until).await?);
    let fresh = begin + FRESH.max(begin.elapsed() * REST);
    *last = Some(Last {
        state: Arc::clone(&state),
        fresh,
    });
    Ok(state)
}

/// Runs `read` beside the tasks of the operator, when one of `readings` is free before `until`.
async fn beside<T: Send + 'static>(
    readings: &Arc<Semaphore>,
    until: Instant,
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let permit = Arc::clone(readings).acquire_owned();
    let permit = tokio::time::timeout_at(until, permit).await;
    let Ok(Ok(permit)) = permit else {
        return Err(BUSY.to_owned());
    };
    let done = tokio::task::spawn_blocking(move || {
        // A client that left does not end its reading.
        let _permit = permit;
        read()
    });
    done.await.map_err(|error| error.to_string())
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

/// The blocks of the cache, some at a time.
struct Blocks(BlockPages);

// === impl Blocks ===

impl Blocks {
    fn each(mut self, mut visit: impl FnMut(&IPBlock)) -> Result<(), ReadError> {
        loop {
            let page = self.0.next()?;
            if page.is_empty() {
                return Ok(());
            }
            page.iter().for_each(|block| visit(block));
        }
    }
}

fn configuration(sources: &Sources) -> Configuration {
    let Sources {
        live,
        guard,
        pulled,
        ..
    } = sources;
    let problems = [live.check(), live.check_latest(), live.check_triggers()];
    let mut problems: Vec<String> = problems.into_iter().filter_map(Result::err).collect();
    problems.dedup();
    if let Some(id) = guard.braked() {
        problems.push(format!(
            "the brake holds new bans; the annotation {RELEASE}={id} of the ConfigMap releases it"
        ));
    }
    if let Some(lifts) = guard.lifts() {
        problems.push(format!(
            "the brake holds {} that the configuration would lift; the annotation {RELEASE}={} of the ConfigMap releases it",
            lifts.held(),
            lifts.id
        ));
    }
    problems.extend(guard.resolved());
    problems.extend(pulled.held());
    let Some(config) = live.config() else {
        return Configuration {
            problems,
            ..Configuration::default()
        };
    };
    let engine = match config.place() {
        Ok(place) => Some(place.to_string()),
        Err(why) => {
            problems.push(why.to_owned());
            None
        }
    };
    let sets = config.engines.iter();
    Configuration {
        engine,
        sets: sets.map(|engine| engine.name.clone()).collect(),
        problems,
        warnings: config.warnings.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patience() -> Instant {
        Instant::now() + PATIENCE
    }

    #[tokio::test(start_paused = true)]
    async fn a_reading_whose_client_left_counts_until_it_ends() {
        let readings = Arc::new(Semaphore::new(1));
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let (begin, began) = tokio::sync::oneshot::channel::<()>();
        let first = Arc::clone(&readings);
        let first = tokio::spawn(async move {
            let read = move || {
                begin.send(()).unwrap();
                ends.recv().unwrap();
            };
            beside(&first, patience(), read).await
        });
        began.await.unwrap();
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        let second = Arc::clone(&readings);
        let second = tokio::spawn(async move { beside(&second, patience(), || ()).await });
        tokio::task::yield_now().await;
        tokio::time::advance(PATIENCE).await;
        let refused = second.await.unwrap().unwrap_err();
        assert!(refused.contains("try again"), "{refused}");
        end.send(()).unwrap();
        assert_eq!(beside(&readings, patience(), || 7).await, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_for_the_state_do_not_add_up_their_waits() {
        let last = Mutex::new(None);
        let readings = Arc::new(Semaphore::new(1));
        let ask = || {
            recent(&last, |until| {
                beside(&readings, until, || {
                    let summary = Summary::new(jiff::Timestamp::UNIX_EPOCH);
                    summary.into_state("pod-0", true, Configuration::default())
                })
            })
        };
        let begin = Instant::now();
        let held = readings.try_acquire().unwrap();
        let (first, second, third) = tokio::join!(ask(), ask(), ask());
        for answer in [first, second, third] {
            assert_eq!(answer.unwrap_err(), BUSY);
        }
        assert_eq!(begin.elapsed(), PATIENCE);
        drop(held);
        assert_eq!(ask().await.unwrap().replica, "pod-0");
    }
}
