//! The operator's list of bans: its format, and what of it is in force at a time.
//!
//! Ends are dates of the server. The time left is computed with the `Date` of its last answer and the time since then, so
//! a node whose clock is wrong ends bans at the right moment.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use reeve_clock::Clock;
use serde::{Deserialize, Serialize};

use crate::guard::{Guard, Refusal};
use crate::interval::{Family, Left, Span, Timed, flatten};
use crate::nft::Observed;

/// How many refused targets are kept, to log each once.
const REMEMBERED: usize = 1000;

/// What the agent requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// The version that it has: the server answers when there is another.
    pub version: Option<String>,
    /// Whether the changes since that version suffice.
    pub changes: bool,
}

/// An answer of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its content.
    pub answer: Answer,
    /// The server's clock: the header `Date`.
    pub date: Option<Timestamp>,
}

/// The content of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The version is still the newest.
    Unchanged,
    /// All entries.
    Full {
        /// The version.
        version: String,
        /// The entries.
        entries: Vec<Entry>,
    },
    /// What changed.
    Changes {
        /// The new version.
        version: String,
        /// The version to which the changes apply.
        since: String,
        /// New entries, and entries with another end.
        added: Vec<Entry>,
        /// Targets.
        removed: Vec<String>,
    },
}

/// A ban.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Entry {
    /// An address or a range.
    pub target: String,
    /// When it ends; indefinite without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// The state of this node, for the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The version that the kernel enforces.
    pub version: String,
    /// The number of elements in the kernel's sets.
    pub count: usize,
    /// Why the last change failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Why an answer is of no use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not the format.
    #[error("the list is not in the expected format: {0}")]
    Format(String),
    /// Changes of another version than the one here.
    #[error("the list has changes since version {since}, and this node has {version}")]
    Version {
        /// The version to which the changes apply.
        since: String,
        /// The version here.
        version: String,
    },
}

/// What is in force of the list, and what is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// Both sets.
    pub sets: Observed,
    /// How many entries were refused, by reason.
    pub refused: BTreeMap<Refusal, usize>,
    /// Entries that were not refused at the last call, with the reason.
    pub newly_refused: Vec<(IpNet, Refusal)>,
}

/// The list as the last answers left it.
#[derive(Debug)]
pub struct List {
    clock: Clock,
    most: usize,
    version: Option<String>,
    entries: HashMap<IpNet, Option<Timestamp>>,
    invalid: usize,
    /// The server's clock, and [`Clock::since_boot`] when it was received.
    date: Option<(Timestamp, Duration)>,
    refused: BTreeSet<IpNet>,
}

#[derive(Deserialize)]
struct Body {
    version: String,
    since: Option<String>,
    entries: Option<Vec<Entry>>,
    #[serde(default)]
    added: Vec<Entry>,
    #[serde(default)]
    removed: Vec<String>,
}

// === impl Answer ===

impl Answer {
    /// Reads a body.
    ///
    /// # Errors
    /// [`Error::Format`]; an empty body and an object without entries are no list.
    pub fn parse(body: &[u8]) -> Result<Self, Error> {
        let body: Body =
            serde_json::from_slice(body).map_err(|error| Error::Format(error.to_string()))?;
        if body.version.is_empty() {
            return Err(Error::Format("the version is empty".into()));
        }
        match (body.entries, body.since) {
            (Some(entries), None) => Ok(Self::Full {
                version: body.version,
                entries,
            }),
            (None, Some(since)) => Ok(Self::Changes {
                version: body.version,
                since,
                added: body.added,
                removed: body.removed,
            }),
            _ => Err(Error::Format("neither `entries` nor `since`".into())),
        }
    }
}

// === impl List ===

impl List {
    /// A list that has not been received yet. More than `most` entries are not enforced.
    #[must_use]
    pub fn new(clock: Clock, most: usize) -> Self {
        Self {
            clock,
            most,
            version: None,
            entries: HashMap::new(),
            invalid: 0,
            date: None,
            refused: BTreeSet::new(),
        }
    }

