//! Handlers by path.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::StatusCode;

use super::{Answer, Handler, Request, text};

/// Handlers by path. A path that ends with `/` also takes every path below it; the longest such path decides.
#[derive(Clone, Default)]
pub struct Router(BTreeMap<String, Handler>);

/// The reason why a path was not added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The path has a handler already.
    #[error("there is a handler for {0} already")]
    Taken(String),
    /// The path does not begin with a slash.
    #[error("{0:?} is not a path: it must begin with /")]
    NoPath(String),
}

// === impl Router ===

impl Router {
    /// A router without routes: it answers every request with 404.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Has `handler` answer the requests for `path`.
    ///
    /// # Errors
    /// When the path has a handler, or does not begin with a slash.
    pub fn route<F>(
        self,
        path: impl Into<String>,
        handler: impl Fn(Request) -> F + Send + Sync + 'static,
    ) -> Result<Self, RouteError>
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        self.with(path, Arc::new(move |request| Box::pin(handler(request))))
    }

    /// As [`Router::route`], for a [`Handler`].
    ///
    /// # Errors
    /// When the path has a handler, or does not begin with a slash.
    pub fn with(mut self, path: impl Into<String>, handler: Handler) -> Result<Self, RouteError> {
        let path = path.into();
        if !path.starts_with('/') {
            return Err(RouteError::NoPath(path));
        }
        if self.0.contains_key(&path) {
            return Err(RouteError::Taken(path));
        }
        self.0.insert(path, handler);
        Ok(self)
    }

    /// The router as one handler.
    #[must_use]
    pub fn into_handler(self) -> Handler {
        Arc::new(move |request| match self.find(request.uri().path()) {
            Some(handler) => handler(request),
            None => {
                let missing = text(StatusCode::NOT_FOUND, "404 page not found\n");
                Box::pin(std::future::ready(missing))
            }
        })
    }

    fn find(&self, path: &str) -> Option<&Handler> {
        let below =
            |(prefix, _): &(&String, &Handler)| prefix.ends_with('/') && path.starts_with(*prefix);
        self.0.get(path).or_else(|| {
            let longest = self
                .0
                .iter()
                .filter(below)
                .max_by_key(|(prefix, _)| prefix.len());
            longest.map(|(_, handler)| handler)
        })
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_for_one_handler_and_a_slash_for_all_below() {
        let handler: Handler = Arc::new(|_| Box::pin(async { text(StatusCode::OK, "") }));
        let add = |router: Router, path: &str| router.with(path, Arc::clone(&handler));
        let router = ["/metrics", "/a/", "/a/b/"]
            .iter()
            .try_fold(Router::new(), |router, path| add(router, path))
            .unwrap();
        for (path, found) in [
            ("/metrics", true),
            ("/metrics/", false),
            ("/metricsandmore", false),
            ("/a", false),
            ("/a/x", true),
            ("/", false),
        ] {
            assert_eq!(router.find(path).is_some(), found, "{path}");
        }
        let below = router.find("/a/b/c").unwrap();
        assert!(Arc::ptr_eq(below, &router.0["/a/b/"]));
        assert_eq!(
            add(router.clone(), "/metrics").unwrap_err(),
            RouteError::Taken("/metrics".into())
        );
        assert_eq!(
            add(router, "metrics").unwrap_err(),
            RouteError::NoPath("metrics".into())
        );
    }
}
