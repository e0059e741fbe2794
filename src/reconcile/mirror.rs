//! The bans of blocks on a replica that does not lead: what their records show.
//!
//! The leader knows its calls before the cache shows them. A standby serves lists too, so it follows the statuses. Each
//! replica begins as a follower; the first reconcile of a leader ends that, and reads all blocks once more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use reeve_controller::cache::Lister;
use reeve_controller::{Context, Outcome, Reconciler, Request, reconcile};

use super::live::{Live, State};
use super::record::{Record, is_forbidden};
use super::sweep::Pages;
use crate::api::{IPBlock, IPBlockStatus, Place, Standing};
use crate::decide::{Coverage, recorded_claim};
use crate::sets::{Entry, Sets, Until};
use crate::target::Target;
use crate::time::Time;

/// How long the first configuration is waited for: it names the gateway of objects that name none.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether this process leads, and what the records of blocks show while it does not.
#[derive(Debug, Default)]
pub(crate) struct Standby {
    led: bool,
    filled: bool,
    claims: Coverage,
}

/// Follows the statuses of blocks until this replica leads.
#[derive(Debug)]
pub(crate) struct MirrorReconciler {
    pub(crate) sets: Arc<Sets>,
    pub(crate) standby: Arc<Mutex<Standby>>,
    pub(crate) live: Live,
    pub(crate) record: Arc<Record>,
    pub(crate) time: Time,
    pub(crate) recalled: Mutex<bool>,
    /// Held during the first reading.
    pub(crate) filling: tokio::sync::Mutex<()>,
}

/// Lifts of this time before the start are remembered, for readers that were away.
const LIFTS: SignedDuration = SignedDuration::from_hours(24);

/// What records show.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    /// The bans, by place.
    bans: BTreeMap<Place, Vec<Entry>>,
    /// Bans that were lifted lately.
    lifted: Vec<Target>,
}

// === impl Standby ===

impl Standby {
    /// From now on the calls of engines decide. Returns the claims so far, which are those of the leader but for a few. The sets
    /// stay as they are until they are filled with what the leader reads.
    pub(crate) fn lead(&mut self) -> Coverage {
        self.led = true;
        self.filled = false;
        std::mem::take(&mut self.claims)
    }

    /// Whether the first reading is over, or not needed, because the leader reads all blocks itself.
    fn is_settled(&self) -> bool {
        self.led || self.filled
    }

    /// Whether changes of blocks concern the records: not on a replica that leads. Never waits for the lock.
    pub(crate) fn follows(standby: &Mutex<Self>) -> bool {
        standby.try_lock().is_none_or(|standby| !standby.led)
    }
}

// === impl Recorded ===

impl Recorded {
    /// Takes a ban in unless it was over at `now`.
    pub(crate) fn add(&mut self, standing: &Standing, until: Option<Timestamp>, now: Timestamp) {
        if until.is_none_or(|until| until > now) {
            let entries = self.bans.entry(standing.place.clone()).or_default();
            entries.push(Entry {
                target: standing.target,
                until: Until::new(until),
            });
        }
    }

    /// Takes a block without a ban in if it was lifted lately.
    pub(crate) fn add_lifted(&mut self, block: &IPBlock, now: Timestamp) {
        let status = block.status.as_ref();
        let at = status.and_then(IPBlockStatus::unblocked_at);
        let lately = at.is_some_and(|at| now.duration_since(at) < LIFTS);
        let target = status.and_then(|status| status.target.as_deref());
        let target: Option<Target> = target.and_then(|target| target.parse().ok());
        self.lifted.extend(target.filter(|_| lately));
    }

    /// The sets have these bans from now on.
    pub(crate) fn fill(self, sets: &Sets) {
        sets.fill(self.bans);
        sets.add_lifted(&self.lifted, LIFTS);
    }
}

// === impl MirrorReconciler ===

impl MirrorReconciler {
    /// Reads the gateways that earlier leaders used, once: bans there count too.
    async fn recall(&self, ctx: &Context) -> Result<(), reconcile::Error> {
        if *self.recalled.lock() {
            return Ok(());
        }
        match self.record.read(ctx.client()).await {
            Err(error) if !is_forbidden(&error) => return Err(error.into()),
            _ => *self.recalled.lock() = true,
        }
        Ok(())
    }

