//! `kubectl ipb import`: a file of addresses becomes blocks.
//!
//! `file` reads it within a bound, `read` makes entries of its text (pure), and this module writes them, several at
//! once. An entry that is refused does not stop the others. With `--as-list`, `place` decides which BlockList has which
//! entry (pure), and `as_list` writes the lists.

mod as_list;
pub(crate) mod file;
mod place;
mod read;
mod table;

pub(crate) use read::plain;
pub(crate) use table::value;

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use ipblock_operator::target::Target;

use crate::again::again;
use crate::ban::{How, Written, put};
use crate::cluster::Cluster;
use crate::command::{self, Length};
use crate::error::Error;
use crate::exit::Exit;
use crate::print::{clean, note, out};
use crate::request::Wanted;
use crate::rules::Known;
use read::{Entry, Item, read};

/// Refused entries that are named; the others are counted.
const NAMED: usize = 50;

/// When so many writes are forbidden and none before them was answered otherwise, the import ends.
const FORBIDDEN: usize = 5;

/// What became of the entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Summary {
    created: usize,
    triggered: usize,
    extended: usize,
    unchanged: usize,
    /// Repeats of an address earlier in the file.
    repeated: usize,
    /// Entries whose ban is over.
    over: usize,
    refused: Vec<(usize, String)>,
    /// Entries that were not written because the import ended early.
    left: usize,
}

/// The entries of a file.
#[derive(Debug, Default)]
struct Gathered {
    /// How many there are.
    all: usize,
    /// Those to ban, each with its line.
    wanted: Vec<(usize, Item)>,
    /// Those that a rule of the operator refuses.
    ruled: Vec<Item>,
    /// `maxDuration`, as far as it is known.
    most: Option<Duration>,
    /// What became of the others.
    summary: Summary,
}

// === impl Summary ===

impl Summary {
    /// Prints the refused entries and the line about all.
    fn print(&mut self, all: usize, dry_run: bool) -> Result<(), Error> {
        self.print_refused();
        out(&self.line(all, dry_run))
    }

    /// Names the refused entries.
    fn print_refused(&mut self) {
        self.refused.sort();
        let (named, more) = self.refused.split_at(self.refused.len().min(NAMED));
        for (line, why) in named {
            note(&clean(&format!("line {line}: {why}")));
        }
        if !more.is_empty() {
            note(&format!("and {} more", more.len()));
        }
    }

