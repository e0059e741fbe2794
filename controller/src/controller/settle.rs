//! The result of a reconcile mapped to an action on its item: the table in [`crate::reconcile`], as a function.

use std::time::Duration;

use crate::reconcile::{Error, Next, Outcome};

/// The action on the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Done; its failures are forgotten.
    Forget,
    /// Requeued after a time; its failures are forgotten.
    RequeueAfter(Duration),
    /// Failed once more; requeued after its back-off.
    Retry,
}

/// The label `result` of `controller_runtime_reconcile_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    Success,
    Error,
    Requeue,
    RequeueAfter,
}

#[derive(Debug)]
pub(crate) struct Settlement {
    pub(crate) action: Action,
    pub(crate) label: Label,
    pub(crate) error: Option<Error>,
    /// The new priority of the item; unset, it keeps its own.
    pub(crate) priority: Option<i32>,
}

pub(crate) fn settle(result: Result<Outcome, Error>) -> Settlement {
    let (next, priority) = match result {
        Ok(Outcome { next, priority }) => (next, priority),
        Err(error) if error.is_terminal() => (Next::Terminal(error), None),
        Err(error) => {
            return Settlement {
                action: Action::Retry,
                label: Label::Error,
                priority: error.priority(),
                error: Some(error),
            };
        }
    };
    let (action, label, error) = match next {
        Next::Done => (Action::Forget, Label::Success, None),
        Next::RequeueAfter(delay) => (Action::RequeueAfter(delay), Label::RequeueAfter, None),
        Next::Retry => (Action::Retry, Label::Requeue, None),
        Next::Terminal(error) => (Action::Forget, Label::Error, Some(error.into_terminal())),
    };
    Settlement {
        action,
        label,
        error,
        priority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_table() {
        let second = Duration::from_secs(1);
        for (case, result, action, label, terminal, priority) in [
            (
                "done",
                Ok(Outcome::done()),
                Action::Forget,
                Label::Success,
                None,
                None,
            ),
            (
                "done, with a priority",
                Ok(Outcome::done().with_priority(5)),
                Action::Forget,
                Label::Success,
                None,
                Some(5),
            ),
            (
                "again after a delay",
                Ok(Outcome::requeue_after(second)),
                Action::RequeueAfter(second),
                Label::RequeueAfter,
                None,
                None,
            ),
            (
                "after no delay",
                Ok(Outcome::requeue_after(Duration::ZERO)),
                Action::Forget,
                Label::Success,
                None,
                None,
            ),
            (
                "retry, at another priority",
                Ok(Outcome::retry().with_priority(-7)),
                Action::Retry,
                Label::Requeue,
                None,
                Some(-7),
            ),
            (
                "failed",
                Err(Error::message("no")),
                Action::Retry,
                Label::Error,
                Some(false),
                None,
            ),
            (
                "failed, at another priority",
                Err(Error::message("no").with_priority(3)),
                Action::Retry,
                Label::Error,
                Some(false),
                Some(3),
            ),
            (
                "failed for good",
                Err(Error::terminal("no")),
                Action::Forget,
                Label::Error,
                Some(true),
                None,
            ),
            (
                "a terminal outcome",
                Ok(Outcome::terminal(Error::message("no"))),
                Action::Forget,
                Label::Error,
                Some(true),
                None,
            ),
        ] {
            let settled = settle(result);
            assert_eq!(settled.action, action, "{case}");
            assert_eq!(settled.label, label, "{case}");
            assert_eq!(settled.priority, priority, "{case}");
            let found = settled.error.as_ref().map(Error::is_terminal);
            assert_eq!(found, terminal, "{case}");
        }
    }
}
