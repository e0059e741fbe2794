//! Requests of lists and watches: scope, selection and options.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, ACCEPT_ENCODING};
use http::{HeaderValue, Request};
use kube_client::client::Body;
use kube_core::Resource;

use super::{Encoding, Error};

/// The scope of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The whole cluster: every namespace, or a kind without namespaces.
    #[default]
    Cluster,
    /// One namespace.
    Namespace(Arc<str>),
}

// === impl Scope ===

impl Scope {
    /// One namespace.
    #[must_use]
    pub fn namespace(name: impl Into<Arc<str>>) -> Self {
        Self::Namespace(name.into())
    }

    /// True if it contains `other`.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        *self == Self::Cluster || self == other
    }
}

impl fmt::Display for Scope {
    /// `the whole cluster`, or `namespace n`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("the whole cluster"),
            Self::Namespace(name) => write!(f, "namespace {name}"),
        }
    }
}

/// A selection of objects: selectors in the syntax of kubectl, empty for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Selection {
    /// The scope.
    pub scope: Scope,
    /// A label selector, `app=web,tier!=db`.
    pub labels: String,
    /// A field selector, `metadata.name=x`.
    pub fields: String,
}

/// A kind of object at an API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    group: String,
    version: String,
    kind: String,
    plural: String,
    metadata_only: bool,
}

// === impl Endpoint ===

impl Endpoint {
    /// The endpoint of a type whose kind is known at compile time.
    #[must_use]
    pub fn of<K: Resource>() -> Self
    where
        K::DynamicType: Default,
    {
        Self::for_type::<K>(&K::DynamicType::default())
    }

    /// The endpoint of a type whose kind is known at run time: for a
    /// [`DynamicObject`](kube_core::DynamicObject), its [`ApiResource`](kube_core::ApiResource).
    #[must_use]
    pub fn for_type<K: Resource>(dynamic_type: &K::DynamicType) -> Self {
        Self {
            group: K::group(dynamic_type).into_owned(),
            version: K::version(dynamic_type).into_owned(),
            kind: K::kind(dynamic_type).into_owned(),
            plural: K::plural(dynamic_type).into_owned(),
            metadata_only: K::metadata_api(),
        }
    }

    /// The kind, `ConfigMap`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The resource, `configmaps`.
    #[must_use]
    pub fn plural(&self) -> &str {
        &self.plural
    }

    /// The group, `apps`; empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The version of the group, `v1`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Group and version, `apps/v1`, or `v1` for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// True if requests read metadata only.
    #[must_use]
    pub fn is_metadata_only(&self) -> bool {
        self.metadata_only
    }

    /// The path of the collection.
    #[must_use]
    pub fn path(&self, scope: &Scope) -> String {
        let root = if self.group.is_empty() {
            "/api"
        } else {
            "/apis"
        };
        let place = match scope {
            Scope::Cluster => String::new(),
            Scope::Namespace(namespace) => format!("namespaces/{namespace}/"),
        };
        format!("{root}/{}/{place}{}", self.api_version(), self.plural)
    }

