//! Requests for many blocks: after a new configuration, and after the wall clock was set.

use std::sync::Arc;
use std::time::Duration;

use reeve_controller::cache::{Lister, ReadError};
use reeve_controller::source::{SendError, Sender, Wanted};
use reeve_controller::{Context, Request, reconcile};
use reeve_workqueue::LOW_PRIORITY;

use crate::api::{IPBlock, Phase};
use crate::config::Config;
use crate::decide::{self, run::DUE_FIRST};
use crate::policy::Policy;
use crate::prefix::Prefixes;
use crate::target::Target;

/// Blocks that are decoded at the same time. Few in tests, so that changes come between the pages.
const PAGE: usize = if cfg!(test) { 3 } else { 256 };

/// The blocks of a cache in the order of their keys, some at a time. The cache keeps blocks as their JSON, a third of the
/// size: all of them decoded at once would take the difference.
pub(crate) struct Pages {
    lister: Lister<IPBlock>,
    after: Option<Request>,
}

/// The blocks that a new configuration is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Affected {
    /// Every one: the configuration was edited. The first one too, for blocks may have been decided about while there was
    /// none.
    All,
    /// Those that meet one of these ranges: the gateway's name resolves to others, the cluster has others, or an entry of
    /// the allowlist ended.
    Meeting(Prefixes<()>),
}

// === impl Pages ===

impl Pages {
    /// From the first block on.
    pub(crate) fn new(lister: Lister<IPBlock>) -> Self {
        Self {
            lister,
            after: None,
        }
    }

    /// The next blocks; none at the end.
    pub(crate) fn next(&mut self) -> Result<Vec<Arc<IPBlock>>, ReadError> {
        let after = self.after.as_ref().map(Request::as_ref);
        let page = self.lister.list_range(None, after, PAGE)?;
        if let Some(last) = page.last() {
            self.after = Some(request_of(last));
        }
        Ok(page)
    }

    /// Lets other tasks go on between two pages. In tests a millisecond passes, so that what is due comes between them, too.
    pub(crate) async fn pause() {
        if cfg!(test) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
}

// === impl Affected ===

impl Affected {
    /// Those that meet a range which only one of the two policies has, beside the configured rules.
    pub(crate) fn meeting(before: &Policy, after: &Policy) -> Self {
        let resolved = between(&before.resolved, &after.resolved);
        let discovered = between(&before.discovered, &after.discovered);
        let allowed = between(&before.allowlist, &after.allowlist);
        Self::Meeting(resolved.chain(discovered).chain(allowed).collect())
    }

    /// Queues them. A ban that `config` refuses is lifted before new ones are made; the others wait behind changes of
    /// objects.
    pub(super) async fn queue(
        &self,
        ctx: &Context,
        config: &Config,
        blocks: &Sender<Request>,
    ) -> Result<(), reconcile::Error> {
        if self.is_none() {
            return Ok(());
        }
        let mut pages = Pages::new(ctx.lister::<IPBlock>()?);
        loop {
            let page = match pages.next() {
                // Each is requested when the cache is filled.
                Err(ReadError::NotSynced { .. }) => Vec::new(),
                read => read?,
            };
            if page.is_empty() {
                return Ok(());
            }
            for block in page {
                let targets = decide::targets(&block);
                if self.has(&targets) {
                    let priority = priority(&block, &targets, &config.policy);
                    blocks
                        .send(Wanted::with_priority(request_of(&block), priority))
                        .await?;
                }
            }
            // Few of many blocks may be affected, and then nothing waits.
            Pages::pause().await;
        }
    }

    /// Whether the configuration is about no block at all.
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::Meeting(ranges) if ranges.is_empty())
    }

    /// Whether it is about a block, or an entry of a list, with one of `targets`.
    pub(crate) fn has(&self, targets: &[Target]) -> bool {
        match self {
            Self::All => true,
            Self::Meeting(ranges) => {
                let mut targets = targets.iter();
                targets.any(|target| ranges.meeting(target).is_some())
            }
        }
    }
}

/// The ranges that only one of two sets has.
fn between<'a, T>(
    before: &'a Prefixes<T>,
    after: &'a Prefixes<T>,
) -> impl Iterator<Item = Target> + 'a {
    let gone = before.iter().map(|(target, _)| target);
    let gone = gone.filter(|target| after.get(target).is_none());
    let new = after.iter().map(|(target, _)| target);
    gone.chain(new.filter(|target| before.get(target).is_none()))
}

fn priority(block: &IPBlock, targets: &[Target], policy: &Policy) -> i32 {
    let status = block.status.as_ref();
    let stands = status.is_some_and(|status| status.is(&Phase::Active));
    let refused = |target| policy.refusal(target).is_some();
    if stands && targets.iter().any(refused) {
        DUE_FIRST
    } else {
        LOW_PRIORITY
    }
}

/// Requests every block of the cache behind all other work. A block that is not cached yet is requested when it is.
pub(crate) async fn request_all(
    lister: Lister<IPBlock>,
    blocks: &Sender<Request>,
) -> Result<(), SendError> {
    let mut pages = Pages::new(lister);
    while let Ok(page) = pages.next() {
        if page.is_empty() {
            break;
        }
        for block in page {
            let wanted = Wanted::with_priority(request_of(&block), LOW_PRIORITY);
            blocks.send(wanted).await?;
        }
    }
    Ok(())
}

pub(crate) fn request_of(block: &IPBlock) -> Request {
    Request::namespaced(
        block.metadata.namespace.as_deref().unwrap_or_default(),
        block.metadata.name.as_deref().unwrap_or_default(),
    )
}

/// The request for a block by its key, `namespace/name`.
pub(super) fn request_named(key: &str) -> Option<Request> {
    let (namespace, name) = key.split_once('/')?;
    Some(Request::namespaced(namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Protected;

    fn policy(addresses: &[&str]) -> Policy {
        let resolved = addresses.iter().map(|address| Protected {
            target: address.parse().unwrap(),
            what: "the gateway".into(),
        });
        Policy {
            resolved: resolved.collect(),
            ..Policy::default()
        }
    }

    #[test]
    fn other_addresses_of_the_gateway_are_about_blocks_that_meet_them_and_no_others() {
        let before = policy(&["192.0.2.1", "192.0.2.2"]);
        let after = policy(&["192.0.2.2", "192.0.2.3"]);
        let affected = Affected::meeting(&before, &after);
        for (target, expected) in [
            ("192.0.2.1", true),
            ("192.0.2.2", false),
            ("192.0.2.3", true),
            ("192.0.2.0/24", true),
            ("64:ff9b::192.0.2.3", true),
            ("198.51.100.1", false),
        ] {
            let targets = [target.parse().unwrap()];
            assert_eq!(affected.has(&targets), expected, "{target}");
        }
        assert_eq!(
            Affected::meeting(&after, &after),
            Affected::Meeting(Prefixes::new())
        );
    }
}