    fn claim(&self, block: &Arc<IPBlock>) -> Option<(Standing, Option<Timestamp>)> {
        if block.is_released() {
            return None;
        }
        let config = self.live.config();
        let place = config.as_ref().and_then(|config| config.place().ok());
        let (block, _) = self.record.believe(block);
        recorded_claim(&block, place)
    }

    /// Reads every block, once, with a pause after each page. No reconcile goes on before its end, which comes early when this
    /// replica leads: the leader goes on with the claims so far.
    async fn fill(&self, lister: Lister<IPBlock>) -> Result<(), reconcile::Error> {
        let _filling = self.filling.lock().await;
        if self.standby.lock().is_settled() {
            return Ok(());
        }
        let now = self.time.now();
        let mut recorded = Recorded::default();
        let mut pages = Pages::new(lister);
        loop {
            let page = pages.next()?;
            if page.is_empty() {
                break;
            }
            if !self.take_in(&page, &mut recorded, now) {
                return Ok(());
            }
            drop(page);
            Pages::pause().await;
        }
        let mut standby = self.standby.lock();
        if !standby.led {
            let active = standby.claims.len();
            tracing::info!(active, "loaded the blocks for set engines");
            recorded.fill(&self.sets);
            standby.filled = true;
        }
        Ok(())
    }

    /// Takes in what the records of `page` show; `false`: this replica leads.
    fn take_in(&self, page: &[Arc<IPBlock>], recorded: &mut Recorded, now: Timestamp) -> bool {
        let mut standby = self.standby.lock();
        if standby.led {
            return false;
        }
        for block in page {
            if let Some((standing, until)) = self.claim(block) {
                recorded.add(&standing, until, now);
                standby.claims.set(&block.key(), standing, until);
            } else {
                recorded.add_lifted(block, now);
            }
        }
        true
    }

    /// Brings the sets in line with one block.
    fn follow(
        &self,
        standby: &mut Standby,
        lister: &Lister<IPBlock>,
        request: &Request,
    ) -> Result<(), reconcile::Error> {
        let key = request.to_string();
        let block = lister.get(request)?;
        let claim = block.as_ref().and_then(|block| self.claim(block));
        let before = standby.claims.remove(&key);
        if let Some((standing, until)) = &claim {
            standby.claims.set(&key, standing.clone(), *until);
        }
        let before = before.map(|claim| claim.standing());
        let standings = before
            .iter()
            .chain(claim.as_ref().map(|(standing, _)| standing));
        for standing in standings {
            // Of several blocks with one standing the latest end counts.
            let others = standby.claims.neighbours(&[standing.target], "");
            let ends = others.iter().filter(|other| other.standing == *standing);
            match ends.map(|other| Until::new(other.until)).max() {
                Some(until) => self.sets.insert(standing, until),
                None => self.sets.remove(standing),
            }
        }
        Ok(())
    }
}

impl Reconciler for MirrorReconciler {
    type Error = reconcile::Error;

    async fn reconcile(&self, ctx: Context, request: Request) -> Result<Outcome, reconcile::Error> {
        if self.standby.lock().led {
            return Ok(Outcome::done());
        }
        let state = tokio::time::timeout(PATIENCE, self.live.state()).await;
        if !matches!(state, Ok(State::Loaded(_))) && !self.standby.lock().filled {
            tracing::debug!("no configuration yet: blocks that name no gateway do not count");
        }
        self.recall(&ctx).await?;
        let lister = ctx.lister::<IPBlock>()?;
        if !self.standby.lock().is_settled() {
            self.fill(lister.clone()).await?;
        }
        // Under the lock, so that a block that is read first is not written last.
        let mut standby = self.standby.lock();
        if standby.led {
            return Ok(Outcome::done());
        }
        self.follow(&mut standby, &lister, &request)?;
        Ok(Outcome::done())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_concern_the_records_until_the_replica_leads() {
        let standby = Mutex::<Standby>::default();
        assert!(Standby::follows(&standby));
        {
            let _filling = standby.lock();
            assert!(Standby::follows(&standby), "without waiting for the lock");
        }
        standby.lock().led = true;
        assert!(!Standby::follows(&standby));
    }
}
