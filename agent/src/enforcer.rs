//! Brings the kernel to the list: looks, compares and changes. Its calls block, for milliseconds.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use reeve_clock::Clock;
use tokio::time::Instant;

use crate::guard::{Guard, Refusal};
use crate::interval::{Family, Timed};
use crate::list::{self, Ask, List, Received};
use crate::netlink::Error;
use crate::nft::{Change, Counter, Kernel, Layout, Observed, Rebuild};
use crate::plan::{Brake, BrakeSettings, Plan, lifted, with_kept};

/// How often a change is planned again because an element ended or appeared meanwhile.
const TRIES: usize = 4;
/// After a transaction of another program the sets are compared, but not more often than this: some programs change
/// their own tables every second.
const FOREIGN: Duration = Duration::from_secs(10);

/// The settings of an [`Enforcer`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// How often the sets are compared with the list when nothing changes.
    pub resync: Duration,
    /// The brake on mass lifts.
    pub brake: BrakeSettings,
    /// Entries beyond this number are not enforced.
    pub most: usize,
    /// Ranges that are never banned.
    pub protected: Vec<IpNet>,
}

/// The kernel's table, the list, and what was seen at the last look.
#[derive(Debug)]
pub struct Enforcer<K> {
    kernel: K,
    list: List,
    brake: Brake,
    settings: Settings,
    /// The operator's addresses, as they last resolved.
    operator: Vec<IpAddr>,
    /// When the operator last sent or confirmed the list.
    answered: Option<Instant>,
    /// The last transaction that this agent has seen.
    generation: Option<u32>,
    /// When the sets were last compared.
    compared: Option<Instant>,
    /// Whether changes are due that were not made.
    behind: bool,
    /// Whether the kernel refused to replace the chain alone.
    thorough: bool,
}

/// What a look or a change found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The elements in the kernel, by family.
    pub elements: [usize; 2],
    /// Elements that were deleted and added.
    pub changed: usize,
    /// Those of them that differed without a change of the list.
    pub drift: usize,
    /// Why the table was made again.
    pub restored: Option<&'static str>,
    /// Elements that stay until an answer confirms that they are lifted.
    pub held: usize,
    /// Entries that are not enforced.
    pub refused: BTreeMap<Refusal, usize>,
    /// Entries that are refused for the first time.
    pub newly_refused: Vec<(IpNet, Refusal)>,
    /// The counters before the change, where the table was intact.
    pub counters: Option<[Counter; 2]>,
}

// === impl Enforcer ===

impl<K: Kernel> Enforcer<K> {
    /// An enforcer without a list: it keeps the elements that the kernel has.
    pub fn new(kernel: K, clock: Clock, settings: Settings) -> Self {
        Self {
            kernel,
            list: List::new(clock, settings.most),
            brake: Brake::new(settings.brake),
            settings,
            operator: Vec::new(),
            answered: None,
            generation: None,
            compared: None,
            behind: true,
            thorough: false,
        }
    }

    /// What to request next.
    #[must_use]
    pub fn ask(&self) -> Ask {
        let version = self.list.version().map(str::to_owned);
        Ask {
            changes: version.is_some(),
            version,
        }
    }

