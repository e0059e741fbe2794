//! `kubectl ipb why`.

use ipblock_operator::why::{Search, Verdict};

use crate::cluster::{Cluster, Scope};
use crate::command::{self, Data};
use crate::error::Error;
use crate::exit::Exit;
use crate::lists;
use crate::print::{self, clean, out};
use crate::rules::Known;

pub(crate) async fn run(cluster: &Cluster, arguments: command::Why) -> Result<Exit, Error> {
    let target = arguments.target;
    let found = cluster.fold_everywhere(|search: &mut Option<Search>, block| {
        search
            .get_or_insert_with(|| Search::new(target))
            .see(&block);
    });
    let listed = lists::search(cluster, &target);
    let (found, known, listed) = futures::join!(found, Known::read(cluster), listed);
    let (search, scope) = found?;
    let mut rules = known.rules();
    if let Scope::One(namespace) = scope {
        let what = if cluster.chosen.is_some() {
            "blocks and lists"
        } else {
            "blocks"
        };
        let note = format!("{what} of other namespaces than {namespace} are not checked");
        rules.unknown.push(note);
    }
    rules.unknown.extend(listed.unknown);
    let now = cluster.now();
    let search = search.unwrap_or_else(|| Search::new(target));
    let mut answer = search.answer(&rules, now);
    if answer.verdict == Verdict::Free && known.rules().policy.is_some() {
        answer.facts.push(
            "a ban would be accepted; the addresses of the cluster, which the operator protects by itself, are not checked here"
                .to_owned(),
        );
    }
    if answer.verdict == Verdict::Free && !listed.facts.is_empty() {
        answer.summary = format!("no block bans {target}, and a BlockList has it");
    }
    answer.facts.splice(0..0, listed.facts);
    out(&match arguments.output {
        Some(Data::Json) => print::json(&answer)?,
        Some(Data::Yaml) => print::yaml(&answer)?,
        None => {
            let lines = answer.lines(now);
            let lines: Vec<String> = lines.iter().map(|line| clean(line)).collect();
            format!("{}\n", lines.join("\n"))
        }
    })?;
    Ok(Exit::Success)
}
