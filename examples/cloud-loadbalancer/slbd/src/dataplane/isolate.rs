//! The search for the sections that HAProxy refuses, so that the others are served.

use super::config::Proxy;
use super::process::Verdict;

/// The most checks of a search before parts that are refused are left out as a whole.
const MOST_CHECKS: usize = 200;

/// A search among sections that HAProxy refuses together. It halves what is refused, so that one bad section of a thousand costs about
/// twenty checks.
#[derive(Debug)]
pub(super) struct Search<'a> {
    /// The parts to check, the next one last.
    parts: Vec<&'a [&'a Proxy]>,
    checks: usize,
    refused: Vec<(&'a Proxy, String)>,
}

// === impl Search ===

impl<'a> Search<'a> {
    pub(super) fn new(proxies: &'a [&'a Proxy]) -> Self {
        Self {
            parts: vec![proxies],
            checks: 0,
            refused: Vec::new(),
        }
    }

    /// The next sections to check. `None` at the end.
    pub(super) fn next(&self) -> Option<&'a [&'a Proxy]> {
        self.parts.last().copied()
    }

    /// Takes the verdict on [`Search::next`].
    pub(super) fn judge(&mut self, verdict: Verdict) {
        let Some(part) = self.parts.pop() else {
            return;
        };
        self.checks += 1;
        let Verdict::Refused(reason) = verdict else {
            return;
        };
        if part.len() > 1 && self.checks < MOST_CHECKS {
            let (first, second) = part.split_at(part.len() / 2);
            self.parts.extend([second, first]);
        } else {
            let refused = part.iter().map(|proxy| (*proxy, reason.clone()));
            self.refused.extend(refused);
        }
    }

    /// The refused sections, each with the reason.
    pub(super) fn refused(self) -> Vec<(&'a Proxy, String)> {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::SocketAddr;

    use super::*;

    /// The refused ports of `count` when HAProxy refuses those of `bad`, and the number of checks.
    fn search(count: u16, bad: impl Fn(u16) -> bool) -> (Vec<u16>, usize) {
        let proxy = |port| Proxy {
            balancer: "lb".to_owned(),
            address: SocketAddr::from(([127, 66, 0, 1], port)),
            text: String::new(),
            files: BTreeMap::new(),
        };
        let all: Vec<Proxy> = (1..=count).map(proxy).collect();
        let all: Vec<&Proxy> = all.iter().collect();
        let mut search = Search::new(&all);
        while let Some(part) = search.next() {
            let is_bad = part.iter().any(|proxy| bad(proxy.address.port()));
            search.judge(match is_bad {
                true => Verdict::Refused("no".to_owned()),
                false => Verdict::Accepted,
            });
        }
        let checks = search.checks;
        let refused = search.refused();
        let ports = refused.iter().map(|(proxy, _)| proxy.address.port());
        (ports.collect(), checks)
    }

    #[test]
    fn exactly_the_refused_sections_are_found() {
        assert!(search(7, |_| false).0.is_empty());
        assert_eq!(search(1, |_| true).0, [1]);
        assert_eq!(search(9, |port| port % 4 == 1).0, [1, 5, 9]);
        let (ports, checks) = search(1000, |port| port == 777);
        assert_eq!(ports, [777]);
        assert!(checks < 25, "{checks} checks");
    }

    #[test]
    fn a_search_has_an_end_when_all_sections_are_refused() {
        let (ports, checks) = search(1000, |_| true);
        assert_eq!(ports.len(), 1000);
        assert!(checks < MOST_CHECKS + 20, "{checks} checks");
    }
}
