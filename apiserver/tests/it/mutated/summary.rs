//! The shares of equal answers, and the list of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::mutation::Mutation;
use super::servers::Verdict;

/// What the two servers answered.
#[derive(Default)]
pub struct Summary {
    kinds: BTreeMap<String, Counts>,
    /// The differences of each kind.
    differences: BTreeMap<String, BTreeSet<String>>,
    unserved: BTreeSet<String>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    all: usize,
    same_verdict: usize,
    /// Refused by both with causes.
    refused: usize,
    same_fields: usize,
}

// === impl Summary ===

impl Summary {
    /// A kind that one of the servers does not serve.
    pub fn unserved(&mut self, kind: &str) {
        self.unserved.insert(kind.to_owned());
    }

    pub fn add(&mut self, mutation: &Mutation, update: bool, ours: &Verdict, real: &Verdict) {
        let counts = self.kinds.entry(mutation.kind.clone()).or_default();
        counts.all += 1;
        let same = ours.code == real.code || (ours.accepted() && real.accepted());
        counts.same_verdict += usize::from(same);
        let both = ours.code == 422 && real.code == 422;
        counts.refused += usize::from(both);
        counts.same_fields += usize::from(both && ours.fields == real.fields);
        if same && (!both || ours.fields == real.fields) {
            return;
        }
        let verb = if update { "update" } else { "create" };
        let mut line = format!("{verb} {}\n", mutation.changes.join(", and "));
        for (name, verdict) in [("real", real), ("ours", ours)] {
            let message = verdict.message.replace('\n', " ");
            let short: String = message.chars().take(400).collect();
            let _ = writeln!(line, "    {name}: {} {short}", verdict.code);
        }
        self.differences
            .entry(mutation.kind.clone())
            .or_default()
            .insert(line);
    }

    pub fn same_verdict(&self) -> f64 {
        let all = self.together();
        share(all.same_verdict, all.all)
    }

    pub fn same_fields(&self) -> f64 {
        let all = self.together();
        share(all.same_fields, all.refused)
    }

    /// The shares, for each kind and together.
    pub fn shares(&self) -> String {
        let mut text =
            "kind: same verdict of all, same fields of those that both refuse\n".to_owned();
        let together = ("all".to_owned(), self.together());
        let kinds = self
            .kinds
            .iter()
            .map(|(kind, counts)| (kind.clone(), *counts));
        for (kind, counts) in kinds.chain([together]) {
            let _ = writeln!(
                text,
                "{kind}: {:.1} % of {}, {:.1} % of {}",
                100.0 * share(counts.same_verdict, counts.all),
                counts.all,
                100.0 * share(counts.same_fields, counts.refused),
                counts.refused
            );
        }
        if !self.unserved.is_empty() {
            let _ = writeln!(text, "not served: {:?}", self.unserved);
        }
        text
    }

    /// The shares and the list of differences.
    pub fn text(&self) -> String {
        let mut text = self.shares();
        for (kind, differences) in &self.differences {
            let _ = write!(text, "\n# {kind}\n\n");
            for line in differences {
                text.push_str(line);
            }
        }
        text
    }

    fn together(&self) -> Counts {
        self.kinds
            .values()
            .fold(Counts::default(), |sum, counts| Counts {
                all: sum.all + counts.all,
                same_verdict: sum.same_verdict + counts.same_verdict,
                refused: sum.refused + counts.refused,
                same_fields: sum.same_fields + counts.same_fields,
            })
    }
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn share(part: usize, all: usize) -> f64 {
    if all == 0 {
        1.0
    } else {
        part as f64 / all as f64
    }
}
