//! `ipblock-operator uninstall`: no finalizer is left when the operator is removed.

mod lists;
mod scale;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::params::{DeleteParams, ListParams};
use reeve_clock::Clock;
use reeve_controller::client::connect;
use reeve_controller::client::location::Location;
use reeve_controller::client::{Error as ClientError, Object, Patch as ClientPatch, optional};
use reeve_controller::metrics::Metrics;
use reeve_controller::options::LogOptions;
use reeve_controller::{Client, Request};

use super::client;
use super::line::{Files, OwnNamespace};
use crate::api::{IPBlock, Phase, Place, RELEASE_ANNOTATION};
use crate::config::{self, CONFIG_MAP, Config, keys};
use crate::decide::{
    Call, Coverage, Patch, recorded_claim, recorded_standings, unfollowed, uninstalled,
};
use crate::engine::{self, GuardSettings};
use crate::mounted::Directory;
use crate::operator::LEASE;
use crate::reconcile::{Engines, Gateways, Record, request_of, status_patch};
use crate::sets::{self, Keeper};

/// How often a lift that failed is tried before the block is reported.
const TRIES: u32 = 5;

/// How often in a row the list of blocks may expire without a block being released.
const EXPIRATIONS: u32 = 5;

/// How long the first restart of an expired list waits; each restart that gets no further waits this much longer.
const LIST_AGAIN: Duration = Duration::from_secs(1);

/// Objects a page of the list.
const PAGE: u32 = 500;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    location: Location,

    #[command(flatten)]
    own: OwnNamespace,

    /// Release the blocks of this namespace only; unset, of every namespace. Set engines are emptied, and the lease and
    /// the record deleted, without it or with --scale-down.
    #[arg(long, value_name = "NAMESPACE")]
    watch_namespace: Option<String>,

    /// What to do with standing bans: lift them, or keep them at the gateway.
    #[arg(long, value_enum, value_name = "WHAT")]
    bans: Bans,

    /// Scale this Deployment of the operator's namespace to zero first, and wait until its Pods have ended. Needs the
    /// rights to patch `deployments/scale` and to list Pods.
    #[arg(long, value_name = "DEPLOYMENT")]
    scale_down: Option<String>,

    /// Allow a gateway on a loopback address.
    #[arg(long, alias = "allow-loopback-gateway")]
    allow_loopback: bool,

    /// Treat an unknown engine in the ConfigMap as xdp, as the original operator does.
    #[arg(long)]
    takeover: bool,

    #[command(flatten)]
    files: Files,

    #[command(flatten)]
    pub(super) log: LogOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Bans {
    /// Every ban is lifted before its block is released.
    Lift,
    /// The gateway keeps what it enforces, and nothing lifts it later.
    Keep,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Client(#[from] connect::Error),
    #[error(transparent)]
    Scale(#[from] scale::Error),
    #[error("the API server: {0}")]
    Api(#[from] ClientError),
    #[error(
        "operator cannot list the blocks to their end: the list expired {EXPIRATIONS} times in a row without a block being released: {0}; check the API server, and run it again"
    )]
    Expired(ClientError),
    #[error(
        "operator cannot release {left} of {all} blocks: the log has the causes; correct them and run it again, or use --bans=keep"
    )]
    Left { left: usize, all: usize },
    #[error(
        "operator cannot empty the set engine {0}: {1}; correct the cause and run it again, or use --bans=keep"
    )]
    Engine(Keeper, sets::Error),
}

