//! The alerts of requests that could not be carried out whole.
//!
//! Their sender repeats all of them. Without this memory each try would begin with the first alert again, and a group
//! that takes longer than one request would never be done.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::alerts::{MOST_ALERTS, Wanted};
use crate::target::Target;

/// How long an alert counts as carried out: as long as a large group may take, and shorter than most bans.
const WINDOW: Duration = Duration::from_secs(180);

/// The alerts that were carried out of requests that were not, each for three minutes.
#[derive(Debug, Default)]
pub(super) struct Unfinished(Mutex<Done>);

#[derive(Debug, Default)]
struct Done {
    /// How many alerts there are.
    count: usize,
    /// Until when each counts as carried out.
    alerts: HashMap<Target, HashMap<Mark, Instant>>,
}

/// An alert, with its duration.
type Mark = (String, Option<String>);

// === impl Unfinished ===

impl Unfinished {
    /// Remembers `done`, which were carried out of a request that was not.
    pub(super) fn remember<'a>(&self, done: impl Iterator<Item = &'a Wanted>) {
        let now = Instant::now();
        let mut known = self.0.lock();
        known.drop_old(now);
        for ban in done {
            // A group of another sender may come between.
            if known.count == 2 * MOST_ALERTS {
                *known = Done::default();
            }
            let alerts = known.alerts.entry(ban.target).or_default();
            let is_new = alerts.insert(mark(ban), now + WINDOW).is_none();
            known.count += usize::from(is_new);
        }
    }

    /// Whether `ban` was carried out, with the same duration.
    pub(super) fn has(&self, ban: &Wanted) -> bool {
        let known = self.0.lock();
        let alerts = known.alerts.get(&ban.target);
        let until = alerts.and_then(|alerts| alerts.get(&mark(ban)));
        until.is_some_and(|until| Instant::now() < *until)
    }

    /// An alert about `target` is over: the next one is news.
    pub(super) fn forget(&self, target: &Target) {
        let mut known = self.0.lock();
        let gone = known.alerts.remove(target);
        known.count -= gone.map_or(0, |alerts| alerts.len());
    }
}

// === impl Done ===

impl Done {
    fn drop_old(&mut self, now: Instant) {
        self.alerts.retain(|_, alerts| {
            alerts.retain(|_, until| now < *until);
            !alerts.is_empty()
        });
        self.count = self.alerts.values().map(HashMap::len).sum();
    }
}

fn mark(ban: &Wanted) -> Mark {
    (ban.alert.clone(), ban.duration.clone())
}

#[cfg(test)]
mod tests {
    use super::super::intake::tests::wanted;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_alert_counts_as_carried_out_for_a_time_of_its_own_and_until_one_is_over() {
        let unfinished = Unfinished::default();
        let (one, two) = (wanted("192.0.2.1", None), wanted("192.0.2.2", None));
        assert!(!unfinished.has(&one));
        unfinished.remember([&one, &two].into_iter());
        assert!(unfinished.has(&one) && unfinished.has(&two));
        assert!(
            !unfinished.has(&wanted("192.0.2.1", Some("2h"))),
            "it asks for more"
        );
        let another = Wanted {
            alert: "another".into(),
            ..one.clone()
        };
        assert!(!unfinished.has(&another));
        unfinished.forget(&one.target);
        assert!(!unfinished.has(&one) && unfinished.has(&two));
        tokio::time::advance(WINDOW - Duration::from_millis(1)).await;
        assert!(unfinished.has(&two), "a question does not prolong it");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!unfinished.has(&two));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded() {
        let unfinished = Unfinished::default();
        let many = (0..3 * MOST_ALERTS).map(|number| Wanted {
            alert: number.to_string(),
            ..wanted("192.0.2.1", None)
        });
        let many: Vec<Wanted> = many.collect();
        unfinished.remember(many.iter());
        let known = many.iter().filter(|ban| unfinished.has(ban)).count();
        assert_eq!(known, MOST_ALERTS);
        assert!(unfinished.has(many.last().unwrap()));
    }
}
