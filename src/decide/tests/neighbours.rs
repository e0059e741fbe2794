//! Several blocks on one address.

use super::*;

fn neighbour(target: &str, left: Option<i64>) -> Neighbour {
    Neighbour {
        key: "other/b".into(),
        standing: standing(target, here()),
        until: left.map(|left| now() + seconds(left)),
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
            .contains("stays banned by other/b")
    );
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
