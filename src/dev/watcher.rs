//! Follows the blocks of one namespace and prints each transition.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use kube_client::Api;
use kube_client::api::{ListParams, WatchParams};
use kube_core::WatchEvent;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::narrator::Narrator;
use crate::api::IPBlock;

/// The blocks by name, as last seen.
pub(super) type Blocks = BTreeMap<String, Arc<IPBlock>>;

/// Follows blocks while it lives.
#[derive(Debug)]
pub(super) struct Watcher {
    blocks: watch::Receiver<Blocks>,
    _task: AbortOnDropHandle<()>,
}

// === impl Watcher ===

impl Watcher {
    /// Starts to follow, from what there is now.
    pub(super) async fn start(
        api: Api<IPBlock>,
        narrator: Narrator,
    ) -> Result<Self, kube_client::Error> {
        let (sender, blocks) = watch::channel(Blocks::new());
        let version = list(&api, &sender, None).await?;
        let task = tokio::spawn(follow(api, narrator, sender, version));
        Ok(Self {
            blocks,
            _task: AbortOnDropHandle::new(task),
        })
    }

    /// Waits until `condition` holds; `false` when it does not within `limit`.
    pub(super) async fn until(&self, limit: Duration, condition: impl Fn(&Blocks) -> bool) -> bool {
        let mut blocks = self.blocks.clone();
        let waited = tokio::time::timeout(limit, blocks.wait_for(|blocks| condition(blocks))).await;
        matches!(waited, Ok(Ok(_)))
    }

    /// Waits until the block `name` is in `phase`.
    pub(super) async fn phase(&self, name: &str, phase: &str, limit: Duration) -> bool {
        self.until(limit, |blocks| {
            blocks
                .get(name)
                .is_some_and(|block| phase_of(block) == phase)
        })
        .await
    }

    /// The block `name` as last seen.
    pub(super) fn get(&self, name: &str) -> Option<Arc<IPBlock>> {
        self.blocks.borrow().get(name).cloned()
    }
}

async fn follow(
    api: Api<IPBlock>,
    narrator: Narrator,
    sender: watch::Sender<Blocks>,
    mut version: String,
) {
    loop {
        let followed = watch(&api, &narrator, &sender, &mut version).await;
        if let Err(error) = followed {
            tracing::debug!(%error, "the demonstration's watch ended");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        match list(&api, &sender, Some(&narrator)).await {
            Ok(listed) => version = listed,
            Err(error) => tracing::debug!(%error, "the demonstration's list failed"),
        }
    }
}

async fn list(
    api: &Api<IPBlock>,
    sender: &watch::Sender<Blocks>,
    narrator: Option<&Narrator>,
) -> Result<String, kube_client::Error> {
    let list = api.list(&ListParams::default()).await?;
    let version = list.metadata.resource_version.unwrap_or_default();
    let mut listed = Blocks::new();
    for block in list.items {
        listed.insert(name_of(&block), Arc::new(block));
    }
    if let Some(narrator) = narrator {
        let before = sender.borrow().clone();
        for (name, block) in &listed {
            print_transition(narrator, before.get(name), block);
        }
        for name in before.keys().filter(|name| !listed.contains_key(*name)) {
            narrator.happened(&format!("{name}: gone"));
        }
    }
    sender.send_replace(listed);
    Ok(version)
}

async fn watch(
    api: &Api<IPBlock>,
    narrator: &Narrator,
    sender: &watch::Sender<Blocks>,
    version: &mut String,
) -> Result<(), kube_client::Error> {
    let events = api.watch(&WatchParams::default(), version).await?;
    futures::pin_mut!(events);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(block) | WatchEvent::Modified(block) => {
                follow_version(version, &block);
                let name = name_of(&block);
                let before = sender.borrow().get(&name).cloned();
                print_transition(narrator, before.as_ref(), &block);
                sender.send_modify(|blocks| {
                    blocks.insert(name, Arc::new(block));
                });
            }
            WatchEvent::Deleted(block) => {
                follow_version(version, &block);
                let name = name_of(&block);
                narrator.happened(&format!("{name}: gone"));
                sender.send_modify(|blocks| {
                    blocks.remove(&name);
                });
            }
            WatchEvent::Bookmark(bookmark) => {
                *version = bookmark.metadata.resource_version;
            }
            // Too old, or the server is going: list again.
            WatchEvent::Error(_) => return Ok(()),
        }
    }
    Ok(())
}

fn follow_version(version: &mut String, block: &IPBlock) {
    if let Some(seen) = &block.metadata.resource_version {
        version.clone_from(seen);
    }
}

/// Prints the transition of a block.
fn print_transition(narrator: &Narrator, before: Option<&Arc<IPBlock>>, block: &IPBlock) {
    let name = name_of(block);
    let was = before.map(|before| phase_of(before));
    let is = phase_of(block);
    if before.is_none() && is.is_empty() {
        narrator.happened(&format!("{name}: created for {}", block.spec.ip));
        return;
    }
    let message_was = before.and_then(|before| message_of(before));
    let message = message_of(block);
    if was.as_deref() == Some(&*is) && message_was == message {
        return;
    }
    let message = message.unwrap_or_default();
    if was.as_deref() == Some(&*is) {
        narrator.happened(&format!("{name}: still {is}: {message}"));
    } else {
        narrator.happened(&format!("{name}: {is}: {message}"));
    }
}

pub(super) fn phase_of(block: &IPBlock) -> String {
    let phase = block
        .status
        .as_ref()
        .and_then(|status| status.phase.as_ref());
    phase.map(ToString::to_string).unwrap_or_default()
}

pub(super) fn message_of(block: &IPBlock) -> Option<String> {
    block
        .status
        .as_ref()
        .and_then(|status| status.message.clone())
}

fn name_of(block: &IPBlock) -> String {
    block.metadata.name.clone().unwrap_or_default()
}
