//! BlockLists: which of them have an address, as far as the user may read them.

use ipblock_operator::api::BlockList;
use ipblock_operator::duration;
use ipblock_operator::target::Target;
use ipblock_operator::why::moment;
use jiff::{SignedDuration, Timestamp};
use kube_core::PartialObjectMeta;
use kube_core::params::ListParams;
use reeve_client::Error as ClientError;

use crate::cluster::{Cluster, Scope};
use crate::error::is_forbidden;
use crate::print::note;

/// Lists of one answer of the server: each may have 5,000 entries.
const PAGE: u32 = 4;

/// Lists that are named.
const NAMED: usize = 20;

/// How often the reading begins again when the server drops its state.
const READINGS: u32 = 3;

/// The lists that have a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    /// A sentence for each, at most [`NAMED`], and one about the others.
    pub(crate) facts: Vec<String>,
    /// What could not be read.
    pub(crate) unknown: Option<String>,
}

/// Looks for `target` in all lists, or in those of the namespace of `-n`.
pub(crate) async fn search(cluster: &Cluster, target: &Target) -> Listed {
    let params = ListParams::default().limit(PAGE);
    let lists = cluster.client.objects::<BlockList>();
    let mut tries = 1;
    'read: loop {
        let (mut facts, mut more) = (Vec::new(), 0_usize);
        let mut pages = lists.pages(cluster.chosen.as_deref(), &params);
        loop {
            match pages.next().await {
                Ok(Some(page)) => {
                    for list in &page.items {
                        match fact(list, target, cluster.now()) {
                            Some(fact) if facts.len() < NAMED => facts.push(fact),
                            Some(_) => more += 1,
                            None => {}
                        }
                    }
                }
                Ok(None) => {
                    if more > 0 {
                        facts.push(format!("{more} more BlockLists have it"));
                    }
                    let unknown = None;
                    return Listed { facts, unknown };
                }
                Err(error) if error.is_expired() && tries < READINGS => {
                    tries += 1;
                    continue 'read;
                }
                Err(error) => {
                    let unknown = problem(cluster, &error);
                    return Listed { facts, unknown };
                }
            }
        }
    }
}

/// What an answer that does not look into lists has to say; `None`: there is no list.
pub(crate) async fn unread(cluster: &Cluster) -> Option<String> {
    let lists = cluster.client.objects::<PartialObjectMeta<BlockList>>();
    let params = ListParams::default().limit(1);
    let mut pages = lists.pages(cluster.chosen.as_deref(), &params);
    match pages.next().await {
        Ok(Some(page)) if !page.items.is_empty() => Some(
            "BlockLists are not checked, and an entry of one may ban an address (kubectl get ipbl -A)"
                .to_owned(),
        ),
        Ok(_) => None,
        Err(error) => problem(cluster, &error),
    }
}

/// Notes that lists exist which a command about blocks does not show.
pub(crate) async fn note_left_out(cluster: &Cluster, scope: &Scope, what: &str) {
    let namespace = match scope {
        Scope::All => None,
        Scope::One(namespace) => Some(namespace.as_str()),
    };
    let lists = cluster.client.objects::<PartialObjectMeta<BlockList>>();
    let params = ListParams::default().limit(1);
    // Without the right to see lists there is nothing to say about them.
    if let Ok(Some(page)) = lists.pages(namespace, &params).next().await
        && !page.items.is_empty()
    {
        let namespace = namespace.map_or_else(|| "-A".to_owned(), |name| format!("-n {name}"));
        note(&format!(
            "note: the entries of BlockLists are not {what}; kubectl get ipbl {namespace} shows the lists"
        ));
    }
}

