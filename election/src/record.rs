//! The election record of a Lease, its local observation, and the decision over both. No I/O.
//!
//! Another holder's lease is judged only by the time when *this process* saw it change, never by the times written in
//! it. So skewed clocks are harmless; only a difference in clock *rate* of LeaseDuration to RenewDeadline is not
//! (client-go: package leaderelection).

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// The election record of a Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// The identity of the holder; empty when there is none.
    pub(crate) holder: String,
    /// How long the other candidates wait after the last change they saw.
    pub(crate) duration: Duration,
    /// When the holder took it.
    pub(crate) acquired: Option<Timestamp>,
    /// When the holder last renewed it.
    pub(crate) renewed: Option<Timestamp>,
    /// Number of changes of the holder.
    pub(crate) transitions: i32,
}

/// A record, and the time when this process first saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) record: Record,
    /// On the clock that counts suspend.
    pub(crate) at: Duration,
}

/// The next step for the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// There is no lease: create it with this record.
    Create(Record),
    /// Write this record over the one that was read.
    Update(Record),
    /// Another process holds it.
    Held { holder: String },
}

// === impl Record ===

impl Record {
    pub(crate) fn of(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = spec.lease_duration_seconds.unwrap_or(0);
        Self {
            holder: spec.holder_identity.unwrap_or_default(),
            duration: Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
            acquired: spec.acquire_time.map(|time| time.0),
            renewed: spec.renew_time.map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or(0),
        }
    }

    /// Writes the record into `lease`, keeping all other fields.
    pub(crate) fn apply(&self, lease: &mut Lease) {
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.holder.clone());
        spec.lease_duration_seconds =
            Some(i32::try_from(self.duration.as_secs()).unwrap_or(i32::MAX));
        spec.acquire_time = self.acquired.map(MicroTime);
        spec.renew_time = self.renewed.map(MicroTime);
        spec.lease_transitions = Some(self.transitions);
    }

    /// The record after a release: no holder, for one second (client-go: `LeaderElector.release`).
    pub(crate) fn released(&self, now: Timestamp) -> Self {
        Self {
            holder: String::new(),
            duration: Duration::from_secs(1),
            acquired: Some(now),
            renewed: Some(now),
            transitions: self.transitions,
        }
    }
}

// === impl Observed ===

impl Observed {
    /// Records `record` as read at `now`. Returns whether it changed; the time is updated only then.
    pub(crate) fn update(current: &mut Option<Self>, record: Record, now: Duration) -> bool {
        let changed = current.as_ref().is_none_or(|seen| seen.record != record);
        if changed {
            *current = Some(Self { record, at: now });
        }
        changed
    }

    /// Time for which the holder must still be respected.
    pub(crate) fn remaining(&self, now: Duration) -> Duration {
        self.at
            .saturating_add(self.record.duration)
            .saturating_sub(now)
    }
}

