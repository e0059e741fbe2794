//! The blocks that have to do with one target.

use jiff::Timestamp;

use super::answer::{Answer, Verdict};
use super::entry::Entry;
use super::rules::Rules;
use super::span::moment;
use crate::api::{IPBlock, Phase};
use crate::target::Target;

/// The most blocks of an answer. A range may contain any number.
pub const MOST_BLOCKS: usize = 20;

/// Collects what has to do with a target while every block passes by.
#[derive(Clone, Debug)]
pub struct Search {
    target: Target,
    /// At most twice [`MOST_BLOCKS`] at any time, the most relevant ones.
    entries: Vec<Entry>,
    /// Blocks that overlap.
    all: usize,
    /// Active blocks strictly inside of the target.
    inside: usize,
    /// The end of the longest active ban of the whole target; `Some(None)`: without end.
    longest: Option<Option<Timestamp>>,
}

// === impl Search ===

impl Search {
    /// A search for `target`, before any block was seen.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            target,
            entries: Vec::new(),
            all: 0,
            inside: 0,
            longest: None,
        }
    }

    /// Takes `block` into account if it overlaps the target.
    pub fn see(&mut self, block: &IPBlock) {
        let Some(entry) = Entry::of(block) else {
            return;
        };
        if !entry.target.overlaps(&self.target) {
            return;
        }
        self.all += 1;
        let covers = entry.target.contains(&self.target);
        if entry.is_active() {
            if covers {
                self.longest = Some(match (self.longest, entry.until) {
                    (None, until) => until,
                    (Some(before), until) => before.zip(until).map(|(a, b)| a.max(b)),
                });
            } else {
                self.inside += 1;
            }
        }
        self.entries.push(entry);
        if self.entries.len() >= 2 * MOST_BLOCKS {
            self.cut();
        }
    }

    fn cut(&mut self) {
        // A block of the whole target matters more than one inside of it, whatever its state.
        let target = self.target;
        self.entries
            .sort_by_cached_key(|entry| (!entry.target.contains(&target), entry.rank()));
        self.entries.truncate(MOST_BLOCKS);
    }

    /// The answer at `now`.
    #[must_use]
    pub fn answer(mut self, rules: &Rules<'_>, now: Timestamp) -> Answer {
        self.cut();
        let refused = rules.refusal(&self.target);
        let covering: Vec<&Entry> = self
            .entries
            .iter()
            .filter(|entry| entry.target.contains(&self.target))
            .collect();
        let (verdict, summary) =
            self.verdict(&covering, refused.as_ref().map(|it| &*it.message), now);
        let mut facts = Vec::new();
        if let Some(refused) = refused.as_ref().filter(|_| verdict != Verdict::Refused) {
            facts.push(format!("a new ban would be refused: {}", refused.message));
        }
        if let Some(last) = covering
            .iter()
            .find_map(|entry| self.lifted(entry, rules, now))
            && !matches!(verdict, Verdict::Banned)
        {
            facts.push(last);
        }
        if self.inside > 0 && verdict != Verdict::Partly {
            facts.push(format!("{} parts of it", blocks_ban(self.inside)));
        }
        facts.extend(rules.unknown.iter().cloned());
        Answer {
            target: self.target,
            time: now,
            verdict,
            until: self.longest.flatten(),
            summary,
            facts,
            refused,
            more: self.all - self.entries.len(),
            blocks: self.entries,
        }
    }

    fn verdict(
        &self,
        covering: &[&Entry],
        refused: Option<&str>,
        now: Timestamp,
    ) -> (Verdict, String) {
        let target = self.target;
        if let Some(longest) = self.longest {
            let end = match longest {
                Some(until) if until > now => format!("until {}", moment(until, now)),
                Some(until) => {
                    format!("though its end was {}: the lift is due", moment(until, now))
                }
                None => "without end".to_owned(),
            };
            return (Verdict::Banned, format!("{target} is banned {end}"));
        }
        if let Some(pending) = covering.iter().find(|entry| entry.is_pending()) {
            let why = pending
                .message
                .as_deref()
                .unwrap_or("the operator has not seen the block yet");
            return (
                Verdict::Pending,
                format!("{target} is not banned yet: {why}"),
            );
        }
        if self.inside > 0 {
            let count = blocks_ban(self.inside);
            return (
                Verdict::Partly,
                format!("{target} is not banned as a whole, and {count} parts of it"),
            );
        }
        if let Some(why) = refused {
            return (Verdict::Refused, format!("{target} is not banned: {why}"));
        }
        let rejected = covering.iter().find(|entry| {
            entry.phase == Phase::Failed.as_str() || entry.phase == Phase::Skipped.as_str()
        });
        match rejected.and_then(|entry| entry.message.as_deref()) {
            Some(why) => (Verdict::Failed, format!("{target} is not banned: {why}")),
            None => (Verdict::Free, format!("{target} is not banned")),
        }
    }

    /// The end of an earlier ban.
    fn lifted(&self, entry: &Entry, rules: &Rules<'_>, now: Timestamp) -> Option<String> {
        let ended = entry.ended.filter(|_| !entry.is_active())?;
        let what = if entry.target == self.target {
            "its last ban".to_owned()
        } else {
            format!("the last ban of {}", entry.target)
        };
        let how = if entry.by_hand {
            "was lifted by hand"
        } else {
            "ended"
        };
        let mut text = format!("{what} {how} at {}", moment(ended, now));
        if let (true, Some(grace)) = (entry.by_hand, rules.unblock_grace)
            && let Ok(end) = ended.checked_add(grace)
            && end > now
        {
            text.push_str("; alerts leave it alone until ");
            text.push_str(&moment(end, now));
        }
        Some(text)
    }
}

/// `1 block bans`, `2 blocks ban`.
fn blocks_ban(count: usize) -> String {
    if count == 1 {
        "1 block bans".to_owned()
    } else {
        format!("{count} blocks ban")
    }
}
