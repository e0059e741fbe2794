//! `kubectl ipb ban`.

use std::time::Duration;

use ipblock_operator::api::{ALERT_ANNOTATION, ALERTS, IPBlock, RESOLVED};
use ipblock_operator::target::object_name;
use ipblock_operator::why::moment;
use jiff::Timestamp;
use reeve_client::{Error as ClientError, ObjectKey, Patch, WriteOptions, optional};
use serde_json::json;

use crate::already;
use crate::cluster::{Cluster, KIND, refused_for};
use crate::command;
use crate::error::Error;
use crate::exit::Exit;
use crate::print::{note, out};
use crate::request::{Change, Wanted, outcome};
use crate::rules::Known;

/// How often a write that conflicts is tried.
const ATTEMPTS: usize = 5;

/// How blocks are written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How {
    /// Prolongs bans that stand.
    pub(crate) extend: bool,
    /// The server stores nothing.
    pub(crate) dry_run: bool,
    /// `maxDuration`, which no extension goes beyond: the operator would refuse it.
    pub(crate) most: Option<Duration>,
}

/// What was written.
#[derive(Debug)]
pub(crate) enum Written {
    Created(IPBlock),
    Triggered(IPBlock),
    Extended(IPBlock, Option<Timestamp>),
    Unchanged(IPBlock, String),
}

// === impl Written ===

impl Written {
    /// `ipblock.ops.yiiong.top/NAME created`.
    pub(crate) fn line(&self, dry_run: bool) -> String {
        let (block, verb) = match self {
            Self::Created(block) => (block, "created"),
            Self::Triggered(block) => (block, "triggered"),
            Self::Extended(block, _) => (block, "extended"),
            Self::Unchanged(block, _) => (block, "unchanged"),
        };
        let name = block.metadata.name.as_deref().unwrap_or_default();
        let dry = if dry_run { " (server dry run)" } else { "" };
        format!("{KIND}/{name} {verb}{dry}")
    }
}

pub(crate) async fn run(cluster: &Cluster, arguments: command::Ban) -> Result<Exit, Error> {
    let by = match arguments.by {
        Some(by) => Some(by),
        None => cluster.user().await,
    };
    let wanted = Wanted {
        target: arguments.target,
        raw: None,
        length: arguments.lasting.length.0,
        reason: arguments.reason,
        source: Some(arguments.source),
        by,
        tags: arguments.tags,
    };
    let how = How {
        extend: arguments.extend,
        dry_run: arguments.dry_run,
        most: match arguments.extend {
            true => Known::read(cluster).await.most(),
            false => None,
        },
    };
    let other = match arguments.force {
        true => None,
        false => already::other(cluster, wanted.target).await?,
    };
    let written = match other {
        Some(other) => {
            let why = already::why(&other, wanted.target, cluster.now());
            Written::Unchanged(other, why)
        }
        None => put(cluster, &wanted, how).await?,
    };
    out(&format!("{}\n", written.line(how.dry_run)))?;
    let block = match &written {
        Written::Created(block) | Written::Triggered(block) => block,
        Written::Extended(block, until) => {
            if let Some(until) = until {
                let until = moment(*until, cluster.now());
                note(&format!("{} is banned until {until}", wanted.target));
            }
            block
        }
        Written::Unchanged(block, why) => {
            note(why);
            block
        }
    };
    if block.is_kept_elsewhere() {
        note("note: another tool applies this block, and may set it back");
    }
    if !arguments.wait.wait {
        return Ok(Exit::Success);
    }
    let mut result = None;
    let waited = cluster
        .client
        .wait_for(
            &ObjectKey::of(block),
            arguments.wait.timeout,
            |block: &IPBlock| {
                result = outcome(block);
                result.is_some()
            },
        )
        .await;
    match (waited, result) {
        (Ok(_), Some(Ok(message))) => {
            note(&message);
            Ok(Exit::Success)
        }
        (Ok(_), Some(Err(message))) => Err(Error::Refused(message)),
        (Ok(_), None) => Ok(Exit::Success),
        (Err(error), _) => Err(not_yet(cluster, error, &ObjectKey::of(block), "banned").await),
    }
}