    /// The version of the list.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.list.version()
    }

    /// The addresses of the operator. An empty list keeps those before. The next look makes new ones free, also while the
    /// operator does not answer: a ban of its address may be why.
    pub fn set_operator(&mut self, mut addresses: Vec<IpAddr>) {
        // A name server returns them in another order each time.
        addresses.sort_unstable();
        addresses.dedup();
        if !addresses.is_empty() && addresses != self.operator {
            self.operator = addresses;
            self.behind = true;
        }
    }

    /// Takes an answer. Returns whether the kernel has to be changed.
    ///
    /// # Errors
    /// When the answer does not fit: request all entries.
    pub fn take(&mut self, received: Received) -> Result<bool, list::Error> {
        let changed = self.list.take(received)?;
        self.answered = Some(Instant::now());
        self.behind |= changed;
        Ok(self.behind || self.brake.is_on())
    }

    /// Looks at the table, and compares the sets where that is due. `None`: nothing had to be compared.
    ///
    /// # Errors
    /// The kernel's.
    pub fn look(&mut self) -> Result<(Option<Outcome>, Option<[Counter; 2]>), Error> {
        let standing = self.kernel.standing()?;
        let Layout::Intact { v4, v6 } = standing.layout else {
            return Ok((Some(self.converge(false)?), None));
        };
        let since = self.compared.map(|compared| compared.elapsed());
        let foreign = self.generation != Some(standing.generation);
        let due = since
            .is_none_or(|since| since >= self.settings.resync || (foreign && since >= FOREIGN));
        let outcome = if due || self.behind {
            Some(self.converge(!self.behind)?)
        } else {
            None
        };
        Ok((outcome, Some([v4, v6])))
    }

    /// Compares the sets with the list, and changes what differs. With `as_before` the list is as it was at the last
    /// comparison, so that a difference is drift.
    ///
    /// # Errors
    /// The kernel's; the next look tries again.
    pub fn converge(&mut self, as_before: bool) -> Result<Outcome, Error> {
        self.behind = true;
        let mut tried = 0;
        loop {
            tried += 1;
            match self.attempt() {
                Err(error) if error.is_stale() && tried < TRIES => {
                    tracing::debug!(%error, "the sets changed meanwhile; they are read again");
                }
                Err(error) => return Err(error),
                Ok((mut outcome, generation)) => {
                    if as_before && outcome.restored.is_none() {
                        outcome.drift = outcome.changed;
                    }
                    // That from before the sets were read, so that a later change shows. An own change hides one that
                    // another program made meanwhile: the next look compares again.
                    self.generation = Some(generation).filter(|_| outcome.changed == 0);
                    self.compared = Some(Instant::now());
                    self.behind = false;
                    return Ok(outcome);
                }
            }
        }
    }

    /// What it found and did, and the number of the last transaction before.
    fn attempt(&mut self) -> Result<(Outcome, u32), Error> {
        let standing = self.kernel.standing()?;
        let (restored, counters) = match standing.layout {
            Layout::Missing => (Some("the table is missing"), None),
            Layout::Damaged { what, .. } => (Some(what), None),
            Layout::Intact { v4, v6 } => (None, Some([v4, v6])),
        };
        let rebuild = match standing.layout {
            Layout::Intact { .. } => Rebuild::Nothing,
            Layout::Damaged { repair, .. } if !self.thorough => repair,
            Layout::Damaged { .. } | Layout::Missing => Rebuild::Table,
        };
        let observed = match (standing.layout, self.kernel.observe()) {
            (Layout::Missing, _) => Observed::default(),
            // The sets may be what is damaged.
            (Layout::Damaged { .. }, Err(error))
                if rebuild == Rebuild::Table
                    && (error.is_missing() || matches!(error, Error::Malformed(_))) =>
            {
                Observed::default()
            }
            (Layout::Damaged { .. } | Layout::Intact { .. }, observed) => observed?,
        };
        let addresses = self.kernel.addresses()?;
        let guard = Guard::new(&addresses, &self.operator, &self.settings.protected);
        let mut outcome = Outcome {
            restored,
            counters,
            ..Outcome::default()
        };
        let wanted = match self.answered {
            None => free(&observed, &guard),
            Some(answered) => {
                let mut desired = self.list.desired(&guard);
                outcome.refused = std::mem::take(&mut desired.refused);
                outcome.newly_refused = std::mem::take(&mut desired.newly_refused);
                self.braked(&observed, desired.sets, answered, &guard, &mut outcome)
            }
        };
        let none = Observed::default();
        let before = if rebuild == Rebuild::Table {
            &none
        } else {
            &observed
        };
        let change = Change {
            rebuild,
            v4: Plan::between(&before.v4, &wanted.v4),
            v6: Plan::between(&before.v6, &wanted.v6),
        };
        outcome.elements = [wanted.v4.len(), wanted.v6.len()];
        outcome.changed = change.len();
        if !change.is_empty() {
            let applied = self.kernel.apply(&change);
            // Something else in the table refers to the chains, as a map does: the next look makes the whole table.
            let refused = applied.as_ref().is_err_and(|error| !error.is_stale());
            self.thorough = refused && rebuild != Rebuild::Nothing;
            applied?;
        }
        if outcome.held == 0 {
            self.brake.applied();
        }
        Ok((outcome, standing.generation))
    }

    /// `wanted`, and what it lifts as long as the brake holds that back.
    fn braked(
        &mut self,
        observed: &Observed,
        wanted: Observed,
        answered: Instant,
        guard: &Guard,
        outcome: &mut Outcome,
    ) -> Observed {
        let lifts = |family: Family| -> Vec<Timed> {
            lifted(observed.of(family), wanted.of(family))
                .into_iter()
                // What must not be banned is lifted at once.
                .filter(|timed| guard.refuses(family, timed.span).is_none())
                .collect()
        };
        let (v4, v6) = (lifts(Family::V4), lifts(Family::V6));
        let count = v4.len() + v6.len();
        if !self.brake.holds(count, observed.len(), answered) {
            return wanted;
        }
        outcome.held = count;
        Observed {
            v4: with_kept(&wanted.v4, &v4),
            v6: with_kept(&wanted.v6, &v6),
        }
    }
}

/// What the kernel has, without the elements that must not be banned: one may keep the list from this node.
fn free(observed: &Observed, guard: &Guard) -> Observed {
    let of = |family: Family| -> Vec<Timed> {
        let elements = observed.of(family).iter().copied();
        let (free, refused): (Vec<Timed>, Vec<Timed>) =
            elements.partition(|timed| guard.refuses(family, timed.span).is_none());
        for timed in refused {
            tracing::warn!(
                first = %family.address(timed.span.first),
                last = %family.address(timed.span.last),
                "this node ends a ban of an address that is never banned"
            );
        }
        free
    };
    Observed {
        v4: of(Family::V4),
        v6: of(Family::V6),
    }
}