pub(super) async fn run(arguments: Arguments) -> Result<(), Error> {
    let kube = client::client(&arguments.location, &Metrics::new()).await?;
    let client = Client::new(kube.clone());
    if let Some(deployment) = &arguments.scale_down {
        let deployment = Request::namespaced(arguments.own.namespace.as_str(), deployment.as_str());
        scale::to_zero(&client, &deployment).await?;
    }
    let record = Record::new(&arguments.own.namespace);
    let config = configuration(&client, &record, &arguments).await?;
    let engines = Engines::new(Arc::new(Gateways {
        allow_loopback: arguments.allow_loopback,
        guard: GuardSettings::default(),
        metrics: engine::Metrics::new(),
    }));
    let mut others = Coverage::default();
    if let (Some(namespace), Bans::Lift) = (&arguments.watch_namespace, arguments.bans) {
        // The bans of blocks in other namespaces stay.
        let place = config.as_ref().and_then(|config| config.place().ok());
        let read = each_block(&client, None, async |block| {
            let (block, _) = record.believe(&Arc::new(block));
            if block.metadata.namespace.as_ref() != Some(namespace)
                && let Some((standing, until)) = recorded_claim(&block, place)
            {
                others.set(&block.key(), standing, until);
            }
            Ok(())
        })
        .await;
        match read {
            // The operator of one namespace has no right to read the others, and did not spare their bans either.
            Err(Error::Api(error)) if error.status().is_some_and(|it| it.code == 403) => {
                tracing::warn!(%error, "the bans of blocks in other namespaces are not known, and lifted where they are of the same address");
            }
            read => read?,
        }
    }
    let work = Work {
        client: &client,
        engines,
        config,
        record: &record,
        others,
        bans: arguments.bans,
        clock: Clock::system(),
    };
    let (all, left) = work
        .let_all_go(arguments.watch_namespace.as_deref())
        .await?;
    tracing::info!(blocks = all, left, bans = ?arguments.bans, "done");
    if left > 0 {
        return Err(Error::Left { left, all });
    }
    // One that watches a namespace goes as a whole, too, if its Deployment ends.
    let goes = arguments.watch_namespace.is_none() || arguments.scale_down.is_some();
    let namespace = arguments.watch_namespace.as_deref();
    match lists::end(&client, namespace, arguments.bans).await {
        Ok(lists::Ended { deleted, left: 0 }) => tracing::info!(deleted, "no BlockList is left"),
        Ok(lists::Ended { deleted, left }) => tracing::info!(
            deleted,
            left,
            "BlockLists are left; nothing enforces them now, and a later install does: kubectl get ipbl -A shows them, kubectl delete ipbl --all -n NAMESPACE deletes them"
        ),
        // They hold up nothing, so the command does not fail.
        Err(error) => tracing::warn!(%error, "could not read the BlockLists"),
    }
    if goes {
        if arguments.bans == Bans::Lift {
            empty_engines(kube, &record).await?;
        }
        remove::<Lease>(
            &client,
            &Request::namespaced(arguments.own.namespace, LEASE),
        )
        .await;
        remove::<ConfigMap>(&client, record.key()).await;
    }
    Ok(())
}

/// Empties the set engines that keep objects. Their sets are those of all namespaces that the operator watched.
async fn empty_engines(client: kube_client::Client, record: &Record) -> Result<(), Error> {
    for keeper in record.keepers() {
        let cleared = sets::clear(client.clone(), &keeper).await;
        cleared.map_err(|error| Error::Engine(keeper.clone(), error))?;
        tracing::info!(engine = %keeper, "emptied the set engine");
    }
    Ok(())
}

/// Removes the Lease or the record: the objects that the operator made and no manifest names.
async fn remove<K: Object>(client: &Client, key: &Request) {
    let answer = client.delete::<K>(key, &DeleteParams::default()).await;
    if let Err(error) = answer
        && !error.is_not_found()
    {
        // The object blocks nothing, so the command does not fail.
        tracing::warn!(object = %key, %error, "could not delete an object of the operator");
    }
}

