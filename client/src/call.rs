//! A call, and its conversion to an HTTP request.

use std::fmt::{self, Write};
use std::sync::Arc;

use crate::key::ObjectKey;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method};
use kube_core::params::{DeleteParams, ListParams, VersionMatch};
use kube_core::response::Status;
use kube_core::{ApiResource, ObjectMeta};
use serde_json::Value;

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::options::WriteOptions;
use crate::patch::{Form, Patch};

/// The longest name of a field owner, in bytes (the API server's limit).
const NAME_LIMIT: usize = 128;

/// The verb of a call. A patch in the form of an apply is [`Verb::Apply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads many objects.
    List,
    /// Creates an object.
    Create,
    /// Replaces an object.
    Update,
    /// Changes an object.
    Patch,
    /// Server-side apply.
    Apply,
    /// Deletes an object.
    Delete,
    /// Deletes many objects.
    DeleteAllOf,
}

// === impl Verb ===

impl Verb {
    /// Whether it may change an object.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::List)
    }

    /// The verb in messages and roles.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Apply => "apply",
            Self::Delete => "delete",
            Self::DeleteAllOf => "delete all of",
        }
    }

    fn method(self) -> Method {
        match self {
            Self::Get | Self::List => Method::GET,
            Self::Create => Method::POST,
            Self::Update => Method::PUT,
            Self::Patch | Self::Apply => Method::PATCH,
            Self::Delete | Self::DeleteAllOf => Method::DELETE,
        }
    }
}

/// One call of a client. Interceptors see it, see [`Interceptor`](crate::Interceptor).
///
/// Its `Debug` form gives the length of the body in bytes, not the body: that may be a Secret.
#[derive(Clone)]
pub struct Call {
    pub(crate) verb: Verb,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) namespace: Option<String>,
    /// Empty for collections, and for a create whose name the server makes.
    pub(crate) name: String,
    pub(crate) subresource: Option<String>,
    pub(crate) options: WriteOptions,
    pub(crate) body: Vec<u8>,
    pub(crate) form: Option<Form>,
    pub(crate) selection: Option<Box<ListParams>>,
    pub(crate) deletion: Option<Box<DeleteParams>>,
}

// === impl Call ===

impl Call {
    /// A call of `verb` for the kind of `endpoint`, without an object.
    #[must_use]
    pub fn new(verb: Verb, endpoint: &Arc<Endpoint>) -> Self {
        Self {
            verb,
            endpoint: Arc::clone(endpoint),
            namespace: None,
            name: String::new(),
            subresource: None,
            options: WriteOptions::new(),
            body: Vec::new(),
            form: None,
            selection: None,
            deletion: None,
        }
    }

    /// The same call for the object `key`.
    #[must_use]
    pub fn key(mut self, key: &ObjectKey) -> Self {
        self.namespace = key.namespace.as_deref().map(str::to_owned);
        self.name = key.name.to_string();
        self
    }

    pub(crate) fn object(mut self, meta: &ObjectMeta, body: Vec<u8>) -> Self {
        let namespace = meta.namespace.clone();
        self.namespace = namespace.filter(|namespace| !namespace.is_empty());
        self.name = meta.name.clone().unwrap_or_default();
        self.body = body;
        self
    }

    /// The same call for a subresource of the object.
    #[must_use]
    pub fn subresource(mut self, name: Option<&str>) -> Self {
        self.subresource = name.map(str::to_owned);
        self
    }

    pub(crate) fn options(mut self, options: impl Into<WriteOptions>) -> Self {
        self.options = options.into();
        self
    }

    pub(crate) fn in_namespace(mut self, namespace: Option<&str>) -> Self {
        self.namespace = namespace.map(str::to_owned);
        self
    }

    pub(crate) fn selecting(mut self, params: &ListParams) -> Self {
        self.selection = Some(Box::new(params.clone()));
        self
    }

    pub(crate) fn deleting(mut self, params: &DeleteParams) -> Self {
        self.options.dry_run = params.dry_run;
        self.deletion = Some(Box::new(params.clone()));
        self
    }

    /// Sets the verb, too: an apply is not a patch.
    pub(crate) fn patch(mut self, patch: Patch) -> Result<Self, Error> {
        if patch.form == Form::Apply {
            self.verb = Verb::Apply;
        }
        self.form = Some(patch.form);
        self.body = patch.body.map_err(|problem| self.invalid(problem))?;
        Ok(self)
    }

    /// The verb.
    #[must_use]
    pub fn verb(&self) -> Verb {
        self.verb
    }

    /// The kind, as the server serves it.
    #[must_use]
    pub fn resource(&self) -> &ApiResource {
        &self.endpoint.resource
    }

