//! Where entries go, and how many lists a change touches.

use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn target(number: u32) -> Target {
    Target::host(Ipv4Addr::from(0x0B00_0000 + number * 97).into())
}

fn entries(numbers: impl IntoIterator<Item = u32>, duration: Duration) -> Entries {
    let entry = Entry {
        duration,
        reason: "".into(),
    };
    Entries::same(numbers.into_iter().map(target).collect(), entry)
}

fn at(text: &str) -> Moment {
    Moment {
        now: text.parse().unwrap(),
        interval: HOUR,
        longest: None,
    }
}

fn midnight() -> Moment {
    at("2026-01-01T00:00:00Z")
}

/// Carries the plan out.
fn put(lists: &mut Lists, plan: Plan) -> usize {
    let count = plan.writes.len() + plan.empty.len() + plan.deletes.len();
    lists.extend(plan.writes);
    for number in plan.empty.into_iter().chain(plan.deletes) {
        lists.remove(&number);
    }
    count
}

fn step(lists: &mut Lists, entries: &Entries, moment: &Moment) -> usize {
    let plan = plan(lists, entries, &Closed::default(), false, moment);
    put(lists, plan)
}

fn sizes(lists: &Lists) -> Vec<(u32, usize)> {
    let sizes = lists.iter().map(|(number, items)| (*number, items.len()));
    sizes.collect()
}

const DAY: Duration = Duration::from_secs(24 * 3600);

#[test]
fn lists_that_are_new_are_written_after_those_whose_bans_are_prolonged() {
    let mut lists = Lists::new();
    step(&mut lists, &entries(0..5_000, DAY), &midnight());
    let evening = at("2026-01-01T18:00:00Z");
    let more = entries(0..6_000, DAY);
    let plan = plan(&lists, &more, &Closed::default(), false, &evening);
    let numbers: Vec<u32> = plan.writes.iter().map(|write| write.0).collect();
    assert_eq!(numbers, [0, 1]);
}

#[test]
fn a_suspended_list_keeps_its_entries_and_gets_no_others() {
    let mut lists = Lists::new();
    step(&mut lists, &entries(0..10, DAY), &midnight());
    let closed = Closed {
        suspended: [0].into(),
        ..Closed::default()
    };
    let made = plan(&lists, &entries(0..12, DAY), &closed, false, &midnight());
    put(&mut lists, made);
    assert_eq!(sizes(&lists), [(0, 10), (1, 2)]);
    // It is not merged into the others, and what the source has no more leaves it.
    for number in 2..9 {
        lists.insert(number, Arc::clone(&lists[&1]));
    }
    let made = plan(&lists, &entries(5..12, DAY), &closed, false, &midnight());
    put(&mut lists, made);
    assert_eq!(sizes(&lists), [(0, 5), (1, 2)]);
}

#[test]
fn new_entries_touch_as_few_lists_as_have_room_and_unchanged_ones_none() {
    let mut lists = Lists::new();
    assert_eq!(
        step(&mut lists, &entries(0..12_000, DAY), &midnight()),
        3,
        "lists are filled"
    );
    assert_eq!(sizes(&lists), [(0, 5_000), (1, 5_000), (2, 2_000)]);
    assert_eq!(step(&mut lists, &entries(0..12_000, DAY), &midnight()), 0);
    assert_eq!(step(&mut lists, &entries(0..12_100, DAY), &midnight()), 1);
    // 100 leave the first list, and 100 others come: they take the room that was made.
    let other = (100..12_100).chain(20_000..20_100);
    assert_eq!(step(&mut lists, &entries(other, DAY), &midnight()), 1);
    assert_eq!(sizes(&lists), [(0, 5_000), (1, 5_000), (2, 2_100)]);
}

#[test]
fn a_number_that_another_client_took_is_left_out() {
    let closed = Closed {
        taken: [0, 2].into(),
        ..Closed::default()
    };
    let made = plan(
        &Lists::new(),
        &entries(0..6_000, DAY),
        &closed,
        false,
        &midnight(),
    );
    let numbers: Vec<u32> = made.writes.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 3]);
}

#[test]
fn lists_that_lost_all_entries_wait_for_no_write_and_those_whose_entries_moved_do() {
    let mut lists = Lists::new();
    step(&mut lists, &entries(0..20_000, DAY), &midnight());
    let emptied: BTreeSet<u32> = [0].into();
    let gone: BTreeSet<Target> = lists[&0].iter().map(|item| item.target).collect();
    let left = (0..20_000).filter(|number| !gone.contains(&target(*number)));
    let left = entries(left.collect::<Vec<_>>(), DAY);
    let made = plan(&lists, &left, &Closed::default(), false, &midnight());
    assert_eq!(made.empty.into_iter().collect::<BTreeSet<_>>(), emptied);
    assert_eq!((made.writes.len(), made.deletes.len()), (0, 0));
    // The same entries twice, as after a merge that was not finished.
    let copy = Arc::clone(&lists[&1]);
    lists.insert(9, copy);
    let made = plan(&lists, &left, &Closed::default(), false, &midnight());
    assert_eq!((made.empty, made.deletes), (vec![0], vec![9]));
}

#[test]
fn a_list_without_entries_is_deleted_and_sparse_lists_are_merged() {
    let mut lists = Lists::new();
    step(&mut lists, &entries(0..50_000, DAY), &midnight());
    assert_eq!(lists.len(), 10);
    // Each list keeps one entry of fifty.
    let few = || entries((0..50_000).step_by(50), DAY);
    let made = plan(&lists, &few(), &Closed::default(), false, &midnight());
    assert_eq!((made.writes.len(), made.deletes.len()), (1, 9));
    put(&mut lists, made);
    assert_eq!(lists.values().next().unwrap().len(), 1_000);
    // Half of the lists empty: no merge, because there may be more again tomorrow.
    let mut lists = Lists::new();
    step(&mut lists, &entries(0..20_000, DAY), &midnight());
    assert_eq!(step(&mut lists, &entries(0..10_000, DAY), &midnight()), 2);
    assert_eq!(lists.len(), 2);
}