/// Every block of `namespace`, or of all namespaces, page by page: no more than a page is decoded at once.
async fn each_block(
    client: &Client,
    namespace: Option<&str>,
    mut visit: impl AsyncFnMut(IPBlock) -> Result<(), Error>,
) -> Result<(), Error> {
    let params = ListParams::default().limit(PAGE);
    let mut pages = client.objects::<IPBlock>().pages(namespace, &params);
    while let Some(page) = pages.next().await? {
        for block in page.items {
            visit(block).await?;
        }
    }
    Ok(())
}

/// The configuration of the gateway, from the ConfigMap or else from the last one that was right.
async fn configuration(
    client: &Client,
    record: &Record,
    arguments: &Arguments,
) -> Result<Option<Config>, Error> {
    let key = Request::namespaced(arguments.own.namespace.as_str(), CONFIG_MAP);
    let map = optional(client.get::<ConfigMap>(&key).await)?;
    let last = record.read(client).await?;
    let options = config::Options {
        allow_loopback: arguments.allow_loopback,
        bearer_over_http: arguments.files.allow_bearer_over_http,
        secrets: Directory::new(&arguments.files.secrets_dir),
        takeover: arguments.takeover,
        ..config::Options::default()
    };
    for mut data in map.and_then(|map| map.data).into_iter().chain(last) {
        data.retain(|key, _| keys::ABOUT_GATEWAY.contains(&key.as_str()));
        match config::parse_first(&data, &options) {
            Ok(config) => {
                record.trust_gateways(&config);
                let keepers = config.engines.iter().filter_map(sets::Definition::keeper);
                record.set_keepers(keepers.collect(), BTreeSet::new());
                return Ok(Some(config));
            }
            Err(errors) => {
                tracing::warn!(configmap = %key, "operator does not use the configuration: {errors}");
            }
        }
    }
    Ok(None)
}

/// What the blocks are released with.
struct Work<'a> {
    client: &'a Client,
    engines: Engines,
    config: Option<Config>,
    /// The gateways that intents are followed to.
    record: &'a Record,
    /// The bans of blocks that are not released.
    others: Coverage,
    bans: Bans,
    clock: Clock,
}

// === impl Work ===

