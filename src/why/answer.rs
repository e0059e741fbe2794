//! The answer about one target.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::entry::Entry;
use super::rules::Refused;
use super::span::moment;
use crate::target::Target;

/// Where a target stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// A block bans all of it.
    Banned,
    /// Blocks ban parts of it.
    Partly,
    /// A block asks for its ban, and the gateway has not confirmed it.
    Pending,
    /// It may not be banned.
    Refused,
    /// A block asked for its ban, and was refused or gave up.
    Failed,
    /// Nothing bans it.
    Free,
}

/// Whether a target is banned, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The target, in canonical form.
    #[serde(with = "crate::target::as_text")]
    pub target: Target,
    /// When the answer was made.
    pub time: Timestamp,
    /// Where it stands.
    pub verdict: Verdict,
    /// The end of the longest ban of all of it; absent: not banned, or without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The answer in one sentence.
    pub summary: String,
    /// Further facts, each a sentence: an earlier ban, a grace, what could not be read.
    pub facts: Vec<String>,
    /// Why a new ban would be refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
    /// The blocks that overlap, the most relevant first; at most [`MOST_BLOCKS`](super::MOST_BLOCKS).
    pub blocks: Vec<Entry>,
    /// How many more overlap.
    pub more: usize,
}

// === impl Answer ===

impl Answer {
    /// The answer as lines of text; each block has one line, and one more for its origin.
    #[must_use]
    pub fn lines(&self, now: Timestamp) -> Vec<String> {
        let mut lines = vec![self.summary.clone()];
        lines.extend(self.facts.iter().map(|fact| format!("  {fact}")));
        for block in &self.blocks {
            let state = if block.deleting {
                "being deleted"
            } else if block.phase.is_empty() {
                "new"
            } else {
                &block.phase
            };
            let mut line = format!("  block {} ({}): {state}", block.key(), block.target);
            if block.is_active() {
                if let Some(began) = block.began {
                    line.push_str(" since ");
                    line.push_str(&moment(began, now));
                }
                match block.until {
                    Some(until) => {
                        line.push_str(" until ");
                        line.push_str(&moment(until, now));
                    }
                    None => line.push_str(" without end"),
                }
            }
            if block.bans > 1 {
                line.push_str(&format!(", ban number {}", block.bans));
            }
            lines.push(line);
            if let Some(reason) = &block.reason {
                lines.push(format!("    reason: {reason}"));
            }
            let origin = block.origin();
            if !origin.is_empty() {
                lines.push(format!("    {origin}"));
            }
            if !block.is_active()
                && let Some(message) = &block.message
                && !self.summary.contains(message.as_str())
            {
                lines.push(format!("    {message}"));
            }
        }
        if self.more > 0 {
            lines.push(format!("  and {} more blocks", self.more));
        }
        lines
    }
}
