//! The objects of a write in the version in which a webhook or policy reads them.

use std::borrow::Cow;

use serde_json::Value;

use super::request::AdmissionRequest;
use super::review_request::review_request;
use super::server::Server;
use crate::cel::{Authorizer, Variables};
use crate::rbac::Attributes;
use crate::resource::ResourceInfo;
use crate::status::Status;
use crate::verbs::conversion;

/// The objects of a write in the version in which a webhook or policy reads them.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) object: Option<Cow<'a, Value>>,
    pub(super) old: Option<Cow<'a, Value>>,
}

// === impl View ===

impl<'a> View<'a> {
    /// The objects of a write in the version of `info`.
    ///
    /// # Errors
    /// 500 for an object that cannot be converted.
    pub(super) async fn of(
        server: &Server<'_>,
        asked: &'a AdmissionRequest<'_>,
        old: Option<&'a Value>,
        info: &ResourceInfo,
    ) -> Result<Self, Status> {
        let from = &asked.request.info;
        let object = asked.object.as_deref();
        Ok(Self {
            object: shown_as(server, object, from, info).await?,
            old: shown_as(server, old, from, info).await?,
        })
    }

    /// The variables of expressions about the write, as one of `info`.
    pub(super) fn variables(
        &self,
        server: &Server<'_>,
        asked: &AdmissionRequest<'_>,
        info: &ResourceInfo,
    ) -> Variables {
        let of = asked.request;
        let attributes = Attributes {
            group: of.info.group.clone(),
            version: of.info.version.clone(),
            resource: of.info.plural.clone(),
            subresource: of.subresource.clone(),
            namespace: asked.namespace().to_owned(),
            name: asked.name().to_owned(),
            ..Attributes::default()
        };
        Variables::new(
            self.object.as_deref(),
            self.old.as_deref(),
            &review_request(asked, info),
            &Authorizer::new(server.policy(), &of.user, attributes),
        )
    }
}

/// An object of the version `from` in the version `to`. Those of other types, such as a Scale, have one version.
///
/// # Errors
/// 500 for an object that cannot be converted.
pub(super) async fn shown_as<'a>(
    server: &Server<'_>,
    object: Option<&'a Value>,
    from: &ResourceInfo,
    to: &ResourceInfo,
) -> Result<Option<Cow<'a, Value>>, Status> {
    let Some(object) = object else {
        return Ok(None);
    };
    if from.api_version() == to.api_version() || object["kind"] != *from.kind {
        return Ok(Some(Cow::Borrowed(object)));
    }
    let converted = conversion::between(server.network(), from, to, object.clone()).await?;
    Ok(Some(Cow::Owned(converted)))
}
