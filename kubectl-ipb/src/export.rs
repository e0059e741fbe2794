//! `kubectl ipb export`.

use std::time::Duration;

use ipblock_operator::duration;
use ipblock_operator::why::Entry;
use jiff::Timestamp;
use serde::Serialize;

use crate::cluster::Cluster;
use crate::command::{self, ExportFormat};
use crate::error::Error;
use crate::exit::Exit;
use crate::import::value;
use crate::lists;
use crate::print::{self, out};

/// A document that `import` reads back.
#[derive(Debug, Serialize)]
struct Document {
    bans: Vec<Ban>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Ban {
    ip: String,
    /// What is left, or `forever`.
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

pub(crate) async fn run(cluster: &Cluster, arguments: command::Export) -> Result<Exit, Error> {
    let which = &arguments.which;
    let scope = which.scope(cluster);
    let now = cluster.now();
    // Without a phase it is what stands.
    let stands = which.phase.is_empty();
    let mut bans = cluster
        .fold(
            &scope,
            which.selector.as_deref(),
            |all: &mut Vec<(Entry, Vec<String>)>, block| {
                let Some(entry) = Entry::of(&block).filter(|_| which.has(&block)) else {
                    return;
                };
                if !stands || (entry.is_active() && !entry.deleting) {
                    all.push((entry, block.spec.tags));
                }
            },
        )
        .await?;
    bans.sort_by(|(one, _), (other, _)| {
        one.target
            .cmp(&other.target)
            .then_with(|| is_later(other, one))
    });
    bans.dedup_by_key(|(entry, _)| entry.target);
    let bans = bans
        .into_iter()
        .filter_map(|(entry, tags)| ban(entry, tags, now));
    lists::note_left_out(cluster, &scope, "exported").await;
    out(&match arguments.output {
        ExportFormat::Plain => bans.map(|ban| ban.ip + "\n").collect(),
        ExportFormat::Csv => csv(bans),
        ExportFormat::Json => print::json(&Document {
            bans: bans.collect(),
        })?,
    })?;
    Ok(Exit::Success)
}

/// The order by the end of the ban; one without end is last.
fn is_later(one: &Entry, other: &Entry) -> std::cmp::Ordering {
    let end = |entry: &Entry| entry.until.unwrap_or(Timestamp::MAX);
    end(one).cmp(&end(other))
}

/// `None` for a ban whose end is past: its lift is due.
fn ban(entry: Entry, tags: Vec<String>, now: Timestamp) -> Option<Ban> {
    let duration = match entry.until {
        Some(until) => {
            let left = Duration::try_from(until.duration_since(now)).ok()?;
            duration::display(Some(left).filter(|left| !left.is_zero())?)
        }
        None => "forever".to_owned(),
    };
    Some(Ban {
        ip: entry.target.to_string(),
        duration,
        until: entry.until,
        reason: entry.reason,
        source: entry.source,
        by: entry.by,
        tags,
    })
}

fn csv(bans: impl Iterator<Item = Ban>) -> String {
    let mut text = "ip,duration,reason,source,by\n".to_owned();
    for ban in bans {
        let cells = [
            ban.ip,
            ban.duration,
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
