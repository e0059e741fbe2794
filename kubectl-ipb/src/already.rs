//! Blocks of other names that ban a target already: a second block would only have to be lifted, too.

use ipblock_operator::api::{IPBlock, IPBlockStatus, Phase};
use ipblock_operator::target::Target;
use ipblock_operator::why::{Entry, moment};
use jiff::Timestamp;

use crate::cluster::Cluster;
use crate::error::Error;
use crate::print::note;

/// What was found of one target.
#[derive(Debug, Default)]
struct Found {
    /// The block with the name that `ban` gives bans it.
    own: bool,
    /// The block of another name whose ban lasts longest.
    other: Option<IPBlock>,
}

// === impl Found ===

impl Found {
    /// Takes note of `block`, if it bans `target` at `now`. `own` is the namespace and the name that `ban` gives.
    fn add(&mut self, block: IPBlock, target: Target, own: (&str, &str), now: Timestamp) {
        if Entry::of(&block).is_none_or(|entry| entry.target != target) || !bans(&block, now) {
            return;
        }
        let name = block.metadata.name.as_deref();
        if (block.metadata.namespace.as_deref(), name) == (Some(own.0), Some(own.1)) {
            self.own = true;
            return;
        }
        let longer = self.other.as_ref().is_none_or(|known| {
            let (known, end) = (end(known), end(&block));
            known.is_some_and(|known| end.is_none_or(|end| end > known))
        });
        if longer {
            self.other = Some(block);
        }
    }
}

/// The block of another name that bans `target` already, unless the block with the name that `ban` gives does, too. Without
/// the right to list blocks there is a note, and no answer.
pub(crate) async fn other(cluster: &Cluster, target: Target) -> Result<Option<IPBlock>, Error> {
    let (name, now) = (target.object_name(), cluster.now());
    let own = (cluster.namespace.as_str(), name.as_str());
    let found = cluster
        .fold_everywhere(|found: &mut Found, block| found.add(block, target, own, now))
        .await;
    match found {
        Ok((found, _)) => Ok(found.other.filter(|_| !found.own)),
        Err(error) if error.is_forbidden() => {
            note(
                "note: other blocks are not looked at; the right to list ipblocks.ops.yiiong.top is missing",
            );
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Why no block is made for `target`, which `block` bans.
pub(crate) fn why(block: &IPBlock, target: Target, now: Timestamp) -> String {
    let until = match end(block) {
        Some(end) => format!("until {}", moment(end, now)),
        None => "without end".to_owned(),
    };
    format!(
        "{target} is banned by {} {until} already; --force makes a second block",
        block.key()
    )
}

fn end(block: &IPBlock) -> Option<Timestamp> {
    block.status.as_ref().and_then(IPBlockStatus::expires_at)
}

/// Whether its ban stands, and is not about to be lifted.
fn bans(block: &IPBlock, now: Timestamp) -> bool {
    let active = block
        .status
        .as_ref()
        .is_some_and(|it| it.is(&Phase::Active));
    let ends = block.is_deleting() || block.spec.unblock == Some(true) || block.is_overdue(now);
    active && !ends
}

#[cfg(test)]
mod tests {
    use ipblock_operator::api::IPBlockSpec;

    use super::*;

    const OWN: (&str, &str) = ("default", "own");

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn block(name: &str, ip: &str, end: Option<&str>) -> IPBlock {
        let spec = IPBlockSpec {
            ip: ip.into(),
            ..IPBlockSpec::default()
        };
        let mut block = IPBlock::new(name, spec);
        block.metadata.namespace = Some("default".into());
        block.status = Some(IPBlockStatus {
            phase: Some(Phase::Active),
            blocked_at: Some("2026-01-01T11:00:00Z".into()),
            expires_at: end.map(str::to_owned),
            ..IPBlockStatus::default()
        });
        block
    }

    fn found(blocks: impl IntoIterator<Item = IPBlock>) -> Found {
        let mut found = Found::default();
        let target = "192.0.2.7".parse().unwrap();
        for block in blocks {
            found.add(block, target, OWN, now());
        }
        found
    }

    #[test]
    fn only_a_ban_of_the_same_target_that_stays_counts() {
        let stands = block("edge", "192.0.2.7/32", None);
        assert!(found([stands.clone()]).other.is_some());
        let mut unblocked = stands.clone();
        unblocked.spec.unblock = Some(true);
        let mut failed = stands;
        failed.status.as_mut().unwrap().phase = Some(Phase::Failed);
        for over in [
            unblocked,
            failed,
            block("range", "192.0.2.0/24", None),
            block("due", "192.0.2.7", Some("2026-01-01T12:00:00Z")),
        ] {
            assert!(found([over.clone()]).other.is_none(), "{over:?}");
        }
    }

    #[test]
    fn the_ban_that_lasts_longest_is_named_and_the_own_block_is_none_of_the_others() {
        let soon = block("soon", "192.0.2.7", Some("2026-01-01T12:10:00Z"));
        let late = block("late", "192.0.2.7", Some("2026-01-01T13:00:00Z"));
        let endless = block("endless", "192.0.2.7", None);
        let target = "192.0.2.7".parse().unwrap();
        for (blocks, expected) in [
            (
                [soon.clone(), late.clone()],
                "default/late until 2026-01-01T13:00:00Z (in 1h)",
            ),
            ([late, soon.clone()], "default/late until"),
            (
                [endless.clone(), soon.clone()],
                "default/endless without end",
            ),
            ([soon, endless], "default/endless without end"),
        ] {
            let found = found(blocks).other.unwrap();
            let text = why(&found, target, now());
            assert!(text.contains(expected), "{text}");
        }
        let own = found([block(OWN.1, "192.0.2.7", None)]);
        assert!(own.own && own.other.is_none(), "{own:?}");
    }
}
