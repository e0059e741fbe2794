//! Plans: the faults of one run, as values and as text.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

/// The n-th time that a process does, or sees, the same thing. `P1 create secrets default/a 2` is the second creation of that
/// Secret by the first process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Point {
    /// The number of the process, from 1 on.
    pub process: usize,
    /// An effect: `create secrets default/a`, `patch pods/status default/a`, `call NAME`. Or an event of a watch:
    /// `modified pods default/a`.
    pub what: String,
    /// From 1 on, over all incarnations of the process.
    pub nth: u32,
}

/// The first words of faults.
pub(super) const KINDS: [&str; 12] = [
    "crash-before",
    "crash-after",
    "lose",
    "refuse",
    "late",
    "late-on",
    "hold",
    "hold-on",
    "stale",
    "behind",
    "ahead",
    "back",
];

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The process is killed before the effect reaches the server, and starts again.
    CrashBefore(Point),
    /// The process is killed after the effect, before it reads the answer, and starts again.
    CrashAfter(Point),
    /// The effect is applied, and its answer is a broken connection.
    Lose(Point),
    /// The effect is not applied, and its answer is a server's error.
    Refuse(Point),
    /// The process stands still while the effect is on its way, until nothing happens any more. Then both go on.
    Late(Point),
    /// The same, until nothing happens any more for the second time: the effect meets the next step of the scenario.
    LateOn(Point),
    /// Events of the kind are held back from this one on, until nothing happens any more.
    Hold(Point),
    /// The same, until nothing happens any more for the second time: the next step of the scenario is seen with this one.
    HoldOn(Point),
    /// The process is killed after the effect, and reads the state as it was before the event when it starts again, until
    /// nothing happens any more.
    Stale {
        /// The effect.
        after: Point,
        /// The event.
        before: Point,
    },
    /// The process is killed after the effect, and reads all that it has seen so far and not the effect when it starts again,
    /// until nothing happens any more.
    Behind(Point),
    /// At the effect, the wall clock is set forward by an hour, until nothing happens any more.
    Ahead(Point),
    /// At the effect, the wall clock is set back by an hour, until nothing happens any more.
    Back(Point),
}

/// The faults of one run; none is a run without faults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Plan(pub Vec<Fault>);

/// Why a text is not a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a fault; write for example: crash-after P1 create secrets default/a 1")]
pub struct NotAPlan(String);

/// How often each process did, or saw, each thing.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts(HashMap<(usize, String), u32>);

// === impl Counts ===

impl Counts {
    /// Counts one more time.
    pub(super) fn next(&mut self, process: usize, what: &str) -> Point {
        let count = self.0.entry((process, what.to_owned())).or_default();
        *count += 1;
        Point {
            process,
            what: what.to_owned(),
            nth: *count,
        }
    }
}

// === impl Point ===

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "P{} {} {}", self.process, self.what, self.nth)
    }
}

impl FromStr for Point {
    type Err = NotAPlan;

    fn from_str(text: &str) -> Result<Self, NotAPlan> {
        let parse = || {
            let (process, rest) = text.trim().split_once(' ')?;
            let (what, nth) = rest.rsplit_once(' ')?;
            Some(Self {
                process: process.strip_prefix('P')?.parse().ok()?,
                what: what.to_owned(),
                nth: nth.parse().ok()?,
            })
        };
        parse().ok_or_else(|| NotAPlan(text.to_owned()))
    }
}

// === impl Fault ===

impl Fault {
    /// Whether it begins at an event of a watch, and not at an effect.
    pub(super) fn is_of_event(&self) -> bool {
        matches!(self, Self::Hold(_) | Self::HoldOn(_))
    }