    /// The version of the last answer; `None` before the first.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Takes an answer. Returns whether the entries may have changed.
    ///
    /// # Errors
    /// When the changes do not apply to what is here: the next request must be for all entries. Nothing is changed.
    pub fn take(&mut self, received: Received) -> Result<bool, Error> {
        let changed = match received.answer {
            Answer::Unchanged => false,
            Answer::Full { version, entries } => {
                self.entries.clear();
                self.invalid = 0;
                self.add(entries);
                self.version = Some(version);
                true
            }
            Answer::Changes {
                version,
                since,
                added,
                removed,
            } => {
                if self.version.as_ref() != Some(&since) {
                    let version = self.version.clone().unwrap_or_else(|| "none".into());
                    return Err(Error::Version { since, version });
                }
                for target in removed {
                    if let Some(target) = target_of(&target) {
                        self.entries.remove(&target);
                    }
                }
                self.add(added);
                self.version = Some(version);
                true
            }
        };
        if let Some(date) = received.date {
            self.date = Some((date, self.clock.since_boot()));
        }
        Ok(changed)
    }

    fn add(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            match target_of(&entry.target) {
                Some(target) => {
                    self.entries.insert(target, entry.until);
                }
                None => self.invalid += 1,
            }
        }
    }

    /// The time of the server.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let Some((date, received)) = self.date else {
            return self.clock.now();
        };
        let since = self.clock.since_boot().saturating_sub(received);
        let since = SignedDuration::try_from(since).unwrap_or(SignedDuration::ZERO);
        date.checked_add(since).unwrap_or(date)
    }

    /// What is in force now: entries that have ended or that `guard` refuses are left out, and of too many those that end
    /// first.
    pub fn desired(&mut self, guard: &Guard) -> Desired {
        let now = self.now();
        let mut desired = Desired::default();
        let mut refused = BTreeSet::new();
        let mut standing: Vec<(Family, Timed)> = Vec::with_capacity(self.entries.len());
        for (target, until) in &self.entries {
            let left = match until {
                None => Left::INDEFINITE,
                Some(until) if *until <= now => continue,
                Some(until) => {
                    let left = until.duration_since(now);
                    Left::of(Duration::try_from(left).unwrap_or_default())
                }
            };
            let (family, span) = Span::of(*target);
            if let Some(reason) = guard.refuses(family, span) {
                *desired.refused.entry(reason).or_default() += 1;
                if refused.len() < REMEMBERED
                    && refused.insert(*target)
                    && !self.refused.contains(target)
                {
                    desired.newly_refused.push((*target, reason));
                }
            } else {
                standing.push((family, Timed::new(span, left)));
            }
        }
        self.refused = refused;
        if self.invalid > 0 {
            desired.refused.insert(Refusal::Invalid, self.invalid);
        }
        if let Some(over) = standing
            .len()
            .checked_sub(self.most)
            .filter(|over| *over > 0)
        {
            standing.sort_unstable_by_key(|(family, timed)| {
                (std::cmp::Reverse(timed.left), *family, timed.span)
            });
            standing.truncate(self.most);
            desired.refused.insert(Refusal::Overflow, over);
        }
        let of = |wanted| {
            let entries = standing.iter().filter(move |(family, _)| *family == wanted);
            flatten(entries.map(|(_, timed)| *timed))
        };
        desired.sets = Observed {
            v4: of(Family::V4),
            v6: of(Family::V6),
        };
        desired
    }
}

