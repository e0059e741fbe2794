//! `kubectl ipb import --as-list NAME`: a file becomes BlockLists `NAME-0`, `NAME-1`, ….
//!
//! A label marks the lists of an import, so that the next one finds them. What the file does not have any more leaves
//! them; a file without a ban, or without half of the bans that stand, changes nothing, because it is more often a failed
//! download than meant.

use std::collections::BTreeMap;

use ipblock_operator::api::{BlockList, BlockListSpec, ListEntry};
use jiff::{RoundMode, SignedDuration, TimestampRound, Unit};
use kube_core::params::{DeleteParams, ListParams, Preconditions};
use reeve_client::{Error as ClientError, ObjectKey, Patch, WriteOptions};
use serde_json::json;

use super::Gathered;
use super::place::{Ban, Plan, Present, plan, targets};
use super::read::Item;
use crate::again::again;
use crate::cluster::Cluster;
use crate::command::{self, Length};
use crate::error::{Error, is_forbidden};
use crate::exit::Exit;
use crate::print::out;

/// The label of the lists of an import: its name.
const IMPORT: &str = "ops.yiiong.top/import";

/// The label of the manager, and its value.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "kubectl-ipb");

/// Lists of one answer of the server.
const PAGE: u32 = 4;

/// So many bans are not removed at once without being asked for, if they are half of all.
const MANY: usize = 100;

/// Bytes of a reason: 5,000 entries must fit into an object of 1.5 MB, which is the limit of etcd.
const REASON: usize = 96;

/// The lists of one import, and what each is changed from.
struct Lists {
    present: BTreeMap<u32, Present>,
    objects: BTreeMap<u32, BlockList>,
}

/// The kind of a write, for the right that is missing.
type Verb = &'static str;

pub(super) async fn run(
    cluster: &Cluster,
    arguments: &command::Import,
    name: &str,
    mut gathered: Gathered,
) -> Result<Exit, Error> {
    let lists = read(cluster, name).await?;
    let items = std::mem::take(&mut gathered.wanted);
    guard(&gathered, items.len(), &lists, name, cluster)?;
    // The operator does not enforce what a rule refuses, and the rule may be a mistake: what is in the lists stays.
    let present = targets(&lists.present, cluster.now());
    let ruled = std::mem::take(&mut gathered.ruled).into_iter();
    let ruled = ruled.filter(|item| present.contains(&item.target));
    let items = items.into_iter().map(|(_, item)| item).chain(ruled);
    let wanted = items.map(|item| (item.target, ban_of(cluster, item, arguments)));
    let plan = plan(
        &lists.present,
        &wanted.collect(),
        arguments.extend,
        cluster.now(),
    );
    if !arguments.force && plan.removed >= MANY && plan.removed * 2 >= present.len() {
        return Err(Error::Refused(format!(
            "error: the file lacks {} of the {} bans of the lists {name}, so they stay as they are; check the file, and add --force to remove them",
            plan.removed,
            present.len()
        )));
    }
    let written = write(cluster, arguments, name, &lists, &plan).await;
    gathered.summary.print_refused();
    if written.is_ok() {
        out(&line(&plan, &gathered, arguments.dry_run))?;
    }
    written?;
    Ok(if gathered.summary.refused.is_empty() {
        Exit::Success
    } else {
        Exit::Failure
    })
}

/// Refuses a file that would remove what an earlier import made without a ban in it, or that is mostly no list.
fn guard(
    gathered: &Gathered,
    bans: usize,
    lists: &Lists,
    name: &str,
    cluster: &Cluster,
) -> Result<(), Error> {
    let refused = gathered.summary.refused.len();
    if bans > 0 && refused <= bans {
        return Ok(());
    }
    let standing = targets(&lists.present, cluster.now()).len();
    if standing == 0 {
        return Ok(());
    }
    let what = if bans == 0 {
        "has nothing to ban".to_owned()
    } else {
        format!("has more refused entries ({refused}) than bans ({bans})")
    };
    Err(Error::Refused(format!(
        "error: the file {what}, so the {standing} bans of the lists {name} stay as they are; to remove them: kubectl delete ipbl -n {} -l {IMPORT}={name}",
        cluster.namespace
    )))
}

