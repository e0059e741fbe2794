//! Which gateways the operator calls for a block, beside the configured one.
//!
//! The intent of a block is an annotation, which a user may write. It is followed only to gateways that an administrator
//! configured: otherwise the operator would send requests to any address that a user of blocks names.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::api::{INTENT, IPBlock, Intent, Place, Standing};
use crate::config::Config;
use crate::target::Target;

/// How many gateways are remembered.
pub(super) const MOST: usize = 32;

/// How many unfollowed bans an intent carries.
const MOST_UNFOLLOWED: usize = 16;

/// A block that was made this long after its gateway was replaced may still have been banned there: the time of the
/// operator and that of the API server differ by up to a minute.
const LATE: SignedDuration = SignedDuration::from_secs(60);

/// The gateways that were configured, and when.
#[derive(Debug, Default)]
pub(super) struct Trust {
    /// The latest last.
    pub(super) places: Vec<Place>,
    configured: Option<Place>,
    /// Those that the configuration names as former ones.
    former: Vec<Place>,
    /// Since when places are not configured any more.
    replaced: BTreeMap<Place, Timestamp>,
    /// Those that were configured here, and that workers call until another one is in force.
    leaving: Vec<Place>,
    /// Those that the configuration takes back.
    withdrawn: Vec<Place>,
}

/// The gateways that a record names.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorded {
    pub(super) places: Vec<Place>,
    pub(super) replaced: BTreeMap<Place, Timestamp>,
}

// === impl Trust ===

impl Trust {
    /// Follows intents to `places` from now on.
    pub(super) fn add(&mut self, places: impl IntoIterator<Item = Place>) {
        for place in places {
            if !self.withdrawn.contains(&place) {
                self.places.retain(|it| *it != place);
                self.places.push(place);
            }
        }
        let surplus = self.places.len().saturating_sub(MOST);
        self.places.drain(..surplus);
    }

    /// Takes the gateways of a record over.
    pub(super) fn learn(&mut self, recorded: &Recorded) {
        self.add(recorded.places.iter().cloned());
        for (place, at) in &recorded.replaced {
            // Another replica may not have read yet that it is configured again, or may have replaced it earlier.
            let called = self.configured.as_ref() == Some(place) || self.leaving.contains(place);
            if !called && self.places.contains(place) {
                let since = self.replaced.entry(place.clone()).or_insert(*at);
                *since = (*at).max(*since);
            }
        }
    }

    /// Follows intents to the gateways that `config` names, the former ones and the present one, and no longer to those
    /// that it withdraws. Returns those that were followed until now.
    pub(super) fn configure(&mut self, config: &Config) -> Vec<Place> {
        self.withdrawn.clone_from(&config.withdrawn);
        let withdrawn: Vec<Place> = self
            .places
            .extract_if(.., |place| config.withdrawn.contains(place))
            .collect();
        let unknown = config.former.iter().filter(|it| !self.places.contains(it));
        self.add(unknown.cloned().collect::<Vec<_>>());
        self.add(config.place().ok().cloned());
        self.former.clone_from(&config.former);
        let places = &self.places;
        self.replaced.retain(|place, _| places.contains(place));
        // Without an engine the last gateway is still the one that blocks are meant for.
        if let Ok(place) = config.place() {
            self.replaced.remove(place);
            let before = self.configured.replace(place.clone());
            self.leaving.extend(before);
            self.leaving.retain(|it| it != place);
        }
        withdrawn
    }

