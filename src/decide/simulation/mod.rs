//! Random histories against a small model of API server, gateway and shell.
//!
//! The gateway enforces addresses, not entries: lifting a range opens every address in it, whichever other
//! block wants it banned. That is harsher than the real ones, and holds only if what remains is asserted again.
//! Faults are injected at every step: a call may fail before or after it took effect, and the operator may
//! be killed before or after every write. A gateway may die for good.
//!
//! [`shell`] performs the steps of runs between the API server and the gateways of [`servers`], [`happen`] does what users, alerts and administrators do, [`expect`] has what
//! must come of it, and [`audit`] what holds in each run. Another client may change or delete an object between two
//! steps, a gateway may be slow, and the fence may be closed.

mod audit;
mod expect;
mod happen;
mod servers;
mod shell;

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::api::{
    INTENT, IPBlock, IPBlockSpec, IPBlockStatus, Intent, Phase, Place, TRIGGER_ANNOTATION,
    condition,
};
use crate::guard::{Limit, Settings};
use crate::random_cases::cases;
use crate::target::Target;
use audit::Audit;
use expect::Expected;
use shell::Simulation;

const RESYNC: Duration = Duration::from_secs(300);
const RETENTION: Duration = Duration::from_secs(100);
/// Longer than the retention, which has to wait for it.
const GRACE: Duration = Duration::from_secs(250);
/// How long until what failed at a dead gateway is tried again.
const RETRY: Duration = Duration::from_secs(60);
/// The longest requested ban, in seconds.
const LONGEST: u64 = 400;

const TARGETS: [&str; 6] = [
    "192.0.2.1",
    "192.0.2.2",
    "192.0.2.0/30",
    "192.0.2.0/28",
    "192.0.2.9",
    "192.0.2.8/30",
];

/// Blocks with names of their own, which come before those that alerts make, one for each target.
const NAMED: usize = 4;

/// The last of them never dies.
const GATEWAYS: [&str; 3] = ["a", "b", "c"];

fn target(number: usize) -> Target {
    TARGETS[number].parse().unwrap()
}

fn gateway(number: usize) -> Place {
    Place::new("dry-run", GATEWAYS[number])
}

/// The key of a block, by its number.
fn key(block: usize) -> String {
    match block.checked_sub(NAMED) {
        None => format!("default/{block}"),
        Some(number) => format!("default/{}", target(number).object_name()),
    }
}

/// One thing that happens.
#[derive(Clone, Debug)]
enum Happening {
    Create {
        block: usize,
        target: usize,
        duration: Option<u64>,
        ours: bool,
    },
    CreateOriginals {
        block: usize,
        target: usize,
        duration: u64,
        age: u64,
        failed: bool,
    },
    Alert {
        target: usize,
        duration: u64,
    },
    Delete(usize),
    Unblock(usize),
    Trigger(usize),
    TriggerByAnnotation(usize, u8),
    Duration(usize, Option<u64>),
    BreakDuration(usize),
    Relabel(usize),
    Allowlist(Option<usize>),
    Move(usize),
    Unconfigure,
    Die(usize),
    Pass(u64),
    GatewayForgets,
    Kill,
}

/// A fault of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    FailsBefore,
    FailsAfter,
    KilledBefore,
    KilledAfter,
    /// Another client writes the object before the operator does.
    Overtaken(Overtaking),
    /// The fence is closed when it is checked.
    Fenced,
    /// The gateway does not answer for a second.
    Slow,
}

/// A write of another client between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overtaking {
    /// A field that nothing follows from.
    By,
    Duration(Option<u64>),
    Deletion,
}