/// The lists of earlier imports of this name.
async fn read(cluster: &Cluster, name: &str) -> Result<Lists, Error> {
    let params = ListParams::default()
        .labels(&format!("{IMPORT}={name}"))
        .limit(PAGE);
    let lists = cluster.client.objects::<BlockList>();
    let all = lists.pages(Some(&cluster.namespace), &params).all().await;
    let all = all.map_err(|error| refused(error, "list", cluster))?;
    let (mut present, mut objects) = (BTreeMap::new(), BTreeMap::new());
    for mut list in all {
        let number = list
            .metadata
            .name
            .as_deref()
            .and_then(|it| number(name, it));
        // A list that carries the label by hand is not of an import.
        let Some(number) = number else { continue };
        let entries = std::mem::take(&mut list.spec.entries);
        let suspended = list.spec.suspended == Some(true);
        present.insert(number, Present { entries, suspended });
        objects.insert(number, list);
    }
    Ok(Lists { present, objects })
}

/// Creates and changes lists before it deletes: an entry that moves is not lifted.
async fn write(
    cluster: &Cluster,
    arguments: &command::Import,
    name: &str,
    lists: &Lists,
    plan: &Plan,
) -> Result<(), Error> {
    let api = cluster.client.objects::<BlockList>();
    let mut options = WriteOptions::new();
    if arguments.dry_run {
        options = options.dry_run();
    }
    for (number, entries) in &plan.creates {
        let list = object(cluster, name, *number, entries, &arguments.source);
        let created = again(
            async || api.create_with(&list, options.clone()).await,
            unsent,
        )
        .await;
        created.map_err(|error| taken(error, cluster, &list_name(name, *number)))?;
    }
    for (number, entries) in &plan.changes {
        let version = &lists.objects[number].metadata.resource_version;
        let patch = Patch::merge(json!({
            "metadata": {"resourceVersion": version},
            "spec": {"entries": entries, "source": arguments.source},
        }));
        let key = cluster.key(&list_name(name, *number));
        let patched = again(
            async || api.patch_with(&key, options.clone(), patch.clone()).await,
            unsent,
        )
        .await;
        patched.map_err(|error| changed(error, "patch", cluster, &key))?;
    }
    for number in &plan.deletes {
        let params = DeleteParams {
            dry_run: arguments.dry_run,
            preconditions: Some(Preconditions {
                resource_version: lists.objects[number].metadata.resource_version.clone(),
                uid: lists.objects[number].metadata.uid.clone(),
            }),
            ..DeleteParams::default()
        };
        let key = cluster.key(&list_name(name, *number));
        let deleted = again(async || api.delete(&key, &params).await, unsent).await;
        deleted.map_err(|error| changed(error, "delete", cluster, &key))?;
    }
    Ok(())
}

/// The error of a write that has certainly not been made, so that it may be made again.
fn unsent(error: &ClientError) -> Option<&ClientError> {
    Some(error).filter(|error| !error.is_ambiguous())
}

fn object(
    cluster: &Cluster,
    name: &str,
    number: u32,
    entries: &[ListEntry],
    source: &str,
) -> BlockList {
    let spec = BlockListSpec {
        entries: entries.to_vec(),
        source: Some(source.to_owned()),
        ..BlockListSpec::default()
    };
    let mut list = BlockList::new(&list_name(name, number), spec);
    list.metadata.namespace = Some(cluster.namespace.clone());
    let labels = [MANAGED_BY, (IMPORT, name)];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    list.metadata.labels = Some(labels.into());
    list
}

