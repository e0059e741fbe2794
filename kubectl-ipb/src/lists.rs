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

/// The lists that have a target, or parts of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    /// A sentence for each that has all of it, at most [`NAMED`], and one about the others.
    pub(crate) facts: Vec<String>,
    /// The same for those that only have parts of it.
    pub(crate) parts: Vec<String>,
    /// What could not be read.
    pub(crate) unknown: Option<String>,
}

/// Looks for `target` in the lists of `namespace`, or in all.
pub(crate) async fn search(cluster: &Cluster, namespace: Option<&str>, target: &Target) -> Listed {
    let params = ListParams::default().limit(PAGE);
    let lists = cluster.client.objects::<BlockList>();
    let mut tries = 1;
    'read: loop {
        let (mut whole, mut parts) = (Named::default(), Named::default());
        let mut pages = lists.pages(namespace, &params);
        loop {
            match pages.next().await {
                Ok(Some(page)) => {
                    for list in &page.items {
                        match fact(list, target, cluster.now()) {
                            Some(Fact::Whole(text)) => whole.add(text),
                            Some(Fact::Parts(text)) => parts.add(text),
                            None => {}
                        }
                    }
                }
                Ok(None) => return listed(whole, parts, None),
                Err(error) if error.is_expired() && tries < READINGS => {
                    tries += 1;
                    continue 'read;
                }
                Err(error) => {
                    return listed(whole, parts, problem(cluster, &error));
                }
            }
        }
    }
}

fn listed(whole: Named, parts: Named, unknown: Option<String>) -> Listed {
    Listed {
        facts: whole.facts("have it"),
        parts: parts.facts("have parts of it"),
        unknown,
    }
}

/// The first sentences of many.
#[derive(Debug, Default)]
struct Named {
    first: Vec<String>,
    more: usize,
}

// === impl Named ===

impl Named {
    fn add(&mut self, text: String) {
        if self.first.len() < NAMED {
            self.first.push(text);
        } else {
            self.more += 1;
        }
    }