fn happening() -> impl Strategy<Value = Happening> {
    let named = 0..NAMED;
    let block = prop_oneof![0..NAMED, NAMED..NAMED + TARGETS.len()];
    let target = 0..TARGETS.len();
    let duration = prop_oneof![Just(None), (5..LONGEST).prop_map(Some)];
    prop_oneof![
        6 => (named.clone(), target.clone(), duration.clone(), any::<bool>())
            .prop_map(|(block, target, duration, ours)| Happening::Create { block, target, duration, ours }),
        1 => (named, target.clone(), 5..LONGEST, 0..LONGEST, any::<bool>())
            .prop_map(|(block, target, duration, age, failed)| Happening::CreateOriginals { block, target, duration, age, failed }),
        6 => (target.clone(), 5..LONGEST)
            .prop_map(|(target, duration)| Happening::Alert { target, duration }),
        2 => block.clone().prop_map(Happening::Delete),
        2 => block.clone().prop_map(Happening::Unblock),
        2 => block.clone().prop_map(Happening::Trigger),
        1 => (block.clone(), 0u8..3).prop_map(|(block, value)| Happening::TriggerByAnnotation(block, value)),
        2 => (block.clone(), duration).prop_map(|(block, duration)| Happening::Duration(block, duration)),
        1 => block.clone().prop_map(Happening::BreakDuration),
        1 => block.prop_map(Happening::Relabel),
        1 => proptest::option::of(target).prop_map(Happening::Allowlist),
        2 => (0..GATEWAYS.len()).prop_map(Happening::Move),
        1 => (0..GATEWAYS.len() - 1).prop_map(Happening::Die),
        1 => Just(Happening::Unconfigure),
        4 => (0u64..90).prop_map(Happening::Pass),
        2 => (90..2 * LONGEST).prop_map(Happening::Pass),
        1 => Just(Happening::GatewayForgets),
        1 => Just(Happening::Kill),
    ]
}

fn overtaking() -> impl Strategy<Value = Overtaking> {
    prop_oneof![
        2 => Just(Overtaking::By),
        2 => proptest::option::of(5..LONGEST).prop_map(Overtaking::Duration),
        1 => Just(Overtaking::Deletion),
    ]
}

fn faults() -> impl Strategy<Value = Vec<Fault>> {
    proptest::collection::vec(
        prop_oneof![
            6 => Just(Fault::None),
            1 => Just(Fault::FailsBefore),
            1 => Just(Fault::FailsAfter),
            1 => Just(Fault::KilledBefore),
            1 => Just(Fault::KilledAfter),
            1 => overtaking().prop_map(Fault::Overtaken),
            1 => Just(Fault::Fenced),
            1 => Just(Fault::Slow),
        ],
        0..60,
    )
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn at_rest_the_gateway_enforces_the_union_of_active_blocks_and_nothing_after_all_are_gone(
        history in proptest::collection::vec(happening(), 1..30),
        faults in faults(),
    ) {
        let mut simulation = Simulation::new(faults);
        for happening in history {
            simulation.happen(happening);
        }
        simulation.mend();
        // Twice the interval: lost bans, and those that an earlier gateway kept, are repaired. A ban at a dead gateway
        // holds up its block for ten minutes more.
        let patience = if simulation.dead.is_empty() { 0 } else { 600 + LONGEST + 60 };
        simulation.pass(2 * RESYNC.as_secs() + 10 + patience);
        simulation.check();
        for block in 0..NAMED + TARGETS.len() {
            simulation.happen(Happening::Delete(block));
        }
        simulation.pass(10 + patience);
        assert!(simulation.objects.is_empty(), "still held: {:?}", simulation.objects.keys());
        for (place, enforced) in simulation.alive() {
            assert!(enforced.is_empty(), "leaked at {place}: {enforced:?}");
        }
    }
}