/// The error of a wait, with what the block says about it.
pub(crate) async fn not_yet(
    cluster: &Cluster,
    error: ClientError,
    key: &ObjectKey,
    what: &str,
) -> Error {
    let ClientError::NotReached { after, .. } = &error else {
        return refused_for(error, "watch", key);
    };
    let block = cluster.client.get::<IPBlock>(key).await.ok();
    let status = block.and_then(|block| block.status);
    let message = status.and_then(|status| status.message);
    let message = message.unwrap_or_else(|| {
        "the operator has not seen the block; is it running (kubectl get deploy ipblock-operator)?"
            .to_owned()
    });
    Error::Refused(format!("not {what} within {after:?}: {message}"))
}

/// Has `wanted` banned: by a new block, or by the one that is there.
pub(crate) async fn put(cluster: &Cluster, wanted: &Wanted, how: How) -> Result<Written, Error> {
    let name = wanted.target.object_name();
    // A block of the original operator is named after the text as it was written.
    let older = wanted.raw.as_deref().map(object_name);
    if let Some(older) = older.filter(|older| *older != name)
        && let Some(present) = get(cluster, &cluster.key(&older)).await?
        && is_for(&present, wanted)
    {
        return change(cluster, present, wanted, how).await;
    }
    let mut block = IPBlock::new(&name, wanted.spec());
    block.metadata.namespace = Some(cluster.namespace.clone());
    for _ in 0..ATTEMPTS {
        let blocks = cluster.client.objects::<IPBlock>();
        let key = cluster.key(&name);
        match blocks.create_with(&block, options(how)).await {
            Ok(block) => return Ok(Written::Created(block)),
            Err(error) if error.is_already_exists() => {
                if let Some(present) = get(cluster, &key).await? {
                    return change(cluster, present, wanted, how).await;
                }
                // Deleted between the two: create it again.
            }
            // A namespace that does not exist is not found, too.
            Err(error) => return Err(refused_for(error, "create", &key)),
        }
    }
    Err(Error::Changing(format!("{KIND}/{name}")))
}

async fn get(cluster: &Cluster, key: &ObjectKey) -> Result<Option<IPBlock>, Error> {
    optional(cluster.client.get(key).await).map_err(|error| refused_for(error, "get", key))
}

async fn change(
    cluster: &Cluster,
    mut present: IPBlock,
    wanted: &Wanted,
    how: How,
) -> Result<Written, Error> {
    let key = ObjectKey::of(&present);
    let shown = format!("{KIND}/{}", key.name);
    for _ in 0..ATTEMPTS {
        if !is_for(&present, wanted) {
            return Err(Error::NameTaken {
                block: shown,
                target: wanted.target,
                other: present.spec.ip,
            });
        }
        if present.is_deleting() {
            return Err(Error::Deleting(shown));
        }
        let change = wanted.change(&present, how, cluster.now());
        let (spec, annotations) = match &change {
            // The ban of an alert is one that was asked for by hand, too: the end of the alert does not lift it.
            Change::None(_) if present.annotation(ALERTS).is_some() => {
                (json!({}), json!({ ALERTS: null, RESOLVED: null }))
            }
            Change::None(why) => return Ok(Written::Unchanged(present, why.clone())),
            Change::Extend(spec, _) => (spec.clone(), json!({ ALERTS: null, RESOLVED: null })),
            // The ban is not the one of the alert any more.
            Change::Trigger(spec) => {
                let annotations = json!({ ALERTS: null, ALERT_ANNOTATION: null, RESOLVED: null });
                (spec.clone(), annotations)
            }
        };
        let patch = Patch::merge(json!({
            "metadata": {
                "resourceVersion": present.metadata.resource_version,
                "annotations": annotations,
            },
            "spec": spec,
        }));
        let blocks = cluster.client.objects::<IPBlock>();
        match blocks.patch_with(&key, options(how), patch).await {
            Ok(block) => {
                return Ok(match change {
                    Change::Extend(_, until) => Written::Extended(block, until),
                    Change::Trigger(_) => Written::Triggered(block),
                    Change::None(why) => {
                        let why = format!("{why}; the end of its alert does not lift it any more");
                        Written::Unchanged(block, why)
                    }
                });
            }
            Err(error) if error.is_conflict() => match get(cluster, &key).await? {
                Some(block) => present = block,
                None => return Err(Error::Changing(shown)),
            },
            Err(error) => return Err(refused_for(error, "patch", &key)),
        }
    }
    Err(Error::Changing(shown))
}

fn options(how: How) -> WriteOptions {
    if how.dry_run {
        WriteOptions::new().dry_run()
    } else {
        WriteOptions::new()
    }
}

fn is_for(block: &IPBlock, wanted: &Wanted) -> bool {
    block.spec.ip.trim().parse() == Ok(wanted.target)
}
