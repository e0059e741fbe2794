//! Completions, as kubectl asks its plugins for them: the words so far, candidates as lines, and a directive.
//!
//! Options, commands and fixed values come from the command line's definition. Names and addresses of blocks come from the
//! cluster, within a second; without an answer there are none.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Arg, Command};
use ipblock_operator::api::{IPBlock, IPBlockStatus};
use tokio::time::timeout;

use crate::cluster::{Cluster, Scope};
use crate::command::{Access, command};
use crate::error::Error;
use crate::exit::Exit;
use crate::print::{clean, out};

/// The longest wait for the cluster.
const LIMIT: Duration = Duration::from_secs(1);

/// The most candidates from the cluster.
const MOST: usize = 200;

/// cobra's directive: no names of files.
const NO_FILES: &str = ":4";
/// cobra's directive: names of files, too.
const FILES: &str = ":0";

/// What completes the last word.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    /// One of these.
    Words(Vec<String>),
    /// A name or an address of a block.
    Blocks,
    /// A namespace.
    Namespaces,
    /// A file.
    Files,
}

pub(crate) async fn run(access: &Access, words: &[String]) -> Result<Exit, Error> {
    let last = words.last().map(String::as_str).unwrap_or_default();
    let (candidates, directive) = match wanted(&command(), words) {
        Wanted::Words(words) => (words, NO_FILES),
        Wanted::Files => (Vec::new(), FILES),
        // Words before the last one may have chosen another namespace or cluster.
        Wanted::Blocks => (ask(&chosen(access, words), blocks).await, NO_FILES),
        Wanted::Namespaces => (ask(&chosen(access, words), namespaces).await, NO_FILES),
    };
    let mut text = String::new();
    for candidate in candidates.iter().filter(|one| one.starts_with(last)) {
        text.push_str(&clean(candidate));
        text.push('\n');
    }
    out(&format!("{text}{directive}\n"))?;
    Ok(Exit::Success)
}

/// What completes the last of `words`.
fn wanted(program: &Command, words: &[String]) -> Wanted {
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", words),
    };
    let commands = || program.get_subcommands().filter(|one| !one.is_hide_set());
    let mut chosen: Option<&Command> = None;
    let mut valued: Option<&Arg> = None;
    let mut positions = 0;
    for word in before {
        if valued.take().is_some() {
            continue;
        }
        if word.starts_with('-') {
            valued = option(program, chosen, word).filter(|arg| takes(arg, word));
        } else if chosen.is_none() {
            chosen = commands().find(|one| one.get_name() == word);
        } else {
            positions += 1;
        }
    }
    if let Some(arg) = valued {
        return value(arg);
    }
    if last.starts_with('-') {
        let own = chosen.into_iter().flat_map(Command::get_arguments);
        let global = program.get_arguments();
        let mut words: Vec<String> = own
            .chain(global)
            .filter_map(|arg| Some(format!("--{}", arg.get_long()?)))
            .collect();
        words.push("--help".to_owned());
        return Wanted::Words(words);
    }
    let Some(chosen) = chosen else {
        return Wanted::Words(commands().map(|one| one.get_name().to_owned()).collect());
    };
    match (chosen.get_name(), positions) {
        ("unban" | "why", 0) => Wanted::Blocks,
        ("check" | "import", 0) => Wanted::Files,
        _ => Wanted::Words(Vec::new()),
    }
}

/// The option that `word` names.
fn option<'a>(program: &'a Command, chosen: Option<&'a Command>, word: &str) -> Option<&'a Arg> {
    let own = chosen.into_iter().flat_map(Command::get_arguments);
    let name = word.trim_start_matches('-');
    let name = name.split('=').next().unwrap_or_default();
    own.chain(program.get_arguments()).find(|arg| {
        if word.starts_with("--") {
            arg.get_long() == Some(name)
        } else {
            arg.get_short()
                .is_some_and(|short| name == short.to_string())
        }
    })
}

/// Whether the word after `word` is the value of `arg`.
fn takes(arg: &Arg, word: &str) -> bool {
    arg.get_action().takes_values() && !word.contains('=')
}