proptest! {
    #![proptest_config(cases(300))]

    /// The caps themselves are checked at each new ban.
    #[test]
    fn caps_hold_back_bans_and_never_a_lift(
        history in proptest::collection::vec(happening(), 1..30),
        faults in faults(),
        active in 1usize..4,
        per_minute in 1usize..4,
    ) {
        let mut simulation = Simulation::new(faults);
        let mut caps = Settings::default();
        caps.limits.all = Limit { active: Some(active), per_minute: Some(per_minute) };
        simulation.caps = Some(caps);
        for happening in history {
            simulation.happen(happening);
        }
        simulation.mend();
        let patience = if simulation.dead.is_empty() { 0 } else { 600 + LONGEST + 60 };
        simulation.pass(2 * RESYNC.as_secs() + 10 + patience);
        // No ban is overdue, and the gateways enforce exactly the active blocks.
        simulation.check();
        for block in 0..NAMED + TARGETS.len() {
            simulation.happen(Happening::Delete(block));
        }
        simulation.pass(10 + patience);
        assert!(simulation.objects.is_empty(), "still held: {:?}", simulation.objects.keys());
        for (place, enforced) in simulation.alive() {
            assert!(enforced.is_empty(), "leaked at {place}: {enforced:?}");
        }
    }
}

/// Found at random: the record of an admitted ban fails, and the gateway changes before the next try.
#[test]
fn no_ban_at_a_former_gateway_is_left_to_a_block_whose_ban_is_not_recorded() {
    let mut faults = vec![
        Fault::FailsAfter,
        Fault::Overtaken(Overtaking::By),
        Fault::Fenced,
        Fault::None,
        Fault::None,
        Fault::FailsBefore,
    ];
    faults.extend([
        Fault::None,
        Fault::None,
        Fault::None,
        Fault::None,
        Fault::KilledAfter,
    ]);
    let mut simulation = Simulation::new(faults);
    let mut caps = Settings::default();
    caps.limits.all = Limit {
        active: Some(2),
        per_minute: Some(1),
    };
    simulation.caps = Some(caps);
    let create = |block| Happening::Create {
        block,
        target: 2,
        duration: None,
        ours: false,
    };
    for happening in [
        Happening::Move(1),
        create(0),
        Happening::Pass(603),
        create(1),
        Happening::Move(0),
    ] {
        simulation.happen(happening);
    }
    simulation.mend();
    simulation.pass(2 * RESYNC.as_secs() + 10);
    simulation.check();
}

/// Found at random: the answer to the lift of a range is lost, and an address in it is banned by another block.
#[test]
fn a_lift_whose_answer_is_lost_leaves_no_hole_in_an_overlapping_ban() {
    let mut faults = vec![Fault::None; 9];
    faults.push(Fault::FailsAfter);
    let mut simulation = Simulation::new(faults);
    for happening in [
        Happening::Create {
            block: 0,
            target: 5,
            duration: Some(5),
            ours: true,
        },
        Happening::Kill,
        Happening::Die(0),
        Happening::Pass(5),
        Happening::Die(0),
        Happening::BreakDuration(0),
        Happening::Alert {
            target: 3,
            duration: 62,
        },
        Happening::Move(1),
        Happening::Pass(60),
    ] {
        simulation.happen(happening);
    }
    simulation.mend();
    simulation.pass(2 * RESYNC.as_secs() + 10 + 600 + LONGEST + 60);
    simulation.check();
}

#[test]
fn an_alert_for_longer_while_the_gateway_is_dead_does_not_move_the_time_in_which_the_ban_is_made() {
    let mut simulation = Simulation::new(Vec::new());
    for happening in [
        Happening::Die(0),
        Happening::Alert {
            target: 0,
            duration: 107,
        },
        Happening::Pass(32),
        Happening::Alert {
            target: 0,
            duration: 321,
        },
        Happening::Pass(289),
    ] {
        simulation.happen(happening);
    }
    simulation.mend();
    simulation.settle();
    let block = simulation.objects.values().next().unwrap();
    let ready = block.status.as_ref().unwrap().condition(condition::READY);
    assert_eq!(
        ready.unwrap().reason,
        "Fault",
        "the lift at the dead gateway"
    );
}
