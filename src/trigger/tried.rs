//! What a trigger makes of a payload, for the command `trigger test`.

use std::fmt;

use super::alerts::Verdict;
use super::payload::Payload;

/// The reading of a payload.
#[derive(Clone, Debug)]
pub struct Tried {
    /// What each alert requests, with its place in the payload, from 0.
    pub lines: Vec<(usize, Line)>,
    /// How many alerts the sender left out.
    pub left_out: u64,
    /// How many addresses were not read, because the payload has too many.
    pub not_read: u64,
}

/// What an alert requests, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    text: String,
    counts: bool,
}

// === impl Payload ===

impl Payload {
    /// Reads a body and describes each of its alerts.
    ///
    /// # Errors
    /// When the body is not the payload; the text says why.
    pub fn tried(&self, body: &[u8]) -> Result<Tried, String> {
        let alerts = self.read(body).map_err(|error| error.to_string())?;
        let lines = alerts.judged.into_iter();
        Ok(Tried {
            lines: lines
                .map(|judged| (judged.position, Line::of(judged.verdict)))
                .collect(),
            left_out: alerts.left_out,
            not_read: alerts.not_read,
        })
    }
}

// === impl Line ===

impl Line {
    /// Whether the alert bans or resolves an address.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.counts
    }

    fn of(verdict: Verdict) -> Self {
        let (text, counts) = match verdict {
            Verdict::Ban(ban) => {
                let duration = ban.duration.as_deref().unwrap_or("the default duration");
                let by = ban.by.map(|by| format!(" (by {by})")).unwrap_or_default();
                let remark = ban.remark.map(|it| format!(" ({it})")).unwrap_or_default();
                let (target, reason) = (ban.target, ban.reason);
                (
                    format!("bans {target} for {duration}: {reason}{by}{remark}"),
                    true,
                )
            }
            Verdict::Resolved(resolved) => {
                let target = resolved.target;
                (
                    format!("resolved {target}: lifts its ban with resolved: lift"),
                    true,
                )
            }
            Verdict::Ignored(why) => (format!("ignored: {why}"), false),
            Verdict::Invalid(why) => (format!("cannot be used: {why}"), false),
        };
        Self { text, counts }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}
