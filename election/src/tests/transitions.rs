//! The transition table of the state machine: what each event leads to in each role.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use reeve_clock::Random;

use crate::Options;
use crate::machine::{Action, Event, Failure, FailureKind, Machine, Now, Role};
use crate::record::Record;

/// A cell is the role after the event of its column in the role of its row; `.` is the same role.
///
/// `timer` comes when it is due. `held` and `free` are a lease of another and a lease without a holder.
const TABLE: &str = "
| role              | contend   | stop      | timer     | shown held | shown free | deleted  | watch ended | read held | read none | read failed | written | write failed | landed |
| Idle              | Acquiring | .         | .         | .          | .          | .        | .           | .         | .         | .           | .       | .            | .      |
| Standby           | .         | Idle      | Acquiring | .          | Acquiring  | .        | .           | .         | .         | .           | .       | .            | .      |
| Acquiring read    | .         | Idle      | .         | .          | .          | .        | .           | Standby   | .         | Standby     | .       | Standby      | .      |
| Acquiring write   | .         | Releasing | .         | .          | .          | .        | .           | Standby   | .         | Standby     | Leading | Standby      | .      |
| Leading           | .         | Releasing | Renewing  | Renewing   | Renewing   | Renewing | .           | .         | .         | .           | .       | .            | .      |
| Renewing          | .         | Releasing | Lost      | .          | .          | .        | .           | Lost      | .         | Leading     | Leading | .            | .      |
| Releasing landing | Acquiring | .         | Idle      | .          | .          | .        | .           | Idle      | Idle      | .           | Idle    | .            | .      |
| Releasing read    | Acquiring | .         | Idle      | .          | .          | .        | .           | Idle      | Idle      | .           | Idle    | .            | .      |
| Lost              | Acquiring | Releasing | .         | .          | .          | .        | .           | .         | .         | .           | .       | .            | .      |
";

fn now(seconds: u64) -> Now {
    Now {
        boot: Duration::from_secs(1000 + seconds),
        date: "2026-01-01T00:00:00Z".parse().unwrap(),
    }
}

/// A lease of `holder`, or of none, as the server stores it.
fn lease(holder: &str, version: &str) -> Box<Lease> {
    let mut lease = Lease::default();
    let record = Record {
        holder: holder.to_owned(),
        duration: Duration::from_secs(15),
        ..Record::default()
    };
    record.apply(&mut lease);
    lease.metadata.resource_version = Some(version.to_owned());
    Box::new(lease)
}

/// A machine in a role, reached by the shortest way.
fn machine(role: &str) -> Machine {
    let mut machine = Machine::new(
        Options::new("ns", "lock").identity("one"),
        Random::seeded(1),
    );
    let stop = |left| Event::Stop {
        limit: Duration::from_secs(10),
        lands_in: Some(Duration::from_secs(left)),
    };
    let taken = [
        Event::Contend,
        Event::Read(Ok(None)),
        Event::Written(Ok(lease("one", "1"))),
    ];
    let (events, then): (&[Event], Option<(u64, Event)>) = match role {
        "Idle" => (&[], None),
        "Standby" => (
            &taken[..1],
            Some((0, Event::Read(Ok(Some(lease("two", "1")))))),
        ),
        "Acquiring read" => (&taken[..1], None),
        "Acquiring write" => (&taken[..2], None),
        "Leading" => (&taken, None),
        "Renewing" => (&taken, Some((2, Event::Timer))),
        "Releasing landing" => (&taken, Some((0, stop(3)))),
        "Releasing read" => (&taken, Some((0, stop(0)))),
        "Lost" => (&taken, Some((10, Event::Timer))),
        other => panic!("no role {other}"),
    };
    for event in events {
        machine.step(event.clone(), now(0));
    }
    if let Some((seconds, event)) = then {
        machine.step(event, now(seconds));
    }
    let reached = name(&machine);
    assert!(role.starts_with(reached), "{reached} in place of {role}");
    machine
}

fn event(name: &str) -> Event {
    let failure = Failure {
        kind: FailureKind::Conflict,
        cause: "another wrote it".to_owned(),
    };
    match name {
        "contend" => Event::Contend,
        "stop" => Event::Stop {
            limit: Duration::from_secs(10),
            lands_in: Some(Duration::ZERO),
        },
        "timer" => Event::Timer,
        "shown held" => Event::Shown(lease("three", "9")),
        "shown free" => Event::Shown(lease("", "9")),
        "deleted" => Event::Deleted,
        "watch ended" => Event::WatchEnded(None),
        "read held" => Event::Read(Ok(Some(lease("three", "9")))),
        "read none" => Event::Read(Ok(None)),
        "read failed" => Event::Read(Err(failure)),
        "written" => Event::Written(Ok(lease("one", "9"))),
        "write failed" => Event::Written(Err(failure)),
        "landed" => Event::Landed,
        other => panic!("no event {other}"),
    }
}

fn name(machine: &Machine) -> &'static str {
    match machine.role() {
        Role::Idle => "Idle",
        Role::Standby(..) => "Standby",
        Role::Acquiring(..) => "Acquiring",
        Role::Leading(..) => "Leading",
        Role::Renewing(..) => "Renewing",
        Role::Releasing(..) => "Releasing",
        Role::Lost(_) => "Lost",
    }
}

#[test]
fn each_event_leads_from_each_role_to_the_role_in_the_table() {
    let mut rows = TABLE.trim().lines().map(|line| {
        let cells = line.trim_matches('|').split('|');
        cells.map(str::trim).collect::<Vec<_>>()
    });
    let events = rows.next().unwrap();
    for row in rows {
        for (column, expected) in row.iter().enumerate().skip(1) {
            let mut machine = machine(row[0]);
            let at = match events[column] {
                "timer" => machine.wake_at(),
                _ => None,
            };
            // One second after the last step: before anything is due.
            let last = if row[0] == "Renewing" { 3 } else { 1 };
            let mut moment = now(last);
            moment.boot = at.unwrap_or(moment.boot);
            machine.step(event(events[column]), moment);
            let expected = match *expected {
                "." => row[0].split(' ').next().unwrap(),
                other => other,
            };
            assert_eq!(name(&machine), expected, "{}: {}", row[0], events[column]);
        }
    }
}

#[test]
fn a_timer_that_comes_early_changes_nothing() {
    for role in ["Standby", "Leading", "Renewing", "Releasing read"] {
        let mut machine = machine(role);
        let at = machine.wake_at().unwrap();
        let early = Now {
            boot: at - Duration::from_millis(1),
            ..now(0)
        };
        assert!(machine.step(Event::Timer, early).is_empty(), "{role}");
        assert!(role.starts_with(name(&machine)) && machine.wake_at() == Some(at));
    }
}

#[test]
fn the_fence_is_closed_before_a_loss_is_reported() {
    let mut machine = machine("Renewing");
    let actions = machine.step(Event::Timer, now(10));
    assert!(
        matches!(
            actions[..],
            [Action::CloseFence, Action::Abandon, Action::Report(_)]
        ),
        "{actions:?}"
    );
}
