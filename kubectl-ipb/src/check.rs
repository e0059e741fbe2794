//! `kubectl ipb check`.

use ipblock_operator::target::Target;
use ipblock_operator::why::{Bans, Entry, Rules, moment};
use jiff::Timestamp;
use serde::Serialize;

use crate::cluster::Cluster;
use crate::command::{self, Data};
use crate::error::Error;
use crate::exit::Exit;
use crate::import::{file, plain};
use crate::lists;
use crate::print::{self, Table, note, out};
use crate::rules::Known;

/// The answer about one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Checked {
    line: usize,
    address: String,
    verdict: Verdict,
    detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Banned,
    Refused,
    Invalid,
    Free,
}

pub(crate) async fn run(cluster: &Cluster, arguments: command::Check) -> Result<Exit, Error> {
    let text = file::read(&arguments.file)?;
    let bans = cluster.fold_everywhere(|bans: &mut Bans, block| {
        if let Some(entry) = Entry::of(&block) {
            bans.add(&entry);
        }
    });
    let (bans, known, unread) = futures::join!(bans, Known::read(cluster), lists::unread(cluster));
    let (bans, _) = bans?;
    let mut rules = known.rules();
    rules.unknown.extend(unread);
    let checked: Vec<Checked> = plain(&text)
        .map(|(line, entry)| check(line, entry, &bans, &rules, cluster.now()))
        .collect();
    for unknown in &rules.unknown {
        note(&format!("note: {unknown}"));
    }
    out(&match arguments.output {
        Some(Data::Json) => print::json(&checked)?,
        Some(Data::Yaml) => print::yaml(&checked)?,
        None => table(&checked),
    })?;
    let wrong = checked
        .iter()
        .any(|one| matches!(one.verdict, Verdict::Refused | Verdict::Invalid));
    Ok(if wrong { Exit::Failure } else { Exit::Success })
}

fn check(line: usize, text: &str, bans: &Bans, rules: &Rules<'_>, now: Timestamp) -> Checked {
    let answer = |address: String, verdict, detail: String| Checked {
        line,
        address,
        verdict,
        detail,
    };
    let target: Target = match text.parse() {
        Ok(target) => target,
        Err(error) => {
            let shown = text.chars().take(64).collect();
            return answer(shown, Verdict::Invalid, error.to_string());
        }
    };
    if let Some(ban) = bans.covering(&target) {
        let until = match ban.until {
            Some(until) => format!("until {}", moment(until, now)),
            None => "without end".to_owned(),
        };
        let detail = if ban.target == target {
            format!("{until}, by {}", ban.block)
        } else {
            format!("{until}, by {} ({})", ban.block, ban.target)
        };
        return answer(target.to_string(), Verdict::Banned, detail);
    }
    match rules.refusal(&target) {
        Some(refused) => answer(target.to_string(), Verdict::Refused, refused.message),
        None => answer(target.to_string(), Verdict::Free, String::new()),
    }
}

fn table(checked: &[Checked]) -> String {
    let mut table = Table::new(["LINE", "ADDRESS", "VERDICT", "DETAIL"]);
    for one in checked {
        let verdict = match one.verdict {
            Verdict::Banned => "banned",
            Verdict::Refused => "refused",
            Verdict::Invalid => "invalid",
            Verdict::Free => "free",
        };
        table.row([
            one.line.to_string(),
            one.address.clone(),
            verdict.to_owned(),
            one.detail.clone(),
        ]);
    }
    table.text()
}
