//! LIST: of everything, of consistent pages, at an exact version.

use std::sync::Arc;

use super::continuation::Continuation;
use super::conversion;
use super::present::ListMeta;
use super::read::{history_status, resource_version, wait_for};
use super::selection::Selection;
use crate::core::Core;
use crate::field::{FieldError, Path};
use crate::request::Request;
use crate::status::Status;
use crate::store::{HistoryError, Key, Object, Query};

/// The most objects that are read at once for a page of a selection that matches converted objects. (apiserver:
/// `maxLimit` of the storage.)
const MOST_AT_ONCE: usize = 10_000;

/// The message for a page that cannot be served any more. (apiserver: `storage.NewExpired…`.)
const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// The meaning of `resourceVersion` and `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The newest state.
    Newest,
    /// At least this.
    NotOlderThan(u64),
    /// Exactly this.
    Exactly(u64),
    /// Any state; the limit does not count.
    Any,
}

/// The objects of the request, with the metadata of their list.
///
/// # Errors
/// 400, 410, 422 and 504 of the rules for versions and pages.
pub(crate) async fn list(
    core: &Core,
    request: &Request,
) -> Result<(Vec<Arc<Object>>, ListMeta), Status> {
    let query = &request.query;
    check(request)?;
    let selection = Selection::of(&request.info, query, "")?;
    let limit = query
        .number("limit")?
        .and_then(|limit| usize::try_from(limit).ok())
        .filter(|&limit| limit > 0);
    query.number("timeoutSeconds")?;
    let prefix = request.prefix();
    let token = query
        .get("continue")
        .map(Continuation::decode)
        .transpose()?;
    let at = at(request, limit.is_some())?;
    let (version, after, limit) = match (&token, at) {
        (Some(token), At::Newest | At::Any) => (
            token.version,
            Some(format!("{prefix}{}", token.after)),
            limit,
        ),
        (Some(_), _) => {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        (None, At::Newest) => (None, None, limit),
        (None, At::Any) => (None, None, None),
        (None, At::NotOlderThan(version)) => {
            wait_for(core, version).await?;
            (None, None, limit)
        }
        (None, At::Exactly(version)) => (Some(version), None, limit),
    };
    let accept = |object: &Object| selection.may_match(object);
    let read = |after: Option<&str>, at: Option<u64>, limit: Option<usize>| {
        let page = core.store.page(
            &request.info.storage,
            &Query {
                prefix: &prefix,
                after,
                at,
                limit,
                accept: &accept,
            },
        );
        page.map_err(|error| match (error, &token) {
            (HistoryError::TooOld { .. }, Some(token)) => {
                let mut status = Status::expired(CONTINUE_EXPIRED);
                let after = token.after.clone();
                let version = None;
                status.continue_token = Some(Continuation { version, after }.encode());
                status
            }
            (error, _) => history_status(error),
        })
    };
    let mut page = read(after.as_deref(), version.or(request.stale), limit)?;
    let shown = |objects| conversion::shown(core.network(), &request.info, objects);
    let mut objects = shown(std::mem::take(&mut page.objects)).await?;
    if selection.is_of_version() {
        objects.retain(|object| selection.matches(object));
        let mut at_once = limit.unwrap_or_default();
        while let (Some(limit), Some(last)) = (limit, page.last.clone())
            && objects.len() < limit
        {
            at_once = at_once.saturating_mul(2).clamp(1, MOST_AT_ONCE);
            page = read(Some(last.as_str()), Some(page.version), Some(at_once))?;
            let more = shown(std::mem::take(&mut page.objects)).await?;
            objects.extend(more.into_iter().filter(|object| selection.matches(object)));
            if objects.len() > limit {
                objects.truncate(limit);
                page.last = objects.last().map(|object| object.key().clone());
            }
        }
    }
    let meta = ListMeta {
        version: page.version,
        continue_token: page.last.as_ref().map(|last: &Key| {
            Continuation {
                version: Some(page.version),
                after: last.as_str()[prefix.len()..].to_owned(),
            }
            .encode()
        }),
        remaining: (page.remaining > 0 && selection.is_everything()).then_some(page.remaining),
        stored: core.store.count(&request.info.storage),
    };
    Ok((objects, meta))
}

fn at(request: &Request, limited: bool) -> Result<At, Status> {
    let version = resource_version(request.query.get("resourceVersion")).map_err(|status| {
        Status::bad_request(format!("invalid resource version: {}", status.message))
    })?;
    let exact = request
        .query
        .get("resourceVersionMatch")
        .map(|how| how == "Exact");
    Ok(match (version, exact) {
        (None, _) => At::Newest,
        (Some(0), _) => At::Any,
        (Some(version), Some(true)) => At::Exactly(version),
        (Some(version), None) if limited => At::Exactly(version),
        (Some(version), _) => At::NotOlderThan(version),
    })
}

/// The rules for the options of a list. (apimachinery: `ValidateListOptions`.)
fn check(request: &Request) -> Result<(), Status> {
    let query = &request.query;
    let version = query.get("resourceVersion");
    let mut errors = Vec::new();
    if let Some(how) = query.get("resourceVersionMatch") {
        let path = Path::new("resourceVersionMatch");
        if version.is_none() {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if query.get("continue").is_some() {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if how != "Exact" && how != "NotOlderThan" {
            errors.push(FieldError::not_supported(
                &path,
                how,
                &["Exact", "NotOlderThan", ""],
            ));
        }
        if how == "Exact" && version == Some("0") {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
    }
    if query.has("sendInitialEvents") {
        errors.push(FieldError::forbidden(
            &Path::new("sendInitialEvents"),
            "sendInitialEvents is forbidden for list",
        ));
    }
    options_invalid(&errors)
}

/// 422 about the options of a list or watch.
pub(crate) fn options_invalid(errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid("meta.k8s.io", "ListOptions", "", errors))
    }
}
