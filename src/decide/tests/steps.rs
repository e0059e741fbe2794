//! The order of the steps, and what follows when one does not succeed.

use super::*;
use crate::decide::run::DUE_FIRST;
use reeve_workqueue::LOW_PRIORITY;

/// The names of steps, for comparisons.
fn names(steps: &[Step]) -> Vec<&'static str> {
    steps.iter().map(name).collect()
}

fn name(step: &Step) -> &'static str {
    match step {
        Step::Delete => "delete",
        Step::RecordIntent(_) => "intent",
        Step::Claim(ClaimChange::Begin { .. }) => "claim",
        Step::Claim(ClaimChange::Confirm { .. }) => "confirm",
        Step::Claim(ClaimChange::Lift) => "lift",
        Step::Claim(ClaimChange::Remove) => "unclaim",
        Step::CheckFence => "fence",
        Step::Call(call) => match call.operation {
            Operation::Ban(_) => "ban",
            Operation::Unban => "unban",
        },
        Step::Await(_) => "await",
        Step::ShowProgress(_) => "progress",
        Step::Recheck(_) | Step::RecheckAt(_) => "recheck",
        Step::WriteStatus(_) => "status",
        Step::Read => "read",
        Step::Report(_) => "report",
        Step::Finish(_) => "finish",
        Step::End(_) => "end",
    }
}

fn all_succeed(plan: &Plan) -> Vec<Step> {
    plan.perform(now(), |_| Outcome::Done)
}

/// A run that is performed by hand.
struct Driven(Run);

impl Driven {
    fn of(case: &Case) -> Self {
        Self(case.decide().0)
    }

    /// Performs every step up to the one named `until`, successfully.
    fn up_to(mut self, until: &str) -> Self {
        while name(self.0.step()) != until {
            let outcome = match self.0.step() {
                Step::RecordIntent(_) | Step::WriteStatus(_) | Step::Finish(_) | Step::Read => {
                    Outcome::Object(Arc::clone(self.0.block()))
                }
                Step::End(_) => panic!("no step {until}"),
                _ => Outcome::Done,
            };
            self.answer(outcome);
        }
        self
    }

    /// The name of the step after `outcome`.
    fn answer(&mut self, outcome: Outcome) -> &'static str {
        self.0.advance(Ok::<_, ()>(outcome), now()).unwrap();
        name(self.0.step())
    }

    fn fails(&mut self) -> Result<&'static str, &'static str> {
        self.0.advance(Err("broken"), now())?;
        Ok(name(self.0.step()))
    }

    fn wake(&self) -> Wake {
        match self.0.step() {
            Step::End(wake) => *wake,
            step => panic!("not at its end: {step:?}"),
        }
    }
}

const AGAIN: Wake = Wake::Retry {
    priority: None,
    at_latest: None,
};

#[test]
fn the_intent_is_recorded_before_the_gateway_is_called_and_the_status_follows_the_answer() {
    let steps = all_succeed(&Case::new("192.0.2.7", "10m").decide());
    let expected = [
        "intent", "claim", "fence", "ban", "confirm", "status", "report", "end",
    ];
    assert_eq!(names(&steps), expected);
}

#[test]
fn a_lift_by_hand_is_in_the_status_and_reported_before_its_flag_is_set_back() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.block.spec.unblock = Some(true);
    let steps = all_succeed(&case.decide());
    let expected = [
        "lift", "fence", "unban", "recheck", "unclaim", "status", "report", "finish", "end",
    ];
    assert_eq!(names(&steps), expected);
}

#[test]
fn a_deleted_block_keeps_its_finalizer_until_its_ban_is_lifted() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.block.metadata.deletion_timestamp = Some(Time(now()));
    let steps = all_succeed(&case.decide());
    let expected = [
        "lift", "fence", "unban", "recheck", "unclaim", "finish", "report", "end",
    ];
    assert_eq!(names(&steps), expected);
}

#[test]
fn the_fence_is_checked_before_each_call() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.place = Some(there());
    let steps = names(&all_succeed(&case.decide()));
    let calls = steps
        .windows(2)
        .filter(|pair| matches!(pair[1], "ban" | "unban"));
    assert_eq!(
        calls.collect::<Vec<_>>(),
        [["fence", "ban"], ["fence", "unban"]]
    );
}

