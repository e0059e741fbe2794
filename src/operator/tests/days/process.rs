//! A process of the operator, and what it reaches: gateways, the date, the channels of notices.

use std::sync::atomic::{AtomicBool, Ordering};

use http::Request;
use ipblock_simulator::Gateway;

use super::super::*;
use super::world::PLACES;
use super::*;
use crate::decide::{Announcement, Notice};
use crate::engine::{self, Endpoint, GuardSettings, Guarded, Kind};
use crate::outbound::{self, InProcess, Outbound};
use crate::reconcile::Announcer;
use crate::time::ServerTime;

/// Reaches the gateways in process, with the guard of production.
#[derive(Debug)]
pub(super) struct Network(pub(super) Vec<(Gateway, Arc<AtomicBool>)>);

/// A notice that left the operator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Left {
    pub(super) uid: String,
    pub(super) event: String,
    pub(super) bans: i64,
    /// Of the end of a ban, which is also that of one whose calls failed: the generation of its spec, the annotation that
    /// asked for it, and the note.
    pub(super) end: Option<(i64, Option<String>, String)>,
}

/// Keeps the notices of bans and lifts.
#[derive(Debug)]
pub(super) struct Notices {
    pub(super) all: Mutex<Vec<(Left, String)>>,
    pub(super) timeline: Timeline,
}

/// The date in an answer of the API server, which answers without one in process.
#[derive(Clone)]
pub(super) struct Dates(pub(super) kube_client::Client, pub(super) Clock);

/// The operator that runs in a process at present.
pub(super) type Running = Arc<Mutex<Option<Operator>>>;

/// A process of the operator on a node, which is started again when it ends.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) node: Clock,
    /// How far the clock of the node is ahead.
    pub(super) ahead: SignedDuration,
    pub(super) identity: Option<String>,
    pub(super) running: Running,
    pub(super) task: Option<AbortOnDropHandle<()>>,
}

// === impl Network ===

impl Connector for Network {
    fn connect(
        &self,
        place: &Place,
        _: Option<&EngineConfig>,
    ) -> Result<Arc<dyn Engine>, ConnectError> {
        let kind: Kind = place.engine.parse()?;
        let at = PLACES.iter().position(|it| *it == place.endpoint);
        let (gateway, off) = self.0[at.expect("one of the gateways")].clone();
        let outbound: Arc<dyn Outbound> = Arc::new(InProcess::new(move |request: Request<_>| {
            let (gateway, off) = (gateway.clone(), Arc::clone(&off));
            async move {
                // Long enough for a kill between the request and its answer.
                tokio::time::sleep(Duration::from_millis(4)).await;
                if off.load(Ordering::Relaxed) {
                    return Err(outbound::Error::Refused);
                }
                let answer = gateway.answer(&request).await;
                tokio::time::sleep(Duration::from_millis(4)).await;
                answer.ok_or(outbound::Error::Reset)
            }
        }));
        let engine = kind.connect(|| Endpoint::parse(&place.endpoint), outbound)?;
        let guarded = Guarded::new(engine, GuardSettings::default(), engine::Metrics::new());
        Ok(Arc::new(guarded))
    }
}

// === impl Notices ===

impl Announcer for Notices {
    fn announce(&self, block: &IPBlock, announcement: &Announcement, at: Timestamp) {
        let event = match announcement.notice {
            Some(Notice::Ban) => "ban",
            Some(Notice::Resolve) => "resolve",
            Some(Notice::Trouble) | None => return,
        };
        let note = &announcement.note;
        let count = block.status.as_ref().map_or(0, IPBlockStatus::bans);
        self.timeline
            .add(format!("    {}: {event} {count}: {note}", block.key()));
        let status = block.status.as_ref();
        let generation = status.and_then(|status| status.observed_generation);
        let asked = status.and_then(|status| status.last_handled_trigger.clone());
        let note = announcement.note.clone();
        let end = (generation.unwrap_or_default(), asked, note);
        let left = Left {
            uid: block.metadata.uid.clone().unwrap_or_default(),
            end: (event == "resolve").then_some(end),
            event: event.to_owned(),
            bans: status.map_or(0, IPBlockStatus::bans),
        };
        let mut shown = block.clone();
        shown.metadata.managed_fields = None;
        let line = format!("at {at}: {}: {}", announcement.note, json!(shown));
        self.all.lock().push((left, line));
    }
}

// === impl Dates ===

impl ServerTime for Dates {
    fn read(&self) -> BoxFuture<'_, Result<Option<Timestamp>, String>> {
        Box::pin(async {
            let version = self.0.apiserver_version().await;
            version.map_err(|error| error.to_string())?;
            let now = self.1.now();
            Ok(now
                .round(
                    jiff::TimestampRound::new()
                        .smallest(jiff::Unit::Second)
                        .mode(jiff::RoundMode::Floor),
                )
                .ok())
        })
    }
}

impl std::fmt::Debug for Dates {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Dates").finish_non_exhaustive()
    }
}

// === impl Process ===

impl Process {
    pub(super) fn new(world_clock: &Clock, identity: Option<&str>, seed: u64) -> Self {
        Self {
            node: Clock::simulated(world_clock.now(), seed),
            ahead: SignedDuration::ZERO,
            identity: identity.map(str::to_owned),
            running: Running::default(),
            task: None,
        }
    }

    pub(super) fn operator(&self) -> Option<Operator> {
        self.running.lock().clone()
    }

    /// As `kill -9`.
    pub(super) fn kill(&mut self) {
        self.task = None;
        *self.running.lock() = None;
    }
}