fn ban_of(cluster: &Cluster, item: Item, arguments: &command::Import) -> Ban {
    let Length(length) = item.length.unwrap_or(arguments.length);
    let counted = length.map(|length| {
        let length = SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
        cluster
            .now()
            .saturating_add(length)
            .unwrap_or(jiff::Timestamp::MAX)
    });
    // An end that the file names stays as it is. Ends are written in whole seconds, and none comes early.
    let named = item.until.map(|until| {
        let seconds = TimestampRound::new()
            .smallest(Unit::Second)
            .mode(RoundMode::Ceil);
        until.round(seconds).unwrap_or(until)
    });
    let until = named.or(counted);
    let reason = item.reason.or_else(|| arguments.reason.clone());
    Ban {
        until,
        reason: reason.map(|reason| cut(&reason).to_owned()),
    }
}

fn cut(reason: &str) -> &str {
    let mut ends = (0..=REASON.min(reason.len())).rev();
    let end = ends.find(|at| reason.is_char_boundary(*at));
    &reason[..end.unwrap_or_default()]
}

fn list_name(name: &str, number: u32) -> String {
    format!("{name}-{number}")
}

/// The number of the list `list`, if it can be one of the import `name`.
fn number(name: &str, list: &str) -> Option<u32> {
    let digits = list.strip_prefix(name)?.strip_prefix('-')?;
    let number = digits.parse().ok()?;
    // Neither +1 nor 01.
    (list_name(name, number) == list).then_some(number)
}

fn line(plan: &Plan, gathered: &Gathered, dry_run: bool) -> String {
    let summary = &gathered.summary;
    let mut parts = vec![format!("{} added", plan.added)];
    for (count, what) in [
        (plan.extended, "extended"),
        (plan.unchanged, "unchanged"),
        (summary.repeated, "repeated"),
        (summary.over, "over already"),
        (summary.refused.len(), "refused"),
        (plan.removed, "not in the file any more and removed"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    let mut lists = Vec::new();
    for (count, what) in [
        (plan.creates.len(), "created"),
        (plan.changes.len(), "changed"),
        (plan.deletes.len(), "deleted"),
    ] {
        if count > 0 {
            lists.push(format!("{count} {what}"));
        }
    }
    let lists = if plan.is_empty() {
        "none is changed".to_owned()
    } else {
        lists.join(", ")
    };
    let dry = if dry_run { " (server dry run)" } else { "" };
    format!(
        "{} entries: {}; lists: {lists}{dry}\n",
        gathered.all,
        parts.join(", ")
    )
}

/// The error of a request about lists, with what is missing.
fn refused(error: ClientError, verb: Verb, cluster: &Cluster) -> Error {
    if error.is_not_served() {
        return Error::Refused(
            "error: the server has no BlockList kind: apply the definitions of this version (ipblock-operator crd | kubectl apply -f -)".to_owned(),
        );
    }
    let right = is_forbidden(&error).then(|| {
        let namespace = &cluster.namespace;
        format!("{verb} on blocklists.ops.yiiong.top in the namespace {namespace}")
    });
    Error::Server { error, right }
}

fn taken(error: ClientError, cluster: &Cluster, list: &str) -> Error {
    if error.is_already_exists() {
        let namespace = &cluster.namespace;
        return Error::Refused(format!(
            "error: the BlockList {namespace}/{list} is not of this import; choose another name for --as-list, or delete it"
        ));
    }
    refused(error, "create", cluster)
}

fn changed(error: ClientError, verb: Verb, cluster: &Cluster, key: &ObjectKey) -> Error {
    if error.is_conflict() {
        return Error::Changing(format!("blocklist.ops.yiiong.top/{}", key.name));
    }
    refused(error, verb, cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number() {
        assert_eq!(number("feed", &list_name("feed", 17)), Some(17));
        for other in ["feed", "feed-", "feed-01", "feed-+1", "feed-a-1", "other-1"] {
            assert_eq!(number("feed", other), None, "{other}");
        }
    }

    #[test]
    fn a_reason_is_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&format!("a{}", "é".repeat(60))).len(), 95);
    }
}
