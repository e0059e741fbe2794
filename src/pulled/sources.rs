//! All sources, each in a task of its own while this replica leads.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reeve_controller::{Caches, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::brake::Brakes;
use super::definition::Source;
use super::known::Cached;
use super::lists::ListSink;
use super::metrics::Metrics;
use super::objects::Objects;
use super::puller::Puller;
use super::sink::{BlockSink, Sink};
use crate::guard::Brake;
use crate::outbound::{AddressPolicy, Http, Limits, Outbound};
use crate::time::Time;
use crate::trigger::Triggers;

/// Makes the connections to a source.
pub trait Connect: Send + Sync + fmt::Debug {
    /// The way to `source`.
    ///
    /// # Errors
    /// When its authorities cannot be read.
    fn connect(&self, source: &Source) -> Result<Arc<dyn Outbound>, String>;
}

/// Connections over the network, within the limits of the source.
#[derive(Clone, Copy, Debug, Default)]
struct NetworkConnect {
    /// Which addresses may be called.
    policy: AddressPolicy,
}

/// The sources of the configuration.
#[derive(Debug)]
pub struct Sources {
    wanted: watch::Sender<Arc<Vec<Source>>>,
    connect: Arc<dyn Connect>,
    sinks: Sinks,
    brakes: Arc<Brakes>,
    time: Time,
    metrics: Metrics,
}

/// Where entries go, by the objects of their source.
#[derive(Clone, Debug)]
pub(super) struct Sinks {
    pub(super) blocks: Arc<dyn Sink>,
    pub(super) lists: Arc<dyn Sink>,
}

/// How often what former sources left is looked for.
const TIDY: Duration = Duration::from_secs(3600);

// === impl Sinks ===

impl Sinks {
    fn of(&self, source: &Source) -> Arc<dyn Sink> {
        Arc::clone(match source.objects {
            Objects::Blocks => &self.blocks,
            Objects::Lists => &self.lists,
        })
    }

    fn all(&self) -> [&Arc<dyn Sink>; 2] {
        [&self.blocks, &self.lists]
    }
}

// === impl NetworkConnect ===

impl Connect for NetworkConnect {
    fn connect(&self, source: &Source) -> Result<Arc<dyn Outbound>, String> {
        let limits = Limits {
            connect: Duration::from_secs(5),
            total: Duration::from_secs(60),
            answer_bytes: source.max_bytes,
        };
        let mut builder = Http::builder().limits(limits).policy(self.policy);
        if let Some(file) = &source.authorities {
            let pem = file.read();
            let pem = pem.map_err(|error| format!("cannot read {file}: {error}"))?;
            builder = builder.authority(pem);
        }
        let http = builder.build().map_err(|error| error.to_string())?;
        Ok(Arc::new(http))
    }
}

// === impl Sources ===

impl Sources {
    /// Sources over the network, whose entries become the blocks of `triggers`, or BlockLists through `client`; `caches` has
    /// those that exist.
    #[must_use]
    pub fn over_network(
        client: Client,
        caches: Caches,
        triggers: Arc<Triggers>,
        policy: AddressPolicy,
        time: Time,
        metrics: Metrics,
    ) -> Self {
        let known = Arc::new(Cached::new(caches));
        let brakes = Arc::<Brakes>::default();
        let blocks = BlockSink::new(Arc::clone(&triggers), known.clone(), Arc::clone(&brakes));
        let lists = ListSink::new(
            client,
            known,
            triggers,
            Arc::clone(&brakes),
            metrics.clone(),
        );
        let sinks = Sinks {
            blocks: Arc::new(blocks),
            lists: Arc::new(lists),
        };
        let connect = Arc::new(NetworkConnect { policy });
        Self::new(connect, sinks, brakes, time, metrics)
    }

    pub(super) fn new(
        connect: Arc<dyn Connect>,
        sinks: Sinks,
        brakes: Arc<Brakes>,
        time: Time,
        metrics: Metrics,
    ) -> Self {
        Self {
            wanted: watch::Sender::default(),
            connect,
            sinks,
            brakes,
            time,
            metrics,
        }
    }

    /// Pulls exactly `sources` from now on, while [`Sources::run`] runs. Unchanged ones go on; the bans of those that are
    /// gone run to their end.
    pub fn set(&self, sources: &[Source]) {
        self.wanted.send_if_modified(|wanted| {
            let other = wanted.as_slice() != sources;
            if other {
                *wanted = Arc::new(sources.to_vec());
            }
            other
        });
    }

    /// The bounds of the brakes on lifts, and the annotation that releases brakes.
    pub fn set_brake(&self, settings: Brake, released: Option<String>) {
        self.brakes.set(settings, released);
    }

    /// What the brakes on lifts hold, in words.
    #[must_use]
    pub fn held(&self) -> Vec<String> {
        let held = self.held_of_sources();
        held.into_iter().map(|(_, what)| what).collect()
    }

    /// The same, each with its source.
    pub(crate) fn held_of_sources(&self) -> Vec<(String, String)> {
        let held = self.brakes.held();
        let held = held.iter();
        held.map(|held| (held.source().to_owned(), held.to_string()))
            .collect()
    }

    /// The rules that refuse bans changed: entries that were refused are requested again at the next pull.
    pub fn recheck(&self) {
        for sink in self.sinks.all() {
            sink.recheck();
        }
    }

    /// Pulls until `stop`: on the leader.
    pub async fn run(&self, stop: CancellationToken) {
        let mut wanted = self.wanted.subscribe();
        let _tidying = AbortOnDropHandle::new(tokio::spawn(self.tidy()));
        let mut tasks: BTreeMap<String, (Source, AbortOnDropHandle<()>)> = BTreeMap::new();
        loop {
            let sources = Arc::clone(&wanted.borrow_and_update());
            let is_wanted = |source: &Source| sources.iter().any(|it| it == source);
            tasks.retain(|name, (source, _)| {
                let stays = is_wanted(source);
                if !stays {
                    self.forget(name);
                }
                stays
            });
            for source in sources.iter() {
                if !tasks.contains_key(&source.name) {
                    let task = AbortOnDropHandle::new(tokio::spawn(self.pull(source.clone())));
                    tasks.insert(source.name.clone(), (source.clone(), task));
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                changed = wanted.changed() => {
                    if changed.is_err() {
                        break;
                    }
                }
            }
        }
        // Another replica pulls now.
        for name in tasks.keys() {
            self.forget(name);
        }
    }

    fn tidy(&self) -> impl Future<Output = ()> + Send + 'static {
        let (wanted, sinks) = (self.wanted.subscribe(), self.sinks.clone());
        let time = self.time.clone();
        async move {
            loop {
                tokio::time::sleep(time.random().jitter(TIDY, 0.1)).await;
                let sources = Arc::clone(&wanted.borrow());
                for sink in sinks.all() {
                    sink.tidy(&sources).await;
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn sinks(&self) -> Sinks {
        self.sinks.clone()
    }

    fn forget(&self, name: &str) {
        self.brakes.forget(name);
        for sink in self.sinks.all() {
            sink.forget(name);
        }
        self.metrics.forget(name);
    }

    fn pull(&self, source: Source) -> impl Future<Output = ()> + Send + 'static {
        let (connect, sink) = (Arc::clone(&self.connect), self.sinks.of(&source));
        let (time, metrics) = (self.time.clone(), self.metrics.clone());
        Puller::new(source, connect, sink, time, metrics).run()
    }
}
