//! `kubectl ipb unban`.

use futures::future::join_all;
use futures::stream::{self, StreamExt as _};
use ipblock_operator::api::{IPBlock, Phase};
use ipblock_operator::target::Target;
use ipblock_operator::why::{Entry, moment};
use reeve_client::{ObjectKey, Patch};
use serde_json::json;

use crate::ban::not_yet;
use crate::cluster::{Cluster, KIND, refused_for};
use crate::command;
use crate::error::Error;
use crate::exit::Exit;
use crate::lists::{self, Listed};
use crate::print::{clean, note, out};

/// A block that has to do with the target.
#[derive(Debug)]
struct Found {
    entry: Entry,
    kept_elsewhere: bool,
}

/// What is lifted, and what keeps the target banned.
#[derive(Debug, Default)]
struct Plan {
    lift: Vec<Found>,
    stays: Vec<Found>,
    /// Blocks on the target itself whose ban is over.
    over: Vec<Found>,
}

/// What lifts an entry of a BlockList.
const LISTED: &str =
    "remove the entry; of a list that the operator writes, put the address into whitelist";

/// Lifts that are requested at once.
const AT_ONCE: usize = 16;

// === impl Found ===

impl Found {
    fn key(&self) -> ObjectKey {
        let entry = &self.entry;
        ObjectKey::namespaced(entry.namespace.as_str(), entry.name.as_str())
    }
}

pub(crate) async fn run(cluster: &Cluster, arguments: command::Unban) -> Result<Exit, Error> {
    let (target, plan) = match arguments.what.parse::<Target>() {
        Ok(target) => {
            let found = overlapping(cluster, target).await?;
            let lifts = |one: &Found| {
                let namespace = one.entry.namespace.as_str();
                cluster
                    .chosen
                    .as_deref()
                    .is_none_or(|chosen| chosen == namespace)
                    && (one.entry.target == target || arguments.overlapping)
            };
            (target, plan(target, found, lifts))
        }
        Err(_) => {
            let block = named(cluster, &arguments.what).await?;
            let (target, key) = (block.entry.target, block.key());
            let mut found = others(cluster, &block).await?;
            found.push(block);
            (target, plan(target, found, |one| one.key() == key))
        }
    };
    let listed = lists::search(cluster, None, &target).await;
    if plan.lift.is_empty() {
        return Err(nothing(target, &plan, &listed, cluster));
    }
    let lifted = lift_all(cluster, &plan.lift, arguments.wait).await;
    for found in &plan.stays {
        let entry = &found.entry;
        let until = match entry.until {
            Some(until) => format!(" until {}", moment(until, cluster.now())),
            None => " without end".to_owned(),
        };
        note(&format!(
            "{target} stays banned by {} ({}){until}; to lift that: kubectl ipb unban {} -n {}",
            entry.key(),
            entry.target,
            entry.name,
            entry.namespace
        ));
    }
    for fact in &listed.facts {
        note(&format!("{target} stays banned: {fact}; {LISTED}"));
    }
    for fact in &listed.parts {
        note(&format!("parts of {target} stay banned: {fact}; {LISTED}"));
    }
    if let Some(unknown) = &listed.unknown {
        note(&format!("note: {unknown}"));
    }
    lifted?;
    let unlisted = listed.facts.is_empty() && listed.parts.is_empty();
    Ok(if plan.stays.is_empty() && unlisted {
        Exit::Success
    } else {
        Exit::Failure
    })
}