/// `None`: the cluster does not have the kind.
fn problem(cluster: &Cluster, error: &ClientError) -> Option<String> {
    if error.is_not_served() {
        return None;
    }
    let why = if is_forbidden(error) {
        let place = match &cluster.chosen {
            None => "all namespaces".to_owned(),
            Some(namespace) => format!("the namespace {namespace}"),
        };
        format!("the right to list blocklists.ops.yiiong.top in {place} is missing")
    } else {
        reeve_client::error_chain(error).to_string()
    };
    Some(format!(
        "BlockLists are not checked, and may ban an address: {why}"
    ))
}

/// The entry of `list` that covers `target` and ends last; `None`: none does.
fn fact(list: &BlockList, target: &Target, now: Timestamp) -> Option<String> {
    let default = list.spec.default_duration.as_deref().unwrap_or_default();
    let default = duration::parse_optional(default).ok()?;
    let ends = |until: Option<&str>| match until.filter(|text| !text.is_empty()) {
        Some(text) => text.trim().parse().ok(),
        None => Some(default.map_or(Timestamp::MAX, |length| {
            let since = list.changed_at().unwrap_or(now);
            let length = SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
            since.checked_add(length).unwrap_or(Timestamp::MAX)
        })),
    };
    let covering = list.spec.entries.iter().filter_map(|entry| {
        let range: Target = entry.target.parse().ok()?;
        let end = ends(entry.until.as_deref()).filter(|end| *end > now)?;
        range.contains(target).then_some((end, range))
    });
    let (end, range) = covering.max_by_key(|(end, _)| *end)?;
    let namespace = list.metadata.namespace.as_deref().unwrap_or_default();
    let name = list.metadata.name.as_deref().unwrap_or_default();
    let until = if end == Timestamp::MAX {
        "without end".to_owned()
    } else {
        format!("until {}", moment(end, now))
    };
    let state = if list.spec.suspended == Some(true) {
        "the list is suspended"
    } else {
        "set engines ban it, unless the status of the list says otherwise"
    };
    let written = BlockList::written_for(&list.metadata);
    let written = written.map_or_else(String::new, |source| {
        format!("; the operator writes it for the source {source}")
    });
    Some(format!(
        "the BlockList {namespace}/{name} has {range} {until}; {state}{written}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipblock_operator::api::{BlockListSpec, ListEntry};

    #[test]
    fn the_entry_that_covers_and_ends_last_is_named_and_ends_are_as_the_operator_reads_them() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let entries = |entries: &[(&str, &str)]| {
            let entries = entries.iter().map(|(target, until)| ListEntry {
                target: (*target).into(),
                until: (!until.is_empty()).then(|| (*until).into()),
                reason: None,
            });
            let spec = BlockListSpec {
                entries: entries.collect(),
                ..BlockListSpec::default()
            };
            let mut list = BlockList::new("feed", spec);
            list.metadata.namespace = Some("web".into());
            list
        };
        let target = "192.0.2.7".parse().unwrap();
        let (early, late) = ("2026-01-01T12:10:00Z", "2026-01-01T13:00:00Z");
        let both = entries(&[("192.0.2.7", early), ("192.0.2.0/24", late)]);
        assert_eq!(
            fact(&both, &target, now).unwrap(),
            "the BlockList web/feed has 192.0.2.0/24 until 2026-01-01T13:00:00Z (in 1h); set engines ban it, unless the status of the list says otherwise"
        );
        let mut bare = entries(&[("192.0.2.7", "")]);
        bare.spec.suspended = Some(true);
        assert_eq!(
            fact(&bare, &target, now).unwrap(),
            "the BlockList web/feed has 192.0.2.7 without end; the list is suspended"
        );
        bare.spec.default_duration = Some("30m".into());
        let text = fact(&bare, &target, now).unwrap();
        assert!(text.contains("until 2026-01-01T12:30:00Z"), "{text}");
        for none in [
            entries(&[("192.0.2.7", "2026-01-01T12:00:00Z"), ("192.0.2.8", late)]),
            entries(&[("x", late), ("192.0.2.7", "soon")]),
        ] {
            assert_eq!(fact(&none, &target, now), None);
        }
    }
}