    /// Whether it requests metadata only.
    #[must_use]
    pub fn is_metadata_only(&self) -> bool {
        self.endpoint.metadata_only
    }

    /// The namespace; `None` for all of them, and for kinds without namespaces.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The object's name; empty for a collection, and for a create whose name the server generates.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `status`, `scale` and so on.
    #[must_use]
    pub fn subresource_name(&self) -> Option<&str> {
        self.subresource.as_deref()
    }

    /// The options of a create, an update or a patch.
    pub fn write_options(&self) -> &WriteOptions {
        &self.options
    }

    /// The form of a patch.
    #[must_use]
    pub fn patch_form(&self) -> Option<Form> {
        self.form
    }

    /// The selection of a list or a delete of many.
    #[must_use]
    pub fn selection(&self) -> Option<&ListParams> {
        self.selection.as_deref()
    }

    /// Delete options: propagation and preconditions.
    #[must_use]
    pub fn deletion(&self) -> Option<&DeleteParams> {
        self.deletion.as_deref()
    }

    /// The object or the patch to send; `None` where there is none.
    #[must_use]
    pub fn body(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The key of the object.
    #[must_use]
    pub fn object_key(&self) -> ObjectKey {
        match &self.namespace {
            Some(namespace) => ObjectKey::namespaced(namespace.as_str(), self.name.as_str()),
            None => ObjectKey::cluster(self.name.as_str()),
        }
    }

    /// The verb and the object, for messages.
    pub(crate) fn describe(&self) -> String {
        let verb = self.verb.as_str();
        let mut text = String::from(verb);
        if let Some(subresource) = &self.subresource {
            let _ = write!(text, " {subresource} of");
        }
        if matches!(self.verb, Verb::List | Verb::DeleteAllOf) {
            let _ = write!(text, " {}", self.endpoint.resource.plural);
            if let Some(namespace) = &self.namespace {
                let _ = write!(text, " in {namespace}");
            }
        } else {
            let kind = self.endpoint.resource.kind.to_lowercase();
            let _ = write!(text, " {kind} {}", self.object_key());
        }
        text
    }

    pub(crate) fn invalid(&self, message: impl Into<String>) -> Error {
        Error::Invalid {
            request: self.describe(),
            message: message.into(),
        }
    }

    /// The HTTP request.
    pub(crate) fn http(&self) -> Result<http::Request<Vec<u8>>, Error> {
        let uri = format!("{}{}", self.path()?, self.query()?);
        let mut request = http::Request::builder()
            .method(self.verb.method())
            .uri(uri)
            .header(ACCEPT, HeaderValue::from_static(self.accept()));
        let body = self.payload()?;
        if !body.is_empty() {
            let content = self.form.map_or("application/json", Form::content_type);
            request = request.header(CONTENT_TYPE, HeaderValue::from_static(content));
        }
        let mut request = request
            .body(body)
            .map_err(|error| self.invalid(error.to_string()))?;
        // The name of kube-client's trace span.
        request.extensions_mut().insert(self.verb.as_str());
        Ok(request)
    }

    fn path(&self) -> Result<String, Error> {
        let resource = &self.endpoint.resource;
        let root = if resource.group.is_empty() {
            "/api"
        } else {
            "/apis"
        };
        let mut path = format!("{root}/{}", resource.api_version);
        match (&self.namespace, self.endpoint.namespaced) {
            (None, Some(true)) if !matches!(self.verb, Verb::List) => {
                return Err(self.invalid(format!(
                    "objects of kind {} are in a namespace: name one",
                    resource.kind
                )));
            }
            // A cluster-scoped object has no namespace, whatever its key holds (so does controller-runtime's cache).
            (_, Some(false)) | (None, _) => {}
            (Some(namespace), _) => {
                path.push_str("/namespaces/");
                self.push_segment(&mut path, "namespace", namespace)?;
            }
        }
        path.push('/');
        path.push_str(&resource.plural);
        let collection = matches!(self.verb, Verb::List | Verb::DeleteAllOf)
            || (self.verb == Verb::Create && self.subresource.is_none());
        if !collection {
            path.push('/');
            self.push_segment(&mut path, "name", &self.name)?;
        }
        if let Some(subresource) = &self.subresource {
            path.push('/');
            self.push_segment(&mut path, "subresource", subresource)?;
        }
        Ok(path)
    }

    /// Refuses names that are not path segments: they would reach another object, or the whole collection (client-go:
    /// `IsValidPathSegmentName`).
    fn push_segment(&self, path: &mut String, what: &str, segment: &str) -> Result<(), Error> {
        if segment.is_empty() {
            return Err(self.invalid(format!("the {what} is empty")));
        }
        if matches!(segment, "." | "..") || segment.contains(['/', '%']) {
            return Err(self.invalid(format!("the {what} {segment:?} is no part of a path")));
        }
        for byte in segment.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => {
                    path.push(char::from(byte));
                }
                _ => {
                    let _ = write!(path, "%{byte:02X}");
                }
            }
        }
        Ok(())
    }

    fn query(&self) -> Result<String, Error> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if let Some(selection) = &self.selection {
            select(&mut query, selection, self.verb == Verb::List);
        }
        if matches!(
            self.verb,
            Verb::Create | Verb::Update | Verb::Patch | Verb::Apply
        ) {
            let options = &self.options;
            if options.dry_run {
                query.append_pair("dryRun", "All");
            }
            if let Some(owner) = &options.field_owner {
                if owner.len() > NAME_LIMIT {
                    return Err(self.invalid("the field owner is longer than 128 bytes"));
                }
                query.append_pair("fieldManager", owner);
            }
            if let Some(validation) = options.field_validation {
                query.append_pair("fieldValidation", validation.as_str());
            }
            match (self.verb, options.force) {
                (Verb::Apply, force) => {
                    if options.field_owner.is_none() {
                        return Err(self.invalid("an apply needs a field owner"));
                    }
                    query.append_pair("force", if force { "true" } else { "false" });
                }
                (_, true) => return Err(self.invalid("only an apply can be forced")),
                (_, false) => {}
            }
        }
        let query = query.finish();
        Ok(if query.is_empty() {
            query
        } else {
            format!("?{query}")
        })
    }

    fn payload(&self) -> Result<Vec<u8>, Error> {
        let Some(deletion) = &self.deletion else {
            return Ok(self.body.clone());
        };
        let mut deletion = deletion.clone();
        deletion.dry_run = self.options.dry_run;
        serde_json::to_vec(&deletion).map_err(|error| self.invalid(error.to_string()))
    }

    fn accept(&self) -> &'static str {
        match (self.endpoint.metadata_only, self.verb) {
            // A verb that returns an object can return its metadata; a delete may return a Status.
            (true, Verb::Get | Verb::Patch | Verb::Apply) if self.subresource.is_none() => {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
            }
            (true, Verb::List) => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
            }
            _ => "application/json",
        }
    }
}

