//! `kubectl ipb top`.

use std::collections::HashMap;
use std::time::Duration;

use ipblock_operator::target::Target;
use ipblock_operator::why::{Entry, short};
use ipnet::IpNet;
use jiff::Timestamp;

use crate::cluster::Cluster;
use crate::command;
use crate::error::Error;
use crate::exit::Exit;
use crate::lists;
use crate::print::{Table, note, out};

/// The prefixes by which addresses are grouped.
const GROUP_V4: u8 = 24;
const GROUP_V6: u8 = 48;

/// The sums of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    blocks: usize,
    active: usize,
    bans: i64,
    /// The next end of an active ban.
    next: Option<Timestamp>,
}

/// The sums of each table.
#[derive(Debug, Default)]
struct Sums {
    sources: HashMap<String, Sum>,
    networks: HashMap<Target, Sum>,
    phases: HashMap<String, Sum>,
}

// === impl Sum ===

impl Sum {
    fn add(&mut self, entry: &Entry) {
        self.blocks += 1;
        self.bans = self.bans.saturating_add(entry.bans);
        if entry.is_active() {
            self.active += 1;
            self.next = match (self.next, entry.until) {
                (Some(next), Some(until)) => Some(next.min(until)),
                (next, until) => next.or(until),
            };
        }
    }
}

// === impl Sums ===

impl Sums {
    fn add(&mut self, entry: &Entry) {
        let source = entry.source.as_deref().unwrap_or("<none>");
        self.sources
            .entry(source.to_owned())
            .or_default()
            .add(entry);
        self.networks
            .entry(network(&entry.target))
            .or_default()
            .add(entry);
        let phase = match entry.phase.as_str() {
            "" => "pending",
            phase => phase,
        };
        self.phases.entry(phase.to_owned()).or_default().add(entry);
    }

    fn text(&self, limit: usize, now: Timestamp) -> String {
        let networks = self.networks.iter();
        let networks: HashMap<String, Sum> = networks
            .map(|(network, sum)| (network.to_string(), *sum))
            .collect();
        let mut text = String::new();
        for (head, sums) in [
            ("SOURCE", &self.sources),
            ("NETWORK", &networks),
            ("PHASE", &self.phases),
        ] {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&table(head, sums, limit, now));
        }
        text
    }
}

pub(crate) async fn run(cluster: &Cluster, arguments: command::Top) -> Result<Exit, Error> {
    let (sums, scope) = cluster
        .fold_everywhere(|sums: &mut Sums, block| {
            if let Some(entry) = Entry::of(&block) {
                sums.add(&entry);
            }
        })
        .await?;
    lists::note_left_out(cluster, &scope, "counted").await;
    if sums.phases.is_empty() {
        note("No resources found");
        return Ok(Exit::Success);
    }
    out(&sums.text(arguments.limit, cluster.now()))?;
    Ok(Exit::Success)
}

/// The /24 or /48 that `target` is in; a wider range is its own.
fn network(target: &Target) -> Target {
    let group = if target.is_ipv6() { GROUP_V6 } else { GROUP_V4 };
    let length = group.min(target.prefix_len());
    IpNet::new(target.address(), length).map_or(*target, Target::range)
}

fn table(head: &str, sums: &HashMap<String, Sum>, limit: usize, now: Timestamp) -> String {
    let mut rows: Vec<(&String, &Sum)> = sums.iter().collect();
    rows.sort_by_key(|(name, sum)| {
        let most = (sum.active, sum.blocks, sum.bans);
        (std::cmp::Reverse(most), name.as_str())
    });
    let mut table = Table::new([head, "ACTIVE", "BLOCKS", "BANS", "NEXT END"]);
    for (name, sum) in rows.iter().take(limit) {
        let next = sum.next.map(|next| {
            let left = Duration::try_from(next.duration_since(now));
            left.map_or_else(|_| "due".to_owned(), |left| format!("in {}", short(left)))
        });
        table.row([
            (*name).clone(),
            sum.active.to_string(),
            sum.blocks.to_string(),
            sum.bans.to_string(),
            next.unwrap_or_else(|| "<none>".to_owned()),
        ]);
    }
    let mut text = table.text();
    if rows.len() > limit {
        text.push_str(&format!("and {} more\n", rows.len() - limit));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_grouped_by_24_and_48_and_wider_ranges_stay() {
        for (target, group) in [
            ("192.0.2.7", "192.0.2.0/24"),
            ("192.0.2.128/25", "192.0.2.0/24"),
            ("192.0.0.0/16", "192.0.0.0/16"),
            ("2001:db8:1:2::7", "2001:db8:1::/48"),
        ] {
            assert_eq!(network(&target.parse().unwrap()).to_string(), group);
        }
    }

    #[test]
    fn rows_are_ordered_by_what_stands_and_bounded() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let sum = |active, next: Option<&str>| Sum {
            blocks: 5,
            active,
            bans: 7,
            next: next.map(|text| text.parse().unwrap()),
        };
        let sums: HashMap<String, Sum> = [
            ("b", sum(1, None)),
            ("a", sum(3, Some("2026-01-01T00:10:00Z"))),
            ("c", sum(0, None)),
        ]
        .map(|(name, sum)| (name.to_owned(), sum))
        .into();
        assert_eq!(
            table("SOURCE", &sums, 2, now),
            "SOURCE   ACTIVE   BLOCKS   BANS   NEXT END\n\
             a        3        5        7      in 10m\n\
             b        1        5        7      <none>\n\
             and 1 more\n"
        );
    }
}