#[test]
fn entries_that_are_held_stay_with_their_end_and_count_when_they_stand() {
    let mut lists = Lists::new();
    step(&mut lists, &entries(0..100, DAY), &midnight());
    let later = at("2026-01-01T20:00:00Z");
    let left = entries(50..100, DAY);
    let lost = gone(&lists, &left, later.now);
    assert_eq!((lost.targets.len(), lost.standing), (50, 100));
    let made = plan(&lists, &left, &Closed::default(), true, &later);
    put(&mut lists, made);
    let items = &lists[&0];
    assert_eq!(items.len(), 100);
    assert_eq!(later.left(items[0].until), 4 * 3600, "held");
    assert_eq!(later.left(items[99].until), 24 * 3600, "renewed");
    // Their end comes, and with it the end of the brake.
    let end = at("2026-01-02T00:00:01Z");
    assert_eq!(gone(&lists, &left, end.now).targets, []);
}

#[test]
fn ends_are_renewed_when_half_of_the_time_is_over_and_before_two_pulls_may_fail() {
    let until = |hours: i64| Until::new(Some(midnight().now + SignedDuration::from_hours(hours)));
    let moment = midnight();
    for (has, wants, due) in [
        (24, 24, false),
        (13, 24, false),
        (11, 24, true),
        (0, 24, true),
        (2, 2, false),
        (1, 2, true),
        // The source says an earlier end now.
        (24, 12, true),
    ] {
        assert_eq!(
            moment.is_due(until(has), until(wants)),
            due,
            "{has} h of {wants} h"
        );
    }
    // The shortest feed: a minute, pulled every 30 s.
    let moment = Moment {
        interval: Duration::from_secs(30),
        ..midnight()
    };
    let seconds = |count| Until::new(Some(moment.now + SignedDuration::from_secs(count)));
    assert!(moment.is_due(seconds(30), seconds(60)));
    assert!(!moment.is_due(seconds(58), seconds(60)));
    // A decision that ends soon is not written again and again.
    assert!(!moment.is_due(seconds(10), seconds(11)));
    assert!(moment.is_due(Until::NEVER, seconds(60)), "an edit");
}

#[test]
fn ended_entries_cost_no_write_until_they_are_half_of_their_list() {
    let of = |parts: &[(std::ops::Range<u32>, u64)]| {
        let mut each: BTreeMap<Target, Entry> = BTreeMap::new();
        for (numbers, minutes) in parts {
            for number in numbers.clone() {
                let duration = Duration::from_secs(minutes * 60);
                let reason = "".into();
                each.insert(target(number), Entry { duration, reason });
            }
        }
        Entries::from(each)
    };
    let mut lists = Lists::new();
    let all = of(&[(0..40, 60), (40..60, 120), (60..100, 300)]);
    step(&mut lists, &all, &midnight());
    let later = at("2026-01-01T01:30:00Z");
    let most = of(&[(40..60, 30), (60..100, 210)]);
    assert_eq!(step(&mut lists, &most, &later), 0, "40 of 100 ended");
    let last = at("2026-01-01T02:30:00Z");
    assert_eq!(step(&mut lists, &of(&[(60..100, 150)]), &last), 1);
    assert_eq!(sizes(&lists), [(0, 40)]);
    let over = at("2026-01-01T06:00:00Z");
    assert_eq!(step(&mut lists, &Entries::default(), &over), 1);
    assert!(lists.is_empty());
}

#[test]
fn an_end_keeps_a_margin_to_the_longest_ban() {
    let moment = Moment {
        longest: Some(HOUR),
        ..midnight()
    };
    let day = Entry {
        duration: DAY,
        reason: "".into(),
    };
    assert_eq!(moment.left(moment.end(&day)), 3600 - 60);
    let forever = Entry {
        duration: Duration::MAX,
        ..day
    };
    assert!(midnight().left(midnight().end(&forever)) > 365 * 24 * 3600);
}

#[test]
fn a_million_entries_are_two_hundred_lists_and_a_small_change_writes_few() {
    let mut lists = Lists::new();
    assert_eq!(
        step(&mut lists, &entries(0..1_000_000, DAY), &midnight()),
        200
    );
    // 100 leave from 100 places, 100 come: the lists that lose entries take the new ones.
    let leave = |number: &u32| number % 10_000 != 7;
    let after = (0..1_000_000).filter(leave).chain(1_000_000..1_000_100);
    assert_eq!(step(&mut lists, &entries(after, DAY), &midnight()), 100);
    let all = (0..1_000_000).filter(leave).chain(1_000_000..1_000_200);
    assert_eq!(step(&mut lists, &entries(all, DAY), &midnight()), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn after_each_pull_every_entry_is_in_exactly_one_list(
        pulls in prop::collection::vec(prop::collection::btree_set(0_u32..12_000, 0..9_000), 1..6)
    ) {
        let mut lists = Lists::new();
        for pull in pulls {
            let wanted = entries(pull, DAY);
            step(&mut lists, &wanted, &midnight());
            let mut has: Vec<Target> = lists.values().flat_map(|it| it.iter()).map(|it| it.target).collect();
            has.sort_unstable();
            prop_assert_eq!(&has[..], wanted.targets());
            prop_assert!(lists.values().all(|it| (1..=MOST_ENTRIES).contains(&it.len())));
            prop_assert_eq!(step(&mut lists, &wanted, &midnight()), 0, "stable");
        }
    }
}