/// An address or a range without host bits.
fn target_of(text: &str) -> Option<IpNet> {
    let range = match text.parse::<IpNet>() {
        Ok(range) => range,
        Err(_) => text.parse::<std::net::IpAddr>().ok()?.into(),
    };
    Some(range.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: &str = "2026-01-01T12:00:00Z";

    fn full(entries: &[(&str, Option<&str>)]) -> Received {
        let entries = entries
            .iter()
            .map(|(target, until)| Entry {
                target: (*target).into(),
                until: until.map(|until| until.parse().unwrap()),
            })
            .collect();
        Received {
            answer: Answer::Full {
                version: "1".into(),
                entries,
            },
            date: Some(NOON.parse().unwrap()),
        }
    }

    fn list(most: usize) -> List {
        // The node's clock is a day behind.
        let clock = Clock::simulated("2025-12-31T12:00:00Z".parse().unwrap(), 1);
        List::new(clock, most)
    }

    fn texts(desired: &Desired) -> Vec<String> {
        let of = |family, set: &[Timed]| -> Vec<String> {
            set.iter()
                .map(|timed| format!("{} {:?}", timed.span.text(family), timed.left))
                .collect()
        };
        [
            of(Family::V4, &desired.sets.v4),
            of(Family::V6, &desired.sets.v6),
        ]
        .concat()
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_left_is_that_of_the_servers_clock() {
        let mut list = list(10);
        let entries = [
            ("192.0.2.7", Some("2026-01-01T12:01:00Z")),
            ("192.0.2.9", Some(NOON)),
            ("2001:db8::1", None),
        ];
        assert!(list.take(full(&entries)).unwrap());
        let guard = Guard::default();
        assert_eq!(
            texts(&list.desired(&guard)),
            ["192.0.2.7 60s", "2001:db8::1 indefinitely"]
        );
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(
            texts(&list.desired(&guard)),
            ["192.0.2.7 40s", "2001:db8::1 indefinitely"]
        );
        // A clock that is set has no effect.
        list.clock.jump(SignedDuration::from_hours(1000));
        assert_eq!(list.desired(&guard).sets.v4.len(), 1);
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(list.desired(&guard).sets.v4.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn changes_apply_to_the_version_that_they_name() {
        let mut list = list(10);
        list.take(full(&[("192.0.2.7", None), ("192.0.2.8", None)]))
            .unwrap();
        let changes = |since: &str| {
            Received {
            answer: Answer::parse(
                format!(r#"{{"version":"2","since":"{since}","added":[{{"target":"192.0.2.9"}}],"removed":["192.0.2.7"]}}"#)
                    .as_bytes(),
            )
            .unwrap(),
            date: None,
        }
        };
        assert!(list.take(changes("0")).is_err());
        assert_eq!(list.version(), Some("1"));
        assert!(list.take(changes("1")).unwrap());
        assert_eq!(list.version(), Some("2"));
        let desired = list.desired(&Guard::default());
        assert_eq!(
            texts(&desired),
            ["192.0.2.8-192.0.2.9 indefinitely"]
                .map(|text| text.replace("192.0.2.8-192.0.2.9", "192.0.2.8/31"))
        );
    }

    #[test]
    fn what_is_no_list_is_an_error() {
        for body in [
            "",
            "{}",
            "[]",
            "null",
            "192.0.2.7\n",
            r#"{"version":"1"}"#,
            r#"{"version":"","entries":[]}"#,
            r#"{"version":"1","entries":null}"#,
            r#"{"version":"1","added":[]}"#,
            r#"{"version":"1","entries":[],"since":"0"}"#,
            r#"{"version":"1","entries":[{"target":"192.0.2.7","until":"soon"}]}"#,
        ] {
            assert!(Answer::parse(body.as_bytes()).is_err(), "{body}");
        }
        let empty = Answer::parse(br#"{"version":"1","entries":[]}"#).unwrap();
        assert_eq!(
            empty,
            Answer::Full {
                version: "1".into(),
                entries: Vec::new()
            }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn refused_entries_are_counted_and_each_is_new_once() {
        let mut list = list(2);
        let entries = [
            ("127.0.0.1", None),
            ("nonsense", None),
            ("192.0.2.7/24", None),
            ("198.51.100.1", Some("2026-01-01T13:00:00Z")),
            ("198.51.100.3", Some("2026-01-01T14:00:00Z")),
        ];
        list.take(full(&entries)).unwrap();
        let guard = Guard::new(&[], &[], &[]);
        let desired = list.desired(&guard);
        // The one that ends first has no place.
        assert_eq!(
            texts(&desired),
            ["192.0.2.0/24 indefinitely", "198.51.100.3 7200s"]
        );
        let refused: Vec<_> = desired.refused.into_iter().collect();
        assert_eq!(
            refused,
            [
                (Refusal::Special, 1),
                (Refusal::Invalid, 1),
                (Refusal::Overflow, 1)
            ]
        );
        assert_eq!(desired.newly_refused.len(), 1);
        assert_eq!(list.desired(&guard).newly_refused, []);
    }
}
