//! The log of requests, for tests that assert on the requests of a client.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::http::query::Parameters;
use crate::http::route::Target;
use crate::rbac::Attributes;

/// Maximum number of requests; older ones are dropped.
const KEPT: usize = 10_000;
/// Approximate maximum size in bytes; older requests are dropped.
const KEPT_BYTES: usize = 32 * 1024 * 1024;
/// Maximum size of a recorded body.
const LARGEST_BODY: usize = 64 * 1024;

/// One answered request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestRecord {
    /// Time of arrival.
    pub at: Timestamp,
    /// `get`, `list`, `watch`, `create`, …; for paths without resources the method in lower case.
    pub verb: String,
    /// The path.
    pub path: String,
    /// The query, as sent.
    pub query: String,
    /// API group; empty for core.
    pub group: String,
    /// Plural resource; empty for paths without resources.
    pub resource: String,
    /// Namespace; empty for none.
    pub namespace: String,
    /// Name; empty for collections.
    pub name: String,
    /// Subresource; empty for none.
    pub subresource: String,
    /// The user of the request.
    pub user: String,
    /// `User-Agent`.
    pub agent: String,
    /// The body's bytes; empty for none, for one above 64 KiB, and for Secrets.
    pub body: bytes::Bytes,
    /// The status code; 0 when the connection was broken instead.
    pub code: u16,
}

/// The newest requests. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Record(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    kept: Mutex<Kept>,
    /// Changes with each request.
    pushed: watch::Sender<()>,
}

/// The selection of requests; an absent field selects all.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Filter {
    pub(crate) verb: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) resource: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    pub(crate) user: Option<String>,
    /// Part of the `User-Agent`.
    pub(crate) user_agent: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) code: Option<u16>,
}

#[derive(Debug, Default)]
struct Kept {
    requests: VecDeque<RequestRecord>,
    bytes: usize,
    /// The number of requests that were dropped for newer ones.
    dropped: u64,
    /// Whether recording is off.
    off: bool,
}

// === impl RequestRecord ===

impl RequestRecord {
    /// A request without an answer yet.
    pub(crate) fn of(
        head: &http::request::Parts,
        attributes: &Attributes,
        agent: String,
        at: Timestamp,
    ) -> Self {
        Self {
            at,
            verb: attributes.verb.clone(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            group: attributes.group.clone(),
            resource: attributes.resource.clone(),
            namespace: attributes.namespace.clone(),
            name: attributes.name.clone(),
            subresource: attributes.subresource.clone(),
            user: String::new(),
            agent,
            body: bytes::Bytes::new(),
            code: 0,
        }
    }

    /// The attributes that decide whether it is allowed.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        if self.resource.is_empty() {
            // The verb is the method; the path is without a trailing slash, as rules have it.
            let path = match Target::of(&http::Method::GET, &self.path, &Parameters::default()) {
                Target::Other(path) => path,
                Target::Resource(_) => self.path.clone(),
            };
            return Attributes::path(&self.verb, path);
        }
        Attributes::resource(&self.verb, &self.group, &self.resource)
            .in_namespace(&self.namespace)
            .named(&self.name)
            .subresource(&self.subresource)
    }

    /// Whether the filter selects it.
    pub(crate) fn matches(&self, filter: &Filter) -> bool {
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        is(&filter.verb, &self.verb)
            && is(&filter.group, &self.group)
            && is(&filter.resource, &self.resource)
            && is(&filter.namespace, &self.namespace)
            && is(&filter.name, &self.name)
            && is(&filter.subresource, &self.subresource)
            && is(&filter.user, &self.user)
            && is(&filter.path, &self.path)
            && filter.code.is_none_or(|code| code == self.code)
            && filter
                .user_agent
                .as_deref()
                .is_none_or(|part| self.agent.contains(part))
    }

    /// Its approximate size in bytes.
    fn weight(&self) -> usize {
        let texts = [
            &self.verb,
            &self.path,
            &self.query,
            &self.group,
            &self.resource,
            &self.namespace,
            &self.name,
            &self.subresource,
            &self.user,
            &self.agent,
        ];
        let texts: usize = texts.iter().map(|text| text.len()).sum();
        size_of::<Self>() + texts + self.body.len()
    }
}

impl std::fmt::Display for RequestRecord {
    /// `2026-01-01T00:00:05Z list 200 /api/v1/configmaps?limit=500`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {} {}", self.at, self.verb, self.code, self.path)?;
        if !self.query.is_empty() {
            write!(f, "?{}", self.query)?;
        }
        Ok(())
    }
}

// === impl Record ===

impl Record {
    /// The requests answered so far, oldest first; at most 10,000, and about 32 MiB. A watch is included from its start.
    #[must_use]
    pub fn all(&self) -> Vec<RequestRecord> {
        self.0.kept.lock().requests.iter().cloned().collect()
    }

    /// Requests with this verb for this resource.
    #[must_use]
    pub fn count(&self, verb: &str, resource: &str) -> usize {
        let kept = self.0.kept.lock();
        kept.requests
            .iter()
            .filter(|request| request.verb == verb && request.resource == resource)
            .count()
    }

