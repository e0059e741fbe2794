//! `kubectl ipb why`.

use ipblock_operator::target::Target;
use ipblock_operator::why::{Search, Verdict};

use crate::cluster::{Cluster, Scope};
use crate::command::{self, Data};
use crate::error::Error;
use crate::exit::Exit;
use crate::lists::{self, Listed};
use crate::print::{self, clean, out};
use crate::rules::Known;

pub(crate) async fn run(cluster: &Cluster, arguments: command::Why) -> Result<Exit, Error> {
    let target = arguments.target;
    let found = cluster.fold_everywhere(|search: &mut Option<Search>, block| {
        search
            .get_or_insert_with(|| Search::new(target))
            .see(&block);
    });
    let listed = lists::search(cluster, cluster.chosen.as_deref(), &target);
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
    rules.unknown.extend(listed.unknown.clone());
    let now = cluster.now();
    let search = search.unwrap_or_else(|| Search::new(target));
    let mut answer = search.answer(&rules, now);
    if answer.verdict == Verdict::Free && known.rules().policy.is_some() {
        answer.facts.push(
            "a ban would be accepted; the addresses of the cluster, which the operator protects by itself, are not checked here"
                .to_owned(),
        );
    }
    if let Some(summary) = summary(answer.verdict, target, &listed) {
        answer.summary = summary;
    }
    let facts = listed.facts.into_iter().chain(listed.parts);
    answer.facts.splice(0..0, facts);
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

/// The sentence about blocks and lists, where the one about blocks alone would contradict what a list has. The blocks of
/// the answer have their messages.
fn summary(verdict: Verdict, target: Target, listed: &Listed) -> Option<String> {
    let whole = !listed.facts.is_empty();
    match verdict {
        Verdict::Free | Verdict::Failed | Verdict::Pending if whole => {
            Some(format!("no block bans {target}, and a BlockList has it"))
        }
        Verdict::Partly if whole => Some(format!(
            "no block bans {target} as a whole, and a BlockList has it"
        )),
        Verdict::Free | Verdict::Failed if !listed.parts.is_empty() => Some(format!(
            "no block bans {target}, and a BlockList has parts of it"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sentence_does_not_contradict_what_a_list_has() {
        let target: Target = "192.0.2.0/24".parse().unwrap();
        let listed = |facts: &[&str], parts: &[&str]| Listed {
            facts: facts.iter().map(|&text| text.to_owned()).collect(),
            parts: parts.iter().map(|&text| text.to_owned()).collect(),
            unknown: None,
        };
        let none = listed(&[], &[]);
        let (whole, parts) = (listed(&["a"], &["b"]), listed(&[], &["b"]));
        let has_it = Some("no block bans 192.0.2.0/24, and a BlockList has it");
        let has_parts = Some("no block bans 192.0.2.0/24, and a BlockList has parts of it");
        let as_a_whole = Some("no block bans 192.0.2.0/24 as a whole, and a BlockList has it");
        for (verdict, of_whole, of_parts) in [
            (Verdict::Free, has_it, has_parts),
            (Verdict::Failed, has_it, has_parts),
            (Verdict::Pending, has_it, None),
            (Verdict::Partly, as_a_whole, None),
            (Verdict::Banned, None, None),
            (Verdict::Refused, None, None),
        ] {
            for (listed, expected) in [(&whole, of_whole), (&parts, of_parts), (&none, None)] {
                let given = summary(verdict, target, listed);
                assert_eq!(given.as_deref(), expected, "{verdict:?}");
            }
        }
    }
}
