//! What is wrong with a value.

use std::fmt::Write as _;

use super::super::path::Element;

/// One thing that is wrong with a value, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The text of the path; empty for the value itself.
    pub(crate) path: String,
    /// What is wrong.
    pub(crate) message: String,
}

/// Everything that is wrong with a value.
pub(crate) type Problems = Vec<Problem>;

/// A problem of the value at hand.
pub(super) fn problem(message: impl Into<String>) -> Problem {
    Problem {
        path: String::new(),
        message: message.into(),
    }
}

/// Moves the problems of a part to the whole.
pub(super) fn within(element: &Element, problems: &mut Problems) {
    for problem in problems {
        problem.path.insert_str(0, &element.to_string());
    }
}

/// The most problems that a text shows. A real server shows all.
const MOST: usize = 100;

/// All problems as one text: a line for each if there are more than one.
pub(crate) fn text(problems: &[Problem]) -> String {
    let line = |problem: &Problem| match problem.path.as_str() {
        "" => problem.message.clone(),
        path => format!("{path}: {}", problem.message),
    };
    if let [one] = problems {
        return line(one);
    }
    let mut text = "errors:".to_owned();
    for problem in problems.iter().take(MOST) {
        text.push_str("\n  ");
        text.push_str(&line(problem));
    }
    if let Some(more) = problems.len().checked_sub(MOST).filter(|more| *more > 0) {
        let _ = write!(text, "\n  and {more} more");
    }
    text
}