    fn request(
        &self,
        selection: &Selection,
        query: &Query,
        list: bool,
        encoding: Encoding,
    ) -> Result<Request<Body>, Error> {
        let path = self.path(&selection.scope);
        let mut request = Request::get(format!("{path}?{}", query.text)).header(
            ACCEPT,
            HeaderValue::from_static(encoding.accept(self.metadata_only, list)),
        );
        if !list {
            // Decompressors stop at the first member of a stream that is compressed event by event.
            request = request.header(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        let mut request = request
            .body(Body::empty())
            .map_err(|source| Error::Request { path, source })?;
        // The name of kube-client's trace span.
        request
            .extensions_mut()
            .insert(if list { "list" } else { "watch" });
        Ok(request)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plural)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

const NOT_OLDER_THAN: &str = "NotOlderThan";

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListRequest {
    /// The oldest acceptable state, "0" for any; `None` for the newest (a consistent read).
    pub resource_version: Option<String>,
    /// The size of a page; 0 for all at once.
    pub limit: u32,
    /// The token of a later page. The version must be unset then.
    pub continue_token: Option<String>,
}

impl ListRequest {
    /// The HTTP request for it, with an answer in JSON.
    ///
    /// # Errors
    /// [`Error::Request`] if the kind or namespace does not make a path.
    pub fn build(
        &self,
        endpoint: &Endpoint,
        selection: &Selection,
    ) -> Result<Request<Body>, Error> {
        self.build_as(endpoint, selection, Encoding::Json)
    }

    /// The HTTP request for it. [`Encoding::Protobuf`] is preferred to JSON, and the answer may be either.
    ///
    /// # Errors
    /// [`Error::Request`] if the kind or namespace does not make a path.
    pub fn build_as(
        &self,
        endpoint: &Endpoint,
        selection: &Selection,
        encoding: Encoding,
    ) -> Result<Request<Body>, Error> {
        let mut query = Query::of(selection);
        if self.limit > 0 {
            query.add("limit", &self.limit.to_string());
        }
        match (&self.continue_token, &self.resource_version) {
            (Some(token), _) => query.add("continue", token),
            (None, Some(version)) => {
                query.add("resourceVersion", version);
                // With a limit, a version alone means exactly that version, for which nothing newer is shown.
                if self.limit > 0 && version != "0" {
                    query.add("resourceVersionMatch", NOT_OLDER_THAN);
                }
            }
            (None, None) => {}
        }
        endpoint.request(selection, &query, true, encoding)
    }
}

/// A watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// The version after which events are sent; of a streaming list, the oldest acceptable state (empty for
    /// the newest).
    pub resource_version: String,
    /// Whether the existing objects are sent first.
    pub send_initial_events: bool,
    /// Time after which the server ends the watch.
    pub timeout: Duration,
}

impl WatchRequest {
    /// The HTTP request for it, with an answer in JSON.
    ///
    /// # Errors
    /// [`Error::Request`] if the kind or namespace does not make a path.
    pub fn build(
        &self,
        endpoint: &Endpoint,
        selection: &Selection,
    ) -> Result<Request<Body>, Error> {
        self.build_as(endpoint, selection, Encoding::Json)
    }

    /// The HTTP request for it. [`Encoding::Protobuf`] is preferred to JSON, and the answer may be either.
    ///
    /// # Errors
    /// [`Error::Request`] if the kind or namespace does not make a path.
    pub fn build_as(
        &self,
        endpoint: &Endpoint,
        selection: &Selection,
        encoding: Encoding,
    ) -> Result<Request<Body>, Error> {
        let mut query = Query::of(selection);
        query.add("watch", "true");
        query.add("allowWatchBookmarks", "true");
        query.add("timeoutSeconds", &self.timeout.as_secs().to_string());
        if !self.resource_version.is_empty() {
            query.add("resourceVersion", &self.resource_version);
        }
        if self.send_initial_events {
            query.add("sendInitialEvents", "true");
            query.add("resourceVersionMatch", NOT_OLDER_THAN);
        }
        endpoint.request(selection, &query, false, encoding)
    }
}

struct Query {
    text: String,
}

impl Query {
    fn of(selection: &Selection) -> Self {
        let mut query = Self {
            text: String::new(),
        };
        if !selection.labels.is_empty() {
            query.add("labelSelector", &selection.labels);
        }
        if !selection.fields.is_empty() {
            query.add("fieldSelector", &selection.fields);
        }
        query
    }

    fn add(&mut self, name: &str, value: &str) {
        if !self.text.is_empty() {
            self.text.push('&');
        }
        self.text.push_str(name);
        self.text.push('=');
        self.text
            .extend(form_urlencoded::byte_serialize(value.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use kube_core::metadata::PartialObjectMeta;

    use super::*;

    #[test]
    fn paths_are_those_of_the_kind_and_scope() {
        let maps = Endpoint::of::<ConfigMap>();
        assert_eq!(maps.path(&Scope::Cluster), "/api/v1/configmaps");
        assert_eq!(
            maps.path(&Scope::namespace("n")),
            "/api/v1/namespaces/n/configmaps"
        );
        let deployments = Endpoint::of::<Deployment>();
        assert_eq!(
            deployments.path(&Scope::Cluster),
            "/apis/apps/v1/deployments"
        );
        assert_eq!(
            (deployments.to_string(), maps.to_string()),
            ("deployments.apps".into(), "configmaps".into())
        );
    }

    #[test]
    fn version_zero_and_limit_are_both_sent_and_selectors_escaped() {
        let selection = Selection {
            labels: "a=b,c in (d)".into(),
            ..Selection::default()
        };
        let list = ListRequest {
            resource_version: Some("0".into()),
            limit: 500,
            continue_token: None,
        };
        let request = list.build(&Endpoint::of::<Pod>(), &selection).unwrap();
        assert_eq!(
            request.uri().query().unwrap(),
            "labelSelector=a%3Db%2Cc+in+%28d%29&limit=500&resourceVersion=0"
        );
    }

    #[test]
    fn no_list_asks_for_the_very_version_that_is_known() {
        let query = |version: &str, limit| {
            let list = ListRequest {
                resource_version: Some(version.into()),
                limit,
                continue_token: None,
            };
            let request = list.build(&Endpoint::of::<Pod>(), &Selection::default());
            request.unwrap().uri().query().unwrap().to_owned()
        };
        assert_eq!(
            query("7", 2),
            "limit=2&resourceVersion=7&resourceVersionMatch=NotOlderThan"
        );
        assert_eq!(query("7", 0), "resourceVersion=7");
        assert_eq!(query("0", 2), "limit=2&resourceVersion=0");
    }

    #[test]
    fn a_streaming_list_is_a_watch_that_asks_for_what_is_there_first() {
        let query = |version: &str, send_initial_events| {
            let watch = WatchRequest {
                resource_version: version.into(),
                send_initial_events,
                timeout: Duration::from_secs(300),
            };
            let request = watch.build(&Endpoint::of::<Pod>(), &Selection::default());
            request.unwrap().uri().query().unwrap().to_owned()
        };
        const WATCH: &str = "watch=true&allowWatchBookmarks=true&timeoutSeconds=300";
        const FIRST: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        assert_eq!(query("", true), format!("{WATCH}&{FIRST}"));
        assert_eq!(
            query("7", true),
            format!("{WATCH}&resourceVersion=7&{FIRST}")
        );
        assert_eq!(query("7", false), format!("{WATCH}&resourceVersion=7"));
    }

    #[test]
    fn a_continued_list_sends_no_version() {
        let list = ListRequest {
            resource_version: Some("5".into()),
            limit: 2,
            continue_token: Some("t".into()),
        };
        let request = list
            .build(&Endpoint::of::<Pod>(), &Selection::default())
            .unwrap();
        assert_eq!(request.uri().query().unwrap(), "limit=2&continue=t");
    }

    #[test]
    fn metadata_only_kinds_ask_for_metadata_only() {
        let endpoint = Endpoint::of::<PartialObjectMeta<Pod>>();
        let request = ListRequest::default()
            .build(&endpoint, &Selection::default())
            .unwrap();
        let accept = request.headers()[ACCEPT].to_str().unwrap();
        assert!(accept.contains("as=PartialObjectMetadataList"), "{accept}");
    }

    #[test]
    fn a_namespace_that_is_no_path_is_an_error() {
        let selection = Selection {
            scope: Scope::namespace("a b"),
            ..Selection::default()
        };
        let built = ListRequest::default().build(&Endpoint::of::<Pod>(), &selection);
        assert!(matches!(built, Err(Error::Request { .. })));
    }
}
