//! The blocks that a new configuration is about.

use reeve_controller::cache::ReadError;
use reeve_controller::source::{Sender, Wanted};
use reeve_controller::{Context, Request, reconcile};
use reeve_workqueue::LOW_PRIORITY;

use super::block::request_of;
use super::pages::Pages;
use crate::api::{IPBlock, Phase};
use crate::config::Config;
use crate::decide::{self, run::DUE_FIRST};
use crate::policy::{Policy, Protected};
use crate::target::Target;

/// Which blocks have to be looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Affected {
    /// Every one: the configuration was edited. The first time too, for blocks may have been looked at while there was
    /// none.
    All,
    /// Those that meet one of these addresses: the gateway's name has others.
    Meeting(Vec<Protected>),
}

// === impl Affected ===

impl Affected {
    /// Those that meet an address which only one of the two policies has for the gateway's name.
    pub(super) fn meeting(before: &Policy, after: &Policy) -> Self {
        let (before, after) = (&before.resolved, &after.resolved);
        let gone = before.iter().filter(|entry| !after.contains(entry));
        let new = after.iter().filter(|entry| !before.contains(entry));
        Self::Meeting(new.chain(gone).cloned().collect())
    }

    /// Queues them. A ban that `config` refuses is lifted before new ones are made; the others wait behind changes of
    /// objects.
    pub(super) async fn queue(
        &self,
        ctx: &Context,
        config: &Config,
        blocks: &Sender<Request>,
    ) -> Result<(), reconcile::Error> {
        if matches!(self, Self::Meeting(addresses) if addresses.is_empty()) {
            return Ok(());
        }
        let mut pages = Pages::new(ctx.lister::<IPBlock>()?);
        loop {
            let page = match pages.next() {
                // Each is looked at when the cache is filled.
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
                    let wanted = Wanted::with_priority(request_of(&block), priority);
                    blocks.send(wanted).await?;
                }
            }
        }
    }

    fn has(&self, targets: &[Target]) -> bool {
        match self {
            Self::All => true,
            Self::Meeting(addresses) => addresses
                .iter()
                .any(|entry| targets.iter().any(|target| entry.meets(target))),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
            Affected::Meeting(Vec::new())
        );
    }
}
