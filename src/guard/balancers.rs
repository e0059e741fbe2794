//! Load balancers that have a name and no address: their names are resolved again and again.
//!
//! A name that is not resolved keeps the addresses that it had. Each address counts for an hour after the last answer
//! that named it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use parking_lot::Mutex;
use reeve_controller::ObjectKey;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::names::{Answers, Resolver};
use crate::policy::Protected;
use crate::target::Target;

/// How often a name is resolved.
pub(super) const RESOLVE_AGAIN: Duration = Duration::from_secs(30);

/// Names that are resolved; further ones are a problem that is reported.
const MOST: usize = 100;

/// Names that are resolved at once.
const AT_ONCE: usize = 8;

/// A longer text is no name.
const LONGEST: usize = 253;

/// Any port: only the addresses count.
const PORT: u16 = 443;

/// The names of load balancers.
#[derive(Debug)]
pub(super) struct Balancers {
    resolver: Arc<dyn Resolver>,
    wanted: Mutex<BTreeMap<ObjectKey, Vec<String>>>,
    pub(super) changed: Notify,
    known: tokio::sync::Mutex<BTreeMap<String, Known>>,
}

/// A name that is resolved.
#[derive(Debug, Default)]
struct Known {
    answers: Answers,
    /// When it was resolved last.
    at: Option<Instant>,
    problem: Option<String>,
}

/// What changed, and what is wrong.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    /// The ranges of each name; empty: the name is gone.
    pub(super) ranges: Vec<(String, Vec<Protected>)>,
    pub(super) problem: Option<String>,
}

// === impl Balancers ===

impl Balancers {
    pub(super) fn new(resolver: Arc<dyn Resolver>) -> Self {
        Self {
            resolver,
            wanted: Mutex::default(),
            changed: Notify::new(),
            known: tokio::sync::Mutex::default(),
        }
    }

    /// These are the names of Service `key` from now on.
    pub(super) fn set(&self, key: &ObjectKey, mut names: Vec<String>) {
        names.retain(|name| !name.is_empty() && name.len() <= LONGEST);
        let mut wanted = self.wanted.lock();
        let before = wanted.get(key).map_or(&[][..], Vec::as_slice);
        if before == names {
            return;
        }
        if names.is_empty() {
            wanted.remove(key);
        } else {
            wanted.insert(key.clone(), names);
        }
        self.changed.notify_one();
    }

    /// Forgets the Services that `present` does not have.
    pub(super) fn retain(&self, present: impl Fn(&ObjectKey) -> bool) {
        self.wanted.lock().retain(|key, _| present(key));
        self.changed.notify_one();
    }