    fn line(&self, all: usize, dry_run: bool) -> String {
        let mut parts = vec![format!("{} created", self.created)];
        for (count, what) in [
            (self.triggered, "triggered"),
            (self.extended, "extended"),
            (self.unchanged, "unchanged"),
            (self.repeated, "repeated"),
            (self.over, "over already"),
            (self.refused.len(), "refused"),
            (self.left, "not tried or without an answer"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        let dry = if dry_run { " (server dry run)" } else { "" };
        format!("{all} entries: {}{dry}\n", parts.join(", "))
    }
}

pub(crate) async fn run(cluster: &Cluster, arguments: command::Import) -> Result<Exit, Error> {
    let gathered = gather(cluster, &arguments).await?;
    match &arguments.as_list {
        Some(name) => as_list::run(cluster, &arguments, name, gathered).await,
        None => as_blocks(cluster, &arguments, gathered).await,
    }
}

/// Reads the file, and sets apart what is refused before anything is written.
async fn gather(cluster: &Cluster, arguments: &command::Import) -> Result<Gathered, Error> {
    let text = file::read(&arguments.file)?;
    let entries = read(&text, arguments.format, cluster.now()).map_err(|problem| {
        let file = arguments.file.clone().into();
        Error::Format { file, problem }
    })?;
    let mut gathered = Gathered {
        all: entries.len(),
        ..Gathered::default()
    };
    let known = Known::read(cluster).await;
    let rules = known.rules();
    gathered.most = known.most();
    for unknown in &rules.unknown {
        note(&format!("note: {unknown}"));
    }
    let summary = &mut gathered.summary;
    let longest = |item: &Item| {
        item.length
            .unwrap_or(arguments.length)
            .0
            .unwrap_or(Duration::MAX)
    };
    // By their targets: their places in `wanted`, or that a rule refuses them.
    let mut seen: HashMap<Target, Option<usize>> = HashMap::new();
    for Entry { line, item } in entries {
        let item = match item {
            Ok(Some(item)) => item,
            Ok(None) => {
                summary.over += 1;
                continue;
            }
            Err(why) => {
                summary.refused.push((line, why));
                continue;
            }
        };
        if let Some(&place) = seen.get(&item.target) {
            summary.repeated += 1;
            // Of several entries of one address, the one that lasts longest counts.
            let first = place.and_then(|place| gathered.wanted.get_mut(place));
            if let Some((_, first)) = first.filter(|(_, first)| longest(&item) > longest(first)) {
                *first = item;
            }
            continue;
        }
        let place = gathered.wanted.len();
        if let Some(refused) = rules.refusal(&item.target) {
            summary.refused.push((line, refused.message));
            seen.insert(item.target, None);
            gathered.ruled.push(item);
        } else {
            seen.insert(item.target, Some(place));
            gathered.wanted.push((line, item));
        }
    }
    Ok(gathered)
}

/// Writes a block for each entry.
async fn as_blocks(
    cluster: &Cluster,
    arguments: &command::Import,
    gathered: Gathered,
) -> Result<Exit, Error> {
    let Gathered {
        all,
        wanted,
        ruled: _,
        most,
        mut summary,
    } = gathered;
    let by = cluster.user().await;
    let how = How {
        extend: arguments.extend,
        dry_run: arguments.dry_run,
        most,
    };
    summary.left = wanted.len();
    let mut forbidden = Some(0);
    let mut ended = None;
    let wanted = wanted.into_iter();
    let wanted = wanted.map(|(line, item)| (line, ban_of(item, arguments, by.as_deref())));
    let mut writes = stream::iter(wanted)
        .map(|(line, wanted)| async move {
            let written = again(async || put(cluster, &wanted, how).await, Error::client).await;
            (line, written)
        })
        .buffer_unordered(usize::from(arguments.concurrency));
    while let Some((line, written)) = writes.next().await {
        summary.left -= 1;
        let missing = matches!(&written, Err(error) if error.is_forbidden());
        // Once another answer has come, the right is not what is missing for all.
        forbidden = match forbidden {
            Some(count) if missing => Some(count + 1),
            _ => None,
        };
        match written {
            Ok(Written::Created(_)) => summary.created += 1,
            Ok(Written::Triggered(_)) => summary.triggered += 1,
            Ok(Written::Extended(..)) => summary.extended += 1,
            Ok(Written::Unchanged(..)) => summary.unchanged += 1,
            // Every further entry would fail for the same reason.
            Err(error) if error.ends_all() => {
                summary.left += 1;
                ended = Some(error);
            }
            Err(error) => {
                summary.refused.push((line, error.to_string()));
                ended = forbidden.filter(|count| *count >= FORBIDDEN).map(|_| error);
            }
        }
        if ended.is_some() {
            break;
        }
    }
    drop(writes);
    summary.print(all, arguments.dry_run)?;
    if let Some(error) = ended {
        return Err(error);
    }
    Ok(if summary.refused.is_empty() {
        Exit::Success
    } else {
        Exit::Failure
    })
}

fn ban_of(item: Item, arguments: &command::Import, by: Option<&str>) -> Wanted {
    let Length(length) = item.length.unwrap_or(arguments.length);
    Wanted {
        target: item.target,
        raw: Some(item.raw),
        length,
        reason: item.reason.or_else(|| arguments.reason.clone()),
        source: Some(arguments.source.clone()),
        by: by.map(str::to_owned),
        tags: item.tags,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_names_what_happened() {
        let summary = Summary {
            created: 3,
            unchanged: 1,
            refused: vec![(4, "x".into())],
            ..Summary::default()
        };
        assert_eq!(
            summary.line(5, true),
            "5 entries: 3 created, 1 unchanged, 1 refused (server dry run)\n"
        );
        assert_eq!(Summary::default().line(0, false), "0 entries: 0 created\n");
    }
}
