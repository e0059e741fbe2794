//! `kubectl ipb export`.

use std::cmp::Reverse;
use std::time::Duration;

use ipblock_operator::duration;
use ipblock_operator::target::Target;
use ipblock_operator::why::Entry;
use jiff::Timestamp;
use serde::Serialize;

use crate::cluster::Cluster;
use crate::command::{self, ExportFormat};
use crate::error::Error;
use crate::exit::Exit;
use crate::import::value;
use crate::lists;
use crate::print::{self, note, out};

/// A document that `import` reads back.
#[derive(Debug, Serialize)]
struct Document {
    bans: Vec<Ban>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Ban {
    ip: String,
    /// What is left; what is requested for a ban that has not begun; or `forever`.
    duration: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
}

/// A block that is exported.
#[derive(Debug)]
struct Exported {
    entry: Entry,
    /// `spec.duration`.
    requested: Option<String>,
    tags: Vec<String>,
}

pub(crate) async fn run(cluster: &Cluster, arguments: command::Export) -> Result<Exit, Error> {
    let which = &arguments.which;
    let scope = which.scope(cluster);
    let now = cluster.now();
    // Without a phase it is what stands.
    let stands = which.phase.is_empty();
    let bans = cluster
        .fold(
            &scope,
            which.selector.as_deref(),
            |all: &mut Vec<Exported>, block| {
                let Some(entry) = Entry::of(&block).filter(|_| which.has(&block)) else {
                    return;
                };
                if !stands || (entry.is_active() && !entry.deleting) {
                    all.push(Exported {
                        entry,
                        requested: block.spec.duration,
                        tags: block.spec.tags,
                    });
                }
            },
        )
        .await?;
    lists::note_left_out(cluster, &scope, "exported").await;
    out(&match arguments.output {
        ExportFormat::Plain => {
            let mut targets: Vec<Target> = bans.iter().map(|ban| ban.entry.target).collect();
            targets.sort_unstable();
            targets.dedup();
            let lines = targets.iter().map(|target| format!("{target}\n"));
            lines.collect()
        }
        ExportFormat::Csv => csv(timed(bans, now)),
        ExportFormat::Json => print::json(&Document {
            bans: timed(bans, now),
        })?,
    })?;
    Ok(Exit::Success)
}

/// The bans with a time to come, and a note about the others.
fn timed(bans: Vec<Exported>, now: Timestamp) -> Vec<Ban> {
    let all = bans.len();
    let bans = bans.into_iter().filter_map(|exported| {
        let length = exported.length(now)?;
        Some((exported, length))
    });
    let mut bans: Vec<(Exported, Option<Duration>)> = bans.collect();
    if bans.len() < all {
        note(&format!(
            "note: {} of {all} blocks are left out: their bans are over, so they have no time left",
            all - bans.len()
        ));
    }
    // Of several blocks of one target, the one that lasts longest.
    let rank = |length: &Option<Duration>| Reverse(length.unwrap_or(Duration::MAX));
    bans.sort_by_key(|(exported, length)| (exported.entry.target, rank(length)));
    bans.dedup_by_key(|(exported, _)| exported.entry.target);
    let bans = bans
        .into_iter()
        .map(|(exported, length)| exported.ban(length));
    bans.collect()
}

// === impl Exported ===

impl Exported {
    /// The time to come: of an active ban what is left, of one that has not begun what is requested. `Some(None)` is without
    /// end, and `None` is over.
    fn length(&self, now: Timestamp) -> Option<Option<Duration>> {
        let entry = &self.entry;
        match entry.until {
            _ if entry.deleting => None,
            Some(until) if entry.is_active() || entry.is_pending() => {
                let left = Duration::try_from(until.duration_since(now)).ok()?;
                Some(Some(left)).filter(|_| !left.is_zero())
            }
            None if entry.is_active() => Some(None),
            None if entry.is_pending() => {
                let requested = self.requested.as_deref().unwrap_or_default();
                // The operator refuses a length that cannot be read.
                duration::parse_optional(requested).ok()
            }
            _ => None,
        }
    }

    fn ban(self, length: Option<Duration>) -> Ban {
        let Self { entry, tags, .. } = self;
        Ban {
            ip: entry.target.to_string(),
            duration: length.map_or_else(|| "forever".to_owned(), duration::display),
            until: entry.until,
            reason: entry.reason,
            source: entry.source,
            by: entry.by,
            tags,
        }
    }
}

fn csv(bans: Vec<Ban>) -> String {
    let mut text = "ip,duration,until,reason,source,by\n".to_owned();
    for ban in bans {
        let cells = [
            ban.ip,
            ban.duration,
            ban.until
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            ban.reason.unwrap_or_default(),
            ban.source.unwrap_or_default(),
            ban.by.unwrap_or_default(),
        ];
        let cells = cells.map(|cell| value(&cell));
        text.push_str(&cells.join(","));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use ipblock_operator::api::{IPBlock, IPBlockSpec, IPBlockStatus, Phase};

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    /// The length of the export of a block that requests `requested`.
    fn length(phase: Option<Phase>, end: Option<&str>, requested: Option<&str>) -> Option<String> {
        let spec = IPBlockSpec {
            ip: "192.0.2.7".into(),
            duration: requested.map(str::to_owned),
            ..IPBlockSpec::default()
        };
        let mut block = IPBlock::new("a", spec);
        block.status = Some(IPBlockStatus {
            phase,
            expires_at: end.map(str::to_owned),
            ..IPBlockStatus::default()
        });
        let exported = Exported {
            entry: Entry::of(&block).unwrap(),
            requested: block.spec.duration,
            tags: Vec::new(),
        };
        let bans = timed(vec![exported], now());
        bans.into_iter().next().map(|ban| ban.duration)
    }

    #[test]
    fn a_ban_that_has_not_begun_keeps_its_length_and_one_that_is_over_has_none() {
        let hour = Some("1h");
        let is = |text: &str| Some(text.to_owned());
        let end = Some("2026-01-01T12:30:00Z");
        assert_eq!(length(Some(Phase::Active), end, hour), is("30m"));
        assert_eq!(length(Some(Phase::Active), None, None), is("forever"));
        assert_eq!(length(Some(Phase::Pending), None, hour), is("1h"));
        assert_eq!(length(Some(Phase::Pending), None, None), is("forever"));
        assert_eq!(length(None, None, hour), is("1h"), "not seen yet");
        let past = Some("2026-01-01T12:00:00Z");
        assert_eq!(length(Some(Phase::Active), past, hour), None);
        for over in [Phase::Expired, Phase::Failed, Phase::Skipped] {
            assert_eq!(length(Some(over), None, hour), None);
        }
    }
}