#[test]
fn no_gateway_is_called_after_an_intent_that_conflicts_is_gone_or_fails() {
    for (outcome, wake) in [(Outcome::Conflict, AGAIN), (Outcome::Gone, Wake::OnChange)] {
        let mut run = Driven::of(&Case::new("192.0.2.7", "10m"));
        assert_eq!(run.answer(outcome), "end");
        assert_eq!(run.wake(), wake);
    }
    let mut run = Driven::of(&Case::new("192.0.2.7", "10m"));
    assert_eq!(run.fails(), Err("broken"));
    let mut run = Driven::of(&Case::new("192.0.2.7", "10m")).up_to("fence");
    assert_eq!(run.fails(), Err("broken"), "another replica may lead");
}

#[test]
fn a_required_call_that_fails_ends_a_ban_and_not_the_other_lifts() {
    let mut edited = Case::active("192.0.2.7", "10m", 60);
    edited.block.spec.ip = "192.0.2.8".into();
    let failed = || Outcome::Failed(refused());
    let steps = edited.decide().perform(now(), |_| failed());
    let expected = ["intent", "claim", "fence", "ban", "status", "report", "end"];
    assert_eq!(names(&steps), expected);

    let mut moved = Case::active("192.0.2.7", "10m", 600);
    moved.place = Some(there());
    let steps = moved.decide().perform(now(), |_| failed());
    let expected = [
        "lift", "fence", "unban", "fence", "unban", "status", "report", "end",
    ];
    assert_eq!(names(&steps), expected);
}

#[test]
fn lifts_are_retried_before_bans_and_assertions_behind_them() {
    let mut asserted = Case::active("192.0.2.7", "10m", 60);
    asserted.assert = Assert::Due;
    let due = Case::active("192.0.2.7", "10m", 600);
    for (case, priority, at_latest) in [
        (Case::new("192.0.2.7", "10m"), 0, None),
        (due, DUE_FIRST, None),
        (asserted, LOW_PRIORITY, Some(Duration::from_secs(540))),
    ] {
        let steps = case.decide().perform(now(), |_| Outcome::Failed(refused()));
        let wake = Wake::Retry {
            priority: Some(priority),
            at_latest,
        };
        assert_eq!(steps.last(), Some(&Step::End(wake)));
    }
}

#[test]
fn a_status_that_conflicts_is_written_again_while_no_other_writer_changes_it() {
    let case = Case::new("192.0.2.7", "10m");
    let mut run = Driven::of(&case).up_to("status");
    let mut labelled = case.block.clone();
    labelled.metadata.resource_version = Some("2".into());
    for _ in 0..4 {
        assert_eq!(run.answer(Outcome::Conflict), "read");
        let live = Arc::new(labelled.clone());
        assert_eq!(run.answer(Outcome::Object(live)), "status");
        assert_eq!(
            **run.0.block(),
            labelled,
            "written to the version that was read"
        );
    }
    assert_eq!(run.answer(Outcome::Conflict), "end");
    assert_eq!(run.wake(), AGAIN);

    let mut run = Driven::of(&case).up_to("status");
    run.answer(Outcome::Conflict);
    let mut other = labelled.clone();
    other.status = Some(IPBlockStatus {
        message: Some("another writer".into()),
        ..IPBlockStatus::default()
    });
    assert_eq!(run.answer(Outcome::Object(other.into())), "end");
    assert_eq!(run.wake(), AGAIN);
}

#[test]
fn an_end_that_was_moved_meanwhile_is_decided_about_again() {
    for (age, expected) in [(600, "end"), (60, "status")] {
        let mut case = Case::active("192.0.2.7", "10m", age);
        case.block.spec.unblock = Some(age == 60);
        let mut run = Driven::of(&case).up_to("status");
        let mut longer = case.block.clone();
        longer.metadata.generation = Some(2);
        run.answer(Outcome::Conflict);
        assert_eq!(run.answer(Outcome::Object(longer.into())), expected);
    }
}

#[test]
fn nothing_is_reported_of_a_status_that_was_not_written() {
    for (outcome, wake) in [(Outcome::Gone, Wake::OnChange), (Outcome::Conflict, AGAIN)] {
        let mut run = Driven::of(&Case::new("192.0.2.7", "10m")).up_to("status");
        if matches!(outcome, Outcome::Conflict) {
            run.answer(Outcome::Conflict);
        }
        assert_eq!(run.answer(outcome), "end");
        assert_eq!(run.wake(), wake);
    }
    let mut run = Driven::of(&Case::new("192.0.2.7", "10m")).up_to("status");
    assert_eq!(run.fails(), Err("broken"));
}