    /// The configured gateway is in force at `now`: the others were replaced by then. Returns whether that is new.
    pub(super) fn in_force(&mut self, now: Timestamp) -> bool {
        let Some(configured) = &self.configured else {
            return false;
        };
        let left = std::mem::take(&mut self.leaving);
        let mut news = false;
        for place in self.places.iter().filter(|it| *it != configured) {
            match self.replaced.entry(place.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(now);
                }
                Entry::Occupied(mut entry) if left.contains(place) && *entry.get() < now => {
                    entry.insert(now);
                }
                Entry::Occupied(_) => continue,
            }
            news = true;
        }
        news
    }

    pub(super) fn withdraws(&self, place: &Place) -> bool {
        self.withdrawn.contains(place)
    }

    /// Since when places are replaced, for the record of another configuration that names `others`; `None`: of this one.
    ///
    /// Gateways that the other configuration replaced keep the times of its record. Only gateways that the record lacks
    /// are added to it.
    pub(super) fn replaced_beside(&self, others: Option<Recorded>) -> BTreeMap<Place, Timestamp> {
        let mut replaced = self.replaced.clone();
        let Some(recorded) = others else {
            return replaced;
        };
        replaced.retain(|place, _| {
            recorded.replaced.contains_key(place) || !recorded.places.contains(place)
        });
        for (place, at) in recorded.replaced {
            if self.places.contains(&place) {
                replaced.entry(place).or_insert(at);
            }
        }
        replaced
    }

    /// Whether a block that was made at `created` may have been banned at `place`: the administrator configured it at
    /// that time or later, or names it as a former one. Otherwise an editor of blocks could have bans lifted at every
    /// gateway that was ever configured, where they may be the bans of others by now.
    fn follows(&self, place: &Place, created: Option<Timestamp>) -> bool {
        let in_time = |replaced: &Timestamp| created.is_some_and(|at| at <= *replaced + LATE);
        self.places.contains(place)
            && (self.former.contains(place) || self.replaced.get(place).is_none_or(in_time))
    }

    /// The block with the bans of its intent that are not followed set apart, and whether one of them is news: those
    /// at places that no administrator configured in the time of the block, and those of addresses that the block does
    /// not ban. A user may write the intent, and neither may make the operator call a stranger nor lift what it did not
    /// ban.
    ///
    /// Bans at gateways that the configuration withdraws are left out: they count as lifted. An intent about no others
    /// is marked as withdrawn.
    pub(super) fn believe(&self, block: &Arc<IPBlock>) -> (Arc<IPBlock>, bool) {
        let intent = block.annotation(INTENT).map(str::parse::<Intent>);
        let Some(Ok(mut written)) = intent else {
            return (Arc::clone(block), false);
        };
        // Only the configuration withdraws.
        let forged = std::mem::take(&mut written.withdrawn);
        let seen = |intent: &Intent| {
            let mut seen = IPBlock::clone(block);
            let annotations = seen.metadata.annotations.get_or_insert_default();
            annotations.insert(INTENT.to_owned(), intent.to_string());
            Arc::new(seen)
        };
        let Some(intent) = self.without_withdrawn(&written) else {
            let withdrawn = Intent {
                also: Vec::new(),
                unfollowed: Vec::new(),
                withdrawn: true,
                ..written
            };
            return (seen(&withdrawn), false);
        };
        let status = block.status.as_ref();
        let banned = status.and_then(|status| status.target.as_deref()?.parse::<Target>().ok());
        let asked = block.spec.ip.parse::<Target>().ok();
        let created = block.metadata.creation_timestamp.as_ref();
        let created = created.map(|created| created.0);
        let believed = believed(intent, |standing| {
            let own = [banned, asked].contains(&Some(standing.target));
            own && self.follows(&standing.place, created)
        });
        if believed == written && !forged {
            return (Arc::clone(block), false);
        }
        let carried = |standing| written.unfollowed.contains(standing);
        let news = !believed.unfollowed.iter().all(carried);
        (seen(&believed), news)
    }

    /// The intent without the bans at withdrawn gateways; `None` if it is about no others.
    fn without_withdrawn(&self, intent: &Intent) -> Option<Intent> {
        let kept = |all: &[Standing]| -> Vec<Standing> {
            let kept = all
                .iter()
                .filter(|standing| !self.withdraws(&standing.place));
            kept.cloned().collect()
        };
        let (mut also, unfollowed) = (kept(&intent.also), kept(&intent.unfollowed));
        let standing = if !self.withdraws(&intent.standing.place) {
            intent.standing.clone()
        } else if also.is_empty() {
            unfollowed.first()?.clone()
        } else {
            also.remove(0)
        };
        Some(Intent {
            standing,
            also,
            unfollowed,
            ..intent.clone()
        })
    }
}

/// The intent with what `follows` refuses moved to `unfollowed`, and what it admits moved out of there.
///
/// When it admits nothing, the wanted ban itself is among the unfollowed: see [`Intent::is_followed`].
fn believed(intent: Intent, follows: impl Fn(&Standing) -> bool) -> Intent {
    let (mut followed, mut unfollowed) = (Vec::new(), Vec::new());
    let wanted = std::iter::once(&intent.standing);
    for standing in wanted.chain(&intent.also).chain(&intent.unfollowed) {
        let list = if follows(standing) {
            &mut followed
        } else {
            &mut unfollowed
        };
        if !list.contains(standing) {
            list.push(standing.clone());
        }
    }
    unfollowed.truncate(MOST_UNFOLLOWED);
    let mut followed = followed.into_iter();
    Intent {
        standing: followed.next().unwrap_or_else(|| intent.standing.clone()),
        also: followed.collect(),
        unfollowed,
        withdrawn: false,
        ..intent
    }
}
