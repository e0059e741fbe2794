//! What the engines are to block, by source and group.

use proptest::prelude::*;

use super::*;

fn target(text: &str) -> Target {
    text.parse().unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn until(text: &str) -> Until {
    Until::new(Some(at(text)))
}

fn place(name: &str) -> Source {
    Source::Place(Place::new("xdp", name))
}

fn list(name: &str) -> Source {
    Source::List(name.into())
}

#[test]
fn a_target_stands_while_one_source_has_it_with_the_latest_end() {
    let desired = Desired::new([]);
    let banned = target("192.0.2.7");
    let (early, late) = (until("2026-01-01T00:10:00Z"), until("2026-01-01T01:00:00Z"));
    desired.insert(&place("a"), banned, early);
    assert_eq!(
        desired.insert(&list("feed"), banned, late).until,
        Some(late)
    );
    assert_eq!(desired.insert(&place("b"), banned, early).until, Some(late));
    assert_eq!(desired.remove(&list("feed"), banned).until, Some(early));
    assert_eq!(desired.remove(&place("a"), banned).until, Some(early));
    assert_eq!(desired.remove(&place("b"), banned).until, None);
    assert!(desired.view().set.is_empty());
    assert!(desired.0.state.lock().sources.is_empty(), "nothing is kept");
}

#[test]
fn a_move_to_another_gateway_changes_nothing_and_a_lift_at_the_former_one_neither() {
    let desired = Desired::new([]);
    let (banned, end) = (target("192.0.2.7"), until("2026-01-01T01:00:00Z"));
    let first = desired.insert(&place("a"), banned, end);
    let moved = desired.insert(&place("b"), banned, end);
    let lifted = desired.remove(&place("a"), banned);
    assert_eq!((moved.change, lifted.change), (first.change, first.change));
    assert_eq!(lifted.until, Some(end));
}

#[test]
fn an_end_that_moves_by_a_second_is_no_change_and_one_that_moves_further_is() {
    let desired = Desired::new([]);
    let banned = target("192.0.2.7");
    let first = desired.insert(&place("a"), banned, until("2026-01-01T00:10:00Z"));
    let again = desired.insert(&place("a"), banned, until("2026-01-01T00:10:01Z"));
    assert_eq!(first, again);
    let later = desired.insert(&place("a"), banned, until("2026-01-01T00:11:00Z"));
    assert!(later.change > first.change && later.until > first.until);
}

#[test]
fn entries_of_lists_leave_at_their_end_and_bans_of_blocks_a_little_later() {
    let desired = Desired::new([]);
    let end = until("2026-01-01T00:10:00Z");
    desired.insert(&list("feed"), target("192.0.2.1"), end);
    desired.insert(&place("a"), target("192.0.2.2"), end);
    desired.insert(&place("a"), target("192.0.2.3"), Until::NEVER);
    assert_eq!(desired.next_end(), Some(at("2026-01-01T00:10:00Z")));
    desired.expire(at("2026-01-01T00:09:59Z"));
    assert_eq!(desired.view().set.len(), 3);
    desired.expire(at("2026-01-01T00:10:00Z"));
    assert_eq!(desired.view().set.get(&target("192.0.2.1")), None);
    assert_eq!(desired.next_end(), Some(at("2026-01-01T00:10:05Z")));
    desired.expire(at("2026-01-01T00:10:05Z"));
    assert_eq!(desired.view().set.len(), 1);
    assert_eq!(desired.next_end(), None);
}

#[test]
fn an_entry_of_a_list_takes_less_than_25_bytes_in_all() {
    let desired = Desired::new([]);
    let (lists, each) = (40_u32, 5_000_u32);
    for number in 0..lists {
        // As a feed that is split by a hash: each list has entries from everywhere.
        let entries = (0..each).map(|n| Entry {
            target: Target::host(std::net::Ipv4Addr::from((n * lists + number) * 977).into()),
            until: Until::NEVER,
        });
        desired.replace(&list(&number.to_string()), entries.collect());
    }
    let state = desired.0.state.lock();
    assert_eq!(state.union.len(), 200_000);
    let sources: usize = state.sources.values().map(TargetSet::bytes).sum();
    let each = (sources + state.union.bytes()) / state.union.len();
    assert!(each < 25, "{each} bytes");
}

#[test]
fn many_entries_that_end_at_once_leave_in_parts_and_a_later_end_elsewhere_stays() {
    let desired = Desired::new([]);
    let (early, late) = (until("2026-01-01T00:10:00Z"), until("2026-01-01T01:00:00Z"));
    let number = u32::try_from(MOST_ENDS).unwrap() + 10;
    let entry = |n: u32| Entry {
        target: Target::host(std::net::Ipv4Addr::from(n).into()),
        until: early,
    };
    desired.replace(&list("feed"), (0..number).map(entry).collect());
    desired.insert(&list("other"), entry(7).target, late);
    let now = at("2026-01-01T00:10:00Z");
    desired.expire(now);
    assert_eq!(desired.view().set.len(), 11);
    assert!(desired.next_end().is_some_and(|end| end <= now));
    desired.expire(now);
    assert_eq!(desired.view().set.get(&entry(7).target), Some(late));
    assert_eq!(desired.view().set.len(), 1);
    assert_eq!(desired.next_end(), late.at());
}

#[test]
fn changes_are_published_only_once_every_group_was_read() {
    let desired = Desired::new([Group::Blocks, Group::Lists]);
    let mut changes = desired.changes();
    desired.insert(&place("a"), target("192.0.2.7"), Until::NEVER);
    desired.read(Group::Lists);
    assert!(!desired.is_read() && !changes.has_changed().unwrap());
    desired.replace_blocks(BTreeMap::new());
    assert!(changes.has_changed().unwrap() && changes.borrow_and_update().is_some());
    assert!(desired.view().set.is_empty(), "no block has it");
    desired.remove(&place("a"), target("192.0.2.7"));
    assert!(!changes.has_changed().unwrap(), "nothing changed");
}

#[test]
fn a_list_that_is_replaced_leaves_what_others_have() {
    let desired = Desired::new([]);
    let entries = |texts: &[&str]| -> TargetSet {
        let entry = |text: &&str| Entry {
            target: target(text),
            until: Until::NEVER,
        };
        texts.iter().map(entry).collect()
    };
    desired.replace(&list("one"), entries(&["192.0.2.1", "192.0.2.2"]));
    desired.replace(&list("two"), entries(&["192.0.2.2", "192.0.2.3"]));
    desired.replace(&list("two"), entries(&["192.0.2.4"]));
    let expected = entries(&["192.0.2.1", "192.0.2.2", "192.0.2.4"]);
    assert_eq!(desired.view().set, expected);
    assert_eq!(desired.count(&list("two")), 1);
}

#[test]
fn a_target_that_no_claim_backs_is_dropped_at_every_place() {
    let desired = Desired::new([]);
    let banned = target("192.0.2.7");
    for source in [place("a"), place("b"), list("feed")] {
        desired.insert(&source, banned, Until::NEVER);
    }
    desired.keep(banned, |place| place.endpoint == "b");
    assert_eq!(desired.count(&place("a")), 0);
    desired.remove(&list("feed"), banned);
    assert!(desired.keep(banned, |_| false).until.is_none());
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    kilobytes.unwrap().parse::<usize>().unwrap() * 1024
}

#[tokio::test]
#[ignore = "it measures the memory of its process: run it alone, with --nocapture"]
async fn a_million_entries_of_lists_and_a_served_list_take_less_than_150_megabytes() {
    use crate::sets::kind::{Change, SetEngine};
    use crate::sets::list::ListEngine;

    let before = resident();
    let desired = Desired::new([]);
    let mut spread = 1_u32;
    for number in 0..200 {
        let entries = (0..5000).map(|_| {
            // Feeds do not come in the order of addresses.
            spread = spread.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Entry {
                target: Target::host(std::net::Ipv4Addr::from(spread).into()),
                until: until("2026-06-01T00:00:00Z"),
            }
        });
        desired.replace(&list(&number.to_string()), entries.collect());
    }
    let set = desired.view().set;
    let united = resident();
    let engine = ListEngine::new(
        "edge",
        crate::time::Time::new(reeve_clock::Clock::system()),
        crate::sets::Metrics::default(),
    );
    let change = Change {
        from: TargetSet::default(),
        to: set.clone(),
    };
    engine.apply(&change).await.unwrap();
    let served = resident();
    let megabytes = |bytes: usize| (bytes - before) / 1_000_000;
    println!(
        "{} entries: {} MB, with a list {} MB",
        set.len(),
        megabytes(united),
        megabytes(served)
    );
    assert!(set.len() > 990_000 && megabytes(served) < 150);
}

#[test]
fn a_lift_is_remembered_until_the_end_that_the_ban_had_or_the_next_ban() {
    let desired = Desired::new([]);
    let (early, late) = ("2026-01-01T00:10:00Z", "2026-01-01T01:00:00Z");
    for (address, end) in [
        ("192.0.2.1", early),
        ("192.0.2.2", late),
        ("192.0.2.3", late),
    ] {
        desired.insert(&place("a"), target(address), until(end));
        desired.insert(&place("b"), target(address), until(end));
        desired.remove(&place("a"), target(address));
    }
    let lifted = |now: &str| -> Vec<String> {
        let lifted = desired.lifted(at(now));
        lifted.iter().map(|it| it.target.to_string()).collect()
    };
    assert!(lifted("2026-01-01T00:00:00Z").is_empty(), "others ban them");
    for address in ["192.0.2.1", "192.0.2.2", "192.0.2.3"] {
        desired.remove(&place("b"), target(address));
    }
    assert_eq!(lifted("2026-01-01T00:00:00Z").len(), 3);
    desired.insert(&place("a"), target("192.0.2.3"), until(late));
    assert_eq!(lifted("2026-01-01T00:10:00Z"), ["192.0.2.2"]);
    desired.expire(at("2026-01-01T02:00:00Z"));
    desired.add_lifted(&[target("192.0.2.4")], Until::NEVER);
    assert_eq!(lifted("2026-01-01T02:00:00Z"), ["192.0.2.4"]);
}

#[test]
fn the_recorded_end_replaces_the_one_of_the_call_also_when_it_is_near() {
    let desired = Desired::new([]);
    let banned = target("192.0.2.7");
    let (called, recorded) = (until("2026-01-01T00:10:00Z"), until("2026-01-01T00:10:01Z"));
    desired.set_end(&place("a"), banned, recorded);
    assert!(desired.view().set.is_empty(), "it does not stand");
    desired.insert(&place("a"), banned, called);
    desired.set_end(&place("a"), banned, recorded);
    // A standby reads the record only.
    let standby = Desired::new([]);
    standby.set(&place("a"), banned, recorded);
    assert_eq!(desired.view().set, standby.view().set);
}

proptest! {
    /// Whatever is changed in whatever order: a target stands with the latest of its ends, and a lift is remembered of a
    /// target that does not stand.
    #[test]
    fn the_union_has_the_latest_end_of_all_sources(
        steps in prop::collection::vec((0u8..7, 0usize..4, 0u32..8, 0u32..40), 0..200),
    ) {
        let desired = Desired::new([]);
        let sources = [place("a"), place("b"), list("c"), list("d")];
        let host = |number: u32| Target::host(std::net::Ipv4Addr::from(number).into());
        let end = |second: u32| until("2026-01-01T00:00:00Z").later(second);
        let mut lifts: BTreeMap<Target, Until> = BTreeMap::new();
        for (action, source, number, second) in steps {
            let (source, target) = (&sources[source], host(number));
            let before = desired.view().set;
            match action {
                0 => {
                    desired.insert(source, target, end(second));
                }
                1 => desired.set(source, target, end(second)),
                2 => desired.set_end(source, target, end(second)),
                3 => {
                    desired.remove(source, target);
                }
                4 => {
                    desired.keep(target, |it| Source::Place(it.clone()) == sources[0]);
                }
                5 => {
                    let entries = (0..number).map(|it| Entry { target: host(it), until: end(second + it) });
                    desired.replace(source, entries.collect());
                }
                _ => desired.expire(end(second).at().unwrap()),
            }
            let state = desired.0.state.lock();
            for target in (0..8).map(host) {
                let ends = state.sources.values().filter_map(|it| it.get(&target));
                prop_assert_eq!(state.union.get(&target), ends.max());
            }
            drop(state);
            // What left otherwise than by its end was lifted; what stands again is no lift any more.
            let after = desired.view().set;
            for target in (0..8).map(host) {
                match (before.get(&target), after.get(&target)) {
                    (_, Some(_)) => {
                        lifts.remove(&target);
                    }
                    (Some(until), None) if action < 6 => {
                        lifts.insert(target, until);
                    }
                    _ => {}
                }
            }
            let lifted = desired.lifted(at("2025-01-01T00:00:00Z"));
            prop_assert!(lifted.iter().map(|it| (it.target, it.until)).eq(lifts.clone()));
        }
    }
}