#[test]
fn an_object_that_is_gone_with_its_finalizer_is_reported_as_lifted() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.block.metadata.deletion_timestamp = Some(Time(now()));
    let mut run = Driven::of(&case).up_to("finish");
    assert_eq!(run.answer(Outcome::Gone), "report");
    let mut unblocked = Case::active("192.0.2.7", "10m", 60);
    unblocked.block.spec.unblock = Some(true);
    let mut run = Driven::of(&unblocked).up_to("finish");
    assert_eq!(run.answer(Outcome::Gone), "end");
}

#[test]
fn progress_is_shown_while_a_call_takes_long_and_holds_nothing_up() {
    let case = Case::new("192.0.2.7", "10m");
    type Answer = fn(&mut Driven) -> &'static str;
    let answers: [(&str, Answer); 4] = [
        ("written", |run| {
            let block = Arc::clone(run.0.block());
            run.answer(Outcome::Object(block))
        }),
        ("gone", |run| run.answer(Outcome::Gone)),
        ("broken", |run| run.fails().unwrap()),
        ("conflict, and broken", |run| {
            assert_eq!(run.answer(Outcome::Conflict), "read");
            run.fails().unwrap()
        }),
    ];
    for (what, answer) in answers {
        let mut run = Driven::of(&case).up_to("ban");
        assert_eq!(run.answer(Outcome::Slow), "progress", "{what}");
        assert_eq!(answer(&mut run), "await", "{what}");
        assert_eq!(run.answer(Outcome::Done), "confirm", "{what}");
    }
    let mut run = Driven::of(&case).up_to("ban");
    run.answer(Outcome::Slow);
    for _ in 0..4 {
        assert_eq!(run.answer(Outcome::Conflict), "read");
        let block = Arc::clone(run.0.block());
        assert_eq!(run.answer(Outcome::Object(block)), "progress");
    }
    assert_eq!(run.answer(Outcome::Conflict), "await");
    let mut run = run.up_to("status");
    assert_eq!(
        run.answer(Outcome::Conflict),
        "read",
        "it has tries of its own"
    );
}

#[test]
fn an_object_that_may_not_be_deleted_is_tried_again_after_an_hour() {
    let mut case = Case::active("192.0.2.7", "1m", 60);
    let plan = case.decide();
    case.apply(&plan, now());
    case.annotate(crate::api::RETENTION_ANNOTATION, "1s");
    let collect = |outcome| {
        let mut run = Driven(case.at(now() + seconds(1)).0);
        assert_eq!(name(run.0.step()), "delete");
        assert_eq!(run.answer(outcome), "end");
        run.wake()
    };
    assert_eq!(collect(Outcome::Done), Wake::OnChange);
    assert_eq!(collect(Outcome::Gone), Wake::OnChange);
    assert_eq!(collect(Outcome::Conflict), AGAIN, "it was triggered since");
    let hour = Wake::After(Duration::from_secs(3_600));
    assert_eq!(collect(Outcome::Forbidden), hour);
}

#[test]
fn the_claim_of_a_block_that_is_gone_stays_until_its_ban_is_lifted() {
    let stands = standing("192.0.2.7", here());
    let orphan = || Plan(Run::orphan(&stands, &[], now()));
    let steps = all_succeed(&orphan());
    let expected = ["lift", "fence", "unban", "recheck", "unclaim", "end"];
    assert_eq!(names(&steps), expected);
    assert_eq!(steps.last(), Some(&Step::End(Wake::OnChange)));
    let steps = orphan().perform(now(), |_| Outcome::Failed(refused()));
    assert_eq!(names(&steps), ["lift", "fence", "unban", "end"]);
    assert_eq!(steps.last(), Some(&Step::End(AGAIN)));
    let lost = Failure {
        may_have_happened: true,
        ..refused()
    };
    let steps = orphan().perform(now(), |_| Outcome::Failed(lost.clone()));
    assert_eq!(names(&steps), ["lift", "fence", "unban", "recheck", "end"]);
}

#[test]
fn the_report_of_a_deleted_block_follows_the_removal_of_its_finalizer() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.block.metadata.deletion_timestamp = Some(Time(now()));
    let plan = case.decide();
    let failed = plan.fail(&plan.calls()[0], &refused(), now());
    // The next run also writes that the lift does not fail any more.
    case.block.status = failed.status;
    let steps = names(&all_succeed(&case.decide()));
    assert!(
        steps.ends_with(&["status", "finish", "report", "end"]),
        "{steps:?}"
    );
}
