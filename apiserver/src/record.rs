//! The log of requests, for tests that assert on what a client sent.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::rbac::Attributes;

/// Requests kept; older ones go.
const KEPT: usize = 10_000;
/// Larger bodies are not kept.
const LARGEST_BODY: usize = 64 * 1024;

/// One request, as it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestRecord {
    /// When it came.
    pub at: Timestamp,
    /// `get`, `list`, `watch`, `create`, …; of paths that are no resources the method in lower case.
    pub verb: String,
    /// The path.
    pub path: String,
    /// The query, as sent.
    pub query: String,
    /// API group; empty for core.
    pub group: String,
    /// Plural resource; empty for paths that are no resources.
    pub resource: String,
    /// Namespace; empty for none.
    pub namespace: String,
    /// Name; empty for collections.
    pub name: String,
    /// Subresource; empty for none.
    pub subresource: String,
    /// Who asked.
    pub user: String,
    /// `User-Agent`.
    pub agent: String,
    /// The body's bytes; empty for none, and for one above 64 KiB.
    pub body: bytes::Bytes,
    /// The status code; 0 when the connection was broken instead.
    pub code: u16,
}

/// The newest requests. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Record(Arc<Mutex<VecDeque<RequestRecord>>>);

// === impl RequestRecord ===

impl RequestRecord {
    /// A request that was not answered yet.
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
    /// The requests answered so far, oldest first; at most 10,000. A watch is in it from its start.
    #[must_use]
    pub fn all(&self) -> Vec<RequestRecord> {
        self.0.lock().iter().cloned().collect()
    }

    /// Requests with this verb for this resource.
    #[must_use]
    pub fn count(&self, verb: &str, resource: &str) -> usize {
        let requests = self.0.lock();
        requests
            .iter()
            .filter(|request| request.verb == verb && request.resource == resource)
            .count()
    }

    /// Forgets what was recorded.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    pub(crate) fn push(&self, mut request: RequestRecord) {
        if request.body.len() > LARGEST_BODY {
            request.body = bytes::Bytes::new();
        }
        let mut requests = self.0.lock();
        if requests.len() == KEPT {
            requests.pop_front();
        }
        requests.push_back(request);
    }
}
