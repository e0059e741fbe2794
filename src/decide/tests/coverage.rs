//! Claims, their neighbours and their alarms.

use ipnet::IpNet;
use proptest::prelude::*;
use tokio::time::Instant;

use super::*;
use crate::target::Target;

fn standing(target: Target) -> Standing {
    let place = Place::new("dry-run", "");
    Standing { target, place }
}

fn any_target() -> impl Strategy<Value = Target> {
    // A small universe, so that overlaps are frequent.
    (any::<bool>(), 0u128..64, 120u8..=128).prop_map(|(v4, bits, length)| {
        let net = if v4 {
            IpNet::new(
                std::net::IpAddr::V4((bits as u32 + 0x0a00_0000).into()),
                length - 96,
            )
        } else {
            IpNet::new(
                std::net::IpAddr::V6((bits + (0x2001u128 << 112)).into()),
                length,
            )
        };
        Target::range(net.unwrap())
    })
}

proptest! {
    #[test]
    fn neighbours_are_exactly_the_overlapping_claims(
        claims in proptest::collection::vec((0usize..12, any_target(), any::<bool>()), 1..40),
        asked in any_target(),
    ) {
        let mut coverage = Coverage::default();
        let mut model: std::collections::BTreeMap<String, Target> = Default::default();
        for (block, target, keep) in claims {
            let key = format!("ns/{block}");
            if keep {
                coverage.set(&key, standing(target), None);
                model.insert(key, target);
            } else {
                coverage.remove(&key);
                model.remove(&key);
            }
        }
        let found: Vec<String> = coverage
            .neighbours(&[asked], "ns/3")
            .into_iter()
            .map(|neighbour| neighbour.key)
            .collect();
        let mut expected: Vec<(&String, &Target)> = model
            .iter()
            .filter(|(key, target)| key.as_str() != "ns/3" && target.overlaps(&asked))
            .collect();
        // Ranges around the target, the widest first, then what lies inside, by address; equal ones by the name of the block.
        let place = |target: &Target| {
            let (net, length) = (target.net(), target.net().prefix_len());
            match length < asked.net().prefix_len() {
                true => (0, length, None, length),
                false => (1, 0, Some(net.network()), length),
            }
        };
        expected.sort_by_key(|(key, target)| (place(target), *key));
        let expected: Vec<String> = expected.into_iter().map(|(key, _)| key.clone()).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(coverage.len(), model.len());
    }
}

#[test]
fn a_leader_begins_with_the_claims_that_it_followed_and_drops_those_of_no_block() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let target = |last: u8| Target::host(std::net::Ipv4Addr::new(192, 0, 2, last).into());
    let followed = || {
        let mut followed = Coverage::default();
        for last in 1..4u8 {
            followed.set(&format!("ns/{last}"), standing(target(last)), Some(at(10)));
        }
        followed
    };
    let mut coverage = Coverage::default();
    let (_, before) = coverage.next_due();
    coverage.adopt(followed());
    // What waits for the first end is notified of the new one.
    let (first, changed) = coverage.next_due();
    assert_eq!(first, Some(at(10)));
    assert!(std::sync::Arc::ptr_eq(&before, &changed));
    // The first block is the same, the second one changed, and the third one is gone.
    coverage.recall("ns/1", standing(target(1)), Some(at(10)));
    coverage.attribute("ns/1", "feed");
    coverage.recall("ns/2", standing(target(9)), Some(at(20)));
    coverage.drop_unenforced();
    assert_eq!(coverage.len(), 2);
    assert!(coverage.neighbours(&[target(2), target(3)], "").is_empty());
    let scopes = [Scope::Namespace("ns".into()), Scope::Source("feed".into())];
    assert_eq!(scopes.map(|scope| coverage.count(&scope)), [2, 1]);
    assert_eq!(coverage.take_due(at(30)).len(), 2);
    // One with claims of its own keeps them.
    coverage.adopt(followed());
    assert_eq!(coverage.len(), 2);
}

#[test]
fn a_claim_is_reported_as_the_status_of_its_block_shows_it() {
    let mut coverage = Coverage::default();
    let reported = |coverage: &Coverage| {
        let all: Target = "0.0.0.0/0".parse().unwrap();
        let neighbours = coverage.neighbours(&[all], "");
        neighbours.iter().any(|neighbour| neighbour.reported)
    };
    let mut begin = |case: &Case| {
        let plan = case.decide();
        let mut run = plan.0.clone();
        for _ in 0..2 {
            if let Step::Claim(change) = run.step() {
                coverage.apply("ns/a", change, Instant::now());
            }
            let next: Result<(), ()> = run.advance(Ok(Outcome::Done), now());
            next.unwrap();
        }
        reported(&coverage)
    };
    let new = Case::new("192.0.2.7", "10m");
    assert!(!begin(&new));
    let mut active = Case::active("192.0.2.7", "10m", 60);
    active.place = Some(there());
    assert!(begin(&active), "the same ban at another gateway");
    active.block.spec.ip = "192.0.2.8".into();
    assert!(!begin(&active), "another address");
    coverage.report("ns/a", true);
    assert!(reported(&coverage));
    coverage.report("ns/a", false);
    assert!(!reported(&coverage));
    coverage.recall("ns/a", standing("192.0.2.8".parse().unwrap()), None);
    assert!(reported(&coverage), "only an active block is recalled");
}

