//! Blocks of which the cache has an old copy when this process begins to lead.
//!
//! The cache may be behind the former leader's writes, for as long as its watch fails. By an old copy, a ban that was
//! lifted is asserted again, and the lift of another block leaves the address to it. The newer copy mends that, unless this
//! process ends before: then no record names the ban. So a leader compares its cache with the API server once. A block
//! whose copy is old waits for the new one, and so do blocks that overlap with it. A block that the cache lacks altogether
//! makes none wait: a lift of another one may open its address until the cache has it.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use kube_core::params::ListParams;
use parking_lot::Mutex;
use reeve_controller::cache::{Lister, ReadError};
use reeve_controller::client::ResourceVersion;
use reeve_controller::{Context, Request, reconcile};
use tokio::time::Instant;

use super::sweep::request_of;
use crate::api::IPBlock;
use crate::decide::targets;
use crate::target::Target;

/// Blocks in a page of their metadata. One takes 15 KB while it is decoded, most of it its managed fields.
const PAGE: u32 = 500;

/// After a list that failed, none is tried for so long.
const PAUSE: Duration = Duration::from_secs(1);

/// How long lists may fail, before a leader decides by the copies that it has: a lift must not wait for a list.
const PATIENCE: Duration = Duration::from_secs(60);

/// The versions that the API server has.
pub(super) struct Listed {
    /// By UID, of which the hash is kept: there may be 100,000.
    versions: HashMap<u64, ResourceVersion>,
    hasher: RandomState,
    /// The version of the list.
    as_of: ResourceVersion,
}

/// Lists that failed: when the first one began, and when the latest one ended.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<Option<(Instant, Option<Instant>)>>);

/// What the cache has to have before a block is decided about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Missing {
    /// This version of the block, or a later one.
    Version(ResourceVersion),
    /// Its deletion.
    Deletion,
}

/// What is known of the copy of a block in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// It was never old, or is new since an earlier look.
    Settled,
    /// It is old.
    Old,
    /// It is new since this look.
    New,
}

/// The blocks that wait for the cache.
#[derive(Debug, Default)]
pub(super) struct Outdated(Mutex<HashMap<Request, Copied>>);

/// The old copy of a block.
#[derive(Debug)]
struct Copied {
    uid: String,
    missing: Missing,
    /// What the block may ban by its new copy, if the old one claims nothing.
    unclaimed: Vec<Target>,
}

// === impl Failures ===

impl Failures {
    /// Waits until the pause after the latest failure is over. Returns until when lists may fail.
    pub(super) async fn pause(&self) -> Instant {
        let tried = *self.0.lock();
        if let Some((_, Some(latest))) = tried {
            tokio::time::sleep_until(latest + PAUSE).await;
        }
        let first = tried.map_or_else(Instant::now, |(first, _)| first);
        self.0.lock().get_or_insert((first, None));
        first + PATIENCE
    }

    /// A list failed. Whether they fail for too long by now.
    pub(super) fn add(&self) -> bool {
        let now = Instant::now();
        let mut tried = self.0.lock();
        let (first, _) = *tried.get_or_insert((now, None));
        *tried = Some((first, Some(now)));
        now - first >= PATIENCE
    }
}

// === impl Listed ===

impl Listed {
    /// Reads the versions, page by page. `None`: the cache has everything that the API server had.
    pub(super) async fn read(
        ctx: &Context,
        namespace: Option<&str>,
    ) -> Result<Option<Self>, reconcile::Error> {
        let lister = ctx.lister::<IPBlock>()?;
        let metadata = ctx.client().metadata::<IPBlock>();
        let mut pages = metadata.pages(namespace, &ListParams::default().limit(PAGE));
        let mut listed = Self::default();
        while let Some(page) = pages.next().await? {
            let as_of = page.metadata.resource_version.unwrap_or_default();
            listed.as_of = ResourceVersion::new(as_of);
            // A change or a bookmark that came since includes all changes before it.
            if reaches(&lister.resource_version(), &listed.as_of) {
                return Ok(None);
            }
            for block in page.items {
                let uid = block.metadata.uid.unwrap_or_default();
                let version = block.metadata.resource_version.unwrap_or_default();
                listed.add(&uid, &version);
            }
        }
        Ok(Some(listed))
    }

    fn add(&mut self, uid: &str, version: &str) {
        let uid = self.hasher.hash_one(uid);
        self.versions.insert(uid, ResourceVersion::new(version));
    }

    /// What the cache lacks of `cached`.
    fn missing(&self, cached: &IPBlock) -> Option<Missing> {
        let (uid, version) = identity(cached);
        match self.versions.get(&self.hasher.hash_one(uid)) {
            Some(listed) => version
                .is_older_than(listed)
                .then(|| Missing::Version(listed.clone())),
            None => reaches(&self.as_of, &version).then_some(Missing::Deletion),
        }
    }
}

impl Default for Listed {
    fn default() -> Self {
        Self {
            versions: HashMap::new(),
            hasher: RandomState::new(),
            as_of: ResourceVersion::default(),
        }
    }
}

// === impl Outdated ===