    /// The first word of its text, one of [`KINDS`].
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::CrashBefore(_) => "crash-before",
            Self::CrashAfter(_) => "crash-after",
            Self::Lose(_) => "lose",
            Self::Refuse(_) => "refuse",
            Self::Late(_) => "late",
            Self::LateOn(_) => "late-on",
            Self::Hold(_) => "hold",
            Self::HoldOn(_) => "hold-on",
            Self::Stale { .. } => "stale",
            Self::Behind(_) => "behind",
            Self::Ahead(_) => "ahead",
            Self::Back(_) => "back",
        }
    }

    /// The effect or event at which it begins.
    #[must_use]
    pub fn at(&self) -> &Point {
        match self {
            Self::CrashBefore(at)
            | Self::CrashAfter(at)
            | Self::Lose(at)
            | Self::Refuse(at)
            | Self::Late(at)
            | Self::LateOn(at)
            | Self::Hold(at)
            | Self::HoldOn(at)
            | Self::Behind(at)
            | Self::Ahead(at)
            | Self::Back(at)
            | Self::Stale { after: at, .. } => at,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Self::Stale { after, before } => write!(f, "{kind} {after} @ {before}"),
            other => write!(f, "{kind} {}", other.at()),
        }
    }
}

impl FromStr for Fault {
    type Err = NotAPlan;

    fn from_str(text: &str) -> Result<Self, NotAPlan> {
        let text = text.trim();
        let wrong = || NotAPlan(text.to_owned());
        let (kind, rest) = text.split_once(' ').ok_or_else(wrong)?;
        if kind == "stale" {
            let (after, before) = rest.split_once(" @ ").ok_or_else(wrong)?;
            let (after, before) = (after.parse()?, before.parse()?);
            return Ok(Self::Stale { after, before });
        }
        let at = rest.parse()?;
        match kind {
            "crash-before" => Ok(Self::CrashBefore(at)),
            "crash-after" => Ok(Self::CrashAfter(at)),
            "lose" => Ok(Self::Lose(at)),
            "refuse" => Ok(Self::Refuse(at)),
            "late" => Ok(Self::Late(at)),
            "late-on" => Ok(Self::LateOn(at)),
            "hold" => Ok(Self::Hold(at)),
            "hold-on" => Ok(Self::HoldOn(at)),
            "behind" => Ok(Self::Behind(at)),
            "ahead" => Ok(Self::Ahead(at)),
            "back" => Ok(Self::Back(at)),
            _ => Err(wrong()),
        }
    }
}

// === impl Plan ===

impl Plan {
    /// The plan with one fault more.
    #[must_use]
    pub fn and(&self, fault: Fault) -> Self {
        let mut faults = self.0.clone();
        faults.push(fault);
        Self(faults)
    }

    /// The plan without its n-th fault.
    #[must_use]
    pub fn without(&self, nth: usize) -> Self {
        let mut faults = self.0.clone();
        faults.remove(nth);
        Self(faults)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no fault");
        }
        for (n, fault) in self.0.iter().enumerate() {
            let between = if n == 0 { "" } else { "; " };
            write!(f, "{between}{fault}")?;
        }
        Ok(())
    }
}

impl FromStr for Plan {
    type Err = NotAPlan;

    fn from_str(text: &str) -> Result<Self, NotAPlan> {
        if text.trim() == "no fault" {
            return Ok(Self::default());
        }
        let faults: Result<_, _> = text.split(';').map(str::parse).collect();
        Ok(Self(faults?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_as_it_is_written() {
        let at = |what: &str| Point {
            process: 2,
            what: what.into(),
            nth: 3,
        };
        let effect = || at("create secrets default/a");
        let event = || at("modified pods default/b c");
        let plan = Plan(vec![
            Fault::CrashBefore(effect()),
            Fault::CrashAfter(effect()),
            Fault::Lose(effect()),
            Fault::Refuse(effect()),
            Fault::Late(effect()),
            Fault::LateOn(effect()),
            Fault::Hold(event()),
            Fault::HoldOn(event()),
            Fault::Stale {
                after: effect(),
                before: event(),
            },
            Fault::Behind(effect()),
            Fault::Ahead(effect()),
            Fault::Back(effect()),
        ]);
        assert_eq!(plan.to_string().parse(), Ok(plan.clone()));
        assert_eq!(plan.0.iter().map(Fault::kind).collect::<Vec<_>>(), KINDS);
        assert_eq!("no fault".parse(), Ok(Plan::default()));
        for wrong in [
            "",
            "crash",
            "crash-after",
            "crash-after P1 x",
            "late x create y 1",
            "stale P1 a b 1",
        ] {
            assert!(wrong.parse::<Plan>().is_err(), "{wrong:?}");
        }
    }
}