fn select(query: &mut form_urlencoded::Serializer<'_, String>, params: &ListParams, list: bool) {
    let mut add = |name: &str, value: Option<&str>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            query.append_pair(name, value);
        }
    };
    add("labelSelector", params.label_selector.as_deref());
    add("fieldSelector", params.field_selector.as_deref());
    if !list {
        return;
    }
    let limit = params.limit.map(|limit| limit.to_string());
    add("limit", limit.as_deref());
    // A continue token includes the version.
    if params.continue_token.is_some() {
        add("continue", params.continue_token.as_deref());
        return;
    }
    add("resourceVersion", params.resource_version.as_deref());
    let matching = params
        .version_match
        .as_ref()
        .map(|matching| match matching {
            VersionMatch::NotOlderThan => "NotOlderThan",
            VersionMatch::Exact => "Exact",
        });
    add("resourceVersionMatch", matching);
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("request", &self.describe())
            .field("options", &self.options)
            .field("form", &self.form)
            .field("selection", &self.selection)
            .field("deletion", &self.deletion)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

impl Error {
    /// An error as if the server refused `call` with this code, reason (`NotFound`, `Conflict`, …) and message: for
    /// [interceptors](crate::Interceptor).
    #[must_use]
    pub fn refused(call: &Call, code: u16, reason: &str, message: &str) -> Self {
        Self::Api {
            request: call.describe(),
            status: Box::new(Status::failure(message, reason).with_code(code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Node};
    use serde_json::json;

    use super::*;
    use crate::options::{ApplyOptions, FieldValidation};

    fn call<K: kube_core::Resource<DynamicType = ()> + 'static>(verb: Verb) -> Call {
        Call::new(verb, &Arc::new(Endpoint::of::<K>(&())))
    }

    fn uri(call: &Call) -> String {
        call.http().unwrap().uri().to_string()
    }

    #[test]
    fn paths_and_queries_are_those_of_the_call() {
        let key = ObjectKey::namespaced("ns", "web");
        let options = WriteOptions::new()
            .dry_run()
            .field_owner("me & you")
            .field_validation(FieldValidation::Strict);
        let list = ListParams::default()
            .labels("app in (a,b)")
            .limit(2)
            .at("0");
        for (case, call, expected) in [
            (
                "get",
                call::<ConfigMap>(Verb::Get).key(&key),
                "/api/v1/namespaces/ns/configmaps/web",
            ),
            (
                "create",
                call::<ConfigMap>(Verb::Create).key(&key).options(options),
                "/api/v1/namespaces/ns/configmaps?dryRun=All&fieldManager=me+%26+you&fieldValidation=Strict",
            ),
            (
                "limit does not drop version 0",
                call::<ConfigMap>(Verb::List).selecting(&list),
                "/api/v1/configmaps?labelSelector=app+in+%28a%2Cb%29&limit=2&resourceVersion=0",
            ),
            (
                "a token sends no version",
                call::<ConfigMap>(Verb::List).selecting(&list.clone().continue_token("t")),
                "/api/v1/configmaps?labelSelector=app+in+%28a%2Cb%29&limit=2&continue=t",
            ),
            (
                "of many only the selection counts",
                call::<ConfigMap>(Verb::DeleteAllOf)
                    .in_namespace(Some("ns"))
                    .selecting(&list),
                "/api/v1/namespaces/ns/configmaps?labelSelector=app+in+%28a%2Cb%29",
            ),
            (
                "cluster-scoped",
                call::<Node>(Verb::Update)
                    .key(&key)
                    .subresource(Some("status")),
                "/api/v1/nodes/web/status",
            ),
            (
                "apply",
                call::<ConfigMap>(Verb::Apply)
                    .key(&key)
                    .options(ApplyOptions::new("me").force().0),
                "/api/v1/namespaces/ns/configmaps/web?fieldManager=me&force=true",
            ),
            (
                "names of roles have colons and more",
                call::<Node>(Verb::Get).key(&ObjectKey::cluster("system:a b")),
                "/api/v1/nodes/system:a%20b",
            ),
        ] {
            assert_eq!(uri(&call), expected, "{case}");
        }
    }

    #[test]
    fn what_would_reach_something_else_is_not_sent() {
        let named = |name: &str| ObjectKey::namespaced("ns", name);
        for (case, call, problem) in [
            (
                "the collection",
                call::<ConfigMap>(Verb::Delete).key(&named("")),
                "the name is empty",
            ),
            (
                "up",
                call::<ConfigMap>(Verb::Get).key(&named("..")),
                "no part of a path",
            ),
            (
                "another object",
                call::<ConfigMap>(Verb::Get).key(&named("a/../b")),
                "no part of a path",
            ),
            (
                "escaped",
                call::<ConfigMap>(Verb::Get).key(&named("a%2Fb")),
                "no part of a path",
            ),
            (
                "another namespace",
                call::<ConfigMap>(Verb::Get).key(&ObjectKey::namespaced("a/b", "c")),
                "no part of a path",
            ),
            (
                "every namespace",
                call::<ConfigMap>(Verb::DeleteAllOf),
                "are in a namespace",
            ),
            (
                "an apply without an owner",
                call::<ConfigMap>(Verb::Apply).key(&named("a")),
                "needs a field owner",
            ),
            (
                "a forced update",
                call::<ConfigMap>(Verb::Update)
                    .key(&named("a"))
                    .options(ApplyOptions::new("me").force().0),
                "only an apply can be forced",
            ),
        ] {
            let error = call.http().unwrap_err();
            assert!(error.to_string().contains(problem), "{case}: {error}");
            assert!(!error.is_ambiguous(), "{case}");
        }
    }

    #[test]
    fn the_debug_form_of_a_call_or_a_patch_has_the_length_of_the_body_and_not_the_body() {
        let patch = Patch::merge(json!({"stringData": {"password": "hunter2"}}));
        let length = patch.body.as_ref().unwrap().len();
        let bytes = patch.body.clone().unwrap();
        let shown = format!("{patch:?}");
        let call = call::<ConfigMap>(Verb::Patch).key(&ObjectKey::namespaced("ns", "web"));
        let call = format!("{:?}", call.patch(patch).unwrap());
        for shown in [&shown, &call] {
            // As text, and as the list of numbers that a derived form shows.
            assert!(!shown.contains("hunter2"), "{shown}");
            assert!(!shown.contains(&format!("{bytes:?}")), "{shown}");
            assert!(shown.contains(&length.to_string()), "{shown}");
        }
        assert!(call.contains("patch configmap ns/web"), "{call}");
    }

    #[test]
    fn a_delete_says_in_its_body_how() {
        let params = DeleteParams::foreground().grace_period(5);
        let mut call = call::<ConfigMap>(Verb::Delete)
            .key(&ObjectKey::namespaced("ns", "web"))
            .deleting(&params);
        call.options.dry_run = true;
        let body: Value = serde_json::from_slice(call.http().unwrap().body()).unwrap();
        assert_eq!(
            body,
            json!({"dryRun": ["All"], "gracePeriodSeconds": 5, "propagationPolicy": "Foreground"})
        );
    }
}
