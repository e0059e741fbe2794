//! The common parts of the watches of one informer: [`Source`], which makes the watches.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube_client::Client;
use reeve_clock::Clock;

use super::feed::Feed;
use super::part::{KnownPart, Part};
use super::within::{SelectByScope, Within};
use crate::fifo::{DeltaFifo, Fifo, KnownObjects, RealFifo};
use crate::handover::Handover;
use crate::health::HealthCell;
use crate::indexer::Indexer;
use crate::metrics::Recorder;
use crate::object::{DecodeCache, EntryType, Origin, Packing, SkipPath, Stored};
use crate::reflector::{Reflector, ReflectorOptions, Refusals, Transform};
use reeve_client::ResourceVersion;
use reeve_client::transport::{Endpoint, Scope, Selection};

/// The number of deltas that wait between a reflector and the store (client-go: 2 batches of 1,000).
const FIFO_CAPACITY: usize = 2000;

/// The common parts of the watches of one informer.
pub(super) struct Source<S: Stored + ?Sized> {
    pub(super) client: Client,
    pub(super) endpoint: Endpoint,
    pub(super) entry_type: EntryType<S>,
    pub(super) selection: Selection,
    pub(super) options: ReflectorOptions,
    pub(super) refusals: Refusals,
    pub(super) transform: Option<Transform<S>>,
    pub(super) skip: Vec<SkipPath>,
    pub(super) within: SelectByScope,
    pub(super) cache: Arc<DecodeCache>,
    pub(super) packing: Option<Arc<Packing>>,
    pub(super) delta_fifo: bool,
    /// Only the reflector of an informer with one watch has it.
    pub(super) handover: Arc<Handover>,
    pub(super) clock: Clock,
    pub(super) recorder: Recorder,
    pub(super) indexer: Arc<Indexer<S>>,
}

// === impl Source ===

impl<S: Stored + ?Sized> Source<S> {
    /// A watch of `scope` that fills the whole store.
    pub(super) fn whole(&self, scope: Scope) -> Arc<Feed<S>> {
        let (not_before, rereads) = (ResourceVersion::default(), Arc::default());
        let handover = Some(&self.handover);
        self.make(scope, Part::Whole, not_before, rereads, handover)
    }

    /// Whether the same parts are left out of the objects of both scopes.
    pub(super) fn skips_alike(&self, one: &Scope, other: &Scope) -> bool {
        let skip = |scope| self.within.within(&self.selection, scope).skip;
        skip(one) == skip(other)
    }

    /// One watch of several. It accepts nothing older than `not_before`, which the store has already. Of the namespaces
    /// in `rereads` the store may have objects with other parts left out.
    pub(super) fn feed(
        &self,
        scope: Scope,
        part: Part,
        not_before: ResourceVersion,
        rereads: Arc<BTreeSet<Arc<str>>>,
    ) -> Arc<Feed<S>> {
        self.make(scope, part, not_before, rereads, None)
    }

    fn make(
        &self,
        scope: Scope,
        part: Part,
        not_before: ResourceVersion,
        rereads: Arc<BTreeSet<Arc<str>>>,
        handover: Option<&Arc<Handover>>,
    ) -> Arc<Feed<S>> {
        let known: Arc<dyn KnownObjects<S>> = match &part {
            Part::Whole => Arc::clone(&self.indexer) as _,
            part => Arc::new(KnownPart {
                indexer: Arc::clone(&self.indexer),
                part: part.clone(),
            }),
        };
        let fifo: Arc<dyn Fifo<S>> = if self.delta_fifo {
            Arc::new(DeltaFifo::new(Arc::clone(&known), FIFO_CAPACITY))
        } else {
            Arc::new(RealFifo::new(FIFO_CAPACITY))
        };
        let health = Arc::new(HealthCell::new(self.clock.clone()));
        let Within {
            labels,
            fields,
            skip,
        } = self.within.within(&self.selection, &scope);
        let selection = Selection {
            scope: scope.clone(),
            labels,
            fields: part.fields(fields),
        };
        let (client, endpoint) = (self.client.clone(), self.endpoint.clone());
        let mut reflector =
            Reflector::builder_of(self.entry_type, client, endpoint, Arc::clone(&fifo))
                .selection(selection)
                .options(self.options)
                .clock(self.clock.clone())
                .known(known);
        for path in self.skip.iter().chain(&skip) {
            reflector = reflector.skip(path.clone());
        }
        let mut reflector = reflector.build();
        let origin = Origin::json(Arc::clone(&self.cache));
        reflector.entries.decoding.origin = Arc::new(origin);
        reflector.entries.decoding.packing.clone_from(&self.packing);
        reflector.entries.spares = Arc::clone(self.indexer.spares());
        reflector.transform.clone_from(&self.transform);
        reflector.not_before = not_before;
        reflector.rereads = rereads;
        reflector.handover = handover.cloned();
        reflector.refusals = self.refusals.clone();
        reflector.health = Arc::clone(&health);
        reflector.recorder = self.recorder.clone();
        Arc::new(Feed::new(scope, part, fifo, health, reflector))
    }
}
