//! The objects of a write in the version in which a webhook reads them.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use tokio::task::spawn_blocking;

use super::hook::Hook;
use crate::admission::{AdmissionRequest, Server};
use crate::cel::{Authorizer, Condition, Variables};
use crate::rbac::Attributes;
use crate::resource::ResourceInfo;
use crate::status::Status;
use crate::verbs::conversion;

/// The objects of a write in the version in which a webhook reads them.
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
        asked: &'a AdmissionRequest<'_>,
        old: Option<&'a Value>,
        info: &ResourceInfo,
    ) -> Result<Self, Status> {
        let from = &asked.request.info;
        let object = asked.object.as_deref();
        Ok(Self {
            object: shown_as(object, from, info).await?,
            old: shown_as(old, from, info).await?,
        })
    }
}

/// An object of the version `from` in the version `to`. Those of other types, such as a Scale, have one version.
pub(super) async fn shown_as<'a>(
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
    let converted = conversion::between(from, to, object.clone()).await?;
    Ok(Some(Cow::Owned(converted)))
}

/// Whether the conditions of a webhook are met.
///
/// # Errors
/// 403 when they cannot be evaluated and the webhook's failures are not ignored.
pub(super) async fn meets_conditions(
    server: &Server<'_>,
    hook: &Arc<Hook>,
    asked: &AdmissionRequest<'_>,
    info: &ResourceInfo,
    view: &View<'_>,
) -> Result<bool, Status> {
    if hook.conditions.is_empty() {
        return Ok(true);
    }
    let request = super::review::request(asked, info);
    let of = asked.request;
    let variables = Variables {
        object: view.object.as_deref(),
        old_object: view.old.as_deref(),
        request: &request,
        authorizer: Authorizer::new(
            server.policy(),
            &of.user,
            Attributes {
                group: of.info.group.clone(),
                version: of.info.version.clone(),
                resource: of.info.plural.clone(),
                subresource: of.subresource.clone(),
                namespace: asked.namespace().to_owned(),
                name: asked.name().to_owned(),
                ..Attributes::default()
            },
        ),
    };
    let met = if Condition::are_deep(&hook.conditions) {
        let (hook, request) = (hook.clone(), request.clone());
        let authorizer = variables.authorizer.clone();
        let (object, old_object) = (
            view.object.as_deref().cloned(),
            view.old.as_deref().cloned(),
        );
        let evaluate = move || {
            let variables = Variables {
                object: object.as_ref(),
                old_object: old_object.as_ref(),
                request: &request,
                authorizer,
            };
            Condition::all_hold(&hook.conditions, &variables)
        };
        let evaluated = spawn_blocking(evaluate).await;
        evaluated.unwrap_or_else(|error| Err(error.to_string()))
    } else {
        Condition::all_hold(&hook.conditions, &variables)
    };
    match met {
        Ok(met) => Ok(met),
        Err(_) if hook.ignores_failures => Ok(false),
        Err(why) => Err(Status::forbidden(of.resource(), asked.name(), why)),
    }
}