impl Outdated {
    /// Compares the copy in the cache with the list; `claims`: it claims a ban.
    pub(super) fn compare(&self, listed: &Listed, cached: &IPBlock, claims: bool) {
        if let Some(missing) = listed.missing(cached) {
            let (uid, _) = identity(cached);
            let copied = Copied {
                uid: uid.to_owned(),
                missing,
                unclaimed: if claims { Vec::new() } else { targets(cached) },
            };
            self.0.lock().insert(request_of(cached), copied);
        }
    }

    /// The blocks whose old copies claim nothing and that overlap with one of `wanted`.
    pub(super) fn overlapping(&self, wanted: &[Target]) -> Vec<Request> {
        let outdated = self.0.lock();
        let meets = |copied: &Copied| {
            let mut unclaimed = copied.unclaimed.iter();
            unclaimed.any(|one| wanted.iter().any(|target| target.overlaps(one)))
        };
        let blocks = outdated.iter().filter(|(_, copied)| meets(copied));
        blocks.map(|(request, _)| request.clone()).collect()
    }

    /// How many blocks wait.
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Whether the copy of `request` was found old and is not known to be settled: it is old still, or `settle` was called
    /// with the new one, `None` if the block is gone. No other task sees the new copy before `settle` has returned.
    pub(super) fn look(
        &self,
        lister: &Lister<IPBlock>,
        request: &Request,
        settle: impl FnOnce(Option<&Arc<IPBlock>>),
    ) -> Result<Freshness, ReadError> {
        let mut outdated = self.0.lock();
        let Some(copied) = outdated.get(request) else {
            return Ok(Freshness::Settled);
        };
        match lister.get(request) {
            // It is not the old one, which was decoded. What it claims is not known, so the old claim stays.
            Err(ReadError::View(_)) => {}
            cached => {
                let cached = cached?;
                if copied.missing.lacks(&copied.uid, cached.as_deref()) {
                    return Ok(Freshness::Old);
                }
                settle(cached.as_ref());
            }
        }
        outdated.remove(request);
        Ok(Freshness::New)
    }
}

// === impl Missing ===

impl Missing {
    /// Whether `cached` is still the copy of the block with this UID that lacks it.
    fn lacks(&self, uid: &str, cached: Option<&IPBlock>) -> bool {
        cached.map(identity).is_some_and(|(present, version)| {
            let old = match self {
                Self::Version(listed) => version.is_older_than(listed),
                Self::Deletion => true,
            };
            present == uid && old
        })
    }
}

fn identity(block: &IPBlock) -> (&str, ResourceVersion) {
    let metadata = &block.metadata;
    let version = metadata.resource_version.as_deref().unwrap_or_default();
    (
        metadata.uid.as_deref().unwrap_or_default(),
        ResourceVersion::new(version),
    )
}

/// Whether `version` is known to be `other` or newer.
fn reaches(version: &ResourceVersion, other: &ResourceVersion) -> bool {
    version.compare(other).is_some_and(Ordering::is_ge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::IPBlockSpec;

    fn block(uid: &str, version: &str) -> IPBlock {
        let mut block = IPBlock::new("a", IPBlockSpec::default());
        block.metadata.uid = Some(uid.to_owned());
        block.metadata.resource_version = Some(version.to_owned());
        block
    }

    fn listed(as_of: &str, versions: &[(&str, &str)]) -> Listed {
        let mut listed = Listed {
            as_of: ResourceVersion::new(as_of),
            ..Listed::default()
        };
        for (uid, version) in versions {
            listed.add(uid, version);
        }
        listed
    }

    #[test]
    fn a_copy_is_old_when_the_server_has_a_newer_version_or_none() {
        let listed = listed("20", &[("1", "12"), ("2", "x")]);
        let version = |version| Some(Missing::Version(ResourceVersion::new(version)));
        for (uid, cached, missing) in [
            ("1", "9", version("12")),
            ("1", "12", None),
            ("1", "21", None),
            ("3", "9", Some(Missing::Deletion)),
            ("3", "20", Some(Missing::Deletion)),
            // Created since.
            ("3", "21", None),
            // Without an order nothing is known.
            ("2", "y", None),
            ("3", "y", None),
        ] {
            let found = listed.missing(&block(uid, cached));
            assert_eq!(found, missing, "{uid} {cached}");
        }
    }

    #[test]
    fn a_block_waits_until_the_cache_has_what_it_lacked() {
        let listed = listed("20", &[("1", "12")]);
        for (old, still, new) in [
            (block("1", "9"), block("1", "11"), Some(block("1", "12"))),
            (block("1", "9"), block("1", "9"), Some(block("4", "10"))),
            (block("1", "9"), block("1", "9"), None),
            (block("3", "9"), block("3", "9"), None),
            (block("3", "9"), block("3", "10"), Some(block("4", "10"))),
        ] {
            let missing = listed.missing(&old).unwrap();
            let (uid, _) = identity(&old);
            assert!(missing.lacks(uid, Some(&still)), "{still:?}");
            assert!(!missing.lacks(uid, new.as_ref()), "{new:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lists_that_fail_have_pauses_and_are_given_up_after_a_minute() {
        let failures = Failures::default();
        let began = Instant::now();
        failures.pause().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        for tried in 1..=60 {
            assert!(!failures.add());
            failures.pause().await;
            assert_eq!(began.elapsed(), PAUSE * tried);
        }
        assert!(failures.add());
    }
}