impl Work<'_> {
    /// Releases every block of `namespace`, or of all namespaces. Returns how many there are, and how many could not be
    /// released; each of these is tried once.
    ///
    /// The server drops the state of the first page after some minutes, in which not all bans may be lifted. Then the
    /// list begins again; blocks that are free already cost no call. The list is given up when it expires repeatedly
    /// without getting further.
    async fn let_all_go(&self, namespace: Option<&str>) -> Result<(usize, usize), Error> {
        let mut left = BTreeSet::new();
        let (mut furthest, mut fruitless) = (0, 0);
        loop {
            let (mut all, mut worked) = (0, false);
            let pass = each_block(self.client, namespace, async |block| {
                all += 1;
                let name = block.key();
                if left.contains(&name) {
                    return Ok(());
                }
                worked |= block.is_held();
                if !self.let_go(block).await? {
                    left.insert(name);
                }
                Ok(())
            });
            match pass.await {
                Ok(()) => return Ok((all, left.len())),
                Err(Error::Api(error)) if error.is_expired() => {
                    fruitless = if worked || all > furthest {
                        0
                    } else {
                        fruitless + 1
                    };
                    furthest = furthest.max(all);
                    if fruitless == EXPIRATIONS {
                        return Err(Error::Expired(error));
                    }
                    tracing::info!(
                        blocks = all,
                        "the list of blocks expired; listing them again"
                    );
                    let wait = LIST_AGAIN * (fruitless + 1);
                    tokio::time::sleep(self.clock.random().jitter(wait, 1.0)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the block is free.
    async fn let_go(&self, mut block: IPBlock) -> Result<bool, Error> {
        let name = block.key();
        let key = request_of(&block);
        if self.bans == Bans::Lift {
            let place = self.config.as_ref().and_then(|config| config.place().ok());
            let (believed, _) = self.record.believe(&Arc::new(block.clone()));
            let Some(calls) = lifting(&believed, place, &self.others, &self.clock) else {
                tracing::error!(
                    block = name,
                    "block may be banned, and neither the block nor the ConfigMap names the gateway; correct the ConfigMap"
                );
                return Ok(false);
            };
            for call in &calls {
                if !self.call(&name, call).await {
                    return Ok(false);
                }
            }
            if let Some(standing) = unfollowed(&believed).first() {
                tracing::error!(
                    block = name, target = %standing.target, place = %standing.place,
                    "operator does not call the gateway of the block's intent: it was never configured; add it to formerGateways, or release the block with the annotation {RELEASE_ANNOTATION}"
                );
                return Ok(false);
            }
            let active = block
                .status
                .as_ref()
                .is_some_and(|status| status.is(&Phase::Active));
            // A ban at a withdrawn gateway ends without a call.
            if (active || !calls.is_empty()) && !block.is_deleting() {
                let status = uninstalled(&block, self.clock.now());
                let body = ClientPatch::merge(status_patch(&block, &status));
                let answer = self.client.patch_status::<IPBlock>(&key, body).await;
                match written(&name, answer)? {
                    Written::Done(fresh) => block = *fresh,
                    Written::Gone => return Ok(true),
                    Written::Conflict => return Ok(false),
                }
            }
        }
        if !block.is_held() {
            return Ok(true);
        }
        let patch = Patch {
            finalizer: Some(false),
            // To a later install the intent would be a ban whose outcome is unknown.
            intent: (self.bans == Bans::Lift).then_some(None),
            ..Patch::default()
        };
        let body = ClientPatch::merge(patch.to_merge_patch(&block));
        let answer = self.client.patch::<IPBlock>(&key, body).await;
        Ok(match written(&name, answer)? {
            Written::Done(_) => {
                tracing::info!(block = name, "released the block");
                true
            }
            Written::Gone => true,
            Written::Conflict => false,
        })
    }

    /// Whether the engine of `call` succeeds, in at most [`TRIES`] tries.
    async fn call(&self, name: &str, call: &Call) -> bool {
        let config = self.config.as_ref();
        let configured = config.and_then(|config| config.engine.as_ref().ok());
        let mut wait = Duration::from_millis(200);
        for _ in 1..TRIES {
            if self.engines.call(call, configured).await.is_ok() {
                return true;
            }
            tokio::time::sleep(self.clock.random().jitter(wait, 1.0)).await;
            wait *= 2;
        }
        let last = self.engines.call(call, configured).await;
        if let Err(failure) = &last {
            let target = &call.standing.target;
            tracing::error!(block = name, %target, "could not lift the ban: {}", failure.message);
        }
        last.is_ok()
    }
}

/// The outcome of a write.
enum Written {
    Done(Box<IPBlock>),
    Gone,
    Conflict,
}

fn written(name: &str, answer: Result<IPBlock, ClientError>) -> Result<Written, Error> {
    match answer {
        Ok(fresh) => Ok(Written::Done(Box::new(fresh))),
        Err(error) if error.is_not_found() => Ok(Written::Gone),
        Err(error) if error.is_conflict() => {
            tracing::error!(
                block = name,
                "another client changed the block; if the operator still runs, scale it to zero"
            );
            Ok(Written::Conflict)
        }
        Err(error) => Err(error.into()),
    }
}

/// The calls that lift what may be enforced for `block`, or assert what the blocks of `others` still require of it;
/// `None` when no record names a gateway.
fn lifting(
    block: &IPBlock,
    place: Option<&Place>,
    others: &Coverage,
    clock: &Clock,
) -> Option<Vec<Call>> {
    let key = block.key();
    let calls = recorded_standings(block, place)?
        .iter()
        .map(|standing| {
            let neighbours = others.neighbours(&[standing.target], &key);
            Call::lift(standing, &neighbours, clock.now())
        })
        .collect();
    Some(calls)
}

#[cfg(test)]
mod tests;
