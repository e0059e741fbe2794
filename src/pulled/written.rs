//! Lists as objects: names, labels, entries.

use std::sync::Arc;

use jiff::Timestamp;
use kube_core::ObjectMeta;
use serde_json::{Value, json};

use super::entry::Entries;
use super::placing::Item;
use crate::api::{BlockList, BlockListSpec, LAST_END, ListEntry, write_time};
use crate::sets::Until;

/// Bytes of a reason: 5,000 entries must fit into an object of 1.5 MB, which is the limit of etcd.
const REASON: usize = 96;

/// The name of a list.
pub(super) fn name(source: &str, number: u32) -> String {
    format!("{source}-{number}")
}

/// The number of the list `name`, if it could be one of `source`.
pub(super) fn number(source: &str, name: &str) -> Option<u32> {
    let digits = name.strip_prefix(source)?.strip_prefix('-')?;
    let number = digits.parse().ok()?;
    // Neither +1 nor 01.
    (self::name(source, number) == name).then_some(number)
}

/// When the last entry of the list ends, as it was written.
pub(super) fn last_end(meta: &ObjectMeta) -> Option<Timestamp> {
    meta.annotations.as_ref()?.get(LAST_END)?.parse().ok()
}

/// The object, as it is created.
pub(super) fn object(
    source: &str,
    namespace: &str,
    number: u32,
    items: &[Item],
    entries: &Entries,
) -> BlockList {
    let mut list = BlockList::new(&name(source, number), spec(source, items, entries));
    list.metadata.namespace = Some(namespace.to_owned());
    list.metadata.labels = Some(BlockList::labels_for(source));
    let annotation = (LAST_END.to_owned(), end_of(items));
    list.metadata.annotations = Some([annotation].into());
    list
}

/// The merge patch that gives a list these entries, if it is at `version`. What others set beside them stays, so a list can
/// be suspended by hand.
pub(super) fn patch(source: &str, version: &str, items: &[Item], entries: &Entries) -> Value {
    json!({
        "metadata": {"resourceVersion": version, "annotations": {LAST_END: end_of(items)}},
        "spec": spec(source, items, entries),
    })
}

/// The entries of an object. Those that do not parse enforce nothing, and are left out.
pub(super) fn items(list: &BlockList) -> Arc<[Item]> {
    let items = list.spec.entries.iter().filter_map(|entry| {
        let until = match entry.until.as_deref().filter(|text| !text.is_empty()) {
            Some(text) => Some(text.trim().parse().ok()?),
            None => None,
        };
        Some(Item {
            target: entry.target.parse().ok()?,
            until: Until::new(until),
        })
    });
    let mut items: Vec<Item> = items.collect();
    items.sort_unstable_by_key(|item| (item.target, std::cmp::Reverse(item.until)));
    items.dedup_by_key(|item| item.target);
    items.into()
}

fn end_of(items: &[Item]) -> String {
    let last = items.iter().map(|item| item.until).max();
    let last = last.and_then(Until::at).unwrap_or(Timestamp::MAX);
    write_time(last)
}

fn spec(source: &str, items: &[Item], entries: &Entries) -> BlockListSpec {
    let entries = items.iter().map(|item| {
        let position = entries.position(&item.target);
        let reason = position.map(|it| cut(&entries.at(it).reason));
        ListEntry {
            target: item.target.to_string(),
            until: item.until.at().map(write_time),
            reason: reason.filter(|it| !it.is_empty()).map(str::to_owned),
        }
    });
    BlockListSpec {
        entries: entries.collect(),
        source: Some(source.to_owned()),
        ..BlockListSpec::default()
    }
}

fn cut(reason: &str) -> &str {
    let mut ends = (0..=REASON.min(reason.len())).rev();
    let end = ends.find(|at| reason.is_char_boundary(*at));
    &reason[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::MOST_ENTRIES;
    use crate::pulled::entry::Entry;
    use crate::target::Target;
    use std::collections::BTreeMap;
    use std::net::Ipv6Addr;
    use std::time::Duration;

    #[test]
    fn a_name_has_one_number() {
        assert_eq!(number("feed", "feed-0"), Some(0));
        assert_eq!(number("feed", "feed-17"), Some(17));
        for other in [
            "feed", "feed-", "feed-01", "feed-+1", "feed-a", "feed-a-1", "other-1",
        ] {
            assert_eq!(number("feed", other), None, "{other}");
        }
        assert_eq!(number("feed-a", "feed-a-1"), Some(1));
    }

    #[test]
    fn what_is_written_is_read_as_the_same_entries() {
        let until = Until::new(Some("2026-01-01T00:00:00Z".parse().unwrap()));
        let item = |text: &str| Item {
            target: text.parse().unwrap(),
            until,
        };
        let all = [item("192.0.2.0/24"), item("192.0.2.7"), item("2001:db8::1")];
        let list = object("feed", "web", 3, &all, &Entries::default());
        assert_eq!(*items(&list), all);
        assert_eq!(BlockList::written_for(&list.metadata), Some("feed"));
        assert_eq!(last_end(&list.metadata), until.at());
        assert_eq!(list.metadata.name.as_deref(), Some("feed-3"));
        let patched = patch("feed", "7", &all, &Entries::default());
        assert_eq!(patched["spec"], json!(list.spec));
        assert!(
            patched["spec"].get("suspended").is_none(),
            "that is the user's"
        );
    }

    #[test]
    fn a_reason_is_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"é".repeat(60)), "é".repeat(48));
        assert_eq!(cut(&format!("a{}", "é".repeat(60))).len(), 95);
    }

    #[test]
    fn the_largest_list_is_below_the_limit_of_etcd() {
        let mut each: BTreeMap<Target, Entry> = BTreeMap::new();
        // Every character of the reason needs an escape.
        let reason: Arc<str> = "\"".repeat(300).into();
        for number in 0..MOST_ENTRIES {
            let number = u16::try_from(number).unwrap();
            let host = Ipv6Addr::new(
                0x2001,
                0xdb8,
                0xaaaa,
                0xaaaa,
                0xaaaa,
                0xaaaa,
                0xaaaa,
                0xa000 + number,
            );
            let duration = Duration::from_secs(3600);
            let reason = Arc::clone(&reason);
            each.insert(Target::host(host.into()), Entry { duration, reason });
        }
        let entries = Entries::from(each);
        let until = Until::new(Some("2026-01-01T00:00:00Z".parse().unwrap()));
        let items = entries.targets().iter().map(|target| Item {
            target: *target,
            until,
        });
        let items: Vec<Item> = items.collect();
        let list = object(&"s".repeat(63), "default", 0, &items, &entries);
        let bytes = serde_json::to_vec(&list).unwrap().len();
        assert!((1_400_000..1_500_000).contains(&bytes), "{bytes}");
        // Usual entries of a feed.
        let feed = object("feed", "default", 0, &items, &Entries::default());
        let bytes = serde_json::to_vec(&feed).unwrap().len();
        assert!((400_000..500_000).contains(&bytes), "{bytes}");
    }
}
