//! Several blocks on one address.

use super::*;

fn neighbour(target: &str, left: Option<i64>) -> Neighbour {
    Neighbour {
        key: "other/b".into(),
        standing: standing(target, here()),
        until: left.map(|left| now() + seconds(left)),
        reported: true,
    }
}

#[test]
fn of_two_blocks_on_one_address_the_longest_wins() {
    for (name, left, expected) in [
        ("the other is longer", Some(900), Some(900)),
        ("the other is shorter", Some(30), Some(600)),
        ("the other is without end", None, None),
    ] {
        let mut case = Case::new("192.0.2.7", "10m");
        case.neighbours = vec![neighbour("192.0.2.7", left)];
        assert_eq!(
            operations(&case.decide()),
            [ban("192.0.2.7", expected)],
            "{name}"
        );
    }
}

#[test]
fn lifting_one_of_two_blocks_asserts_what_the_other_has_left() {
    let mut case = Case::active("192.0.2.7", "10m", 601);
    case.neighbours = vec![
        neighbour("192.0.2.7", Some(900)),
        neighbour("192.0.2.7", Some(60)),
    ];
    let plan = case.decide();
    assert_eq!(operations(&plan), [ban("192.0.2.7", Some(900))]);
    let settled = settle(&plan);
    assert_eq!(phase(&settled), Phase::Expired);
    let notice = |settled: &Settled| settled.announcements[0].notice;
    assert_eq!(notice(&settled), None, "it is banned");
    case.neighbours.clear();
    assert_eq!(notice(&settle(&case.decide())), Some(Notice::Resolve));
    assert!(
        settled
            .status
            .unwrap()
            .message
            .unwrap()
            .contains("; 192.0.2.7 stays banned by other/b")
    );
}

#[test]
fn what_another_block_keeps_banned_is_not_resolved_whatever_ends_the_ban() {
    let active = |end: fn(&mut Case)| {
        let mut case = Case::active("192.0.2.7", "10m", 60);
        end(&mut case);
        case
    };
    let unsupported = || {
        let mut case = Case::new("2001:db8::7", "10m");
        case.place = Some(xdp());
        let plan = case.decide();
        case.apply(&plan, now());
        case.place = Some(here());
        case
    };
    for (name, mut case) in [
        (
            "deleted",
            active(|it| it.block.metadata.deletion_timestamp = Some(Time(now()))),
        ),
        ("unblocked", active(|it| it.block.spec.unblock = Some(true))),
        (
            "due",
            active(|it| it.block.spec.duration = Some("30s".into())),
        ),
        ("in shadow mode", active(|it| it.shadow = Some("feed"))),
        (
            "refused",
            active(|it| it.policy.allowlist = allowed("192.0.2.7")),
        ),
        ("rejected", unsupported()),
    ] {
        let announced = |case: &Case| {
            let settled = settle(&case.decide());
            assert!(matches!(settled.effect, Effect::Lifted(..)), "{name}");
            let [lifted] = &settled.announcements[..] else {
                panic!("{name}: {settled:?}");
            };
            let stays = lifted.note.ends_with(" stays banned by other/b");
            (stays, lifted.notice == Some(Notice::Resolve))
        };
        assert_eq!(announced(&case), (false, true), "{name}");
        let mut other = neighbour("192.0.2.7", Some(900));
        other.standing = case.decide().calls()[0].standing.clone();
        case.neighbours = vec![other];
        assert_eq!(announced(&case), (true, false), "{name}");
        // It is due itself, and reports its end.
        case.neighbours[0].until = Some(now());
        assert_eq!(announced(&case), (false, false), "{name}");
        // A channel knows addresses, not gateways.
        case.neighbours[0].until = None;
        case.neighbours[0].standing.place = there();
        assert_eq!(announced(&case), (false, false), "{name}");
        // A ban that was only begun may come to nothing, and is never reported then.
        case.neighbours[0].reported = false;
        assert_eq!(announced(&case), (false, true), "{name}");
    }
}

#[test]
fn a_ban_whose_gateway_is_withdrawn_is_resolved_though_nothing_is_lifted() {
    for end in [
        |it: &mut Case| it.block.metadata.deletion_timestamp = Some(Time(now())),
        |it: &mut Case| it.block.spec.unblock = Some(true),
        |it: &mut Case| it.block.spec.duration = Some("30s".into()),
        |it: &mut Case| it.shadow = Some("feed"),
        |it: &mut Case| it.policy.allowlist = allowed("192.0.2.7"),
    ] {
        let mut case = Case::active("192.0.2.7", "10m", 60);
        let mut intent: Intent = case.block.annotation(INTENT).unwrap().parse().unwrap();
        intent.withdrawn = true;
        case.annotate(INTENT, &intent.to_string());
        case.place = Some(there());
        end(&mut case);
        let plan = case.decide();
        assert!(operations(&plan).is_empty());
        let settled = case.apply(&plan, now());
        let notices: Vec<_> = settled.announcements.iter().map(|it| it.notice).collect();
        assert_eq!(notices, [Some(Notice::Resolve)]);
        if !case.block.is_deleting() {
            let again = settle(&case.decide());
            assert!(again.announcements.is_empty(), "{again:?}");
            assert!(case.status().unblocked_at.is_some());
        }
    }
}

#[test]
fn a_neighbour_that_is_due_itself_keeps_nothing() {
    for left in [0, -5] {
        let mut case = Case::active("192.0.2.7", "10m", 601);
        case.neighbours = vec![neighbour("192.0.2.7", Some(left))];
        let plan = case.decide();
        assert_eq!(operations(&plan), [unban("192.0.2.7")], "{left}");
        let message = settle(&plan).status.unwrap().message.unwrap();
        assert!(!message.contains("stays banned"), "{message}");
    }
}

#[test]
fn a_neighbour_that_only_overlaps_does_not_keep_an_address() {
    let mut case = Case::active("192.0.2.7", "10m", 601);
    case.neighbours = vec![neighbour("192.0.2.0/24", Some(900))];
    assert_eq!(
        operations(&case.decide()),
        [unban("192.0.2.7")],
        "or it leaks when the range is lifted"
    );
    let mut other = neighbour("192.0.2.7", Some(900));
    other.standing.place = there();
    case.neighbours = vec![other];
    assert_eq!(
        operations(&case.decide()),
        [unban("192.0.2.7")],
        "banned elsewhere is not banned here"
    );
}