    /// Resolves the names that are due.
    pub(super) async fn resolve(&self) -> Resolved {
        let mut known = self.known.lock().await;
        let mut wanted: BTreeMap<String, ObjectKey> = BTreeMap::new();
        for (key, names) in &*self.wanted.lock() {
            for name in names {
                wanted.entry(name.clone()).or_insert_with(|| key.clone());
            }
        }
        let mut resolved = Resolved::default();
        known.retain(|name, _| {
            let stays = wanted.contains_key(name);
            if !stays {
                resolved.ranges.push((name.clone(), Vec::new()));
            }
            stays
        });
        for name in wanted.keys() {
            // Those that are resolved already keep their place.
            if known.len() < MOST {
                known.entry(name.clone()).or_default();
            }
        }
        let now = Instant::now();
        let is_due = |it: &Known| {
            it.at
                .is_none_or(|at| now.duration_since(at) >= RESOLVE_AGAIN)
        };
        let due: Vec<String> = known
            .iter()
            .filter(|(_, it)| is_due(it))
            .map(|(name, _)| name.clone())
            .collect();
        let answers = futures::stream::iter(due).map(|name| async move {
            let answer = self.resolver.resolve(&name, PORT).await;
            (name, answer)
        });
        let answers: Vec<(String, Result<Vec<IpAddr>, String>)> =
            answers.buffer_unordered(AT_ONCE).collect().await;
        for (name, answer) in answers {
            let (Some(known), Some(service)) = (known.get_mut(&name), wanted.get(&name)) else {
                continue;
            };
            known.at = Some(now);
            match answer {
                Ok(addresses) => {
                    known.answers.remember(addresses);
                    known.problem = None;
                }
                Err(error) => {
                    known.problem = Some(format!(
                        "operator cannot resolve {name} of Service {service} to protect its addresses from bans: {error}; name them in protectedRanges"
                    ));
                }
            }
            let ranges = known.answers.addresses().map(|address| Protected {
                target: Target::host(address),
                what: format!("Service {service} ({name})"),
            });
            resolved.ranges.push((name.clone(), ranges.collect()));
        }
        resolved.problem = if wanted.len() > known.len() {
            Some(format!(
                "operator resolves {MOST} names of load balancers, and there are {}; name the addresses of the others in protectedRanges",
                wanted.len()
            ))
        } else {
            known.values().find_map(|known| known.problem.clone())
        };
        resolved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbound::BoxFuture;

    /// One address for every name, or none.
    #[derive(Debug, Default)]
    struct Names {
        address: Mutex<Option<IpAddr>>,
        asked: Mutex<Vec<String>>,
    }

    impl Resolver for Names {
        fn resolve<'a>(
            &'a self,
            host: &'a str,
            _: u16,
        ) -> BoxFuture<'a, Result<Vec<IpAddr>, String>> {
            self.asked.lock().push(host.to_owned());
            let address = self.address.lock().ok_or_else(|| "no such name".to_owned());
            Box::pin(async move { Ok(vec![address?]) })
        }
    }

    fn names(address: &str) -> Arc<Names> {
        Arc::new(Names {
            address: Mutex::new(address.parse().ok()),
            asked: Mutex::default(),
        })
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::namespaced("web", name)
    }

    fn shown(resolved: &Resolved) -> Vec<String> {
        let all = resolved.ranges.iter().flat_map(|(_, ranges)| ranges);
        all.map(|it| format!("{}: {}", it.target, it.what))
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_resolved_at_once_then_every_half_minute_and_keeps_its_last_answer() {
        let resolver = names("198.51.100.7");
        let balancers = Balancers::new(Arc::clone(&resolver) as Arc<dyn Resolver>);
        balancers.set(&key("front"), vec!["lb.example".into()]);
        let first = balancers.resolve().await;
        assert_eq!(
            shown(&first),
            ["198.51.100.7: Service web/front (lb.example)"]
        );
        let early = balancers.resolve().await;
        assert!(early.ranges.is_empty() && early.problem.is_none());
        *resolver.address.lock() = None;
        tokio::time::advance(2 * 60 * RESOLVE_AGAIN).await;
        let failed = balancers.resolve().await;
        assert_eq!(shown(&failed), shown(&first));
        let problem = failed.problem.unwrap();
        assert!(
            problem.contains("lb.example of Service web/front"),
            "{problem}"
        );
        // The problem lasts until the name is resolved.
        assert_eq!(balancers.resolve().await.problem, Some(problem));
        *resolver.address.lock() = "198.51.100.8".parse().ok();
        tokio::time::advance(RESOLVE_AGAIN).await;
        let next = balancers.resolve().await;
        assert_eq!(
            shown(&next),
            ["198.51.100.8: Service web/front (lb.example)"]
        );
        assert!(next.problem.is_none());
        assert_eq!(resolver.asked.lock().len(), 3);
        balancers.set(&key("front"), Vec::new());
        let gone = balancers.resolve().await;
        assert_eq!(gone.ranges, [("lb.example".to_owned(), Vec::new())]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_names_is_bounded_and_those_that_are_resolved_stay() {
        let resolver = names("198.51.100.7");
        let balancers = Balancers::new(Arc::clone(&resolver) as Arc<dyn Resolver>);
        balancers.set(
            &key("z"),
            vec!["z.example".into(), "x".repeat(254), String::new()],
        );
        assert_eq!(balancers.resolve().await.ranges.len(), 1);
        let many = (0..MOST + 20).map(|number| format!("a{number}.example"));
        balancers.set(&key("a"), many.collect());
        let resolved = balancers.resolve().await;
        assert_eq!(resolved.ranges.len(), MOST - 1);
        let problem = resolved.problem.unwrap();
        assert!(problem.contains("resolves 100 names"), "{problem}");
        tokio::time::advance(RESOLVE_AGAIN).await;
        let next = balancers.resolve().await;
        assert_eq!(next.ranges.len(), MOST);
        assert!(next.ranges.iter().any(|(name, _)| name == "z.example"));
        balancers.retain(|key| *key == self::key("z"));
        assert_eq!(balancers.resolve().await.problem, None);
    }
}
