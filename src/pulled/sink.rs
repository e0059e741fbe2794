//! Where entries go.

use std::fmt;
use std::sync::Arc;

use futures::StreamExt;

use super::definition::Source;
use super::entry::{Entries, Entry};
use crate::api::IPBlock;
use crate::duration;
use crate::outbound::BoxFuture;
use crate::target::Target;
use crate::trigger::{PulledIntake, Triggers};

/// Objects that are written at once.
const AT_ONCE: usize = 8;

/// Takes the entries of sources. Small lists become one object each; a list of many thousands needs another sink.
pub(crate) trait Sink: Send + Sync + fmt::Debug {
    /// Bans those of `entries` that are not banned for long enough. Safe to repeat.
    fn ban<'a>(
        &'a self,
        source: &'a Source,
        entries: &'a Entries,
    ) -> BoxFuture<'a, Result<(), String>>;

    /// Lifts what `source` banned and `entries` does not list. Safe to repeat.
    fn keep_only<'a>(
        &'a self,
        source: &'a Source,
        entries: &'a Entries,
    ) -> BoxFuture<'a, Result<(), String>>;
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
}

// === impl BlockSink ===

impl BlockSink {
    pub(crate) fn new(triggers: Arc<Triggers>, known: Arc<dyn Known>) -> Self {
        Self { triggers, known }
    }

    fn intake(&self, source: &Source) -> PulledIntake {
        self.triggers
            .pulled(&source.name, source.namespace.as_deref())
    }

    /// Whether an alert for the entry would change nothing about its block.
    fn is_satisfied(&self, intake: &PulledIntake, target: &Target, entry: &Entry) -> bool {
        let known = self.known.get(&intake.namespace(), &target.object_name());
        let asked = duration::display(entry.duration);
        known.is_some_and(|block| intake.is_satisfied(&block, target, &asked))
    }
}

impl Sink for BlockSink {
    fn ban<'a>(
        &'a self,
        source: &'a Source,
        entries: &'a Entries,
    ) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let intake = self.intake(source);
            let mut writes: Vec<BoxFuture<'_, Result<(), String>>> = Vec::new();
            for (target, entry) in entries {
                if !self.is_satisfied(&intake, target, entry) {
                    let asked = duration::display(entry.duration);
                    let (intake, reason) = (&intake, entry.reason.as_str());
                    writes.push(Box::pin(
                        async move { intake.ban(target, &asked, reason).await },
                    ));
                }
            }
            all(writes).await
        })
    }

    fn keep_only<'a>(
        &'a self,
        source: &'a Source,
        entries: &'a Entries,
    ) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let intake = self.intake(source);
            let known = self.known.all(&intake.namespace())?.into_iter();
            let gone: Vec<Target> = known
                .filter(|block| intake.has_banned(block))
                .filter_map(|block| block.spec.ip.parse().ok())
                .filter(|target| !entries.contains_key(target))
                .collect();
            let mut writes: Vec<BoxFuture<'_, Result<(), String>>> = Vec::with_capacity(gone.len());
            for target in &gone {
                let intake = &intake;
                writes.push(Box::pin(async move { intake.lift(target).await }));
            }
            all(writes).await
        })
    }
}

/// Runs all of `writes`, and returns the first error.
async fn all(writes: Vec<BoxFuture<'_, Result<(), String>>>) -> Result<(), String> {
    let outcomes = futures::stream::iter(writes).buffer_unordered(AT_ONCE);
    let outcomes: Vec<Result<(), String>> = outcomes.collect().await;
    outcomes.into_iter().collect()
}