/// The decision of `identity` about the `observed` lease (client-go: `tryAcquireOrRenew`), which `exists` or not.
///
/// Unlike client-go, a lease that was seen held and then deleted is respected for as long as an existing one: its
/// holder may not have noticed the deletion yet.
pub(crate) fn decide(
    exists: bool,
    observed: Option<&Observed>,
    identity: &str,
    duration: Duration,
    wall: Timestamp,
    now: Duration,
) -> Decision {
    let ours = |acquired, transitions| Record {
        holder: identity.to_owned(),
        duration,
        acquired: Some(acquired),
        renewed: Some(wall),
        transitions,
    };
    let Some(observed) = observed else {
        return Decision::Create(ours(wall, 0));
    };
    let record = &observed.record;
    let another = !record.holder.is_empty() && record.holder != identity;
    if another && !observed.remaining(now).is_zero() {
        let holder = record.holder.clone();
        return Decision::Held { holder };
    }
    if !exists {
        return Decision::Create(ours(wall, 0));
    }
    if record.holder == identity {
        return Decision::Update(ours(record.acquired.unwrap_or(wall), record.transitions));
    }
    Decision::Update(ours(wall, record.transitions.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURATION: Duration = Duration::from_secs(10);

    fn wall() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn before() -> Timestamp {
        "2025-12-31T23:59:00Z".parse().unwrap()
    }

    fn held(holder: &str, seconds: u64, seen_ago: u64) -> Option<Observed> {
        Some(Observed {
            record: Record {
                holder: holder.into(),
                duration: Duration::from_secs(seconds),
                acquired: Some(before()),
                renewed: Some(before()),
                transitions: 4,
            },
            at: Duration::from_secs(1000 - seen_ago),
        })
    }

    /// The eight states of client-go's `TestTryAcquireOrRenewLeases`.
    #[test]
    fn the_eight_states_of_a_lease() {
        let ours = |acquired, transitions| Record {
            holder: "baz".into(),
            duration: DURATION,
            acquired: Some(acquired),
            renewed: Some(wall()),
            transitions,
        };
        let blank = Some(Observed {
            record: Record::default(),
            at: Duration::from_secs(1000),
        });
        for (case, observed, expected) in [
            ("no object", None, Decision::Create(ours(wall(), 0))),
            (
                "object without a record",
                blank,
                Decision::Update(ours(wall(), 1)),
            ),
            (
                "led, but past the duration in the record",
                held("bing", 3, 4),
                Decision::Update(ours(wall(), 5)),
            ),
            (
                "unled, seen long ago",
                held("", 10, 600),
                Decision::Update(ours(wall(), 5)),
            ),
            (
                "led, seen long ago",
                held("bing", 10, 600),
                Decision::Update(ours(wall(), 5)),
            ),
            (
                "unled, just seen",
                held("", 10, 0),
                Decision::Update(ours(wall(), 5)),
            ),
            (
                "led by another, just seen",
                held("bing", 10, 1),
                Decision::Held {
                    holder: "bing".into(),
                },
            ),
            (
                "led by us",
                held("baz", 10, 1),
                Decision::Update(ours(before(), 4)),
            ),
        ] {
            let decision = decide(
                observed.is_some(),
                observed.as_ref(),
                "baz",
                DURATION,
                wall(),
                Duration::from_secs(1000),
            );
            assert_eq!(decision, expected, "{case}");
        }
    }

    #[test]
    fn a_lease_that_was_deleted_under_its_holder_is_respected_for_its_duration() {
        let decide = |observed: Option<Observed>| {
            decide(
                false,
                observed.as_ref(),
                "baz",
                DURATION,
                wall(),
                Duration::from_secs(1000),
            )
        };
        let holder = "bing".to_owned();
        assert_eq!(decide(held("bing", 10, 9)), Decision::Held { holder });
        for free in [held("bing", 10, 10), held("", 1, 0), held("baz", 10, 0)] {
            assert!(matches!(decide(free), Decision::Create(record) if record.transitions == 0));
        }
    }

    #[test]
    fn reading_the_same_record_again_does_not_prolong_it() {
        let mut observed = held("bing", 10, 8);
        let record = observed.as_ref().unwrap().record.clone();
        Observed::update(&mut observed, record.clone(), Duration::from_secs(1000));
        assert_eq!(observed.as_ref().unwrap().at, Duration::from_secs(992));
        let renewed = Record {
            renewed: Some(wall()),
            ..record
        };
        Observed::update(&mut observed, renewed, Duration::from_secs(1000));
        assert_eq!(observed.unwrap().at, Duration::from_secs(1000));
    }

    #[test]
    fn a_record_survives_the_trip_through_a_lease_with_all_else_in_it() {
        let mut lease = Lease::default();
        lease.metadata.name = Some("lock".into());
        lease.spec = Some(LeaseSpec {
            strategy: Some("OldestEmulationVersion".into()),
            ..LeaseSpec::default()
        });
        let record = held("bing", 15, 0).unwrap().record;
        record.apply(&mut lease);
        assert_eq!(Record::of(&lease), record);
        assert_eq!(
            lease.spec.unwrap().strategy.unwrap(),
            "OldestEmulationVersion"
        );
        assert_eq!(Record::of(&Lease::default()), Record::default());
    }
}