#[test]
fn ends_are_due_once_in_their_order_and_move_with_their_claims() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let mut coverage = Coverage::default();
    let target = standing("192.0.2.7".parse().unwrap());
    for (key, second) in [("a/late", 30), ("a/soon", 10), ("a/moved", 20)] {
        coverage.set(key, target.clone(), Some(at(second)));
    }
    coverage.set("a/endless", target.clone(), None);
    coverage.set("a/moved", target.clone(), Some(at(40)));
    coverage.set("a/gone", target.clone(), Some(at(5)));
    coverage.remove("a/gone");
    assert_eq!(coverage.next_due().0, Some(at(10)));
    assert!(coverage.take_due(at(9)).is_empty());
    assert_eq!(
        coverage.take_due(at(30)),
        ["a/soon".into(), "a/late".into()]
    );
    assert!(coverage.take_due(at(30)).is_empty(), "once");
    coverage.set("a/soon", target, Some(at(10)));
    assert_eq!(coverage.next_due().0, Some(at(40)), "no new end");
    coverage.rearm();
    assert_eq!(coverage.take_due(at(40)).len(), 3, "the clock was set");
}

#[tokio::test(start_paused = true)]
async fn a_claim_to_recheck_has_no_assertion() {
    let mut coverage = Coverage::default();
    let (range, inside) = (
        "192.0.2.0/24".parse().unwrap(),
        "192.0.2.7".parse().unwrap(),
    );
    coverage.set("a/range", standing(range), None);
    coverage.set("a/inside", standing(inside), None);
    coverage.asserted("a/range", Instant::now());
    coverage.set("a/range", standing(range), Some(Timestamp::MAX));
    assert!(
        coverage.claim("a/range").unwrap().asserted.is_some(),
        "a new end is no new ban"
    );
    assert_eq!(coverage.recheck(&inside, "a/inside"), ["a/range".into()]);
    assert!(coverage.claim("a/range").unwrap().asserted.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_claim_to_recheck_is_returned_once_until_it_is_asserted() {
    let mut coverage = Coverage::default();
    let inside = "192.0.2.7".parse().unwrap();
    coverage.set("a/range", standing("192.0.2.0/24".parse().unwrap()), None);
    coverage.set("a/inside", standing(inside), None);
    let named = ["a/range".into()];
    assert_eq!(
        coverage.recheck(&inside, "a/inside"),
        named,
        "of a new leader"
    );
    assert!(coverage.recheck(&inside, "a/inside").is_empty());
    coverage.asserted("a/range", Instant::now());
    assert_eq!(coverage.recheck(&inside, "a/inside"), named);
    // A lift that failed concerns those at its gateway.
    coverage.asserted("a/range", Instant::now());
    let mut lifted = standing(inside);
    lifted.place.endpoint = "former".into();
    assert!(coverage.recheck_at(&lifted, "a/inside").is_empty());
    assert_eq!(coverage.recheck_at(&standing(inside), "a/inside"), named);
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_lift_began_is_not_asserted() {
    let mut coverage = Coverage::default();
    coverage.set("a/b", standing("192.0.2.7".parse().unwrap()), None);
    coverage.asserted("a/b", Instant::now());
    coverage.lifting("a/b");
    coverage.lifting("a/unknown");
    let claim = coverage.claim("a/b").unwrap();
    assert!(claim.asserted.is_none() && claim.enforced);
}

#[test]
fn a_claim_with_the_number_of_a_removed_one_has_its_own_end_and_target() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let target = |last: u8| Target::host(std::net::Ipv4Addr::new(192, 0, 2, last).into());
    let mut coverage = Coverage::default();
    coverage.set("ns/a", standing(target(1)), Some(at(10)));
    coverage.remove("ns/a");
    coverage.set("ns/b", standing(target(2)), Some(at(20)));
    assert_eq!(coverage.take_due(at(10)), []);
    assert_eq!(coverage.neighbours(&[target(1)], ""), []);
    assert_eq!(coverage.take_due(at(20)), ["ns/b".into()]);
    // A popped alarm, too.
    coverage.remove("ns/b");
    coverage.set("ns/c", standing(target(3)), Some(at(40)));
    coverage.rearm();
    assert_eq!(coverage.take_due(at(30)), []);
    assert_eq!(coverage.take_due(at(40)), ["ns/c".into()]);
}
