//! `kubectl ipb list`, and the choice of blocks that other commands share.

use std::time::Duration;

use ipblock_operator::api::IPBlock;
use ipblock_operator::target::Target;
use ipblock_operator::why::{Entry, short};
use jiff::Timestamp;
use serde_json::json;

use crate::cluster::{Cluster, KIND, Scope};
use crate::command::{self, Format, Order, Which};
use crate::error::Error;
use crate::exit::Exit;
use crate::lists;
use crate::print::{self, Table, note, out};

/// A row of the table, small: a cluster may have 100,000 blocks.
#[derive(Debug)]
struct Row {
    entry: Option<Entry>,
    namespace: String,
    name: String,
    ip: String,
    engine: String,
    created: Option<Timestamp>,
}

// === impl Which ===

impl Which {
    /// The namespaces.
    pub(crate) fn scope(&self, cluster: &Cluster) -> Scope {
        if self.all_namespaces {
            Scope::All
        } else {
            Scope::One(cluster.namespace.clone())
        }
    }

    /// Whether `block` is one of them.
    pub(crate) fn has(&self, block: &IPBlock) -> bool {
        let status = block.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_ref());
        // A block that the operator has not seen is pending.
        let phase = phase.map_or("pending", |phase| phase.as_str());
        let in_phase =
            self.phase.is_empty() || self.phase.iter().any(|wanted| wanted.as_str() == phase);
        let source = block.spec.source.as_deref().unwrap_or_default();
        let from_source = self.source.as_deref().is_none_or(|wanted| wanted == source);
        let at_address = self.address.is_none_or(|wanted| {
            let target = block.spec.ip.trim().parse::<Target>();
            target.is_ok_and(|target| target.overlaps(&wanted))
        });
        in_phase && from_source && at_address
    }
}

pub(crate) async fn run(cluster: &Cluster, arguments: command::List) -> Result<Exit, Error> {
    let which = &arguments.which;
    let scope = which.scope(cluster);
    let selector = which.selector.as_deref();
    if matches!(arguments.output, Some(Format::Json | Format::Yaml)) {
        let mut blocks = cluster
            .fold(&scope, selector, |all: &mut Vec<IPBlock>, mut block| {
                if which.has(&block) {
                    // As kubectl without --show-managed-fields.
                    block.metadata.managed_fields = None;
                    all.push(block);
                }
            })
            .await?;
        if let Some(order) = arguments.sort_by {
            blocks.sort_by_cached_key(|block| Row::of(block).key(order));
        }
        // As kubectl prints several objects.
        let list = json!({
            "apiVersion": "v1",
            "items": blocks,
            "kind": "List",
            "metadata": { "resourceVersion": "" },
        });
        out(&match arguments.output {
            Some(Format::Yaml) => print::yaml(&list)?,
            _ => print::json(&list)?,
        })?;
        return Ok(Exit::Success);
    }
    let mut rows = cluster
        .fold(&scope, selector, |all: &mut Vec<Row>, block| {
            if which.has(&block) {
                all.push(Row::of(&block));
            }
        })
        .await?;
    if let Some(order) = arguments.sort_by {
        rows.sort_by_cached_key(|row| row.key(order));
    }
    if arguments.output.is_none() || arguments.output == Some(Format::Wide) {
        lists::note_left_out(cluster, &scope, "shown").await;
    }
    if rows.is_empty() {
        match &scope {
            Scope::All => note("No resources found"),
            Scope::One(namespace) => note(&format!("No resources found in {namespace} namespace.")),
        }
        return Ok(Exit::Success);
    }
    if arguments.output == Some(Format::Name) {
        let names: String = rows
            .iter()
            .map(|row| format!("{KIND}/{}\n", row.name))
            .collect();
        out(&names)?;
        return Ok(Exit::Success);
    }
    let wide = arguments.output == Some(Format::Wide);
    let mut head = vec!["NAME", "IP", "PHASE", "EXPIRES", "SOURCE", "AGE", "REASON"];
    if wide {
        head.extend(["BANS", "BY", "ENGINE", "MESSAGE"]);
    }
    if scope == Scope::All {
        head.insert(0, "NAMESPACE");
    }
    let mut table = Table::new([]);
    if !arguments.no_headers {
        table.row(head.into_iter().map(str::to_owned));
    }
    let now = cluster.now();
    for row in rows {
        let mut cells = row.cells(wide, now);
        if scope == Scope::All {
            cells.insert(0, row.namespace);
        }
        table.row(cells);
    }
    out(&table.text())?;
    Ok(Exit::Success)
}

// === impl Row ===

impl Row {
    fn of(block: &IPBlock) -> Self {
        let status = block.status.as_ref();
        let created = block.metadata.creation_timestamp.as_ref();
        Self {
            entry: Entry::of(block),
            namespace: block.metadata.namespace.clone().unwrap_or_default(),
            name: block.metadata.name.clone().unwrap_or_default(),
            ip: block.spec.ip.clone(),
            engine: status
                .and_then(|status| status.engine.clone())
                .unwrap_or_default(),
            created: created.map(|created| created.0),
        }
    }

    fn key(&self, order: Order) -> impl Ord + use<> {
        let entry = self.entry.as_ref();
        let active = entry.filter(|entry| entry.is_active());
        let first = match order {
            Order::Expires => {
                let until = active.map(|entry| entry.until.unwrap_or(Timestamp::MAX));
                // What does not end is behind what ends, and what is not banned is behind both.
                (until.is_none(), until, None)
            }
            Order::Age => {
                let youngest = self.created.map(|created| -created.as_second());
                let youngest = youngest.and_then(|seconds| Timestamp::from_second(seconds).ok());
                (false, youngest, None)
            }
            Order::Address => (entry.is_none(), None, entry.map(|entry| entry.target)),
            Order::Name => (false, None, None),
        };
        (first, self.namespace.clone(), self.name.clone())
    }

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<String> {
        let entry = self.entry.as_ref();
        let text = |field: Option<&String>| field.cloned().unwrap_or_default();
        let phase = match entry {
            Some(entry) if entry.deleting => "deleting".to_owned(),
            Some(entry) => entry.phase.clone(),
            None => "unreadable".to_owned(),
        };
        let mut cells = vec![
            self.name.clone(),
            self.ip.clone(),
            phase,
            entry.map(|entry| expires(entry, now)).unwrap_or_default(),
            text(entry.and_then(|entry| entry.source.as_ref())),
            self.created.map(|at| ago(at, now)).unwrap_or_default(),
            text(entry.and_then(|entry| entry.reason.as_ref())),
        ];
        if wide {
            cells.push(
                entry
                    .map(|entry| entry.bans)
                    .unwrap_or_default()
                    .to_string(),
            );
            cells.push(text(entry.and_then(|entry| entry.by.as_ref())));
            cells.push(self.engine.clone());
            cells.push(text(entry.and_then(|entry| entry.message.as_ref())));
        }
        for cell in &mut cells {
            if cell.is_empty() {
                "<none>".clone_into(cell);
            }
        }
        cells
    }
}

/// `in 42m`, `never`, `due` or nothing.
fn expires(entry: &Entry, now: Timestamp) -> String {
    if !entry.is_active() {
        return String::new();
    }
    let Some(until) = entry.until else {
        return "never".to_owned();
    };
    match Duration::try_from(until.duration_since(now)) {
        Ok(left) if !left.is_zero() => format!("in {}", short(left)),
        _ => "due".to_owned(),
    }
}

fn ago(at: Timestamp, now: Timestamp) -> String {
    short(Duration::try_from(now.duration_since(at)).unwrap_or_default())
}
