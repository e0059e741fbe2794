//! The set against a map as its model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::random_cases::cases;

fn host(number: u32) -> Target {
    Target::host(std::net::Ipv4Addr::from(number).into())
}

fn host6(number: u32) -> Target {
    let address = (0x2001_0db8_u128 << 96) + u128::from(number);
    Target::host(std::net::Ipv6Addr::from(address).into())
}

/// Addresses and ranges of both families, whose numbers overlap; some share their first address.
fn targets(number: u32) -> Target {
    let range = |target: Target, prefix| {
        Target::range(ipnet::IpNet::new(target.address(), prefix).unwrap())
    };
    let low = Target::host(std::net::Ipv6Addr::from(u128::from(number)).into());
    match number % 8 {
        0 => range(host(number), 28),
        1 => range(host(number), 29),
        2 => range(low, 121),
        3 | 4 => low,
        5 => host6(number),
        _ => host(number),
    }
}

fn read(set: &TargetSet) -> BTreeMap<Target, Until> {
    set.iter().map(|it| (it.target, it.until)).collect()
}

#[test]
fn an_entry_takes_9_bytes_and_one_of_ipv6_21() {
    let of = |entry: fn(u32) -> Target| {
        let entries = (0..100_000).map(|number| Entry {
            target: entry(number),
            until: Until::NEVER,
        });
        entries.collect::<TargetSet>().bytes() / 100_000
    };
    assert_eq!((of(host), of(host6)), (9, 21));
}

#[test]
fn ends_are_rounded_up_and_read_back() {
    let at = |text: &str| Some(text.parse().unwrap());
    assert_eq!(Until::new(None).at(), None);
    assert_eq!(
        Until::new(at("2026-01-01T00:00:00.001Z")).at(),
        at("2026-01-01T00:00:01Z")
    );
    let distant = Until::new(at("2126-01-01T00:00:00Z"));
    assert_eq!(distant.at(), at("2126-01-01T00:00:00Z"));
    assert!(distant < Until::NEVER && Until::new(at("1990-01-01T00:00:00Z")) < distant);
    assert!(Until::new(Some(Timestamp::MAX)).at().is_some());
}

#[test]
fn a_change_of_a_copy_keeps_all_but_one_chunk_shared() {
    let entries = (0..10_000).map(|number| Entry {
        target: host(number),
        until: Until::NEVER,
    });
    let before: TargetSet = entries.collect();
    let mut after = before.clone();
    after.remove(&host(5_000));
    let shared = before.chunks.iter().zip(&after.chunks);
    let differing = shared.filter(|(one, two)| !Arc::ptr_eq(one, two)).count();
    assert_eq!(differing, 1);
    assert_eq!((before.len(), after.len()), (10_000, 9_999));
}

#[test]
fn what_a_later_set_does_not_share_is_what_was_changed() {
    let entries = (0..10_000).map(|number| Entry {
        target: host(number),
        until: Until::NEVER,
    });
    let before: TargetSet = entries.collect();
    let chunk =
        |number: u32| before.chunks[before.place(Key::of(&host(number))).unwrap()].bytes() as u64;
    assert_eq!(before.replaced(&before.clone()), 0);
    let mut after = before.clone();
    after.remove(&host(0));
    assert_eq!(before.replaced(&after), chunk(0));
    after.insert(host(5_000), Until::new(Some(Timestamp::UNIX_EPOCH)));
    after.insert(host(20_000), Until::NEVER);
    let changed = chunk(0) + chunk(5_000) + chunk(9_999);
    assert_eq!(before.replaced(&after), changed);
    let all = before.chunks.iter().map(|it| it.bytes()).sum::<usize>() as u64;
    assert_eq!(before.replaced(&TargetSet::default()), all);
    let again: TargetSet = before.iter().collect();
    assert_eq!(before.replaced(&again), all);
}

proptest! {
    #[test]
    fn keys_have_the_order_of_targets_and_lead_back_to_them(
        some in prop::collection::vec((any::<bool>(), any::<u128>(), 0u8..=128, 0u8..128), 2..40),
    ) {
        let targets: Vec<Target> = some.into_iter().map(|(ipv6, address, prefix, zeros)| {
            let address = address >> zeros;
            let net = if ipv6 {
                ipnet::IpNet::new(std::net::Ipv6Addr::from_bits(address).into(), prefix)
            } else {
                let low = u32::try_from(address & u128::from(u32::MAX)).unwrap();
                ipnet::IpNet::new(std::net::Ipv4Addr::from_bits(low).into(), prefix % 33)
            };
            Target::range(net.unwrap())
        }).collect();
        for one in &targets {
            let chunk = Chunk::of(Entry { target: *one, until: Until(7) });
            prop_assert_eq!(chunk.get(0), Some(Entry { target: *one, until: Until(7) }));
            for other in &targets {
                prop_assert_eq!(Key::of(one).cmp(&Key::of(other)), one.cmp(other));
            }
        }
        let entries = targets.iter().map(|target| Entry { target: *target, until: Until(1) });
        let set: TargetSet = entries.collect();
        let expected: std::collections::BTreeSet<Target> = targets.into_iter().collect();
        prop_assert!(set.iter().map(|it| it.target).eq(expected));
    }
}

proptest! {
    // Four thousand steps each.
    #![proptest_config(cases(64))]

    #[test]
    fn it_does_what_a_sorted_map_does(
        steps in prop::collection::vec((0u32..6000, 0u32..20, 0u8..8), 0..4000),
    ) {
        let (mut set, mut model) = (TargetSet::default(), BTreeMap::new());
        let mut earlier = Vec::new();
        for (position, (number, end, action)) in steps.into_iter().enumerate() {
            let target = targets(number);
            if action == 0 {
                prop_assert_eq!(set.remove(&target), model.remove(&target));
            } else {
                prop_assert_eq!(set.insert(target, Until(end)), model.insert(target, Until(end)));
            }
            prop_assert_eq!(set.get(&target), model.get(&target).copied());
            if position % 300 == 0 {
                earlier.push((set.clone(), model.clone()));
            }
        }
        prop_assert_eq!(set.len(), model.len());
        prop_assert_eq!(read(&set), model.clone());
        prop_assert_eq!(set.earliest(), model.values().min().copied());
        let due = Until(7);
        let ended: Vec<Target> = model.iter().filter(|it| *it.1 <= due).map(|it| *it.0).collect();
        prop_assert_eq!(set.ended(due), ended);
        for (copy, content) in earlier {
            prop_assert_eq!(read(&copy), content.clone(), "a copy does not change");
            let mut changed = content;
            for difference in copy.differences(&set) {
                let before = match difference.after {
                    Some(until) => changed.insert(difference.target, until),
                    None => changed.remove(&difference.target),
                };
                prop_assert_eq!(before, difference.before);
            }
            prop_assert_eq!(&changed, &model);
        }
        let whole: TargetSet = set.iter().collect();
        prop_assert_eq!(whole, set);
    }
}