    fn facts(mut self, what: &str) -> Vec<String> {
        if self.more > 0 {
            self.first
                .push(format!("{} more BlockLists {what}", self.more));
        }
        self.first
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

/// What a list has of a target, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fact {
    Whole(String),
    Parts(String),
}

/// The entry of `list` that covers `target` and ends last, or the number of entries inside of it; `None`: none overlaps.
fn fact(list: &BlockList, target: &Target, now: Timestamp) -> Option<Fact> {
    let default = list.spec.default_duration.as_deref().unwrap_or_default();
    // The operator refuses entries without an end when it is wrong, and enforces the others.
    let default = duration::parse_optional(default).ok();
    let ends = |until: Option<&str>| match until.filter(|text| !text.is_empty()) {
        Some(text) => text.trim().parse().ok(),
        None => Some(default?.map_or(Timestamp::MAX, |length| {
            let since = list.changed_at().unwrap_or(now);
            let length = SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
            since.checked_add(length).unwrap_or(Timestamp::MAX)
        })),
    };
    let (mut last, mut inside) = (None, 0_usize);
    for entry in &list.spec.entries {
        let Ok(range) = entry.target.parse::<Target>() else {
            continue;
        };
        let Some(end) = ends(entry.until.as_deref()).filter(|end| *end > now) else {
            continue;
        };
        if range.contains(target) {
            if last.is_none_or(|(latest, _)| latest <= end) {
                last = Some((end, range));
            }
        } else if target.contains(&range) {
            inside += 1;
        }
    }
    let has = match (last, inside) {
        (Some((end, range)), _) if end == Timestamp::MAX => format!("{range} without end"),
        (Some((end, range)), _) => format!("{range} until {}", moment(end, now)),
        (None, 0) => return None,
        (None, 1) => format!("1 entry inside of {target}"),
        (None, count) => format!("{count} entries inside of {target}"),
    };
    let namespace = list.metadata.namespace.as_deref().unwrap_or_default();
    let name = list.metadata.name.as_deref().unwrap_or_default();
    let it = if last.is_none() && inside > 1 {
        "them"
    } else {
        "it"
    };
    let state = if list.spec.suspended == Some(true) {
        "the list is suspended".to_owned()
    } else {
        format!("set engines ban {it}, unless the status of the list says otherwise")
    };
    let written = BlockList::written_for(&list.metadata);
    let written = written.map_or_else(String::new, |source| {
        format!("; the operator writes it for the source {source}")
    });
    let text = format!("the BlockList {namespace}/{name} has {has}; {state}{written}");
    Some(if last.is_some() {
        Fact::Whole(text)
    } else {
        Fact::Parts(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipblock_operator::api::{BlockListSpec, ListEntry};

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn entries(entries: &[(&str, &str)]) -> BlockList {
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
    }

    fn whole(list: &BlockList, target: &Target) -> String {
        match fact(list, target, now()) {
            Some(Fact::Whole(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn entries_inside_of_a_range_are_counted() {
        let (over, late) = ("2026-01-01T12:00:00Z", "2026-01-01T13:00:00Z");
        let range = "192.0.2.0/24".parse().unwrap();
        let has = |list: &[(&str, &str)]| fact(&entries(list), &range, now());
        assert_eq!(
            has(&[("192.0.2.7", late), ("192.0.2.8", over), ("192.0.3.7", "")]),
            Some(Fact::Parts("the BlockList web/feed has 1 entry inside of 192.0.2.0/24; set engines ban it, unless the status of the list says otherwise".into()))
        );
        assert_eq!(
            has(&[("192.0.2.7", late), ("192.0.2.128/25", "")]),
            Some(Fact::Parts("the BlockList web/feed has 2 entries inside of 192.0.2.0/24; set engines ban them, unless the status of the list says otherwise".into()))
        );
        let all = has(&[("192.0.2.7", late), ("192.0.0.0/16", late)]);
        assert!(matches!(all, Some(Fact::Whole(_))), "{all:?}");
        assert_eq!(has(&[("192.0.2.7", over), ("192.0.3.7", "")]), None);
    }

    #[test]
    fn lists_beyond_the_named_ones_are_counted() {
        let mut named = Named::default();
        for _ in 0..NAMED + 2 {
            named.add("it".into());
        }
        let facts = named.facts("have parts of it");
        assert_eq!(facts.len(), NAMED + 1);
        assert_eq!(facts[NAMED], "2 more BlockLists have parts of it");
    }

    #[test]
    fn the_entry_that_covers_and_ends_last_is_named_and_ends_are_as_the_operator_reads_them() {
        let target = "192.0.2.7".parse().unwrap();
        let (early, late) = ("2026-01-01T12:10:00Z", "2026-01-01T13:00:00Z");
        let both = entries(&[("192.0.2.7", early), ("192.0.2.0/24", late)]);
        assert_eq!(
            whole(&both, &target),
            "the BlockList web/feed has 192.0.2.0/24 until 2026-01-01T13:00:00Z (in 1h); set engines ban it, unless the status of the list says otherwise"
        );
        let mut bare = entries(&[("192.0.2.7", "")]);
        bare.spec.suspended = Some(true);
        assert_eq!(
            whole(&bare, &target),
            "the BlockList web/feed has 192.0.2.7 without end; the list is suspended"
        );
        bare.spec.default_duration = Some("30m".into());
        let text = whole(&bare, &target);
        assert!(text.contains("until 2026-01-01T12:30:00Z"), "{text}");
        for none in [
            entries(&[("192.0.2.7", "2026-01-01T12:00:00Z"), ("192.0.2.8", late)]),
            entries(&[("x", late), ("192.0.2.7", "soon")]),
        ] {
            assert_eq!(fact(&none, &target, now()), None);
        }
        let mut wrong = entries(&[("192.0.2.0/24", ""), ("192.0.2.7", late)]);
        wrong.spec.default_duration = Some("soon".into());
        let text = whole(&wrong, &target);
        assert!(text.contains("has 192.0.2.7 until 2026-01-01T13"), "{text}");
        wrong.spec.entries.pop();
        assert_eq!(fact(&wrong, &target, now()), None, "it has no end");
    }
}