    /// The number of requests that were dropped because newer ones came, since the last [`Record::clear`].
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.kept.lock().dropped
    }

    /// Clears the record.
    pub fn clear(&self) {
        let mut kept = self.0.kept.lock();
        kept.requests.clear();
        kept.bytes = 0;
        kept.dropped = 0;
    }

    /// The number of kept requests that the filter selects, and the newest of them, at most `limit`, oldest first.
    pub(crate) fn select(&self, filter: &Filter, limit: usize) -> (usize, Vec<RequestRecord>) {
        let kept = self.0.kept.lock();
        let selected = || kept.requests.iter().filter(|one| one.matches(filter));
        let count = selected().count();
        let newest = selected().skip(count.saturating_sub(limit));
        (count, newest.cloned().collect())
    }

    /// Returns when at least `count` kept requests are selected.
    pub(crate) async fn reaches(&self, filter: &Filter, count: usize) {
        let mut pushed = self.0.pushed.subscribe();
        while self.select(filter, 0).0 < count {
            // The sender lives as long as this.
            let _ = pushed.changed().await;
        }
    }

    /// Turns recording off.
    pub(crate) fn turn_off(&self) {
        self.0.kept.lock().off = true;
    }

    pub(crate) fn push(&self, mut request: RequestRecord) {
        let mut kept = self.0.kept.lock();
        if kept.off {
            return;
        }
        let secret = (request.group.is_empty() && request.resource == "secrets")
            || request.resource == "tokenreviews";
        if secret || request.body.len() > LARGEST_BODY {
            request.body = bytes::Bytes::new();
        }
        kept.bytes += request.weight();
        kept.requests.push_back(request);
        while (kept.bytes > KEPT_BYTES || kept.requests.len() > KEPT)
            && let Some(oldest) = kept.requests.pop_front()
        {
            kept.bytes = kept.bytes.saturating_sub(oldest.weight());
            kept.dropped += 1;
        }
        drop(kept);
        self.0.pushed.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(resource: &str, body: usize) -> RequestRecord {
        let head = http::Request::new(()).into_parts().0;
        let attributes = Attributes {
            resource: resource.to_owned(),
            ..Attributes::default()
        };
        let mut request =
            RequestRecord::of(&head, &attributes, "test".to_owned(), Timestamp::UNIX_EPOCH);
        request.body = vec![b'x'; body].into();
        request
    }

    #[test]
    fn the_record_is_bounded_in_bytes_and_in_number() {
        let record = Record::default();
        for _ in 0..2_000 {
            record.push(request("configmaps", LARGEST_BODY));
        }
        let bytes: usize = record.all().iter().map(RequestRecord::weight).sum();
        assert!(bytes <= KEPT_BYTES, "{bytes}");
        assert!(bytes > KEPT_BYTES - 2 * LARGEST_BODY, "{bytes}");
        record.clear();
        for _ in 0..=KEPT {
            record.push(request("configmaps", 0));
        }
        assert_eq!((record.all().len(), record.dropped()), (KEPT, 1));
        let bytes: usize = record.all().iter().map(RequestRecord::weight).sum();
        assert_eq!(record.0.kept.lock().bytes, bytes);
    }

    #[test]
    fn the_bodies_of_secrets_are_not_kept() {
        let record = Record::default();
        record.push(request("secrets", 100));
        record.push(request("configmaps", 100));
        let bodies: Vec<usize> = record.all().iter().map(|one| one.body.len()).collect();
        assert_eq!(bodies, [0, 100]);
    }

    #[test]
    fn a_selection_has_the_newest_in_their_order() {
        let record = Record::default();
        for resource in ["pods", "configmaps", "pods", "pods"] {
            record.push(request(resource, record.all().len()));
        }
        let filter = Filter {
            resource: Some("pods".to_owned()),
            user_agent: Some("es".to_owned()),
            ..Filter::default()
        };
        let (count, newest) = record.select(&filter, 2);
        let bodies: Vec<usize> = newest.iter().map(|one| one.body.len()).collect();
        assert_eq!((count, bodies), (3, vec![2, 3]));
        let other = Filter {
            code: Some(200),
            ..filter
        };
        assert_eq!(record.select(&other, 2), (0, Vec::new()));
    }

    #[tokio::test]
    async fn a_wait_ends_with_the_request_that_it_needs() {
        let record = Record::default();
        record.push(request("pods", 0));
        let filter = Filter {
            resource: Some("pods".to_owned()),
            ..Filter::default()
        };
        let waiting = record.clone();
        let wait = tokio::spawn(async move { waiting.reaches(&filter, 2).await });
        for resource in ["configmaps", "pods"] {
            tokio::task::yield_now().await;
            assert!(!wait.is_finished());
            record.push(request(resource, 0));
        }
        wait.await.unwrap();
    }

    #[test]
    fn a_record_that_is_off_keeps_nothing() {
        let record = Record::default();
        record.turn_off();
        record.push(request("configmaps", 1));
        assert!(record.all().is_empty());
    }
}