/// Every other block that overlaps the target of `block`. Without the right to list blocks there is a note, and none.
async fn others(cluster: &Cluster, block: &Found) -> Result<Vec<Found>, Error> {
    match overlapping(cluster, block.entry.target).await {
        Ok(mut found) => {
            found.retain(|one| one.key() != block.key());
            Ok(found)
        }
        Err(error) if error.is_forbidden() => {
            note(
                "note: other blocks are not looked at; the right to list ipblocks.ops.yiiong.top is missing",
            );
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// Every block that overlaps `target`, of all namespaces: what is left banned is said.
async fn overlapping(cluster: &Cluster, target: Target) -> Result<Vec<Found>, Error> {
    let (found, _) = cluster
        .fold_all(|found: &mut Vec<Found>, block| {
            if let Some(one) = read(&block).filter(|one| one.entry.target.overlaps(&target)) {
                found.push(one);
            }
        })
        .await?;
    Ok(found)
}

fn read(block: &IPBlock) -> Option<Found> {
    Some(Found {
        entry: Entry::of(block)?,
        kept_elsewhere: block.is_kept_elsewhere(),
    })
}

/// The block with a name, as kubectl takes names: `NAME`, `ipb/NAME`.
async fn named(cluster: &Cluster, text: &str) -> Result<Found, Error> {
    let prefixes = ["ipb/", "ipblock/", "ipblocks/", "ipblock.ops.yiiong.top/"];
    let name = prefixes
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix))
        .unwrap_or(text);
    if name.contains('/') || name.is_empty() {
        return Err(Error::Refused(format!(
            "{:?} is neither an address, a range nor the name of a block",
            clean(text)
        )));
    }
    let key = cluster.key(name);
    let block: IPBlock = cluster
        .client
        .get(&key)
        .await
        .map_err(|error| refused_for(error, "get", &key))?;
    read(&block).ok_or_else(|| {
        Error::Refused(format!(
            "{KIND}/{name} has no address that can be read; delete it to remove it"
        ))
    })
}

/// Whether a block bans, or will.
fn stands(entry: &Entry) -> bool {
    !entry.deleting && (entry.is_active() || entry.is_pending())
}

/// Splits what was found: `lifts` is true for what is lifted.
fn plan(target: Target, found: Vec<Found>, lifts: impl Fn(&Found) -> bool) -> Plan {
    let mut plan = Plan::default();
    for one in found {
        let exact = one.entry.target == target;
        match (stands(&one.entry), lifts(&one)) {
            (true, true) => plan.lift.push(one),
            // A block that is being deleted is lifted already.
            (true, false) => plan.stays.push(one),
            (false, _) if exact => plan.over.push(one),
            (false, _) => {}
        }
    }
    let by_key = |one: &Found| one.entry.key();
    plan.lift.sort_by_cached_key(by_key);
    plan.stays.sort_by_cached_key(by_key);
    plan
}

fn nothing(target: Target, plan: &Plan, listed: &Listed, cluster: &Cluster) -> Error {
    let mut text = format!("no block bans {target}");
    if let Some(found) = plan.over.first() {
        let entry = &found.entry;
        text.push_str(&format!("; {} is {}", entry.key(), state(entry)));
        if let Some(ended) = entry.ended {
            text.push_str(&format!(", since {}", moment(ended, cluster.now())));
        }
    }
    for found in &plan.stays {
        let entry = &found.entry;
        let command = format!("kubectl ipb unban {} -n {}", entry.name, entry.namespace);
        text.push_str(&format!(
            "; {} bans {}, to lift that: {command}",
            entry.key(),
            entry.target
        ));
    }
    for fact in listed.facts.iter().chain(&listed.parts) {
        text.push_str(&format!("; {fact}; {LISTED}"));
    }
    Error::Refused(text)
}

fn state(entry: &Entry) -> &str {
    if entry.deleting {
        "being deleted"
    } else if entry.phase == Phase::Expired.as_str() {
        "over"
    } else {
        &entry.phase
    }
}

/// Lifts all of `found`, several at once: a block that cannot be lifted holds up no other one. All requests are sent
/// before the first is waited for. The last error is returned, and the others are printed.
async fn lift_all(cluster: &Cluster, found: &[Found], wait: command::Wait) -> Result<(), Error> {
    let mut requests = stream::iter(found)
        .map(|found| async move { (found, request(cluster, found).await) })
        .buffered(AT_ONCE);
    let mut requested = Vec::new();
    let mut failed = Vec::new();
    while let Some((found, generation)) = requests.next().await {
        match generation {
            Ok(generation) => requested.push((found, generation)),
            Err(error) => failed.push(error),
        }
    }
    let waits = requested.into_iter();
    let waits = waits.map(|(found, generation)| lifted(cluster, found, generation, wait));
    for lifted in join_all(waits).await {
        failed.extend(lifted.err());
    }
    let last = failed.pop();
    for error in failed {
        note(&error.to_string());
    }
    last.map_or(Ok(()), Err)
}

/// Requests the lift, and returns the generation of the request.
async fn request(cluster: &Cluster, found: &Found) -> Result<Option<i64>, Error> {
    let key = found.key();
    let patch = Patch::merge(json!({ "spec": { "unblock": true, "trigger": false } }));
    let written = cluster.client.patch::<IPBlock>(&key, patch).await;
    let written = written.map_err(|error| refused_for(error, "patch", &key))?;
    if found.kept_elsewhere {
        note(&format!(
            "note: another tool applies {}, and may set spec.unblock back",
            found.entry.key()
        ));
    }
    Ok(written.metadata.generation)
}

/// Waits for a lift that was requested, and prints its outcome.
async fn lifted(
    cluster: &Cluster,
    found: &Found,
    generation: Option<i64>,
    wait: command::Wait,
) -> Result<(), Error> {
    let (entry, key) = (&found.entry, found.key());
    if !wait.wait {
        return out(&format!("{KIND}/{} unban requested\n", entry.name));
    }
    let mut last = None;
    let waited = cluster
        .client
        .wait_for(&key, wait.timeout, |block: &IPBlock| {
            let status = block.status.as_ref();
            let seen = status
                .is_some_and(|status| status.is_over() && status.observed_generation >= generation);
            last = status.and_then(|status| status.message.clone());
            seen && block.spec.unblock != Some(true)
        })
        .await;
    if let Err(error) = waited {
        return Err(not_yet(cluster, error, &key, "lifted").await);
    }
    out(&format!("{KIND}/{} unbanned\n", entry.name))?;
    if let Some(message) = last {
        note(&clean(&message));
    }
    Ok(())
}
