//! Where entries go.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::brake::Brakes;
use super::definition::Source;
use super::entry::{Entries, Entry};
use crate::api::{IPBlock, Phase};
use crate::duration;
use crate::outbound::BoxFuture;
use crate::target::Target;
use crate::trigger::{PulledIntake, Triggers};

/// Objects that are written at once.
const AT_ONCE: usize = 8;

/// Bans that end within this time count for no brake: a list drops its entries when their bans end.
pub(super) const SOON: Duration = Duration::from_secs(60);

/// Takes the entries of sources.
pub(crate) trait Sink: Send + Sync + fmt::Debug {
    /// Bans those of `entries` that are not banned for long enough. With `compare`, lifts what `source` banned and
    /// `entries` does not list, unless the brake holds that. Safe to repeat, and to cancel at any point.
    fn put<'a>(
        &'a self,
        source: &'a Source,
        entries: &'a Entries,
        compare: bool,
    ) -> BoxFuture<'a, Result<Kept, String>>;

    /// The source is not pulled any more, or not by this replica.
    fn forget(&self, source: &str);

    /// What is refused may not be refused any more: entries that were are requested again.
    fn recheck(&self) {}

    /// Removes what former sources left, once it is over.
    fn tidy<'a>(&'a self, _sources: &'a [Source]) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// What came of the entries that a list has no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Their bans are lifted.
    Lifted,
    /// So many bans stand, because the brake holds their lift.
    Held(usize),
}

/// The blocks that are known, without a request.
pub(crate) trait Known: Send + Sync + fmt::Debug {
    /// The block of this name.
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<IPBlock>>;

    /// All blocks of a namespace.
    ///
    /// # Errors
    /// While they are not known: no block must look as if it were gone.
    fn all(&self, namespace: &str) -> Result<Vec<Arc<IPBlock>>, String>;
}

/// Makes IPBlock objects, by the rules of alerts.
#[derive(Debug)]
pub(crate) struct BlockSink {
    triggers: Arc<Triggers>,
    known: Arc<dyn Known>,
    refused: Refused,
    brakes: Arc<Brakes>,
}

/// When the refused entries of each source were requested last. Only those count whose time is over: before that a
/// refused block is banned when what refuses it is gone.
#[derive(Debug, Default)]
struct Refused(Mutex<HashMap<String, HashMap<Target, Instant>>>);

// === impl BlockSink ===

impl BlockSink {
    pub(crate) fn new(triggers: Arc<Triggers>, known: Arc<dyn Known>, brakes: Arc<Brakes>) -> Self {
        Self {
            triggers,
            known,
            refused: Refused::default(),
            brakes,
        }
    }

    fn intake(&self, source: &Source) -> PulledIntake {
        self.triggers
            .pulled(&source.name, source.namespace.as_deref())
            .each(source.interval)
    }

    /// Whether an alert for the entry would change nothing about its block.
    fn is_satisfied(
        &self,
        intake: &PulledIntake,
        source: &str,
        target: &Target,
        entry: &Entry,
    ) -> bool {
        let known = self.known.get(&intake.namespace(), &target.object_name());
        let Some(block) = known else { return false };
        let asked = duration::display(entry.duration);
        if intake.is_satisfied(&block, target, &asked) {
            return true;
        }
        match intake.refused_until(&block, target) {
            None => false,
            Some(until) if until > intake.now() => true,
            Some(_) => self.refused.is_recent(source, target, entry.duration / 2),
        }
    }

    /// Bans those of `entries` that are not banned for long enough.
    async fn ban(&self, source: &Source, entries: &Entries) -> Result<(), String> {
        let intake = self.intake(source);
        self.refused.retain(&source.name, entries);
        let mut writes: Vec<BoxFuture<'_, Result<(), String>>> = Vec::new();
        for (target, entry) in entries.iter() {
            if !self.is_satisfied(&intake, &source.name, target, entry) {
                let asked = duration::display(entry.duration);
                let (intake, reason) = (&intake, &*entry.reason);
                writes.push(Box::pin(
                    async move { intake.ban(target, &asked, reason).await },
                ));
            }
        }
        all(writes).await
    }

    /// Lifts what `source` banned and `entries` does not list, unless the brake holds that.
    async fn keep_only(&self, source: &Source, entries: &Entries) -> Result<Kept, String> {
        let intake = self.intake(source);
        let known = self.known.all(&intake.namespace())?;
        let lasting = intake.now() + SOON;
        let (mut gone, mut long, mut standing) = (Vec::new(), Vec::new(), 0);
        for block in known.iter().filter(|block| intake.has_banned(block)) {
            let Ok(target) = block.spec.ip.parse::<Target>() else {
                continue;
            };
            let lasts = stands_after(block, lasting);
            standing += usize::from(lasts);
            if !entries.contains(&target) {
                gone.push(target);
                long.extend(lasts.then_some(target));
            }
        }
        long.sort_unstable();
        if self.brakes.holds(&source.name, &long, standing) {
            return Ok(Kept::Held(long.len()));
        }
        let mut writes: Vec<BoxFuture<'_, Result<(), String>>> = Vec::with_capacity(gone.len());
        for target in &gone {
            let intake = &intake;
            writes.push(Box::pin(async move { intake.lift(target).await }));
        }
        all(writes).await?;
        // The release was for these: later ones are judged again.
        self.brakes.forget(&source.name);
        Ok(Kept::Lifted)
    }
}

// === impl Refused ===

impl Refused {
    /// Whether `target` was requested less than `pause` ago. If not, it is requested now.
    fn is_recent(&self, source: &str, target: &Target, pause: Duration) -> bool {
        let mut all = self.0.lock();
        let requested = all.entry(source.to_owned()).or_default();
        let recent = requested.get(target).is_some_and(|at| at.elapsed() < pause);
        if !recent {
            requested.insert(*target, Instant::now());
        }
        recent
    }

    /// Drops what `source` does not list any more.
    fn retain(&self, source: &str, entries: &Entries) {
        if let Some(requested) = self.0.lock().get_mut(source) {
            requested.retain(|target, _| entries.contains(target));
        }
    }
}

impl Sink for BlockSink {
    fn put<'a>(
        &'a self,
        source: &'a Source,
        entries: &'a Entries,
        compare: bool,
    ) -> BoxFuture<'a, Result<Kept, String>> {
        Box::pin(async move {
            // A ban that is refused, as by a quota, keeps none from being lifted.
            let banned = self.ban(source, entries).await;
            let kept = if compare {
                self.keep_only(source, entries).await
            } else {
                Ok(Kept::Lifted)
            };
            banned.and(kept)
        })
    }

    fn forget(&self, source: &str) {
        self.refused.0.lock().remove(source);
    }

    fn recheck(&self) {
        self.refused.0.lock().clear();
    }
}

/// Whether the ban of `block` goes on after `at` unless it is lifted.
fn stands_after(block: &IPBlock, at: Timestamp) -> bool {
    let status = block.status.as_ref();
    let active = status.filter(|status| status.is(&Phase::Active));
    active.is_some_and(|status| status.expires_at().is_none_or(|end| end > at))
}

/// Runs all of `writes`, and returns the first error.
async fn all(writes: Vec<BoxFuture<'_, Result<(), String>>>) -> Result<(), String> {
    let outcomes = futures::stream::iter(writes).buffer_unordered(AT_ONCE);
    let outcomes: Vec<Result<(), String>> = outcomes.collect().await;
    outcomes.into_iter().collect()
}
