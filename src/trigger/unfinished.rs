//! The alerts of requests that could not be carried out whole.
//!
//! Their sender repeats all of them. Without this memory each try would begin with the first alert again, and a group
//! that takes longer than one request would never be done.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::alerts::{MOST_ALERTS, Wanted};
use crate::target::Target;

/// How long an alert counts as carried out. A sender repeats sooner.
const WINDOW: Duration = Duration::from_secs(60);

/// The alerts that were carried out of requests that were not, for a minute after the last of them.
#[derive(Debug, Default)]
pub(super) struct Unfinished(Mutex<Option<Done>>);

#[derive(Debug)]
struct Done {
    until: Instant,
    /// How many alerts there are.
    count: usize,
    alerts: HashMap<Target, HashSet<(String, Option<String>)>>,
}

// === impl Unfinished ===

impl Unfinished {
    /// Remembers `done`, which were carried out of a request that was not.
    pub(super) fn remember<'a>(&self, done: impl Iterator<Item = &'a Wanted>) {
        let now = Instant::now();
        let mut kept = self.0.lock();
        let known = kept.take().filter(|known| now < known.until);
        let mut known = known.unwrap_or_else(|| Done {
            until: now,
            count: 0,
            alerts: HashMap::new(),
        });
        known.until = now + WINDOW;
        for ban in done {
            // A group of another sender may come between.
            if known.count == 2 * MOST_ALERTS {
                known.alerts.clear();
                known.count = 0;
            }
            let alerts = known.alerts.entry(ban.target).or_default();
            known.count += usize::from(alerts.insert(mark(ban)));
        }
        *kept = Some(known);
    }

    /// Whether `ban` was carried out, with the same duration.
    pub(super) fn has(&self, ban: &Wanted) -> bool {
        let mut kept = self.0.lock();
        let Some(known) = kept.as_ref() else {
            return false;
        };
        if known.until <= Instant::now() {
            *kept = None;
            return false;
        }
        let alerts = known.alerts.get(&ban.target);
        alerts.is_some_and(|alerts| alerts.contains(&mark(ban)))
    }

    /// An alert about `target` is over: the next one is news.
    pub(super) fn forget(&self, target: &Target) {
        if let Some(known) = self.0.lock().as_mut() {
            let gone = known.alerts.remove(target);
            known.count -= gone.map_or(0, |alerts| alerts.len());
        }
    }
}

fn mark(ban: &Wanted) -> (String, Option<String>) {
    (ban.alert.clone(), ban.duration.clone())
}

#[cfg(test)]
mod tests {
    use super::super::intake::tests::wanted;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_alert_counts_as_carried_out_for_a_minute_and_until_one_is_over() {
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