fn value(arg: &Arg) -> Wanted {
    match arg.get_long() {
        Some("namespace" | "operator-namespace") => return Wanted::Namespaces,
        Some("kubeconfig") => return Wanted::Files,
        Some("for") => {
            return Wanted::Words(
                ["10m", "1h", "1d", "1w", "forever"]
                    .map(String::from)
                    .into(),
            );
        }
        _ => {}
    }
    let values = arg.get_possible_values();
    Wanted::Words(values.iter().map(|one| one.get_name().to_owned()).collect())
}

/// The access that the words choose.
fn chosen(access: &Access, words: &[String]) -> Access {
    let value = |names: [&str; 2]| {
        let pairs = words.windows(2);
        let apart = pairs.filter(|pair| names.contains(&pair[0].as_str()));
        let joined = words.iter().filter_map(|word| {
            let (name, value) = word.split_once('=')?;
            (name == names[0]).then(|| value.to_owned())
        });
        apart.map(|pair| pair[1].clone()).chain(joined).last()
    };
    Access {
        namespace: value(["--namespace", "-n"]).or_else(|| access.namespace.clone()),
        context: value(["--context", "--context"]).or_else(|| access.context.clone()),
        kubeconfig: value(["--kubeconfig", "--kubeconfig"])
            .map(Into::into)
            .or_else(|| access.kubeconfig.clone()),
        request_timeout: LIMIT,
        ..access.clone()
    }
}

async fn ask(access: &Access, get: impl AsyncFn(&Cluster) -> BTreeSet<String>) -> Vec<String> {
    let answer = async {
        let cluster = Cluster::connect(access).await.ok()?;
        Some(get(&cluster).await)
    };
    let answer = timeout(LIMIT, answer).await.ok().flatten();
    answer.unwrap_or_default().into_iter().take(MOST).collect()
}

async fn blocks(cluster: &Cluster) -> BTreeSet<String> {
    let scope = Scope::One(cluster.namespace.clone());
    let add = |all: &mut BTreeSet<String>, block: IPBlock| {
        let status = block.status.as_ref();
        if !status.is_some_and(IPBlockStatus::is_over) && all.len() < 2 * MOST {
            all.insert(block.spec.ip);
            all.extend(block.metadata.name);
        }
    };
    cluster.fold(&scope, None, add).await.unwrap_or_default()
}

async fn namespaces(cluster: &Cluster) -> BTreeSet<String> {
    let all = cluster
        .client
        .objects::<k8s_openapi::api::core::v1::Namespace>();
    let list = all.list(None, &Default::default()).await;
    let items = list.map(|list| list.items).unwrap_or_default();
    items
        .into_iter()
        .filter_map(|one| one.metadata.name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(line: &str) -> Wanted {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        match wanted(&command(), &words) {
            Wanted::Words(mut all) => {
                all.retain(|one| one.starts_with(words.last().unwrap()));
                Wanted::Words(all)
            }
            other => other,
        }
    }

    fn words(all: &[&str]) -> Wanted {
        Wanted::Words(all.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn each_place_of_a_line_has_its_candidates() {
        for (line, expected) in [
            ("un", words(&["unban"])),
            ("__", words(&[])),
            ("-n web li", words(&["list"])),
            ("list --sort-by e", words(&["expires"])),
            ("list --sort", words(&["--sort-by"])),
            (
                "list --phase ",
                words(&["pending", "active", "expired", "skipped", "failed"]),
            ),
            ("ban 192.0.2.7 --fo", words(&["--for", "--force"])),
            ("ban 192.0.2.7 --for 1", words(&["10m", "1h", "1d", "1w"])),
            ("unban ", Wanted::Blocks),
            ("why --context here 192", Wanted::Blocks),
            ("unban a ", words(&[])),
            ("import ", Wanted::Files),
            ("list -n ", Wanted::Namespaces),
            ("list --context=x --output j", words(&["json"])),
        ] {
            assert_eq!(complete(line), expected, "{line}");
        }
    }
}
